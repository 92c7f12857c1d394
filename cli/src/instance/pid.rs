//! A process that is remembered on disk, told apart from a later one with the same number by its start time.

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

/// A process of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    /// Its number.
    pub(crate) pid: i32,
    /// Its start, in clock ticks since boot.
    ticks: u64,
    /// The boot that they count from.
    boot: String,
    /// When it was started, RFC 3339.
    pub(crate) since: jiff::Timestamp,
}

impl Process {
    /// A process that runs now.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let pid = i32::try_from(pid).ok()?;
        Some(Self { pid, ticks: ticks(pid)?, boot: boot(), since: jiff::Timestamp::now() })
    }

    /// Whether it still runs; a zombie does not.
    pub(crate) fn is_alive(&self) -> bool {
        self.boot == boot() && ticks(self.pid) == Some(self.ticks)
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

/// Field 22 of `/proc/<pid>/stat`; none for a zombie. The second field is a name in brackets that may hold anything.
fn ticks(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") { None } else { fields.nth(18)?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_with_the_same_number_is_not_it() {
        let own = Process::of(std::process::id()).unwrap();
        assert!(own.is_alive());
        assert!(!Process { ticks: own.ticks + 1, ..own.clone() }.is_alive());
        assert!(!Process { boot: "another".into(), ..own }.is_alive());
    }
}
