//! Control groups (version 2): one for the workload, one a service, one for our own helpers.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Where the hierarchy is mounted.
pub const ROOT: &str = "/sys/fs/cgroup";

/// Whether a group of this name is below the root, or the root itself.
pub(super) fn is_below(name: &str) -> bool {
    Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

/// A group of processes. Without cgroups in the kernel every operation does nothing and returns an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// The group of this name below the root; made if missing.
    pub fn make(name: &str) -> io::Result<Self> {
        Self::make_below(Path::new(ROOT), name)
    }

    /// As [`make`](Self::make); every user may move processes into it, as out of the root group.
    pub fn make_open(name: &str) -> io::Result<Self> {
        if !is_below(name.trim_matches('/')) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let group = Self::make(name.trim_matches('/'))?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        fs::set_permissions(group.door(), mode)?;
        Ok(group)
    }

    /// The group of this name below `root`, which may not exist.
    pub fn below(root: &Path, name: &str) -> Self {
        Self(root.join(name))
    }

    fn make_below(root: &Path, name: &str) -> io::Result<Self> {
        let group = Self::below(root, name);
        fs::create_dir_all(&group.0)?;
        Ok(group)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The number in one of its files. None if there is no such file or no number in it.
    pub fn number(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.0.join(file)).ok()?.trim().parse().ok()
    }

    /// Writes one of its files, which must exist.
    pub fn write(&self, file: &str, text: &str) -> io::Result<()> {
        let mut opened = fs::OpenOptions::new().write(true).truncate(true).open(self.0.join(file))?;
        io::Write::write_all(&mut opened, text.as_bytes())
    }

    /// Freezes or thaws all that is in it.
    pub fn set_frozen(&self, frozen: bool) -> io::Result<()> {
        self.write("cgroup.freeze", if frozen { "1" } else { "0" })
    }

    /// How often it was at `memory.high`. None if that cannot be read.
    pub fn high_events(&self) -> Option<u64> {
        number_of(&fs::read_to_string(self.0.join("memory.events")).ok()?, "high")
    }

    /// The file through which processes enter.
    pub fn door(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }

    /// Kills all that is in it, whatever it does against that.
    pub fn kill(&self) {
        if fs::write(self.0.join("cgroup.kill"), "1").is_ok() {
            return;
        }
        // Kernels before 5.14: one by one, as often as new ones may have been made meanwhile.
        for _ in 0..10 {
            let processes = self.processes();
            if processes.is_empty() {
                return;
            }
            for process in processes {
                signal_process(process, 9);
            }
        }
    }

    /// Sends a signal to each process in it.
    pub fn signal(&self, number: i32) {
        for process in self.processes() {
            signal_process(process, number);
        }
    }

    /// Whether a process is in it or below.
    pub fn is_populated(&self) -> bool {
        let events = fs::read_to_string(self.0.join("cgroup.events")).unwrap_or_default();
        number_of(&events, "populated").unwrap_or_default() > 0
    }

    /// How often the kernel killed something in it for want of memory.
    pub fn memory_kills(&self) -> u64 {
        let events = fs::read_to_string(self.0.join("memory.events")).unwrap_or_default();
        number_of(&events, "oom_kill").unwrap_or_default()
    }

    fn processes(&self) -> Vec<i32> {
        let text = fs::read_to_string(self.door()).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).filter(|process| *process > 1).collect()
    }
}

/// Sends a signal to a process by number; one that is gone is no error.
pub fn signal_process(process: i32, number: i32) {
    if let (Some(process), Some(signal)) =
        (rustix::process::Pid::from_raw(process), crate::system::signal(number))
    {
        let _ = rustix::process::kill_process(process, signal);
    }
}

/// Hands every controller of the root to the groups below, and permits any user to move processes out of the root
/// group: programs in images use separate groups without being root.
pub fn prepare(root: &Path) {
    for controller in
        fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default().split_whitespace()
    {
        // One by one: an unavailable controller must not hold back the others.
        let _ = fs::write(root.join("cgroup.subtree_control"), format!("+{controller}"));
    }
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    let _ = fs::set_permissions(root.join("cgroup.procs"), mode);
}

fn number_of(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_by_their_whole_name() {
        let directory = tempfile::tempdir().unwrap();
        let group = Cgroup::make_below(directory.path(), "workload").unwrap();
        assert_eq!((group.memory_kills(), group.is_populated()), (0, false));
        let events = "low 0\noom 4\noom_kill 2\noom_group_kill 1\n";
        fs::write(directory.path().join("workload/memory.events"), events).unwrap();
        fs::write(directory.path().join("workload/cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        assert_eq!((group.memory_kills(), group.is_populated()), (2, true));
    }
}
