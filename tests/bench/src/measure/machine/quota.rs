//! A limit of processor time for threads: a cgroup of the first version, which is what emulated machines are tested on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

const ROOT: &str = "/sys/fs/cgroup/cpu";
/// Microseconds, as runners have it.
const PERIOD: u64 = 100_000;

/// Removed when dropped; by then its threads must be gone.
pub(super) struct Quota(PathBuf);

impl Quota {
    /// Whether there is such a hierarchy here.
    pub(super) fn is_possible() -> bool {
        Path::new(ROOT).join("cpu.cfs_quota_us").exists()
    }

    /// One processor's time for all threads together.
    pub(super) fn of_one_cpu(threads: &[i64]) -> anyhow::Result<Self> {
        let path = Path::new(ROOT).join(format!("neonvm-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        let this = Self(path);
        this.write("cpu.cfs_period_us", &PERIOD.to_string())?;
        this.write("cpu.cfs_quota_us", &PERIOD.to_string())?;
        for thread in threads {
            this.write("tasks", &thread.to_string())?;
        }
        Ok(this)
    }

    fn write(&self, file: &str, text: &str) -> anyhow::Result<()> {
        let path = self.0.join(file);
        std::fs::write(&path, text).with_context(|| path.display().to_string())
    }

    /// How long the threads were held back.
    pub(super) fn throttled(&self) -> Duration {
        let text = std::fs::read_to_string(self.0.join("cpu.stat")).unwrap_or_default();
        let time = text.lines().find_map(|line| line.strip_prefix("throttled_time "));
        Duration::from_nanos(time.and_then(|nanoseconds| nanoseconds.parse().ok()).unwrap_or(0))
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // An empty directory that the kernel could not remove does no harm.
        std::fs::remove_dir(&self.0).ok();
    }
}
