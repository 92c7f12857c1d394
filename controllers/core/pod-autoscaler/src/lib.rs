//! How many replicas a workload should have, and why.
//!
//! For: the replica autoscaler, `neonctl podautoscaler`, the simulator. Owns: reading metrics, windows, strategies,
//! bounds, stabilisation, the decision with its explanation, which object owns a target, the status that follows. May not: read a clock, fetch anything, talk to a cluster.
//!
//! ```text
//! text of /metrics ─▶ exposition ─▶ sample ─▶ load ─▶ window ─┬─▶ apa ─┐
//!                                                            ├─▶ kpa ─┼─▶ largest ─▶ stabilise ─▶ bounds ─▶ decision
//! annotations, spec ─▶ settings                               └─▶ hpa ─┘                                       │
//!                                                                 status: conditions, history, explanation ◀─┘
//! ```
//! The way in is [`Settings::from_object`], then [`decide()`] again and again with one [`Memory`] for each object.

pub mod apa;
pub mod claim;
pub mod decide;
pub mod explain;
pub mod exposition;
pub mod forecast;
pub mod histogram;
pub mod hpa;
pub mod hpa_object;
pub mod kpa;
mod memory;
pub mod number;
pub mod registry;
pub mod sample;
pub mod schedule;
mod settings;
pub mod stabilise;
pub mod status;
pub mod want;
pub mod window;

pub use decide::{Decision, Limit, MetricTrace, Observation, Reason, decide};
pub use memory::{Memory, MetricMemory};
pub use neonvm_api::pod_autoscaler::tuning;
pub use number::Finite;
pub use sample::{Measure, Missing, MissingReason, Observed, PodSample, Reading};
pub use settings::{MetricSettings, Settings};
