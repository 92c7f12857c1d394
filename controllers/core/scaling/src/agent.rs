//! The agent's decisions about one VM.
//!
//! For: the agent on a node and the simulator. One [`State`] per VM: input is an [`Event`]; output are [`Action`]s, and for
//! every decision a [`Note`] with its causes.
//! Owns: the goal ([`goal`]), the size that follows from it ([`desired`]), and the order in which scheduler, machine and
//! guest are brought there ([`plugin`], [`machine`], [`monitor_peer`]).
//!
//! Five sizes, never mixed: ASKED is `spec.guest.*.use`, NOW is what the status shows, GOAL is what the metrics want,
//! PERMIT is what the scheduler allows, APPROVED is what the guest's monitor knows. Only observation moves NOW.
//! Growing: permit, patch, NOW, then the monitor is notified. Shrinking: the monitor agrees, patch, NOW, then the scheduler
//! is notified.

pub mod action;
mod apply;
pub mod counter;
pub mod desired;
pub mod event;
pub mod goal;
pub mod health;
pub mod lfc;
pub mod machine;
pub mod metrics;
pub mod monitor_peer;
pub mod note;
mod plan;
pub mod plugin;
pub mod revision;
pub mod settings;
pub mod state;
pub mod units;
pub mod view;
pub mod vm;

pub use action::{Action, ActionSet, Outcome, SchedulerRequest, Warning};
pub use event::{Event, MetricsSource, PatchError, Verdict};
pub use metrics::{LfcMetrics, MetricsError, SystemMetrics};
pub use note::Note;
pub use settings::{FailureRate, Settings};
pub use state::State;
pub use view::View;
pub use vm::Vm;
