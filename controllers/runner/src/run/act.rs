//! Carries out the core's actions. Nothing here waits: what takes time is a task that ends with an event.

use std::sync::Arc;
use std::time::{Duration, Instant};

use neonvm_hypervisor::cgroup::CgroupError;
use neonvm_hypervisor::machine::VcpuThread;
use neonvm_hypervisor::plan::CpuMode;
use neonvm_types::MilliCpu;
use neonvm_types::runner_protocol::{ProblemReason, RunnerStatistics};

use super::vcpus::{self, Vcpus};
use super::{Bytes, CpuGroup, Daemon, Event, GROUP, Hierarchy, Loop, Machine, Options, PodFiles};
use crate::api::Statistics;
use crate::guest::usage;
use crate::network::Reports;
use crate::options::NetworkMode;
use neonvm_core_vm_lifecycle::runner::Action;

/// Pause before a VM that was stopped for lack of disk space continues.
const ROOM: Duration = Duration::from_secs(5);
/// How long a change of memory is polled at short intervals.
const SETTLE: Duration = Duration::from_secs(3);
/// How much of that without growing pauses.
const CLOSELY: Duration = Duration::from_millis(100);
/// Time for CPUs that were plugged to come on line.
const ON_LINE: Duration = Duration::from_secs(10);

impl Loop {
    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::SetMemory(total) => self.set_memory(total),
            Action::SetQuota(cpu) => self.set_quota(cpu),
            Action::SetCpus(cpu) => self.set_cpus(cpu),
            Action::AskGuest(within) => self.ask_guest(within),
            Action::GrowDisk(request) => self.grow_disk(request),
            Action::LimitDisks(limits) => self.limit_disks(limits),
            Action::LookAtDisks => self.look_at_disks(),
            Action::Pause => self.order(true),
            Action::Continue => self.order(false),
            Action::LookAtActivity => self.look_at_activity(),
            Action::Suspend => self.store(),
            Action::CancelSuspend => self.cancel_store(),
            Action::Wake => self.wake(),
            Action::PressPowerButton => self.spawn(|machine, _| async move {
                if let Err(error) = machine.power_button().await {
                    tracing::warn!(%error, "the power button cannot be pressed");
                }
                None
            }),
            Action::Kill => {
                self.killed = true;
                self.machine.kill();
            }
        }
    }

    /// Runs something beside the loop; what it returns comes back as an event.
    pub(super) fn spawn<F>(&self, work: impl FnOnce(Arc<Machine>, Daemon) -> F)
    where
        F: Future<Output = Option<Event>> + Send + 'static,
    {
        let events = self.events.clone();
        let work = work(Arc::clone(&self.machine), self.daemon.clone());
        tokio::spawn(async move {
            if let Some(event) = work.await {
                let _ = events.send(event).await;
            }
        });
    }

    fn set_memory(&mut self, total: Bytes) {
        let (machine, daemon) = (Arc::clone(&self.machine), self.daemon.clone());
        let change = async move {
            let target = safe(&machine, &daemon, total).await;
            if target != total {
                tracing::warn!(wanted = %total, %target, "the guest needs more memory than it should have; not all is taken");
            }
            if let Err(error) = machine.set_memory_target(target).await {
                // If the size is not reached in time, the core sets it again and reports the problem.
                tracing::warn!(%error, memory = %total, "QEMU does not change the memory");
            }
        };
        self.follow(change);
    }

    /// Polls the memory until it has the requested size.
    pub(super) fn follow_memory(&mut self) {
        // A task that polls already may first have a request to send.
        if self.following.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        self.follow(std::future::ready(()));
    }

    /// Awaits `first`, then polls the memory until it has the requested size. QEMU's event of a change comes only once
    /// a second (its rate limit of `MEMORY_DEVICE_SIZE_CHANGE`): too late for callers that wait. What takes longer than
    /// [`SETTLE`] is left to the events.
    fn follow(&mut self, first: impl Future<Output = ()> + Send + 'static) {
        if let Some(older) = self.following.take() {
            older.abort();
        }
        let (machine, events) = (Arc::clone(&self.machine), self.events.clone());
        self.following = Some(tokio::spawn(async move {
            first.await;
            let until = Instant::now() + SETTLE;
            let (mut pause, mut last) = (Duration::from_millis(5), None);
            while let Ok(memory) = machine.memory().await {
                if last != Some(memory.total()) {
                    last = Some(memory.total());
                    let _ = events.send(Event::Memory(memory.total())).await;
                }
                if memory.is_settled() || Instant::now() > until {
                    return;
                }
                tokio::time::sleep(pause).await;
                // Most changes are done within a tenth of a second, and callers wait for them.
                if Instant::now() + SETTLE > until + CLOSELY {
                    pause = (pause * 3 / 2).min(Duration::from_millis(50));
                }
            }
        }));
    }

    fn set_quota(&mut self, cpu: MilliCpu) {
        let Some(group) = &self.group else {
            // Without a limit it has what was requested. That it cannot be limited is a problem that was reported.
            let problems = &self.core.status().problems;
            if !problems.iter().any(|problem| problem.reason == ProblemReason::CpuNotLimited) {
                self.take(Event::QuotaSet(cpu));
            }
            return;
        };
        // A write to a file of the kernel: no need for another thread.
        let event = match group.set_limit(Some(cpu)) {
            Ok(()) => Event::QuotaSet(cpu),
            Err(error) => Event::QuotaFailed(error.to_string()),
        };
        self.take(event);
    }

    fn set_cpus(&self, cpu: MilliCpu) {
        let plugged = self.machine.plan().cpu.mode == CpuMode::Qmp;
        let (vcpus, events) = (Arc::clone(&self.vcpus), self.events.clone());
        self.spawn(move |machine, daemon| async move {
            let wanted = cpu.cpus_rounded_up();
            let changed = if plugged {
                match vcpus.set(&machine, wanted).await {
                    Err(error @ vcpus::Error::Cpu(_)) => Err(error.to_string()),
                    held => {
                        if let Err(error) = held {
                            let _ = events.send(Event::QuotaFailed(error.to_string())).await;
                        }
                        on_line(&daemon, cpu).await
                    }
                }
            } else {
                set(&daemon, cpu).await
            };
            Some(match changed {
                Ok(online) => Event::Answered { online },
                Err(why) => Event::Silent(why),
            })
        });
    }

    fn ask_guest(&mut self, within: Duration) {
        // A newer question replaces one that waits for an answer: the guest was not up then.
        if let Some(older) = self.asking.take() {
            older.abort();
        }
        let (daemon, events) = (self.daemon.clone(), self.events.clone());
        self.asking = Some(tokio::spawn(async move {
            let event = match tokio::time::timeout(within, daemon.online()).await {
                Ok(Ok(online)) => Event::Answered { online },
                Ok(Err(error)) => Event::Silent(error.to_string()),
                Err(_) => Event::Silent(format!("no answer within {} ms", within.as_millis())),
            };
            let _ = events.send(event).await;
        }));
    }

    /// Stops or continues the guest's CPUs.
    fn order(&self, pause: bool) {
        self.spawn(move |machine, _| async move {
            let carried_out = if pause { machine.stop().await } else { machine.continue_().await };
            Some(match carried_out {
                Ok(()) => {
                    tracing::info!(paused = pause, "QEMU has carried out the order");
                    Event::Paused(pause)
                }
                Err(error) => {
                    tracing::warn!(%error, paused = pause, "QEMU has not carried out the order");
                    Event::PauseFailed(error.to_string())
                }
            })
        });
    }

    /// A VM that was stopped for lack of disk space is continued now and then: it stops again if there is still none.
    pub(super) fn go_on_later(&self) {
        self.spawn(|_, _| async move {
            tokio::time::sleep(ROOM).await;
            Some(Event::DiskRoom)
        });
    }
}

/// The size that can be set without harm; `wanted` if the guest does not report how much memory it uses.
async fn safe(machine: &Machine, daemon: &Daemon, wanted: Bytes) -> Bytes {
    let Ok(memory) = machine.memory().await else { return wanted };
    let now = memory.total();
    if wanted >= now {
        return wanted;
    }
    let available = daemon.metrics().await.ok().and_then(|text| usage::parse(&text).available);
    available.map_or(wanted, |available| usage::least_safe(now, available, wanted))
}

async fn set(daemon: &Daemon, cpu: MilliCpu) -> Result<u32, String> {
    daemon.set_cpus(cpu).await.map_err(|error| error.to_string())
}

/// Waits until the guest has the CPUs on line that are plugged. Those that ACPI announces it takes by itself, those that were
/// listed at its boot ([`CpuPlan::all_are_listed`](neonvm_hypervisor::plan::CpuPlan::all_are_listed)) on request.
async fn on_line(daemon: &Daemon, cpu: MilliCpu) -> Result<u32, String> {
    let wanted = cpu.cpus_rounded_up();
    let until = Instant::now() + ON_LINE;
    let mut pause = Duration::from_millis(20);
    loop {
        let online = daemon.online().await.map_err(|error| error.to_string())?;
        if online == wanted || Instant::now() > until {
            return Ok(online);
        }
        // Refused as long as they are not there yet.
        if online < wanted && set(daemon, cpu).await == Ok(wanted) {
            return Ok(wanted);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

/// The cgroup of the vCPU threads, in force before the guest runs; or why there is none.
pub(super) async fn limit(
    options: &Options,
    pod: &PodFiles,
    machine: &Machine,
    group: Option<Result<CpuGroup, String>>,
) -> (Option<Arc<CpuGroup>>, Option<String>) {
    let Some(group) = group else { return (None, None) };
    let threads = match machine.vcpu_threads().await {
        Ok(threads) => threads,
        Err(error) => return (None, Some(error.to_string())),
    };
    let cpu =
        pod.config.receive.as_ref().map_or(pod.config.spec.guest.cpus.r#use, |receive| receive.size.cpu);
    let held = |group: CpuGroup| {
        hold(&group, cpu, &threads).map(|()| group).map_err(|error: CgroupError| error.to_string())
    };
    match group.and_then(held) {
        Ok(group) => (Some(Arc::new(group)), None),
        Err(error) if pod.config.settings.pod_size && is_held(options) => {
            tracing::info!(%error, "the vCPUs have no cgroup of their own: the limits of the container hold them");
            (None, None)
        }
        Err(error) => {
            tracing::warn!(%error, "the CPU of the VM cannot be limited");
            (None, Some(format!("the CPU of the VM cannot be limited: {error}")))
        }
    }
}

/// A cgroup for the vCPUs, if they are to have one: from the node service, or, on a node without that, made by this process.
pub(super) async fn group(
    options: &Options,
    pod: &PodFiles,
    status: &Reports,
) -> Option<Result<CpuGroup, String>> {
    if pod.config.settings.cgroup { Some(make_group(options, status).await) } else { None }
}

async fn make_group(options: &Options, status: &Reports) -> Result<CpuGroup, String> {
    // On a node that has the service, a VM with QEMU's own network has the cgroup from there as well.
    if options.network == NetworkMode::Tap || options.node_socket.exists() {
        let node = crate::network::Node { socket: options.node_socket.clone(), status: status.clone() };
        let asked = tokio::task::spawn_blocking(move || node.cpu()).await;
        return asked.unwrap_or_else(|error| Err(error.to_string()));
    }
    let made = || {
        let hierarchy = Hierarchy::find(std::path::Path::new(neonvm_hypervisor::cgroup::DEFAULT_ROOT))?;
        let parent = match &options.cgroup {
            Some(parent) => parent.clone(),
            None => hierarchy.own_group()?,
        };
        hierarchy.create(&parent, GROUP)
    };
    made().map_err(|error: CgroupError| format!("{error}; this needs root"))
}

/// Puts the threads into the group, with the limit.
fn hold(group: &CpuGroup, cpu: MilliCpu, threads: &[VcpuThread]) -> Result<(), CgroupError> {
    group.set_limit(Some(cpu))?;
    threads.iter().try_for_each(|thread| group.add_thread(thread.thread))
}

/// Whether the cgroup of this process has a limit of CPU. A node without rights makes none.
fn is_held(options: &Options) -> bool {
    let Ok(hierarchy) = Hierarchy::find(std::path::Path::new(neonvm_hypervisor::cgroup::DEFAULT_ROOT)) else {
        return false;
    };
    let group = options.cgroup.clone().map_or_else(|| hierarchy.own_group(), Ok);
    group.is_ok_and(|group| hierarchy.is_limited(&group))
}

/// Where counters come from, and what holds and counts the vCPUs from now on.
pub(super) async fn statistics(
    machine: &Arc<Machine>,
    group: Option<&Arc<CpuGroup>>,
    begun: Instant,
    daemon: Daemon,
) -> (Arc<Vcpus>, Arc<Statistics>) {
    let threads = machine.vcpu_threads().await.unwrap_or_default();
    let threads: Vec<i32> = threads.into_iter().map(|thread| thread.thread).collect();
    let vcpus = Arc::new(Vcpus::new(group, threads));
    let counted = Arc::clone(&vcpus);
    // Weak: the VM and its cgroup must end although clients may still request counters.
    let (machine, group) = (Arc::downgrade(machine), group.map(Arc::downgrade));
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let sample = move || {
        let usage = machine.upgrade().map(|machine| counted.usage(&machine)).unwrap_or_default();
        // At once: clients divide the one by the other, so both must be of one moment.
        let uptime = begun.elapsed();
        let group = group.as_ref().and_then(std::sync::Weak::upgrade);
        let throttled = group.and_then(|group| group.throttling().ok()).unwrap_or_default();
        RunnerStatistics {
            uptime_ms: u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
            cpu_us: micros(usage.threads),
            throttled_us: micros(throttled.time),
            resident: usage.resident,
            ..RunnerStatistics::default()
        }
    };
    (vcpus, Arc::new(Statistics::new(Box::new(sample), daemon)))
}
