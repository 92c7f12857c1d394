//! Copies of claims that migrations make: empty when made, partial while the guest's writes are mirrored, and the VM's claim from the one
//! write on that makes the target pod the VM's. Annotations have the same as the status, so that a later VM of the same name finds it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use neonvm_api::names::{annotation, label};
use neonvm_api::runner_pod::RunnerClaim;
use neonvm_api::virtual_machine::{ActiveMigration, CopyOf, VolumeStatus};
use neonvm_api::{VirtualMachine, VirtualMachineStatus};

use super::{ClaimView, size};
use crate::outcome::Action;

/// The claim that has the content of a disk for which the spec has a name; `None`: none has, and none ever had.
///
/// # Errors
/// If the content is in a claim that is gone, or several claims could have it; what a person can do.
pub(super) fn current<'k>(
    vm: &VirtualMachine,
    disk: &str,
    named: &str,
    known: &'k [ClaimView],
) -> Result<Option<&'k ClaimView>, String> {
    let find = |name: &str| known.iter().find(|claim| claim.name == name);
    if let Some(volume) = vm.status.as_ref().and_then(|status| status.moved(disk, named)) {
        let moved = &volume.claim_name;
        return find(moved).map(Some).ok_or_else(|| {
            format!("claim {moved}, which has had the content of {named} since a migration, is gone; restore it, or name another claim")
        });
    }
    let original = find(named);
    if let Some(claim) = original.filter(|claim| claim.replaced_by.is_empty()) {
        return Ok(Some(claim));
    }
    let whole = |claim: &&ClaimView| {
        claim.copy.as_ref().is_some_and(|copy| copy.whole && copy.claim == named)
            && claim.replaced_by.is_empty()
    };
    let found: Vec<&ClaimView> = known.iter().filter(whole).collect();
    match (found.as_slice(), original) {
        ([one], _) => Ok(Some(one)),
        ([], None) => Ok(None),
        ([], Some(claim)) => Err(format!(
            "claim {named} was replaced by {} at a migration, and that is gone; to use {named} as it was then, remove its annotation {}",
            claim.replaced_by,
            annotation::REPLACED_BY
        )),
        (several, _) => {
            let names: Vec<&str> = several.iter().map(|claim| claim.name.as_str()).collect();
            Err(format!(
                "claims {} are copies of {named}; name the one to use in the VM's spec, or delete the others",
                names.join(", ")
            ))
        }
    }
}

/// What the runner of a migration's target pod gets to know of the claims of its disks: those that are copied are new.
#[must_use]
pub fn for_target(vm: &VirtualMachine, known: &[ClaimView], pod: &str) -> BTreeMap<String, RunnerClaim> {
    let mut claims = super::for_runner(vm, known);
    for (volume, name) in vm.status.iter().flat_map(|status| status.copies(pod)) {
        if let Some(claim) = claims.get_mut(&volume.name) {
            claim.name = name;
        }
    }
    claims
}

/// The claim that gets the copy of a volume: of the same class, size and modes, for a volume that is empty.
#[must_use]
pub fn object(
    vm: &VirtualMachine,
    volume: &VolumeStatus,
    from: &PersistentVolumeClaim,
    name: &str,
) -> PersistentVolumeClaim {
    let machine = vm.metadata.name.clone().unwrap_or_default();
    let template = vm.spec.volume_claim_templates.iter().find(|one| one.metadata.name == volume.name);
    // Labels of a claim that a person made may be those by which another program takes it for its own.
    let mut labels = template.map(|template| template.metadata.labels.clone()).unwrap_or_default();
    labels.insert(label::VM_NAME.to_owned(), machine);
    let named = if volume.copy_of.is_empty() { &volume.claim_name } else { &volume.copy_of };
    let mark = CopyOf { claim: named.clone(), vm: vm.metadata.uid.clone().unwrap_or_default(), whole: false };
    let source = from.spec.clone().unwrap_or_default();
    let mut resources = source.resources.unwrap_or_default();
    let amount = Quantity(size(from).to_quantity().to_string());
    resources.requests.get_or_insert_default().insert("storage".to_owned(), amount);
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: vm.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: Some([(annotation::COPY_OF.to_owned(), text(&mark))].into()),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            volume_name: None,
            data_source: None,
            data_source_ref: None,
            resources: Some(resources),
            ..source
        }),
        status: None,
    }
}

/// The annotation of a copy.
#[must_use]
pub fn text(mark: &CopyOf) -> String {
    serde_json::to_string(mark).unwrap_or_default()
}

/// Makes the copies of a migration the VM's claims.
pub(crate) fn take(status: &mut VirtualMachineStatus, lock: &ActiveMigration) {
    for volume in status.volumes.iter_mut().filter(|volume| volume.is_copied()) {
        let copy = volume.copy_name(&lock.target_pod_name);
        volume.previous = std::mem::replace(&mut volume.claim_name, copy);
        volume.retain_previous = lock.retain_volumes;
        if volume.copy_of.is_empty() {
            volume.copy_of.clone_from(&volume.previous);
        }
    }
}

/// What is left to do about claims that migrations have copied.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Rest {
    /// In this order; the first one that fails ends them.
    pub(crate) actions: Vec<Action>,
    /// Some of them depend on what only the API server knows for sure.
    pub(crate) needs_fresh: bool,
}

/// What is left to do about a VM's claims: the copies that it runs on are marked as whole, the claims before them go or are marked as
/// replaced once no pod uses them (`quiet`), and copies that no migration makes any more go. `status` is brought up to what is done.
pub(crate) fn rest(
    (machine, uid): (&str, &str),
    status: &mut VirtualMachineStatus,
    known: &[ClaimView],
    quiet: bool,
) -> Rest {
    let mut rest = Rest::default();
    let find = |name: &str| known.iter().find(|claim| claim.name == name);
    for volume in status.volumes.iter_mut().filter(|volume| !volume.copy_of.is_empty()) {
        let current = find(&volume.claim_name);
        if let Some(mark) = current.and_then(|claim| claim.copy.as_ref()).filter(|mark| !mark.whole) {
            let mark = CopyOf { whole: true, ..mark.clone() };
            rest.actions.push(Action::MarkCopy { name: volume.claim_name.clone(), mark });
        }
        // Until its successor is known, a claim is the last one that is known to have the content.
        if volume.previous.is_empty() || current.is_none() || !quiet {
            continue;
        }
        let Some(previous) = find(&volume.previous) else {
            rest.needs_fresh = true;
            volume.previous = String::new();
            continue;
        };
        let goes = previous.vm == machine && !volume.retain_previous;
        let done = if goes { previous.deleting } else { previous.replaced_by == volume.claim_name };
        if done {
            volume.previous = String::new();
        } else if goes {
            rest.needs_fresh = true;
            rest.actions.push(Action::DeleteClaim { name: previous.name.clone(), partial: false });
        } else {
            let (name, by) = (previous.name.clone(), volume.claim_name.clone());
            rest.actions.push(Action::ReplaceClaim { name, by });
        }
    }
    for orphan in known.iter().filter(|claim| is_orphan(claim, (machine, uid), status)) {
        rest.needs_fresh = true;
        rest.actions.push(Action::DeleteClaim { name: orphan.name.clone(), partial: true });
    }
    rest
}

/// Whether a claim is a copy of this VM that was not completed, and that nothing completes any more.
fn is_orphan(claim: &ClaimView, (machine, uid): (&str, &str), status: &VirtualMachineStatus) -> bool {
    let partial = claim.copy.as_ref().is_some_and(|mark| !mark.whole && mark.vm == uid);
    let is_used = status.volumes.iter().any(|volume| volume.claim_name == claim.name);
    let is_made = status
        .migration
        .as_ref()
        .is_some_and(|lock| status.copies(&lock.target_pod_name).any(|(_, name)| name == claim.name));
    partial && claim.vm == machine && !claim.deleting && !is_used && !is_made
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vm(volumes: &serde_json::Value) -> VirtualMachine {
        serde_json::from_value(json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
            "metadata": {"name": "pg", "namespace": "d", "uid": "u"}, "status": {"volumes": volumes}, "spec": {"guest": {
            "cpus": {"min": 1, "max": 1, "use": 1}, "memorySlots": {"min": 1, "max": 4, "use": 1}, "rootDisk": {"image": "i"}},
            "disks": [{"name": "data", "mountPath": "/data", "persistentVolumeClaim": {"claimName": "mine"}}]}}))
        .unwrap()
    }

    fn claim(name: &str) -> ClaimView {
        ClaimView { name: name.into(), ..ClaimView::default() }
    }

    fn copy(name: &str, whole: bool) -> ClaimView {
        let mark = CopyOf { claim: "mine".into(), vm: "u".into(), whole };
        ClaimView { copy: Some(mark), vm: "pg".into(), ..claim(name) }
    }

    fn replaced(name: &str, by: &str) -> ClaimView {
        ClaimView { replaced_by: by.into(), ..claim(name) }
    }

    /// The claim that is used, or a part of the reason why none is.
    fn found(volumes: &serde_json::Value, known: &[ClaimView]) -> String {
        match current(&vm(volumes), "data", "mine", known) {
            Ok(claim) => claim.map_or("none".to_owned(), |claim| claim.name.clone()),
            Err(why) => why,
        }
    }

    #[test]
    fn the_claim_with_the_content_is_found() {
        let none = json!([]);
        assert_eq!(found(&none, &[]), "none");
        assert_eq!(found(&none, &[claim("mine")]), "mine");
        // A part of a copy is no copy.
        assert_eq!(found(&none, &[copy("a", false)]), "none");
        assert_eq!(found(&none, &[claim("mine"), copy("a", false)]), "mine");
        assert_eq!(found(&none, &[copy("a", true)]), "a");
        assert_eq!(found(&none, &[replaced("mine", "a"), copy("a", true)]), "a");
        let older = ClaimView { replaced_by: "b".into(), ..copy("a", true) };
        assert_eq!(found(&none, &[replaced("mine", "a"), older, copy("b", true)]), "b");
        assert!(
            found(&none, &[replaced("mine", "a")]).contains("remove its annotation vm.neon.tech/replaced-by")
        );
        assert!(found(&none, &[copy("a", true), copy("b", true)]).contains("claims a, b are copies of mine"));
    }

    #[test]
    fn the_status_names_the_claim_as_long_as_the_spec_has_the_same_one() {
        let moved = |of: &str| json!([{"name": "data", "claimName": "a", "copyOf": of}]);
        assert_eq!(found(&moved("mine"), &[claim("mine"), copy("a", true)]), "a");
        assert!(
            found(&moved("mine"), &[claim("mine")]).contains("claim a, which has had the content of mine")
        );
        assert_eq!(found(&moved("other"), &[claim("mine"), copy("a", false)]), "mine");
    }

    #[test]
    fn a_copy_is_of_the_same_class_and_size_and_belongs_to_nothing_else() {
        let from: PersistentVolumeClaim = serde_json::from_value(json!({"metadata": {"name": "mine", "namespace": "d",
            "labels": {"app": "x"}, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeMode": "Block", "volumeName": "pv-1",
                "dataSource": {"kind": "VolumeSnapshot", "name": "s"}, "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"capacity": {"storage": "2Gi"}}}))
        .unwrap();
        let vm = vm(&json!([{"name": "data", "claimName": "mine"}]));
        let volume = &vm.status.as_ref().unwrap().volumes[0];
        let made = serde_json::to_value(object(&vm, volume, &from, "pg-x-data")).unwrap();
        assert_eq!(
            made,
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": "pg-x-data", "namespace": "d", "labels": {"vm.neon.tech/name": "pg"},
                    "annotations": {"vm.neon.tech/copy-of": r#"{"claim":"mine","vm":"u","whole":false}"#}},
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeMode": "Block",
                    "resources": {"requests": {"storage": "2Gi"}}}})
        );
    }

    /// What a person made stays, and what was made for the VM goes, once nothing uses it.
    #[test]
    fn the_claim_before_goes_or_is_marked() {
        let moved = json!([{"name": "data", "claimName": "a", "copyOf": "mine", "previous": "mine"}]);
        let rest = |known: &[ClaimView], quiet: bool| {
            let mut status = vm(&moved).status.unwrap();
            let left = rest(("pg", "u"), &mut status, known, quiet);
            (left.actions, status.volumes[0].previous.clone())
        };
        let own = ClaimView { vm: "pg".into(), ..claim("mine") };
        let mark = Action::MarkCopy {
            name: "a".into(),
            mark: CopyOf { claim: "mine".into(), vm: "u".into(), whole: true },
        };
        let delete = Action::DeleteClaim { name: "mine".into(), partial: false };
        let replace = Action::ReplaceClaim { name: "mine".into(), by: "a".into() };
        assert_eq!(rest(&[own.clone(), copy("a", false)], false), (vec![mark.clone()], "mine".into()));
        assert_eq!(rest(&[own.clone(), copy("a", false)], true), (vec![mark, delete], "mine".into()));
        assert_eq!(rest(&[claim("mine"), copy("a", true)], true), (vec![replace], "mine".into()));
        assert_eq!(rest(&[replaced("mine", "a"), copy("a", true)], true), (vec![], String::new()));
        // Without its successor it is the last one.
        assert_eq!(rest(std::slice::from_ref(&own), true), (vec![], "mine".into()));
        let going = ClaimView { deleting: true, ..own };
        assert_eq!(rest(&[going, copy("a", true)], true), (vec![], String::new()));
    }
}
