//! The threads of the vCPUs: held by the cgroup and counted, also those that are plugged while the VM runs.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use neonvm_hypervisor::cgroup::{CgroupError, CpuGroup};
use neonvm_hypervisor::machine::{CpuError, Machine, Usage};

/// The threads, and the time of those that have ended.
#[derive(Debug, Default)]
struct Counted {
    threads: Vec<i32>,
    ended: Duration,
    /// Time of all of them when it was last measured.
    last: Duration,
}

/// The threads of the vCPUs of a VM.
#[derive(Debug)]
pub(super) struct Vcpus {
    /// Weak: the cgroup must end with the VM although clients may still request counters.
    group: Option<Weak<CpuGroup>>,
    counted: Mutex<Counted>,
}

/// Why CPUs are not as requested.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// They were not plugged or unplugged.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// They are there, and their threads are not held to the limit.
    #[error("a plugged vCPU is not limited: {0}")]
    Group(#[from] CgroupError),
}

impl Vcpus {
    /// Those that a VM starts with, which the group has already.
    pub(super) fn new(group: Option<&Arc<CpuGroup>>, threads: Vec<i32>) -> Self {
        let counted = Mutex::new(Counted { threads, ..Counted::default() });
        Self { group: group.map(Arc::downgrade), counted }
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plugs or unplugs CPUs until there are `wanted`. Threads of new ones are in the group when this returns, before the guest can have
    /// them on line for long.
    pub(super) async fn set(&self, machine: &Machine, wanted: u32) -> Result<(), Error> {
        let before: Vec<i32> = self.locked().threads.clone();
        let time = |thread| machine.usage(&[thread]).map(|usage| usage.threads).unwrap_or_default();
        let times: Vec<(i32, Duration)> = before.iter().map(|thread| (*thread, time(*thread))).collect();
        let changed = machine.set_cpus(wanted).await;
        // Also after a failure: some may have been plugged or unplugged.
        let threads = machine.vcpu_threads().await.map_err(CpuError::from)?;
        let threads: Vec<i32> = threads.into_iter().map(|thread| thread.thread).collect();
        let group = self.group.as_ref().and_then(Weak::upgrade);
        let added = threads.iter().filter(|thread| !before.contains(thread));
        let held = added.into_iter().try_for_each(|thread| match &group {
            Some(group) => group.add_thread(*thread),
            None => Ok(()),
        });
        let gone = times.iter().filter(|(thread, _)| !threads.contains(thread));
        let gone: Duration = gone.map(|(_, time)| *time).sum();
        let mut counted = self.locked();
        counted.ended += gone;
        counted.threads = threads;
        drop(counted);
        changed?;
        Ok(held?)
    }

    /// Counts on from those of a QEMU that has ended.
    pub(super) fn follow(&self, before: &Self) {
        let last = before.locked().last;
        self.locked().ended += last;
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.locked().threads.len()).unwrap_or(u32::MAX)
    }

    /// What the VM uses; the time of vCPUs that were unplugged counts as well, and that of a QEMU that has ended.
    pub(super) fn usage(&self, machine: &Machine) -> Usage {
        let mut counted = self.locked();
        let Ok(usage) = machine.usage(&counted.threads) else {
            return Usage { threads: counted.last, ..Usage::default() };
        };
        counted.last = usage.threads + counted.ended;
        Usage { threads: counted.last, ..usage }
    }
}
