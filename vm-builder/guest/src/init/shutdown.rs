//! Shutdown as a state machine. Pure: the clock and all effects are outside.
//!
//! ```text
//! Running ─asked─▶ Services ─ended─▶ Draining ─workload ended─▶ Terminating ─all ended─▶ Killing ─all ended─▶ Done
//!                     │ (late)          │ (late, without hook)      │ (late)                │ (late)
//!                     └────────────────▶└──────────────────────────▶└──────────────────────▶└─────────────────▶
//! ```
//! From the request on nothing is started again and the marker that allows the workload is gone, so a workload that
//! ends stays ended. With a hook, init runs the hook repeatedly to request the workload to stop, without a limit of our
//! own: the host decides how long that may take.

use std::time::Duration;

/// How long `shutdown` services may take.
const SERVICES: Duration = Duration::from_secs(10);
/// Pause between two runs of the hook.
const HOOK_PAUSE: Duration = Duration::from_millis(500);
/// How long killed processes may take to be gone; a process that hangs in the kernel must not hold us up.
const KILLING: Duration = Duration::from_secs(2);
/// Time between the request to stop and the kill of processes, if the command line sets nothing.
pub const GRACE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    PowerOff,
    Reboot,
    /// Stops the CPUs without powering off.
    Halt,
    /// Init starts again, without the kernel.
    Restart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No shutdown was requested.
    Running,
    /// `shutdown` services run.
    Services,
    Draining,
    /// Everything else was requested to stop.
    Terminating,
    Killing,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Asked(Target),
    WorkloadStarted,
    /// It is gone, with all its processes, and the lock is free.
    WorkloadEnded,
    /// All `shutdown` services are done.
    ServicesEnded,
    /// The hook is done, well or not.
    HookEnded,
    /// Nothing we started runs any more.
    AllEnded,
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start nothing again and remove the marker.
    StopRespawning,
    /// Start the `shutdown` services.
    StartServices,
    StartHook,
    SignalWorkload,
    TerminateAll,
    KillAll,
    /// Unmount, write back and end.
    Finish(Target),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shutdown {
    phase: Phase,
    has_hook: bool,
    grace: Duration,
    workload_runs: bool,
    hook_runs: bool,
    target: Target,
    wake_at: Option<Duration>,
}

impl Shutdown {
    /// No shutdown requested, nothing running.
    pub fn new(has_hook: bool, grace: Duration) -> Self {
        Self {
            phase: Phase::Running,
            has_hook,
            grace,
            workload_runs: false,
            hook_runs: false,
            target: Target::PowerOff,
            wake_at: None,
        }
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// When [`Event::Tick`] is due.
    pub fn wake_at(&self) -> Option<Duration> {
        self.wake_at
    }

    /// Takes an event at a time on any clock that does not go back.
    pub fn step(&mut self, now: Duration, event: Event) -> Vec<Action> {
        match event {
            Event::WorkloadStarted => self.workload_runs = true,
            Event::WorkloadEnded => self.workload_runs = false,
            Event::HookEnded => self.hook_runs = false,
            _ => {}
        }
        let late = event == Event::Tick && self.wake_at.is_some_and(|at| now >= at);
        match (self.phase, event) {
            (Phase::Running, Event::Asked(target)) => {
                self.target = target;
                self.enter(Phase::Services, now.checked_add(SERVICES));
                vec![Action::StopRespawning, Action::StartServices]
            }
            (Phase::Services, Event::ServicesEnded) => self.drain(now),
            (Phase::Services, Event::Tick) if late => self.drain(now),
            (Phase::Draining, Event::WorkloadEnded) => self.terminate(now),
            (Phase::Draining, Event::HookEnded) if self.has_hook => {
                self.wake_at = now.checked_add(HOOK_PAUSE);
                Vec::new()
            }
            (Phase::Draining, Event::Tick) if late && self.has_hook => self.run_hook(),
            (Phase::Draining, Event::Tick) if late => self.terminate(now),
            (Phase::Terminating, Event::AllEnded) => self.kill(now),
            (Phase::Terminating, Event::Tick) if late => self.kill(now),
            (Phase::Killing, Event::AllEnded) => self.finish(),
            (Phase::Killing, Event::Tick) if late => self.finish(),
            _ => Vec::new(),
        }
    }

    fn enter(&mut self, phase: Phase, wake_at: Option<Duration>) {
        (self.phase, self.wake_at) = (phase, wake_at);
    }

    fn drain(&mut self, now: Duration) -> Vec<Action> {
        if !self.workload_runs {
            return self.terminate(now);
        }
        if self.has_hook {
            self.phase = Phase::Draining;
            return self.run_hook();
        }
        self.enter(Phase::Draining, now.checked_add(self.grace));
        vec![Action::SignalWorkload]
    }

    fn run_hook(&mut self) -> Vec<Action> {
        self.wake_at = None;
        if self.hook_runs {
            return Vec::new();
        }
        self.hook_runs = true;
        vec![Action::StartHook]
    }

    fn terminate(&mut self, now: Duration) -> Vec<Action> {
        self.enter(Phase::Terminating, now.checked_add(self.grace));
        vec![Action::TerminateAll]
    }

    fn kill(&mut self, now: Duration) -> Vec<Action> {
        self.enter(Phase::Killing, now.checked_add(KILLING));
        vec![Action::KillAll]
    }

    fn finish(&mut self) -> Vec<Action> {
        self.enter(Phase::Done, None);
        vec![Action::Finish(self.target)]
    }
}

#[cfg(test)]
#[path = "shutdown/tests.rs"]
mod tests;
