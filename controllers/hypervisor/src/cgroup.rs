//! CPU limit of threads, with the `cpu` controller of cgroup v1 or v2 (Linux, Documentation/scheduler/sched-bwc and
//! Documentation/admin-guide/cgroup-v2). Only vCPU threads are limited, so that QEMU's own work stays quick.

mod error;
mod group;
mod hierarchy;

pub use error::CgroupError;
pub use group::{CpuGroup, PERIOD, Throttling};
pub use hierarchy::{DEFAULT_ROOT, Hierarchy};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy for each controller.
    V1,
    /// One hierarchy.
    V2,
}
