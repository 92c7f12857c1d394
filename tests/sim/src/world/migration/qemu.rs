//! Two QEMUs: passes over memory at a rate, the switch, and what memory and disks hold: how often the guest had written.

use neonvm_core_migration::{Phase, source};

use super::objects::Care;
use super::{Step, World};
use crate::queue::{MILLI, Time};
use crate::world::micros;
use crate::world::model::Id;
use crate::{Bug, Fault};

impl World {
    /// QEMU emits an event; events arrive in order.
    pub(super) fn emit(&mut self, id: Id, care: &mut Care, pod: Id, (phase, words): (Phase, &'static str)) {
        let late = if self.goes_wrong(Fault::LinkDelay, 0.03) { self.lapse(10, 1_000) } else { 0 };
        let wait = self.lapse(0, 3) + late;
        let now = self.now;
        let Some(runner) = care.runners.get_mut(&pod) else { return };
        let at = (now + wait).max(runner.words_at);
        runner.words_at = at;
        self.later(id, at - now, Step::Words { pod, phase, words });
    }

    /// The guest has written, if it runs here.
    pub(super) fn writes(care: &mut Care, pod: Id) {
        if let Some(runner) = care.runners.get_mut(&pod).filter(|runner| runner.guest) {
            care.written += 1;
            (runner.memory, runner.disk) = (care.written, care.written);
        }
    }

    fn partner(care: &Care, pod: Id) -> Option<Id> {
        care.runners.get(&pod)?.partner.filter(|to| care.runners.get(to).is_some_and(|there| there.alive))
    }

    /// Memory is to be sent.
    pub(super) fn copy(&mut self, id: Id, care: &mut Care, pod: Id) {
        let takes = micros(self.settings.migration_takes);
        let first = self.rngs.moves.between(takes / 4, takes).max(MILLI);
        let Some(runner) = care.runners.get_mut(&pod) else { return };
        if !runner.qemu.phase.is_over() {
            return self.emit(id, care, pod, (Phase::Failed, "a migration is running already"));
        }
        let epoch = runner.qemu.epoch + 1;
        runner.qemu = super::runner::Qemu {
            phase: Phase::Active,
            epoch,
            took: first,
            missing: runner.qemu.missing,
            ..super::runner::Qemu::default()
        };
        self.emit(id, care, pod, (Phase::Active, ""));
        self.later(id, first, Step::Qemu { pod, epoch });
        if !self.is_linked(care, pod) {
            self.give_up(id, care, pod, (Phase::Failed, "the target is not reached"));
        }
    }

    /// QEMU continues a migration.
    pub(super) fn qemu(&mut self, id: Id, care: &mut Care, pod: Id, epoch: u32) {
        let Some(runner) = care.runners.get(&pod).filter(|one| one.alive && one.qemu.epoch == epoch) else {
            return;
        };
        match runner.qemu.phase {
            Phase::Active => self.pass(id, care, pod),
            Phase::Device => self.devices(id, care, pod),
            Phase::PostCopyActive => self.rest(id, care, pod),
            _ => {}
        }
    }

    /// Memory was gone through once more.
    fn pass(&mut self, id: Id, care: &mut Care, pod: Id) {
        let Some(to) = Self::partner(care, pod) else { return };
        let sent = care.runners.get(&pod).map_or(0, |runner| runner.memory);
        Self::writes(care, pod);
        if let Some(there) = care.runners.get_mut(&to) {
            there.memory = sent;
        }
        // What the guest writes while a pass lasts makes the next one.
        let busy = self.goes_wrong(Fault::BusyGuest, 0.5);
        let share = if busy { self.rngs.moves.between(80, 110) } else { self.rngs.moves.between(5, 60) };
        let Some(runner) = care.runners.get_mut(&pod) else { return };
        runner.qemu.pass += 1;
        runner.qemu.took = runner.qemu.took * share / 100;
        let (number, next, epoch) = (runner.qemu.pass + 1, runner.qemu.took, runner.qemu.epoch);
        let (post_copy, small) = (runner.qemu.post_copy, next < 300 * MILLI);
        if post_copy || small {
            runner.guest = false;
            runner.qemu.phase = Phase::PreSwitchover;
        }
        let wait = self.lapse(0, 3);
        self.later(id, wait, Step::Pass { pod, pass: number });
        if post_copy || small {
            self.emit(id, care, pod, (Phase::PreSwitchover, ""));
        } else {
            self.later(id, next, Step::Qemu { pod, epoch });
        }
    }

    /// The rest is to be sent.
    pub(super) fn switch_over(&mut self, id: Id, care: &mut Care, pod: Id) {
        let Some(runner) = care.runners.get_mut(&pod) else { return };
        if runner.qemu.phase != Phase::PreSwitchover {
            let event = source::Event::NotSwitched("QEMU does not wait for it".to_owned());
            return self.answer_source(id, care, pod, (MILLI, event));
        }
        runner.qemu.phase = Phase::Device;
        let epoch = runner.qemu.epoch;
        let hop = self.hop();
        self.later(id, hop, Step::Qemu { pod, epoch });
    }

    /// The rest is on its way: first the target has all of it, then the source is notified.
    fn devices(&mut self, id: Id, care: &mut Care, pod: Id) {
        let Some(to) = Self::partner(care, pod) else { return };
        let Some(source) = care.runners.get(&pod) else { return };
        let (all, epoch, post_copy) = (source.memory, source.qemu.epoch, source.qemu.post_copy);
        if post_copy {
            // Pages follow on request, each as it was when the guest was stopped.
            if let Some(there) = care.runners.get_mut(&to) {
                (there.memory, there.qemu.missing) = (all, true);
            }
            if let Some(runner) = care.runners.get_mut(&pod) {
                runner.qemu.phase = Phase::PostCopyActive;
            }
            self.emit(id, care, to, (Phase::PostCopyActive, ""));
            self.emit(id, care, pod, (Phase::PostCopyActive, ""));
            let wait = self.lapse(50, 3_000);
            return self.later(id, wait, Step::Qemu { pod, epoch });
        }
        let whole = care.runners.get(&to).is_some_and(|there| there.qemu.phase == Phase::Completed);
        if !whole {
            let leave_out = self.bug(Bug::LastPassLeftOut);
            if let Some(there) = care.runners.get_mut(&to) {
                if !leave_out {
                    there.memory = all;
                }
                there.qemu.phase = Phase::Completed;
            }
            self.emit(id, care, to, (Phase::Completed, ""));
            let hop = self.hop();
            return self.later(id, hop, Step::Qemu { pod, epoch });
        }
        if let Some(runner) = care.runners.get_mut(&pod) {
            runner.qemu.phase = Phase::Completed;
        }
        self.emit(id, care, pod, (Phase::Completed, ""));
    }

    /// The last of a post-copy.
    fn rest(&mut self, id: Id, care: &mut Care, pod: Id) {
        let Some(to) = Self::partner(care, pod) else { return };
        if let Some(there) = care.runners.get_mut(&to) {
            (there.qemu.missing, there.qemu.phase) = (false, Phase::Completed);
        }
        if let Some(runner) = care.runners.get_mut(&pod) {
            runner.qemu.phase = Phase::Completed;
        }
        self.emit(id, care, to, (Phase::Completed, ""));
        self.emit(id, care, pod, (Phase::Completed, ""));
    }

    /// The connection of a post-copy is there again.
    pub(super) fn recovered(&mut self, id: Id, care: &mut Care, pod: Id) {
        let Some(runner) = care.runners.get_mut(&pod) else { return };
        runner.qemu.phase = Phase::PostCopyActive;
        let epoch = runner.qemu.epoch;
        let wait = self.lapse(50, 2_000);
        self.emit(id, care, pod, (Phase::PostCopyActive, ""));
        self.later(id, wait, Step::Qemu { pod, epoch });
    }

    /// QEMU gets the order to cancel. Once the guest runs elsewhere that has no effect.
    pub(super) fn cancel_copy(&mut self, id: Id, care: &mut Care, pod: Id) {
        let Some(phase) = care.runners.get(&pod).map(|runner| runner.qemu.phase) else { return };
        if !phase.is_over() && !matches!(phase, Phase::PostCopyActive | Phase::PostCopyPaused) {
            return self.give_up(id, care, pod, (Phase::Cancelled, ""));
        }
        // It answers how far it is.
        self.emit(id, care, pod, (phase, ""));
    }

    /// QEMU gives a migration up, and resumes its guest here.
    pub(super) fn give_up(
        &mut self,
        id: Id,
        care: &mut Care,
        pod: Id,
        (phase, words): (Phase, &'static str),
    ) {
        let Some(runner) = care.runners.get_mut(&pod) else { return };
        runner.qemu.phase = phase;
        if !runner.guest {
            self.let_run(id, care, pod);
        }
        self.emit(id, care, pod, (phase, words));
    }

    /// The link is cut: both QEMUs and both runners find out.
    pub(super) fn cut(&mut self, id: Id, care: &mut Care, from: Id, length: Time) {
        let until = self.now + length;
        let Some(source) = care.runners.get_mut(&from) else { return };
        source.cut_until = source.cut_until.max(until);
        let (phase, alive) = (source.qemu.phase, source.alive);
        let connected = std::mem::replace(&mut source.connected, false);
        let to = source.partner;
        if alive {
            match phase {
                Phase::Active | Phase::PreSwitchover | Phase::Device => {
                    self.give_up(id, care, from, (Phase::Failed, "the connection was lost"));
                }
                Phase::PostCopyActive => {
                    if let Some(source) = care.runners.get_mut(&from) {
                        source.qemu.phase = Phase::PostCopyPaused;
                    }
                    self.emit(id, care, from, (Phase::PostCopyPaused, ""));
                }
                _ => {}
            }
        }
        let Some(to) = to else { return };
        let receiving = !phase.is_over()
            && care.runners.get(&to).is_some_and(|there| {
                there.alive && !there.qemu.missing && there.qemu.phase != Phase::Completed
            });
        if receiving {
            self.emit(id, care, to, (Phase::Failed, "the connection was lost"));
        }
        if connected {
            let (here, there) = (self.lapse(1, 2_000), self.lapse(1, 2_000));
            let why = "the connection to the target was lost".to_owned();
            self.answer_source(id, care, from, (here, source::Event::Trouble(why)));
            let event = neonvm_core_migration::target::Event::Lost;
            self.later(id, there, Step::Target { pod: to, event });
        }
    }
}
