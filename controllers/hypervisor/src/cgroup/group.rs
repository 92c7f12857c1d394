//! A cgroup for threads.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use neonvm_types::MilliCpu;
use neonvm_types::node_protocol::CpuFile;
use tokio::time::Instant;

use super::Version;
use super::error::CgroupError;

/// Time within which the quota is spent.
pub const PERIOD: Duration = Duration::from_millis(100);
/// Least quota the kernel takes.
const LEAST_QUOTA: u64 = 1000;
/// Bytes of `cpu.stat`, at most: some lines of a word and a number.
const STATISTICS: usize = 4096;

/// The open files of a cgroup.
pub type Files = BTreeMap<CpuFile, File>;

/// Name of a file; `None`: the version does without.
fn name(version: Version, file: CpuFile) -> Option<&'static str> {
    Some(match (file, version) {
        (CpuFile::Threads, Version::V1) => "tasks",
        (CpuFile::Threads, Version::V2) => "cgroup.threads",
        (CpuFile::Quota, Version::V1) => "cpu.cfs_quota_us",
        (CpuFile::Quota, Version::V2) => "cpu.max",
        (CpuFile::Period, Version::V1) => "cpu.cfs_period_us",
        (CpuFile::Period, Version::V2) => return None,
        (CpuFile::Weight, Version::V1) => "cpu.shares",
        (CpuFile::Weight, Version::V2) => "cpu.weight",
        (CpuFile::Statistics, Version::V1 | Version::V2) => "cpu.stat",
    })
}

/// The files of a version with their names.
fn names(version: Version) -> impl Iterator<Item = (CpuFile, &'static str)> {
    let all = [CpuFile::Threads, CpuFile::Quota, CpuFile::Period, CpuFile::Weight, CpuFile::Statistics];
    all.into_iter().filter_map(move |file| Some((file, name(version, file)?)))
}

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

/// A cgroup for threads, by its open files: the kernel checks a write with the rights of who opened the file. What this process has made
/// is removed when it is dropped, if no thread is left in it; [`CpuGroup::remove`] waits for that.
#[derive(Debug)]
pub struct CpuGroup {
    version: Version,
    files: Files,
    /// Of one that this process has made.
    directory: Option<PathBuf>,
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        if let Some(directory) = &self.directory {
            let _ = fs::remove_dir(directory);
        }
    }
}

impl CpuGroup {
    /// Of files that another process has opened, and whose cgroup it removes.
    ///
    /// # Errors
    /// If one is missing.
    pub fn of(version: Version, files: Files) -> Result<Self, CgroupError> {
        match names(version).find(|(file, _)| !files.contains_key(file)) {
            Some((_, name)) => Err(CgroupError::Missing(name)),
            None => Ok(Self { version, files, directory: None }),
        }
    }

    /// Opens the files of a directory that this process has made.
    pub(super) fn open(directory: PathBuf, version: Version) -> Result<Self, CgroupError> {
        let mut files = Files::new();
        for (file, name) in names(version) {
            let path = directory.join(name);
            // Files of cgroups must not be made.
            let writes = file != CpuFile::Statistics;
            let opened = OpenOptions::new().read(!writes).write(writes).open(&path);
            files.insert(file, opened.map_err(CgroupError::io("open", path))?);
        }
        Ok(Self { version, files, directory: Some(directory) })
    }

    /// Its files, to be given away; the cgroup stays.
    #[must_use]
    pub fn into_files(mut self) -> (Version, Files) {
        self.directory = None;
        (self.version, std::mem::take(&mut self.files))
    }

    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Where it is, if this process has made it.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    fn file(&self, file: CpuFile) -> Result<(&File, &'static str), CgroupError> {
        let name = name(self.version, file).unwrap_or_default();
        self.files.get(&file).map(|file| (file, name)).ok_or(CgroupError::Missing(name))
    }

    /// Files of cgroups take a value as one write.
    fn write(&self, file: CpuFile, value: &str) -> Result<(), CgroupError> {
        let (file, name) = self.file(file)?;
        let written = file.write_at(value.as_bytes(), 0);
        written.map(drop).map_err(CgroupError::io("write", name))
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
                self.write(CpuFile::Period, &period.to_string())?;
                self.write(CpuFile::Quota, &quota.map_or("-1".to_owned(), |quota| quota.to_string()))?;
                self.write(CpuFile::Weight, &shares.to_string())
            }
            Version::V2 => {
                let quota = quota.map_or("max".to_owned(), |quota| quota.to_string());
                self.write(CpuFile::Quota, &format!("{quota} {period}"))?;
                self.write(CpuFile::Weight, &weight(shares).to_string())
            }
        }
    }

    /// Adds a thread to the group, by its number in the namespace of this process. One that has ended is no error.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn add_thread(&self, thread: i32) -> Result<(), CgroupError> {
        match self.write(CpuFile::Threads, &thread.to_string()) {
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
        let (file, name) = self.file(CpuFile::Statistics)?;
        let mut bytes = vec![0; STATISTICS];
        let count = file.read_at(&mut bytes, 0).map_err(CgroupError::io("read", name))?;
        Ok(parse(&String::from_utf8_lossy(bytes.get(..count).unwrap_or_default())))
    }

    /// Removes it, as soon as its last thread has ended or at the latest when the time is over; nothing if another process has made it.
    ///
    /// # Errors
    /// If it is still there then.
    pub async fn remove(self, time: Duration) -> Result<(), CgroupError> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let until = Instant::now() + time;
        let mut pause = Duration::from_millis(1);
        loop {
            match fs::remove_dir(directory) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_millis(50));
                }
                Err(error) => return Err(CgroupError::io("remove", directory)(error)),
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
