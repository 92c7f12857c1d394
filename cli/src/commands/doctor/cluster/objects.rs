//! Nodes, machines and pods. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::check::{Check, fail, ok, warn};
use super::{View, text};
use crate::commands::podautoscaler;

/// VMs or pods that are listed one by one.
const LISTED: usize = 20;

/// Leaves a node and what is on it.
pub(super) fn only(view: &mut View, node: &str) {
    view.nodes.retain(|found| text(found, "/metadata/name") == node);
    view.machines.retain(|found| text(found, "/status/node") == node);
    // Pods without a node are on none, nor are autoscalers.
    view.unbound.clear();
    view.autoscalers.clear();
}

/// Each node.
pub(super) fn nodes(view: &View) -> Vec<Check> {
    if view.nodes.is_empty() {
        return vec![warn("node", "there are no nodes; nothing can run", "add a node").at("cluster")];
    }
    let check = |node: &Value| {
        let name = text(node, "/metadata/name");
        let check = match view.node_trouble(node) {
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
    view.nodes.iter().map(check).collect()
}

/// Versions of ours that differ from that of this program.
pub(super) fn versions(view: &View, own: &str) -> Vec<Check> {
    let mut other: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for node in &view.nodes {
        let version =
            text(node, "/status/nodeInfo/kubeletVersion").split_once("-neonvm.").map(|(_, version)| version);
        if let Some(version) = version.filter(|version| *version != own) {
            other.entry(version).or_default().insert(text(node, "/metadata/name"));
        }
    }
    for deployment in view.parts.workloads.objects() {
        let images = deployment.pointer("/spec/template/spec/containers").and_then(Value::as_array);
        for image in images.into_iter().flatten().map(|container| text(container, "/image")) {
            // Beside ours there may be others, such as a kube-scheduler: their versions are their own.
            let is_ours = name(image).is_some_and(|name| matches!(name, "neond" | "neonvm-runner"));
            if let Some(version) = tag(image).filter(|version| is_ours && *version != own) {
                other.entry(version).or_default().insert(text(deployment, "/metadata/name"));
            }
        }
    }
    if other.is_empty() {
        return vec![ok("version", format!("all {own}")).at("cluster")];
    }
    let check = |(version, places): (&str, BTreeSet<&str>)| {
        let places = places.into_iter().collect::<Vec<_>>().join(",");
        let remedy = "use one version: on a local cluster neonctl local down and up, otherwise the neonctl of the cluster";
        warn("version", format!("{version}, while neonctl is {own}"), remedy).at(places)
    };
    other.into_iter().map(check).collect()
}

/// The last part of an image's path, with its tag.
fn last(image: &str) -> Option<&str> {
    image.rsplit('/').next()?.split('@').next()
}

/// The name of an image without registry, path and tag.
fn name(image: &str) -> Option<&str> {
    last(image)?.split(':').next()
}

/// The version that an image's tag is, `1.2` or `v1.2.3`.
fn tag(image: &str) -> Option<&str> {
    let tag = last(image)?.split_once(':')?.1.trim_start_matches('v');
    tag.split('.')
        .next()
        .is_some_and(|first| !first.is_empty() && first.chars().all(|c| c.is_ascii_digit()))
        .then_some(tag)
}

/// How machines are run, node by node.
pub(super) fn accelerators(view: &View) -> Vec<Check> {
    let mut notes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut used: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for machine in &view.machines {
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

/// VMs with problems.
pub(super) fn machines(view: &View) -> Vec<Check> {
    let troubled = view.troubled();
    if troubled.is_empty() {
        return vec![ok("machines", format!("{}, none with problems", view.machines.len())).at("cluster")];
    }
    let more = troubled.len().saturating_sub(LISTED);
    let mut checks: Vec<Check> = troubled
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
pub(super) fn pods(view: &View) -> Vec<Check> {
    let remedy = "see the free capacity of nodes: neonctl top nodes; then free some or request less";
    let pods = view.unschedulable().into_iter().take(LISTED);
    pods.map(|trouble| fail("pod", trouble.why, remedy).at(format!("{}/{}", trouble.namespace, trouble.name)))
        .collect()
}

/// Pod autoscalers that do not scale, or not by what they should.
pub(super) fn autoscalers(view: &View) -> Vec<Check> {
    let check_of = |object: &Value| {
        let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        let remedy = format!("neonctl podautoscaler explain {name} -n {namespace}");
        Some(warn("podautoscaler", podautoscaler::trouble(object)?, remedy).at(format!("{namespace}/{name}")))
    };
    let mut checks: Vec<Check> = view.autoscalers.iter().filter_map(check_of).collect();
    let more = checks.len().saturating_sub(LISTED);
    checks.truncate(LISTED);
    match (checks.is_empty(), view.autoscalers.len()) {
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
