//! Pods of VMs in migration: they start, are requested to stop, end, and are deleted.

use std::rc::Rc;

use neonvm_core_migration::{Target, source, target};
use neonvm_types::runner_protocol::{Exit, ExitReason};

use super::objects::{Care, Kind, stamp};
use super::runner::{Contact, Runner};
use super::{Step, World};
use crate::queue::{MILLI, SECOND, Time};
use crate::world::duration;
use crate::world::model::Id;

/// How long a pod may take to end: shorter than what is shipped, so that more happens in a run.
const GRACE: Time = 30 * SECOND;

impl World {
    /// A pod got its node: its runner starts.
    pub(in crate::world) fn pod_starts(&mut self, id: Id, pod: Id) {
        let node = self.pods.get(pod).and_then(|entry| self.nodes.get(entry.node?));
        let name = node.map(|node| node.name.clone()).unwrap_or_default();
        self.with_care(id, |world, care| {
            if let Some(view) = care.now.pods.get_mut(&pod) {
                Rc::make_mut(view).node = name;
            }
            world.touch(id, care, Kind::Pods);
        });
        let wait = self.latency(500, 4_000);
        self.later(id, wait, Step::Starts { pod });
    }

    /// The runner is there: it waits for a VM, or boots one.
    pub(super) fn starts(&mut self, id: Id, care: &mut Care, pod: Id) {
        let Some(entry) = self.pods.get(pod).filter(|entry| entry.alive && !entry.ended) else { return };
        let size = entry.usage;
        let Some(view) = care.now.pods.get_mut(&pod).filter(|view| view.deleting.is_none()) else { return };
        let target = view.migrations.first().filter(|uid| **uid == view.controller).cloned();
        let view = Rc::make_mut(view);
        (view.running, view.ready) = (true, target.is_none());
        (view.applied, view.current) = (view.size, true);
        self.touch(id, care, Kind::Pods);
        match target {
            Some(uid) => {
                let runner = Runner::waiting(size, Target::new(duration(self.now), uid));
                care.runners.insert(pod, runner);
                self.note_vm(id, "its target has started and waits for it");
                self.wake_runner(id, care, pod);
            }
            None => {
                // A VM that boots has nothing of what it had before.
                care.written += 1;
                let mut runner = Runner::booted(size, care.written);
                runner.contact = Contact::NotYet;
                care.runners.insert(pod, runner);
                self.machine_boots(id, pod, size);
            }
        }
    }

    /// The pod is being deleted: its runner is requested to stop.
    pub(super) fn end_pod(&mut self, id: Id, care: &mut Care, pod: Id) {
        let until = stamp(self.now + GRACE);
        let Some(view) = care.now.pods.get_mut(&pod) else { return };
        if view.deleting.is_some() {
            return;
        }
        let (ended, placed) = (view.ended.is_some(), !view.node.is_empty());
        Rc::make_mut(view).deleting = until;
        self.touch(id, care, Kind::Pods);
        let wait = self.lapse(10, 500);
        if ended || !placed {
            return self.later(id, wait, Step::Goes { pod });
        }
        self.later(id, wait, Step::Stop { pod });
        self.later(id, GRACE, Step::Kill { pod });
    }

    /// The runner is requested to stop. One that has relinquished its guest completes the handover first.
    pub(super) fn stop(&mut self, id: Id, care: &mut Care, pod: Id) {
        let Some(runner) = care.runners.get_mut(&pod).filter(|runner| runner.alive) else {
            // Its container has not started.
            return self.later(id, 0, Step::Kill { pod });
        };
        let state = runner.state();
        let leaving = runner.is_source();
        if leaving && state.is_some_and(|state| state.has_left()) {
            return;
        }
        if runner.prepares() {
            let gone = target::Event::Gone("the target was asked to stop".to_owned());
            let _ = self.target(id, care, pod, gone);
            return;
        }
        runner.stopping = true;
        if leaving {
            let _ = self.source(id, care, pod, source::Event::Cancel("the VM is to stop".to_owned()));
        }
        let wait = self.lapse(200, 5_000);
        let exit = Exit::new(ExitReason::Stopped, "it was asked to stop");
        self.later(id, wait, Step::Ends { pod, exit });
    }

    /// The grace of a pod is over: what is left of it is killed, and it goes.
    pub(super) fn kill(&mut self, id: Id, care: &mut Care, pod: Id) {
        if care.now.pods.get(&pod).is_some_and(|view| view.ended.is_none()) {
            self.end_runner(id, care, pod, Exit::new(ExitReason::RunnerKilled, "killed after its grace"));
        }
        self.later(id, 100 * MILLI, Step::Goes { pod });
    }

    /// A runner ends by itself, with a termination message; or it is killed without one.
    pub(super) fn end_runner(&mut self, id: Id, care: &mut Care, pod: Id, exit: Exit) {
        self.runner_dies(id, care, pod, exit.reason != ExitReason::RunnerKilled, &exit);
        let wait = self.lapse(20, 1_000);
        self.later(id, wait, Step::Ends { pod, exit });
    }

    /// Nothing of it runs any more, and its partner finds out.
    fn runner_dies(&mut self, id: Id, care: &mut Care, pod: Id, speaks: bool, exit: &Exit) {
        let Some(runner) = care.runners.get_mut(&pod).filter(|runner| runner.alive) else { return };
        (runner.alive, runner.guest, runner.open, runner.stopping) = (false, false, false, false);
        if speaks {
            runner.exit = Some(exit.clone());
        }
        let source = runner.is_source();
        let partner = runner.partner;
        let news = runner.has_news();
        if speaks && !news && runner.contact == Contact::Well {
            runner.receive();
        }
        if source {
            if let Some(to) = partner {
                self.source_is_gone(id, care, pod, to);
            }
        } else if let Some(from) = partner {
            let linked = care.runners.get(&from).is_some_and(|one| one.alive && one.partner == Some(pod));
            if linked {
                self.cut(id, care, from, 0);
            }
        }
        let wait = if speaks { self.lapse(1, 20) } else { self.lapse(1, 200) };
        self.later(id, wait, Step::Linked { pod });
    }

    fn source_is_gone(&mut self, id: Id, care: &mut Care, from: Id, to: Id) {
        self.cut(id, care, from, 0);
        let missing = care.runners.get(&to).is_some_and(|there| there.alive && there.qemu.missing);
        if missing {
            self.note_vm(id, "a part of its memory is gone with its source");
        }
    }

    pub(super) fn pod_has_ended(&mut self, id: Id, care: &mut Care, pod: Id, exit: Exit) {
        let alive = care.runners.get(&pod).is_some_and(|runner| runner.alive);
        if alive {
            // It was on its way to its end and has come there.
            let speaks = exit.reason != ExitReason::RunnerKilled;
            self.runner_dies(id, care, pod, speaks, &exit);
        }
        let Some(view) = care.now.pods.get_mut(&pod).filter(|view| view.ended.is_none()) else { return };
        let going = view.deleting.is_some();
        let view = Rc::make_mut(view);
        (view.running, view.ready, view.ended) = (false, false, Some(exit));
        if let Some(entry) = self.pods.get_mut(pod) {
            entry.ended = true;
        }
        self.recount(pod);
        self.touch_pod(pod);
        self.touch(id, care, Kind::Pods);
        if going {
            let wait = self.lapse(100, 2_000);
            self.later(id, wait, Step::Goes { pod });
        }
    }

    /// A pod goes from the API server.
    pub(super) fn pod_goes(&mut self, id: Id, care: &mut Care, pod: Id) {
        let Some(view) = care.now.pods.get(&pod) else { return };
        let runs = care.runners.get(&pod).is_some_and(|runner| runner.alive);
        if view.deleting.is_none() || runs {
            return;
        }
        self.drop_pod(id, care, pod);
    }

    fn drop_pod(&mut self, id: Id, care: &mut Care, pod: Id) {
        care.now.pods.remove(&pod);
        self.touch(id, care, Kind::Pods);
        self.pod_removed(pod);
    }

    /// A node is gone with all that ran there. Whether the VM is looked after by the cores.
    pub(in crate::world) fn pod_is_lost(&mut self, id: Id, pod: Id) -> bool {
        let lost = self.with_care(id, |world, care| {
            let exit = Exit::new(ExitReason::RunnerKilled, "its node is gone");
            world.runner_dies(id, care, pod, false, &exit);
            world.drop_pod(id, care, pod);
            world.check_move(id, care);
        });
        lost.is_some()
    }
}
