//! What came of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use neonvm_types::Resources;

use crate::{FaultSet, Invariant};

#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub seed: u64,
    pub faults: FaultSet,
    pub simulated: Duration,
    pub events: u64,
    /// How often each invariant was checked.
    pub checked: BTreeMap<Invariant, u64>,
    /// The first invariant that did not hold; the run ends there.
    pub broken: Option<Broken>,
    pub stats: Stats,
    /// What was recorded, if anything.
    pub series: Option<Series>,
}

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Broken {
    pub invariant: Invariant,
    /// When, since the start.
    pub at: Duration,
    pub message: String,
    /// The last things that happened, oldest first; 50 at most.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub vms_created: u64,
    pub vms_deleted: u64,
    /// Changes that made a VM larger.
    pub upscales: u64,
    /// Changes that made a VM smaller.
    pub downscales: u64,
    pub requests: u64,
    /// Permits below the request.
    pub denials: u64,
    /// Requests that the scheduler refused to answer.
    pub refusals: u64,
    pub guest_denials: u64,
    pub guest_requests: u64,
    /// Changes refused because the object had changed.
    pub conflicts: u64,
    pub migrations_started: u64,
    pub migrations_succeeded: u64,
    pub migrations_failed: u64,
    pub scheduler_starts: u64,
    pub agent_crashes: u64,
    pub faults: u64,
    /// Time that VMs had less than their load needed, summed over VMs.
    pub short: Duration,
    /// Time that VMs ran, summed over VMs.
    pub ran: Duration,
}

/// What was recorded: all lines have one value for each of `times`; there are at most [`Series::MOST_POINTS`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// When, since the start.
    pub times: Vec<Duration>,
    pub nodes: Vec<NodeSeries>,
    pub vms: Vec<VmSeries>,
}

impl Series {
    /// Most points of a line.
    pub const MOST_POINTS: usize = 600;
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSeries {
    pub name: String,
    pub capacity: Resources,
    pub reserved: Vec<Resources>,
    /// What VMs have and other pods request.
    pub used: Vec<Resources>,
}

/// A VM over time. Amounts are compute units, by the fuller of CPU and memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VmSeries {
    pub name: String,
    pub demand: Vec<f64>,
    /// What its agent aims at; 0 without an agent.
    pub goal: Vec<f64>,
    pub size: Vec<f64>,
    /// What its agent was permitted; 0 without a permit.
    pub permit: Vec<f64>,
}
