//! Bringing processors of this machine online and offline.
//!
//! The pure half (lists, the plan) is in [`list`] and [`plan`]; this file reads and writes below `/sys`.

pub mod list;
pub mod plan;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Why the processors could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file below `/sys` could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A file below `/sys` holds something else than a list of processors.
    #[error("{}: {source}", path.display())]
    List {
        path: PathBuf,
        /// What is wrong with it.
        source: list::Error,
    },
    /// There are not as many processors as requested.
    #[error(transparent)]
    Plan(#[from] plan::Error),
}

/// The processors of a VM, below `/sys/devices/system/cpu` of some root.
#[derive(Clone, Debug)]
pub struct Processors {
    directory: PathBuf,
}

impl Processors {
    /// Those of the guest with its `/` at `root`.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        Self { directory: root.join("sys/devices/system/cpu") }
    }

    /// How many are online.
    ///
    /// # Errors
    /// When `online` cannot be read.
    pub fn online(&self) -> Result<u32, Error> {
        Ok(u32::try_from(self.read("online")?.len()).unwrap_or(u32::MAX))
    }

    /// Makes `wanted` processors online: lowest numbers first, highest off first, never touching number 0.
    ///
    /// # Errors
    /// When there are too few processors, or the kernel refuses one; those before it stay changed.
    pub fn set_online(&self, wanted: u32) -> Result<(), Error> {
        let online = self.read("online")?;
        let mut offline = self.read("offline")?;
        // `offline` counts processors that could be plugged one day; only those present have a switch.
        if self.directory.join("present").exists() {
            let present = self.read("present")?;
            offline.retain(|number| present.contains(number));
        }
        for switch in plan::plan(&online, &offline, wanted)? {
            let path = self.directory.join(format!("cpu{}/online", switch.processor));
            let value = if switch.on { "1" } else { "0" };
            fs::write(&path, value).map_err(|source| Error::Io { path, source })?;
        }
        Ok(())
    }

    fn read(&self, name: &str) -> Result<BTreeSet<u32>, Error> {
        let path = self.directory.join(name);
        let text = fs::read_to_string(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
        list::parse(&text).map_err(|source| Error::List { path, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(online: &str, offline: Option<&str>, switches: u32) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("sys/devices/system/cpu");
        for number in 1..switches {
            fs::create_dir_all(directory.join(format!("cpu{number}"))).unwrap();
        }
        fs::write(directory.join("online"), online).unwrap();
        if let Some(offline) = offline {
            fs::write(directory.join("offline"), offline).unwrap();
        }
        root
    }

    fn switched(root: &tempfile::TempDir) -> Vec<(u32, String)> {
        let file = |n| root.path().join(format!("sys/devices/system/cpu/cpu{n}/online"));
        (0..64).filter_map(|n| Some((n, fs::read_to_string(file(n)).ok()?))).collect()
    }

    #[test]
    fn lowest_come_online_first_and_highest_leave_first() {
        let root = machine("0\n", Some("1-3\n"), 4);
        Processors::below(root.path()).set_online(3).unwrap();
        assert_eq!(switched(&root), [(1, "1".into()), (2, "1".into())]);
        let root = machine("0-3\n", Some("\n"), 4);
        Processors::below(root.path()).set_online(2).unwrap();
        assert_eq!(switched(&root), [(2, "0".into()), (3, "0".into())]);
    }

    #[test]
    fn an_unreadable_offline_list_is_an_error() {
        let root = machine("0\n", None, 4);
        assert!(matches!(Processors::below(root.path()).set_online(2), Err(Error::Io { .. })));
        assert_eq!(switched(&root), []);
    }

    #[test]
    fn processors_that_are_not_present_are_no_candidates() {
        let root = machine("0\n", Some("1-7\n"), 4);
        fs::write(root.path().join("sys/devices/system/cpu/present"), "0,2-3\n").unwrap();
        Processors::below(root.path()).set_online(2).unwrap();
        assert_eq!(switched(&root), [(2, "1".into())]);
        assert!(matches!(Processors::below(root.path()).set_online(4), Err(Error::Plan(_))));
    }

    #[test]
    fn the_number_online_is_counted() {
        assert_eq!(Processors::below(machine("0-2,5\n", None, 4).path()).online().unwrap(), 4);
        assert!(Processors::below(machine("zero\n", None, 4).path()).online().is_err());
    }
}
