//! Calls of the controller to runners, and their reports.

use neonvm_core_migration::{Source, source, target};
use neonvm_types::Resources;
use neonvm_types::runner_protocol::{MigrationRequest, MigrationState as State, MigrationVerdict};

use super::objects::{Care, stamp};
use super::runner::{Contact, Runner, Side};
use super::{Step, World};
use crate::queue::Time;
use crate::world::model::Id;
use crate::{Bug, Fault};

/// A request of the controller to a runner.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    /// Migrate the VM to the runner in this pod.
    Start(Box<MigrationRequest>, Id),
    Cancel(String, String),
    Recover(String),
    /// The other runner is gone for good.
    Settle(MigrationVerdict),
    Size(Resources),
}

/// The runner's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Ok,
    Conflict,
    /// There is no such migration.
    Unknown,
    /// No answer.
    None,
}

impl World {
    /// A call, and its answer if that comes in time.
    pub(super) fn ask(&mut self, id: Id, care: &mut Care, name: &str, call: Call) -> Answer {
        let seen = care.seen.pods.iter().find(|(_, view)| view.name == name).map(|(pod, _)| *pod);
        let Some(pod) = seen else { return Answer::None };
        let now = self.now;
        let there = care.runners.get(&pod).is_some_and(|runner| {
            runner.alive && runner.contact != Contact::NotYet && runner.silent_until <= now
        });
        if !there {
            return Answer::None;
        }
        if self.goes_wrong(Fault::OrderLost, 0.05) {
            match self.rngs.moves.below(3) {
                0 => {}
                1 => {
                    let wait = self.lapse(100, 20_000);
                    self.later(id, wait, Step::Call { pod, call, sent: self.now });
                }
                _ => drop(self.called(id, care, pod, &call)),
            }
            self.note_vm(id, "an order of the controller to a runner is lost, late, or not answered");
            return Answer::None;
        }
        let answer = self.called(id, care, pod, &call);
        // The answer shows how the runner is now.
        let deaf = self.bug(Bug::EndNotReceived);
        if let Some(runner) = care.runners.get_mut(&pod)
            && answer == Answer::Ok
            && runner.contact == Contact::Well
        {
            if deaf { runner.receive_size() } else { runner.receive() }
        }
        answer
    }

    /// A call arrives late. A change of size ends with the connection, and so with the controller that requested it.
    pub(super) fn late_call(&mut self, id: Id, care: &mut Care, pod: Id, (call, sent): (&Call, Time)) {
        let ended = !self.controller.up || sent < self.controller.started;
        if !(ended && matches!(call, Call::Size(_))) {
            let _ = self.called(id, care, pod, call);
        }
    }

    /// A call reaches a runner.
    pub(super) fn called(&mut self, id: Id, care: &mut Care, pod: Id, call: &Call) -> Answer {
        let Some(runner) = care.runners.get_mut(&pod).filter(|runner| runner.alive) else {
            return Answer::None;
        };
        let is = |runner: &Runner, id: &str| runner.status().is_some_and(|status| status.id == id);
        let refused = |result: Result<(), ()>| if result.is_ok() { Answer::Ok } else { Answer::Conflict };
        match call {
            Call::Size(size) => {
                runner.size = *size;
                self.check_pod_size(id, care, pod);
                self.publish(id, care, pod);
                Answer::Ok
            }
            Call::Start(request, target) => self.begin(id, care, pod, (request, *target)),
            Call::Cancel(which, _) | Call::Recover(which) if !is(runner, which) => Answer::Unknown,
            Call::Settle(verdict) if !is(runner, &verdict.id) => Answer::Unknown,
            Call::Cancel(..) | Call::Recover(_) if !runner.is_source() => Answer::Conflict,
            Call::Cancel(_, why) => refused(self.source(id, care, pod, source::Event::Cancel(why.clone()))),
            Call::Recover(_) => refused(self.source(id, care, pod, source::Event::Recover)),
            Call::Settle(verdict) => {
                self.note_vm(id, "the other side is gone: the controller decides where it lives");
                let runner = care.runners.get(&pod);
                let result = if runner.is_some_and(Runner::is_source) {
                    if verdict.keep {
                        self.lose_unreported(id, care, pod);
                    }
                    self.source(id, care, pod, source::Event::Verdict(verdict.keep))
                } else {
                    if verdict.keep {
                        self.lose_unreported(id, care, pod);
                    }
                    self.target(id, care, pod, target::Event::Verdict(verdict.keep))
                };
                refused(result)
            }
        }
    }

    /// The source gets the order to begin.
    fn begin(
        &mut self,
        id: Id,
        care: &mut Care,
        pod: Id,
        (request, target): (&MigrationRequest, Id),
    ) -> Answer {
        let now = super::super::duration(self.now);
        let Some(runner) = care.runners.get_mut(&pod) else { return Answer::None };
        if let Some(status) = runner.status() {
            if runner.is_source() && status.id == request.id {
                return Answer::Ok;
            }
            if !status.state.is_over() {
                return Answer::Conflict;
            }
        }
        if runner.prepares() || runner.stopping || !runner.guest {
            return Answer::Conflict;
        }
        let (core, actions) = Source::new(now, request.clone());
        runner.side = Some(Side::Source(Box::new(core)));
        runner.tag += 1;
        runner.partner = Some(target);
        (runner.connected, runner.open) = (false, false);
        care.post_copy = true;
        self.note_vm(
            id,
            super::runner::words(neonvm_types::runner_protocol::MigrationRole::Source, State::Negotiating),
        );
        for action in actions {
            self.act_at_source(id, care, pod, action);
        }
        self.wake_runner(id, care, pod);
        self.publish(id, care, pod);
        Answer::Ok
    }

    /// Sends a report of the runner to the controller, if anything has changed.
    pub(super) fn publish(&mut self, id: Id, care: &mut Care, pod: Id) {
        let Some(runner) = care.runners.get_mut(&pod) else { return };
        if runner.has_news() && !std::mem::replace(&mut runner.reporting, true) {
            let late = if self.goes_wrong(Fault::Delay, 0.02) { self.lapse(200, 5_000) } else { 0 };
            let wait = self.lapse(1, 15) + late;
            self.later(id, wait, Step::Report { pod });
        }
    }

    /// A runner's report reaches the controller.
    pub(super) fn report_arrives(&mut self, id: Id, care: &mut Care, pod: Id) {
        let (now, up) = (self.now, self.controller.up);
        let deaf = self.bug(Bug::EndNotReceived);
        let Some(runner) = care.runners.get_mut(&pod) else { return };
        runner.reporting = false;
        if runner.silent_until > now {
            // It is reported when the connection is made again.
            return;
        }
        if deaf && runner.state() == Some(State::Completed) {
            return;
        }
        if up && runner.contact == Contact::Well {
            runner.receive();
            let wait = self.lapse(1, 5);
            self.look_soon(id, care, wait);
        }
    }

    /// The controller connects to the runners in the pods of its cache.
    pub(super) fn link_all(&mut self, id: Id, care: &mut Care) {
        let pods: Vec<Id> =
            care.seen.pods.iter().filter(|(_, view)| view.running).map(|(pod, _)| *pod).collect();
        for pod in pods {
            let new = care
                .runners
                .get(&pod)
                .is_some_and(|runner| runner.alive && runner.contact == Contact::NotYet);
            if new {
                let wait = self.lapse(2, 50);
                self.later(id, wait, Step::Linked { pod });
            }
        }
    }

    /// The connection to a runner is there, or is found to be broken.
    pub(super) fn linked(&mut self, id: Id, care: &mut Care, pod: Id) {
        let now = self.now;
        let (up, since) = (self.controller.up, stamp(now));
        let known = care.seen.pods.get(&pod).is_some_and(|view| view.running);
        let Some(runner) = care.runners.get_mut(&pod) else { return };
        if !up {
            return;
        }
        let reachable = runner.silent_until <= now && (runner.alive || runner.exit.is_some());
        match (reachable, runner.contact) {
            (true, Contact::NotYet) if !runner.alive || !known => return,
            (true, _) => runner.receive(),
            (false, Contact::NotAnyMore(_)) => {}
            (false, _) => {
                if let Some(since) = since {
                    runner.contact = Contact::NotAnyMore(since);
                }
            }
        }
        if !reachable && runner.alive {
            let wait = runner.silent_until.saturating_sub(now) + 1;
            self.later(id, wait, Step::Linked { pod });
        }
        let wait = self.lapse(1, 5);
        self.look_soon(id, care, wait);
    }
}
