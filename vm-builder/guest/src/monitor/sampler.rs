//! Samples of the guest: a few small files of the kernel, kept open, read in place. Nothing is allocated for a sample.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use neonvm_core_vertical_scaling::monitor::Sample;

/// The rest of a longer file is ignored. `memory.stat`, the longest, has about 2 KiB.
const LONGEST: usize = 8192;
/// The monitor itself runs whenever it looks.
const OWN_TASKS: u32 = 1;

/// A file that is read again and again.
#[derive(Debug)]
struct Source {
    path: PathBuf,
    file: Option<File>,
}

impl Source {
    fn new(path: PathBuf) -> Self {
        let file = File::open(&path).ok();
        Self { path, file }
    }

    fn read<'a>(&mut self, buffer: &'a mut [u8]) -> Option<&'a str> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let Ok(length) = self.file.as_ref()?.read_at(buffer, 0) else {
            // A control group that was removed may come back.
            self.file = None;
            return None;
        };
        std::str::from_utf8(buffer.get(..length)?).ok()
    }
}

#[derive(Debug)]
pub struct Sampler {
    memory: Source,
    cgroup: Option<Source>,
    load: Source,
    uptime: Source,
    online: Source,
    /// None where the kernel has no pressure stall information.
    pressure: Option<[Source; 2]>,
    buffer: Box<[u8]>,
}

impl Sampler {
    /// Of the guest with its `/` at `root`; memory is that of the control group, else that of all processes.
    pub fn new(root: &Path, cgroup: Option<&str>) -> Self {
        let source = |path: &str| Source::new(root.join(path));
        let mut buffer = vec![0; LONGEST].into_boxed_slice();
        let mut pressure = ["cpu", "memory"].map(|name| source(&format!("proc/pressure/{name}")));
        let readable = pressure.iter_mut().all(|source| source.read(&mut buffer).is_some());
        Self {
            memory: source("proc/meminfo"),
            cgroup: cgroup.map(|name| source(&format!("sys/fs/cgroup/{name}/memory.stat"))),
            load: source("proc/loadavg"),
            uptime: source("proc/uptime"),
            online: source("sys/devices/system/cpu/online"),
            pressure: readable.then_some(pressure),
            buffer,
        }
    }

    /// Memory the kernel has, in bytes. None if the kernel does not report it.
    pub fn total(&mut self) -> Option<u64> {
        Some(Memory::parse(self.memory.read(&mut self.buffer)?)?.total)
    }

    /// The guest now. None if its memory cannot be seen.
    pub fn sample(&mut self) -> Option<Sample> {
        let buffer = &mut self.buffer;
        let memory = Memory::parse(self.memory.read(buffer)?)?;
        let anonymous = match &mut self.cgroup {
            Some(cgroup) => anonymous_of_group(cgroup.read(buffer)?)?,
            None => memory.anonymous,
        };
        let runnable = self.load.read(buffer).and_then(runnable).unwrap_or_default();
        let idle = self.uptime.read(buffer).and_then(idle);
        let online = self.online.read(buffer).and_then(count).unwrap_or(1);
        let [cpu_pressure, memory_pressure] = match &mut self.pressure {
            Some([cpu, memory]) => [cpu.read(buffer).and_then(waited), memory.read(buffer).and_then(waited)],
            None => [None; 2],
        };
        Some(Sample {
            anonymous,
            current: None,
            total: memory.total,
            available: memory.available,
            runnable: runnable.saturating_sub(OWN_TASKS),
            online,
            idle,
            cpu_pressure,
            memory_pressure,
        })
    }
}

/// What is read of `/proc/meminfo`, in bytes.
#[derive(Debug, PartialEq, Eq)]
struct Memory {
    total: u64,
    available: u64,
    anonymous: u64,
}

impl Memory {
    fn parse(text: &str) -> Option<Self> {
        let (mut total, mut available, mut anonymous, mut shared) = (None, None, None, 0);
        for line in text.lines() {
            let Some((key, rest)) = line.split_once(':') else { continue };
            let value = || rest.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024);
            match key {
                "MemTotal" => total = value(),
                "MemAvailable" => available = value(),
                "AnonPages" => anonymous = value(),
                "Shmem" => {
                    shared = value()?;
                    break;
                }
                _ => {}
            }
        }
        let total = total?;
        let anonymous = anonymous?.saturating_add(shared);
        Some(Self { total, available: available.unwrap_or(total), anonymous })
    }
}

/// `active_anon` and `inactive_anon` of `memory.stat`, in bytes: with shared memory, without what is unmapped.
fn anonymous_of_group(text: &str) -> Option<u64> {
    let value = |key: &str| {
        let mut values = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        values.next()?.trim().parse::<u64>().ok()
    };
    value("active_anon")?.checked_add(value("inactive_anon")?)
}

/// The fourth word of `/proc/loadavg` is `runnable/all`. `/proc/stat` has the same for far more work.
fn runnable(text: &str) -> Option<u32> {
    text.split_ascii_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

/// The second word of `/proc/uptime`: idle time of all processors in seconds, with hundredths.
fn idle(text: &str) -> Option<Duration> {
    let (seconds, hundredths) = text.split_ascii_whitespace().nth(1)?.split_once('.')?;
    let hundredths: u64 = hundredths.parse().ok().filter(|hundredths| *hundredths < 100)?;
    Duration::from_secs(seconds.parse().ok()?).checked_add(Duration::from_millis(hundredths * 10))
}

/// How many numbers are in a list such as `0-3,5`.
fn count(text: &str) -> Option<u32> {
    text.trim_end().split(',').try_fold(0_u32, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = last.parse::<u32>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1)?;
        sum.checked_add(range)
    })
}

/// `total=` of the line `some` of a pressure file: microseconds.
fn waited(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_of_the_kernel_are_read() {
        let memory = "MemTotal:        1000 kB\nMemFree: 1 kB\nMemAvailable:     600 kB\nAnonPages:  \
                      50 kB\nMapped: 3 kB\nShmem:     7 kB\nKReclaimable: 1 kB\n";
        let expected = Memory { total: 1000 << 10, available: 600 << 10, anonymous: 57 << 10 };
        assert_eq!(Memory::parse(memory), Some(expected));
        assert_eq!(anonymous_of_group("anon 1\nfile 5\ninactive_anon 30\nactive_anon 12\n"), Some(42));
        assert_eq!(runnable("0.52 0.58 0.59 3/971 22433\n"), Some(3));
        assert_eq!(idle("350735.47 234388.90\n"), Some(Duration::from_millis(234_388_900)));
        assert_eq!(count("0-3,5\n"), Some(5));
        assert_eq!(count("0\n"), Some(1));
        let pressure =
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234567\nfull avg10=0.00 avg60=0 total=9\n";
        assert_eq!(waited(pressure), Some(Duration::from_micros(1_234_567)));
    }

    #[test]
    fn this_machine_is_sampled() {
        let mut sampler = Sampler::new(Path::new("/"), None);
        let sample = sampler.sample().unwrap();
        assert!(sample.total > sample.available && sample.anonymous > 0 && sample.online > 0);
        assert_eq!(sampler.total(), Some(sample.total));
        assert!(sample.idle.is_some());
    }

    #[test]
    fn a_group_that_is_gone_gives_no_sample_until_it_is_back() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("sys/fs/cgroup/work");
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        std::fs::write(root.path().join("proc/meminfo"), "MemTotal: 9 kB\nAnonPages: 3 kB\n").unwrap();
        let mut sampler = Sampler::new(root.path(), Some("work"));
        assert_eq!(sampler.sample(), None);
        std::fs::create_dir_all(&group).unwrap();
        std::fs::write(group.join("memory.stat"), "inactive_anon 1\nactive_anon 2\n").unwrap();
        assert_eq!(sampler.sample().map(|sample| sample.anonymous), Some(3));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-zA-Z:,./= \n-]{0,80}") {
            let _ = (Memory::parse(&text), anonymous_of_group(&text), runnable(&text), idle(&text));
            let _ = (count(&text), waited(&text));
        }
    }
}
