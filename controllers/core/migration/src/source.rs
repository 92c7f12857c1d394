//! The end that has the VM.

use std::time::Duration;

use neonvm_types::runner_protocol::{
    MIGRATION_NOT_IN_TIME, MigrationProgress, MigrationRequest, MigrationRole, MigrationState as State,
    MigrationStatus, OnTimeout, PostCopy,
};

use crate::{Phase, Refused};

/// Time to reach the target and to agree.
const NEGOTIATE: Duration = Duration::from_secs(30);
/// Time to finish disks while the guest is stopped; after that it continues here.
const SETTLE: Duration = Duration::from_secs(15);
/// Time to transfer the devices of a paused guest, and for a post-copy to begin.
const SWITCH: Duration = Duration::from_secs(60);
/// Pause before the order to QEMU to cancel the migration is repeated.
const CANCEL_AGAIN: Duration = Duration::from_secs(10);
/// Pause before the order to the target to run the guest is repeated; doubled up to the longest.
const AGAIN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));
/// Pause before a lost connection of a post-copy is made again; doubled up to the longest.
const RECOVER: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// What has happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Both QEMUs are set up.
    Agreed {
        /// How memory is sent, for people.
        mode: String,
        /// Requested options that are not available, each with its reason.
        dropped: Vec<String>,
        /// Whether post-copy can follow.
        post_copy: bool,
        /// Whether some disk must be copied.
        disks: bool,
    },
    /// All copies of disks were whole once; they follow what the guest writes.
    Mirrored,
    /// All copies of disks are finished, and the target is ready for the guest.
    Settled,
    /// QEMU has come to this phase; words only if it failed.
    Phase(Phase, String),
    /// Memory was gone through so often.
    Pass(u64),
    /// Something that was to be done failed, or the target is lost.
    Trouble(String),
    /// QEMU did not accept the order to send the rest.
    NotSwitched(String),
    /// The target reports that the guest runs there.
    HandedOver,
    /// The target could not be reached, or cannot run the guest.
    NotHandedOver(String),
    /// The migration is to be cancelled.
    Cancel(String),
    /// A paused post-copy is to be recovered now.
    Recover,
    /// It could not.
    NotRecovered(String),
    /// The other runner is gone for good: whether this guest is the one that runs from now on.
    Verdict(bool),
    /// Everything created for the migration is removed, and the guest runs here. The target's error message, if any.
    Cleaned(String),
    /// QEMU has ended.
    Gone(String),
    Numbers(MigrationProgress),
    /// The time of [`Source::wake_at`] has come.
    Timer,
}

/// An action for the caller to carry out. Failures are reported by [`Event::Trouble`] unless documented otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reach the target and agree; answered with [`Event::Agreed`].
    Negotiate,
    /// Copy disks; answered with [`Event::Mirrored`].
    Mirror,
    /// Send memory; phases follow.
    Copy,
    /// Let the guest run on at the target soon; phases follow.
    StartPostCopy,
    /// Finish disks; answered with [`Event::Settled`].
    Settle,
    /// Send the rest; phases follow.
    SwitchOver,
    /// Order QEMU to cancel; phases follow.
    CancelCopy,
    /// Order the target to run the guest; answered with [`Event::HandedOver`] or [`Event::NotHandedOver`].
    HandOver,
    /// Make the connection of a post-copy again; phases follow, or [`Event::NotRecovered`].
    Recover,
    /// The guest is to run here: remove everything made for the migration; answered with [`Event::Cleaned`].
    StayHere,
    /// The guest runs on the target: end QEMU.
    Leave,
}

/// State machine of the source side.
#[derive(Clone, Debug)]
pub struct Source {
    request: MigrationRequest,
    status: MigrationStatus,
    now: Duration,
    /// Deadline of the whole migration; `None` once it was handled.
    deadline: Option<Duration>,
    /// When the present step must be done.
    step_by: Option<Duration>,
    again: (Duration, Option<Duration>),
    recover: (Duration, Option<Duration>),
    post_copy: bool,
    post_copy_wanted: bool,
    post_copy_asked: bool,
    passes: u64,
    /// QEMU has the order to send the last of the guest: from then on it alone decides.
    switched: bool,
    /// QEMU has the order to send memory and has not reported the end.
    copying: bool,
    /// The target has reported that the guest runs there.
    handed: bool,
    /// The target is gone for good: reports that still arrive are old.
    alone: bool,
    /// QEMU has ended with all of the guest sent, or nearly: whether it lives on is for others to find out.
    ended: bool,
    /// The state in which it ends when all is removed.
    end: Option<(State, String)>,
    /// The failure was not this side's decision: the target may have the reason.
    broken: bool,
}

impl Source {
    /// A migration that begins at `now`, and its first actions.
    #[must_use]
    pub fn new(now: Duration, request: MigrationRequest) -> (Self, Vec<Action>) {
        let status = MigrationStatus {
            id: request.id.clone(),
            role: MigrationRole::Source,
            state: State::Negotiating,
            ..MigrationStatus::default()
        };
        let time = Duration::from_secs(request.parameters.completion_timeout_s.max(1).into());
        let source = Self {
            request,
            status,
            now,
            deadline: Some(now + time),
            step_by: Some(now + NEGOTIATE),
            again: (AGAIN.0, None),
            recover: (RECOVER.0, None),
            post_copy: false,
            post_copy_wanted: false,
            post_copy_asked: false,
            passes: 0,
            switched: false,
            copying: false,
            handed: false,
            alone: false,
            ended: false,
            end: None,
            broken: false,
        };
        (source, vec![Action::Negotiate])
    }

    /// How far it is.
    #[must_use]
    pub fn status(&self) -> &MigrationStatus {
        &self.status
    }

    fn state(&self) -> State {
        self.status.state
    }

    /// When [`Event::Timer`] is wanted, if ever.
    #[must_use]
    pub fn wake_at(&self) -> Option<Duration> {
        if self.state().is_over() || self.ended {
            return None;
        }
        let deadline = self.deadline.filter(|_| !self.state().has_left() && self.end.is_none());
        [deadline, self.step_by, self.again.1, self.recover.1].into_iter().flatten().min()
    }

    /// Takes in what has happened at `now`.
    ///
    /// # Errors
    /// If a call cannot be followed any more.
    pub fn step(&mut self, now: Duration, event: Event) -> Result<Vec<Action>, Refused> {
        self.now = self.now.max(now);
        let mut actions = Vec::new();
        if self.ended {
            return match event {
                Event::Cancel(_) | Event::Verdict(_) | Event::Recover => {
                    Err(Refused("the VM has ended here".to_owned()))
                }
                _ => Ok(actions),
            };
        }
        if self.state().is_over() {
            return match event {
                Event::Cancel(_) if self.state() == State::Completed => {
                    Err(Refused("the VM runs on the target already".to_owned()))
                }
                Event::Numbers(progress) => {
                    self.numbers(progress);
                    Ok(actions)
                }
                _ => Ok(actions),
            };
        }
        match event {
            Event::Cancel(reason) => self.cancel(&reason, &mut actions)?,
            Event::Verdict(keep) => self.verdict(keep, &mut actions)?,
            Event::Recover => {
                if self.state() != State::PostCopyPaused {
                    return Err(Refused("no post-copy is paused".to_owned()));
                }
                self.recover.1 = None;
                actions.push(Action::Recover);
            }
            other => self.take(other, &mut actions),
        }
        Ok(actions)
    }

    fn take(&mut self, event: Event, actions: &mut Vec<Action>) {
        let state = self.state();
        match event {
            Event::Agreed { mode, dropped, post_copy, disks } if state == State::Negotiating => {
                (self.status.mode, self.status.dropped, self.post_copy) = (mode, dropped, post_copy);
                self.step_by = None;
                if disks {
                    self.status.state = State::Mirroring;
                    actions.push(Action::Mirror);
                } else {
                    self.copy(actions);
                }
            }
            Event::Mirrored if state == State::Mirroring => self.copy(actions),
            Event::Settled if state == State::Switching => {
                (self.step_by, self.switched) = (Some(self.now + SWITCH), true);
                actions.push(Action::SwitchOver);
            }
            Event::Phase(phase, words) => self.phase(phase, &words, actions),
            Event::Pass(pass) => {
                self.passes = self.passes.max(pass);
                self.maybe_post_copy(actions);
            }
            Event::NotSwitched(why) => {
                self.switched = false;
                self.fail(why, actions);
            }
            Event::Trouble(why) => {
                self.broken |= self.end.is_none();
                self.fail(why, actions);
            }
            Event::HandedOver => self.handed_over(actions),
            Event::NotHandedOver(why) if state.has_left() && !self.handed => {
                self.status.reason = format!("the target does not let the guest run yet: {why}");
                self.again = ((self.again.0 * 2).min(AGAIN.1), Some(self.now + self.again.0));
            }
            Event::NotRecovered(why) if state == State::PostCopyPaused => {
                self.status.reason = format!("the connection cannot be made again: {why}");
                self.recover = ((self.recover.0 * 2).min(RECOVER.1), Some(self.now + self.recover.0));
            }
            Event::Cleaned(words) => {
                if let Some((state, mut reason)) = self.end.take() {
                    if self.broken && !words.is_empty() && !reason.contains(&words) {
                        reason.push_str(&format!("; the target: {words}"));
                    }
                    self.finish(state, reason);
                }
            }
            Event::Gone(why) => self.gone(why),
            Event::Numbers(progress) => self.numbers(progress),
            Event::Timer => self.timer(actions),
            _ => {}
        }
    }

    /// A late answer must not undo numbers of QEMU's end.
    fn numbers(&mut self, progress: MigrationProgress) {
        let old = &self.status.progress;
        let disk =
            (old.disk_transferred.max(progress.disk_transferred), old.disk_total.max(progress.disk_total));
        self.passes = self.passes.max(progress.passes);
        self.status.progress = progress;
        (self.status.progress.disk_transferred, self.status.progress.disk_total) = disk;
    }

    fn finish(&mut self, state: State, reason: String) {
        (self.status.state, self.status.reason) = (state, reason);
        (self.step_by, self.again.1, self.recover.1) = (None, None, None);
    }

    /// QEMU has ended. After the order to send the last of the guest, the target may have the whole guest in its newest state:
    /// `Failed` would mean that the guest continued here, and the target's state would be discarded as old.
    fn gone(&mut self, why: String) {
        let sent = self.state() == State::HandingOver || self.switched && self.state() == State::Switching;
        if sent && self.end.is_none() {
            self.ended = true;
            self.finish(self.state(), why);
        } else {
            let (state, reason) = self.end.take().unwrap_or((State::Failed, why));
            self.finish(state, reason);
        }
    }

    fn copy(&mut self, actions: &mut Vec<Action>) {
        self.status.state = State::Copying;
        self.copying = true;
        actions.push(Action::Copy);
    }

    fn phase(&mut self, phase: Phase, words: &str, actions: &mut Vec<Action>) {
        if phase.is_over() {
            if !self.copying {
                return;
            }
            self.copying = false;
        }
        let state = self.state();
        match phase {
            Phase::PreSwitchover if state == State::Copying => {
                self.status.state = State::Switching;
                self.step_by = Some(self.now + SETTLE);
                actions.push(Action::Settle);
            }
            Phase::Active => self.maybe_post_copy(actions),
            Phase::Completed => {
                self.step_by = None;
                self.end = None;
                if self.handed {
                    self.finish(State::Completed, String::new());
                    actions.push(Action::Leave);
                } else if state.has_left() {
                    self.status.state = State::HandingOver;
                } else {
                    self.hand_over(State::HandingOver, actions);
                }
            }
            Phase::PostCopyActive | Phase::PostCopyRecover if state == State::PostCopyPaused => {
                self.status.state = State::PostCopy;
                self.status.reason.clear();
                self.recover = (RECOVER.0, None);
            }
            Phase::PostCopyActive if !state.has_left() => {
                self.end = None;
                self.hand_over(State::PostCopy, actions);
            }
            Phase::PostCopyPaused if state.has_left() => {
                self.status.state = State::PostCopyPaused;
                self.status.reason = "the connection was lost".to_owned();
                self.recover.1 = Some(self.now + self.recover.0);
            }
            Phase::Failed | Phase::Cancelled | Phase::None => self.qemu_gave_up(phase, words, actions),
            _ => {}
        }
    }

    /// QEMU lets the guest run on here. It should not do that once the target has all it needs to let it run, but QEMU 7.2
    /// does when the end of a post-copy fails: then it has to go at once.
    fn qemu_gave_up(&mut self, phase: Phase, words: &str, actions: &mut Vec<Action>) {
        if self.handed {
            self.finish(State::Completed, format!("QEMU: {words}"));
            actions.push(Action::Leave);
            return;
        }
        let asked = phase == Phase::Cancelled && words.is_empty();
        let why = if asked { "QEMU cancelled it".to_owned() } else { format!("QEMU: {words}") };
        self.again.1 = None;
        if self.end.is_none() {
            (self.end, self.broken) = (Some((State::Failed, why)), true);
        }
        self.status.state = State::Cancelling;
        self.step_by = None;
        actions.push(Action::StayHere);
    }

    fn hand_over(&mut self, state: State, actions: &mut Vec<Action>) {
        self.status.state = state;
        self.step_by = None;
        self.status.reason.clear();
        actions.push(Action::HandOver);
    }

    fn handed_over(&mut self, actions: &mut Vec<Action>) {
        if self.handed || self.alone {
            return;
        }
        self.handed = true;
        self.again.1 = None;
        if matches!(self.state(), State::PostCopy | State::PostCopyPaused) {
            self.status.reason.clear();
        } else {
            self.finish(State::Completed, String::new());
            actions.push(Action::Leave);
        }
    }

    /// Before the guest has left: it stays, and the migration ends.
    fn stay(&mut self, end: State, why: String, actions: &mut Vec<Action>) {
        if self.end.is_none() {
            self.status.reason.clone_from(&why);
            self.end = Some((end, why));
            self.status.state = State::Cancelling;
            if self.copying {
                self.step_by = Some(self.now + CANCEL_AGAIN);
                actions.push(Action::CancelCopy);
            } else {
                self.step_by = None;
                actions.push(Action::StayHere);
            }
        }
    }

    /// Whether it is too late to cancel: the guest is stopped and the last of it is being sent.
    fn is_leaving(&self) -> bool {
        self.state().has_left() || self.switched && self.state() == State::Switching
    }

    fn fail(&mut self, why: String, actions: &mut Vec<Action>) {
        if !self.is_leaving() {
            self.stay(State::Failed, why, actions);
        }
    }

    fn cancel(&mut self, reason: &str, actions: &mut Vec<Action>) -> Result<(), Refused> {
        if self.is_leaving() {
            return Err(Refused("the VM is being handed over to the target".to_owned()));
        }
        let why = if reason.is_empty() { "cancelled" } else { reason };
        self.stay(State::Cancelled, why.to_owned(), actions);
        Ok(())
    }

    fn verdict(&mut self, keep: bool, actions: &mut Vec<Action>) -> Result<(), Refused> {
        match (self.state(), keep) {
            (State::HandingOver, true) if !self.handed => {
                self.end =
                    Some((State::Failed, "the target was gone before it let the guest run".to_owned()));
                self.status.state = State::Cancelling;
                (self.again.1, self.alone) = (None, true);
                actions.push(Action::StayHere);
            }
            (State::HandingOver | State::PostCopy | State::PostCopyPaused, false) => {
                self.finish(State::Completed, String::new());
                actions.push(Action::Leave);
            }
            (State::PostCopy | State::PostCopyPaused, true) => {
                return Err(Refused("a part of the guest's memory is with the target only".to_owned()));
            }
            (_, true) => self.fail("the target is gone".to_owned(), actions),
            (_, false) => return Err(Refused("the guest has not left".to_owned())),
        }
        Ok(())
    }

    fn maybe_post_copy(&mut self, actions: &mut Vec<Action>) {
        let first = self.request.parameters.post_copy == PostCopy::AfterFirstPass;
        // The second pass begins when everything was sent once.
        let due = (first || self.post_copy_wanted) && self.passes >= 2;
        if due && self.post_copy && !self.post_copy_asked && self.state() == State::Copying {
            self.post_copy_asked = true;
            self.step_by = Some(self.now + SWITCH);
            actions.push(Action::StartPostCopy);
        }
    }

    fn timer(&mut self, actions: &mut Vec<Action>) {
        let due = |at: Option<Duration>| at.is_some_and(|at| at <= self.now);
        let (step, again, recover, over) =
            (due(self.step_by), due(self.again.1), due(self.recover.1), due(self.deadline));
        if again {
            self.again.1 = None;
            actions.push(Action::HandOver);
        }
        if recover {
            self.recover.1 = None;
            actions.push(Action::Recover);
        }
        if step {
            self.step_by = None;
            match self.state() {
                State::Cancelling => {
                    self.step_by = Some(self.now + CANCEL_AGAIN);
                    actions.push(Action::CancelCopy);
                }
                State::Negotiating => self.fail("the target did not answer in time".to_owned(), actions),
                State::Copying => self.fail("post-copy did not begin in time".to_owned(), actions),
                _ => {
                    let why = "the switch took too long; the guest continues here".to_owned();
                    self.stay(State::Failed, why, actions);
                }
            }
        }
        if over && !self.state().has_left() && self.end.is_none() {
            self.out_of_time(actions);
        }
    }

    fn out_of_time(&mut self, actions: &mut Vec<Action>) {
        self.deadline = None;
        let parameters = &self.request.parameters;
        let (seconds, state) = (parameters.completion_timeout_s, self.state());
        // A paused guest is nearly at the target, and the switchover has its own time limit.
        if state == State::Switching {
            return;
        }
        let post_copy =
            parameters.on_timeout == OnTimeout::PostCopy || parameters.post_copy == PostCopy::OnTimeout;
        if post_copy && self.post_copy {
            self.post_copy_wanted = true;
            self.status.reason = format!("not done within {seconds} s: post-copy follows");
            self.maybe_post_copy(actions);
        } else if parameters.on_timeout == OnTimeout::Continue {
            self.status.reason = format!("late: not done within {seconds} s");
        } else {
            self.stay(State::Failed, format!("{MIGRATION_NOT_IN_TIME} {seconds} s"), actions);
        }
    }
}
