//! The cgroup of a pod in the hierarchy with the CPU controller: version 1, or the unified one.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long killed processes may take to end: they may have much memory to give back.
pub(crate) const KILLED: Duration = Duration::from_secs(30);

/// The hierarchy with the CPU controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    root: PathBuf,
    unified: bool,
}

impl Hierarchy {
    /// The hierarchy of this machine, if there is one.
    pub(crate) fn find() -> Option<Self> {
        Self::below(Path::new("/sys/fs/cgroup"))
    }

    fn below(root: &Path) -> Option<Self> {
        if let Ok(controllers) = fs::read_to_string(root.join("cgroup.controllers")) {
            let unified = controllers.split_whitespace().any(|name| name == "cpu");
            return unified.then(|| Self { root: root.to_path_buf(), unified });
        }
        ["cpu", "cpu,cpuacct"]
            .iter()
            .map(|name| root.join(name))
            .find(|path| path.join("cpu.shares").exists())
            .map(|root| Self { root, unified: false })
    }

    /// Makes a cgroup, and what is above it.
    pub(crate) fn create(&self, path: &str) -> io::Result<()> {
        let mut current = self.root.clone();
        for part in path.split('/') {
            if self.unified {
                // A controller works in a cgroup only if all above hand it down.
                fs::write(current.join("cgroup.subtree_control"), "+cpu")?;
            }
            current.push(part);
            match fs::create_dir(&current) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// What a process writes to in order to join.
    pub(crate) fn entrance(&self, path: &str) -> io::Result<OwnedFd> {
        Ok(fs::OpenOptions::new().write(true).open(self.root.join(path).join("cgroup.procs"))?.into())
    }

    /// Kills what is in a cgroup and below.
    pub(crate) fn kill(&self, path: &str) {
        let top = self.root.join(path);
        for group in tree(&top) {
            for pid in members(&group) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    /// Kills what is in a cgroup and below, and removes it. Blocks.
    pub(crate) fn remove(&self, path: &str) -> io::Result<()> {
        let top = self.root.join(path);
        let deadline = Instant::now() + KILLED;
        loop {
            if !top.exists() {
                return Ok(());
            }
            self.kill(path);
            // The deepest come last in the list.
            let failed = tree(&top).iter().rev().find_map(|group| match fs::remove_dir(group) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Some(error),
                _ => None,
            });
            match failed {
                None => return Ok(()),
                Some(error) if Instant::now() > deadline => return Err(error),
                Some(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Names of the cgroups in one.
    pub(crate) fn children(&self, path: &str) -> Vec<String> {
        let all = subdirectories(&self.root.join(path));
        all.iter().filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect()
    }

    /// Nanoseconds of CPU that a cgroup has used, if it can be told.
    pub(crate) fn cpu_nanos(&self, path: &str) -> Option<u64> {
        let group = self.root.join(path);
        if let Ok(text) = fs::read_to_string(group.join("cpuacct.usage")) {
            return text.trim().parse().ok();
        }
        let text = fs::read_to_string(group.join("cpu.stat")).ok()?;
        let micros = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        micros.parse::<u64>().ok()?.checked_mul(1000)
    }

    /// Processes in a cgroup and below.
    pub(crate) fn processes(&self, path: &str) -> Vec<i32> {
        let all = tree(&self.root.join(path));
        all.iter().flat_map(|group| members(group)).map(|pid| pid.as_raw_nonzero().get()).collect()
    }
}

fn members(group: &Path) -> Vec<Pid> {
    // Threaded cgroups list threads only; their processes are listed further up.
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)).collect()
}

fn subdirectories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// A directory and all below it, parents first.
fn tree(top: &Path) -> Vec<PathBuf> {
    let mut all = vec![top.to_path_buf()];
    let mut next = 0;
    while let Some(current) = all.get(next) {
        let below = subdirectories(current);
        all.extend(below);
        next += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        assert_eq!(Hierarchy::below(root), None);
        fs::create_dir(root.join("cpu")).unwrap();
        fs::write(root.join("cpu/cpu.shares"), "1024").unwrap();
        let old = Hierarchy::below(root).unwrap();
        assert!(!old.unified);
        old.create("a/b").unwrap();
        old.create("a/b").unwrap();
        assert_eq!(old.children("a"), ["b"]);
        old.remove("a").unwrap();
        assert!(!root.join("cpu/a").exists());
        fs::write(root.join("cgroup.controllers"), "memory cpu").unwrap();
        assert!(Hierarchy::below(root).unwrap().unified);
        fs::write(root.join("cgroup.controllers"), "memory").unwrap();
        assert_eq!(Hierarchy::below(root), None);
    }
}
