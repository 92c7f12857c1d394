//! A discrete-event world around the real cores of scaling and placement.
//!
//! For: `neonsim` and the tests. A [`Scenario`] defines nodes, VMs and their load; a seed determines the faults and
//! their times. The agent's and the scheduler's decisions are made by the same code as in a cluster; its surroundings are
//! simulated: the API server, watches, QEMU, the guest, messages, users.
//! [`run`] has a phase with faults and a calm one without. After every event it checks the [`Invariant`]s of the objects that
//! the event touched, at the end also those of convergence. For that the world keeps its own account, independent of the
//! cores. The same scenario, seed and options always give the same [`Outcome`].
//!
//! No clock, no file, no thread. Time is a number.

mod bug;
pub mod compare;
mod fault;
mod invariant;
mod minimise;
mod options;
mod outcome;
mod queue;
pub mod replay;
mod rng;
mod run;
pub mod scenario;
mod world;

pub use bug::Bug;
pub use fault::{Fault, FaultSet, UnknownFault};
pub use invariant::Invariant;
pub use minimise::minimise;
pub use options::{Options, Record};
pub use outcome::{Broken, NodeSeries, Outcome, Series, Stats, VmSeries};
pub use run::run;
pub use scenario::{Error, Scenario};
