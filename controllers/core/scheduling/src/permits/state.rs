//! The state, and what goes into it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use neonvm_types::NamespacedName;
use neonvm_types::scheduler_inspect::Counters;

use super::account::{NodeEntry, PodEntry, fraction};
use super::pods::{REST, buffer, rests};
use super::slab::Slab;
use super::{Action, MigrationSeen, NodeSeen, Pair, PodSeen, Settings};

/// How long room is kept for a pod whose binding is not observed.
pub(crate) const TENTATIVE: Duration = Duration::from_secs(60);
/// How long a VM counts as leaving while its migration is not observed, and does not grow while the migration is
/// queued.
pub(crate) const LEAVING: Duration = Duration::from_secs(60);
/// How long room for the upper bound of a VM is kept, after a scheduler has started, until its agent reports. An agent sends a request
/// every few seconds; one that sends none for this time does not scale the VM, and must not keep room from others.
pub(crate) const SILENT: Duration = Duration::from_secs(300);
/// Pause between two plans of a node.
pub(crate) const PLAN: Duration = Duration::from_secs(1);

/// Something that was seen.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A node is new or changed.
    Node(Box<NodeSeen>),
    NodeGone(String),
    /// A pod is new or changed.
    Pod(Box<PodSeen>),
    PodGone {
        pod: NamespacedName,
        /// Its uid; another pod of that name stays. Empty: whichever it is.
        uid: String,
    },
    /// A migration is new or changed.
    Migration(MigrationSeen),
    MigrationGone {
        uid: String,
    },
    /// All nodes and pods have been listed; before, nothing is permitted.
    Listed,
    /// All migrations have been listed: one that was not seen does not exist.
    MigrationsListed,
    /// Permits may have been given by others until now: the agents' permits are unknown. Nodes and pods must be listed
    /// again, and nothing is permitted before.
    TakenOver,
    /// Time has passed.
    Tick,
}

/// Nodes, pods and their permits.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub(crate) settings: Settings,
    pub(crate) nodes: Slab<NodeEntry>,
    pub(crate) node_index: BTreeMap<String, usize>,
    pub(crate) pods: Slab<PodEntry>,
    pub(crate) pod_index: BTreeMap<NamespacedName, usize>,
    pub(crate) largest: Pair<u64>,
    pub(crate) listed: bool,
    pub(crate) migrations: BTreeMap<String, MigrationSeen>,
    pub(crate) migrations_listed: bool,
    /// Pods whose note is due, by time.
    pub(crate) due: BTreeSet<(Duration, usize)>,
    /// Pods that are tentative or leaving without the cluster showing it.
    pub(crate) pending: BTreeSet<usize>,
    /// Pods whose agents have not reported, since when, in this order. Others may be among them, but never first.
    pub(crate) unknown: VecDeque<(Duration, usize)>,
    /// Nodes with too much pressure. Kept only if migrations are started.
    pub(crate) pressed: BTreeSet<usize>,
    pub(crate) actions: VecDeque<Action>,
    /// Migrations whose deletion failed, by uid: when it is tried again, and the number of attempts.
    pub(crate) undeleted: BTreeMap<String, (Duration, u32)>,
    /// Migrations that were withdrawn while queued, by uid.
    pub(crate) withdrawn: BTreeSet<String>,
    pub(crate) counters: Counters,
    pub(crate) latest: Duration,
}

impl State {
    /// The initial state, without observations.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            nodes: Slab::new(),
            node_index: BTreeMap::new(),
            pods: Slab::new(),
            pod_index: BTreeMap::new(),
            largest: Pair::default(),
            listed: false,
            migrations: BTreeMap::new(),
            migrations_listed: false,
            due: BTreeSet::new(),
            pending: BTreeSet::new(),
            unknown: VecDeque::new(),
            pressed: BTreeSet::new(),
            actions: VecDeque::new(),
            undeleted: BTreeMap::new(),
            withdrawn: BTreeSet::new(),
            counters: Counters::default(),
            latest: Duration::ZERO,
        }
    }

    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Counts since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { writes_pending: u64::try_from(self.due.len()).unwrap_or(u64::MAX), ..self.counters }
    }

    /// Whether nodes and pods have been listed whole.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.listed
    }

    /// Takes in what was seen. `now` is the time since any fixed point; an older one counts as the latest. Whether the
    /// choice of a node for a waiting pod can turn out differently.
    pub fn step(&mut self, now: Duration, event: Event) -> bool {
        self.latest = self.latest.max(now);
        match event {
            Event::Node(seen) => self.node_seen(*seen),
            Event::NodeGone(name) => self.node_gone(&name),
            Event::Pod(seen) => self.pod_seen(*seen),
            Event::PodGone { pod, uid } => self.pod_gone(&pod, &uid),
            Event::Migration(seen) => self.migration_seen(seen),
            Event::MigrationGone { uid } => self.migration_gone(&uid),
            Event::Listed => {
                let first = !std::mem::replace(&mut self.listed, true);
                self.withdraw();
                first
            }
            Event::MigrationsListed => {
                self.migrations_listed = true;
                let changed = self.look_at_migrations();
                self.withdraw();
                changed
            }
            Event::TakenOver => self.taken_over(),
            Event::Tick => self.tick(),
        }
    }

    /// Forgets the pods and nodes that a fresh list does not have: `pods` by uid.
    pub fn retain(&mut self, nodes: Option<&BTreeSet<String>>, pods: Option<&BTreeSet<String>>) {
        if let Some(listed) = nodes {
            let gone: Vec<String> =
                self.node_index.keys().filter(|name| !listed.contains(*name)).cloned().collect();
            for name in gone {
                self.node_gone(&name);
            }
        }
        if let Some(listed) = pods {
            let gone = self.pods.iter().filter(|(_, pod)| !listed.contains(&pod.seen.uid));
            let gone: Vec<NamespacedName> = gone.map(|(_, pod)| pod.seen.pod.clone()).collect();
            for pod in gone {
                self.pod_gone(&pod, "");
            }
        }
    }

    /// Uids of the migrations that a fresh list does not have.
    #[must_use]
    pub fn migrations_except(&self, listed: &BTreeSet<String>) -> Vec<String> {
        self.migrations.keys().filter(|uid| !listed.contains(*uid)).cloned().collect()
    }

    fn node_seen(&mut self, seen: NodeSeen) -> bool {
        let index = self.intern(&seen.name);
        let share = *self.settings.node_watermarks.get(&seen.name).unwrap_or(&self.settings.watermark);
        let watermark = seen.total.with(share, fraction);
        let Some(node) = self.nodes.get_mut(index) else { return false };
        if node.seen.as_ref() == Some(&seen) {
            return false;
        }
        node.watermark = watermark;
        let resized = node.total() != seen.total;
        node.seen = Some(seen);
        if resized {
            self.measure();
        }
        self.press(index);
        true
    }

    fn node_gone(&mut self, name: &str) -> bool {
        let Some(index) = self.node_index.get(name).copied() else { return false };
        let Some(node) = self.nodes.get_mut(index) else { return false };
        if node.seen.take().is_none() {
            // Gone already; only pods that are bound to it keep it in mind.
            return false;
        }
        node.watermark = Pair::default();
        self.pressed.remove(&index);
        self.forget_if_empty(index);
        self.measure();
        true
    }

    /// The largest node is the largest of those that are there now.
    fn measure(&mut self) {
        let totals = self.nodes.iter().map(|(_, node)| node.total());
        self.largest = totals.fold(Pair::default(), Pair::max);
    }

    pub(crate) fn intern(&mut self, name: &str) -> usize {
        if let Some(index) = self.node_index.get(name) {
            return *index;
        }
        let index = self.nodes.insert(NodeEntry { name: name.to_owned(), ..NodeEntry::default() });
        self.node_index.insert(name.to_owned(), index);
        index
    }

    fn forget_if_empty(&mut self, index: usize) {
        if self.nodes.get(index).is_some_and(|node| node.seen.is_none() && node.pods.is_empty())
            && let Some(node) = self.nodes.remove(index)
        {
            self.node_index.remove(&node.name);
        }
    }

    /// Takes a pod off its node: name of the node. The outer `None`: there is no such pod.
    #[allow(clippy::option_option, reason = "no pod, or a pod on no node")]
    pub(crate) fn detach(&mut self, index: usize) -> Option<Option<String>> {
        let pod = self.pods.get_mut(index)?;
        let Some(at) = pod.node.take() else { return Some(None) };
        let share = pod.share();
        let Some(node) = self.nodes.get_mut(at) else { return Some(None) };
        node.sums.subtract(&share);
        if !pod.seen.ended {
            node.other.subtract(&pod.seen.other);
        }
        node.pods.remove(&index);
        let name = node.name.clone();
        self.press(at);
        self.forget_if_empty(at);
        Some(Some(name))
    }

    pub(crate) fn attach(&mut self, index: usize, name: &str) {
        let at = self.intern(name);
        if let (Some(pod), Some(node)) = (self.pods.get_mut(index), self.nodes.get_mut(at)) {
            pod.node = Some(at);
            node.sums.add(&pod.share());
            if !pod.seen.ended {
                node.other.add(&pod.seen.other);
            }
            node.pods.insert(index);
        }
        self.press(at);
    }

    /// Changes a pod where it is, and the sums of its node with it.
    pub(crate) fn change<R>(&mut self, index: usize, f: impl FnOnce(&mut PodEntry) -> R) -> Option<R> {
        let pod = self.pods.get_mut(index)?;
        let before = pod.share();
        let result = f(pod);
        if let Some(at) = pod.node {
            let after = pod.share();
            if before != after {
                if let Some(node) = self.nodes.get_mut(at) {
                    node.sums.subtract(&before);
                    node.sums.add(&after);
                }
                self.press(at);
            }
        }
        Some(result)
    }

    fn press(&mut self, at: usize) {
        if !self.settings.do_migration {
            return;
        }
        if self.nodes.get(at).is_some_and(|node| node.seen.is_some() && node.has_too_much_pressure()) {
            self.pressed.insert(at);
        } else {
            self.pressed.remove(&at);
        }
    }

    fn migration_seen(&mut self, seen: MigrationSeen) -> bool {
        if self.migrations.get(&seen.uid) == Some(&seen) {
            return false;
        }
        if seen.ours && seen.ended && !seen.deleting {
            let (migration, uid) = (seen.migration.clone(), seen.uid.clone());
            self.actions.push_back(Action::DeleteMigration { migration, uid });
        }
        self.migrations.insert(seen.uid.clone(), seen);
        let changed = self.look_at_migrations();
        self.withdraw();
        changed
    }

    fn migration_gone(&mut self, uid: &str) -> bool {
        self.undeleted.remove(uid);
        self.withdrawn.remove(uid);
        self.migrations.remove(uid).is_some() && self.look_at_migrations()
    }

    /// Updates which pods are migrating. There are few migrations, and they rarely change.
    fn look_at_migrations(&mut self) -> bool {
        let queue = self.look_at_queue();
        let changed: Vec<(usize, bool)> = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.seen.vm.as_ref().is_some_and(|vm| vm.migration.is_some()))
            .map(|(index, pod)| (index, self.is_migrating(&pod.seen), pod.migrating))
            .filter(|(_, now, before)| now != before)
            .map(|(index, now, _)| (index, now))
            .collect();
        let now = self.latest;
        for (index, migrating) in &changed {
            self.change(*index, |pod| rests(pod, *migrating, now));
            if self.pods.get(*index).is_some_and(|pod| !pod.is_pending()) {
                self.pending.remove(index);
            }
        }
        queue || !changed.is_empty()
    }

    fn taken_over(&mut self) -> bool {
        let now = self.latest;
        self.unknown.clear();
        let all: Vec<usize> = self.pods.iter().map(|(index, _)| index).collect();
        for index in all {
            if self.pods.get(index).is_some_and(|pod| pod.tentative.is_some()) {
                self.detach(index);
            }
            self.change(index, |pod| {
                (pod.tentative, pod.leaving, pod.queued, pod.writing) = (None, None, false, false);
                pod.known = true;
                buffer(pod, now);
            });
            self.wait_for_agent(index);
        }
        self.pending.clear();
        self.actions.clear();
        self.undeleted.clear();
        self.withdrawn.clear();
        self.migrations.clear();
        (self.listed, self.migrations_listed) = (false, false);
        true
    }

    fn tick(&mut self) -> bool {
        let now = self.latest;
        let late = |since: Option<Duration>, limit| since.is_some_and(|since: Duration| now >= since + limit);
        let pending: Vec<usize> = self.pending.iter().copied().collect();
        let mut freed = false;
        for index in pending {
            let Some(pod) = self.pods.get(index) else { continue };
            if late(pod.tentative, TENTATIVE) {
                self.detach(index);
                self.change(index, |pod| pod.tentative = None);
                freed = true;
            }
            let pod = self.pods.get(index);
            if pod.is_some_and(|pod| late(pod.leaving, LEAVING)) {
                self.change(index, |pod| {
                    pod.leaving = None;
                    if !pod.queued {
                        pod.rest_until = now + REST;
                    }
                });
            }
            if self.pods.get(index).is_none_or(|pod| !pod.is_pending()) {
                self.pending.remove(&index);
            }
        }
        while let Some((_, index)) = self.first_unknown().filter(|(since, _)| now >= *since + SILENT) {
            self.change(index, |pod| (pod.known, pod.buffer) = (true, Pair::default()));
            freed = true;
        }
        let pressed: Vec<usize> = self.pressed.iter().copied().collect();
        for node in pressed {
            self.start_leaving(node);
        }
        freed
    }

    /// When [`State::step`] with a tick or [`State::take_actions`] may have something to do. `None`: not before the next event.
    #[must_use]
    pub fn wake_at(&self) -> Option<Duration> {
        if !self.actions.is_empty() {
            return Some(self.latest);
        }
        let undeleted = self.undeleted.values().map(|(due, _)| *due).min();
        let due = self.due.first().map(|(due, _)| *due).into_iter().chain(undeleted);
        let waits = !self.pending.is_empty() || !self.pressed.is_empty();
        let later = waits.then(|| self.latest + PLAN);
        let silent = self.unknown.front().map(|(since, _)| *since + SILENT);
        due.chain(later).chain(silent).min()
    }

    /// Remembers that the agent of this pod has to report, if it has to.
    pub(crate) fn wait_for_agent(&mut self, index: usize) {
        let since = self.pods.get(index).filter(|pod| !pod.known).and_then(|pod| pod.unknown);
        self.unknown.extend(since.map(|since| (since, index)));
    }

    /// The pod whose agent has not reported for the longest time.
    pub(crate) fn first_unknown(&mut self) -> Option<(Duration, usize)> {
        while let Some((since, index)) = self.unknown.front().copied() {
            if self.pods.get(index).is_some_and(|pod| !pod.known && pod.unknown == Some(since)) {
                return Some((since, index));
            }
            self.unknown.pop_front();
        }
        None
    }
}
