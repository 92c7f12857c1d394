//! One document per group and version.

use serde_json::{Value, json};

use crate::kinds::{Kind, Kinds};
use crate::object;

pub(super) fn api_versions() -> Value {
    json!({ "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "" }] })
}

fn group_body(name: &str, versions: &[String]) -> Value {
    let versions: Vec<Value> =
        versions.iter().map(|v| json!({ "groupVersion": format!("{name}/{v}"), "version": v })).collect();
    json!({ "name": name, "preferredVersion": versions.first(), "versions": versions })
}

pub(super) fn groups(kinds: &Kinds) -> Value {
    let groups: Vec<Value> = kinds
        .groups()
        .iter()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, versions)| group_body(name, versions))
        .collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

pub(super) fn group(kinds: &Kinds, name: &str) -> Option<Value> {
    let (_, versions) = kinds.groups().iter().find(|(group, _)| group == name && !name.is_empty())?;
    let mut body = group_body(name, versions);
    object::set(&mut body, "kind", json!("APIGroup"));
    object::set(&mut body, "apiVersion", json!("v1"));
    Some(body)
}

fn of_kind(kind: &Kind) -> Vec<Value> {
    let mut resource = json!({ "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
        "kind": kind.kind, "verbs": kind.verb_names() });
    if !kind.short_names.is_empty() {
        object::set(&mut resource, "shortNames", json!(kind.short_names));
    }
    if !kind.categories.is_empty() {
        object::set(&mut resource, "categories", json!(kind.categories));
    }
    let mut all = vec![resource];
    for sub in &kind.subresources {
        let mut entry = json!({ "name": format!("{}/{}", kind.plural, sub.name), "singularName": "",
            "namespaced": kind.namespaced, "kind": sub.kind, "verbs": sub.verbs });
        if let (Some(group), Some(version)) = (sub.group, sub.version) {
            object::set(&mut entry, "group", json!(group));
            object::set(&mut entry, "version", json!(version));
        }
        all.push(entry);
    }
    all
}

pub(super) fn resources(kinds: &Kinds, group: &str, version: &str) -> Option<Value> {
    if !kinds.has_version(group, version) {
        return None;
    }
    let of_version = kinds.all().filter(|kind| kind.group == group && kind.version == version);
    let resources: Vec<Value> = of_version.flat_map(|kind| of_kind(kind)).collect();
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut list =
        json!({ "kind": "APIResourceList", "groupVersion": group_version, "resources": resources });
    if !group.is_empty() {
        object::set(&mut list, "apiVersion", json!("v1"));
    }
    Some(list)
}
