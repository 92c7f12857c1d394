//! The state in words and numbers, for people.

use neonvm_types::NamespacedName;
use neonvm_types::scheduler_inspect::{Inspect, NodeView, PodView, ResourceView, SettingsView, WaitingPod};

use super::account::{NodeEntry, PodEntry, Share, is_too_much};
use super::leave::pressure_text;
use super::{NodeSeen, Pair, State};
use crate::Choice;

/// Waiting pods that are checked against all nodes: agents wait for their permits meanwhile.
const EXPLAINED: usize = 100;

impl State {
    /// Sums of the nodes, by name: CPU, memory. Quick.
    #[must_use]
    pub fn totals(&self) -> Vec<(&NodeSeen, ResourceView, ResourceView)> {
        let nodes = self.node_index.values().filter_map(|at| self.nodes.get(*at));
        let seen = nodes.filter_map(|node| Some((node, node.seen.as_ref()?)));
        seen.map(|(node, seen)| {
            let (cpu, mem) = sums(node, &node.sums, node.watermark);
            (seen, cpu, mem)
        })
        .collect()
    }

    /// Pods whose labels or annotations cannot be read in part.
    #[must_use]
    pub fn unreadable(&self) -> u64 {
        let count = self.pods.iter().filter(|(_, pod)| !pod.seen.problems.is_empty()).count();
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    /// Migrations that are to be deleted and could not be yet, with the number of tries.
    #[must_use]
    pub fn undeleted(&self) -> Vec<(NamespacedName, u32)> {
        let named = |(uid, (_, tries)): (&String, &(std::time::Duration, u32))| {
            Some((self.migrations.get(uid)?.migration.clone(), *tries))
        };
        self.undeleted.iter().filter_map(named).collect()
    }

    /// The whole state. The leader and the age of the last watch event are not available here.
    #[must_use]
    pub fn inspect(&self) -> Inspect {
        let nodes = self
            .node_index
            .values()
            .filter(|at| self.nodes.get(**at).is_some_and(|node| node.seen.is_some()));
        let homeless = self.pods.iter().filter(|(_, pod)| {
            let node = pod.node.and_then(|node| self.nodes.get(node));
            node.is_some_and(|node| node.seen.is_none()) && !pod.seen.ended
        });
        let mut homeless: Vec<_> = homeless.map(|(_, pod)| pod.seen.pod.clone()).collect();
        homeless.sort();
        let why = |pod| match self.choose(pod) {
            Choice::Node(node) => format!("about to go to {node}"),
            nowhere @ Choice::Nowhere(_) => nowhere.to_string(),
        };
        let mut waiting: Vec<WaitingPod> = self
            .waiting()
            .into_iter()
            .enumerate()
            .map(|(index, pod)| WaitingPod {
                pod: pod.pod.clone(),
                needs: pod.usage.resources(),
                why: if index < EXPLAINED {
                    why(pod)
                } else {
                    "many wait; see the events of the pod".to_owned()
                },
            })
            .collect();
        waiting.sort_by(|a, b| a.pod.cmp(&b.pod));
        Inspect {
            ready: self.listed,
            settings: SettingsView {
                cpu_watermark: self.settings.watermark.cpu,
                mem_watermark: self.settings.watermark.mem,
                do_migration: self.settings.do_migration,
                migrations_per_node: self.settings.migrations_per_node,
                compute_unit: self.settings.compute_unit,
            },
            nodes: nodes.filter_map(|at| self.view(*at)).collect(),
            waiting,
            homeless,
            counters: self.counters(),
            ..Inspect::default()
        }
    }

    /// One node; `None` if it is not there.
    #[must_use]
    pub fn inspect_node(&self, name: &str) -> Option<NodeView> {
        self.view(*self.node_index.get(name)?)
    }

    pub(crate) fn view(&self, at: usize) -> Option<NodeView> {
        let node = self.nodes.get(at)?;
        self.view_with(at, node.watermark)
    }

    pub(crate) fn view_with(&self, at: usize, watermark: Pair<u64>) -> Option<NodeView> {
        let node = self.nodes.get(at)?;
        let seen = node.seen.as_ref()?;
        let plan = self.plan(at, watermark);
        let pods = || node.pods.iter().filter_map(|index| self.pods.get(*index));
        let mut leaving: Vec<_> =
            pods().filter(|pod| pod.is_leaving()).map(|pod| pod.seen.pod.clone()).collect();
        leaving.sort();
        let mut shown: Vec<PodView> =
            pods().filter(|pod| !pod.seen.ended).map(|pod| self.pod_view(pod)).collect();
        shown.sort_by(|a, b| a.pod.cmp(&b.pod));
        let too_much = is_too_much(&node.sums, watermark);
        let (cpu, mem) = sums(node, &node.sums, watermark);
        Some(NodeView {
            name: seen.name.clone(),
            closed: seen.closed.clone(),
            cpu,
            mem,
            too_much_pressure: too_much,
            leaving,
            next: plan.moves,
            note: plan.note.or_else(|| too_much.then(|| pressure_text(node))),
            pods: shown,
        })
    }

    fn pod_view(&self, pod: &PodEntry) -> PodView {
        let vm = pod.seen.vm.as_ref();
        let overcommit = pod.overcommit();
        let last = pod.request;
        let since = last.map(|(at, _)| self.latest.saturating_sub(at).as_millis());
        let solid = pod.solid();
        PodView {
            pod: pod.seen.pod.clone(),
            vm: vm.map(|vm| vm.name.clone()),
            scaled: vm.is_some_and(|vm| vm.scaled),
            reserved: pod.reserved().resources(),
            buffer: pod.reserved().less(solid).resources(),
            requested: last.map(|(_, noted)| noted.requested),
            compute_unit: last.map(|(_, noted)| noted.unit).or_else(|| vm.and_then(|vm| vm.unit)),
            usage: pod.seen.usage.resources(),
            capacity_pressure: pod.pressure.resources(),
            max: vm.and_then(|vm| vm.max),
            cpu_overcommit: overcommit.cpu,
            mem_overcommit: overcommit.mem,
            load: pod.load,
            migratable: vm.is_some_and(|vm| vm.migratable),
            migrating: pod.migrating,
            tentative: pod.tentative.is_some(),
            last_request_ms: since.map(|millis| u64::try_from(millis).unwrap_or(u64::MAX)),
            problems: pod.seen.problems.clone(),
        }
    }
}

fn sums(node: &NodeEntry, sums: &Share, watermark: Pair<u64>) -> (ResourceView, ResourceView) {
    let narrow = |amount: u128| u64::try_from(amount).unwrap_or(u64::MAX);
    let view = |of: fn(&Share) -> [u128; 8], total: u64, watermark: u64| {
        let [reserved, buffer, pressure, accounted, migrating, committed, ordinary, ignored] =
            of(sums).map(narrow);
        ResourceView {
            total,
            watermark,
            reserved,
            buffer,
            capacity_pressure: pressure,
            pressure_accounted_for: accounted,
            migrating,
            committed,
            ordinary,
            ignored,
        }
    };
    let total = node.total();
    let cpu = |s: &Share| {
        [
            s.reserved.cpu,
            s.buffer.cpu,
            s.pressure.cpu,
            s.accounted.cpu,
            s.migrating.cpu,
            s.committed.cpu,
            s.ordinary.cpu,
            s.ignored.cpu,
        ]
    };
    let mem = |s: &Share| {
        [
            s.reserved.mem,
            s.buffer.mem,
            s.pressure.mem,
            s.accounted.mem,
            s.migrating.mem,
            s.committed.mem,
            s.ordinary.mem,
            s.ignored.mem,
        ]
    };
    (view(cpu, total.cpu, watermark.cpu), view(mem, total.mem, watermark.mem))
}
