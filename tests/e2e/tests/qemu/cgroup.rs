//! The cgroup of a pod, as the kernel shows it.

use std::path::{Path, PathBuf};

use neonvm_test_support::{Missing, Need};

const ROOT: &str = "/sys/fs/cgroup";

/// That pods can be held to an amount of memory here.
///
/// # Errors
/// If there is no such controller.
pub(crate) fn limits_memory() -> Need {
    let of_old = Path::new(ROOT).join("memory/memory.limit_in_bytes").exists();
    let controllers = std::fs::read_to_string(Path::new(ROOT).join("cgroup.controllers")).unwrap_or_default();
    if of_old || controllers.split_whitespace().any(|name| name == "memory") {
        return Ok(());
    }
    Err(Missing::unavailable("no cgroup controller for memory"))
}

/// A cgroup.
pub(crate) struct Group {
    pub(crate) directory: PathBuf,
    unified: bool,
}

impl Group {
    /// The one that a process is in, in the hierarchy with this controller.
    pub(crate) fn from_process(process: i32, controller: &str) -> Self {
        let text = std::fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap();
        let path = |is_it: &dyn Fn(&str) -> bool| {
            let mut lines = text.lines().map(|line| line.splitn(3, ':').collect::<Vec<_>>());
            lines.find(|line| is_it(line[1])).map(|line| line[2].trim_start_matches('/').to_owned())
        };
        let root = Path::new(ROOT);
        match path(&|names| names.split(',').any(|name| name == controller)) {
            Some(path) => Self { directory: root.join(controller).join(path), unified: false },
            None => Self { directory: root.join(path(&str::is_empty).unwrap()), unified: true },
        }
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory.join(name)).unwrap_or_default()
    }

    fn field(&self, file: &str, key: &str) -> Option<u64> {
        let text = self.read(file);
        let mut words = text.lines().filter_map(|line| line.split_once(' '));
        words.find(|(name, _)| *name == key).and_then(|(_, value)| value.trim().parse().ok())
    }

    /// The cgroups in it.
    pub(crate) fn children(&self) -> Vec<Self> {
        let entries = std::fs::read_dir(&self.directory).unwrap().flatten();
        let below = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
        below.map(|directory| Self { directory, unified: self.unified }).collect()
    }

    /// Thousandths of a CPU that it may use; `None`: as many as it likes.
    pub(crate) fn cpu_milli(&self) -> Option<u64> {
        let text = if self.unified { self.read("cpu.max") } else { self.read("cpu.cfs_quota_us") };
        // In a period of 100 ms.
        text.split_whitespace().next()?.parse::<u64>().ok().map(|quota| quota / 100)
    }

    /// Bytes of memory that it may have.
    pub(crate) fn memory_limit(&self) -> Option<u64> {
        let name = if self.unified { "memory.max" } else { "memory.limit_in_bytes" };
        self.read(name).trim().parse().ok()
    }

    /// How often something in it was killed for want of memory.
    pub(crate) fn kills(&self) -> u64 {
        let file = if self.unified { "memory.events" } else { "memory.oom_control" };
        self.field(file, "oom_kill").unwrap()
    }

    /// Bytes that cannot be freed: of the guest and of QEMU.
    pub(crate) fn resident(&self) -> u64 {
        let of = |key: &str| self.field("memory.stat", key).unwrap_or(0);
        if self.unified { of("anon") + of("shmem") } else { of("total_rss") + of("total_shmem") }
    }
}
