//! VolumeSnapshots: objects of the Kubernetes project that a cluster may lack. All of one snapshot of a VM have its name as a label, and
//! each has what its disk is in an annotation. Pure, but for the client.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use neonvm_api::names::{annotation, label};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::commands::resource::NamespaceClient;
use crate::error::{Code, Error, Result};

const GROUP: &str = "snapshot.storage.k8s.io";
const VERSION: &str = "snapshot.storage.k8s.io/v1";
const KIND: &str = "VolumeSnapshot";
const INSTALL: &str = "install the definitions and the controller of kubernetes-csi/external-snapshotter, a CSI driver that can snapshot, and a \
                       VolumeSnapshotClass for it";

/// What a disk is, for a VM that is made from its snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DiskOf {
    pub(crate) name: String,
    pub(crate) mount_path: String,
    /// Bytes of the volume, as Kubernetes writes them.
    pub(crate) size: String,
    pub(crate) storage_class: Option<String>,
    pub(crate) access_modes: Vec<String>,
    pub(crate) volume_mode: Option<String>,
}

impl DiskOf {
    /// The disk on this claim.
    pub(crate) fn new(name: &str, mount_path: &str, claim: &PersistentVolumeClaim) -> Self {
        let spec = claim.spec.clone().unwrap_or_default();
        let requested = spec.resources.and_then(|resources| resources.requests).unwrap_or_default();
        let given = claim.status.as_ref().and_then(|status| status.capacity.clone()).unwrap_or_default();
        let size = given.get("storage").or_else(|| requested.get("storage"));
        Self {
            name: name.to_owned(),
            mount_path: mount_path.to_owned(),
            size: size.map(|size| size.0.clone()).unwrap_or_default(),
            storage_class: spec.storage_class_name,
            access_modes: spec.access_modes.unwrap_or_default(),
            volume_mode: spec.volume_mode,
        }
    }
}

/// Name of the VolumeSnapshot of a disk.
pub(crate) fn name_for(snapshot: &str, disk: &str) -> String {
    format!("{snapshot}-{disk}")
}

/// The VolumeSnapshot of a claim.
pub(crate) fn object(vm: &str, snapshot: &str, disk: &DiskOf, claim: &str, class: Option<&str>) -> Value {
    let mut spec = json!({ "source": { "persistentVolumeClaimName": claim } });
    if let (Some(class), Some(spec)) = (class, spec.as_object_mut()) {
        spec.insert("volumeSnapshotClassName".to_owned(), json!(class));
    }
    let annotation = serde_json::to_string(disk).unwrap_or_default();
    json!({ "apiVersion": VERSION, "kind": KIND,
        "metadata": { "name": name_for(snapshot, &disk.name), "labels": { label::VM_NAME: vm, label::SNAPSHOT: snapshot },
            "annotations": { annotation::SNAPSHOT_DISK: annotation } },
        "spec": spec })
}

/// How far a VolumeSnapshot is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Nothing is cut yet.
    No,
    /// It has the content of one moment; more may be copied of it.
    Yes,
    Failed(String),
}

pub(crate) fn cut(object: &DynamicObject) -> Cut {
    let status = object.data.get("status").cloned().unwrap_or_default();
    let failed = status.pointer("/error/message").and_then(Value::as_str);
    match (status.get("creationTime").and_then(Value::as_str), failed) {
        (Some(_), _) => Cut::Yes,
        (None, Some(why)) => Cut::Failed(why.to_owned()),
        (None, None) => Cut::No,
    }
}

/// What a snapshot has of one disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Name of the VolumeSnapshot.
    pub(crate) object: String,
    pub(crate) vm: String,
    pub(crate) disk: DiskOf,
    pub(crate) ready: bool,
}

/// The snapshot that an object belongs to, and its part; none for those of others.
pub(crate) fn part(object: &DynamicObject) -> Option<(String, Part)> {
    let text = |all: &Option<BTreeMap<String, String>>, key: &str| all.as_ref()?.get(key).cloned();
    let meta = &object.metadata;
    let disk = text(&meta.annotations, annotation::SNAPSHOT_DISK)?;
    let mut disk: DiskOf = serde_json::from_str(&disk).ok()?;
    let status = object.data.get("status").cloned().unwrap_or_default();
    // The size without which the driver refuses.
    if let Some(size) = status.get("restoreSize").and_then(Value::as_str) {
        let bytes = |text: &str| {
            let quantity = text.parse::<neonvm_types::Quantity>().ok()?;
            neonvm_types::Bytes::try_from(quantity).ok()
        };
        if bytes(size) > bytes(&disk.size) {
            disk.size = size.to_owned();
        }
    }
    let part = Part {
        object: meta.name.clone()?,
        vm: text(&meta.labels, label::VM_NAME).unwrap_or_default(),
        disk,
        ready: status.get("readyToUse").and_then(Value::as_bool).unwrap_or_default(),
    };
    Some((text(&meta.labels, label::SNAPSHOT)?, part))
}

/// The claim template of a disk that is made from its snapshot.
pub(crate) fn template(part: &Part, class: Option<&str>) -> Value {
    let Part { disk, object, .. } = part;
    let class = class.map(str::to_owned).or_else(|| disk.storage_class.clone());
    let requests =
        [("storage".to_owned(), k8s_openapi::apimachinery::pkg::api::resource::Quantity(disk.size.clone()))];
    let spec = PersistentVolumeClaimSpec {
        access_modes: Some(disk.access_modes.clone()),
        storage_class_name: class,
        volume_mode: disk.volume_mode.clone(),
        resources: Some(k8s_openapi::api::core::v1::VolumeResourceRequirements {
            requests: Some(requests.into()),
            ..Default::default()
        }),
        data_source: Some(k8s_openapi::api::core::v1::TypedLocalObjectReference {
            api_group: Some(GROUP.to_owned()),
            kind: KIND.to_owned(),
            name: object.clone(),
        }),
        ..PersistentVolumeClaimSpec::default()
    };
    json!({ "metadata": { "name": disk.name }, "spec": spec })
}

pub(crate) fn api(client: &NamespaceClient) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(GROUP, "v1", KIND);
    let resource = ApiResource::from_gvk_with_plural(&kind, "volumesnapshots");
    Api::namespaced_with(client.connection.client(), &client.namespace, &resource)
}

/// The parts of each snapshot of the namespace, by its name.
pub(crate) async fn all(
    client: &NamespaceClient,
    selector: Option<String>,
) -> Result<BTreeMap<String, Vec<Part>>> {
    let selector = selector.unwrap_or_else(|| label::SNAPSHOT.to_owned());
    let parameters = ListParams::default().labels(&selector);
    let listed = client.connection.within("cannot list VolumeSnapshots", api(client).list(&parameters)).await;
    let mut found = BTreeMap::<String, Vec<Part>>::new();
    for object in listed.map_err(undefined)?.items {
        if let Some((snapshot, part)) = part(&object) {
            found.entry(snapshot).or_default().push(part);
        }
    }
    Ok(found)
}

/// The parts of one snapshot.
pub(crate) async fn of_name(client: &NamespaceClient, name: &str) -> Result<Vec<Part>> {
    let mut all = all(client, None).await?;
    if let Some(parts) = all.remove(name) {
        return Ok(parts);
    }
    let known: Vec<String> = all.into_keys().collect();
    let error = Error::new(
        Code::NotFound,
        format!("snapshot {name:?} not found in namespace {:?}", client.namespace),
    );
    Err(match crate::commands::resource::nearest(name, &known) {
        Some(meant) => error.hint(format!("did you mean {meant:?}?")),
        None => error.hint("list them: neonctl vm snapshot list"),
    })
}

/// Names what to install where there are no definitions of snapshots.
pub(crate) fn undefined(error: Error) -> Error {
    if error.code != Code::NotFound {
        return error;
    }
    Error::new(Code::NotFound, "this cluster has no VolumeSnapshots").hint(INSTALL)
}

/// That the cluster can snapshot, as far as this user may know: the definitions are there, and a class.
pub(crate) async fn check(client: &NamespaceClient, class: Option<&str>) -> Result<()> {
    let _ = all(client, Some(format!("{}=none", label::SNAPSHOT))).await?;
    let path = format!("/apis/{VERSION}/volumesnapshotclasses");
    let classes = match client.connection.json(&path).await {
        Ok(list) => list,
        // Who may not read classes finds out by the snapshot.
        Err(_) => return Ok(()),
    };
    let items = classes.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
    let name = |item: &Value| item.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned);
    let known: Vec<String> = items.iter().filter_map(name).collect();
    match class {
        _ if known.is_empty() => {
            Err(Error::new(Code::NotFound, "this cluster has no VolumeSnapshotClass").hint(INSTALL))
        }
        Some(class) if !known.iter().any(|one| one == class) => {
            Err(Error::new(Code::NotFound, format!("--class: there is no VolumeSnapshotClass {class:?}"))
                .hint(format!("there are: {}", known.join(", "))))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> PersistentVolumeClaim {
        serde_json::from_value(json!({ "metadata": { "name": "data-pg" }, "status": { "capacity": { "storage": "2Gi" } },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": { "requests": { "storage": "1Gi" } } } }))
        .unwrap()
    }

    fn stored(status: &Value) -> DynamicObject {
        let disk = DiskOf::new("data", "/data", &claim());
        let mut object = object("pg", "s", &disk, "data-pg", Some("c"));
        object["status"] = status.clone();
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_snapshot_is_cut_when_its_moment_is_known() {
        assert_eq!(cut(&stored(&json!({}))), Cut::No);
        assert_eq!(
            cut(&stored(&json!({ "error": { "message": "no room" } }))),
            Cut::Failed("no room".into())
        );
        let done = json!({ "creationTime": "2026-01-01T00:00:00Z", "readyToUse": false });
        assert_eq!(cut(&stored(&done)), Cut::Yes);
    }

    #[test]
    fn a_claim_is_made_from_what_is_in_the_snapshot() {
        let (name, part) = part(&stored(&json!({ "restoreSize": "3Gi", "readyToUse": true }))).unwrap();
        assert_eq!((name.as_str(), part.object.as_str(), part.ready), ("s", "s-data", true));
        let made = template(&part, None);
        assert_eq!(made["spec"]["dataSource"], json!({ "apiGroup": GROUP, "kind": KIND, "name": "s-data" }));
        assert_eq!(made["spec"]["resources"]["requests"]["storage"], "3Gi", "not less than the driver needs");
        assert_eq!(made["spec"]["storageClassName"], "fast");
        assert_eq!(template(&part, Some("other"))["spec"]["storageClassName"], "other");
    }

    #[test]
    fn snapshots_of_others_are_left_alone() {
        let mut other = stored(&json!({}));
        other.metadata.annotations = None;
        assert_eq!(part(&other), None);
    }
}
