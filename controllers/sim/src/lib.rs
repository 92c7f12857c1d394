//! A discrete-event world around the real cores of scaling and placement.
//!
//! For: `neonctl simulate` and the tests. A [`Scenario`] says which nodes and VMs there are and what is asked of them; a
//! seed says what goes wrong and when. The agent's and the scheduler's decisions are made by the very code that runs in a
//! cluster; only what surrounds it is imitated: the API server, watches, QEMU, the guest, messages, people.
//! [`run`] goes through a storm, in which faults happen, and a calm, in which none do. After every event it checks the
//! [`Invariant`]s on what the event touched, at the end also those that say that everything comes to rest. The world keeps
//! its own books for that, apart from the cores'. The same scenario, seed and options always give the same [`Outcome`].
//!
//! No clock, no file, no thread. Time is a number.

mod bug;
mod fault;
mod invariant;
mod minimise;
mod options;
mod outcome;
mod queue;
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
