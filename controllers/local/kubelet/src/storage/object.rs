//! The objects of local volumes, and what becomes of them. Pure.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use neonvm_types::Quantity as Amount;
use serde_json::{Value, json};

/// Name of the class, and of its provisioner.
pub(crate) const CLASS: &str = "local";
pub(crate) const PROVISIONER: &str = "vm.neon.tech/local";
/// Annotation of volumes and claims with the name of the provisioner, as Kubernetes has it.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Finalizers that Kubernetes' controllers remove.
pub(crate) const CLAIM_IN_USE: &str = "kubernetes.io/pvc-protection";
const HOST_NAME: &str = "kubernetes.io/hostname";

/// The class, which claims without a class get.
pub(crate) fn class() -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": PROVISIONER, "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": true})
}

/// Name of the volume for a claim with this UID. There is one of that name in the cluster, so that one node makes it.
pub(crate) fn volume_name(claim_uid: &str) -> String {
    format!("pvc-{claim_uid}")
}

/// The volume for a claim: a directory of a node.
pub(crate) fn volume(claim: &PersistentVolumeClaim, node: &str, path: &str, reclaim: &str) -> Value {
    let (meta, spec) = (&claim.metadata, claim.spec.clone().unwrap_or_default());
    let uid = meta.uid.clone().unwrap_or_default();
    json!({"apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": volume_name(&uid), "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {"capacity": {"storage": requested(claim)}, "accessModes": spec.access_modes, "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": reclaim, "storageClassName": spec.storage_class_name,
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": meta.name, "namespace": meta.namespace, "uid": uid},
            "local": {"path": path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": HOST_NAME, "operator": "In", "values": [node]}]}]}}}})
}

/// The size that a claim requests.
pub(crate) fn requested(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage").cloned()
}

/// Whether a volume is one of this provisioner, on this node.
pub(crate) fn is_own(volume: &PersistentVolume, node: &str) -> bool {
    let by = volume.metadata.annotations.as_ref().and_then(|all| all.get(PROVISIONED_BY));
    by.is_some_and(|by| by == PROVISIONER) && nodes(volume).is_some_and(|nodes| nodes == [node])
}

/// The nodes that a volume names; `None`: it names none.
pub(crate) fn nodes(volume: &PersistentVolume) -> Option<Vec<String>> {
    let required = volume.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
    let expressions =
        required.node_selector_terms.iter().flat_map(|term| term.match_expressions.iter().flatten());
    let hosts = expressions.filter(|one| one.key == HOST_NAME && one.operator == "In");
    Some(hosts.flat_map(|one| one.values.clone().unwrap_or_default()).collect())
}

/// The directory of a volume on this node.
///
/// # Errors
/// If it has none here: the reason.
pub(crate) fn path(volume: &PersistentVolume, node: &str) -> Result<String, String> {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    if let Some(nodes) = nodes(volume).filter(|nodes| !nodes.iter().any(|one| one == node)) {
        return Err(format!("volume {name} is on node {}, and this is node {node}", nodes.join(", ")));
    }
    let spec = volume.spec.as_ref();
    let local = spec.and_then(|spec| spec.local.as_ref()).map(|local| local.path.clone());
    let host = spec.and_then(|spec| spec.host_path.as_ref()).map(|host| host.path.clone());
    local.or(host).ok_or_else(|| {
        format!("volume {name} is neither local nor hostPath; this node has volumes of these two kinds only")
    })
}

/// What is to be done about a volume of this node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Care {
    /// Nothing.
    Nothing,
    /// Its claim is gone: the directory and the object are deleted.
    Remove,
    /// Its claim is gone, and the class keeps its volumes: that is noted.
    Release,
    /// The object is deleted by a user, who keeps the directory.
    LetGo,
    /// Its claim requests more, and a directory has what it requests.
    Grow(Quantity),
}

/// Decides what is to be done about a volume. `claim`: the one with the UID that the volume names.
pub(crate) fn care(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) -> Care {
    let Some(spec) = &volume.spec else { return Care::Nothing };
    let Some(claim) = claim else {
        let keeps = spec.persistent_volume_reclaim_policy.as_deref() != Some("Delete");
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        return match (keeps, volume.metadata.deletion_timestamp.is_some()) {
            (false, _) => Care::Remove,
            (true, true) => Care::LetGo,
            (true, false) if phase == Some("Released") => Care::Nothing,
            (true, false) => Care::Release,
        };
    };
    let amount = |size: &Quantity| size.0.parse::<Amount>().ok();
    let has = spec.capacity.as_ref().and_then(|all| all.get("storage"));
    match (requested(claim), has) {
        (Some(wanted), Some(has)) if amount(&wanted) > amount(has) => Care::Grow(wanted),
        _ => Care::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(size: &str) -> PersistentVolumeClaim {
        serde_json::from_value(json!({"metadata": {"name": "data-pg", "namespace": "d", "uid": "u-1"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS, "resources": {"requests": {"storage": size}}}}))
        .unwrap()
    }

    fn made(change: &Value) -> PersistentVolume {
        let mut made = volume(&claim("1Gi"), "node-1", "/data/pvc-u-1", "Delete");
        json_patch::merge(&mut made, change);
        serde_json::from_value(made).unwrap()
    }

    #[test]
    fn a_volume_is_on_the_node_that_made_it() {
        let volume = made(&json!({}));
        assert_eq!(path(&volume, "node-1").unwrap(), "/data/pvc-u-1");
        let why = path(&volume, "node-2").unwrap_err();
        assert_eq!(why, "volume pvc-u-1 is on node node-1, and this is node node-2");
        assert!(is_own(&volume, "node-1") && !is_own(&volume, "node-2"));
        let other =
            made(&json!({"metadata": {"annotations": {PROVISIONED_BY: "x"}}, "spec": {"nodeAffinity": null,
            "local": null, "hostPath": {"path": "/srv"}}}));
        assert!(!is_own(&other, "node-1"));
        assert_eq!(path(&other, "node-9").unwrap(), "/srv");
        let csi = made(&json!({"spec": {"local": null}}));
        assert!(path(&csi, "node-1").unwrap_err().contains("neither local nor hostPath"));
    }

    #[test]
    fn a_volume_goes_with_its_claim_unless_its_class_keeps_it() {
        let gone = |change: &Value| care(&made(change), None);
        let retain = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
        assert_eq!(gone(&json!({})), Care::Remove);
        assert_eq!(gone(&retain), Care::Release);
        let mut released = retain.clone();
        json_patch::merge(&mut released, &json!({"status": {"phase": "Released"}}));
        assert_eq!(gone(&released), Care::Nothing);
        json_patch::merge(&mut released, &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
        assert_eq!(gone(&released), Care::LetGo, "the directory stays");
        assert_eq!(care(&made(&json!({})), Some(&claim("1024Mi"))), Care::Nothing);
        assert_eq!(care(&made(&json!({})), Some(&claim("2Gi"))), Care::Grow(Quantity("2Gi".into())));
    }
}
