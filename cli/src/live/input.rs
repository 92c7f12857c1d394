//! What the model takes in: facts about objects, and samples of measurements.

use neonvm_types::Resources;
use neonvm_types::agent_inspect::VmInspect;
use neonvm_types::scheduler_inspect::ResourceView;

/// What a watch reports about one kind of objects.
#[derive(Clone, Debug)]
pub(crate) enum Change<K, T> {
    /// All objects of the kind: others do not exist.
    All(Vec<(K, T)>),
    Set(K, T),
    /// A deleted object.
    Gone(K),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeFacts {
    /// What it offers to pods.
    pub(crate) total: Resources,
    /// Why no pod is placed there; absent if pods are.
    pub(crate) closed: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct VmFacts {
    /// The node it runs on; empty before it has one.
    pub(crate) node: String,
    /// Its runner pod; empty before it has one.
    pub(crate) pod: String,
    pub(crate) phase: String,
    /// Whether the guest runs.
    pub(crate) running: bool,
    /// Whether an agent is to scale it.
    pub(crate) scaled: bool,
    /// The observed size; zero while it is not known.
    pub(crate) size: Resources,
    /// The size in `spec`.
    pub(crate) requested: Resources,
    pub(crate) min: Resources,
    pub(crate) max: Resources,
    /// Which limits of its disks bind; empty: none.
    pub(crate) limited: String,
}

/// A migration, from its object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MoveFacts {
    pub(crate) vm: String,
    pub(crate) source: String,
    /// Node of the target; empty before one is chosen.
    pub(crate) target: String,
    pub(crate) phase: String,
    /// Share of the memory that need not be sent any more, 0 to 100.
    pub(crate) percent: Option<u64>,
    pub(crate) text: String,
    pub(crate) by: String,
    pub(crate) created: Millis,
    pub(crate) ended: Option<Millis>,
    pub(crate) failed: bool,
}

/// The scheduler's accounting of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Account {
    pub(crate) cpu: ResourceView,
    /// Memory, in bytes.
    pub(crate) memory: ResourceView,
    /// What the scheduler remarks about the node, and what it would migrate next.
    pub(crate) note: Option<String>,
}

/// What a VM used between two readings of its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Load {
    pub(crate) cpu: Option<f64>,
    /// Memory in use, in bytes.
    pub(crate) memory: Option<u64>,
    /// Share of its CPU time that others on the host used, 0 to 1.
    pub(crate) steal: Option<f64>,
    /// Share of its CPU time that its own limit withheld, 0 to 1.
    pub(crate) throttled: Option<f64>,
}

/// Where an input comes from, for problems with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    Nodes,
    Vms,
    Moves,
    Events,
    Scheduler,
    Agents,
}

impl Origin {
    /// What is missing while it cannot be read.
    pub(crate) const fn what(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Vms => "VMs",
            Self::Moves => "migrations",
            Self::Events => "events",
            Self::Scheduler => "permits and watermarks",
            Self::Agents => "goals and decisions",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Input {
    Nodes(Change<String, NodeFacts>),
    Vms(Change<Key, VmFacts>),
    /// Migrations.
    Moves(Change<Key, MoveFacts>),
    Event(Entry),
    Accounts(Vec<(String, Account)>),
    Agents(Vec<VmInspect>),
    /// Loads by VM, or why there are none.
    Loads(Vec<(Key, Result<Load, String>)>),
    /// What keeps an origin from being read, with the remedy; none when it is read again.
    Trouble(Origin, Option<String>),
}

/// Milliseconds since 1970.
pub(crate) type Millis = i64;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// What an entry of the stream is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    Decision,
    #[default]
    Event,
    /// Event of the API with type `Warning`.
    Warning,
}

impl Kind {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Decision => "decision",
            Self::Event => "event",
            Self::Warning => "warning",
        }
    }

    /// One character, so that it is not shown by its colour alone.
    pub(crate) const fn mark(self) -> char {
        match self {
            Self::Decision => '>',
            Self::Event => ' ',
            Self::Warning => '!',
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) at: Millis,
    /// What makes it unique: an entry with the same one is replaced.
    pub(crate) id: String,
    pub(crate) kind: Kind,
    pub(crate) vm: Key,
    pub(crate) text: String,
}
