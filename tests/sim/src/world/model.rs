//! What the world consists of.

use std::collections::{BTreeMap, BTreeSet};

use neonvm_api::VmInfo;
use neonvm_core_scheduling::permits::{MigrationRole, MigrationSeen, Noted, Pair};
use neonvm_core_vertical_scaling::agent::State as AgentState;
use neonvm_core_vertical_scaling::monitor::Policy;
use neonvm_types::{NamespacedName, Resources, Revision};

use crate::queue::Time;
use crate::scenario::{Curve, Guest};

/// Index of a node, VM or pod.
pub(crate) type Id = usize;

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) total: Pair<u64>,
    /// What its pods may take, by the world's own account.
    pub(crate) taken: Pair<u128>,
    /// What VMs have and other pods request, discounted.
    pub(crate) used: Pair<u128>,
    pub(crate) open: bool,
    pub(crate) lost: bool,
    pub(crate) agent_up: bool,
    pub(crate) pods: BTreeSet<Id>,
    pub(crate) dirty: [bool; 2],
    /// How many looks in a row found it too full for no reason.
    pub(crate) misses: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) key: NamespacedName,
    pub(crate) uid: String,
    pub(crate) vm: Option<Id>,
    pub(crate) node: Option<Id>,
    /// When it got its node; 0 for a pod without one.
    pub(crate) bound_at: Time,
    pub(crate) created: i64,
    pub(crate) alive: bool,
    pub(crate) ended: bool,
    pub(crate) usage: Resources,
    pub(crate) noted: Option<Noted>,
    pub(crate) role: Option<(MigrationRole, String)>,
    pub(crate) dirty: [bool; 2],
    pub(crate) binding: bool,
    /// What it adds to `Node::taken` and `Node::used`.
    pub(crate) counted: [Pair<u128>; 2],
    /// How many looks in a row found it waiting for no reason.
    pub(crate) misses: u32,
    /// How long it runs, if it ends by itself.
    pub(crate) lasts: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Pending,
    Running,
    Migrating,
    Gone,
}

#[derive(Clone, Debug)]
pub(crate) struct Migration {
    pub(crate) seen: MigrationSeen,
    pub(crate) vm: Id,
    pub(crate) name: String,
    /// The VM's pod and node when it was made.
    pub(crate) source: Option<Id>,
    pub(crate) node: Option<Id>,
    pub(crate) at: Time,
    pub(crate) gone: bool,
    pub(crate) dirty: [bool; 2],
}

/// A VM: its object, its QEMU, its guest, its agent.
#[derive(Debug)]
pub(crate) struct Vm {
    pub(crate) name: String,
    pub(crate) info: VmInfo,
    pub(crate) first_bounds: (Resources, Resources),
    pub(crate) overcommit: u64,
    pub(crate) movable: bool,
    pub(crate) phase: Phase,
    pub(crate) pods_made: u32,
    pub(crate) pod: Option<Id>,
    pub(crate) target: Option<Id>,
    pub(crate) network: bool,
    pub(crate) address: Option<std::net::IpAddr>,
    /// `spec.guest.*.use`.
    pub(crate) asked: Resources,
    pub(crate) generation: i64,
    pub(crate) target_revision: Revision,
    pub(crate) min: Resources,
    pub(crate) max: Resources,
    pub(crate) hold: Option<(Resources, Time)>,
    /// `status.cpus` and `status.memorySize`.
    pub(crate) observed: Option<Resources>,
    pub(crate) observed_generation: i64,
    pub(crate) revision: Revision,
    pub(crate) has: Resources,
    pub(crate) mem_epoch: u32,
    pub(crate) slow_until: Time,
    pub(crate) stuck_until: Time,
    pub(crate) controlled: bool,
    pub(crate) guest: GuestState,
    pub(crate) agent: Option<Box<Agent>>,
    /// When the last thing reaches the agent by its watch.
    pub(crate) watched: Time,
    pub(crate) needs: Resources,
    pub(crate) counted_at: Time,
    /// Since when it is where it is.
    pub(crate) there_since: Time,
    /// How many looks in a row found it not where it should be.
    pub(crate) misses: u32,
    pub(crate) record: bool,
}

#[derive(Debug)]
pub(crate) struct GuestState {
    pub(crate) kind: Guest,
    pub(crate) cpu: Curve,
    pub(crate) memory: Curve,
    /// What the load needs, in compute units.
    pub(crate) cpu_level: f64,
    pub(crate) memory_level: f64,
    pub(crate) load1: f64,
    pub(crate) load5: f64,
    pub(crate) load_at: Time,
    /// Seconds that its processors were busy.
    pub(crate) busy: f64,
    /// What the VM had at the last scrape, for [`crate::Bug::HasIsNeed`].
    pub(crate) scraped: Option<Resources>,
    pub(crate) policy: Policy,
    /// The agent and connection it is served by.
    pub(crate) connection: Option<(u64, u64)>,
    /// When the last message reaches it.
    pub(crate) inbox: Time,
    pub(crate) silent_until: Time,
    pub(crate) refuses_until: Time,
    pub(crate) garbage_until: Time,
    pub(crate) metrics_lost_until: Time,
    pub(crate) metrics_lie_until: Time,
    pub(crate) sampling: bool,
    pub(crate) samples: u32,
    /// What it may be shrunk to.
    pub(crate) agreed: Resources,
}

/// A VM as its agent's watch shows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) asked: Resources,
    pub(crate) observed: Option<Resources>,
    pub(crate) min: Resources,
    pub(crate) max: Resources,
    pub(crate) hold: Option<(Resources, Time)>,
    pub(crate) generation: i64,
    pub(crate) status_generation: i64,
    pub(crate) revision: Revision,
    pub(crate) moving: bool,
}

/// The agent of a VM, and the world's account of its messages.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) state: AgentState,
    /// Which agent of the world this is; what was meant for others does not reach it.
    pub(crate) inc: u64,
    pub(crate) wake: Option<Time>,
    pub(crate) connection: u64,
    pub(crate) seen: Snapshot,
    pub(crate) steps: u32,
    pub(crate) last_scrape: (f64, f64),
    pub(crate) account: Account,
}

/// The messages of an agent, recorded outside of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    /// What the agent may use: the last permit that reached it, less what it released since.
    pub(crate) permit: Option<Resources>,
    /// Its last request: number, target, when, whether an answer came.
    pub(crate) asking: Option<(u64, Resources, Time, bool)>,
    pub(crate) issued: Option<(u64, Resources)>,
    pub(crate) ask_failed: Option<Time>,
    /// The agent's last change whose reply has arrived, and those that were made since.
    pub(crate) acknowledged: Option<Resources>,
    pub(crate) unacknowledged: Vec<Resources>,
    /// The newest generation of the object that the agent has received: older ones may be ignored.
    pub(crate) generation: i64,
    pub(crate) patching: Option<(u64, Time)>,
    pub(crate) patch_failed: Option<Time>,
    /// Of CPU and memory: whether it shrank last, and how often it has grown after that while all was calm.
    pub(crate) turns: [(bool, u32); 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Person {
    Creates,
    Deletes,
    Bounds,
    Holds,
    Cordons,
    Drains,
    Moves,
    Cancels,
}

impl Person {
    pub(crate) const ALL: &'static [Self] = &[
        Self::Creates,
        Self::Deletes,
        Self::Bounds,
        Self::Holds,
        Self::Cordons,
        Self::Drains,
        Self::Moves,
        Self::Cancels,
    ];
}

#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) state: neonvm_core_scheduling::permits::State,
    pub(crate) up: bool,
    /// Counts its starts; what was meant for an earlier one does not reach it.
    pub(crate) inc: u64,
    pub(crate) wake: Option<Time>,
    pub(crate) counters: neonvm_types::scheduler_inspect::Counters,
    /// Pods that it forgot, by a planted bug.
    pub(crate) checks: u32,
}

/// Pods by key, for what comes back from the scheduler by name.
pub(crate) type Keys = BTreeMap<NamespacedName, Id>;
