//! Faults during migrations: injected at any step, or shortly after.

use neonvm_core_migration::{source, target};
use neonvm_types::runner_protocol::{Exit, ExitReason, MigrationState as State};

use super::objects::{Care, stamp};
use super::runner::Contact;
use super::{Step, World};
use crate::Fault;
use crate::queue::SECOND;
use crate::world::model::Id;
use crate::world::notes::Line;

/// Faults at each step, with their probabilities.
const CHANCES: &[(Fault, f64)] = &[
    (Fault::RunnerDeath, 0.02),
    (Fault::LinkLoss, 0.02),
    (Fault::RunnerSilent, 0.02),
    (Fault::ControllerCrash, 0.01),
    (Fault::ApiOutage, 0.005),
    (Fault::NodeLoss, 0.001),
];

impl World {
    /// A migration has reached another step.
    pub(super) fn tempt(&mut self, id: Id, care: &Care, pod: Id, _state: State) {
        for (fault, chance) in CHANCES {
            if !self.goes_wrong(*fault, *chance) {
                continue;
            }
            let partner = care.runners.get(&pod).and_then(|runner| runner.partner);
            let at = if self.rngs.moves.chance(0.5) { partner.unwrap_or(pod) } else { pod };
            let wait = match self.rngs.moves.below(3) {
                0 => 0,
                1 => self.lapse(0, 20),
                _ => self.lapse(0, 10_000),
            };
            let length = self.rngs.moves.between(SECOND / 2, 40 * SECOND);
            self.later(id, wait, Step::Inject { pod: at, fault: *fault, length });
        }
    }

    pub(super) fn inject_move(&mut self, id: Id, care: &mut Care, pod: Id, (fault, length): (Fault, u64)) {
        if !self.faults_on {
            return;
        }
        match fault {
            Fault::RunnerDeath => self.process_dies(id, care, pod),
            Fault::LinkLoss => {
                let source = care.runners.iter().find(|(_, runner)| runner.is_leaving());
                if let Some((from, _)) = source.map(|(from, runner)| (*from, runner.partner)) {
                    self.note_vm(id, "the connection between its runners is cut");
                    self.cut(id, care, from, length);
                }
            }
            Fault::RunnerSilent => {
                let (now, since) = (self.now, stamp(self.now));
                let Some(runner) = care.runners.get_mut(&pod).filter(|runner| runner.alive) else { return };
                runner.silent_until = now + length;
                if let Some(since) = since
                    && runner.contact == Contact::Well
                {
                    runner.contact = Contact::NotAnyMore(since);
                }
                self.note_vm(id, "the controller receives nothing from one of its runners");
                self.later(id, length + 1, Step::Linked { pod });
                let wait = self.lapse(1, 20);
                self.look_soon(id, care, wait);
            }
            Fault::ControllerCrash => self.controller_ends(),
            Fault::ApiOutage => {
                self.controller.outage_until = self.now + length;
                self.note(Line::Text("the API server does not answer"));
            }
            Fault::NodeLoss => {
                let node = self.pods.get(pod).and_then(|entry| entry.node);
                if let Some(node) = node {
                    self.after(0, crate::world::event::Event::NodeLost(node));
                }
            }
            _ => {}
        }
    }

    /// Faults have ended: links and connections are whole again.
    pub(in crate::world) fn moves_heal(&mut self) {
        let now = self.now;
        self.controller.outage_until = self.controller.outage_until.min(now);
        for id in 0..self.vms.len() {
            self.with_care(id, |world, care| {
                let silent: Vec<Id> = care
                    .runners
                    .iter()
                    .filter(|(_, one)| one.silent_until > now)
                    .map(|(pod, _)| *pod)
                    .collect();
                for runner in care.runners.values_mut() {
                    (runner.cut_until, runner.silent_until) =
                        (runner.cut_until.min(now), runner.silent_until.min(now));
                }
                for pod in silent {
                    world.later(id, 1, Step::Linked { pod });
                }
            });
        }
    }

    /// A runner, with its QEMU; or QEMU alone.
    fn process_dies(&mut self, id: Id, care: &mut Care, pod: Id) {
        let Some(runner) = care.runners.get(&pod).filter(|runner| runner.alive) else { return };
        let (source, prepares) = (runner.is_source(), runner.prepares());
        if self.rngs.moves.chance(0.6) {
            self.note_vm(
                id,
                if source { "the runner it leaves is killed" } else { "the runner it comes to is killed" },
            );
            return self.end_runner(id, care, pod, Exit::new(ExitReason::RunnerKilled, "killed"));
        }
        self.note_vm(id, if source { "the QEMU it leaves ends" } else { "the QEMU it comes to ends" });
        if source {
            let _ = self.source(id, care, pod, source::Event::Gone("QEMU has ended".to_owned()));
        } else if prepares {
            let _ = self.target(id, care, pod, target::Event::Gone("QEMU has ended".to_owned()));
        }
        if care.runners.get(&pod).is_some_and(|runner| runner.alive) {
            let reason = if prepares { ExitReason::MigrationFailed } else { ExitReason::QemuEnded };
            self.end_runner(id, care, pod, Exit::new(reason, "QEMU has ended"));
        }
    }
}
