//! The life of a virtual machine as pure functions.
//!
//! For: the vm-controller, and simulations of it; the runner.
//! Owns: the phase machine ([`step()`]), the plan of the runner pod ([`pod::plan`]), the life of a guest's TLS certificate ([`tls::step`]), what
//! the runner of one VM decides ([`runner::Core`]).
//! May not: read a clock, draw random numbers, talk to anything. Time and a random suffix for names are arguments.
//!
//! ```text
//!            podName written, then pod made         guest ready
//!    "" ──────────────► Pending ─────────────────────────────► Running ⇄ Scaling
//!                         ▲                                       │ pod ended or is gone (also while PreMigrating, Migrating)
//!                         │ restart policy, back-off              ▼
//!                         └──────────────────────────── Succeeded / Failed
//! ```
//!
//! Laws, each a property test: at most one live pod for a VM, whatever was observed late and wherever the
//! controller died; the same observation twice gives no action and the same status; restarts are only counted up.

pub mod claims;
pub mod condition;
pub mod crash_loop;
pub mod disruption;
pub mod growth;
pub mod guest_location;
mod observed;
mod outcome;
pub mod pod;
mod pod_size;
pub mod runner;
mod settings;
mod step;
pub mod tls;
pub mod unstable;

pub use observed::{
    AddressView, DiskRequested, Failure, FailureReason, LimitsRequested, Mover, Moving, NodePolicy, Observed,
    Obstacle, PodView, Resize, ResizeDenial, ResizeRefused, RunnerView, SizeUnanswered, time,
};
pub use outcome::{Action, Note, NoteReason, Outcome};
pub use settings::{GrowthSettings, MigrationSettings, RootDiskFrom, Settings};
pub use step::{deserves_link, owned_pod, step};
