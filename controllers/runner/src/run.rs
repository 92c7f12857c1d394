//! One VM from start to end: the loop that feeds [`neonvm_core_vm_lifecycle::runner::Core`] and carries out its actions.

mod act;
mod disks;
mod limits;
mod migration;
mod suspend;
mod vcpus;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use neonvm_hypervisor::cgroup::{CpuGroup, Hierarchy};
use neonvm_hypervisor::machine::{Machine, MachineEvent, QemuExit};
use neonvm_types::runner_protocol::{
    Exit, ExitReason, MachineInfo, RunnerState, RunnerStatus, SizeRequest, WokenBy,
};
use neonvm_types::{Bytes, MilliCpu};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{broadcast, mpsc, watch as channel};

use crate::api::{self, Own, Running, Shared};
use crate::command::{Command, Refusal};
use crate::config::PodFiles;
use crate::console::Console;
use crate::guest::daemon::Daemon;
use crate::logs::Log;
use crate::migration::volumes::{self, Volume};
use crate::migration::{Message, Moving, QUEUE as MESSAGES};
use crate::options::Options;
use crate::prepare::{Error, Prepared, prepare};
use neonvm_core_vm_lifecycle::runner::{Core, Event, Limits, QemuEnd};

/// Events that wait for the loop.
const QUEUE: usize = 64;
/// Name of the cgroup of the vCPU threads, below that of the pod.
const GROUP: &str = "vcpus";
/// Time to read the last output of the VM, to notify its source, and for its cgroup to empty.
const LAST_OUTPUT: Duration = Duration::from_secs(2);

/// The runtime for [`run`]. It has one thread: a VM needs little.
///
/// # Errors
/// If the kernel has no descriptors left.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Runs the VM of this pod to its end. Everything it made is gone when this returns.
pub async fn run(options: &Options, log: &Log) -> Exit {
    let exit = match start(options, log).await {
        Ok(exit) => exit,
        Err(error) => {
            tracing::error!(%error, "the VM cannot be started");
            Exit::new(ExitReason::StartFailure, error.to_string())
        }
    };
    tracing::info!(reason = exit.reason.as_str(), message = exit.message, "the VM has ended");
    if let Err(error) = std::fs::write(&options.termination_log, exit.to_message()) {
        tracing::warn!(path = %options.termination_log.display(), %error, "cannot write the termination message");
    }
    exit
}

/// Signals that request the end.
struct Signals(Signal, Signal);

impl Signals {
    fn new() -> Result<Self, Error> {
        let on = |kind| signal(kind).map_err(|error| Error::Task(format!("signals: {error}")));
        Ok(Self(on(SignalKind::terminate())?, on(SignalKind::interrupt())?))
    }

    async fn next(&mut self) {
        tokio::select! { _ = self.0.recv() => {}, _ = self.1.recv() => {} }
    }
}

async fn start(options: &Options, log: &Log) -> Result<Exit, Error> {
    let begun = Instant::now();
    crate::rights::hide().map_err(Error::Task)?;
    let mut signals = Signals::new()?;
    let pod = Arc::new(PodFiles::load(&options.root, &options.seal)?);
    let core = Core::new(limits(&pod)?);
    let (status, status_seen) = channel::channel(Arc::new(core.status().clone()));
    let (running, running_seen) = channel::channel(None);
    let (commands, received) = mpsc::channel(QUEUE);
    let own = Own {
        machine: neonvm_types::runner_protocol::server_name(&pod.config.uid),
        agent: options.node.as_deref().map(neonvm_kit::authority::agent_common_name),
    };
    let bodies = Arc::default();
    let shared = Arc::new(Shared {
        own,
        counts_traffic: pod.config.spec.enable_network_monitoring,
        status: status_seen,
        commands,
        running: running_seen,
        bodies,
    });
    serve(options, &pod, &shared).await?;
    let renewed = Arc::clone(&pod);
    tokio::spawn(async move { renewed.certificate.keep().await });
    // Requested to stop while nothing runs: there is nothing to power off.
    let prepared = tokio::select! {
        prepared = prepare(options, &pod, &status) => prepared?,
        () = signals.next() => {
            let reason = if pod.config.receive.is_some() { ExitReason::MigrationFailed } else { ExitReason::Stopped };
            return Ok(Exit::new(reason, "stopped before the VM was started"));
        }
    };
    for note in &prepared.notes {
        tracing::warn!("{note}");
    }
    for note in [&prepared.accelerator_note, &prepared.root_size_note] {
        if !note.is_empty() {
            tracing::warn!("{note}");
        }
    }
    let machine = Loop::begin(options, &pod, prepared, core, log, begun, status, running).await?;
    Ok(machine.turn(received, signals).await)
}

/// The interface, on the pod's addresses and inside the container.
async fn serve(options: &Options, pod: &PodFiles, shared: &Arc<Shared>) -> Result<(), Error> {
    let failed = |what: &str, error: &dyn std::fmt::Display| Error::Task(format!("{what}: {error}"));
    let port = pod.config.spec.runner_port;
    let tls = neonvm_kit::tls::server_with(pod.certificate.shown(), pod.certificate.trust());
    let mut tls = tls.map_err(|error| failed("certificate", &error))?;
    // Streams are upgrades, which HTTP/2 has not; and one protocol is enough.
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    api::listen_with_tls(shared, &options.addresses, port, tls)
        .await
        .map_err(|error| failed(&format!("spec.runnerPort {port} cannot be listened on"), &error))?;
    let directory = pod.run_directory()?;
    let handle = std::fs::File::open(&directory).map_err(|error| failed("run directory", &error))?;
    // Addresses of sockets are short; the path of the pod may not be.
    let socket = crate::config::through(&handle).join(neonvm_api::runner_pod::RUN_SOCKET);
    api::listen_locally(shared, &socket).map_err(|error| failed("local socket", &error))
}

fn limits(pod: &PodFiles) -> Result<Limits, Error> {
    let guest = &pod.config.spec.guest;
    let slot = guest
        .slot_size()
        .map_err(|error| Error::Spec { field: "spec.guest.memorySlotSize", reason: error.to_string() })?;
    let memory = |slots: u16| slot.saturating_mul(u32::from(slots));
    let own = SizeRequest { cpu: guest.cpus.r#use, memory: memory(guest.memory_slots.r#use) };
    Ok(Limits {
        size: pod.config.receive.as_ref().map_or(own, |receive| receive.size),
        // The minimum may be lowered while the VM runs.
        cpu: (MilliCpu::new(1), guest.cpus.max),
        memory: (memory(guest.memory_slots.min), memory(guest.memory_slots.max)),
        slot,
    })
}

/// Time for the guest to power off, by its specification.
fn grace(pod: &PodFiles) -> Duration {
    let seconds = pod.config.spec.termination_grace_period_seconds.unwrap_or(5);
    Duration::from_secs(seconds.max(0).unsigned_abs())
}

/// The VM and all that belongs to it.
struct Loop {
    machine: Arc<Machine>,
    core: Core,
    begun: Instant,
    status: channel::Sender<Arc<RunnerStatus>>,
    events: mpsc::Sender<Event>,
    event_queue: mpsc::Receiver<Event>,
    from_qemu: broadcast::Receiver<MachineEvent>,
    group: Option<Arc<CpuGroup>>,
    vcpus: Arc<vcpus::Vcpus>,
    daemon: Daemon,
    console: Console,
    readers: Vec<tokio::task::JoinHandle<()>>,
    services: Vec<tokio::task::JoinHandle<()>>,
    asking: Option<tokio::task::JoinHandle<()>>,
    following: Option<tokio::task::JoinHandle<()>>,
    memory_base: Bytes,
    killed: bool,
    grace: Duration,
    pod: Arc<PodFiles>,
    info: MachineInfo,
    /// The migration in progress, or the last; and its messages.
    moving: Option<Moving>,
    messages: mpsc::Sender<Message>,
    moved: mpsc::Receiver<Message>,
    /// Number of the last migration to another node.
    moves: u64,
    /// Disks for the next runner.
    volumes: Arc<Vec<Volume>>,
    /// Of the guest on the overlay, if it is there.
    frames: Option<Arc<crate::network::Frames>>,
    sleep: suspend::Sleep,
}

impl Loop {
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one machine, put together here and nowhere else"
    )]
    async fn begin(
        options: &Options,
        pod: &Arc<PodFiles>,
        prepared: Prepared,
        mut core: Core,
        log: &Log,
        begun: Instant,
        status: channel::Sender<Arc<RunnerStatus>>,
        running: channel::Sender<Option<Running>>,
    ) -> Result<Self, Error> {
        let (plan, info) = (prepared.plan.clone(), prepared.info());
        let bed = suspend::bed(pod, &plan, &prepared.resources)?;
        let started = Machine::start(prepared.plan, prepared.resources);
        // The node makes the cgroup while QEMU starts.
        let (machine, group) = tokio::join!(started, act::group(options, pod, &status));
        // The preparation may have reported what it waited for.
        core.continue_after(status.borrow().sequence);
        let machine = Arc::new(machine.map_err(|error| Error::Task(error.to_string()))?);
        let from_qemu = machine.events();
        let (events, event_queue) = mpsc::channel(QUEUE);
        let (console, readers) = watch::attach(&machine, log, &events);
        let (group, group_problem) = act::limit(options, pod, &machine, group).await;
        let daemon = Daemon::new(prepared.reach.clone());
        let (vcpus, statistics) = act::statistics(&machine, group.as_ref(), begun, daemon.clone()).await;
        let disks = Arc::new(volumes::of_disks(&plan.disks));
        let offered = Running {
            console: console.clone(),
            reach: prepared.reach,
            statistics,
            disks: Arc::new(crate::guest::disks::Disks::new(daemon.clone(), &pod.config)),
            volumes: Arc::clone(&disks),
            meter: prepared.meter,
            streams: Arc::default(),
        };
        let sleep = suspend::Sleep::new(bed, log, running, offered);
        let (messages, moved) = mpsc::channel(MESSAGES);
        let info = MachineInfo { qemu_version: machine.version().to_string(), ..info };
        let mut this = Self {
            memory_base: plan.memory.min,
            machine,
            core,
            begun,
            status,
            events,
            event_queue,
            from_qemu,
            group,
            vcpus,
            daemon,
            console,
            readers,
            services: prepared.services,
            asking: None,
            following: None,
            killed: false,
            grace: options.grace.unwrap_or_else(|| grace(pod)),
            pod: Arc::clone(pod),
            info,
            moving: None,
            messages,
            moved,
            moves: 0,
            volumes: disks,
            frames: prepared.frames,
            sleep,
        };
        if let Some(problem) = group_problem {
            this.take(Event::QuotaFailed(problem));
        }
        this.limit_from_start().await;
        match &pod.config.receive {
            Some(receive) => this.receive(options, receive).await?,
            None => this.boot().await?,
        }
        Ok(this)
    }

    async fn boot(&mut self) -> Result<(), Error> {
        self.take(Event::Started(self.info.clone()));
        self.machine.continue_().await.map_err(|error| Error::Task(format!("QEMU: {error}")))?;
        let (accelerator, machine) = (self.info.accelerator.as_str(), self.info.machine_type.as_str());
        tracing::info!(accelerator, machine, "the guest boots");
        self.keep_files();
        self.follow_memory();
        Ok(())
    }

    /// Keeps the guest's files in step with the pod's from now on.
    fn keep_files(&mut self) {
        self.services.push(watch::files(&self.pod, &self.daemon, &self.events));
    }

    /// Until the VM has ended.
    async fn turn(mut self, mut commands: mpsc::Receiver<Command>, mut signals: Signals) -> Exit {
        self.find_disks().await;
        loop {
            if let Some(exit) = self.turn_one(&mut commands, &mut signals).await {
                return self.finish(exit).await;
            }
        }
    }

    /// Until its QEMU has ended, or until another QEMU runs the VM (`None`).
    async fn turn_one(
        &mut self,
        commands: &mut mpsc::Receiver<Command>,
        signals: &mut Signals,
    ) -> Option<QemuExit> {
        let machine = Arc::clone(&self.machine);
        let end = machine.wait();
        tokio::pin!(end);
        loop {
            let moving = self.moving.as_ref().and_then(Moving::wake_at);
            let wake = [self.core.wake_at(), moving].into_iter().flatten().min();
            let wake = wake.map(|at| tokio::time::Instant::from_std(self.begun + at));
            let timer = async {
                match wake {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let knock = self.sleep.knock();
            tokio::select! {
                exit = &mut end, if !self.sleep.is_gone() => {
                    if !self.core.is_suspended() {
                        return Some(exit);
                    }
                    self.sleep.gone(exit);
                }
                () = knock => self.take(Event::Knock(WokenBy::Network)),
                Some(woken) = self.sleep.woken() => return self.revive(woken).await,
                Some(event) = self.event_queue.recv() => {
                    self.take(event);
                    if !self.core.is_suspended() && self.sleep.is_gone() {
                        return self.sleep.exit();
                    }
                }
                event = self.from_qemu.recv() => self.take_qemu_event(event),
                Some(message) = self.moved.recv() => self.take_move_message(message),
                Some(command) = commands.recv() => self.command(command),
                () = signals.next() => self.stop(),
                () = timer => {
                    self.take(Event::Timer);
                    self.wake_move();
                }
            }
        }
    }

    fn take(&mut self, event: Event) {
        tracing::debug!(?event);
        let actions = self.core.step(self.begun.elapsed(), event);
        for action in actions {
            tracing::debug!(?action);
            self.act(action);
        }
        let status = self.core.status();
        if status.ready && !self.status.borrow().ready && status.memory.actual != status.memory.asked {
            // The guest has come so far that it takes the rest of its memory.
            self.follow_memory();
        }
        self.listen();
        let status = self.core.status();
        if self.status.borrow().sequence != status.sequence {
            self.status.send_replace(Arc::new(status.clone()));
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::PowerOff => self.stop(),
            Command::Resize(size, answer) => drop(answer.send(self.resize(size))),
            Command::GrowDisk(request, answer) => drop(answer.send(self.accept_growth(request))),
            Command::LimitDisks(request, answer) => drop(answer.send(self.accept_limits(request))),
            Command::Pause(paused, answer) => drop(answer.send(self.pause(paused))),
            Command::Suspend(request, answer) => drop(answer.send(self.suspend(request))),
            Command::Knock => self.take(Event::Knock(WokenBy::Command)),
            Command::Move(request, answer) => drop(answer.send(self.begin_move(request))),
            Command::CancelMove(call, answer) => drop(answer.send(self.cancel_move(&call))),
            Command::RecoverMove(call, answer) => drop(answer.send(self.recover_move(&call))),
            Command::SettleMove(verdict, answer) => drop(answer.send(self.settle_move(&verdict))),
        }
    }

    fn resize(&mut self, size: SizeRequest) -> Result<(), Refusal> {
        self.core.check(&size).map_err(Refusal::Wrong)?;
        if self.core.is_held() || self.core.status().state == RunnerState::Preparing && self.moving.is_some()
        {
            return Err(Refusal::Conflict("the VM moves: its size can be changed afterwards".to_owned()));
        }
        if self.core.is_suspended() {
            return Err(Refusal::Conflict(
                "the VM is suspended: its size can be changed when it is awake".to_owned(),
            ));
        }
        if self.core.is_paused() {
            return Err(Refusal::Conflict(
                "the VM is paused: its size can be changed when it is resumed".to_owned(),
            ));
        }
        tracing::info!(cpu = %size.cpu, memory = %size.memory, "another size is wanted");
        self.take(Event::Resize(size));
        Ok(())
    }

    /// A VM can be resumed at any time; while it moves, or comes from another runner, it is not paused.
    fn pause(&mut self, paused: bool) -> Result<(), Refusal> {
        let moves = self.moving.as_ref().is_some_and(|moving| !moving.status().state.is_over());
        if paused && moves {
            return Err(Refusal::Conflict("the VM moves: it can be paused afterwards".to_owned()));
        }
        tracing::info!(paused, "the guest is to stand still, or to run");
        self.take(Event::Pause(paused));
        Ok(())
    }

    fn stop(&mut self) {
        if self.stop_move() {
            tracing::info!(grace = self.grace.as_secs(), "asked to stop: the power button is pressed");
            self.take(Event::Stop { grace: self.grace });
        }
    }

    fn take_qemu_event(&mut self, event: Result<MachineEvent, broadcast::error::RecvError>) {
        match event {
            Ok(MachineEvent::MemoryChanged(plugged)) => {
                self.take(Event::Memory(self.memory_base.saturating_add(plugged)));
            }
            Ok(MachineEvent::AcceleratorFailed) => {
                tracing::error!("the accelerator cannot run this guest");
                self.machine.kill();
            }
            Ok(MachineEvent::DiskFailed { disk, full, stopped, reason, .. }) => {
                let what = if full { "the node's disk is full" } else { reason.as_str() };
                let then = if stopped { "; the VM stands still until there is room" } else { "" };
                self.take(Event::DiskFault(Some(format!("disk {disk}: {what}{then}"))));
                if stopped {
                    self.go_on_later();
                }
            }
            Ok(MachineEvent::Resumed) => self.take(Event::DiskFault(None)),
            Ok(event) => tracing::debug!(?event, "QEMU"),
            Err(broadcast::error::RecvError::Lagged(_)) => self.follow_memory(),
            // QEMU is gone; its end comes by itself.
            Err(broadcast::error::RecvError::Closed) => self.from_qemu = self.machine.events(),
        }
    }

    async fn finish(mut self, exit: QemuExit) -> Exit {
        // The last lines of the console are on their way.
        for reader in std::mem::take(&mut self.readers) {
            let _ = tokio::time::timeout(LAST_OUTPUT, reader).await;
        }
        while let Ok(event) = self.event_queue.try_recv() {
            self.take(event);
        }
        let moved = self.end_of_move(&exit).or_else(|| self.sleep.loss());
        self.sleep.end();
        let _ = tokio::time::timeout(LAST_OUTPUT, self.notify_source()).await;
        let end = QemuEnd {
            moved,
            cause: exit.shutdown.as_ref().map(|(_, cause)| cause.clone()),
            internal_error: exit.internal_error,
            panicked: exit.guest_panicked,
            forced: self.killed,
            words: exit.to_string(),
            console: self.console.tail(),
        };
        self.take(Event::Ended(end));
        for task in self.services.drain(..).chain(self.asking.take()).chain(self.following.take()) {
            task.abort();
        }
        let status = self.core.status().clone();
        debug_assert_eq!(status.state, RunnerState::Ended);
        if let Some(group) = self.group.take().and_then(Arc::into_inner)
            && let Err(error) = group.remove(LAST_OUTPUT).await
        {
            tracing::warn!(%error, "the cgroup is left over");
        }
        // Watchers get the last document before the process ends.
        tokio::time::sleep(Duration::from_millis(50)).await;
        status.exit.unwrap_or_else(|| Exit::new(ExitReason::QemuEnded, exit.to_string()))
    }
}
