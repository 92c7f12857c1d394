//! One rule, what it allows, and the union of rules by labels.

use serde_json::Value;

use super::Attributes;
use crate::selector::LabelSelector;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// Verbs; `*` is all.
    pub verbs: Vec<String>,
    /// API groups; `*` is all.
    pub groups: Vec<String>,
    /// `pods`, `pods/status`, `*/scale`, `*`.
    pub resources: Vec<String>,
    /// Names the rule is limited to; empty for all.
    pub names: Vec<String>,
    /// Paths; a trailing `*` matches any rest.
    pub paths: Vec<String>,
}

const ALL: &str = "*";

fn holds(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == ALL || item == wanted)
}

impl Rule {
    /// Reads an item of `rules`; what is missing or malformed is empty.
    pub fn read(value: &Value) -> Self {
        let list = |key: &str| -> Vec<String> {
            let items = value.get(key).and_then(Value::as_array).into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            paths: list("nonResourceURLs"),
        }
    }

    pub(super) fn of_role(role: &Value) -> Vec<Self> {
        role.get("rules").and_then(Value::as_array).into_iter().flatten().map(Self::read).collect()
    }

    pub fn allows(&self, wanted: &Attributes<'_>) -> bool {
        if !holds(&self.verbs, wanted.verb) {
            return false;
        }
        if !wanted.path.is_empty() {
            return self.paths.iter().any(|rule| covers_path(rule, wanted.path));
        }
        holds(&self.groups, wanted.group)
            && self.resources.iter().any(|rule| matches_resource(rule, wanted.resource, wanted.subresource))
            && (self.names.is_empty() || self.names.iter().any(|name| name == wanted.name))
    }

    /// Whether this rule grants all of `other`, a rule of single items.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let verbs = other.verbs.iter().all(|verb| holds(&self.verbs, verb));
        if !other.paths.is_empty() {
            let covered = |path: &String| self.paths.iter().any(|rule| covers_path(rule, path));
            return verbs && other.paths.iter().all(covered);
        }
        let resource = |wanted: &String| {
            let sub = wanted.split_once('/').map(|(_, sub)| format!("*/{sub}"));
            holds(&self.resources, wanted) || sub.is_some_and(|sub| self.resources.contains(&sub))
        };
        verbs
            && other.groups.iter().all(|group| holds(&self.groups, group))
            && other.resources.iter().all(resource)
            && (self.names.is_empty()
                || (!other.names.is_empty() && other.names.iter().all(|name| self.names.contains(name))))
    }

    /// `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
    pub(super) fn shown(&self) -> String {
        let parts = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.paths),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let shown: Vec<String> = parts
            .iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(title, list)| {
                let items: Vec<String> = list.iter().map(|item| format!("{item:?}")).collect();
                format!("{title}:[{}]", items.join(" "))
            })
            .collect();
        format!("{{{}}}", shown.join(", "))
    }
}

fn matches_resource(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == ALL {
        return true;
    }
    match rule.split_once('/') {
        None => subresource.is_empty() && rule == resource,
        Some((of, sub)) => !subresource.is_empty() && sub == subresource && (of == ALL || of == resource),
    }
}

fn covers_path(rule: &str, path: &str) -> bool {
    rule == path || rule.strip_suffix(ALL).is_some_and(|prefix| path.starts_with(prefix))
}

/// How deep roles may aggregate roles that aggregate.
const MAX_NESTING: usize = 8;

/// The rules of a role with an `aggregationRule`: those of every cluster role that its selectors choose, each once.
pub fn aggregated_rules(role: &Value, cluster_roles: &[Value]) -> Vec<Value> {
    let mut rules = Vec::new();
    collect(role, cluster_roles, MAX_NESTING, &mut rules);
    rules
}

fn collect(role: &Value, all: &[Value], depth: usize, found: &mut Vec<Value>) {
    let name = |role: &Value| super::text(role, ["metadata", "name"]).to_owned();
    let selectors = role.get("aggregationRule").and_then(|rule| rule.get("clusterRoleSelectors")?.as_array());
    let Some(selectors) = selectors.filter(|_| depth > 0) else {
        for rule in role.get("rules").and_then(Value::as_array).into_iter().flatten() {
            if !found.contains(rule) {
                found.push(rule.clone());
            }
        }
        return;
    };
    let mut chosen: Vec<&Value> = all
        .iter()
        .filter(|other| name(other) != name(role))
        .filter(|other| selectors.iter().any(|one| LabelSelector::from_object(one).matches(other)))
        .collect();
    chosen.sort_by_key(|other| name(other));
    for other in chosen {
        collect(other, all, depth - 1, found);
    }
}
