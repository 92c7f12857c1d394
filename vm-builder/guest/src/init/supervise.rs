//! Starting what is due, and what follows when something ends.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use neonvm_types::guest::{ReportKind, Start};
use rustix::process::{WaitOptions, WaitStatus, wait};

use super::attached::Attached;
use super::shutdown::{Action, Event, Phase, Target};
use super::status::LastExit;
use super::unit::{DAEMON, Role, State};
use super::{Init, finish, setup};
use crate::limits::rlimits;
use crate::mount::freeze;
use crate::process::freezer;
use crate::process::restart::decide;
use crate::process::{Cgroup, Exit, Launch, Next, Output, spawn};
use crate::report;
use crate::system::Signals;

/// Pause before the next try of a lock that another process holds.
const LOCK_PAUSE: Duration = Duration::from_millis(100);
/// Pause before another check for a marker or files that are missing; files are also watched.
const ALLOWED_PAUSE: Duration = Duration::from_secs(1);
/// Pause before another check of killed processes of the workload.
pub(super) const DYING_PAUSE: Duration = Duration::from_millis(50);
/// Status of a program that is not there, as shells and container engines have it.
const NOT_STARTED: i32 = 127;

impl Init {
    /// Does all that is due now. Ends when nothing is.
    pub(super) fn settle(&mut self) {
        self.reap();
        freezer::thaw(&self.freezer.due(report::uptime()));
        self.start_due();
        self.pending.push_back(Event::Tick);
        // Each event leads to few actions and those to few events; the VM only goes forward.
        loop {
            self.observe();
            let Some(event) = self.pending.pop_front() else { break };
            for action in self.shutdown.step(report::uptime(), event) {
                self.perform(action);
            }
        }
        self.note_status();
    }

    /// Observes events that no signal reports.
    fn observe(&mut self) {
        if self.workload.dying && !self.is_workload_populated() {
            self.workload.dying = false;
            self.workload.lock = None;
            self.pending.push_back(Event::WorkloadEnded);
        }
        if self.queue.is_empty() && self.queue_runs.is_none() {
            match self.shutdown.phase() {
                Phase::Running => self.start_the_rest(),
                Phase::Services if self.pending.is_empty() => self.pending.push_back(Event::ServicesEnded),
                _ => {}
            }
        }
        let ending = matches!(self.shutdown.phase(), Phase::Terminating | Phase::Killing);
        if ending
            && self.pending.is_empty()
            && !self.units.iter().any(|unit| unit.is_running() && unit.role != Role::Forwarder)
        {
            self.pending.push_back(Event::AllEnded);
        }
    }

    fn is_workload_populated(&self) -> bool {
        let group = Cgroup::make("workload");
        if let Ok(group) = &group
            && group.is_populated()
        {
            group.kill();
            return true;
        }
        false
    }

    /// The services boot waits for are done.
    fn start_the_rest(&mut self) {
        if std::mem::replace(&mut self.gone, true) {
            return;
        }
        let now = report::uptime();
        for unit in &mut self.units {
            if unit.starts_with_the_rest() && unit.state == State::Idle {
                unit.state = State::Waiting(now);
            }
        }
        self.start_due();
    }

    fn start_due(&mut self) {
        // One at a time: the next is taken only when nothing of the queue runs.
        if self.queue_runs.is_none()
            && let Some(index) = self.queue.pop_front()
        {
            self.queue_runs = Some(index);
            self.start(index);
        }
        let now = report::uptime();
        for index in 0..self.units.len() {
            if self.units.get(index).is_some_and(|unit| unit.wake_at().is_some_and(|at| at <= now)) {
                self.start(index);
            }
        }
    }

    fn start(&mut self, index: usize) {
        let now = report::uptime();
        let Some(unit) = self.units.get(index) else { return };
        if unit.role == Role::Workload
            && let Err(pause) = self.may_start_workload()
        {
            self.set_state(index, State::Waiting(now.saturating_add(pause)));
            return;
        }
        match self.launch(index) {
            Ok(process) => self.started(index, process, now),
            Err((problem, status)) => {
                let Some(unit) = self.units.get(index) else { return };
                let (message, workload) = (format!("{}: {problem}", unit.name), unit.role == Role::Workload);
                self.reporter.report(ReportKind::Failure { message, workload });
                self.ended(index, Exit::Code(status), now);
            }
        }
    }

    /// Takes the lock, or returns the time until the next attempt.
    fn may_start_workload(&mut self) -> Result<(), Duration> {
        if self.workload.dying {
            return Err(DYING_PAUSE);
        }
        if !self.marker.is_allowed() || !self.synchronised.is_complete() {
            return Err(ALLOWED_PAUSE);
        }
        if self.workload.lock.is_none() {
            self.workload.lock = self.marker.lock();
        }
        if self.workload.lock.is_some() { Ok(()) } else { Err(LOCK_PAUSE) }
    }

    /// Its process number, or why it could not be started, with the status that it then has.
    fn launch(&mut self, index: usize) -> Result<i32, (String, i32)> {
        let Some(unit) = self.units.get(index) else { return Err(("gone".into(), NOT_STARTED)) };
        let cgroup = Cgroup::make(&unit.cgroup).ok();
        // Even if it is not started: what is left of its streams is then at its end.
        let ends = match (unit.role, &mut self.attached) {
            (Role::Workload, Some(attached)) => attached.take_ends(),
            _ => None,
        };
        let account = unit.account.as_ref().map_err(|error| (error.clone(), NOT_STARTED))?;
        let (keep, flags) = match (unit.role, &self.attached) {
            (Role::Forwarder, _) => (self.pipes.reader_numbers(), Vec::new()),
            (Role::Daemon, Some(attached)) if unit.name == DAEMON => (attached.keep(), attached.flags()),
            _ => (Vec::new(), Vec::new()),
        };
        let output = match (unit.role, &self.reports) {
            _ if ends.is_some() => ends.as_ref().map_or(Output::Console, Output::Attached),
            (Role::Workload | Role::Service(_) | Role::Hook, _) => {
                self.pipes.writer(&unit.name).map_or(Output::Console, Output::Pipe)
            }
            (_, Some((_, writer))) => Output::Reports(writer),
            (_, None) => Output::Console,
        };
        let launch = Launch {
            command: &[unit.command.as_slice(), &flags].concat(),
            environment: &unit.environment,
            account,
            directory: &unit.directory,
            cgroup: cgroup.as_ref(),
            output,
            keep: &keep,
            signals: if unit.role == Role::Forwarder { Signals::Inherited } else { Signals::Unblocked },
            limits: &rlimits(self.limits.memory()),
            spared: !matches!(unit.role, Role::Workload | Role::Service(_) | Role::Hook),
        };
        let process = spawn(&launch).map_err(|error| (error.to_string(), error.status()))?;
        if unit.role == Role::Workload {
            self.workload.memory_kills = cgroup.map_or(0, |group| group.memory_kills());
        }
        Ok(process.as_raw_nonzero().get())
    }

    fn started(&mut self, index: usize, process: i32, now: Duration) {
        let Some(unit) = self.units.get_mut(index) else { return };
        unit.state = State::Running { process, since: now };
        let restarts = unit.starts;
        unit.starts = unit.starts.saturating_add(1);
        if let (DAEMON, Some(attached)) = (unit.name.as_str(), &mut self.attached) {
            attached.daemon_started();
        }
        if unit.role == Role::Workload {
            let pid = process.unsigned_abs();
            self.reporter.report(ReportKind::WorkloadStarted { pid, restarts });
            self.pending.push_back(Event::WorkloadStarted);
        }
    }

    /// Takes leave of every process that ended, ours or orphaned.
    fn reap(&mut self) {
        while let Ok(Some((process, status))) = wait(WaitOptions::NOHANG) {
            let process = process.as_raw_nonzero().get();
            let found = self
                .units
                .iter()
                .position(|unit| matches!(unit.state, State::Running { process: own, .. } if own == process));
            if let Some(index) = found {
                self.ended(index, exit(status), report::uptime());
            }
        }
    }

    fn ended(&mut self, index: usize, exit: Exit, now: Duration) {
        if self.queue_runs == Some(index) {
            self.queue_runs = None;
        }
        if self.units.get(index).is_some_and(|unit| unit.role == Role::Modules) {
            // Some bring parameters of their own.
            self.raise_limits();
        }
        let stopping = self.shutdown.phase() != Phase::Running;
        let Some(unit) = self.units.get_mut(index) else { return };
        let lived = match unit.state {
            State::Running { since, .. } => now.saturating_sub(since),
            _ => Duration::ZERO,
        };
        unit.state = State::Ended;
        let (role, name) = (unit.role, unit.name.clone());
        if role == Role::Daemon {
            // It may have been the monitor, in the middle of a freeze.
            freezer::thaw(&self.freezer.all());
        }
        // Nothing of an instance survives into the next. What is started once may leave a daemon behind, as with any init.
        if unit.respawns()
            && matches!(role, Role::Service(_))
            && let Ok(group) = Cgroup::make(&unit.cgroup)
        {
            group.kill();
        }
        if unit.respawns() && (!stopping || role == Role::Forwarder) {
            let pause = unit.backoff.after(lived);
            unit.state = State::Waiting(now.saturating_add(pause));
        }
        if name == DAEMON {
            self.attached_ended();
        }
        match role {
            Role::Workload => self.workload_ended(index, exit, lived, now),
            Role::Hook => self.pending.push_back(Event::HookEnded),
            Role::Console => {}
            _ if exit == Exit::Code(0) || stopping => {}
            _ => self.reporter.failure(format!("{name} ended with status {}", exit.status())),
        }
        if matches!(role, Role::Service(Start::Sysinit | Start::Wait | Start::Shutdown)) {
            self.start_due();
        }
    }

    fn workload_ended(&mut self, index: usize, exit: Exit, lived: Duration, now: Duration) {
        let group = Cgroup::make("workload");
        let kills = group.as_ref().map_or(0, Cgroup::memory_kills);
        let (code, signal) = match exit {
            Exit::Code(code) => (Some(code), None),
            Exit::Signal(signal) => (None, Some(signal)),
        };
        let out_of_memory = kills > self.workload.memory_kills;
        self.workload.last_exit = Some(LastExit { code, signal, out_of_memory });
        self.reporter.report(ReportKind::WorkloadExited { code, signal, out_of_memory });
        if let Ok(group) = group {
            group.kill();
        }
        self.workload.dying = true;
        if self.shutdown.phase() != Phase::Running {
            return;
        }
        let policy = self.policy;
        let Some(unit) = self.units.get_mut(index) else { return };
        match decide(policy, exit, lived, &mut unit.backoff) {
            Next::Restart(pause) => unit.state = State::Waiting(now.saturating_add(pause)),
            Next::PowerOff if self.attached.as_mut().is_some_and(Attached::holds_power_off) => {}
            Next::PowerOff => self.ask_shutdown(Target::PowerOff, "workload ended"),
        }
    }

    /// All output of the workload was passed on to its client.
    pub(super) fn attached_ended(&mut self) {
        if self.attached.as_mut().is_some_and(Attached::end) {
            self.ask_shutdown(Target::PowerOff, "workload ended");
        }
    }

    fn set_state(&mut self, index: usize, state: State) {
        if let Some(unit) = self.units.get_mut(index) {
            unit.state = state;
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::StopRespawning => self.stop_respawning(),
            Action::StartServices => {
                self.enqueue(&[Start::Shutdown]);
                self.start_due();
            }
            Action::StartHook => {
                if let Some(index) = self.units.iter().position(|unit| unit.role == Role::Hook) {
                    report::console("running the shutdown hook");
                    self.start(index);
                }
            }
            Action::SignalWorkload => {
                for unit in self.units.iter().filter(|unit| unit.role == Role::Workload) {
                    if let State::Running { process, .. } = unit.state {
                        crate::process::cgroup::signal_process(process, self.stop_signal);
                    }
                }
            }
            Action::TerminateAll => finish::terminate(&self.units),
            Action::KillAll => finish::kill(&self.units),
            Action::Finish(target) => self.finish(target),
        }
    }

    fn stop_respawning(&mut self) {
        if let Err(error) = self.marker.forbid() {
            self.reporter.failure(format!("remove the marker of the workload: {error}"));
        }
        if freeze::may_be_active(Path::new("/")) {
            // A process that waits for a frozen file system cannot be ended.
            let _ = Command::new(setup::own_program()).arg("thaw").env_clear().spawn();
        }
        self.queue.clear();
        self.queue_runs = None;
        for unit in &mut self.units {
            if matches!(unit.state, State::Waiting(_) | State::Idle) && unit.role != Role::Forwarder {
                unit.state = State::Ended;
            }
        }
    }
}

fn exit(status: WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Code(NOT_STARTED),
    }
}
