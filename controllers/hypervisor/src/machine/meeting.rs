//! The directory of the sockets by which QEMU and its owner exchange a VM's memory during a migration, and that of the files with the memory
//! of a suspended one. QEMU can open nothing by name, so it inherits the directory; paths through `/proc/self/fd` are short and need no right
//! to any directory above.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::Machine;

/// The directory as both sides see it.
#[derive(Debug)]
pub(super) struct Meeting {
    ours: File,
    /// Number of the descriptor in QEMU.
    theirs: i32,
}

impl Meeting {
    /// Makes the directory. Also returns the descriptor for QEMU.
    pub(super) fn open(path: &Path) -> io::Result<(Self, OwnedFd)> {
        std::fs::create_dir_all(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
        let (ours, theirs) = (File::open(path)?, OwnedFd::from(File::open(path)?));
        Ok((Self { ours, theirs: theirs.as_raw_fd() }, theirs))
    }

    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        self.ours.as_fd()
    }

    /// Path of a file in it, for QEMU.
    pub(super) fn path_of_qemu(&self, name: &str) -> String {
        format!("/proc/self/fd/{}/{name}", self.theirs)
    }
}

impl Machine {
    /// Path of a socket in the directory [`super::Resources::meeting`], for this process; `None` if there is no directory.
    #[must_use]
    pub fn socket(&self, name: &str) -> Option<PathBuf> {
        let meeting = self.meeting.as_ref()?;
        Some(PathBuf::from(format!("/proc/self/fd/{}/{name}", meeting.ours.as_raw_fd())))
    }

    pub(super) fn socket_of_qemu(&self, name: &str) -> Option<String> {
        self.meeting.as_ref().map(|meeting| meeting.path_of_qemu(name))
    }
}
