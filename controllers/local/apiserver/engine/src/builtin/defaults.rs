//! The table of defaults, and the defaults that take more than a table.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use super::{config, pod, service, set, workload};
use crate::schema::{MAX_DEPTH, Schema};

type Object = Map<String, Value>;

#[derive(Debug, Default)]
struct Entry {
    fill: Vec<(&'static str, Value)>,
    /// Fields whose zero value is left out.
    omit: Vec<&'static str>,
}

const TABLE: &str = include_str!("defaults.txt");
/// Fields whose zero value is left out, by type.
const ZEROS: &str = include_str!("zeros.txt");

/// Fields of projected volumes and of pods for features that are off unless a cluster turns them on.
const GATED: [&str; 3] = ["clusterTrustBundle", "podCertificate", "schedulingGroup"];

fn table() -> &'static BTreeMap<&'static str, Entry> {
    static PARSED: OnceLock<BTreeMap<&'static str, Entry>> = OnceLock::new();
    PARSED.get_or_init(|| {
        let mut table: BTreeMap<&str, Entry> = BTreeMap::new();
        for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.splitn(3, ' ');
            let (Some(name), Some(field), Some(value)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let entry = table.entry(name).or_default();
            let Ok(value) = serde_json::from_str::<Value>(value) else { continue };
            entry.fill.push((field, value));
        }
        for line in ZEROS.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            if let Some(name) = words.next() {
                table.entry(name).or_default().omit.extend(words);
            }
        }
        table
    })
}

/// Fills in a value and everything below it.
pub(super) fn fill(value: &mut Value, schema: &Schema) {
    walk(value, schema, 0);
}

fn walk(value: &mut Value, schema: &Schema, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(map) => {
            let name = schema.type_name.as_deref().and_then(|name| name.strip_prefix("io.k8s.api."));
            if let Some(name) = name {
                fill_type(name, map);
            }
            for (key, item) in map.iter_mut() {
                if let Some(child) = schema.child(key).filter(|_| item.is_object() || item.is_array()) {
                    walk(item, child, depth + 1);
                }
            }
        }
        Value::Array(list) => {
            if let Some(child) = &schema.items {
                list.iter_mut().for_each(|item| walk(item, child, depth + 1));
            }
        }
        _ => {}
    }
}

fn fill_type(name: &str, map: &mut Object) {
    if let Some(entry) = table().get(name) {
        for field in &entry.omit {
            let zero = match map.get(*field) {
                Some(Value::Bool(flag)) => !flag,
                Some(Value::String(text)) => text.is_empty(),
                Some(Value::Number(number)) => number.as_f64() == Some(0.0),
                _ => false,
            };
            if zero {
                map.remove(*field);
            }
        }
        for (field, value) in &entry.fill {
            if !map.contains_key(*field) {
                map.insert((*field).to_owned(), value.clone());
            }
        }
    }
    match name {
        "core.v1.Pod" => pod::default(map),
        "core.v1.Container" | "core.v1.EphemeralContainer" => pull_policy(map, "image", "imagePullPolicy"),
        "core.v1.ImageVolumeSource" => pull_policy(map, "reference", "pullPolicy"),
        "core.v1.VolumeProjection" => drop_gated(map),
        "core.v1.Volume" if map.keys().all(|key| key == "name") => set(map, "emptyDir", json!({})),
        "networking.v1.NetworkPolicySpec" => policy_types(map),
        "core.v1.Namespace" => name_label(map),
        "core.v1.PodSpec" => pod_spec(map),
        "core.v1.PodStatus" => addresses(map),
        "core.v1.NodeSpec" => node_ranges(map),
        "core.v1.NodeStatus" => {
            if let Some(amounts) = map.get("capacity").cloned() {
                set(map, "allocatable", amounts);
            }
        }
        "core.v1.Secret" => config::default_secret(map),
        "core.v1.ServiceSpec" => service::default_spec(map),
        "core.v1.ServicePort" => service::default_target(map),
        "core.v1.Service" => service::default_points(map),
        "apps.v1.DeploymentStrategy" => {
            rolling(map, &[("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))]);
        }
        "apps.v1.StatefulSetUpdateStrategy" => {
            if !map.contains_key("type") {
                map.insert("type".to_owned(), json!("RollingUpdate"));
                set(map, "rollingUpdate", json!({}));
            }
            if map.contains_key("rollingUpdate") {
                rolling(map, &[("partition", json!(0))]);
            }
        }
        "apps.v1.DaemonSetUpdateStrategy" => {
            rolling(map, &[("maxUnavailable", json!(1)), ("maxSurge", json!(0))]);
        }
        "apps.v1.StatefulSetSpec" => workload::default_claim_templates(map),
        "apps.v1.DaemonSet" => workload::default_template_generation(map),
        "batch.v1.JobSpec" => {
            if !map.contains_key("parallelism") {
                set(map, "completions", json!(1));
            }
            set(map, "parallelism", json!(1));
        }
        "autoscaling.v2.HorizontalPodAutoscalerSpec" => autoscaler(map),
        "rbac.v1.Subject" => {
            if matches!(map.get("kind").and_then(Value::as_str), Some("User" | "Group")) {
                set_text(map, "apiGroup", crate::access::GROUP);
            }
        }
        "rbac.v1.RoleRef" => set_text(map, "apiGroup", crate::access::GROUP),
        _ => {}
    }
}

fn name_label(namespace: &mut Object) {
    let Some(metadata) = namespace.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let Some(name) = metadata.get("name").cloned().filter(|name| name != "") else { return };
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if let Some(labels) = labels.as_object_mut() {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name);
    }
}

/// The address of a pod is the first of its addresses.
fn addresses(status: &mut Object) {
    let first = status.get("podIPs").and_then(|all| all.get(0)?.get("ip")).cloned();
    match (status.get("podIP").cloned().filter(|ip| ip != ""), first) {
        (Some(ip), first) if first.as_ref() != Some(&ip) => {
            status.insert("podIPs".to_owned(), json!([{ "ip": ip }]));
        }
        (None, Some(first)) => {
            status.insert("podIP".to_owned(), first);
        }
        _ => {}
    }
}

/// The ranges of a node's pods have two names; the older one decides if they differ.
fn node_ranges(map: &mut Object) {
    let first = map.get("podCIDRs").and_then(|all| all.get(0)).cloned();
    let older = map.get("podCIDR").cloned().filter(|range| range != "");
    match (older, first) {
        (Some(range), first) if first.as_ref() != Some(&range) => {
            map.insert("podCIDRs".to_owned(), json!([range]));
        }
        (None, Some(first)) => {
            map.insert("podCIDR".to_owned(), first);
        }
        _ => {}
    }
}

fn set_text(map: &mut Object, key: &str, text: &str) {
    if map.get(key).and_then(Value::as_str).unwrap_or_default().is_empty() {
        map.insert(key.to_owned(), json!(text));
    }
}

fn drop_gated(map: &mut Object) {
    map.retain(|key, _| !GATED.contains(&key.as_str()));
}

/// The account of a pod or template has two names.
fn pod_spec(spec: &mut Object) {
    drop_gated(spec);
    if let Some(account) = spec.get("serviceAccountName").or_else(|| spec.get("serviceAccount")).cloned() {
        spec.insert("serviceAccount".to_owned(), account.clone());
        spec.insert("serviceAccountName".to_owned(), account);
    }
}

/// A policy is about what comes in, and about what goes out if it has rules for that.
fn policy_types(spec: &mut Object) {
    let out = spec.get("egress").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
    set(spec, "policyTypes", if out { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
}

/// An autoscaler without metrics goes by the load of the CPU.
fn autoscaler(spec: &mut Object) {
    if spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        spec.insert("metrics".to_owned(), json!([metric]));
    }
    let Some(behavior) = spec.get_mut("behavior").and_then(Value::as_object_mut) else { return };
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    if let Some(up) = behavior.entry("scaleUp").or_insert_with(|| json!({})).as_object_mut() {
        set(up, "stabilizationWindowSeconds", json!(0));
        set(up, "selectPolicy", json!("Max"));
        set(up, "policies", json!([pods, percent]));
    }
    if let Some(down) = behavior.entry("scaleDown").or_insert_with(|| json!({})).as_object_mut() {
        set(down, "selectPolicy", json!("Max"));
        set(down, "policies", json!([percent]));
    }
}

fn rolling(strategy: &mut Object, defaults: &[(&str, Value)]) {
    if strategy.get("type").and_then(Value::as_str) != Some("RollingUpdate") {
        return;
    }
    if let Some(update) = strategy.entry("rollingUpdate").or_insert_with(|| json!({})).as_object_mut() {
        for (key, value) in defaults {
            set(update, key, value.clone());
        }
    }
}

/// Images that can change under their name are pulled each time.
fn pull_policy(map: &mut Object, image: &str, policy: &str) {
    let image = map.get(image).and_then(Value::as_str).unwrap_or_default();
    let moving = tag(image) == Some("latest");
    set(map, policy, json!(if moving { "Always" } else { "IfNotPresent" }));
}

/// The tag of an image, `latest` if it has neither a tag nor a digest; none if it has only a digest, or is no reference.
fn tag(image: &str) -> Option<&str> {
    let (named, digest) =
        image.split_once('@').map_or((image, None), |(named, digest)| (named, Some(digest)));
    let last = named.rfind('/').map_or(0, |at| at + 1);
    let (name, tag) = match named.rfind(':').filter(|at| *at >= last) {
        Some(at) => (named.get(..at)?, named.get(at + 1..)),
        None => (named, None),
    };
    let plain = |part: &str| {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        part.starts_with(allowed)
            && part.ends_with(allowed)
            && part.chars().all(|c| allowed(c) || "._-".contains(c))
    };
    let host = |part: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
        (part.contains(['.', ':']) || part == "localhost") && part.chars().all(allowed)
    };
    let mut parts = name.split('/');
    let first = parts.next()?;
    let known = (plain(first) || host(first) && name.contains('/')) && parts.all(plain);
    let word = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    match (known, tag, digest) {
        (true, Some(tag), _) => Some(tag).filter(|tag| !tag.is_empty() && tag.chars().all(word)),
        (true, None, None) => Some("latest"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
