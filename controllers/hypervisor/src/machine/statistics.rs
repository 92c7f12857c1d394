//! What a machine uses of its host.

use std::fs;
use std::io;
use std::time::Duration;

use neonvm_types::Bytes;

use super::Machine;

/// What a machine uses of its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Memory of QEMU's process that is in RAM.
    pub resident: Bytes,
    /// Time that threads given to [`Machine::usage`] have run, those of vCPUs for instance.
    pub threads: Duration,
    /// Time that all threads of the process have run that still exist.
    pub process: Duration,
}

/// Nanoseconds on a CPU, the first word (Linux, Documentation/scheduler/sched-stats).
fn run_time(text: &str) -> Option<Duration> {
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// Resident memory, `VmRSS` in kibibytes (proc_pid_status(5)).
fn resident(text: &str) -> Option<Bytes> {
    let value = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(Bytes::new(kibibytes.saturating_mul(1024)))
}

impl Machine {
    /// What the machine uses; threads that have ended count nothing.
    ///
    /// # Errors
    /// If QEMU has ended.
    pub fn usage(&self, threads: &[i32]) -> io::Result<Usage> {
        let directory = format!("/proc/{}", self.pid());
        // Not from `statm`, in pages: before Linux 6.4 a process that is not dumpable cannot find out how large they are.
        let resident = resident(&fs::read_to_string(format!("{directory}/status"))?).unwrap_or_default();
        let mut usage = Usage { resident, ..Usage::default() };
        for entry in fs::read_dir(format!("{directory}/task"))? {
            let Ok(entry) = entry else { continue };
            let Ok(text) = fs::read_to_string(entry.path().join("schedstat")) else { continue };
            let time = run_time(&text).unwrap_or_default();
            usage.process += time;
            let number = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
            if number.is_some_and(|number| threads.contains(&number)) {
                usage.threads += time;
            }
        }
        Ok(usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_texts_are_read() {
        assert_eq!(run_time("2016547 1000 12\n"), Some(Duration::from_nanos(2_016_547)));
        assert_eq!(run_time(""), None);
        let status = "Name:\tqemu\nVmHWM:\t  900 kB\nVmRSS:\t   492 kB\nRssAnon:\t  4 kB\n";
        assert_eq!(resident(status), Some(Bytes::new(492 << 10)));
        assert_eq!(resident("Name:\tzombie\n"), None);
    }
}
