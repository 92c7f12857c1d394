//! Which VMs leave a node that is too full, and for which nodes.

use std::collections::BTreeMap;

use neonvm_types::scheduler_inspect::PlannedMigration;

use super::account::{NodeEntry, PodEntry, Share, is_too_much};
use super::state::PLAN;
use super::{Action, Pair, State, WantedMigration};

/// VMs of a node that are considered in one plan, so that a plan ends soon.
const CANDIDATES: usize = 16;

/// What a node would do.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// Planned migrations in order; those without a target are not made.
    pub(crate) moves: Vec<PlannedMigration>,
    /// A remark for the user.
    pub(crate) note: Option<String>,
}

impl State {
    /// Which VMs should leave a node.
    pub(crate) fn plan(&self, at: usize, watermark: Pair<u64>) -> Plan {
        let Some(node) = self.nodes.get(at) else { return Plan::default() };
        let mut sums = node.sums;
        let above = sums.reserved.any_greater(watermark.map(u128::from));
        if !is_too_much(&sums, watermark) {
            let note = match (above, sums.leaving) {
                (false, _) => None,
                (true, 0) => {
                    Some("above its watermark only by what is kept for VMs without a report yet".to_owned())
                }
                (true, leaving) => {
                    Some(format!("above its watermark; enough leaves already ({leaving} VMs)"))
                }
            };
            return Plan { moves: Vec::new(), note };
        }
        let mut plan = Plan::default();
        let mut planned = BTreeMap::new();
        let mut candidates = self.candidates(node);
        let total = candidates.len();
        candidates.truncate(CANDIDATES);
        for index in candidates {
            if !is_too_much(&sums, watermark) {
                return plan;
            }
            let Some(pod) = self.pods.get(index) else { continue };
            let share = pod.share();
            if share.reserved.any_greater(node.watermark.map(u128::from)) {
                continue;
            }
            let target = self.target(pod, &planned);
            if let Ok(to) = target {
                planned.entry(to).or_insert(Pair::default()).add(share.reserved);
                leave(&mut sums, &share);
            }
            plan.moves.push(self.describe(pod, node, target));
        }
        if is_too_much(&sums, watermark) {
            plan.note = Some(match total {
                0 => "no VM here may be moved: none has the label autoscaling.neon.tech/auto-migration-enabled=true"
                    .to_owned(),
                _ => "above its watermark also when all who can go have gone".to_owned(),
            });
        }
        plan
    }

    /// Those that may leave: lowest load first, those without a known load last, then the oldest.
    fn candidates(&self, node: &NodeEntry) -> Vec<usize> {
        let now = self.latest;
        let pods = node.pods.iter().filter_map(|index| Some((*index, self.pods.get(*index)?)));
        let mut movable: Vec<(usize, &PodEntry)> = pods
            .filter(|(_, pod)| {
                let may = pod.seen.vm.as_ref().is_some_and(|vm| vm.migratable);
                may && !pod.seen.ended
                    && !pod.is_leaving()
                    && pod.tentative.is_none()
                    && now >= pod.rest_until
            })
            .collect();
        movable.sort_by(|(_, a), (_, b)| {
            let load = |pod: &PodEntry| pod.load.unwrap_or(f32::INFINITY);
            let loads = load(a).total_cmp(&load(b));
            loads.then_with(|| (a.seen.created, &a.seen.pod).cmp(&(b.seen.created, &b.seen.pod)))
        });
        movable.into_iter().map(|(index, _)| index).collect()
    }

    /// The best node that stays below its watermark with the pod. `Err`: the number of nodes that were checked.
    fn target(&self, pod: &PodEntry, planned: &BTreeMap<usize, Pair<u128>>) -> Result<usize, usize> {
        let needs = pod.seen.counted(pod.solid());
        let mut best: Option<(u32, usize)> = None;
        let mut looked = 0;
        for index in self.node_index.values().copied() {
            let Some(node) = self.nodes.get(index) else { continue };
            let Some(seen) = node.seen.as_ref().filter(|_| Some(index) != pod.node) else { continue };
            looked += 1;
            let mut sum = node.sums.reserved;
            sum.add(needs);
            sum.add(planned.get(&index).copied().unwrap_or_default());
            if seen.closed.is_some() || sum.any_greater(node.watermark.map(u128::from)) {
                continue;
            }
            let score = self.settings.scoring.score(sum, seen.total, self.largest);
            // Of equals the first by name.
            let is_better = best.is_none_or(|(highest, _)| score > highest);
            if is_better
                && self.admits(&pod.seen, node).and_then(|()| self.other_room(&pod.seen, node)).is_ok()
            {
                best = Some((score, index));
            }
        }
        best.map(|(_, index)| index).ok_or(looked)
    }

    fn describe(&self, pod: &PodEntry, node: &NodeEntry, target: Result<usize, usize>) -> PlannedMigration {
        let load = match pod.load {
            Some(load) => format!("load {load}, the lowest of those that may move"),
            None => "load not known".to_owned(),
        };
        let over = pressure_text(node);
        let to = target.ok().and_then(|index| self.nodes.get(index));
        let why = match (target, to) {
            (Ok(_), Some(to)) => {
                format!("{} is {over}; {load}; {} stays below its watermark with it", node.name, to.name)
            }
            (Err(0), _) => format!("{} is {over}; {load}; there is no other node", node.name),
            (Err(count), _) => {
                format!(
                    "{} is {over}; {load}; none of {count} other nodes has room below its watermark",
                    node.name
                )
            }
            (Ok(_), None) => String::new(),
        };
        PlannedMigration {
            pod: pod.seen.pod.clone(),
            vm: pod.seen.vm.as_ref().map_or_else(String::new, |vm| vm.name.clone()),
            target: to.map(|node| node.name.clone()),
            why,
        }
    }

    /// Lets VMs of a node leave, as planned and as far as allowed.
    pub(crate) fn start_leaving(&mut self, at: usize) {
        let now = self.latest;
        let limit = u64::from(self.settings.migrations_per_node);
        let Some(node) = self.nodes.get_mut(at) else { return };
        if !self.settings.do_migration || !self.listed || node.plan_at > now || node.sums.leaving >= limit {
            return;
        }
        node.plan_at = now + PLAN;
        let (watermark, leaving) = (node.watermark, node.sums.leaving);
        let moves = self.plan(at, watermark).moves;
        let free = usize::try_from(limit.saturating_sub(leaving)).unwrap_or(usize::MAX);
        for planned in moves.into_iter().filter(|planned| planned.target.is_some()).take(free) {
            if let Some(index) = self.pod_index.get(&planned.pod).copied() {
                self.leave(index, planned.target.unwrap_or_default(), planned.why);
            }
        }
    }

    /// At a request: the VM may have to leave before it grows.
    pub(crate) fn consider_leaving(&mut self, index: usize) {
        if !self.settings.do_migration {
            return;
        }
        let Some(pod) = self.pods.get(index) else { return };
        let Some(at) = pod.node else { return };
        if self.pressed.contains(&at) {
            self.start_leaving(at);
        }
        let Some(pod) = self.pods.get(index) else { return };
        let restless = pod.seen.vm.as_ref().is_some_and(|vm| vm.always_migrate && vm.migratable);
        let leaving = self.nodes.get(at).map_or(u64::MAX, |node| node.sums.leaving);
        let allowed = leaving < u64::from(self.settings.migrations_per_node) && self.latest >= pod.rest_until;
        if restless && allowed && !pod.is_leaving() && pod.load.is_some() && pod.request.is_some() {
            let target = self.target(pod, &BTreeMap::new()).ok().and_then(|to| self.nodes.get(to));
            if let Some(target) = target.map(|node| node.name.clone()) {
                self.leave(index, target, "its label asks for it to be moved again and again".to_owned());
            }
        }
    }

    fn leave(&mut self, index: usize, target: String, why: String) {
        let now = self.latest;
        let wanted = self.change(index, |pod| {
            pod.leaving = Some(now);
            WantedMigration {
                pod: pod.seen.pod.clone(),
                pod_uid: pod.seen.uid.clone(),
                vm: pod.seen.vm.as_ref().map_or_else(String::new, |vm| vm.name.clone()),
                target,
                why,
            }
        });
        if let Some(wanted) = wanted {
            self.pending.insert(index);
            self.counters.migrations += 1;
            self.actions.push_back(Action::CreateMigration(wanted));
        }
    }
}

fn leave(sums: &mut Share, share: &Share) {
    let solid = share.reserved.with(share.buffer, u128::saturating_sub);
    sums.accounted.add(solid);
    sums.accounted.add(share.pressure);
}

/// By how much a node is over its watermark, and what it had to refuse.
pub(crate) fn pressure_text(node: &NodeEntry) -> String {
    let over = node.sums.reserved.narrow().less(node.watermark);
    let pressure = node.sums.pressure.narrow();
    let mut parts = Vec::new();
    if over.cpu > 0 {
        parts.push(format!("over its CPU watermark by {}", cpu(over.cpu)));
    }
    if over.mem > 0 {
        parts.push(format!("over its memory watermark by {}", neonvm_types::Bytes::new(over.mem)));
    }
    if pressure.cpu > 0 {
        parts.push(format!("short of {} CPU asked for", cpu(pressure.cpu)));
    }
    if pressure.mem > 0 {
        parts.push(format!("short of {} memory asked for", neonvm_types::Bytes::new(pressure.mem)));
    }
    if parts.is_empty() { "at its watermark".to_owned() } else { parts.join(", ") }
}

/// CPUs with two decimals, rounded half up.
pub(crate) fn cpu(milli: u64) -> String {
    let hundredths = milli.saturating_add(5) / 10;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}
