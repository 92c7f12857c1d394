//! Which node a pod fits on and which is best, as pure functions.
//!
//! [`Demand::from_pod`] returns the resources that a pod takes; [`Usage`] adds up those of a node's pods; [`fit`] checks whether
//! a pod fits on a node, and returns the reason if not; [`permits`] chooses a node, permits sizes of VMs, and chooses VMs to
//! migrate away.

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
