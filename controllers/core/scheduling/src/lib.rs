//! Which node a pod fits on and which is best, as pure functions.
//!
//! [`Demand::from_pod`] returns the resources that a pod takes; [`Usage`] adds up those of a node's pods; [`fit`] checks whether
//! a pod fits on a node, and returns the reason if not; [`permits`] chooses a node, permits sizes of VMs, and chooses VMs to
//! migrate away.
//!
//! ```
//! use k8s_openapi::api::core::v1::{Node, Pod};
//! use neonvm_core_scheduling::{Usage, fit};
//! use serde_json::json;
//!
//! let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1"},
//!     "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]}}))?;
//! let pod = |cpu: &str| -> Result<Pod, serde_json::Error> {
//!     serde_json::from_value(json!({"metadata": {"name": "p"},
//!         "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}))
//! };
//! let free = Usage::default();
//! assert!(fit(&pod("2")?, &node, &free, [].iter()).is_ok());
//! assert!(fit(&pod("5")?, &node, &free, [].iter()).is_err());
//! # Ok::<(), serde_json::Error>(())
//! ```

mod affinity;
mod amounts;
mod choice;
mod fit;
pub mod permits;
mod taints;

pub use amounts::{Amounts, Demand, Usage, has_ended};
pub use choice::Choice;
pub use fit::{Reason, fit, unrepelled};
pub use taints::tolerated;

/// The label that names a node's host; the only topology a pod can be kept apart by.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
