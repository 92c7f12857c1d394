//! The cgroup of a pod in the hierarchies with the controllers of CPU, memory and processes: of version 1, or the unified one.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use neonvm_core_kubelet::size::Limits;

/// How long killed processes may take to end: they may have much memory to give back.
pub(crate) const KILLED: Duration = Duration::from_secs(30);

/// Microseconds in which a limited cgroup may use its quota of CPU.
const PERIOD: u64 = 100_000;

/// Most processes and threads of a pod. A QEMU has some hundred, with those of a migration; a clean installation of Kubernetes sets no
/// limit, and 4096 is a common `podPidsLimit`.
const MOST_PROCESSES: u32 = 4096;

/// The hierarchies with the controllers of CPU, memory and processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    root: PathBuf,
    /// Version 1 only, where it is a separate hierarchy.
    memory: Option<PathBuf>,
    /// Version 1 only, likewise.
    pids: Option<PathBuf>,
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
            return unified.then(|| Self { root: root.to_path_buf(), memory: None, pids: None, unified });
        }
        ["cpu", "cpu,cpuacct"]
            .iter()
            .map(|name| root.join(name))
            .find(|path| path.join("cpu.shares").exists())
            .map(|cpu| {
                let memory = root.join("memory");
                let memory = memory.join("memory.limit_in_bytes").exists().then_some(memory);
                // The topmost cgroup has no limit of processes, and no file for one.
                let pids = root.join("pids");
                let pids = pids.join("cgroup.procs").exists().then_some(pids);
                Self { root: cpu, memory, pids, unified: false }
            })
    }

    fn roots(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.root).chain(&self.memory).chain(&self.pids)
    }

    /// Makes a cgroup, and what is above it.
    pub(crate) fn create(&self, path: &str) -> io::Result<()> {
        for root in self.roots() {
            let mut current = root.clone();
            for part in path.split('/') {
                if self.unified {
                    // A controller works in a cgroup only if all above hand it down.
                    fs::write(current.join("cgroup.subtree_control"), "+cpu")?;
                    // Where there is no such controller, nothing is limited by it.
                    for controller in ["+memory", "+pids"] {
                        let _ = fs::write(current.join("cgroup.subtree_control"), controller);
                    }
                }
                current.push(part);
                match fs::create_dir(&current) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Limits the processes and threads of a cgroup, where the host has the controller: before the first one joins.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn limit_processes(&self, path: &str) -> io::Result<()> {
        let group = self.pids.as_ref().unwrap_or(&self.root).join(path);
        put(&group, "pids.max", &MOST_PROCESSES.to_string())
    }

    /// What a process writes to in order to join: one descriptor for each hierarchy.
    pub(crate) fn entrances(&self, path: &str) -> io::Result<Vec<OwnedFd>> {
        let open = |root: &PathBuf| -> io::Result<OwnedFd> {
            Ok(fs::OpenOptions::new().write(true).open(root.join(path).join("cgroup.procs"))?.into())
        };
        self.roots().map(open).collect()
    }

    /// Holds a cgroup to its limits; what the host has no controller for is left out. Memory may take long: the kernel frees
    /// some first.
    ///
    /// # Errors
    /// If the kernel refuses, or the processes use more memory than they may from now on.
    pub(crate) fn set(&self, path: &str, limits: &Limits) -> io::Result<()> {
        // The shares of version 1, as container runtimes compute them.
        let shares = (limits.cpu_request_milli.saturating_mul(1024) / 1000).clamp(2, 262_144);
        let quota = limits.cpu_milli.map(|milli| (milli.saturating_mul(PERIOD) / 1000).max(1000));
        let group = self.root.join(path);
        if self.unified {
            let weight = 1 + (shares - 2) * 9999 / 262_142;
            put(&group, "cpu.weight", &weight.to_string())?;
            let quota = quota.map_or_else(|| "max".to_owned(), |quota| quota.to_string());
            put(&group, "cpu.max", &format!("{quota} {PERIOD}"))?;
            if let (Some(most), Some(used)) = (limits.memory, working_set(&group))
                && used > most
            {
                let why = format!("attempting to set pod memory limit ({most}) below current usage ({used})");
                return Err(io::Error::other(why));
            }
            let most = limits.memory.map_or_else(|| "max".to_owned(), |most| most.to_string());
            return put(&group, "memory.max", &most);
        }
        put(&group, "cpu.shares", &shares.to_string())?;
        put(&group, "cpu.cfs_period_us", &PERIOD.to_string())?;
        put(&group, "cpu.cfs_quota_us", &quota.map_or_else(|| "-1".to_owned(), |quota| quota.to_string()))?;
        let Some(memory) = &self.memory else { return Ok(()) };
        let most = limits.memory.map_or_else(|| "-1".to_owned(), |most| most.to_string());
        put(&memory.join(path), "memory.limit_in_bytes", &most)
    }

    /// Kills what is in a cgroup and below.
    pub(crate) fn kill(&self, path: &str) {
        for group in self.roots().flat_map(|root| tree(&root.join(path))) {
            for pid in members(&group) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    /// Kills what is in a cgroup and below, and removes it. Blocks.
    pub(crate) fn remove(&self, path: &str) -> io::Result<()> {
        let tops: Vec<PathBuf> = self.roots().map(|root| root.join(path)).collect();
        let deadline = Instant::now() + KILLED;
        loop {
            if !tops.iter().any(|top| top.exists()) {
                return Ok(());
            }
            self.kill(path);
            // The deepest come last in the list.
            let groups: Vec<PathBuf> = tops.iter().flat_map(|top| tree(top)).collect();
            let failed = groups.iter().rev().find_map(|group| match fs::remove_dir(group) {
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

    pub(crate) fn children(&self, path: &str) -> Vec<String> {
        let all = subdirectories(&self.root.join(path));
        all.iter().filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect()
    }
}

/// Writes a setting of a cgroup, unless its controller is not there.
fn put(group: &Path, file: &str, value: &str) -> io::Result<()> {
    let path = group.join(file);
    if !path.exists() {
        return Ok(());
    }
    fs::write(&path, value).map_err(|error| {
        io::Error::new(error.kind(), format!("{value:?} cannot be written to {}: {error}", path.display()))
    })
}

/// Bytes of memory that cannot be freed at once.
fn working_set(group: &Path) -> Option<u64> {
    let current: u64 = fs::read_to_string(group.join("memory.current")).ok()?.trim().parse().ok()?;
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let cached = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.trim().parse().ok());
    Some(current.saturating_sub(cached.unwrap_or(0)))
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
    fn hierarchies_are_distinguished() {
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

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn limits_are_written_in_both_versions() {
        let half = Limits { cpu_request_milli: 250, cpu_milli: Some(500), memory: Some(64 << 20) };
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for (place, files) in [
            ("cpu", &["cpu.shares"][..]),
            ("cpu/a", &["cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us"]),
            ("memory", &["memory.limit_in_bytes"]),
            ("memory/a", &["memory.limit_in_bytes"]),
            ("pids", &["cgroup.procs"]),
            ("pids/a", &["pids.max"]),
        ] {
            fs::create_dir_all(root.join(place)).unwrap();
            files.iter().for_each(|file| fs::write(root.join(place).join(file), "").unwrap());
        }
        let old = Hierarchy::below(root).unwrap();
        old.limit_processes("a").unwrap();
        old.set("a", &half).unwrap();
        assert_eq!(read(&root.join("cpu/a/cpu.shares")), "256");
        assert_eq!(read(&root.join("cpu/a/cpu.cfs_quota_us")), "50000");
        assert_eq!(read(&root.join("memory/a/memory.limit_in_bytes")), "67108864");
        assert_eq!(read(&root.join("pids/a/pids.max")), "4096");
        old.set("a", &Limits::default()).unwrap();
        assert_eq!(read(&root.join("cpu/a/cpu.shares")), "2");
        assert_eq!(read(&root.join("cpu/a/cpu.cfs_quota_us")), "-1");
        assert_eq!(read(&root.join("memory/a/memory.limit_in_bytes")), "-1");

        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::write(root.join("cgroup.controllers"), "memory cpu").unwrap();
        fs::create_dir(root.join("a")).unwrap();
        for file in ["cpu.weight", "cpu.max", "memory.max", "pids.max"] {
            fs::write(root.join("a").join(file), "").unwrap();
        }
        let new = Hierarchy::below(root).unwrap();
        new.limit_processes("a").unwrap();
        new.set("a", &half).unwrap();
        assert_eq!(read(&root.join("a/cpu.weight")), "10");
        assert_eq!(read(&root.join("a/cpu.max")), "50000 100000");
        assert_eq!(read(&root.join("a/memory.max")), "67108864");
        assert_eq!(read(&root.join("a/pids.max")), "4096");
        fs::write(root.join("a/memory.current"), "80000000\n").unwrap();
        fs::write(root.join("a/memory.stat"), "anon 1\ninactive_file 10000000\n").unwrap();
        let refused = new.set("a", &half).unwrap_err().to_string();
        assert_eq!(refused, "attempting to set pod memory limit (67108864) below current usage (70000000)");
        new.set("a", &Limits::default()).unwrap();
        assert_eq!(
            (read(&root.join("a/cpu.max")), read(&root.join("a/memory.max"))),
            ("max 100000".into(), "max".into())
        );
    }
}
