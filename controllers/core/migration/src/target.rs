//! The end that gets the VM.

use std::time::Duration;

use neonvm_types::runner_protocol::{
    MigrationGuest, MigrationProgress, MigrationRole, MigrationState as State, MigrationStatus,
};

use crate::{Phase, Refused};

/// A source that has not come by then does not come. The controller's own limit is shorter.
const WAIT: Duration = Duration::from_secs(900);
/// Time for the last bytes of a source whose control connection is lost.
const LAST_BYTES: Duration = Duration::from_secs(30);

/// How long the target still listens once the guest runs here: for [`Event::Stop`] of the source, or for its repeated order if
/// the response was lost.
const FAREWELL: Duration = Duration::from_secs(60);

/// Reason of a target that has failed because its source cancelled.
pub const CALLED_OFF: &str = "the source has cancelled it";
/// Time for a QEMU that could not read the stream to exit by itself with a message.
const EXIT_GRACE: Duration = Duration::from_secs(2);

/// What has happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// QEMU waits for data, as the source ordered.
    Listening,
    /// The disks are finished.
    Settled,
    /// QEMU has come to this phase.
    Phase(Phase),
    /// The source orders to run the guest; its own never runs again.
    Run(Box<(MigrationProgress, MigrationGuest)>),
    Runs,
    /// It could not be let run.
    RunsNot,
    /// The source reports that nothing more comes.
    Stop,
    /// The control connection is lost.
    Lost,
    /// The source is gone for good: whether this guest is the one that runs from now on.
    Verdict(bool),
    /// QEMU has ended.
    Gone(String),
    /// The time of [`Target::wake_at`] has come.
    Timer,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Let the guest run; answered with [`Event::Runs`] or [`Event::RunsNot`].
    Continue,
    /// Nothing will ever run here: end.
    End,
    /// Stop listening.
    Close,
}

/// State machine of the target side.
#[derive(Clone, Debug)]
pub struct Target {
    status: MigrationStatus,
    now: Duration,
    by: Option<Duration>,
    settled: bool,
    /// QEMU could not read what came, and is about to end.
    broken: bool,
    /// The guest has the order to run, or runs.
    started: bool,
    /// The guest runs before all its memory is there.
    post_copy: bool,
    guest: Option<MigrationGuest>,
}

impl Target {
    /// A target that waits from `now` on for the source of the migration `id`.
    #[must_use]
    pub fn new(now: Duration, id: String) -> Self {
        let status = MigrationStatus { id, role: MigrationRole::Target, ..MigrationStatus::default() };
        let by = Some(now + WAIT);
        Self { status, now, by, settled: false, broken: false, started: false, post_copy: false, guest: None }
    }

    /// How far it is.
    #[must_use]
    pub fn status(&self) -> &MigrationStatus {
        &self.status
    }

    /// The guest's data as sent by the source; absent if a verdict let it run.
    #[must_use]
    pub fn guest(&self) -> Option<&MigrationGuest> {
        self.guest.as_ref()
    }

    /// When [`Event::Timer`] is wanted, if ever.
    #[must_use]
    pub fn wake_at(&self) -> Option<Duration> {
        self.by
    }

    /// Takes in what has happened at `now`.
    ///
    /// # Errors
    /// If an order or a verdict cannot be followed.
    pub fn step(&mut self, now: Duration, event: Event) -> Result<Vec<Action>, Refused> {
        self.now = self.now.max(now);
        let state = self.status.state;
        let runs = matches!(state, State::Completed | State::PostCopy);
        match event {
            Event::Listening => {
                if state != State::Waiting {
                    return Err(Refused(format!("this target is {state:?}")));
                }
                (self.status.state, self.by) = (State::Receiving, None);
            }
            Event::Settled => self.settled = true,
            Event::Phase(phase) => return Ok(self.phase(phase)),
            Event::Run(content) => {
                if runs {
                    // The answer was lost: it may be again. Or the source has counted meanwhile.
                    if content.0.downtime_ms.is_some() {
                        self.status.progress = content.0;
                    }
                    self.part();
                    return Ok(Vec::new());
                }
                if state != State::Arrived || self.broken {
                    return Err(Refused(format!("the guest is not whole here: this target is {state:?}")));
                }
                let (progress, guest) = *content;
                self.status.progress = progress;
                self.guest = Some(guest);
                return Ok(self.let_run());
            }
            Event::Runs if self.started => {
                self.status.state = if self.post_copy { State::PostCopy } else { State::Completed };
                self.part();
            }
            Event::RunsNot => self.started = false,
            Event::Stop if runs => {
                self.by = None;
                return Ok(vec![Action::Close]);
            }
            Event::Stop | Event::Lost if self.started || self.broken => {}
            Event::Stop => return Ok(self.fail(CALLED_OFF.to_owned())),
            Event::Lost => match state {
                State::Receiving if !self.settled => {
                    return Ok(self.fail("the source is gone".to_owned()));
                }
                State::Receiving => self.by = Some(self.now + LAST_BYTES),
                _ => {}
            },
            Event::Gone(why) if !runs => return Ok(self.fail(why)),
            Event::Verdict(keep) => return self.verdict(keep, runs),
            Event::Timer => return Ok(self.timer()),
            Event::Runs | Event::Gone(_) => {}
        }
        Ok(Vec::new())
    }

    fn phase(&mut self, phase: Phase) -> Vec<Action> {
        match (phase, self.status.state) {
            (Phase::Completed, State::Receiving) => {
                (self.status.state, self.by) = (State::Arrived, None);
                "waits for the order of the source to run".clone_into(&mut self.status.reason);
            }
            (Phase::PostCopyActive, State::Receiving) => {
                (self.status.state, self.by, self.post_copy) = (State::Arrived, None, true);
            }
            (Phase::Completed, State::PostCopy) => {
                self.status.state = State::Completed;
                self.part();
            }
            (Phase::Completed, State::Arrived) => self.post_copy = false,
            (Phase::Failed, State::Receiving | State::Arrived) if !self.started => {
                (self.broken, self.by) = (true, Some(self.now + EXIT_GRACE));
            }
            _ => {}
        }
        Vec::new()
    }

    /// The guest runs and is whole: the source may be gone, and never send [`Event::Stop`].
    fn part(&mut self) {
        if self.status.state == State::Completed {
            self.by = Some(self.now + FAREWELL);
        }
    }

    fn let_run(&mut self) -> Vec<Action> {
        self.status.reason.clear();
        if std::mem::replace(&mut self.started, true) {
            return Vec::new();
        }
        vec![Action::Continue]
    }

    fn fail(&mut self, why: String) -> Vec<Action> {
        if self.status.state.is_over() {
            return Vec::new();
        }
        (self.status.state, self.status.reason, self.by) = (State::Failed, why, None);
        vec![Action::End]
    }

    fn verdict(&mut self, keep: bool, runs: bool) -> Result<Vec<Action>, Refused> {
        match (self.status.state, keep) {
            (State::Arrived, true) if self.post_copy || self.broken => {
                Err(Refused("a part of the guest's memory is with the source only".to_owned()))
            }
            (State::Arrived, true) => Ok(self.let_run()),
            (_, true) if runs => Ok(Vec::new()),
            (_, true) => Err(Refused("the guest is not whole here".to_owned())),
            (_, false) if runs || self.started => Err(Refused("the guest runs here".to_owned())),
            (_, false) => Ok(self.fail("the VM continues elsewhere".to_owned())),
        }
    }

    fn timer(&mut self) -> Vec<Action> {
        if self.by.is_none_or(|by| by > self.now) {
            return Vec::new();
        }
        self.by = None;
        match self.status.state {
            State::Completed => vec![Action::Close],
            _ if self.broken => self.fail("QEMU could not read what came".to_owned()),
            State::Waiting => self.fail("no source has come".to_owned()),
            _ => self.fail("the source is gone, and the last of the guest did not come".to_owned()),
        }
    }
}
