//! Talking to the guest: its daemon, its reports, files kept in step.

pub(crate) mod daemon;
pub(crate) mod disks;
pub(crate) mod files;
pub(crate) mod report;
pub(crate) mod usage;
