//! Suspension, between the loop and [`crate::suspend`].

use std::net::Ipv4Addr;
use std::time::Duration;

use neonvm_core_vm_lifecycle::runner::{Activity, Stays};
use neonvm_hypervisor::machine::Resources;
use neonvm_hypervisor::plan::MachinePlan;
use neonvm_types::runner_protocol::SuspendRequest;
use tokio::sync::oneshot;

use super::{
    Arc, Error, Event, ExitReason, Log, Loop, Machine, PodFiles, QemuExit, Refusal, Running, act, channel,
    mpsc, watch,
};
use crate::suspend::{self, Bed, Counters, Outcome, Streams};

/// How often the clock of a guest that was woken is tried to be set, and how far apart: its pages come back first.
const CLOCK_TRIES: u32 = 10;
const CLOCK_PAUSE: Duration = Duration::from_secs(1);

/// What the loop keeps of a suspension.
pub(super) struct Sleep {
    /// `None`: the VM has no tap device that could wake it.
    bed: Option<Arc<Bed>>,
    log: Log,
    running: channel::Sender<Option<Running>>,
    streams: Arc<Streams>,
    /// Cancels the suspension under way.
    cancel: Option<oneshot::Sender<()>>,
    /// How the QEMU has ended whose memory is stored, or was to be.
    gone: Option<QemuExit>,
    /// The next QEMU, or why there is none.
    started: mpsc::Sender<Result<Machine, String>>,
    starting: mpsc::Receiver<Result<Machine, String>>,
    /// Whether a frame for the guest wakes it now.
    listens: bool,
    loss: Option<String>,
}

/// What a suspension needs of a VM that is about to start.
pub(super) fn bed(
    pod: &PodFiles,
    plan: &MachinePlan,
    resources: &Resources,
) -> Result<Option<Arc<Bed>>, Error> {
    let address = |ip: &String| ip.parse::<Ipv4Addr>().ok();
    let overlay = pod.config.extra_net.as_ref().and_then(|net| address(&net.ip));
    let bed = Bed::new(plan, resources, overlay);
    bed.map(|bed| bed.map(Arc::new)).map_err(|error| Error::Task(format!("tap devices: {error}")))
}

impl Sleep {
    pub(super) fn new(
        bed: Option<Arc<Bed>>,
        log: &Log,
        running: channel::Sender<Option<Running>>,
        offered: Running,
    ) -> Self {
        let (started, starting) = mpsc::channel(1);
        let streams = Arc::clone(&offered.streams);
        running.send_replace(Some(offered));
        let (log, cancel, gone, loss) = (log.clone(), None, None, None);
        Self { bed, log, running, streams, cancel, gone, started, starting, listens: false, loss }
    }

    pub(super) fn publish(&self, running: Running) {
        self.running.send_replace(Some(running));
    }

    /// Waits until a frame wakes the guest; for ever while it is not suspended.
    pub(super) fn knock(&self) -> impl Future<Output = ()> + use<> {
        let bed = self.bed.clone().filter(|_| self.listens);
        async move {
            match bed {
                Some(bed) => bed.knock().await,
                None => std::future::pending().await,
            }
        }
    }

    pub(super) async fn woken(&mut self) -> Option<Result<Machine, String>> {
        self.starting.recv().await
    }

    pub(super) fn gone(&mut self, exit: QemuExit) {
        self.gone = Some(exit);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.is_some()
    }

    pub(super) fn exit(&mut self) -> Option<QemuExit> {
        self.gone.take()
    }

    /// Why the VM has ended, if its stored memory was lost.
    pub(super) fn loss(&mut self) -> Option<(ExitReason, String)> {
        self.loss.take().map(|why| (ExitReason::QemuEnded, why))
    }

    /// The VM has ended.
    pub(super) fn end(&self) {
        if let Some(bed) = &self.bed {
            bed.forget();
        }
    }
}

impl Loop {
    pub(super) fn suspend(&mut self, request: SuspendRequest) -> Result<(), Refusal> {
        let moves = self.moving.as_ref().is_some_and(|moving| !moving.status().state.is_over());
        let wanted = request.suspended || request.idle_after_ms.is_some();
        if wanted && self.sleep.bed.is_none() {
            return Err(Refusal::Conflict(
                "the VM has no tap device, which could wake it: with user-mode networking it cannot be suspended"
                    .to_owned(),
            ));
        }
        if request.suspended && moves {
            return Err(Refusal::Conflict("the VM moves: it can be suspended afterwards".to_owned()));
        }
        tracing::info!(?request, "the VM is to be suspended, or to run");
        self.take(Event::Suspend(request));
        Ok(())
    }

    /// What the VM has done so far.
    pub(super) fn look_at_activity(&mut self) {
        let cpu = self.vcpus.usage(&self.machine).threads;
        self.take(Event::Activity(Activity { packets: Counters::packets(), cpu }));
    }

    pub(super) fn store(&mut self) {
        let Some(bed) = self.sleep.bed.clone() else {
            return self.take(Event::NotSuspended(Stays::Failed("it has no tap device".to_owned())));
        };
        // What it has used until now is counted on.
        let _ = self.vcpus.usage(&self.machine);
        let (cancel, cancelled) = oneshot::channel();
        self.sleep.cancel = Some(cancel);
        let streams = Arc::clone(&self.sleep.streams);
        let deaf = self.core.status().suspend.as_ref().is_some_and(|suspend| suspend.deaf);
        self.spawn(move |machine, daemon| async move {
            Some(match suspend::suspend(bed, machine, daemon, streams, (deaf, cancelled)).await {
                Outcome::Suspended(bytes, took) => Event::Suspended(bytes, took),
                Outcome::Stays(why) => Event::NotSuspended(why),
            })
        });
    }

    pub(super) fn cancel_store(&mut self) {
        if let Some(cancel) = self.sleep.cancel.take() {
            let _ = cancel.send(());
        }
    }

    /// Lets frames wake the guest while it is suspended, and only then.
    pub(super) fn listen(&mut self) {
        let suspend = self.core.status().suspend.as_ref();
        // The frame that has woken it stays there until a guest reads it.
        self.sleep.listens = suspend.is_some_and(|suspend| suspend.is_asleep() && !suspend.deaf);
    }

    pub(super) fn wake(&mut self) {
        let Some(bed) = self.sleep.bed.clone() else { return };
        let (plan, cpus) = (self.machine.plan().clone(), self.vcpus.count());
        let memory = self.core.status().memory.actual;
        let started = self.sleep.started.clone();
        tokio::spawn(async move {
            let _ = started.send(suspend::wake(bed, plan, cpus, memory).await).await;
        });
    }

    /// Takes the QEMU that has the guest's memory, and lets the guest run; the end of the VM if there is none.
    pub(super) async fn revive(&mut self, woken: Result<Machine, String>) -> Option<QemuExit> {
        let why = match woken {
            Ok(machine) => match self.adopt(Arc::new(machine)).await {
                Ok(()) => return None,
                Err(why) => why,
            },
            Err(why) => why,
        };
        tracing::error!(why, "the stored memory cannot be loaded");
        self.sleep.loss = Some(format!("the memory of the suspended VM is lost: {why}"));
        Some(self.sleep.gone.take().unwrap_or_default())
    }

    async fn adopt(&mut self, machine: Arc<Machine>) -> Result<(), String> {
        let Some(bed) = self.sleep.bed.clone() else { return Err("it has no tap device".to_owned()) };
        self.from_qemu = machine.events();
        let (console, readers) = watch::attach(&machine, &self.sleep.log, &self.events);
        if let Some(group) = &self.group {
            let threads = machine.vcpu_threads().await.map_err(|error| error.to_string())?;
            let mut threads = threads.iter();
            threads
                .try_for_each(|thread| group.add_thread(thread.thread))
                .map_err(|error| error.to_string())?;
        }
        let daemon = self.daemon.clone();
        let (vcpus, statistics) = act::statistics(&machine, self.group.as_ref(), self.begun, daemon).await;
        vcpus.follow(&self.vcpus);
        let before = self.sleep.running.borrow().clone();
        if let Some(before) = before {
            self.sleep.publish(Running { console: console.clone(), statistics, ..before });
        }
        (self.console, self.readers, self.vcpus) = (console, readers, vcpus);
        suspend::resume(&bed, &machine).await?;
        self.machine = machine;
        self.sleep.gone = None;
        self.take(Event::Woken);
        self.follow_memory();
        self.spawn(|_, daemon| async move {
            for _ in 0..CLOCK_TRIES {
                let Err(error) = daemon.set_clock().await else { break };
                tracing::info!(%error, "the guest's clock is not set");
                tokio::time::sleep(CLOCK_PAUSE).await;
            }
            None
        });
        Ok(())
    }
}
