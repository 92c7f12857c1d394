//! Claims of persistent volumes that have the content of a VM's disks: which there must be before its pod is made, and what of them the
//! pod and its runner need. A volume that one node at a time can mount is copied to a new claim by a migration ([`copy`]); the VM's
//! status then names that one in place of the claim in the spec.

pub mod copy;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, VolumeDevice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use neonvm_api::names::{annotation, label};
use neonvm_api::runner_pod::{self as place, RunnerClaim};
use neonvm_api::virtual_machine::{ClaimTemplate, CopyOf, Disk, VolumeStatus};
use neonvm_api::{VirtualMachine, VirtualMachineStatus};
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
    /// Name of the VM that it was made for; empty: it was not made for a VM.
    pub vm: String,
    /// A migration makes it, or made it, as the copy of another claim.
    pub copy: Option<CopyOf>,
    /// The claim that has had its content since a migration; empty: none.
    pub replaced_by: String,
}

impl From<&PersistentVolumeClaim> for ClaimView {
    fn from(claim: &PersistentVolumeClaim) -> Self {
        let spec = claim.spec.clone().unwrap_or_default();
        let text = |all: Option<&BTreeMap<String, String>>, key: &str| all?.get(key).cloned();
        let annotations = claim.metadata.annotations.as_ref();
        let copy = text(annotations, annotation::COPY_OF);
        Self {
            name: claim.metadata.name.clone().unwrap_or_default(),
            block: spec.volume_mode.as_deref() == Some("Block"),
            access: spec.access_modes.unwrap_or_default(),
            size: size(claim),
            deleting: claim.metadata.deletion_timestamp.is_some(),
            vm: text(claim.metadata.labels.as_ref(), label::VM_NAME).unwrap_or_default(),
            copy: copy.and_then(|json| serde_json::from_str(&json).ok()),
            replaced_by: text(annotations, annotation::REPLACED_BY).unwrap_or_default(),
        }
    }
}

/// Size of a claim's volume; what is requested as long as there is no volume.
fn size(claim: &PersistentVolumeClaim) -> Bytes {
    let requested = claim.spec.clone().unwrap_or_default().resources.and_then(|resources| resources.requests);
    let given = claim.status.as_ref().and_then(|status| status.capacity.clone());
    let size = |amounts: Option<BTreeMap<String, _>>| amounts.and_then(|mut all| all.remove("storage"));
    let size = size(given).or_else(|| size(requested));
    let size = size.and_then(|size| size.0.parse::<Quantity>().ok());
    size.and_then(|size| Bytes::try_from(size).ok()).unwrap_or_default()
}

impl ClaimView {
    /// Whether a second node may open the volume while the first one has it.
    fn is_shared(&self, read_only: bool) -> bool {
        self.access.iter().any(|mode| mode == SHARED || (read_only && mode == SHARED_READ_ONLY))
    }

    fn for_runner(&self, disk: &Disk) -> RunnerClaim {
        let shared = self.is_shared(disk.read_only);
        RunnerClaim { name: self.name.clone(), block: self.block, shared, size: self.size }
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
    let recorded = vm.status.iter().flat_map(|status| &status.volumes);
    let mut volumes = Vec::new();
    for (disk, named) in vm.spec.claims(machine) {
        let claim = match copy::current(vm, &disk.name, &named, known) {
            Ok(Some(claim)) => claim,
            Ok(None) if disk.persistent_volume_claim.is_none() => {
                return Readiness::Missing(disk.name.clone());
            }
            Ok(None) => {
                return Readiness::Waits(format!(
                    "disk {}: there is no claim {named} in the VM's namespace; create it, or name another one",
                    disk.name
                ));
            }
            Err(why) => return Readiness::Waits(format!("disk {}: {why}", disk.name)),
        };
        if claim.deleting {
            return Readiness::Waits(format!(
                "disk {}: claim {} is being deleted; wait until it is gone, or name another one",
                disk.name, claim.name
            ));
        }
        let before = recorded.clone().find(|one| one.name == disk.name && one.claim_name == claim.name);
        volumes.push(VolumeStatus {
            name: disk.name.clone(),
            claim_name: claim.name.clone(),
            shared: claim.is_shared(disk.read_only),
            read_only: disk.read_only,
            copy_of: if claim.name == named { String::new() } else { named },
            ..before.cloned().unwrap_or_default()
        });
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

/// Names of the claims that go with the VM: those of its templates, and what migrations have put in their place.
pub fn doomed<'a>(
    vm: &'a VirtualMachine,
    status: &'a VirtualMachineStatus,
) -> impl Iterator<Item = String> + 'a {
    let machine = vm.metadata.name.clone().unwrap_or_default();
    let templates = vm.spec.volume_claim_templates.iter().filter(|_| vm.spec.deletes_claims());
    templates.flat_map(move |template| {
        let named = format!("{}-{machine}", template.metadata.name);
        let now = status.claim_for(&template.metadata.name, &named).to_owned();
        if now == named { vec![named] } else { vec![now, named] }
    })
}

/// What the runner gets to know of the claims of its disks. Without those that are not known.
#[must_use]
pub fn for_runner(vm: &VirtualMachine, known: &[ClaimView]) -> BTreeMap<String, RunnerClaim> {
    let machine = vm.metadata.name.as_deref().unwrap_or_default();
    let claims = vm.spec.claims(machine).filter_map(|(disk, named)| {
        let claim = copy::current(vm, &disk.name, &named, known).ok().flatten()?;
        Some((disk.name.clone(), claim.for_runner(disk)))
    });
    claims.collect()
}

/// Gives a planned pod the claims of its disks, and its runner the volumes of mode `Block` as devices. [`crate::pod::plan`] has the
/// claims of the spec, and all of them as directories.
pub fn fit(pod: &mut Pod, claims: &BTreeMap<String, RunnerClaim>) {
    let blocks: Vec<(&String, String)> = claims
        .iter()
        .filter(|(_, claim)| claim.block)
        .map(|(disk, _)| (disk, place::disk_volume(disk)))
        .collect();
    let of_volume = |name: &str| claims.iter().find(|(disk, _)| place::disk_volume(disk) == name);
    for volume in pod.spec.iter_mut().flat_map(|spec| spec.volumes.iter_mut().flatten()) {
        if let (Some(source), Some((_, claim))) =
            (&mut volume.persistent_volume_claim, of_volume(&volume.name))
        {
            source.claim_name.clone_from(&claim.name);
        }
    }
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
        let volume = |name: &str, claim: &str| VolumeStatus {
            name: name.into(),
            claim_name: claim.into(),
            ..VolumeStatus::default()
        };
        let archive = VolumeStatus { shared: true, read_only: true, ..volume("old", "archive") };
        let ready = Readiness::Ready(vec![volume("data", "data-pg"), archive]);
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
        assert_eq!(doomed(&vm, &VirtualMachineStatus::default()).count(), 0, "claims stay");
        let none = VirtualMachineStatus::default();
        vm.spec.persistent_volume_claim_retention_policy =
            serde_json::from_value(json!({"whenDeleted": "Delete"})).unwrap();
        assert_eq!(doomed(&vm, vm.status.as_ref().unwrap_or(&none)).collect::<Vec<_>>(), ["data-pg"]);
        let moved = json!([{"name": "data", "claimName": "pg-x-data", "copyOf": "data-pg"}]);
        vm.status.get_or_insert_default().volumes = serde_json::from_value(moved).unwrap();
        assert_eq!(
            doomed(&vm, vm.status.as_ref().unwrap_or(&none)).collect::<Vec<_>>(),
            ["pg-x-data", "data-pg"]
        );
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
