//! Claims of persistent volumes that have the content of a VM's disks: which there must be before its pod is made, and what of them the
//! pod and its runner need.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, VolumeDevice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use neonvm_api::VirtualMachine;
use neonvm_api::names::label;
use neonvm_api::runner_pod::{self as place, RunnerClaim};
use neonvm_api::virtual_machine::{ClaimTemplate, VolumeStatus};
use neonvm_types::{Bytes, Quantity};

/// Access modes of volumes that several nodes write, and that several nodes only read.
const SHARED: &str = "ReadWriteMany";
const SHARED_READ_ONLY: &str = "ReadOnlyMany";

/// A claim, as far as a VM depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimView {
    /// Its name; it is in the VM's namespace.
    pub name: String,
    /// The volume is given to pods as a block device.
    pub block: bool,
    /// Access modes that are requested.
    pub access: Vec<String>,
    /// Size of the volume; what is requested as long as there is no volume.
    pub size: Bytes,
    /// It is being deleted: no new pod gets it.
    pub deleting: bool,
}

impl From<&PersistentVolumeClaim> for ClaimView {
    fn from(claim: &PersistentVolumeClaim) -> Self {
        let spec = claim.spec.clone().unwrap_or_default();
        let requested = spec.resources.and_then(|resources| resources.requests);
        let given = claim.status.as_ref().and_then(|status| status.capacity.clone());
        let size = |amounts: Option<BTreeMap<String, _>>| amounts.and_then(|mut all| all.remove("storage"));
        let size = size(given).or_else(|| size(requested));
        let size = size.and_then(|size| size.0.parse::<Quantity>().ok());
        Self {
            name: claim.metadata.name.clone().unwrap_or_default(),
            block: spec.volume_mode.as_deref() == Some("Block"),
            access: spec.access_modes.unwrap_or_default(),
            size: size.and_then(|size| Bytes::try_from(size).ok()).unwrap_or_default(),
            deleting: claim.metadata.deletion_timestamp.is_some(),
        }
    }
}

impl ClaimView {
    /// Whether a second node may open the volume while the first one has it.
    fn is_shared(&self, read_only: bool) -> bool {
        self.access.iter().any(|mode| mode == SHARED || (read_only && mode == SHARED_READ_ONLY))
    }
}

/// What the claims of a VM let its controller do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// All are there. What the status has of them.
    Ready(Vec<VolumeStatus>),
    /// The claim of the template with this name has to be made.
    Missing(String),
    /// A person has to do something first.
    Waits(String),
}

/// Whether a pod of the VM can be made, by the claims that are known.
#[must_use]
pub fn readiness(vm: &VirtualMachine, known: &[ClaimView]) -> Readiness {
    let machine = vm.metadata.name.as_deref().unwrap_or_default();
    let mut volumes = Vec::new();
    for (disk, name) in vm.spec.claims(machine) {
        let Some(claim) = known.iter().find(|claim| claim.name == name) else {
            if disk.persistent_volume_claim.is_none() {
                return Readiness::Missing(disk.name.clone());
            }
            return Readiness::Waits(format!(
                "disk {}: there is no claim {name} in the VM's namespace; create it, or name another one",
                disk.name
            ));
        };
        if claim.deleting {
            return Readiness::Waits(format!(
                "disk {}: claim {name} is being deleted; wait until it is gone, or name another one",
                disk.name
            ));
        }
        let shared = claim.is_shared(disk.read_only);
        volumes.push(VolumeStatus { name: disk.name.clone(), claim_name: name, shared });
    }
    Readiness::Ready(volumes)
}

/// The claim of a template of the VM. It has no owner: whether it goes with the VM is decided when the VM is deleted.
#[must_use]
pub fn object(vm: &VirtualMachine, template: &ClaimTemplate) -> PersistentVolumeClaim {
    let machine = vm.metadata.name.clone().unwrap_or_default();
    let (own, annotations) = (&template.metadata, template.metadata.annotations.clone());
    let mut labels = own.labels.clone();
    labels.insert(label::VM_NAME.to_owned(), machine.clone());
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(format!("{}-{machine}", own.name)),
            namespace: vm.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: (!annotations.is_empty()).then_some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec.clone()),
        status: None,
    }
}

/// Names of the claims that go with the VM.
pub fn doomed(vm: &VirtualMachine) -> impl Iterator<Item = String> {
    let machine = vm.metadata.name.clone().unwrap_or_default();
    let templates = vm.spec.volume_claim_templates.iter().filter(|_| vm.spec.deletes_claims());
    templates.map(move |template| format!("{}-{machine}", template.metadata.name))
}

/// What the runner gets to know of the claims of its disks. Without those that are not known.
#[must_use]
pub fn for_runner(vm: &VirtualMachine, known: &[ClaimView]) -> BTreeMap<String, RunnerClaim> {
    let machine = vm.metadata.name.as_deref().unwrap_or_default();
    let claims = vm.spec.claims(machine).filter_map(|(disk, name)| {
        let claim = known.iter().find(|claim| claim.name == name)?;
        let shared = claim.is_shared(disk.read_only);
        Some((disk.name.clone(), RunnerClaim { name, block: claim.block, shared, size: claim.size }))
    });
    claims.collect()
}

/// Gives the runner of a planned pod the volumes of mode `Block` as devices. [`crate::pod::plan`] has all of them as directories.
pub fn fit(pod: &mut Pod, claims: &BTreeMap<String, RunnerClaim>) {
    let blocks: Vec<(&String, String)> = claims
        .iter()
        .filter(|(_, claim)| claim.block)
        .map(|(disk, _)| (disk, place::disk_volume(disk)))
        .collect();
    for container in pod.spec.iter_mut().flat_map(|spec| &mut spec.containers) {
        let mounts = container.volume_mounts.get_or_insert_default();
        let before = mounts.len();
        mounts.retain(|mount| !blocks.iter().any(|(_, volume)| *volume == mount.name));
        if mounts.len() == before {
            continue;
        }
        let devices = blocks.iter().map(|(disk, volume)| VolumeDevice {
            name: volume.clone(),
            device_path: format!("{}/{disk}", place::DEVICES_DIRECTORY),
        });
        container.volume_devices.get_or_insert_default().extend(devices);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vm(disks: &serde_json::Value) -> VirtualMachine {
        serde_json::from_value(json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
            "metadata": {"name": "pg", "namespace": "d", "uid": "u"}, "spec": {"guest": {
            "cpus": {"min": 1, "max": 1, "use": 1}, "memorySlots": {"min": 1, "max": 4, "use": 1}, "rootDisk": {"image": "i"}},
            "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": {"tier": "db"}}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}}],
            "disks": disks}}))
        .unwrap()
    }

    fn claim(spec: &serde_json::Value, capacity: &serde_json::Value) -> ClaimView {
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({"metadata": {"name": "data-pg"},
            "spec": spec, "status": {"capacity": capacity}}))
        .unwrap();
        ClaimView::from(&claim)
    }

    #[test]
    fn a_claim_has_the_size_of_its_volume_and_before_that_the_requested_one() {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "resources": {"requests": {"storage": "1Gi"}}});
        let before = claim(&spec, &json!(null));
        assert_eq!((before.size, before.block), (Bytes::gib(1), true));
        assert_eq!(claim(&spec, &json!({"storage": "2Gi"})).size, Bytes::gib(2));
        assert_eq!(
            claim(&json!({}), &json!(null)),
            ClaimView { name: "data-pg".into(), ..ClaimView::default() }
        );
    }

    #[test]
    fn a_pod_waits_for_all_claims_and_makes_those_of_templates() {
        let vm = vm(&json!([{"name": "data", "mountPath": "/data"},
            {"name": "old", "mountPath": "/old", "readOnly": true, "persistentVolumeClaim": {"claimName": "archive"}}]));
        assert_eq!(readiness(&vm, &[]), Readiness::Missing("data".into()));
        let own = ClaimView {
            name: "data-pg".into(),
            access: vec!["ReadWriteOnce".into()],
            ..ClaimView::default()
        };
        let Readiness::Waits(why) = readiness(&vm, std::slice::from_ref(&own)) else { panic!("no archive") };
        assert!(why.contains("no claim archive"), "{why}");
        let other =
            ClaimView { name: "archive".into(), access: vec!["ReadOnlyMany".into()], ..ClaimView::default() };
        let going = ClaimView { deleting: true, ..other.clone() };
        let Readiness::Waits(why) = readiness(&vm, &[own.clone(), going]) else { panic!("it goes") };
        assert!(why.contains("archive is being deleted"), "{why}");
        let volume = |name: &str, claim: &str, shared| VolumeStatus {
            name: name.into(),
            claim_name: claim.into(),
            shared,
        };
        let ready = Readiness::Ready(vec![volume("data", "data-pg", false), volume("old", "archive", true)]);
        assert_eq!(readiness(&vm, &[own, other]), ready);
    }

    #[test]
    fn the_claim_of_a_template_is_found_again_by_its_name_and_has_no_owner() {
        let mut vm = vm(&json!([{"name": "data", "mountPath": "/data"}]));
        let made = object(&vm, &vm.spec.volume_claim_templates[0]);
        assert_eq!(made.metadata.name.as_deref(), Some("data-pg"));
        assert_eq!(made.metadata.owner_references, None);
        let labels = made.metadata.labels.unwrap();
        assert_eq!((labels["tier"].as_str(), labels[label::VM_NAME].as_str()), ("db", "pg"));
        assert_eq!(doomed(&vm).count(), 0, "claims stay");
        vm.spec.persistent_volume_claim_retention_policy =
            serde_json::from_value(json!({"whenDeleted": "Delete"})).unwrap();
        assert_eq!(doomed(&vm).collect::<Vec<_>>(), ["data-pg"]);
    }

    #[test]
    fn volumes_of_mode_block_are_devices() {
        let vm = vm(&json!([{"name": "data", "mountPath": "/data"}]));
        let mut pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": {"containers": [
            {"name": "runner", "volumeMounts": [{"name": "disk-data", "mountPath": "/vm/disks/data"}, {"name": "x", "mountPath": "/x"}]}]}}))
        .unwrap();
        let before = pod.clone();
        let of = |mode: &str| {
            let spec = json!({"volumeMode": mode, "resources": {"requests": {"storage": "1Gi"}}});
            for_runner(&vm, &[claim(&spec, &json!(null))])
        };
        fit(&mut pod, &of("Filesystem"));
        assert_eq!(pod, before);
        fit(&mut pod, &of("Block"));
        let runner = &pod.spec.unwrap().containers[0];
        assert_eq!(runner.volume_mounts.as_ref().unwrap().len(), 1);
        let device = &runner.volume_devices.as_ref().unwrap()[0];
        assert_eq!((device.name.as_str(), device.device_path.as_str()), ("disk-data", "/vm/devices/data"));
    }
}
