//! The cluster roles and bindings that a new cluster starts with.

use serde_json::{Map, Value, json};

use super::{GROUP, aggregated_rules};
use crate::object;

/// Lines: `role <name> [<label of the aggregation it joins>]`, `sum <name> <label it aggregates> [<label it joins>]`,
/// `bind <name> <role> <subject>…` (`g:` group, `u:` user), and rules of the role above:
/// `<groups> <resources> <verbs> [<names>]` (`core` is the empty group), or `url <paths> <verbs>`.
const ROLES: &str = include_str!("bootstrap/roles.txt");

const READ: &str = "get,list,watch";
const WRITE: &str = "create,delete,deletecollection,patch,update";

/// Cluster roles first, then cluster role bindings; ready to be stored.
pub fn objects() -> Vec<Value> {
    let mut roles: Vec<Value> = Vec::new();
    let mut bindings = Vec::new();
    for line in ROLES.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["role", name, joins @ ..] => roles.push(role(name, joins)),
            ["sum", name, selected, joins @ ..] => {
                let mut role = role(name, joins);
                let label = aggregation_label(selected);
                object::set(
                    &mut role,
                    "aggregationRule",
                    json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]}),
                );
                roles.push(role);
            }
            ["bind", name, role, subjects @ ..] => bindings.push(binding(name, role, subjects)),
            ["url", paths, verbs] => {
                add_rule(&mut roles, json!({"nonResourceURLs": list(paths), "verbs": list(verbs)}));
            }
            [groups, resources, verbs, names @ ..] => {
                let groups: Vec<&str> =
                    groups.split(',').map(|group| if group == "core" { "" } else { group }).collect();
                let mut rule =
                    json!({"apiGroups": groups, "resources": list(resources), "verbs": list(verbs)});
                if let [names] = names {
                    object::set(&mut rule, "resourceNames", json!(list(names)));
                }
                add_rule(&mut roles, rule);
            }
            _ => {}
        }
    }
    let all = roles.clone();
    for role in roles.iter_mut().filter(|role| role.get("aggregationRule").is_some()) {
        let rules = aggregated_rules(role, &all);
        object::set(role, "rules", Value::Array(rules));
    }
    roles.extend(bindings);
    roles
}

fn list(text: &str) -> Vec<&str> {
    text.split(',')
        .flat_map(|word| match word {
            "READ" => READ.split(',').collect(),
            "WRITE" => WRITE.split(',').collect(),
            other => vec![other],
        })
        .collect()
}

fn aggregation_label(name: &str) -> String {
    format!("{GROUP}/aggregate-to-{name}")
}

fn meta(name: &str) -> Value {
    json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    })
}

fn role(name: &str, joins: &[&str]) -> Value {
    let mut metadata = meta(name);
    if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
        let joined: Map<String, Value> =
            joins.iter().map(|name| (aggregation_label(name), json!("true"))).collect();
        labels.extend(joined);
    }
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole", "metadata": metadata, "rules": []})
}

fn add_rule(roles: &mut [Value], rule: Value) {
    let rules = roles.last_mut().and_then(|role| role.get_mut("rules")?.as_array_mut());
    if let Some(rules) = rules {
        rules.push(rule);
    }
}

fn binding(name: &str, role: &str, subjects: &[&str]) -> Value {
    let subjects: Vec<Value> = subjects
        .iter()
        .filter_map(|subject| subject.split_once(':'))
        .map(|(kind, name)| {
            let kind = if kind == "g" { "Group" } else { "User" };
            json!({"kind": kind, "apiGroup": GROUP, "name": name})
        })
        .collect();
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "ClusterRoleBinding",
        "metadata": meta(name),
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    })
}
