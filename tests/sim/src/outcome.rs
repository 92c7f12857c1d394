//! What came of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use neonvm_types::Resources;

use crate::{FaultSet, Invariant};

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Seed of the run.
    pub seed: u64,
    /// The faults that could happen.
    pub faults: FaultSet,
    /// How long it took inside.
    pub simulated: Duration,
    /// How many things happened.
    pub events: u64,
    /// How often each invariant was checked.
    pub checked: BTreeMap<Invariant, u64>,
    /// The first invariant that did not hold; the run ends there.
    pub broken: Option<Broken>,
    /// Counts.
    pub stats: Stats,
    /// What was recorded, if anything.
    pub series: Option<Series>,
}

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Broken {
    /// The invariant that was violated.
    pub invariant: Invariant,
    /// When, since the start.
    pub at: Duration,
    /// What was seen, with names and amounts.
    pub message: String,
    /// The last things that happened, oldest first; 50 at most.
    pub notes: Vec<String>,
}

/// Counts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// VMs made.
    pub vms_created: u64,
    /// VMs deleted.
    pub vms_deleted: u64,
    /// Changes that made a VM larger.
    pub upscales: u64,
    /// Changes that made a VM smaller.
    pub downscales: u64,
    /// Requests to the scheduler.
    pub requests: u64,
    /// Permits below the request.
    pub denials: u64,
    /// Requests that the scheduler refused to answer.
    pub refusals: u64,
    /// Sizes that guests refused to shrink to.
    pub guest_denials: u64,
    /// Requests of guests for more.
    pub guest_requests: u64,
    /// Changes refused because the object had changed.
    pub conflicts: u64,
    /// Migrations begun.
    pub migrations_started: u64,
    /// Migrations that succeeded.
    pub migrations_succeeded: u64,
    /// Migrations that failed.
    pub migrations_failed: u64,
    /// Schedulers that started or took over.
    pub scheduler_starts: u64,
    /// Agents that ended.
    pub agent_crashes: u64,
    /// Faults that happened.
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
    /// Nodes.
    pub nodes: Vec<NodeSeries>,
    /// VMs.
    pub vms: Vec<VmSeries>,
}

impl Series {
    /// Most points of a line.
    pub const MOST_POINTS: usize = 600;
}

/// A node over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSeries {
    /// Name of the node.
    pub name: String,
    /// What it offers.
    pub capacity: Resources,
    /// What the scheduler has reserved, with buffers.
    pub reserved: Vec<Resources>,
    /// What VMs have and other pods request.
    pub used: Vec<Resources>,
}

/// A VM over time. Amounts are compute units, by the fuller of CPU and memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VmSeries {
    /// Name of the VM.
    pub name: String,
    /// What its load needs.
    pub demand: Vec<f64>,
    /// What its agent aims at; 0 without an agent.
    pub goal: Vec<f64>,
    /// What it has.
    pub size: Vec<f64>,
    /// What its agent was permitted; 0 without a permit.
    pub permit: Vec<f64>,
}
