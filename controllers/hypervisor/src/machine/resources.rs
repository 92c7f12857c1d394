//! What a machine takes from its parent.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use super::state::Mapped;
use crate::installation::Installation;

/// Descriptors of an interface with [`crate::plan::Backend::Tap`].
#[derive(Debug, Default)]
pub struct TapFiles {
    /// One for each queue of the tap device.
    pub queues: Vec<OwnedFd>,
    /// As many of `/dev/vhost-net`; empty: packets pass through QEMU.
    pub vhosts: Vec<OwnedFd>,
}

/// What a machine takes from its parent.
#[derive(Debug)]
pub struct Resources {
    /// The QEMU to start.
    pub installation: Installation,
    /// For each interface of the plan; for others than taps they are empty, and may be missing at the end.
    pub taps: Vec<TapFiles>,
    /// How long QEMU may take until its monitor answers.
    pub deadline: Duration,
    /// Directory, created if it is missing, for the sockets between QEMU and its owner during a migration: see
    /// [`super::Machine::socket`]. It becomes one that only this user enters. `None`: the VM cannot migrate.
    pub meeting: Option<PathBuf>,
    /// Directory, created if it is missing, for the files of [`super::Machine::store_memory`]. It becomes one that only this user enters; QEMU
    /// reads and writes files there, and makes none. `None`: memory is not stored in files.
    pub store: Option<PathBuf>,
    /// A file there that is the memory that is always there.
    pub mapped: Option<Mapped>,
}

impl Resources {
    /// Without taps and directories, with ten seconds to start.
    #[must_use]
    pub fn new(installation: Installation) -> Self {
        let (taps, deadline) = (Vec::new(), Duration::from_secs(10));
        Self { installation, taps, deadline, meeting: None, store: None, mapped: None }
    }
}
