//! The controller at work on a VM: the real core decides, its writes are guarded, and it dies between any two.

use std::rc::Rc;

use neonvm_api::virtual_machine::ActiveMigration;
use neonvm_core_migration::phases;
use neonvm_core_vm_lifecycle::{
    Action, AddressView, Failure, FailureReason, Moving, Observed, PodView, RunnerView, owned_pod, step,
};
use neonvm_types::Timestamp;

use super::objects::{Care, moment, stamp};
use super::{Controller, World};
use crate::queue::{MILLI, SECOND, Time};
use crate::world::event::Event;
use crate::world::model::Id;
use crate::world::notes::Line;
use crate::{Bug, Fault};

pub(super) const STEPS: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing is left to do until then, or until there is news.
    Done(Option<Timestamp>),
    /// It is tried again.
    Failed,
}

/// Why something was not done.
#[derive(Clone, Debug)]
pub(super) enum Failed {
    Conflict,
    Failure(Failure),
    /// The API server did not answer, or the controller is no more.
    Lost,
}

impl World {
    /// The controller reconciles a VM.
    pub(in crate::world) fn reconcile(&mut self, id: Id, at: Time) {
        self.with_care(id, |world, care| {
            if care.due != Some(at) {
                return;
            }
            care.due = None;
            if world.controller.up {
                world.turn(id, care);
                world.check_move(id, care);
            }
        });
        self.leave_alone(id);
    }

    fn turn(&mut self, id: Id, care: &mut Care) {
        // A controller that dies does so after so many writes.
        let dies = self.goes_wrong(Fault::ControllerCrash, 0.002);
        self.budget = if dies { self.rngs.moves.below(4) } else { u64::MAX };
        if self.now < self.controller.outage_until {
            self.budget = 0;
        }
        let machine = self.work_on_machine(id, care);
        let moves = self.work_on_moves(id, care);
        if dies && self.budget == 0 {
            return self.controller_ends();
        }
        let wake = match (machine, moves) {
            (Turn::Done(a), Turn::Done(b)) => {
                care.failures = 0;
                let next = a.into_iter().chain(b).min();
                next.map(|at| moment(at).saturating_sub(self.now).max(MILLI))
            }
            _ => {
                care.failures = (care.failures + 1).min(8);
                Some(((100 * MILLI) << care.failures).min(30 * SECOND))
            }
        };
        if let Some(wait) = wake {
            self.look_soon(id, care, wait);
        }
    }

    /// One write or order of the controller; whether it can be made.
    pub(super) fn spend(&mut self) -> Result<(), Failed> {
        if self.budget == 0 || self.goes_wrong(Fault::ApiError, 0.01) {
            return Err(Failed::Lost);
        }
        self.budget -= 1;
        Ok(())
    }

    fn work_on_machine(&mut self, id: Id, care: &mut Care) -> Turn {
        let (mut fresh, mut done) = (false, Vec::<Action>::new());
        for _ in 0..STEPS {
            let Some(now) = stamp(self.now) else { return Turn::Failed };
            if care.seen.gone {
                return Turn::Done(None);
            }
            let vm = Rc::clone(&care.seen.vm);
            let observed = self.observe_machine(id, care, fresh);
            let outcome = step(now, &vm, &observed, &self.controller.settings);
            if outcome.actions == [Action::Refresh] {
                if fresh || self.now < self.controller.outage_until {
                    return Turn::Failed;
                }
                self.refresh(id, care);
                fresh = true;
                continue;
            }
            let before = vm.status.clone().unwrap_or_default();
            let todo: Vec<Action> =
                outcome.actions.iter().filter(|action| !done.contains(action)).cloned().collect();
            let changed = outcome.status != before;
            if !changed && todo.is_empty() {
                care.key_states.failure = None;
                return Turn::Done(outcome.wake_at);
            }
            if changed {
                match self.write_machine(id, care, outcome.status) {
                    Ok(()) => {}
                    Err(Failed::Conflict) => {
                        self.refresh(id, care);
                        fresh = true;
                        continue;
                    }
                    Err(_) => return Turn::Failed,
                }
            }
            for action in todo {
                match self.act_on_machine(id, care, &action) {
                    Ok(()) => done.push(action),
                    Err(Failed::Failure(failure)) => {
                        care.key_states.failure = Some(failure);
                        return Turn::Failed;
                    }
                    Err(_) => return Turn::Failed,
                }
            }
            care.key_states.failure = None;
        }
        self.restless(id);
        Turn::Failed
    }

    /// S11: a controller that never converges.
    pub(super) fn restless(&mut self, id: Id) {
        let name = self.vm_name(id);
        let message = format!("{name}: the controller does not converge");
        self.fail(crate::Invariant::Quiet, message);
    }

    /// A write of the status, if the version of the object is still the one that was read.
    pub(super) fn write_machine(
        &mut self,
        id: Id,
        care: &mut Care,
        status: neonvm_api::VirtualMachineStatus,
    ) -> Result<(), Failed> {
        self.spend()?;
        if care.now.gone || !Rc::ptr_eq(&care.now.vm, &care.seen.vm) {
            return Err(Failed::Conflict);
        }
        let mut vm = (*care.now.vm).clone();
        vm.status = Some(status);
        self.put_vm(id, care, vm);
        if self.goes_wrong(Fault::LostReply, 0.01) {
            return Err(Failed::Lost);
        }
        care.seen.vm = Rc::clone(&care.now.vm);
        Ok(())
    }

    /// A pod and the runner in it, as observed by the controller.
    pub(super) fn observe_pod(&self, care: &Care, name: &str) -> (Option<PodView>, RunnerView) {
        let found = care.seen.pods.iter().find(|(_, view)| view.name == name);
        let pod = found.map(|(pod, _)| *pod).or_else(|| {
            // The last report outlives the pod.
            care.runners
                .keys()
                .copied()
                .find(|pod| self.pods.get(*pod).is_some_and(|entry| entry.key.name == name))
        });
        let runner = pod.and_then(|pod| care.runners.get(&pod)).map_or(RunnerView::Unknown, |one| one.view());
        let mut view = found.map(|(_, view)| (**view).clone());
        if self.bug(Bug::ResizeBelieved)
            && let Some(view) = &mut view
        {
            (view.applied, view.current) = (view.size, true);
        }
        if self.bug(Bug::SilenceIsDeath) && matches!(runner, RunnerView::Unreachable { .. }) {
            view = None;
        }
        (view, runner)
    }

    fn observe_machine(&mut self, id: Id, care: &Care, fresh: bool) -> Observed {
        let vm = &care.seen.vm;
        let own = owned_pod(vm).unwrap_or_default();
        let lock = vm.status.as_ref().and_then(|status| status.migration.as_ref());
        let (pod, mut runner) = self.observe_pod(care, own);
        let moving = lock.map(|lock| self.observe_moving(care, lock)).unwrap_or_default();
        if self.bug(Bug::UnlockBusy)
            && lock.is_some()
            && moving.mover.is_none()
            && let RunnerView::Seen(status) = &mut runner
        {
            status.migration = None;
        }
        let named = |name: &str| name == own || lock.is_some_and(|lock| lock.target_pod_name == name);
        let orphans = care.seen.pods.values().filter(|view| !named(&view.name));
        let address = match self.vms.get(id).and_then(|vm| vm.address) {
            Some(ip) => AddressView::Held { ip, mask: self.mask() },
            None => AddressView::None,
        };
        Observed {
            fresh,
            pod,
            orphans: orphans.map(|view| (**view).clone()).collect(),
            runner,
            address,
            moving,
            size_unanswered: care.key_states.unanswered.clone(),
            failure: care.key_states.failure.clone(),
            suffix: self.suffix(id),
            ..Observed::default()
        }
    }

    fn observe_moving(&self, care: &Care, lock: &ActiveMigration) -> Moving {
        let (target, target_runner) = self.observe_pod(care, &lock.target_pod_name);
        let found = care.seen.moves.get(&lock.name);
        let found = found.filter(|found| found.metadata.uid.as_ref() == Some(&lock.uid));
        let refused = care.key_states.refused.is_some_and(|pod| {
            self.pods.get(pod).is_some_and(|pod| target.as_ref().is_some_and(|view| view.uid == pod.uid))
        });
        Moving {
            mover: found.map(|found| phases::mover(found)),
            recovered: care.key_states.recovered,
            refused,
            target,
            target_runner,
        }
    }

    /// What the name of the next pod ends with.
    pub(super) fn suffix(&self, id: Id) -> String {
        self.vms.get(id).map(|vm| (vm.pods_made + 1).to_string()).unwrap_or_default()
    }

    pub(super) fn controller_ends(&mut self) {
        if !std::mem::replace(&mut self.controller.up, false) {
            return;
        }
        self.note(Line::Text("the controller ends"));
        let wait = self.lapse(500, 15_000);
        self.after(wait, Event::ControllerStarts);
    }

    /// Another controller starts, lists everything, and connects to the runners.
    pub(in crate::world) fn controller_starts(&mut self) {
        let settings = self.controller.settings.clone();
        self.controller = Controller { settings, started: self.now, ..Controller::new() };
        self.note(Line::Text("a controller starts"));
        self.read_pools();
        for id in 0..self.vms.len() {
            self.with_care(id, |world, care| {
                care.key_states = super::objects::KeyStates::default();
                for runner in care.runners.values_mut() {
                    (runner.contact, runner.received) = (super::runner::Contact::NotYet, None);
                }
                care.due = None;
                world.refresh(id, care);
                let wait = world.lapse(1, 100);
                world.look_soon(id, care, wait);
            });
        }
    }

    pub(super) fn not_done(reason: FailureReason, message: &str) -> Failed {
        Failed::Failure(Failure { reason, message: message.to_owned() })
    }
}
