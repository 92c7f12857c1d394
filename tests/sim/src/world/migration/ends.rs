//! The two sides of a migration: events go into the real cores, their actions are carried out.

use neonvm_core_migration::{Phase, source, target};
use neonvm_types::runner_protocol::{Exit, ExitReason, MigrationState as State};

use super::objects::Care;
use super::orders::Order;
use super::runner::{Side, words};
use super::{Step, World};
use crate::queue::{MILLI, SECOND, Time};
use crate::world::model::Id;
use crate::world::{duration, micros};
use crate::{Bug, Fault};

impl World {
    /// News for the source. An error: it cannot be followed.
    pub(super) fn source(
        &mut self,
        id: Id,
        care: &mut Care,
        pod: Id,
        event: source::Event,
    ) -> Result<(), ()> {
        let now = duration(self.now);
        let again = self.bug(Bug::SourceRunsAgain) && matches!(event, source::Event::NotHandedOver(_));
        let runner = care.runners.get_mut(&pod).filter(|runner| runner.alive).ok_or(())?;
        let Some(Side::Source(core)) = &mut runner.side else { return Err(()) };
        let before = core.status().state;
        let actions = core.step(now, event).map_err(drop)?;
        let (state, role) = (core.status().state, core.status().role);
        if state != before {
            self.note_vm(id, words(role, state));
            self.tempt(id, care, pod, state);
        }
        for action in actions {
            self.act_at_source(id, care, pod, action);
        }
        self.wake_runner(id, care, pod);
        self.publish(id, care, pod);
        if again {
            return self.source(id, care, pod, source::Event::Verdict(true));
        }
        Ok(())
    }

    /// News for the target. An error: it cannot be followed.
    pub(super) fn target(
        &mut self,
        id: Id,
        care: &mut Care,
        pod: Id,
        event: target::Event,
    ) -> Result<(), ()> {
        let now = duration(self.now);
        let runner = care.runners.get_mut(&pod).filter(|runner| runner.alive).ok_or(())?;
        let Some(Side::Target(core)) = &mut runner.side else { return Err(()) };
        let before = core.status().state;
        let actions = core.step(now, event).map_err(drop)?;
        let (state, role) = (core.status().state, core.status().role);
        if state != before {
            self.note_vm(id, words(role, state));
            self.tempt(id, care, pod, state);
        }
        for action in actions {
            match action {
                target::Action::Continue => {
                    let wait = self.lapse(1, 20);
                    self.later(id, wait, Step::Continue { pod });
                }
                target::Action::End => {
                    let why = Exit::new(ExitReason::MigrationFailed, "of no use any more");
                    self.end_runner(id, care, pod, why);
                }
                target::Action::Close => {
                    if let Some(runner) = care.runners.get_mut(&pod)
                        && self.bug != Some(Bug::PortStaysOpen)
                    {
                        runner.open = false;
                    }
                }
            }
        }
        self.wake_runner(id, care, pod);
        self.publish(id, care, pod);
        Ok(())
    }

    /// The cores are woken at the time that they requested.
    pub(super) fn wake_runner(&mut self, id: Id, care: &mut Care, pod: Id) {
        let Some(runner) = care.runners.get_mut(&pod).filter(|runner| runner.alive) else { return };
        let wake = match &runner.side {
            Some(Side::Source(core)) => core.wake_at(),
            Some(Side::Target(core)) => core.wake_at(),
            None => None,
        };
        let Some(at) = wake.map(|at| micros(at).max(self.now + MILLI)) else { return };
        if runner.wake.is_none_or(|wake| at < wake) {
            runner.wake = Some(at);
            self.later(id, at - self.now, Step::Timer { pod, at });
        }
    }

    pub(super) fn timer(&mut self, id: Id, care: &mut Care, pod: Id, at: Time) {
        let Some(runner) = care.runners.get_mut(&pod).filter(|runner| runner.wake == Some(at)) else {
            return;
        };
        runner.wake = None;
        let _ = if runner.is_source() {
            self.source(id, care, pod, source::Event::Timer)
        } else {
            self.target(id, care, pod, target::Event::Timer)
        };
    }

    /// QEMU's word reaches its runner.
    pub(super) fn words(&mut self, id: Id, care: &mut Care, pod: Id, (phase, words): (Phase, &'static str)) {
        let Some(runner) = care.runners.get(&pod) else { return };
        if runner.is_source() {
            let _ = self.source(id, care, pod, source::Event::Phase(phase, words.to_owned()));
            return;
        }
        let _ = self.target(id, care, pod, target::Event::Phase(phase));
        let arrived = care.runners.get(&pod).is_some_and(|runner| runner.state() == Some(State::Arrived));
        if self.bug(Bug::TargetRunsUnasked) && arrived {
            let _ = self.target(id, care, pod, target::Event::Run(Box::default()));
        }
    }

    pub(super) fn act_at_source(&mut self, id: Id, care: &mut Care, pod: Id, action: source::Action) {
        use source::Action as A;
        match action {
            A::Negotiate => self.order(id, care, pod, (Order::Listen, 10 * SECOND)),
            A::Mirror => {
                let takes = micros(self.settings.migration_takes);
                let wait = self.rngs.moves.between(takes / 20, takes / 2).max(MILLI);
                self.answer_source(id, care, pod, (wait, source::Event::Mirrored));
            }
            A::Copy => self.copy(id, care, pod),
            A::StartPostCopy => {
                if let Some(runner) = care.runners.get_mut(&pod) {
                    runner.qemu.post_copy = true;
                }
            }
            A::Settle if self.bug(Bug::DisksNotFinished) => {
                self.answer_source(id, care, pod, (MILLI, source::Event::Settled));
            }
            A::Settle => self.order(id, care, pod, (Order::Settle, 10 * SECOND)),
            A::SwitchOver => self.switch_over(id, care, pod),
            A::CancelCopy => self.cancel_copy(id, care, pod),
            A::HandOver => self.order(id, care, pod, (Order::Run, 8 * SECOND)),
            A::Recover => self.order(id, care, pod, (Order::Recover, 10 * SECOND)),
            A::StayHere => self.stay_here(id, care, pod),
            A::Leave => {
                self.order(id, care, pod, (Order::Stop, SECOND));
                let why = Exit::new(ExitReason::Migrated, "the VM has moved to another runner");
                let wait = self.lapse(1, 1_000);
                self.later(id, wait, Step::Ends { pod, exit: why });
            }
        }
    }

    /// An answer to the source, unless the migration has been cancelled by then.
    pub(super) fn answer_source(
        &mut self,
        id: Id,
        care: &Care,
        pod: Id,
        (wait, event): (Time, source::Event),
    ) {
        if let Some(runner) = care.runners.get(&pod) {
            let tag = runner.tag;
            self.later(id, wait, Step::Source { pod, tag, event });
        }
    }

    /// The guest is to run here: actions begun for the migration are not waited for any more.
    fn stay_here(&mut self, id: Id, care: &mut Care, pod: Id) {
        let Some(runner) = care.runners.get_mut(&pod) else { return };
        runner.tag += 1;
        let tag = runner.tag;
        if !runner.qemu.phase.is_over() {
            self.give_up(id, care, pod, (Phase::Cancelled, ""));
        }
        self.order(id, care, pod, (Order::Stop, 4 * SECOND));
        let reachable = self.is_linked(care, pod);
        let wait = if reachable { self.lapse(5, 100) } else { self.lapse(500, 4_000) };
        self.later(id, wait, Step::Cleaned { pod, tag });
    }

    pub(super) fn cleaned(&mut self, id: Id, care: &mut Care, pod: Id, tag: u64) {
        let Some(runner) = care.runners.get(&pod).filter(|runner| runner.tag == tag && runner.alive) else {
            return;
        };
        if !runner.guest {
            self.let_run(id, care, pod);
        }
        let _ = self.source(id, care, pod, source::Event::Cleaned(String::new()));
    }

    /// The target lets the guest run.
    pub(super) fn continues(&mut self, id: Id, care: &mut Care, pod: Id) {
        if care.runners.get(&pod).is_none_or(|runner| !runner.alive) {
            return;
        }
        if self.goes_wrong(Fault::RunnerDeath, 0.02) {
            self.note_vm(id, "the target cannot let it run");
            let _ = self.target(id, care, pod, target::Event::RunsNot);
            return;
        }
        self.let_run(id, care, pod);
        self.check_pod_size(id, care, pod);
        let _ = self.target(id, care, pod, target::Event::Runs);
    }
}
