//! Suspension: the guest's memory goes to a file and QEMU ends; a packet, a command or a request brings it back.
//!
//! ```text
//! Awake ──request, guest agrees──▶ Suspending ──QEMU gone──▶ Suspended ──knock──▶ Waking ──guest runs──▶ Awake
//!   ▲ └──denied: again later──┘          │ knock: cancelled at once
//!   └────────────────────────────────────┘
//! ```
//!
//! A VM that is needed wakes when its node has room: it waits for that answer, and if none comes it wakes nevertheless.
//!
//! One order is under way at a time. A knock withdraws the request: a VM that was woken stays awake until there is a newer one, or until it
//! has been idle for the whole time again. It is idle while no packet passes between it and others, and its vCPUs use next to nothing.

use std::time::Duration;

use neonvm_types::Bytes;
use neonvm_types::runner_protocol::{
    Problem, ProblemReason, ROOM_PATIENCE, SuspendRequest, SuspendState, SuspendStatus, WokenBy,
};

use super::Action;

/// Before a guest that denied is queried again.
const DENIED: Duration = Duration::from_secs(5);
/// Before a suspension that failed is tried again.
const FAILED: Duration = Duration::from_secs(60);
/// How often in its time a VM that may be idle is looked at, and how far apart that is at least and at most.
const LOOKS: u32 = 4;
const LOOK_LEAST: Duration = Duration::from_secs(1);
const LOOK_MOST: Duration = Duration::from_secs(15);
/// CPU time of an idle guest: less than this part of one CPU. An emulated guest that does nothing takes a few hundredths.
const IDLE_CPU_PERCENT: u32 = 15;

/// What a VM has done so far; each number only grows while its QEMU runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Packets that have passed between the guest and others than its runner.
    pub packets: u64,
    /// CPU time of the vCPUs.
    pub cpu: Duration,
}

/// When a VM counts as idle.
#[derive(Clone, Copy, Debug, Default)]
struct Idle {
    after: Option<Duration>,
    /// When it last did something.
    active: Duration,
    /// The last look, and what it had done until then.
    looked: Option<(Duration, Activity)>,
}

impl Idle {
    fn pause(after: Duration) -> Duration {
        (after / LOOKS).clamp(LOOK_LEAST, LOOK_MOST)
    }

    /// Counts from now.
    fn restart(&mut self, now: Duration) {
        (self.active, self.looked) = (now, None);
    }

    fn next(&self) -> Option<Duration> {
        let pause = Self::pause(self.after?);
        Some(self.looked.map_or(self.active, |(at, _)| at) + pause)
    }

    /// Takes in what it has done; whether it has been idle for the whole time.
    fn look(&mut self, now: Duration, seen: Activity) -> bool {
        let worked = self.looked.is_none_or(|(at, before)| {
            let used = seen.cpu.saturating_sub(before.cpu);
            seen.packets != before.packets || used > now.saturating_sub(at) * IDLE_CPU_PERCENT / 100
        });
        self.looked = Some((now, seen));
        if worked {
            self.active = now;
        }
        self.after.is_some_and(|after| now.saturating_sub(self.active) >= after)
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Suspend {
    status: SuspendStatus,
    /// Whether a request has ever come.
    used: bool,
    /// The order to suspend is to be cancelled, and that was ordered.
    cancelled: bool,
    retry: Option<Duration>,
    problem: Option<String>,
    /// When it was last woken, until the guest runs.
    knocked: Option<Duration>,
    idle: Idle,
}

impl Suspend {
    pub(crate) fn ask(&mut self, now: Duration, request: SuspendRequest) {
        let SuspendRequest { suspended, request, idle_after_ms, deaf, asks, room } = request;
        (self.used, self.status.deaf, self.status.asks) = (true, deaf, asks);
        self.status.room = room.or(self.status.room);
        if self.status.idle_after_ms != idle_after_ms {
            self.status.idle_after_ms = idle_after_ms;
            self.idle.after = idle_after_ms.map(Duration::from_millis);
            self.idle.restart(now);
        }
        match suspended {
            // One that sleeps because it was idle sleeps on.
            false if self.status.idle && idle_after_ms.is_some() => return,
            false => return self.knock(now, WokenBy::Request),
            true if self.status.request == request => return,
            true => {}
        }
        self.status.request = request;
        (self.status.asked, self.status.idle) = (true, false);
        (self.retry, self.problem, self.status.denied) = (None, None, None);
    }

    /// The guest is needed.
    pub(crate) fn knock(&mut self, now: Duration, by: WokenBy) {
        (self.status.asked, self.status.idle, self.status.denied) = (false, false, None);
        (self.retry, self.problem) = (None, None);
        self.idle.restart(now);
        if matches!(self.status.state, SuspendState::Suspending | SuspendState::Suspended)
            && self.knocked.is_none()
        {
            self.knocked = Some(now);
            self.status.woken_by = Some(by);
        }
    }

    /// Whether the guest's memory is in a file, or on its way there or back.
    pub(crate) fn is_still(&self) -> bool {
        self.status.state != SuspendState::Awake
    }

    /// QEMU is gone, and the file has this size.
    pub(crate) fn stored(&mut self, bytes: Bytes, took: Duration) {
        if self.status.state == SuspendState::Suspending {
            self.status.state = SuspendState::Suspended;
            self.status.stored = Some(bytes);
            self.status.stored_in_ms = Some(millis(took));
            self.cancelled = false;
        }
    }

    /// The guest runs on, for this reason.
    pub(crate) fn stays(&mut self, now: Duration, why: Stays) {
        if self.status.state != SuspendState::Suspending {
            return;
        }
        self.status.state = SuspendState::Awake;
        (self.cancelled, self.knocked) = (false, None);
        self.idle.restart(now);
        match why {
            Stays::Needed => (self.status.asked, self.status.idle) = (false, false),
            // It works, so it is not idle.
            Stays::Denied(_) if self.status.idle => (self.status.asked, self.status.idle) = (false, false),
            Stays::Denied(why) if self.status.asked => {
                (self.retry, self.status.denied) = (Some(now + DENIED), Some(why));
            }
            Stays::Failed(why) if self.status.asked => {
                (self.retry, self.problem) = (Some(now + FAILED), Some(why));
            }
            Stays::Denied(_) | Stays::Failed(_) => {}
        }
    }

    /// The guest runs again.
    pub(crate) fn woken(&mut self, now: Duration) {
        if self.status.state != SuspendState::Waking {
            return;
        }
        self.status.state = SuspendState::Awake;
        self.status.wakes += 1;
        self.status.stored = None;
        self.idle.restart(now);
        self.status.woke_in_ms = self.knocked.take().map(|at| millis(now.saturating_sub(at)));
    }

    /// What the VM has done so far.
    pub(crate) fn seen(&mut self, now: Duration, activity: Activity) {
        let awake = self.status.state == SuspendState::Awake && !self.status.asked;
        if awake && self.idle.look(now, activity) {
            (self.status.asked, self.status.idle) = (true, true);
        }
    }

    /// Whether it may wake: its node has room, or did not answer in time.
    fn has_room(&self, now: Duration) -> bool {
        let late = self.knocked.is_none_or(|at| now >= at + ROOM_PATIENCE);
        !self.status.asks || self.status.room().unwrap_or(late)
    }

    /// The order that is due. `may`: whether the guest may be suspended now; `stops`: it has to run so that it can shut down.
    pub(crate) fn tend(&mut self, now: Duration, may: bool, stops: bool) -> Option<Action> {
        if stops && (self.is_still() || self.status.asked) {
            self.knock(now, WokenBy::Stop);
        }
        match self.status.state {
            SuspendState::Awake => {
                if !may {
                    self.retry = None;
                    self.idle.restart(now);
                    return None;
                }
                if !self.status.asked {
                    return self.idle.next().filter(|at| *at <= now).map(|_| Action::LookAtActivity);
                }
                let due = self.retry.is_none_or(|at| at <= now);
                due.then(|| {
                    (self.status.state, self.retry) = (SuspendState::Suspending, None);
                    Action::Suspend
                })
            }
            SuspendState::Suspending if !self.status.asked && !self.cancelled => {
                self.cancelled = true;
                Some(Action::CancelSuspend)
            }
            SuspendState::Suspended if !self.status.asked && (stops || self.has_room(now)) => {
                self.status.state = SuspendState::Waking;
                Some(Action::Wake)
            }
            _ => None,
        }
    }

    pub(crate) fn wake_at(&self) -> Option<Duration> {
        match (self.status.state, self.status.asked) {
            (SuspendState::Awake, true) => self.retry,
            (SuspendState::Awake, false) => self.idle.next(),
            // It may be late already when the memory is stored.
            (SuspendState::Suspended, false) if self.status.room().is_none() => {
                self.knocked.map(|at| at + ROOM_PATIENCE)
            }
            _ => None,
        }
    }

    pub(crate) fn status(&self) -> Option<SuspendStatus> {
        self.used.then(|| self.status.clone())
    }

    pub(crate) fn problem(&self) -> Option<Problem> {
        self.problem.as_ref().map(|why| Problem {
            reason: ProblemReason::SuspendFailed,
            message: format!("the VM cannot be suspended: {why}"),
        })
    }
}

/// Why a guest that was to be suspended runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stays {
    /// A packet arrived, or the order was cancelled.
    Needed,
    /// The guest has work.
    Denied(String),
    /// Its memory cannot be stored.
    Failed(String),
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
