//! Nodes, machines and pods. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::facts::{Facts, Source};
use super::finding::{Finding, fail, ok, warn};
use crate::commands::object::text;
use crate::commands::podautoscaler;

/// VMs or pods that are listed one by one.
const LISTED: usize = 20;

/// Leaves a node and what is on it.
pub(crate) fn only(facts: &mut Facts, node: &str) {
    facts.retain(Source::Nodes, |found| text(found, "/metadata/name") == node);
    facts.retain(Source::Machines, |found| text(found, "/status/node") == node);
    // Pods without a node are on none, nor are autoscalers.
    facts.retain(Source::Unbound, |_| false);
    facts.retain(Source::Autoscalers, |_| false);
}

pub(super) fn nodes(facts: &Facts) -> Vec<Finding> {
    if facts.all(Source::Nodes).is_empty() {
        return vec![warn("node", "there are no nodes; nothing can run", "add a node").at("cluster")];
    }
    let check = |node: &Value| {
        let name = text(node, "/metadata/name");
        let check = match facts.node_trouble(node) {
            Some(why) => {
                fail("node", why, "check whether its service runs; on a local cluster: neonctl local logs")
            }
            None if node.pointer("/spec/unschedulable").and_then(Value::as_bool) == Some(true) => {
                warn("node", "ready, but no new pods are scheduled on it", format!("kubectl uncordon {name}"))
            }
            None => ok("node", format!("ready, {}", text(node, "/status/nodeInfo/kubeletVersion"))),
        };
        check.at(name)
    };
    facts.all(Source::Nodes).iter().map(check).collect()
}

pub(super) fn accelerators(facts: &Facts) -> Vec<Finding> {
    let mut notes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut used: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for machine in facts.all(Source::Machines) {
        let (node, accelerator) =
            (text(machine, "/status/node"), text(machine, "/status/machine/accelerator"));
        if node.is_empty() || accelerator.is_empty() {
            continue;
        }
        used.entry(node).or_default().insert(accelerator);
        let note = text(machine, "/status/machine/acceleratorNote");
        if !note.is_empty() {
            notes.entry(node).or_default().insert(note);
        }
    }
    let check = |(node, used): (&str, BTreeSet<&str>)| {
        let used = used.into_iter().collect::<Vec<_>>().join(", ");
        let check = match notes.get(node) {
            None => ok("accelerator", used),
            Some(notes) => {
                let notes = notes.iter().copied().collect::<Vec<_>>().join("; ");
                let remedy = "check it on that node: neonctl doctor --local; or accept slower VMs";
                warn("accelerator", format!("{used}: {notes}"), remedy)
            }
        };
        check.at(node)
    };
    used.into_iter().map(check).collect()
}

pub(super) fn machines(facts: &Facts) -> Vec<Finding> {
    let troubled = facts.troubled();
    if troubled.is_empty() {
        return vec![
            ok("machines", format!("{}, none with problems", facts.all(Source::Machines).len()))
                .at("cluster"),
        ];
    }
    let more = troubled.len().saturating_sub(LISTED);
    let mut checks: Vec<Finding> = troubled
        .into_iter()
        .take(LISTED)
        .map(|trouble| {
            let remedy = format!("neonctl vm describe {} -n {}", trouble.name, trouble.namespace);
            let check = if trouble.down { fail } else { warn };
            check("machine", trouble.why, remedy).at(format!("{}/{}", trouble.namespace, trouble.name))
        })
        .collect();
    if more > 0 {
        checks
            .push(warn("machine", format!("{more} more with problems"), "neonctl vm list -A").at("cluster"));
    }
    checks
}

/// Pods that fit nowhere.
pub(super) fn pods(facts: &Facts) -> Vec<Finding> {
    let remedy = "see the free capacity of nodes: kubectl describe nodes; then free some or request less";
    let pods = facts.unschedulable().into_iter().take(LISTED);
    pods.map(|trouble| fail("pod", trouble.why, remedy).at(format!("{}/{}", trouble.namespace, trouble.name)))
        .collect()
}

/// Pod autoscalers that do not scale, or not by what they should.
pub(super) fn autoscalers(facts: &Facts) -> Vec<Finding> {
    let check_of = |object: &Value| {
        let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        let remedy = format!("neonctl podautoscaler explain {name} -n {namespace}");
        Some(warn("podautoscaler", podautoscaler::trouble(object)?, remedy).at(format!("{namespace}/{name}")))
    };
    let mut checks: Vec<Finding> = facts.all(Source::Autoscalers).iter().filter_map(check_of).collect();
    let more = checks.len().saturating_sub(LISTED);
    checks.truncate(LISTED);
    match (checks.is_empty(), facts.all(Source::Autoscalers).len()) {
        (true, 0) => {}
        (true, count) => {
            checks.push(ok("podautoscalers", format!("{count}, none with problems")).at("cluster"));
        }
        (false, _) if more > 0 => {
            let text = format!("{more} more with problems");
            checks.push(warn("podautoscaler", text, "neonctl podautoscaler list -A").at("cluster"));
        }
        (false, _) => {}
    }
    checks
}

#[cfg(test)]
mod tests;
