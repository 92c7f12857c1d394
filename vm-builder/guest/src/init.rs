//! PID 1: sets the VM up, starts what is to run, sees what ends, and ends the VM in order.
//!
//! One thread and one loop over descriptors and deadlines. Nothing here waits for a child, a disk check or the network;
//! decisions are in [`shutdown`] and [`crate::process::restart`].

mod attached;
mod events;
mod finish;
mod marker;
mod setup;
pub mod shutdown;
mod status;
mod supervise;
mod synchronised;
mod unit;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use neonvm_types::guest::{Network, ReportKind, RestartPolicy};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::config::{Accounts, CommandLine};
use crate::device::power_button::{self, PowerButton};
use crate::device::uevent;
use crate::limits::Limits;
use crate::log::Pipes;
use crate::process::freezer::Freezer;
use crate::report::{self, Reporter};

use marker::Marker;
use shutdown::{Event, Shutdown, Target};
use synchronised::Synchronised;
use unit::Unit;

/// Set in the environment of our own helpers.
pub const CHILD_MARKER: &str = "NEONVM_INIT";
/// Set when a newer program from the runtime volume has taken over, so that it happens once.
const REPLACED: &str = "NEONVM_GUEST_REPLACED";

struct Init {
    line: CommandLine,
    epoll: OwnedFd,
    signals: OwnedFd,
    uevents: Option<uevent::Listener>,
    buttons: Vec<PowerButton>,
    reporter: Reporter,
    reports: Option<(OwnedFd, OwnedFd)>,
    report_bytes: Vec<u8>,
    pipes: Pipes,
    /// Streams of the workload that a client has, if it has any.
    attached: Option<attached::Attached>,
    accounts: Accounts,
    limits: Limits,
    network: Option<Network>,
    units: Vec<Unit>,
    /// Services that boot or shutdown wait for, one after the other.
    queue: VecDeque<usize>,
    queue_runs: Option<usize>,
    /// Whether the rest was started after the queue.
    gone: bool,
    policy: RestartPolicy,
    stop_signal: i32,
    marker: Marker,
    synchronised: Synchronised,
    freezer: Freezer,
    workload: Workload,
    shutdown: Shutdown,
    pending: VecDeque<Event>,
}

#[derive(Default)]
struct Workload {
    lock: Option<OwnedFd>,
    /// Its main process is gone, others of it may not be yet.
    dying: bool,
    memory_kills: u64,
    last_exit: Option<status::LastExit>,
    noted: Option<status::Status>,
}

/// Runs as PID 1. Never returns, whatever happens.
pub fn run() -> ! {
    let problems = setup::mounts();
    let mut boot = setup::Boot::new(problems);
    let started = Init::open(&mut boot);
    match started {
        Ok(mut init) => {
            init.boot(boot);
            loop {
                init.turn();
            }
        }
        Err(error) => {
            report::console(&format!("init cannot work: {error}"));
            loop {
                // Orphans are still reaped, so that a login by other means stays possible.
                let _ = rustix::process::wait(rustix::process::WaitOptions::empty());
                std::thread::sleep(Duration::from_secs(1));
            }
        }
    }
}

impl Init {
    fn open(boot: &mut setup::Boot) -> io::Result<Self> {
        let signals = crate::system::signal_descriptor(&crate::system::INIT_SIGNALS)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &signals, EventData::new_u64(events::SIGNALS), EventFlags::IN)?;
        let uevents =
            uevent::Listener::open().map_err(|error| boot.problem(format!("listen for devices: {error}")));
        let uevents = uevents.ok();
        if let Some(uevents) = &uevents {
            epoll::add(&epoll, uevents.descriptor(), EventData::new_u64(events::UEVENTS), EventFlags::IN)?;
        }
        let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
        let reports = rustix::pipe::pipe_with(flags).ok();
        if let Some((reader, writer)) = &reports {
            // Children may wait until we read; we never wait for them.
            rustix::fs::fcntl_setfl(writer, rustix::fs::OFlags::empty())?;
            epoll::add(&epoll, reader, EventData::new_u64(events::REPORTS), EventFlags::IN)?;
        }
        // Ctrl-Alt-Del becomes a signal to us instead of a reset.
        let _ = rustix::system::reboot(rustix::system::RebootCommand::CadOff);
        Ok(Self {
            line: boot.line.clone(),
            epoll,
            signals,
            uevents,
            buttons: Vec::new(),
            reporter: Reporter::default(),
            reports,
            report_bytes: Vec::new(),
            pipes: Pipes::default(),
            attached: None,
            accounts: Accounts::default(),
            limits: Limits::default(),
            network: None,
            units: Vec::new(),
            queue: VecDeque::new(),
            queue_runs: None,
            gone: false,
            policy: RestartPolicy::Always,
            stop_signal: libc::SIGTERM,
            marker: Marker::default(),
            synchronised: Synchronised::default(),
            freezer: Freezer::default(),
            workload: Workload::default(),
            shutdown: Shutdown::new(false, shutdown::GRACE),
            pending: VecDeque::new(),
        })
    }

    /// From mounted basics to everything started that does not wait for something.
    fn boot(&mut self, mut boot: setup::Boot) {
        // First of all: a press before this process reads the button is lost, and the host may press only once.
        self.open_buttons();
        self.open_report_port();
        self.reporter.report(ReportKind::Booted { version: env!("CARGO_PKG_VERSION").into() });
        boot.machine();
        let settings = boot.settings();
        self.limits = boot.apply(&settings);
        self.network.clone_from(&settings.runtime.network);
        self.marker = Marker::allow();
        if let Err(error) = self.pipes.make_named() {
            boot.problem(format!("make the log pipe: {error}"));
        }
        self.accounts = Accounts::read();
        self.policy = settings.runtime.restart_policy;
        let grace = self.line.stop_timeout.unwrap_or(shutdown::GRACE);
        self.shutdown = Shutdown::new(settings.image.shutdown_hook.is_some(), grace);
        self.synchronised = Synchronised::watch(&settings.runtime.synchronised_paths, &self.epoll);
        self.make_units(&settings, &boot);
        for problem in boot.take_problems() {
            self.reporter.failure(problem);
        }
        self.settle();
        // Off the way to the workload: it has been started by now, unless it waits for something.
        crate::device::port::link_all();
    }

    /// Waits for the next thing to happen, and deals with it.
    fn turn(&mut self) {
        let mut happened = Vec::with_capacity(16);
        let timeout = self.wake_at().map(|at| at.saturating_sub(report::uptime()));
        let timeout = timeout.and_then(|wait| rustix::event::Timespec::try_from(wait).ok());
        // An interrupted wait is one without events.
        let buffer = rustix::buffer::spare_capacity(&mut happened);
        if epoll::wait(&self.epoll, buffer, timeout.as_ref()).is_err() {
            happened.clear();
        }
        for event in happened {
            self.handle(event.data.u64());
        }
        self.settle();
    }

    fn wake_at(&self) -> Option<Duration> {
        let units = self.units.iter().filter_map(Unit::wake_at);
        let dying = self.workload.dying.then(|| report::uptime().saturating_add(supervise::DYING_PAUSE));
        units.chain(self.shutdown.wake_at()).chain(dying).chain(self.freezer.wake_at()).min()
    }

    /// Raises limits of parts of the kernel that came later.
    fn raise_limits(&mut self) {
        for problem in self.limits.raise(std::path::Path::new("/proc/sys")) {
            self.reporter.failure(problem);
        }
    }

    fn ask_shutdown(&mut self, target: Target, reason: &str) {
        if self.shutdown.phase() == shutdown::Phase::Running {
            self.reporter.report(ReportKind::ShuttingDown { reason: reason.to_owned() });
        }
        self.pending.push_back(Event::Asked(target));
    }

    fn open_report_port(&mut self) {
        if self.reporter.open_port()
            && let Some(port) = self.reporter.port()
        {
            // Edge by edge: a port without a listening host hangs up all the time.
            let flags = EventFlags::OUT | EventFlags::ET;
            let _ = epoll::add(&self.epoll, port.as_fd(), EventData::new_u64(events::PORT), flags);
        }
    }

    fn open_buttons(&mut self) {
        let known: Vec<&str> = self.buttons.iter().map(|button| button.name.as_str()).collect();
        for button in power_button::open_new(&known) {
            let number = events::FIRST_BUTTON.saturating_add(self.buttons.len() as u64);
            let _ = epoll::add(&self.epoll, &button.file, EventData::new_u64(number), EventFlags::IN);
            self.buttons.push(button);
        }
    }
}
