//! The marker and the lock of the workload: it starts only with the marker, and only the holder of the lock runs it.
//! Together they close the race between a restart and a shutdown; hooks of images test the lock.

use std::fs::{self, File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// Where both are; the second is for a read-only root.
const PLACES: [&str; 2] = ["/neonvm", "/run/neonvm"];

/// The directory of both files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Marker {
    directory: PathBuf,
}

impl Marker {
    /// Allows the workload to start.
    pub(super) fn allow() -> Self {
        for place in PLACES {
            let marker = Self { directory: Path::new(place).to_owned() };
            if marker.make().is_ok() {
                return marker;
            }
        }
        Self { directory: Path::new("/dev/shm").to_owned() }
    }

    fn make(&self) -> std::io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        File::create(self.allowed())?;
        self.open_lock().map(drop)
    }

    fn open_lock(&self) -> std::io::Result<File> {
        let path = self.directory.join("vmstart.lock");
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o644).open(path)
    }

    fn allowed(&self) -> PathBuf {
        self.directory.join("vmstart.allowed")
    }

    /// Whether the workload may start.
    pub(super) fn is_allowed(&self) -> bool {
        self.allowed().exists()
    }

    pub(super) fn forbid(&self) -> std::io::Result<()> {
        match fs::remove_file(self.allowed()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The lock, if it is free. Held until it is dropped; no child inherits it.
    pub(super) fn lock(&self) -> Option<OwnedFd> {
        let file = self.open_lock().ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(file.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_the_lock_and_the_marker_can_go() {
        let directory = tempfile::tempdir().unwrap();
        let marker = Marker { directory: directory.path().join("neonvm") };
        marker.make().unwrap();
        let held = marker.lock();
        assert!(held.is_some() && marker.lock().is_none());
        drop(held);
        assert!(marker.lock().is_some() && marker.is_allowed());
        marker.forbid().unwrap();
        assert!(!marker.is_allowed() && marker.forbid().is_ok());
    }
}
