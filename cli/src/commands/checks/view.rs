//! What objects show of services, nodes and VMs. Pure: times are compared with the server's clock.

use jiff::Timestamp;
use serde_json::Value;

use super::component::{self, Component, Service};
use super::facts::{Facts, Source};
use super::webhooks::webhooks;
use crate::commands::object::{condition, is_true, text};

/// Age in seconds from which an object without a status counts as not reconciled.
const PATIENCE: i64 = 10;
/// Seconds after which a node without a sign of life is taken for dead, if its lease names no duration.
const HEARTBEAT: i64 = 40;
/// Seconds that a VM may take to boot before that is worth a word.
const BOOTING: i64 = 60;

/// Seconds that a deletion may take beyond the time a VM has to shut down.
const DELETING: i64 = 30;

/// Something that is wrong with a VM or a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// It does not run, as opposed to: it runs and something is wrong.
    pub(crate) down: bool,
    pub(crate) why: String,
}

fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

fn full_name(object: &Value) -> String {
    format!("{}/{}", text(object, "/metadata/namespace"), name(object))
}

/// A few names, and how many more.
fn some(names: &[String]) -> String {
    let shown = names.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(3) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

pub(super) fn plural(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

impl Facts {
    /// Seconds since a time in an object.
    pub(super) fn since(&self, object: &Value, path: &str) -> Option<i64> {
        let time: Timestamp = text(object, path).parse().ok()?;
        Some(self.now().as_second().saturating_sub(time.as_second()))
    }

    fn is_old(&self, object: &Value) -> bool {
        self.since(object, "/metadata/creationTimestamp").is_some_and(|age| age > PATIENCE)
    }

    pub(crate) fn unattended(&self) -> Vec<String> {
        self.unseen(self.all(Source::Machines))
    }

    /// Pod autoscalers that were not reconciled since they were made.
    pub(crate) fn unattended_autoscalers(&self) -> Vec<String> {
        self.unseen(self.all(Source::Autoscalers))
    }

    fn unseen(&self, objects: &[Value]) -> Vec<String> {
        let seen = |object: &Value| {
            !text(object, "/status/phase").is_empty()
                || object
                    .pointer("/status/conditions")
                    .and_then(Value::as_array)
                    .is_some_and(|all| !all.is_empty())
        };
        objects.iter().filter(|object| !seen(object) && self.is_old(object)).map(full_name).collect()
    }

    /// Every service, by its pods and its lease, and the webhooks.
    pub(crate) fn services(&self) -> Vec<Component> {
        let mut all = component::all(self);
        all.push(webhooks(self));
        all
    }

    /// Every service: by its pods, its lease and by what it does.
    pub(crate) fn components(&self) -> Vec<Component> {
        let with = |component: Component| match component.name {
            "vm-controller" => component.with(&self.reconciled("VM", self.all(Source::Machines))),
            "scheduler" => component.with(&self.scheduler()),
            "pod-autoscaler" => {
                // Where there is nothing for it to do, a replica that has left its lease is no fault.
                let is_idle = self.all(Source::Autoscalers).is_empty() && component.ready.is_none();
                let component =
                    component.with(&self.reconciled("pod autoscaler", self.all(Source::Autoscalers)));
                if is_idle { Component { is_well: None, ..component } } else { component }
            }
            _ => component,
        };
        self.services().into_iter().map(with).collect()
    }

    /// Whether there is nothing of an installation. Not if that may not be read.
    pub(crate) fn is_absent(&self) -> bool {
        self.missing(Source::Leases).is_none()
            && self.has_none(Source::Workloads)
            && self.components().iter().all(|component| component.is_well.is_none())
    }

    /// Whether objects are reconciled, as their statuses show it.
    fn reconciled(&self, noun: &str, objects: &[Value]) -> Service {
        let unattended = self.unseen(objects);
        if !unattended.is_empty() {
            return Service::Fails(format!(
                "{} without a status for more than {PATIENCE} s: {}",
                plural(unattended.len(), noun),
                some(&unattended)
            ));
        }
        match objects.len() {
            0 => Service::Unknown(format!("there are no {noun}s to check")),
            _ => Service::Works(format!("every {noun} has a status")),
        }
    }

    /// Pods without a node for which no scheduler has set a condition.
    pub(crate) fn waiting(&self) -> Vec<String> {
        let waits =
            |pod: &Value| condition(pod, "PodScheduled").is_none() && is_pending(pod) && self.is_old(pod);
        self.all(Source::Unbound).iter().filter(|pod| waits(pod)).map(full_name).collect()
    }

    /// Pods that fit nowhere, with the scheduler's words.
    pub(crate) fn unschedulable(&self) -> Vec<Trouble> {
        let to_trouble = |pod: &Value| -> Option<Trouble> {
            let found = condition(pod, "PodScheduled").filter(|_| is_pending(pod))?;
            (text(found, "/reason") == "Unschedulable")
                .then(|| trouble(pod, true, text(found, "/message").to_owned()))
        };
        self.all(Source::Unbound).iter().filter_map(to_trouble).collect()
    }

    /// The scheduler, by what it does.
    pub(crate) fn scheduler(&self) -> Service {
        let waiting = self.waiting();
        if !waiting.is_empty() {
            return Service::Fails(format!(
                "{} not processed by any scheduler for more than {PATIENCE} s: {}",
                plural(waiting.len(), "pod"),
                some(&waiting)
            ));
        }
        match self.unschedulable().len() {
            0 if self
                .all(Source::Machines)
                .iter()
                .any(|machine| !text(machine, "/status/node").is_empty()) =>
            {
                Service::Works("no pod is waiting for a node".to_owned())
            }
            0 => Service::Unknown("there are no pods to check".to_owned()),
            count => Service::Works(format!("{} without a node: see neonctl doctor", plural(count, "pod"))),
        }
    }

    /// Why a node is not ready; none if it is.
    pub(crate) fn node_trouble(&self, node: &Value) -> Option<String> {
        if !is_true(node, "Ready") {
            let found = condition(node, "Ready");
            let why = found.map_or("it has never been ready", |found| text(found, "/message"));
            return Some(if why.is_empty() { "not ready".to_owned() } else { format!("not ready: {why}") });
        }
        let lease = self.all(Source::Heartbeats).iter().find(|lease| name(lease) == name(node))?;
        let lasts = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64).unwrap_or(HEARTBEAT);
        let age = self.since(lease, "/spec/renewTime").filter(|age| *age > lasts.max(HEARTBEAT))?;
        Some(format!("no heartbeat for {age} s"))
    }

    /// Why the node of this name is not ready; none if it is, or is not known.
    pub(super) fn trouble_of(&self, node: &str) -> Option<String> {
        let found = self.all(Source::Nodes).iter().find(|found| name(found) == node)?;
        self.node_trouble(found)
    }

    pub(crate) fn unready(&self) -> Vec<(String, String)> {
        let with_reason = |node: &Value| Some((name(node).to_owned(), self.node_trouble(node)?));
        self.all(Source::Nodes).iter().filter_map(with_reason).collect()
    }

    /// What is wrong with machines, those that do not run first.
    pub(crate) fn troubled(&self) -> Vec<Trouble> {
        let mut all: Vec<Trouble> =
            self.all(Source::Machines).iter().filter_map(|machine| self.machine_trouble(machine)).collect();
        all.sort_by_key(|trouble| !trouble.down);
        all
    }

    fn machine_trouble(&self, machine: &Value) -> Option<Trouble> {
        let phase = text(machine, "/status/phase");
        let explain = |found: &Value| match (text(found, "/reason"), text(found, "/message")) {
            (reason, "") => reason.to_owned(),
            (reason, message) => format!("{reason}: {message}"),
        };
        if let Some(age) = self.since(machine, "/metadata/deletionTimestamp") {
            let grace =
                machine.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(30);
            let late = age > grace.saturating_add(DELETING);
            return late.then(|| trouble(machine, false, format!("being deleted for {age} s")));
        }
        let degraded = condition(machine, "Degraded").filter(|found| text(found, "/status") == "True");
        let unavailable = condition(machine, "Available").filter(|found| text(found, "/status") != "True");
        if phase == "Failed" {
            let why = degraded.or(unavailable).map_or_else(|| "it has failed".to_owned(), explain);
            return Some(trouble(machine, true, why));
        }
        if let Some(found) = degraded {
            return Some(trouble(machine, unavailable.is_some(), explain(found)));
        }
        let found = unavailable.filter(|_| phase != "Succeeded")?;
        // A VM that boots is no trouble yet.
        let age = self.since(found, "/lastTransitionTime").unwrap_or(i64::MAX);
        (age > BOOTING)
            .then(|| trouble(machine, false, format!("not available for {age} s: {}", explain(found))))
    }
}

fn is_pending(pod: &Value) -> bool {
    let phase = text(pod, "/status/phase");
    (phase.is_empty() || phase == "Pending") && text(pod, "/spec/nodeName").is_empty()
}

fn trouble(object: &Value, down: bool, why: String) -> Trouble {
    let (namespace, name) = (text(object, "/metadata/namespace").to_owned(), name(object).to_owned());
    Trouble { namespace, name, down, why }
}

#[cfg(test)]
mod tests;
