//! The size of a pod: what its specification requests, what the node allocated, and what is in force.
//!
//! ```text
//! specified ──never fits──▶ pending: Infeasible ──another specification──▶ …
//!     │     ──not now─────▶ pending: Deferred ──another pod gives back──▶ …
//!     ▼
//! allocated ──the cgroup has it──▶ in force      (in between: in progress)
//! ```

mod amounts;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, ResourceRequirements};
use serde::{Deserialize, Serialize};

pub use amounts::{Limits, Need, PodRequests, Resources};

use super::{Millis, time};

/// The condition of a resize that the node has not accepted.
pub const PENDING: &str = "PodResizePending";
/// The condition of a resize that is accepted, and not in force yet.
pub const IN_PROGRESS: &str = "PodResizeInProgress";
/// Until limits that could not be set are tried again.
const RETRY: Millis = 2000;

/// What a node can give to a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// All that it has for pods.
    pub total: Need,
    /// What its other pods have.
    pub used: Need,
}

/// Why a resize is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// It fits when other pods give something back.
    Deferred,
    /// It never does.
    Infeasible,
}

impl Reason {
    /// The word of the condition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deferred => "Deferred",
            Self::Infeasible => "Infeasible",
        }
    }
}

/// A resize that is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// The reason, as the status of the pod has it.
    pub reason: Reason,
    pub message: String,
    since: Millis,
    generation: i64,
}

/// A resize that is accepted and not in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InProgress {
    /// Why it could not be put in force so far.
    pub fault: Option<String>,
    since: Millis,
    generation: i64,
}

/// The size of a pod at its stages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Size {
    /// What the node gives.
    pub allocated: Resources,
    /// What the pod has; none before its cgroup was set for the first time.
    pub in_force: Option<Resources>,
    /// The resize that is not accepted yet.
    pub pending: Option<Pending>,
    /// The resize that is accepted and not in force yet.
    pub in_progress: Option<InProgress>,
    /// The specification that was read last.
    pub generation: Option<i64>,
    /// When setting the cgroup is tried again.
    pub retry: Option<Millis>,
}

/// What came of a specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It is what is allocated.
    Same,
    /// It is allocated from now on.
    Accepted,
    /// It waits; the flag marks another reason or message than before.
    Waits {
        /// Whether reason or message differ from those before.
        is_new: bool,
    },
}

impl Size {
    /// The size of a pod that was just taken on: all that it requests.
    pub fn new(wanted: PodRequests, generation: Option<i64>) -> Self {
        Self { allocated: wanted.resources, generation, ..Self::default() }
    }

    /// Holds a specification against the room that the node has.
    pub fn judge(&mut self, now: Millis, wanted: PodRequests, generation: i64, room: Room) -> Judgement {
        self.generation = Some(generation);
        if wanted.resources == self.allocated {
            self.pending = None;
            return Judgement::Same;
        }
        match refusal(&wanted, &self.allocated, room) {
            None => {
                self.allocated = wanted.resources;
                self.pending = None;
                self.retry = None;
                self.in_progress = Some(InProgress { fault: None, since: now, generation });
                Judgement::Accepted
            }
            Some((reason, message)) => {
                let old = self.pending.take();
                let is_new = old.as_ref().is_none_or(|old| (old.reason, &old.message) != (reason, &message));
                let since = old.map_or(now, |old| old.since);
                self.pending = Some(Pending { reason, message, since, generation });
                Judgement::Waits { is_new }
            }
        }
    }

    /// The cgroup was set to `resources`, or not. Whether it is to be set again at once.
    pub fn set(&mut self, now: Millis, resources: Resources, fault: Option<String>) -> bool {
        let is_last = resources == self.allocated;
        match fault {
            None => {
                self.in_force = Some(resources);
                if is_last {
                    (self.in_progress, self.retry) = (None, None);
                }
            }
            Some(fault) if is_last => {
                if let Some(progress) = &mut self.in_progress {
                    progress.fault = Some(fault);
                }
                self.retry = Some(now + RETRY);
            }
            Some(_) => {}
        }
        !is_last
    }

    /// Fills in the resources in the status of a container.
    pub(crate) fn show(&self, status: &mut ContainerStatus) {
        let of = |resources: &Resources| resources.container(&status.name).cloned().unwrap_or_default();
        let allocated = of(&self.allocated);
        let is_running = status.state.as_ref().is_some_and(|state| state.running.is_some());
        status.resources = Some(match &self.in_force {
            Some(in_force) if is_running => shown(&of(in_force), &allocated),
            _ => allocated.clone(),
        });
        status.allocated_resources = allocated.requests;
    }

    /// The conditions of a resize.
    pub(crate) fn conditions(&self) -> Vec<PodCondition> {
        let condition = |type_: &str, since: Millis, generation: i64| PodCondition {
            type_: type_.to_owned(),
            status: "True".to_owned(),
            last_transition_time: Some(time(since)),
            observed_generation: Some(generation),
            ..PodCondition::default()
        };
        let pending = self.pending.as_ref().map(|pending| PodCondition {
            reason: Some(pending.reason.as_str().to_owned()),
            message: Some(pending.message.clone()),
            ..condition(PENDING, pending.since, pending.generation)
        });
        let progress = self.in_progress.as_ref().map(|progress| PodCondition {
            reason: progress.fault.as_ref().map(|_| "Error".to_owned()),
            message: progress.fault.clone(),
            ..condition(IN_PROGRESS, progress.since, progress.generation)
        });
        pending.into_iter().chain(progress).collect()
    }
}

/// CPU and memory as they are in force, all else as it is allocated.
fn shown(in_force: &ResourceRequirements, allocated: &ResourceRequirements) -> ResourceRequirements {
    type List = Option<BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>;
    let mix = |now: &List, given: &List| -> List {
        let resized = |name: &&String| matches!(name.as_str(), "cpu" | "memory");
        let fixed = given.iter().flatten().filter(|(name, _)| !resized(name));
        let all: BTreeMap<_, _> = now
            .iter()
            .flatten()
            .filter(|(name, _)| resized(name))
            .chain(fixed)
            .map(|(n, q)| (n.clone(), q.clone()))
            .collect();
        Some(all).filter(|all| !all.is_empty())
    };
    ResourceRequirements {
        limits: mix(&in_force.limits, &allocated.limits),
        requests: mix(&in_force.requests, &allocated.requests),
        claims: allocated.claims.clone(),
    }
}

/// Why the node does not provide what a pod requests. What a pod has it keeps, and giving back is always possible.
fn refusal(wanted: &PodRequests, allocated: &Resources, room: Room) -> Option<(Reason, String)> {
    if let Some(container) = wanted.restarting(allocated) {
        let message = format!(
            "container {container}: this node resizes only without a restart: make its resizePolicy NotRequired"
        );
        return Some((Reason::Infeasible, message));
    }
    let (need, has) = (wanted.resources.need(), allocated.need());
    let rows = [
        ("memory", need.memory, has.memory, room.total.memory, room.used.memory),
        ("cpu", need.cpu_milli, has.cpu_milli, room.total.cpu_milli, room.used.cpu_milli),
    ];
    let grown = || rows.iter().filter(|(_, need, has, ..)| need > has);
    if let Some((name, need, _, total, _)) = grown().find(|(_, need, _, total, _)| need > total) {
        let message =
            format!("Node didn't have enough capacity: {name}, requested: {need}, capacity: {total}");
        return Some((Reason::Infeasible, message));
    }
    grown().find(|(_, need, _, total, used)| *need > total.saturating_sub(*used)).map(
        |(name, need, _, total, used)| {
            let message = format!(
                "Node didn't have enough resource: {name}, requested: {need}, used: {used}, capacity: {total}"
            );
            (Reason::Deferred, message)
        },
    )
}

#[cfg(test)]
mod tests;
