//! Faults that are injected at random times.

use super::World;
use super::event::Event;
use super::model::{Id, Phase};
use super::notes::Line;
use crate::Fault;
use crate::queue::SECOND;

/// Faults that hit a VM or node, or the scheduler, each with its weight.
const WEIGHTS: &[(Fault, u32)] = &[
    (Fault::AgentCrash, 3),
    (Fault::SchedulerCrash, 3),
    (Fault::Handover, 3),
    (Fault::MonitorLost, 4),
    (Fault::MonitorSilent, 3),
    (Fault::MonitorRefuses, 4),
    (Fault::MonitorGarbage, 2),
    (Fault::LostMetrics, 3),
    (Fault::LyingMetrics, 3),
    (Fault::SlowResize, 4),
    (Fault::StuckResize, 3),
    (Fault::NodeLoss, 1),
];

impl World {
    /// Injects one fault and schedules the next.
    pub(super) fn chaos(&mut self) {
        if !self.faults_on {
            return;
        }
        let places = (self.vms.len() as u64 / 20).clamp(1, 100);
        let wait = self.rngs.chaos.between(2 * SECOND, 40 * SECOND) / places;
        self.after(wait, Event::Chaos);
        let all: u32 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        // Drawn among all, so that leaving one out does not shift the others.
        let mut drawn = u32::try_from(self.rngs.chaos.below(all.into())).unwrap_or(0);
        let (vm, node) = (self.rngs.chaos.next(), self.rngs.chaos.next());
        let length = self.rngs.chaos.between(5 * SECOND, 240 * SECOND);
        let chosen = WEIGHTS.iter().find(|(_, weight)| {
            let here = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            here
        });
        let Some((fault, _)) = chosen.filter(|(fault, _)| self.faults.has(*fault)) else { return };
        self.stats.faults += 1;
        let vm = usize::try_from(vm % (self.vms.len() as u64).max(1)).unwrap_or(0);
        let node = usize::try_from(node % (self.nodes.len() as u64).max(1)).unwrap_or(0);
        match fault {
            Fault::AgentCrash => self.agent_ends(node),
            Fault::SchedulerCrash => self.scheduler_ends(),
            Fault::Handover => self.hand_over(),
            Fault::NodeLoss => self.lose_node(node),
            Fault::MonitorLost => {
                self.note(Line::Vm(vm, "its monitor's connection ends"));
                self.disconnect(vm);
            }
            fault => self.inject(vm, *fault, length),
        }
    }

    fn inject(&mut self, id: Id, fault: Fault, length: u64) {
        let until = self.now + length;
        let Some(vm) = self.vms.get_mut(id).filter(|vm| vm.phase == Phase::Running) else { return };
        let what = match fault {
            Fault::MonitorSilent => {
                vm.guest.silent_until = until;
                "its monitor is silent"
            }
            Fault::MonitorRefuses => {
                vm.guest.refuses_until = until;
                "its guest refuses to shrink"
            }
            Fault::MonitorGarbage => {
                vm.guest.garbage_until = until;
                "its monitor talks nonsense"
            }
            Fault::LostMetrics => {
                vm.guest.metrics_lost_until = until;
                "its metrics cannot be read"
            }
            Fault::LyingMetrics => {
                vm.guest.metrics_lie_until = until;
                "its metrics lie"
            }
            Fault::SlowResize => {
                vm.slow_until = until;
                "its memory is slow"
            }
            Fault::StuckResize => {
                vm.stuck_until = until;
                "its memory is stuck"
            }
            _ => return,
        };
        self.note(Line::Vm(id, what));
    }
}
