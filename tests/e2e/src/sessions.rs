//! Ordinary sessions: random sequences of the commands that people give to VMs, with legal values on and off the grid, and a small
//! model of what must be true after each of them.
//!
//! A session is given by its seed and its limits alone. The model is independent of the product: it knows the documented behaviour
//! and reads VMs as their JSON. A test gives a command line and a client ([`Player`]); so the same sessions run
//! against services with fake guests and against a local cluster with real ones.

mod generate;
mod laws;
mod model;
mod object;
mod play;
mod shape;
mod step;

pub use self::generate::{Limits, Session, fresh_seed};
pub use self::model::{Model, Verdict};
pub use self::play::{Failure, Neonctl, Player};
pub use self::shape::{Range, Shape, Size};
pub use self::step::{Changes, Creation, Restart, Step, Workload};
