//! The runner's decisions as a pure state machine: what has been observed goes in, what is to be done comes out.
//!
//! ```text
//! Preparing ──QEMU runs──▶ Booting ──guest answers──▶ Running ──asked to stop──▶ Stopping ──QEMU gone──▶ Ended
//!                             └────────────asked to stop──────────────────────────▲
//! ```
//!
//! CPU, memory, pause, suspension and power button are small machines beside each other; each waits for observation, never for time,
//! except to try again what was not answered. While the guest is paused or suspended nothing is expected of it and nothing is sent to it.

mod cpu;
mod disks;
mod exit;
mod freeze;
mod limits;
mod memory;
mod pause;
mod stop;
mod suspend;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use neonvm_types::guest::ReportKind;
use neonvm_types::runner_protocol::{
    DiskRequest, Exit, ExitReason, LimitsByDisk, MachineInfo, MigrationGuest, MigrationRole, MigrationStatus,
    Problem, ProblemReason, ProcessExit, RunnerState, RunnerStatus, SizeRequest, SuspendRequest, WokenBy,
    WorkloadStatus,
};
use neonvm_types::{Bytes, MilliCpu};

pub use exit::QemuEnd;
pub use limits::DiskCounters;
pub use suspend::{Activity, Stays};

/// A workload that runs this long after a failure has recovered.
const RECOVERED: Duration = Duration::from_secs(60);

/// First pause between two attempts to reach a guest that boots; doubled up to [`ASK_LONGEST`].
const ASK_FIRST: Duration = Duration::from_millis(20);
const ASK_LONGEST: Duration = Duration::from_secs(1);
/// Shortest time for an answer: a packet sent before the guest has a network is lost, and only a new one is answered.
const ASK_WITHIN: Duration = Duration::from_millis(150);
/// A guest that does not report is queried from so long after its start. Earlier it has no network, and a packet sent
/// to it makes its address unreachable for a second.
const ASK_UNREPORTED: Duration = Duration::from_secs(2);
/// A guest that reports is queried when it reports that it is ready; if it never does, after this.
const ASK_OVERDUE: Duration = Duration::from_secs(20);

/// What has happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// QEMU runs, at the requested size.
    Started(MachineInfo),
    /// QEMU runs a VM that was migrated here; the source's data of its guest.
    TakenOver(MachineInfo, Option<MigrationGuest>),
    Moved(Box<MigrationStatus>),
    /// Another size is wanted.
    Resize(SizeRequest),
    /// Sizes of the volumes that disks use, at the start of QEMU.
    Disks(BTreeMap<String, Bytes>),
    /// The volume of a disk is larger.
    GrowDisk(DiskRequest),
    /// The disk has grown; and, if its file system grows at the next start only, why.
    DiskGrown(DiskRequest, Option<String>),
    /// It has not, or its file system has not.
    DiskNotGrown(DiskRequest, String),
    /// Disks are to have these limits, and no others.
    LimitDisks(LimitsByDisk),
    /// QEMU has them in force; or why it has not.
    DisksLimited(Result<LimitsByDisk, String>),
    /// After [`Action::LookAtDisks`].
    DisksSeen(BTreeMap<String, DiskCounters>),
    /// The guest's CPUs are to stand still, or to run.
    Pause(bool),
    /// QEMU has carried out [`Action::Pause`] (`true`) or [`Action::Continue`] (`false`).
    Paused(bool),
    /// QEMU has not.
    PauseFailed(String),
    /// The VM is to be suspended, or to run.
    Suspend(SuspendRequest),
    /// After [`Action::LookAtActivity`].
    Activity(Activity),
    /// A suspended guest is needed.
    Knock(WokenBy),
    /// After [`Action::Suspend`]: QEMU is gone, the guest's memory is in a file of this size, and so long it stood still until then.
    Suspended(Bytes, Duration),
    /// After [`Action::Suspend`]: the guest runs on.
    NotSuspended(Stays),
    /// After [`Action::Wake`]: the guest runs.
    Woken,
    /// A VM that QEMU stopped for lack of disk space may be tried again.
    DiskRoom,
    /// The runner is to stop within this time.
    Stop {
        /// Time that the containers have to end.
        grace: Duration,
    },
    /// QEMU reported how much memory the guest has.
    Memory(Bytes),
    /// The guest reported how many CPUs are online.
    Answered {
        /// Number of CPUs that are online.
        online: u32,
    },
    /// The guest did not answer.
    Silent(String),
    /// The quota of the vCPU threads is in force.
    QuotaSet(MilliCpu),
    /// It could not be set.
    QuotaFailed(String),
    Report(ReportKind),
    /// All synchronised files are in the guest.
    FilesSent,
    /// They are not.
    FilesFailed(String),
    /// QEMU stopped the VM because a disk of the node failed; `None`: it continues.
    DiskFault(Option<String>),
    Ended(QemuEnd),
    /// The time of [`Core::wake_at`] has come.
    Timer,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Set in QEMU how much memory the guest should have in all.
    SetMemory(Bytes),
    /// Hold the vCPU threads to this.
    SetQuota(MilliCpu),
    /// Bring so many CPUs on line; answered with [`Event::Answered`] or [`Event::Silent`].
    SetCpus(MilliCpu),
    /// Query how many CPUs are online, with this timeout; answered likewise.
    AskGuest(Duration),
    /// Grow a disk and its file system; answered with [`Event::DiskGrown`] or [`Event::DiskNotGrown`].
    GrowDisk(DiskRequest),
    /// Set these limits in QEMU, and none for other disks; answered with [`Event::DisksLimited`].
    LimitDisks(LimitsByDisk),
    /// Read what the guest has done with its disks; answered with [`Event::DisksSeen`].
    LookAtDisks,
    /// Stop the guest's CPUs; answered with [`Event::Paused`] or [`Event::PauseFailed`].
    Pause,
    /// Let them run; answered likewise.
    Continue,
    /// See what the VM has done so far; answered with [`Event::Activity`].
    LookAtActivity,
    /// Store the guest's memory and end QEMU; answered with [`Event::Suspended`] or [`Event::NotSuspended`].
    Suspend,
    /// Let the guest run on if [`Action::Suspend`] is not finished; answered by its answer.
    CancelSuspend,
    /// Start QEMU from the stored memory; answered with [`Event::Woken`], or with [`Event::Ended`] if that fails.
    Wake,
    PressPowerButton,
    /// End QEMU now.
    Kill,
}

/// How a VM is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub size: SizeRequest,
    /// Least CPU, most CPU.
    pub cpu: (MilliCpu, MilliCpu),
    /// Least memory, most memory.
    pub memory: (Bytes, Bytes),
    /// Memory changes in steps of this.
    pub slot: Bytes,
}

/// The state of one runner.
#[derive(Clone, Debug)]
pub struct Core {
    limits: Limits,
    now: Duration,
    status: RunnerStatus,
    cpu: cpu::Cpu,
    memory: memory::Memory,
    disks: disks::Disks,
    limits_of_disks: limits::Limits,
    freezes: freeze::Freezes,
    pause: pause::Pause,
    suspend: suspend::Suspend,
    stop: stop::Stop,
    /// Pause before a guest that has never answered is queried again, and when.
    asking: (Duration, Option<Duration>),
    /// Whether the guest is one that reports.
    reports: bool,
    /// The VM is being migrated: its size is not changed.
    held: bool,
    announced_shutdown: Option<String>,
    workload_exit: Option<ProcessExit>,
    /// Since when the workload runs, after a failure.
    recovering: Option<Duration>,
    faults: Vec<Problem>,
}

impl Core {
    /// A runner that holds its VM to these limits.
    pub fn new(limits: Limits) -> Self {
        let mut status = RunnerStatus::default();
        status.cpu.asked = limits.size.cpu;
        status.memory.asked = limits.size.memory;
        Self {
            limits,
            now: Duration::ZERO,
            status,
            cpu: cpu::Cpu::new(limits.size.cpu),
            memory: memory::Memory::new(limits.size.memory),
            disks: disks::Disks::default(),
            limits_of_disks: limits::Limits::default(),
            freezes: freeze::Freezes::default(),
            pause: pause::Pause::default(),
            suspend: suspend::Suspend::default(),
            stop: stop::Stop::default(),
            asking: (ASK_FIRST, None),
            reports: false,
            held: false,
            announced_shutdown: None,
            workload_exit: None,
            recovering: None,
            faults: Vec::new(),
        }
    }

    /// Continues the numbers of documents that were published before the first event.
    pub fn continue_after(&mut self, sequence: u64) {
        self.status.sequence = sequence;
    }

    /// The published status. `sequence` grows whenever a part of it changes.
    pub fn status(&self) -> &RunnerStatus {
        &self.status
    }

    /// When [`Event::Timer`] is wanted, if ever.
    pub fn wake_at(&self) -> Option<Duration> {
        if self.status.state == RunnerState::Ended {
            return None;
        }
        if self.stop.is_begun() {
            // Nothing else is tended to any more.
            return [self.stop.wake_at(self.is_still()), self.pause.wake_at()].into_iter().flatten().min();
        }
        let sized = !self.held && !self.is_still();
        let size = [self.cpu.wake_at(), self.memory.wake_at()].into_iter().flatten().filter(|_| sized);
        let recovered = self.recovering.map(|since| since + RECOVERED);
        let look = self.limits_of_disks.wake_at().filter(|_| self.watches_disks());
        [look, self.asking.1, recovered, self.pause.wake_at(), self.suspend.wake_at()]
            .into_iter()
            .flatten()
            .chain(size)
            .min()
    }

    /// Whether the guest runs, so that its disks are worth a look.
    fn watches_disks(&self) -> bool {
        self.status.state == RunnerState::Running && !self.is_still()
    }

    /// Whether the guest does not run, or may stop any moment.
    fn is_still(&self) -> bool {
        self.pause.is_still() || self.suspend.is_still()
    }

    /// Whether the VM is being migrated, so that its size cannot be changed.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// Whether the guest is paused, or to be, so that its size cannot be changed and it cannot be migrated.
    pub fn is_paused(&self) -> bool {
        self.pause.is_wanted() || self.pause.is_still()
    }

    /// Whether the VM is suspended, or on its way there or back, so that its size cannot be changed and it cannot be migrated.
    pub fn is_suspended(&self) -> bool {
        self.suspend.is_still()
    }

    /// Whether a disk grows now, so that the VM cannot be migrated.
    pub fn grows_disk(&self) -> bool {
        self.disks.are_growing()
    }

    /// Whether a disk may grow to a volume of this size; the message has the reason.
    pub fn check_disk(&self, request: &DiskRequest) -> Result<(), String> {
        self.disks.check(request)
    }

    /// The guest's data for the next runner.
    pub fn guest(&self) -> MigrationGuest {
        let (_, online) = self.cpu.observed();
        let mut faults = self.faults.iter();
        let not_started = faults.find(|fault| fault.reason == ProblemReason::WorkloadNotStarted);
        MigrationGuest {
            online,
            reports: self.reports,
            workload: self.status.workload,
            not_started: not_started.map(|fault| fault.message.clone()),
        }
    }

    /// Whether a size may be requested; the message names the field and the bounds.
    pub fn check(&self, size: &SizeRequest) -> Result<(), String> {
        let (least, most) = self.limits.cpu;
        if size.cpu < least || size.cpu > most {
            return Err(format!("cpu: {} is not between {least} and {most}", size.cpu));
        }
        let (least, most) = self.limits.memory;
        if size.memory < least || size.memory > most {
            return Err(format!("memory: {} is not between {least} and {most}", size.memory));
        }
        if !size.memory.is_multiple_of(self.limits.slot) {
            return Err(format!(
                "memory: {} is not a multiple of the slot size {}",
                size.memory, self.limits.slot
            ));
        }
        Ok(())
    }

    /// Takes in what has happened at `now`, counted from the start of the runner.
    pub fn step(&mut self, now: Duration, event: Event) -> Vec<Action> {
        self.now = self.now.max(now);
        let before = self.status.clone();
        let mut actions = Vec::new();
        if self.status.state != RunnerState::Ended {
            self.take(event, &mut actions);
            self.tend(&mut actions);
        }
        self.publish(&before);
        actions
    }

    fn take(&mut self, event: Event, actions: &mut Vec<Action>) {
        let now = self.now;
        match event {
            Event::Started(_) if self.status.state != RunnerState::Preparing => {}
            Event::Started(machine) => {
                self.status.machine = Some(machine);
                self.status.state = RunnerState::Booting;
                self.cpu.booted();
                self.asking.1 = Some(now + ASK_UNREPORTED);
            }
            Event::TakenOver(..) if self.status.state != RunnerState::Preparing => {}
            Event::TakenOver(machine, guest) => self.taken_over(machine, guest),
            Event::Moved(status) => {
                self.held = status.role == MigrationRole::Source && !status.state.is_over();
                self.status.migration = Some(*status);
            }
            Event::Resize(size) => {
                self.status.memory.asked = size.memory;
                actions.extend(self.memory.ask(now, size.memory));
                if size.cpu != self.status.cpu.asked {
                    self.status.cpu.asked = size.cpu;
                    actions.extend(self.cpu.ask(now, size.cpu));
                }
            }
            Event::Disks(sizes) => self.disks.found(sizes),
            Event::GrowDisk(request) => actions.extend(self.disks.ask(request)),
            Event::DiskGrown(request, later) => actions.extend(self.disks.grown(request, later)),
            Event::DiskNotGrown(request, why) => self.disks.failed(request, why),
            Event::LimitDisks(limits) => actions.extend(self.limits_of_disks.ask(limits)),
            Event::DisksLimited(set) => actions.extend(self.limits_of_disks.set(now, set)),
            Event::DisksSeen(counters) => self.limits_of_disks.look(now, &counters),
            Event::Pause(paused) => self.pause.want(paused),
            Event::Paused(paused) => self.paused(paused),
            Event::PauseFailed(why) => actions.extend(self.pause_failed(why)),
            Event::Suspend(request) => self.suspend.ask(now, request),
            Event::Activity(activity) => self.suspend.seen(now, activity),
            Event::Knock(by) => self.suspend.knock(now, by),
            Event::Suspended(stored, took) => self.suspend.stored(stored, took),
            Event::NotSuspended(why) => {
                self.suspend.stays(now, why);
                self.goes_on();
            }
            Event::Woken => {
                self.suspend.woken(now);
                self.goes_on();
                actions.extend(self.limits_of_disks.again());
            }
            Event::DiskRoom if self.suspend.is_still() => {}
            Event::DiskRoom => actions.extend(self.pause.room()),
            Event::Stop { grace } => self.stop.begin(now, grace),
            Event::Memory(actual) => self.memory.observe(now, actual),
            Event::Answered { online } => {
                self.asking = (ASK_FIRST, None);
                self.cpu.answered(now, online);
            }
            Event::Silent(why) => self.silent(&why),
            Event::QuotaSet(cpu) => self.cpu.quota(now, Ok(cpu)),
            Event::QuotaFailed(why) => self.cpu.quota(now, Err(why)),
            Event::Report(report) => self.report(report, actions),
            Event::FilesSent => self.fault(ProblemReason::FilesNotSynchronised, None),
            Event::FilesFailed(_) if self.is_still() => {}
            Event::FilesFailed(why) => self.fault(ProblemReason::FilesNotSynchronised, Some(why)),
            Event::DiskFault(why) => self.fault(ProblemReason::DiskFailure, why),
            Event::Ended(end) => self.ended(&end),
            Event::Timer => {
                if self.asking.1.is_some_and(|at| at <= now) {
                    self.ask(actions);
                }
            }
        }
    }

    /// The guest is up, and does not repeat what it reported to the source.
    fn taken_over(&mut self, machine: MachineInfo, guest: Option<MigrationGuest>) {
        self.status.machine = Some(machine);
        self.status.state = RunnerState::Booting;
        self.cpu.booted();
        let guest = guest.unwrap_or_default();
        self.reports = guest.reports;
        self.status.workload = guest.workload;
        self.fault(ProblemReason::WorkloadNotStarted, guest.not_started);
        self.workload_exit = guest.workload.and_then(|workload| workload.last_exit);
        if guest.online > 0 {
            self.cpu.answered(self.now, guest.online);
        } else {
            self.asking = (ASK_FIRST, Some(self.now));
        }
    }

    fn ask(&mut self, actions: &mut Vec<Action>) {
        self.asking.1 = None;
        actions.push(Action::AskGuest((self.asking.0 * 8).clamp(ASK_WITHIN, ASK_LONGEST)));
    }

    /// What follows from the state, whatever brought it about.
    fn tend(&mut self, actions: &mut Vec<Action>) {
        match self.status.state {
            RunnerState::Preparing | RunnerState::Ended => return,
            RunnerState::Booting | RunnerState::Running | RunnerState::Stopping => {}
        }
        if self.stop.is_begun() {
            self.status.state = RunnerState::Stopping;
            self.asking.1 = None;
            actions.extend(self.pause.tend(self.now, false));
            actions.extend(self.suspend.tend(self.now, false, true));
            let noticed = self.announced_shutdown.is_some();
            actions.extend(self.stop.tend(self.now, noticed, self.is_still()));
            return;
        }
        // A guest without a workload is up, too: people find out why in it.
        let workload = !self.reports
            || self.status.workload.is_some()
            || self.has_fault(ProblemReason::WorkloadNotStarted);
        if self.status.state == RunnerState::Booting && self.cpu.has_answered() && workload {
            self.status.state = RunnerState::Running;
            self.memory.guest_is_up(self.now);
        }
        if self.recovering.is_some_and(|since| self.now >= since + RECOVERED) {
            self.recovering = None;
            self.fault(ProblemReason::WorkloadFailing, None);
        }
        let up = self.status.state == RunnerState::Running;
        if !self.suspend.is_still() {
            actions.extend(self.pause.tend(self.now, up && !self.held));
        }
        let may = up && !self.held && !self.pause.is_still() && !self.disks.are_growing();
        actions.extend(self.suspend.tend(self.now, may, false));
        if self.watches_disks() {
            actions.extend(self.limits_of_disks.tend(self.now));
        }
        if self.held || self.is_still() {
            return;
        }
        actions.extend(self.cpu.tend(self.now));
        actions.extend(self.cpu.lower(self.now, self.memory.is_settled()));
        actions.extend(self.memory.tend(self.now));
    }

    /// What the guest owes is counted from the moment at which it runs again.
    fn paused(&mut self, paused: bool) {
        let still = self.pause.is_still();
        self.pause.reached(paused);
        if still {
            self.goes_on();
        }
    }

    fn pause_failed(&mut self, why: String) -> Option<Action> {
        self.pause.failed(self.now, why);
        // A guest that cannot be continued never notices the power button.
        if self.stop.is_begun() && self.is_still() { self.stop.give_up() } else { None }
    }

    fn goes_on(&mut self) {
        if !self.is_still() {
            self.cpu.restart(self.now);
            self.memory.restart(self.now);
        }
    }

    fn silent(&mut self, why: &str) {
        if self.is_still() {
            self.cpu.restart(self.now);
        } else if self.cpu.has_answered() {
            self.cpu.silent(self.now, why);
        } else if self.status.state == RunnerState::Booting {
            self.asking = ((self.asking.0 * 2).min(ASK_LONGEST), Some(self.now + self.asking.0));
        }
    }

    fn report(&mut self, report: ReportKind, actions: &mut Vec<Action>) {
        self.reports = true;
        match report {
            ReportKind::Booted { .. } => {
                if self.asking.1.is_some() {
                    self.asking.1 = Some(self.now + ASK_OVERDUE);
                }
            }
            ReportKind::Ready => {
                if !self.cpu.has_answered() {
                    self.asking.0 = ASK_FIRST;
                    self.ask(actions);
                }
            }
            ReportKind::WorkloadStarted { restarts, .. } => {
                self.recovering = self.has_fault(ProblemReason::WorkloadFailing).then_some(self.now);
                self.fault(ProblemReason::WorkloadNotStarted, None);
                self.status.workload =
                    Some(WorkloadStatus { running: true, restarts, last_exit: self.workload_exit });
            }
            ReportKind::WorkloadExited { code, signal, out_of_memory } => {
                let exit = ProcessExit { code, signal, out_of_memory };
                self.workload_exit = Some(exit);
                self.recovering = None;
                // One that could not be started has a better reason.
                if exit.code != Some(0) && !self.has_fault(ProblemReason::WorkloadNotStarted) {
                    // Without a number: each change of a message is a write to the API server.
                    let message = format!("{}; it is started again inside the guest", exit::describe(exit));
                    self.fault(ProblemReason::WorkloadFailing, Some(message));
                }
                let restarts = self.status.workload.map_or(0, |workload| workload.restarts);
                self.status.workload =
                    Some(WorkloadStatus { running: false, restarts, last_exit: Some(exit) });
            }
            ReportKind::Failure { message, workload: true } => {
                self.fault(ProblemReason::WorkloadNotStarted, Some(message));
            }
            ReportKind::Failure { message, workload: false } => {
                // Each part of the boot fails once; the newest is enough for people who have the log.
                self.fault(ProblemReason::GuestFailure, Some(message));
            }
            ReportKind::FreezeExpired { .. } => self.freezes.expired(self.now),
            ReportKind::ShuttingDown { reason } => self.announced_shutdown = Some(reason),
        }
    }

    fn has_fault(&self, reason: ProblemReason) -> bool {
        self.faults.iter().any(|fault| fault.reason == reason)
    }

    fn fault(&mut self, reason: ProblemReason, message: Option<String>) {
        self.faults.retain(|fault| fault.reason != reason);
        self.faults.extend(message.map(|message| Problem { reason, message }));
    }

    fn ended(&mut self, end: &QemuEnd) {
        let mut exit: Exit =
            exit::from_end(end, self.stop.is_begun(), self.announced_shutdown.as_deref(), self.workload_exit);
        if exit.reason == ExitReason::Rebooted && self.status.state == RunnerState::Booting && !self.reports {
            exit = exit::never_up(end, self.limits.size.memory);
        }
        let not_started = self.faults.iter().find(|fault| fault.reason == ProblemReason::WorkloadNotStarted);
        if let Some(fault) = not_started {
            exit = exit::without_workload(exit, &fault.message);
        }
        self.status.exit = Some(exit);
        self.status.state = RunnerState::Ended;
    }

    fn publish(&mut self, before: &RunnerStatus) {
        self.status.ready = self.status.state == RunnerState::Running;
        (self.status.cpu.applied, self.status.cpu.online) = self.cpu.observed();
        self.status.memory.actual = self.memory.actual();
        self.status.pause = self.pause.status();
        self.status.suspend = self.suspend.status();
        self.status.disks.clone_from(self.disks.sizes());
        self.status.disk_limits = self.limits_of_disks.status();
        self.status.freezes_expired = self.freezes.count();
        let mut problems = self.faults.clone();
        problems.extend(self.cpu.problems());
        problems.extend(self.memory.problem());
        problems.extend(self.pause.problem());
        problems.extend(self.suspend.problem());
        problems.extend(self.disks.problem());
        problems.extend(self.limits_of_disks.problem());
        problems.extend(self.stop.problem());
        problems.sort_by_key(|problem| problem.reason);
        self.status.problems = problems;
        if self.status != *before {
            self.status.sequence = before.sequence + 1;
        }
    }
}
