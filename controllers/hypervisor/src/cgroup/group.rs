//! A cgroup for threads.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use neonvm_types::MilliCpu;
use tokio::time::Instant;

use super::Version;
use super::error::CgroupError;

/// Time within which the quota is spent.
pub const PERIOD: Duration = Duration::from_millis(100);
/// Least quota the kernel takes.
const LEAST_QUOTA: u64 = 1000;

/// How often and how long threads had to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    /// Periods in which a thread ran.
    pub periods: u64,
    /// Periods in which the quota was spent.
    pub throttled: u64,
    /// Time that threads waited for the next period.
    pub time: Duration,
}

/// A cgroup for threads. Removed when dropped if no thread is left in it; [`CpuGroup::remove`] waits for that.
#[derive(Debug)]
pub struct CpuGroup {
    directory: PathBuf,
    version: Version,
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.directory);
    }
}

impl CpuGroup {
    pub(super) fn new(directory: PathBuf, version: Version) -> Self {
        Self { directory, version }
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// Files of cgroups take a value as one write and must not be made.
    pub(super) fn write(&self, name: &str, value: &str) -> Result<(), CgroupError> {
        let path = self.directory.join(name);
        let put = || OpenOptions::new().write(true).truncate(true).open(&path)?.write_all(value.as_bytes());
        put().map_err(CgroupError::io("write", path))
    }

    /// Holds its threads together to so much CPU; `None`: to nothing. Their share of a busy host is proportional.
    ///
    /// # Errors
    /// If the kernel refuses, for instance because a cgroup above allows less.
    pub fn set_limit(&self, limit: Option<MilliCpu>) -> Result<(), CgroupError> {
        let period = u64::try_from(PERIOD.as_micros()).unwrap_or(u64::MAX);
        let quota = limit.map(|limit| quota(limit, period));
        let shares = limit.map_or(1024, shares);
        match self.version {
            Version::V1 => {
                self.write("cpu.cfs_period_us", &period.to_string())?;
                self.write("cpu.cfs_quota_us", &quota.map_or("-1".to_owned(), |quota| quota.to_string()))?;
                self.write("cpu.shares", &shares.to_string())
            }
            Version::V2 => {
                let quota = quota.map_or("max".to_owned(), |quota| quota.to_string());
                self.write("cpu.max", &format!("{quota} {period}"))?;
                self.write("cpu.weight", &weight(shares).to_string())
            }
        }
    }

    /// Adds a thread to the group. One that has ended is no error.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn add_thread(&self, thread: i32) -> Result<(), CgroupError> {
        let file = match self.version {
            Version::V1 => "tasks",
            Version::V2 => "cgroup.threads",
        };
        match self.write(file, &thread.to_string()) {
            // ESRCH has no separate kind.
            Err(CgroupError::Io { source, .. }) if source.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            other => other,
        }
    }

    /// How often and how long its threads had to wait.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn throttling(&self) -> Result<Throttling, CgroupError> {
        let path = self.directory.join("cpu.stat");
        let text = fs::read_to_string(&path).map_err(CgroupError::io("read", path))?;
        Ok(parse(&text))
    }

    /// Removes it, as soon as its last thread has ended or at the latest when the time is over.
    ///
    /// # Errors
    /// If it is still there then.
    pub async fn remove(self, time: Duration) -> Result<(), CgroupError> {
        let until = Instant::now() + time;
        let mut pause = Duration::from_millis(1);
        loop {
            match fs::remove_dir(&self.directory) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_millis(50));
                }
                Err(error) => return Err(CgroupError::io("remove", &self.directory)(error)),
            }
        }
    }
}

/// Microseconds of CPU in a period.
fn quota(limit: MilliCpu, period: u64) -> u64 {
    (u64::from(limit.milli()) * period / 1000).max(LEAST_QUOTA)
}

/// 1024 for a CPU, within what the kernel takes.
fn shares(limit: MilliCpu) -> u64 {
    (u64::from(limit.milli()) * 1024 / 1000).clamp(2, 262_144)
}

/// As Kubernetes translates shares of v1 for v2 (KEP-2254).
fn weight(shares: u64) -> u64 {
    1 + shares.saturating_sub(2) * 9999 / 262_142
}

fn parse(text: &str) -> Throttling {
    let mut throttling = Throttling::default();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(' ') else { continue };
        let Ok(value) = value.trim().parse::<u64>() else { continue };
        match key {
            "nr_periods" => throttling.periods = value,
            "nr_throttled" => throttling.throttled = value,
            "throttled_time" => throttling.time = Duration::from_nanos(value),
            "throttled_usec" => throttling.time = Duration::from_micros(value),
            _ => {}
        }
    }
    throttling
}

#[cfg(test)]
mod tests;
