//! Which columns a kind has.

use serde_json::{Value, json};

use super::{Cell, Column};
use super::{cells, pod_cells};
use crate::crd::CustomVersion;
use crate::form::Form;
use crate::kinds::Kind;

const NAME: Column = Column("Name", "string", 0, Cell::Name);
const AGE: Column = Column("Age", "string", 0, Cell::Age);

/// Definitions and rows of a built-in kind.
pub(super) fn builtin(form: &Form<'_>, objects: &[&Value]) -> (Vec<Value>, Vec<Value>) {
    let columns = columns_of(&form.kind.group, &form.kind.kind);
    let definitions =
        columns.iter().map(|Column(name, kind, priority, _)| definition(name, kind, *priority)).collect();
    let cells = |object: &Value| {
        Value::Array(columns.iter().map(|column| column.3.value(object, form.now)).collect())
    };
    let rows = objects.iter().map(|object| match (form.kind.group.as_str(), form.kind.version.as_str()) {
        // An autoscaler is shown with all its metrics, in whichever version it is requested.
        ("autoscaling", "v1") => {
            let mut object = (*object).clone();
            crate::convert_hpa::to_v2(&mut object);
            cells(&object)
        }
        _ => cells(object),
    });
    (definitions, rows.collect())
}

fn definition(name: &str, kind: &str, priority: i32) -> Value {
    let format = if name == "Name" { "name" } else { "" };
    json!({ "name": name, "type": kind, "format": format, "priority": priority, "description": "" })
}

/// Kinds that a real server has no columns for: it shows when their objects were created.
fn has_no_columns(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole")
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
    )
}

pub(super) fn is_plain(kind: &Kind) -> bool {
    kind.is_builtin() && has_no_columns(&kind.group, &kind.kind)
}

#[rustfmt::skip]
fn columns_of(group: &str, kind: &str) -> Vec<Column> {
    use Cell::{Count, Created, Number, Of, Path};
    const S: &str = "string";
    const I: &str = "integer";
    match (group, kind) {
        ("", "ConfigMap") => vec![NAME, Column("Data", S, 0, Of(cells::data_count)), AGE],
        ("", "Secret") => vec![NAME, Column("Type", S, 0, Path("type")), Column("Data", S, 0, Count("data")), AGE],
        ("", "Namespace") => vec![NAME, Column("Status", S, 0, Path("status.phase")), AGE],
        ("", "Pod") => vec![NAME, Column("Ready", S, 0, Of(pod_cells::ready)), Column("Status", S, 0, Of(pod_cells::status)),
            Column("Restarts", S, 0, Of(pod_cells::restarts)), AGE, Column("IP", S, 1, Of(pod_cells::ip)), Column("Node", S, 1, Of(pod_cells::node)),
            Column("Nominated Node", S, 1, Of(pod_cells::nominated)), Column("Readiness Gates", S, 1, Of(pod_cells::gates))],
        ("", "Node") => vec![NAME, Column("Status", S, 0, Of(cells::node_status)), Column("Roles", S, 0, Of(cells::node_roles)), AGE,
            Column("Version", S, 0, Path("status.nodeInfo.kubeletVersion")), Column("Internal-IP", S, 1, Of(cells::node_internal)),
            Column("External-IP", S, 1, Of(cells::node_external)), Column("OS-Image", S, 1, Of(cells::node_os)),
            Column("Kernel-Version", S, 1, Of(cells::node_kernel)), Column("Container-Runtime", S, 1, Of(cells::node_runtime))],
        ("", "Service") => vec![NAME, Column("Type", S, 0, Path("spec.type")), Column("Cluster-IP", S, 0, Of(cells::service_ip)),
            Column("External-IP", S, 0, Of(cells::service_external)), Column("Port(s)", S, 0, Of(cells::service_ports)), AGE,
            Column("Selector", S, 1, Of(cells::service_selector))],
        ("", "ServiceAccount") => vec![NAME, AGE],
        ("", "Event") => vec![Column("Last Seen", S, 0, Of(cells::event_last)), Column("Type", S, 0, Path("type")), Column("Reason", S, 0, Path("reason")),
            Column("Object", S, 0, Of(cells::event_object)), Column("Subobject", S, 1, Path("involvedObject.fieldPath")), Column("Source", S, 1, Of(cells::event_source)),
            Column("Message", S, 0, Of(cells::event_message)), Column("First Seen", S, 1, Of(cells::event_first)), Column("Count", S, 1, Of(cells::event_count)),
            Column("Name", S, 1, Cell::Name)],
        ("events.k8s.io", "Event") => vec![Column("Last Seen", S, 0, Of(cells::event_last)), Column("Type", S, 0, Path("type")), Column("Reason", S, 0, Path("reason")),
            Column("Object", S, 0, Of(cells::event_object)), Column("Subobject", S, 1, Path("regarding.fieldPath")), Column("Source", S, 1, Of(cells::event_source)),
            Column("Message", S, 0, Of(cells::event_message)), Column("First Seen", S, 1, Of(cells::event_first)), Column("Count", S, 1, Of(cells::event_count)),
            Column("Name", S, 1, Cell::Name)],
        ("", "PersistentVolumeClaim") => vec![NAME, Column("Status", S, 0, Of(cells::phase)), Column("Volume", S, 0, Path("spec.volumeName")),
            Column("Capacity", S, 0, Of(cells::claim_size)), Column("Access Modes", S, 0, Of(cells::claim_modes)),
            Column("StorageClass", S, 0, Of(cells::storage_class)), Column("VolumeAttributesClass", S, 0, Of(cells::attributes_class)), AGE,
            Column("VolumeMode", S, 1, Of(cells::volume_mode))],
        ("", "PersistentVolume") => vec![NAME, Column("Capacity", S, 0, Of(cells::volume_size)), Column("Access Modes", S, 0, Of(cells::volume_modes)),
            Column("Reclaim Policy", S, 0, Path("spec.persistentVolumeReclaimPolicy")), Column("Status", S, 0, Of(cells::phase)), Column("Claim", S, 0, Of(cells::claim)),
            Column("StorageClass", S, 0, Of(cells::storage_class)), Column("VolumeAttributesClass", S, 0, Of(cells::attributes_class)),
            Column("Reason", S, 0, Path("status.reason")), AGE, Column("VolumeMode", S, 1, Of(cells::volume_mode))],
        ("apps", "ReplicaSet") => vec![NAME, Column("Desired", I, 0, Number("spec.replicas")), Column("Current", I, 0, Number("status.replicas")),
            Column("Ready", I, 0, Number("status.readyReplicas")), AGE, Column("Containers", S, 1, Of(cells::containers)), Column("Images", S, 1, Of(cells::images)),
            Column("Selector", S, 1, Of(cells::selector))],
        _ if has_no_columns(group, kind) => vec![NAME, Column("Created At", "date", 0, Created)],
        ("apps", "Deployment") => vec![NAME, Column("Ready", S, 0, Of(cells::deployment_ready)), Column("Up-to-date", S, 0, Number("status.updatedReplicas")),
            Column("Available", S, 0, Number("status.availableReplicas")), AGE, Column("Containers", S, 1, Of(cells::containers)), Column("Images", S, 1, Of(cells::images)),
            Column("Selector", S, 1, Of(cells::deployment_selector))],
        ("apps", "StatefulSet") => vec![NAME, Column("Ready", S, 0, Of(cells::deployment_ready)), AGE, Column("Containers", S, 1, Of(cells::containers)), Column("Images", S, 1, Of(cells::images))],
        ("apps", "DaemonSet") => vec![NAME, Column("Desired", I, 0, Number("status.desiredNumberScheduled")), Column("Current", I, 0, Number("status.currentNumberScheduled")),
            Column("Ready", I, 0, Number("status.numberReady")), Column("Up-to-date", I, 0, Number("status.updatedNumberScheduled")),
            Column("Available", I, 0, Number("status.numberAvailable")), Column("Node Selector", S, 0, Of(cells::node_selector)), AGE,
            Column("Containers", S, 1, Of(cells::containers)), Column("Images", S, 1, Of(cells::images)), Column("Selector", S, 1, Of(cells::selector))],
        ("coordination.k8s.io", "Lease") => vec![NAME, Column("Holder", S, 0, Path("spec.holderIdentity")), AGE],
        (crate::builtin::certificate::GROUP, _) => vec![NAME, AGE, Column("SignerName", S, 0, Of(cells::signer)), Column("Requestor", S, 0, Path("spec.username")),
            Column("RequestedDuration", S, 0, Of(cells::requested_duration)), Column("Condition", S, 0, Of(cells::request_condition))],
        ("admissionregistration.k8s.io", _) => vec![NAME, Column("Webhooks", I, 0, Count("webhooks")), AGE],
        ("storage.k8s.io", "StorageClass") => vec![Column("Name", S, 0, Of(cells::storage_class_name)), Column("Provisioner", S, 0, Path("provisioner")), Column("ReclaimPolicy", S, 0, Path("reclaimPolicy")),
            Column("VolumeBindingMode", S, 0, Path("volumeBindingMode")), Column("AllowVolumeExpansion", S, 0, Of(cells::expansion)), AGE],
        _ => vec![NAME, AGE],
    }
}

/// Definitions and rows of a custom kind: its printer columns between name and nothing, or name and age.
pub(super) fn custom(
    form: &Form<'_>,
    version: &CustomVersion,
    objects: &[&Value],
) -> (Vec<Value>, Vec<Value>) {
    let mut definitions = vec![definition("Name", "string", 0)];
    for column in &version.columns {
        definitions.push(json!({ "name": column.name, "type": column.json_type, "format": column.format,
            "priority": column.priority, "description": column.description }));
    }
    if version.columns.is_empty() {
        definitions.push(definition("Age", "date", 0));
    }
    let rows = objects
        .iter()
        .map(|object| {
            let mut cells = vec![Cell::Name.value(object, form.now)];
            cells.extend(version.columns.iter().map(|column| cells::printed(column, object, form.now)));
            if version.columns.is_empty() {
                let created = crate::object::meta_text(object, "creationTimestamp");
                let age = if created.is_empty() { Value::Null } else { json!(super::age(created, form.now)) };
                cells.push(age);
            }
            Value::Array(cells)
        })
        .collect();
    (definitions, rows)
}
