//! The liveness invariants, checked after a calm phase: everything is where it should be, or reports why not.

use neonvm_core_scheduling::permits::Pair;
use neonvm_core_vertical_scaling::agent::View;
use neonvm_core_vertical_scaling::agent::evidence::{Coupling, Range};
use neonvm_types::{Bytes, MilliCpu, Resources};

use super::model::{Id, Phase};
use super::{World, duration};
use crate::Invariant;
use crate::queue::{SECOND, Time};
use crate::scenario::Guest;

/// How long a VM may take after a migration until its load is served as before.
const SETTLES: Time = 180 * SECOND;
/// How often the VMs are checked, and the time in between.
pub(super) const LOOKS: u32 = 4;
pub(super) const LOOK: Time = 70 * SECOND;
/// How far a level may be from the next whole number and still need either.
const NEAR: f64 = 0.02;

impl World {
    /// Checks all invariants of liveness, and the limits of what is kept.
    pub(super) fn check_calm(&mut self) {
        self.look();
        self.check_migrations();
        self.check_settled();
    }

    /// Checks the goals of all VMs, and nodes above their watermark. Loads vary in the calm phase, so one check is not enough.
    pub(super) fn look(&mut self) {
        for id in 0..self.vms.len() {
            self.check_goal(id);
        }
        for node in 0..self.nodes.len() {
            let misses = self.check_relief(node);
            let Some(entry) = self.nodes.get_mut(node) else { continue };
            entry.misses = if misses.is_some() { entry.misses + 1 } else { 0 };
            if let Some(message) = misses.filter(|_| entry.misses >= LOOKS) {
                self.fail(Invariant::Relieved, message);
            }
        }
        self.check_placed();
    }

    fn check_goal(&mut self, id: Id) {
        let now = duration(self.now);
        let Some(vm) = self.vms.get(id) else { return };
        if vm.phase != Phase::Running || self.now.saturating_sub(vm.there_since) < SETTLES {
            return;
        }
        self.check(Invariant::GoalReached);
        self.check(Invariant::Bounded);
        let Some(vm) = self.vms.get(id) else { return };
        let Some(agent) = vm.agent.as_deref() else {
            let pod = vm.pod.and_then(|pod| self.pods.get(pod));
            let node = pod.and_then(|pod| self.nodes.get(pod.node?));
            let up = node.map(|node| (&node.name, node.agent_up, node.lost));
            let what = format!("no agent takes care of it: observed {:?}, node {up:?}", vm.observed);
            return self.misses(id, &what);
        };
        let view = agent.state.view(now);
        if view.decisions.len() > neonvm_core_vertical_scaling::agent::State::MOST_NOTES {
            let name = vm.name.clone();
            return self.fail(Invariant::Bounded, format!("{name}: {} decisions kept", view.decisions.len()));
        }
        let Some(what) = self.misses_goal(id, &view) else {
            if let Some(vm) = self.vms.get_mut(id) {
                vm.misses = 0;
            }
            return;
        };
        let size = |size: Resources| format!("{}/{}", size.vcpus, size.mem);
        let state = format!(
            "state {:?}, stuck {:?}, limit {:?}, now {}, asked {}, goal {}, permit {}",
            view.state,
            view.stuck,
            view.limit,
            size(view.now),
            size(view.asked),
            size(view.goal),
            size(view.permit.unwrap_or_default())
        );
        self.misses(id, &format!("{what}; {state}"));
    }

    fn misses(&mut self, id: Id, what: &str) {
        let Some(vm) = self.vms.get_mut(id) else { return };
        vm.misses += 1;
        if vm.misses >= LOOKS {
            let name = vm.name.clone();
            self.fail(Invariant::GoalReached, format!("{name}: {what}"));
        }
    }

    /// What is wrong with the size of a VM.
    fn misses_goal(&self, id: Id, view: &View) -> Option<String> {
        let vm = self.vms.get(id)?;
        let unit = self.unit;
        let (cpu, memory) = (vm.guest.cpu_level, vm.guest.memory_level);
        let bound = |size: Resources| size.min(vm.max).max(vm.min);
        let least = bound(Resources {
            vcpus: MilliCpu::new(
                ((cpu - NEAR).min((cpu - NEAR).round()).max(0.0) * f64::from(unit.vcpus.milli())) as u32,
            ),
            mem: Bytes::new(((memory - NEAR).max(0.0) * unit.mem.get() as f64) as u64),
        });
        let range = Range { unit, min: vm.min, max: vm.max };
        let most = super::guest::needed(cpu * super::guest::KEPT + 0.5 + NEAR, memory + NEAR, unit);
        let most = bound(Coupling::Bounds.size(most, &range));
        let text = |size: Resources| format!("{}/{}", size.vcpus, size.mem);
        let stubborn = vm.guest.kind != Guest::Agrees;
        let denied = view.limit.as_deref().is_some_and(|limit| limit.starts_with("scheduler permits"));
        if vm.has.any_less(least) {
            let node =
                vm.pod.and_then(|pod| self.pods.get(pod)?.node).and_then(|node| self.nodes.get(node))?;
            let free = node.total.with(node.taken, |total, taken| u128::from(total).saturating_sub(taken));
            let more = Pair::from(unit)
                .map(|amount| (u128::from(amount) * 1000).div_ceil(u128::from(vm.overcommit)));
            // Room for one more in both; what it lacks in one alone it may have there.
            let room = !more.any_greater(free);
            if denied && !room {
                return None;
            }
            return Some(format!("has {}, its load needs {}", text(vm.has), text(least)));
        }
        if vm.has.any_greater(most) && !stubborn && view.limit.is_none() && view.stuck.is_none() {
            return Some(format!("has {}, its load needs no more than {}", text(vm.has), text(most)));
        }
        if view.stuck.is_some() && !stubborn && !denied {
            return Some("is stuck although nothing fails any more".to_owned());
        }
        let on_its_way = view.now != view.asked || vm.has != vm.asked;
        (on_its_way && view.stuck.is_none()).then(|| "does not get the size it asked for".to_owned())
    }

    fn watermark(&self, total: Pair<u64>) -> Pair<u128> {
        total.map(|total| (total as f64 * self.settings.watermark) as u128)
    }

    /// What is wrong with a node that is too full.
    fn check_relief(&mut self, at: Id) -> Option<String> {
        if !self.settings.migration {
            return None;
        }
        self.check(Invariant::Relieved);
        let node = self.nodes.get(at).filter(|node| !node.lost)?;
        let watermark = self.watermark(node.total);
        if !node.taken.any_greater(watermark) {
            return None;
        }
        let state = self.leader.and_then(|leader| self.replicas.get(leader)).map(|one| &one.state)?;
        let view = state.inspect_node(&node.name)?;
        let mut movable = node.pods.iter().filter(|id| {
            let Some(pod) = self.pods.get(**id) else { return false };
            let Some(vm) = pod.vm.and_then(|vm| self.vms.get(vm)) else { return false };
            let [taken, _] = pod.counted;
            let fits = |other: &super::model::Node| {
                let with = other.taken.with(taken, u128::saturating_add);
                !other.lost && other.open && !with.any_greater(self.watermark(other.total))
            };
            let elsewhere = self.nodes.iter().enumerate().any(|(other, node)| other != at && fits(node));
            vm.movable && vm.phase == Phase::Running && elsewhere
        });
        let can = movable.next().is_some();
        let ready = view.next.iter().any(|planned| planned.target.is_some());
        let silent = view.note.is_none() && view.next.is_empty();
        (view.leaving.is_empty() && can && (ready || silent)).then(|| {
            format!(
                "{} is above its watermark, a VM could go elsewhere, and none does: next {:?}, note {:?}",
                node.name, view.next, view.note
            )
        })
    }

    fn check_placed(&mut self) {
        self.check(Invariant::Placed);
        let waiting: Vec<Id> = self.waiting.iter().copied().collect();
        for id in waiting {
            let message = self.waits_for_nothing(id);
            let Some(pod) = self.pods.get_mut(id) else { continue };
            pod.misses = if message.is_some() { pod.misses + 1 } else { 0 };
            if let Some(message) = message.filter(|_| pod.misses >= LOOKS) {
                return self.fail(Invariant::Placed, message);
            }
        }
    }

    /// Whether a node has room for a pod that waits.
    fn waits_for_nothing(&self, id: Id) -> Option<String> {
        let pod = self.pods.get(id).filter(|pod| pod.alive && !pod.ended)?;
        let vm = pod.vm.and_then(|vm| self.vms.get(vm));
        let needs = needs(pod.usage, vm.map_or(1000, |vm| vm.overcommit));
        let source = vm.and_then(|vm| vm.pod).filter(|source| *source != id);
        let source = source.and_then(|source| self.pods.get(source)?.node);
        let mut nodes = self.nodes.iter().enumerate().filter(|(at, _)| Some(*at) != source);
        let (_, node) = nodes.find(|(_, node)| {
            let with = node.taken.with(needs, u128::saturating_add);
            !node.lost && node.open && !with.any_greater(node.total.map(u128::from))
        })?;
        Some(format!("pod {} waits although {} has room", pod.key, node.name))
    }
}

fn needs(usage: Resources, overcommit: u64) -> Pair<u128> {
    Pair::from(usage).map(|amount| (u128::from(amount) * 1000).div_ceil(u128::from(overcommit)))
}
