//! All groups in one document (`apidiscovery.k8s.io/v2`).

use serde_json::{Value, json};

use crate::kinds::{Kind, Kinds};
use crate::object;

pub(super) fn list(kinds: &Kinds, core: bool) -> Value {
    let items: Vec<Value> = kinds
        .groups()
        .iter()
        .filter(|(group, _)| group.is_empty() == core)
        .map(|(group, versions)| {
            let versions: Vec<Value> =
                versions.iter().map(|version| of_version(kinds, group, version)).collect();
            let mut metadata = json!({ "creationTimestamp": null });
            if !group.is_empty() {
                object::set(&mut metadata, "name", json!(group));
            }
            json!({ "metadata": metadata, "versions": versions })
        })
        .collect();
    json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items })
}

fn of_version(kinds: &Kinds, group: &str, version: &str) -> Value {
    let of = kinds.all().filter(|kind| kind.group == group && kind.version == version);
    let resources: Vec<Value> = of.map(|kind| resource(kind)).collect();
    json!({ "version": version, "resources": resources, "freshness": "Current" })
}

fn resource(kind: &Kind) -> Value {
    // A built-in kind's own group is left out where it is the one of the document.
    let response = |group: &str, version: &str, name: &str| match kind.custom {
        Some(_) => json!({ "group": group, "version": version, "kind": name }),
        None if group == kind.group && version == kind.version => {
            json!({ "group": "", "version": "", "kind": name })
        }
        None => json!({ "group": group, "version": version, "kind": name }),
    };
    let mut entry = json!({ "resource": kind.plural, "responseKind": response(&kind.group, &kind.version, &kind.kind),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular, "verbs": kind.verb_names() });
    if !kind.short_names.is_empty() {
        object::set(&mut entry, "shortNames", json!(kind.short_names));
    }
    if !kind.categories.is_empty() {
        object::set(&mut entry, "categories", json!(kind.categories));
    }
    let subresources: Vec<Value> = kind
        .subresources
        .iter()
        .map(|sub| {
            let (group, version) = (sub.group.unwrap_or(&kind.group), sub.version.unwrap_or(&kind.version));
            json!({ "subresource": sub.name, "responseKind": response(group, version, &sub.kind), "verbs": sub.verbs })
        })
        .collect();
    if !subresources.is_empty() {
        object::set(&mut entry, "subresources", json!(subresources));
    }
    entry
}
