//! A user cannot grant rights beyond their own, unless they may `escalate` (roles) or `bind` (bindings).

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Attributes, GROUP, Rule, RuleIndex, is_master, text};
use crate::context::User;

/// A rule that names more combinations than this is not taken apart; its author has to be let through by verb.
const MAX_COMBINATIONS: usize = 50_000;

/// Judges a change of a role or binding: what leaves the rights as they are needs no more than the right to update.
///
/// # Errors
/// As [`check`].
pub fn check_update(
    index: &RuleIndex,
    user: &User,
    kind: &str,
    object: &Value,
    live: &Value,
) -> Result<(), String> {
    let same = ["rules", "aggregationRule", "roleRef", "subjects"]
        .into_iter()
        .all(|key| object.get(key) == live.get(key));
    if same { Ok(()) } else { check(index, user, kind, object) }
}

/// Judges a role or binding that `user` wants to store.
///
/// # Errors
/// The text that explains the refusal, for a 403.
pub fn check(index: &RuleIndex, user: &User, kind: &str, object: &Value) -> Result<(), String> {
    if is_master(user) {
        return Ok(());
    }
    let namespace = match kind {
        "Role" | "RoleBinding" => text(object, ["metadata", "namespace"]),
        _ => "",
    };
    let may = |verb: &str, kind: &str, name: &str, namespace: &str| {
        let resource = if kind == "ClusterRole" { "clusterroles" } else { "roles" };
        let wanted =
            Attributes { verb, group: GROUP, resource, name, namespace, ..Attributes::from_user(user) };
        index.decide(&wanted).allowed
    };
    match kind {
        "Role" | "ClusterRole" => {
            if may("escalate", kind, text(object, ["metadata", "name"]), namespace) {
                return Ok(());
            }
            // An aggregating role takes what labels choose, now and later: only the owner of everything may make one.
            let aggregates = object.get("aggregationRule").is_some_and(|rule| !rule.is_null());
            let everything = || {
                let all = || vec!["*".to_owned()];
                let resources = Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() };
                vec![resources, Rule { verbs: all(), paths: all(), ..Rule::default() }]
            };
            let rules = if aggregates { everything() } else { Rule::of_role(object) };
            confirm(index, user, namespace, &rules)
        }
        "RoleBinding" | "ClusterRoleBinding" => {
            let (of, name) = (text(object, ["roleRef", "kind"]), text(object, ["roleRef", "name"]));
            if may("bind", of, name, namespace) {
                return Ok(());
            }
            let Some(rules) = index.rules_of(of, name, namespace) else {
                let resource = if of == "ClusterRole" { "clusterroles" } else { "roles" };
                return Err(format!("{resource}.{GROUP} {name:?} not found"));
            };
            confirm(index, user, namespace, &rules)
        }
        _ => Ok(()),
    }
}

fn confirm(index: &RuleIndex, user: &User, namespace: &str, wanted: &[Rule]) -> Result<(), String> {
    let held = index.rules_for(user, namespace);
    let mut missing = BTreeSet::new();
    for rule in wanted {
        if held.iter().any(|own| own.covers(rule)) {
            continue;
        }
        match parts(rule) {
            Some(parts) => {
                let uncovered = parts.into_iter().filter(|part| !held.iter().any(|own| own.covers(part)));
                missing.extend(compacted(uncovered.collect()).iter().map(Rule::shown));
            }
            None => {
                missing.insert(rule.shown());
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let groups: Vec<String> = user.groups.iter().map(|group| format!("{group:?}")).collect();
    let listed: Vec<String> = missing.into_iter().collect();
    Err(format!(
        "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        groups.join(" "),
        listed.join("\n")
    ))
}

/// The rule as rules of one verb, group, resource and name each; `None` if there are too many.
fn parts(rule: &Rule) -> Option<Vec<Rule>> {
    let sizes = [&rule.verbs, &rule.groups, &rule.resources, &rule.names, &rule.paths];
    let product = sizes.iter().fold(1usize, |product, list| product.saturating_mul(list.len().max(1)));
    if product > MAX_COMBINATIONS {
        return None;
    }
    let one = |item: &String| vec![item.clone()];
    let mut parts = Vec::new();
    for verb in &rule.verbs {
        for path in &rule.paths {
            parts.push(Rule { verbs: one(verb), paths: one(path), ..Rule::default() });
        }
        for group in &rule.groups {
            for resource in &rule.resources {
                let base = Rule {
                    verbs: one(verb),
                    groups: one(group),
                    resources: one(resource),
                    ..Rule::default()
                };
                if rule.names.is_empty() {
                    parts.push(base.clone());
                }
                parts.extend(rule.names.iter().map(|name| Rule { names: one(name), ..base.clone() }));
            }
        }
    }
    Some(parts)
}

fn compacted(parts: Vec<Rule>) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for part in parts {
        let same = |rule: &&mut Rule| {
            (&rule.groups, &rule.resources, &rule.names, &rule.paths)
                == (&part.groups, &part.resources, &part.names, &part.paths)
        };
        match rules.iter_mut().find(same) {
            Some(rule) => rule.verbs.extend(part.verbs),
            None => rules.push(part),
        }
    }
    rules
}
