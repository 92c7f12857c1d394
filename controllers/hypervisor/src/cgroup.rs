//! CPU limit of threads, with the `cpu` controller of cgroup v1 or v2 (Linux, Documentation/scheduler/sched-bwc and
//! Documentation/admin-guide/cgroup-v2). Only vCPU threads are limited, so that QEMU's own work stays quick.

mod error;
mod group;
mod hierarchy;

pub use error::CgroupError;
pub use group::{CpuGroup, Files, PERIOD, Throttling};
pub use hierarchy::{DEFAULT_ROOT, Hierarchy};
pub use neonvm_types::node_protocol::CgroupVersion as Version;
