//! A process that is remembered on disk, distinguished from a later one with the same number by its start time.

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// Its start, in clock ticks since boot.
    ticks: u64,
    /// The boot that they count from.
    boot: String,
    /// When it was started, RFC 3339.
    pub(crate) since: jiff::Timestamp,
}

impl Process {
    pub(crate) fn from_pid(pid: u32) -> Option<Self> {
        let pid = i32::try_from(pid).ok()?;
        Some(Self { pid, ticks: ticks(pid)?, boot: boot(), since: jiff::Timestamp::now() })
    }

    /// Whether it still runs; a zombie does not.
    pub(crate) fn is_alive(&self) -> bool {
        self.boot == boot() && ticks(self.pid) == Some(self.ticks)
    }

    pub(crate) fn beside(&self, pid: i32, ticks: u64) -> Self {
        Self { pid, ticks, ..self.clone() }
    }

    /// Whether nothing of it is left. Of a process that was killed a thread may outlive the first one for a moment, with all ports
    /// and files.
    pub(crate) fn is_gone(&self) -> bool {
        let own = |process: &Stat| process.ticks == self.ticks;
        if self.boot != boot() || !stat(&format!("/proc/{}/stat", self.pid)).is_some_and(|stat| own(&stat)) {
            return true;
        }
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        let mut states = threads.filter_map(|thread| stat(&thread.path().join("stat").display().to_string()));
        states.all(|thread| thread.has_ended)
    }

    /// Sends a signal, if it is still that process.
    pub(crate) fn signal(&self, signal: Signal) {
        if let (true, Some(pid)) = (self.is_alive(), Pid::from_raw(self.pid)) {
            // Gone in between is what was wanted.
            let _ = kill_process(pid, signal);
        }
    }
}

fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The fields in `/proc` of a process or thread (`proc_pid_stat(5)`).
struct Stat {
    has_ended: bool,
    ticks: u64,
}

/// Fields 3 and 22. The second field is a name in brackets that may hold anything.
fn stat(path: &str) -> Option<Stat> {
    let stat = std::fs::read_to_string(path).ok()?;
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X");
    Some(Stat { has_ended, ticks: fields.nth(18)?.parse().ok()? })
}

/// The start of a process that is no zombie.
fn ticks(pid: i32) -> Option<u64> {
    stat(&format!("/proc/{pid}/stat")).filter(|stat| !stat.has_ended).map(|stat| stat.ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_with_the_same_number_is_not_it() {
        let own = Process::from_pid(std::process::id()).unwrap();
        assert!(own.is_alive() && !own.is_gone());
        assert!(own.beside(own.pid, own.ticks + 1).is_gone());
        assert!(!Process { ticks: own.ticks + 1, ..own.clone() }.is_alive());
        assert!(!Process { boot: "another".into(), ..own }.is_alive());
    }

    #[test]
    fn a_zombie_is_gone() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let process = Process::from_pid(child.id()).unwrap();
        assert!(!process.is_gone());
        child.kill().unwrap();
        // Not reaped yet.
        while !process.is_gone() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(!process.is_alive());
        child.wait().unwrap();
        assert!(process.is_gone());
    }
}
