//! A volume of a pod in a root of the pod's own: what is mounted, and where.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use serde::{Deserialize, Serialize};

/// Where a volume, or a part of it, is in a root of the pod's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mount {
    /// Absolute.
    pub(crate) at: PathBuf,
    pub(crate) volume: PathBuf,
    /// The part; empty: all of it.
    pub(crate) sub: PathBuf,
    pub(crate) writable: bool,
    /// What is in it are links of the node.
    pub(crate) has_links: bool,
}

/// What is mounted, open.
#[derive(Debug)]
pub(crate) struct Opened(OwnedFd);

impl Opened {
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

impl Mount {
    /// Opens what is mounted. Within the volume no link leads out of it: the runner may have made it.
    ///
    /// # Errors
    /// If it is not there.
    pub(crate) fn open(&self) -> io::Result<Opened> {
        let volume = rustix::fs::open(&self.volume, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        if self.sub.as_os_str().is_empty() {
            return Ok(Opened(volume));
        }
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        Ok(Opened(openat2(&volume, &self.sub, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), inside)?))
    }

    #[cfg(test)]
    pub(crate) fn of_all(at: &str, volume: PathBuf, writable: bool) -> Self {
        Self { at: at.into(), volume, sub: PathBuf::new(), writable, has_links: false }
    }
}
