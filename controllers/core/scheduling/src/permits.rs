//! Permits: how much of a node each VM may use, and which VM has to leave when a node is too full.
//!
//! [`State`] caches nodes and pods, and holds the permits. All input comes through [`State::step`] and [`State::request`];
//! [`State::take_actions`] returns the writes to the cluster. A permit is answered from memory at once; annotations are
//! written afterwards.
//!
//! Three amounts of a pod count. *Floor*: what the cluster shows it to use. *Held*: what was permitted. *Buffer*: what
//! it may hold without a permit of this scheduler, because another one permitted it and its agent has not sent a
//! request here yet. A node's `reserved` is the sum over its pods of `max(floor, held + buffer)`, each divided by its
//! overcommit factor and rounded up.
//!
//! Invariants (tests below): the sum on a node never exceeds its capacity by a permit of ours; a node's sums are those
//! of its pods at all times; what is granted is a whole number of compute units, the same for CPU and memory; a request
//! for less is always granted; the same observation twice changes nothing; no input panics.

mod account;
mod action;
mod dump;
mod extract;
mod leave;
mod pair;
mod place;
mod pods;
mod queued;
mod request;
mod score;
mod seen;
mod settings;
mod slab;
mod state;
mod what_if;
mod wire;

pub use action::{Action, Annotation, Noted, WantedMigration};
pub use pair::Pair;
pub use request::{Refusal, Reply, Request};
pub use score::{Scoring, randomised};
pub use seen::{MigrationRole, MigrationSeen, NodeSeen, PodSeen, VmSeen};
pub use settings::{Settings, SettingsError};
pub use state::{Event, State};
pub use wire::WireResponse;

#[cfg(test)]
mod tests;
