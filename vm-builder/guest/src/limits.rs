//! Limits of the guest's kernel and of what init starts.
//!
//! Linux derives limits from the memory that is there at boot, and a VM boots with its smallest size. [`derived`] has the same
//! limits for any size; init sets those of the VM's maximum. [`DEFAULTS`] and [`rlimits`] are what container engines give. Values
//! are only raised, and what the VM's settings name is left to them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::process::Cgroup;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const PAGE: u64 = 4 * KIB;
/// Memory for which Linux allows one task: its stacks take an eighth of memory.
const TASK: u64 = 128 * KIB;
/// Memory for which the workload may have one task.
const TASK_OF_WORKLOAD: u64 = 192 * KIB;
/// Most open files of a process: what container engines give, and Linux' `fs.nr_open`.
const OPEN_FILES: u64 = 1 << 20;
/// Groups whose tasks are limited, so that the others have room.
const BOUNDED: [&str; 3] = ["workload", "services", SESSIONS];
/// Group of what people run by SSH and on the console.
pub const SESSIONS: &str = "sessions";
/// Group of the guest program's own processes.
const SYSTEM: &str = "system";
/// Score by which the kernel spares a process when memory is short, as long as there are others.
const SPARED: &[u8] = b"-900";
const SCORE: &std::ffi::CStr = c"/proc/self/oom_score_adj";

/// A kernel parameter below `/proc/sys`, with the least that each of its numbers is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub name: &'static str,
    pub least: Vec<u64>,
}

/// Parameters that do not depend on memory: what a container sees on a host with systemd. Name and value.
pub const DEFAULTS: [(&str, &str); 4] = [
    ("net/ipv4/ip_unprivileged_port_start", "0"),
    ("net/ipv4/ping_group_range", "0\t2147483647"),
    ("kernel/pid_max", "4194304"),
    ("fs/file-max", "9223372036854775807"),
];

/// What Linux derives from this much memory, in bytes, at boot. The divisors are those of its initialisation.
pub fn derived(memory: u64) -> Vec<Parameter> {
    let tasks = tasks(memory);
    let pages = memory / PAGE;
    let watches = |cost: u64| (memory / 100 / cost).clamp(8_192, 1 << 20);
    let three = |pages: u64| vec![pages / 4 * 3, pages, pages / 4 * 6];
    // One slot for 128 KiB, a power of two, at most 512 Ki.
    let slots = (memory / TASK).max(1).checked_next_power_of_two().unwrap_or(1 << 19).min(1 << 19);
    let buckets = match memory {
        0..=GIB => (memory / 16_384 / 8).max(1_024),
        _ if memory <= 4 * GIB => 65_536,
        _ => 262_144,
    };
    // The least and the default of a socket's buffer are not derived.
    let buffer = |most: u64| vec![0, 0, (memory / 128).min(most)];
    let one = |name, least: u64| Parameter { name, least: vec![least] };
    let list = |name, least: Vec<u64>| Parameter { name, least };
    let mut all = vec![
        one("kernel/threads-max", tasks),
        list("net/ipv4/tcp_mem", three((pages / 16).max(128))),
        list("net/ipv4/udp_mem", three((pages / 8).max(128))),
        list("net/ipv4/tcp_rmem", buffer(6 * MIB)),
        list("net/ipv4/tcp_wmem", buffer(4 * MIB)),
        one("net/ipv4/tcp_max_orphans", slots / 2),
        one("net/ipv4/tcp_max_tw_buckets", slots / 2),
        one("net/ipv4/tcp_max_syn_backlog", (slots / 128).max(128)),
        one("net/ipv4/inet_peer_threshold", (memory / 100 / 192).clamp(4_096, 65_664)),
        one("net/netfilter/nf_conntrack_buckets", buckets),
        one("net/netfilter/nf_conntrack_max", buckets),
        list("net/sctp/sctp_mem", three((pages / 8).max(128))),
        one("fs/inotify/max_user_watches", watches(1_312)),
        one("fs/inotify/max_user_instances", (memory / (8 * MIB)).clamp(128, 8_192)),
        one("fs/fanotify/max_user_marks", watches(1_232)),
        one("fs/epoll/max_user_watches", memory / 25 / 184),
    ];
    all.extend(NAMESPACES.map(|name| one(name, tasks / 2)));
    all
}

/// Limits of namespaces: half of the tasks.
const NAMESPACES: [&str; 8] = [
    "user/max_cgroup_namespaces",
    "user/max_ipc_namespaces",
    "user/max_mnt_namespaces",
    "user/max_net_namespaces",
    "user/max_pid_namespaces",
    "user/max_time_namespaces",
    "user/max_user_namespaces",
    "user/max_uts_namespaces",
];

/// Tasks that Linux allows with this much memory.
pub fn tasks(memory: u64) -> u64 {
    (memory / TASK).clamp(64, 4_194_304)
}

/// Tasks that the workload may have with this much memory. A process that does nothing takes some 120 KiB of the kernel, so that a
/// workload which forks without end meets its limit while a third of memory is left, instead of making the kernel kill processes.
pub fn tasks_of_workload(memory: u64) -> u64 {
    (memory / TASK_OF_WORKLOAD).clamp(48, 4_000_000)
}

/// Limits of each process that init starts: resource, soft and hard limit; `None`: none.
pub fn rlimits(memory: u64) -> [(Resource, Option<u64>); 4] {
    [
        (Resource::Nofile, Some(OPEN_FILES)),
        (Resource::Nproc, None),
        (Resource::Sigpending, Some(tasks(memory) / 2)),
        (Resource::Core, None),
    ]
}

/// Size and number of files of a file system in memory: half of the memory, half of its pages.
pub fn tmpfs_options(memory: u64) -> String {
    format!("size={},nr_inodes={}", memory / 2, (memory / PAGE / 2).max(1_024))
}

#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// The most memory that it can have, in bytes.
    memory: u64,
    chosen: BTreeSet<PathBuf>,
    groups: Vec<String>,
}

impl Limits {
    /// For a VM of at most this much memory, in bytes, or of the memory that is there; the parameters are those of its settings.
    pub fn new(maximum: Option<u64>, chosen: BTreeSet<PathBuf>) -> Self {
        let there = memory_at_boot(&fs::read_to_string("/proc/meminfo").unwrap_or_default()).unwrap_or(0);
        Self { memory: maximum.unwrap_or(0).max(there), chosen, groups: Vec::new() }
    }

    /// The most memory that the VM can have, in bytes.
    pub const fn memory(&self) -> u64 {
        self.memory
    }

    /// Sets everything, before the VM's own settings. Returns what failed.
    pub fn set(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let root = Path::new("/proc/sys");
        for (name, value) in DEFAULTS {
            if !self.is_chosen(name) && root.join(name).exists() {
                note(&mut problems, name, fs::write(root.join(name), value));
            }
        }
        problems.extend(self.raise(root));
        for path in ["/dev/shm", "/run", "/dev"] {
            let sized = crate::mount::base::size_tmpfs(path, &tmpfs_options(self.memory));
            note(&mut problems, &format!("size of {path}"), sized);
        }
        self.bound_tasks();
        // On a kernel without these controllers it is not spared.
        if let Ok(group) = Cgroup::make(SYSTEM) {
            let memory = (self.memory / 16).clamp(8 * MIB, 32 * MIB).to_string();
            let _ = group.write("memory.min", &memory);
            let _ = group.write("cpu.weight", "1000");
        }
        problems
    }

    /// Raises what the kernel has derived from less memory, below this directory. Also for parameters of modules that came later.
    pub fn raise(&self, root: &Path) -> Vec<String> {
        let mut problems = Vec::new();
        for Parameter { name, least } in derived(self.memory) {
            let path = root.join(name);
            let Ok(text) = fs::read_to_string(&path) else { continue };
            if self.is_chosen(name) {
                continue;
            }
            if let Some(value) = raised(&text, &least) {
                note(&mut problems, name, fs::write(path, value));
            }
        }
        problems
    }

    /// Limits the tasks of a group that the workload uses besides its own.
    pub fn bound(&mut self, group: &str) {
        self.groups.push(group.trim_matches('/').to_owned());
        self.bound_tasks();
    }

    /// Limits the tasks of all groups but the guest program's own by the memory that the VM has now.
    pub fn bound_tasks(&self) {
        let most = tasks_of_workload(memory_now().unwrap_or(self.memory).min(self.memory)).to_string();
        for name in BOUNDED.into_iter().chain(self.groups.iter().map(String::as_str)) {
            if let Ok(group) = Cgroup::make(name) {
                let _ = group.write("pids.max", &most);
            }
        }
    }

    fn is_chosen(&self, name: &str) -> bool {
        self.chosen.contains(&Path::new("/proc/sys").join(name))
    }
}

fn note(problems: &mut Vec<String>, what: &str, result: io::Result<()>) {
    if let Err(error) = result {
        problems.push(format!("{what}: {error}"));
    }
}

/// The text that raises numbers to at least these; none if all are as large, or are no numbers.
fn raised(text: &str, least: &[u64]) -> Option<String> {
    let now: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    if now.len() != least.len() || now.iter().zip(least).all(|(now, least)| now >= least) {
        return None;
    }
    let words: Vec<String> = now.iter().zip(least).map(|(now, least)| now.max(least).to_string()).collect();
    Some(words.join(" "))
}

fn memory_at_boot(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(KIB)
}

/// The memory that is there, in bytes, by its blocks: exact to one, 128 MiB on most machines. None without memory hot-plug.
fn memory_now() -> Option<u64> {
    let directory = Path::new("/sys/devices/system/memory");
    let size = fs::read_to_string(directory.join("block_size_bytes")).ok()?;
    let size = u64::from_str_radix(size.trim().trim_start_matches("0x"), 16).ok()?;
    let is_block = |name: &str| name.strip_prefix("memory").is_some_and(|n| n.parse::<u32>().is_ok());
    let entries = fs::read_dir(directory).ok()?.flatten();
    let blocks = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_block)).count();
    size.checked_mul(u64::try_from(blocks).ok()?)
}

/// Gives this process the limits; only system calls, for the time between fork and exec. Without the right to raise a hard limit
/// the soft one becomes as large as it can.
pub fn take(limits: &[(Resource, Option<u64>)]) {
    for (resource, limit) in limits {
        if setrlimit(*resource, Rlimit { current: *limit, maximum: *limit }).is_err() {
            let maximum = getrlimit(*resource).maximum;
            let _ = setrlimit(*resource, Rlimit { current: maximum, maximum });
        }
    }
}

/// Has the kernel spare this process when memory is short; only system calls. A kernel that refuses does not spare it.
pub fn spare() {
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(SCORE, flags, rustix::fs::Mode::empty()) {
        let _ = rustix::io::write(file, SPARED);
    }
}

/// Makes this process one of those that people run: in their group, and no longer spared when memory is short.
pub fn join_sessions() {
    let _ = fs::write("/proc/self/oom_score_adj", "0");
    // Where init made it: the program is also run elsewhere, by tests.
    let _ = Cgroup::below(Path::new(crate::process::cgroup::ROOT), SESSIONS).write("cgroup.procs", "0");
}

#[cfg(test)]
mod tests;
