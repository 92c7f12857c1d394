//! Which node a pod fits on and which is best, as pure functions.
//!
//! [`Demand::of`] says what a pod takes; [`Usage`] adds up what the pods of a node take; [`fit`] says whether a pod may go
//! to a node, or why not;
//! [`permits`] is the rest: the choice of a node, what VMs may grow to, and which has to leave.

mod affinity;
mod amounts;
mod choice;
mod fit;
pub mod permits;
mod taints;

pub use amounts::{Amounts, Demand, Usage, has_ended};
pub use choice::Choice;
pub use fit::{Reason, fit};
pub use taints::tolerated;

/// The label that names a node's host; the only topology a pod can be kept apart by.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
