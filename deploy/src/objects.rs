//! From values to objects.

mod filled;

pub(crate) use filled::{Filled, Mtu};
use neonvm_api::runner_pod::LOG_FORMAT_VARIABLE;
use serde_json::{Value, json};

use crate::inventory::inventory;
use crate::source::{self, File, When};
use crate::values::choice::merge;
use crate::{Choice, Error, Network, RootDisk, Values};

/// The namespace that the manifests name.
const NAMESPACE: &str = neonvm_api::names::SYSTEM_NAMESPACE;
/// Name of the class of VMs in the manifests.
const VM_PRIORITY_CLASS: &str = "neonvm-vms";
/// Version of the kube-scheduler where the cluster's is not known: that of the types that we are made with.
const KUBERNETES: &str = "v1.36.0";
/// Kinds that start pods.
pub const WORKLOADS: [&str; 2] = ["Deployment", "DaemonSet"];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Version of its API server, such as `v1.36.2+k3s1`.
    pub kubernetes: Option<String>,
    /// Whether its API server and all of its nodes have volumes of images. Where that is not known the version decides.
    pub image_volumes: Option<bool>,
}

/// From this version on volumes of images are on by default.
pub(crate) const IMAGE_VOLUMES: (u64, u64) = (1, 35);

/// Whether root disks are copied out of their images in a cluster.
#[must_use]
pub fn copies_root_disks(values: &Values, facts: &Facts) -> bool {
    let is_old = || {
        let release = facts.kubernetes.as_deref().and_then(crate::release);
        release.is_some_and(|(major, minor, _)| (major, minor) < IMAGE_VOLUMES)
    };
    match values.runner.root_disk {
        RootDisk::Auto => facts.image_volumes.map_or_else(is_old, |has| !has),
        RootDisk::ImageVolume => false,
        RootDisk::Copy => true,
    }
}

#[must_use]
pub fn is_workload(object: &Value) -> bool {
    object.get("kind").and_then(Value::as_str).is_some_and(|kind| WORKLOADS.contains(&kind))
}

/// The objects of an installation, in the order in which they are to be applied: definitions, the namespace, then what needs them.
/// The last but the services is a config map that names them all.
///
/// # Errors
/// If a value cannot be used.
pub fn objects(choice: &Choice, facts: &Facts) -> Result<Vec<Value>, Error> {
    let values = choice.values()?;
    let filled = Filled::from_values(&values, facts);
    let mut all = neonvm_api::crds();
    for file in source::files()?.into_iter().filter(|file| is_chosen(file.when, &values)) {
        all.extend(file.objects.into_iter().map(|object| fill(object, &filled)));
    }
    all.sort_by_key(rank);
    let record = inventory(&values.namespace, &values.image.version, &choice.yaml(), &all);
    let first = all.iter().position(is_workload).unwrap_or(all.len());
    all.insert(first, record);
    Ok(all)
}

#[must_use]
pub fn runner_image(values: &Values) -> String {
    Filled::from_values(values, &Facts::default()).runner_image
}

fn is_chosen(when: When, values: &Values) -> bool {
    match when {
        When::Always => true,
        When::Component(component) => values.has(component),
        When::Overlay => values.overlay.network == Network::Multus,
        When::UpstreamAgents => values.scheduler.upstream_agents,
        When::PriorityOfVms => values.runner.priority_class.value > 0,
    }
}

/// The files with places in the position of values, without the namespace: for a chart.
pub(crate) fn templates(filled: &Filled) -> Result<Vec<File>, Error> {
    let mut files = source::files()?;
    for file in &mut files {
        let objects = std::mem::take(&mut file.objects);
        let of_release = |object: &Value| object.get("kind").is_none_or(|kind| kind != "Namespace");
        file.objects = objects.into_iter().filter(of_release).map(|object| fill(object, filled)).collect();
    }
    files.retain(|file| !file.objects.is_empty());
    Ok(files)
}

pub(crate) fn kube_scheduler(facts: &Facts) -> String {
    let release = facts.kubernetes.as_deref().and_then(crate::release);
    match release {
        Some((major, minor, patch)) => format!("v{major}.{minor}.{patch}"),
        None => KUBERNETES.to_owned(),
    }
}

fn fill(mut object: Value, filled: &Filled) -> Value {
    in_namespace(&mut object, &filled.namespace);
    if is_workload(&object) {
        workload(&mut object, filled);
    }
    if object.get("kind").is_some_and(|kind| kind == "NetworkAttachmentDefinition") {
        attachment(&mut object, filled);
    }
    if object.pointer("/metadata/name").is_some_and(|name| name == VM_PRIORITY_CLASS) {
        let (name, value) = filled.priority_class.clone();
        put(&mut object, "/metadata", "name", name);
        put(&mut object, "", "value", value);
    }
    object
}

/// The namespace stands in names of service accounts and in flags, too: wherever it is written it is meant.
fn in_namespace(value: &mut Value, namespace: &str) {
    match value {
        Value::String(text) if text.contains(NAMESPACE) => *text = text.replace(NAMESPACE, namespace),
        Value::Array(all) => all.iter_mut().for_each(|one| in_namespace(one, namespace)),
        Value::Object(map) => map.values_mut().for_each(|one| in_namespace(one, namespace)),
        _ => {}
    }
}

fn workload(object: &mut Value, filled: &Filled) {
    let label = "/metadata/labels/app.kubernetes.io~1name";
    let name = object.pointer(label).and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = name.strip_prefix("neonvm-").unwrap_or(&name).to_owned();
    let service = filled.services.get(name.as_str());
    if let Some(replicas) = service.and_then(|service| service.replicas.clone()) {
        put(object, "/spec", "replicas", replicas);
    }
    if let Some(secrets) = &filled.pull_secrets {
        put(object, "/spec/template/spec", "imagePullSecrets", secrets.clone());
    }
    if let Some(tolerations) = service.and_then(|service| service.tolerations.clone()) {
        put(object, "/spec/template/spec", "tolerations", tolerations);
    }
    if let Some(selector) = service.and_then(|service| service.node_selector.clone()) {
        lay(object, "/spec/template/spec", "nodeSelector", &selector);
    }
    for kind in ["initContainers", "containers"] {
        let containers =
            object.pointer_mut(&format!("/spec/template/spec/{kind}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            self::container(container, filled);
        }
    }
}

fn container(container: &mut Value, filled: &Filled) {
    let name = container.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_ours = container.pointer("/command/0").is_some_and(|program| program == "neond");
    let image = if is_ours { &filled.image } else { &filled.kube_scheduler };
    put(container, "", "image", json!(image));
    put(container, "", "imagePullPolicy", filled.pull_policy.clone());
    if is_ours {
        variable(container, LOG_FORMAT_VARIABLE, &filled.log_format);
    }
    if let Some(resources) = filled.services.get(name.as_str()).and_then(|service| service.resources.clone())
    {
        lay(container, "", "resources", &resources);
    }
    match name.as_str() {
        "vm-controller" => {
            flag(container, "--runner-image", &filled.runner_image);
            flag(container, "--accelerator", filled.accelerator.as_str().unwrap_or_default());
            flag(container, "--root-disk", filled.root_disk.as_str().unwrap_or_default());
            flag(
                container,
                "--default-cpu-scaling-mode",
                filled.cpu_scaling_mode.as_str().unwrap_or_default(),
            );
            flag(container, "--cpu-model", filled.cpu_model.as_str().unwrap_or_default());
            flag(container, "--vm-scheduler", filled.vm_scheduler.as_str().unwrap_or_default());
            let (class, _) = &filled.priority_class;
            flag(container, "--vm-priority-class", class.as_str().unwrap_or_default());
            let [certificate, authority] = &filled.lifetimes;
            flag(container, "--certificate-lifetime", certificate);
            flag(container, "--authority-lifetime", authority);
            flag(container, "--backup-hooks", filled.backup_hooks.as_str().unwrap_or_default());
            flag(container, "--disk-cache", filled.disk_cache.as_str().unwrap_or_default());
            let webhooks = filled.pod_autoscaler.as_str().unwrap_or_default();
            flag(container, "--pod-autoscaler-webhooks", webhooks);
        }
        "agent" => flag(container, "--scheduler", filled.scheduler.as_str().unwrap_or_default()),
        "node" => {
            flag(container, "--accelerator", filled.accelerator.as_str().unwrap_or_default());
        }
        "vxlan-controller" => {
            flag(container, "--encryption", filled.encryption.as_str().unwrap_or_default());
        }
        _ => {}
    }
}

fn variable(container: &mut Value, name: &str, value: &Value) {
    let Some(map) = container.as_object_mut() else { return };
    let all = map.entry("env").or_insert_with(|| json!([]));
    let Some(all) = all.as_array_mut() else { return };
    all.retain(|one| one.get("name").is_none_or(|found| found != name));
    all.push(json!({ "name": name, "value": value }));
}

/// Sets a flag among the arguments.
fn flag(container: &mut Value, name: &str, value: &str) {
    let word = json!(format!("{name}={value}"));
    let Some(map) = container.as_object_mut() else { return };
    let arguments = map.entry("args").or_insert_with(|| json!([]));
    let Some(arguments) = arguments.as_array_mut() else { return };
    let prefix = format!("{name}=");
    let is_it = |argument: &&mut Value| argument.as_str().is_some_and(|text| text.starts_with(&prefix));
    match arguments.iter_mut().find(is_it) {
        Some(argument) => *argument = word,
        None => arguments.push(word),
    }
}

/// What is on the overlay knows how much of a packet the tunnel takes. The text stays as it is written but for the number.
fn attachment(object: &mut Value, filled: &Filled) {
    let Some(Value::String(text)) = object.pointer_mut("/spec/config") else { return };
    let config = serde_json::from_str::<Value>(text).unwrap_or_default();
    if let Some(mtu) = config.get("mtu").and_then(Value::as_u64) {
        let place = |value: &str| format!("\"mtu\": {value}");
        *text = text.replace(&place(&mtu.to_string()), &place(&filled.mtu.text(mtu)));
    }
}

/// Lays a map over that of the manifest, as Helm lays values over each other: what is not named stays.
fn lay(object: &mut Value, path: &str, key: &str, value: &Value) {
    let Some(map) = object.pointer_mut(path).and_then(Value::as_object_mut) else { return };
    merge(map.entry(key).or_insert(Value::Null), value);
}

fn put(object: &mut Value, path: &str, key: &str, value: Value) {
    if let Some(map) = object.pointer_mut(path).and_then(Value::as_object_mut) {
        map.insert(key.to_owned(), value);
    }
}

/// The place of an object: what it needs has a lower one. What names nothing else comes first, what runs comes last.
#[must_use]
pub fn rank(object: &Value) -> u8 {
    match object.get("kind").and_then(Value::as_str).unwrap_or_default() {
        "CustomResourceDefinition" => 0,
        "Namespace" => 1,
        "PriorityClass" | "ServiceAccount" | "ClusterRole" | "Role" => 2,
        "ClusterRoleBinding" | "RoleBinding" | "ConfigMap" | "Secret" => 3,
        // Of kinds that are added by others, too.
        "Service" | "PodDisruptionBudget" => 5,
        "Deployment" | "DaemonSet" | "StatefulSet" | "Job" => 7,
        // A policy needs to be there before what binds it.
        kind if kind.ends_with("Binding") => 6,
        _ => 4,
    }
}

/// Major, minor and patch.
pub type Release = (u64, u64, u64);

/// The release that a version such as `v1.36.2+k3s1` or `0.1.0-rc1` belongs to; none if it is not of that form.
#[must_use]
pub fn release(text: &str) -> Option<Release> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let mut parts = text.get(..end)?.split('.').map(|part| part.parse::<u64>().ok());
    let (major, minor) = (parts.next()??, parts.next()??);
    let patch = match parts.next() {
        Some(patch) => patch?,
        None => 0,
    };
    parts.next().is_none().then_some((major, minor, patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_distributions_are_those_of_their_release() {
        assert_eq!(release("v1.36.2+k3s1"), Some((1, 36, 2)));
        assert_eq!(release("v1.33.5-gke.100"), Some((1, 33, 5)));
        assert_eq!(release("0.1.0"), Some((0, 1, 0)));
        assert_eq!(release("1.31"), Some((1, 31, 0)));
        for bad in ["", "v", "latest", "1", "1..2", "1.2.3.4", "99999999999999999999.1"] {
            assert_eq!(release(bad), None, "{bad}");
        }
    }
}
