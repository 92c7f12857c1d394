//! Starting programs, their groups, and when they are started again.

pub mod cgroup;
pub mod freezer;
pub mod launch;
pub mod restart;

pub use cgroup::Cgroup;
pub use launch::{Ends, Launch, LaunchError, Output, spawn};
pub use restart::{Backoff, Exit, Next};
