//! The agent's decisions about one VM.
//!
//! For: the agent on a node and the simulator. One [`State`] per VM: input is an [`Event`]; output are [`Action`]s, and for
//! every decision a [`Note`] with its causes.
//! Owns: the goal ([`goal`]), the size that follows from it ([`desired`]), and the order in which scheduler, machine and
//! guest are brought there ([`plugin`], [`machine`], [`monitor_peer`]).
//!
//! Five sizes, never mixed: the requested size (`asked`) is `spec.guest.*.use`, the observed size (`now`) is
//! what the status shows, the goal follows from the metrics, the permit comes from the scheduler, and the
//! approved size is the last one that the guest's monitor acknowledged. Only observation changes the observed
//! size. Growing: permit, patch, observation, then the monitor is notified. Shrinking: consent of the monitor, patch,
//! observation, then the scheduler is notified.

pub mod action;
pub mod announced;
mod apply;
mod caution;
pub mod counter;
pub mod desired;
pub mod event;
pub mod evidence;
pub mod goal;
pub mod health;
pub mod informant;
pub mod lfc;
pub mod machine;
pub mod metrics;
pub mod monitor_peer;
pub mod note;
mod paused;
mod plan;
pub mod plugin;
pub mod revision;
pub mod settings;
pub mod state;
pub mod units;
pub mod usage;
pub mod view;
pub mod vm;

pub use action::{Action, ActionSet, Outcome, SchedulerRequest, Warning};
pub use event::{Event, MetricsSource, PatchError, PluginAnswer, Verdict};
pub use metrics::{LfcMetrics, MetricsError, SystemMetrics};
pub use note::Note;
pub use settings::{FailureRate, Settings};
pub use state::State;
pub use view::View;
pub use vm::Vm;
