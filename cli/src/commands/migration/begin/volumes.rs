//! What a migration does with the volumes of a VM's disks.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Api, ListParams};
use neonvm_api::VirtualMachine;
use neonvm_types::Bytes;
use serde::Serialize;

use crate::commands::{resource::NamespaceClient, vm::disk::capacity};

/// What a migration does with a volume.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Volume {
    disk: String,
    claim: String,
    /// Both nodes open it; otherwise it is copied to a new claim.
    shared: bool,
    /// Bytes of the volume, if they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<Bytes>,
    /// Most seconds that a copy takes, of a volume that is full, at the migration's bandwidth.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<u64>,
}

impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { disk, claim, .. } = self;
        if self.shared {
            return write!(f, "disk {disk}: claim {claim} is shared, both nodes open it");
        }
        write!(f, "disk {disk}: claim {claim}")?;
        if let Some(size) = self.size {
            write!(f, " ({size})")?;
        }
        write!(f, " is copied to a new claim while the VM runs")?;
        match self.seconds {
            Some(seconds) => write!(f, ", in {seconds} s if it is full and nothing else is slower"),
            None => Ok(()),
        }
    }
}

/// Sizes of the claims in the VM's namespace; none if this user may not list them.
pub(super) async fn sizes(client: &NamespaceClient, machine: &VirtualMachine) -> BTreeMap<String, Bytes> {
    if machine.status.as_ref().is_none_or(|status| status.volumes.is_empty()) {
        return BTreeMap::new();
    }
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.connection.client(), &client.namespace);
    let list = client.connection.within("cannot list claims", api.list(&ListParams::default())).await;
    let sizes = list
        .into_iter()
        .flat_map(|list| list.items)
        .filter_map(|claim| Some((claim.metadata.name.clone()?, capacity(&claim)?)));
    sizes.collect()
}

pub(super) fn plan(
    machine: &VirtualMachine,
    sizes: &BTreeMap<String, Bytes>,
    bandwidth: Bytes,
) -> Vec<Volume> {
    let volumes = machine.status.iter().flat_map(|status| &status.volumes);
    let plan = volumes.map(|volume| {
        let size = sizes.get(&volume.claim_name).copied();
        let copied = size.filter(|_| volume.is_copied() && bandwidth > Bytes::ZERO);
        Volume {
            disk: volume.name.clone(),
            claim: volume.claim_name.clone(),
            shared: volume.shared,
            size,
            seconds: copied.map(|size| size.get().div_ceil(bandwidth.get())),
        }
    });
    plan.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_volume_is_shared_or_copied() {
        let machine: VirtualMachine =
            serde_json::from_value(json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
            "metadata": { "name": "pg" }, "status": { "volumes": [
                { "name": "data", "claimName": "data-pg" }, { "name": "big", "claimName": "big-pg" },
                { "name": "all", "claimName": "all-pg", "shared": true }] },
            "spec": { "guest": { "cpus": { "min": 1, "max": 1, "use": 1 }, "rootDisk": { "image": "i" },
                "memorySlots": { "min": 1, "max": 1, "use": 1 } } } }))
            .unwrap();
        let sizes = [("data-pg".to_owned(), Bytes::mib(2050))].into();
        let lines: Vec<String> =
            plan(&machine, &sizes, Bytes::gib(1)).iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "disk data: claim data-pg (2050Mi) is copied to a new claim while the VM runs, in 3 s if it is full and nothing else is slower",
                "disk big: claim big-pg is copied to a new claim while the VM runs",
                "disk all: claim all-pg is shared, both nodes open it",
            ]
        );
    }
}
