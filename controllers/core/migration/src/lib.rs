//! Live migration as pure state machines: the phases of the migration object ([`phases`], for the vm-controller), and its two
//! runners: [`Source`] drives, [`Target`] follows.
//!
//! For: vm-controller, runner, simulations of them.
//! May not: read a clock, do I/O. Time is an argument: for the runners a duration since any instant that the caller chooses.
//!
//! Invariant of the runners: a target's guest runs only after its source has given the guest up for good, or after a verdict that
//! the source is gone for good; a source that has given the guest up runs it again only after a verdict that the target is
//! gone for good. A diagram of the states is in `neonvm_types::runner_protocol`.
//!
//! ```
//! use neonvm_core_migration::phases::queue::{Waiting, ordered};
//!
//! let waiting = |name: &str, priority| Waiting {
//!     name: name.into(),
//!     uid: name.into(),
//!     vm: "db".into(),
//!     namespace: "default".into(),
//!     drain: false,
//!     priority,
//!     created: None,
//!     node: "n1".into(),
//!     ready: true,
//! };
//! let order = ordered(vec![waiting("rebalance", 0), waiting("urgent", 10)]);
//! assert_eq!(order[0].name, "urgent", "the higher priority starts first");
//! ```

mod disk_pace;
mod phase;
pub mod phases;
pub mod source;
pub mod target;

pub use disk_pace::DiskPace;
pub use phase::Phase;
pub use source::Source;
pub use target::Target;

/// Why a call cannot be followed now, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);
