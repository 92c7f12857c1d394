//! Where pods go, and the room that is kept for them.

use std::time::Duration;

use neonvm_types::NamespacedName;

use super::account::NodeEntry;
use super::{Noted, PodSeen, State};
use crate::{Amounts, Choice, Reason, fit};

impl PodSeen {
    /// What it will count for when it is placed; discounted: CPU in thousandths, memory in bytes.
    pub(crate) fn counted_at_first(&self) -> super::Pair<u128> {
        self.counted(self.usage)
    }
}

impl State {
    /// Whether a pod fits on a node now. Pods of ignored namespaces count here, and so does room that is kept for others.
    ///
    /// # Errors
    /// Why not. `None`: there is no such node.
    pub fn fits(&self, pod: &PodSeen, node: &str) -> Result<(), Option<Reason>> {
        let index = self.node_index.get(node).ok_or(None)?;
        let node = self.nodes.get(*index).filter(|node| node.seen.is_some()).ok_or(None)?;
        self.fits_at(pod, node).map_err(Some)
    }

    /// Index of a pod that is on the node already: its binding may not be observed yet.
    fn own(&self, pod: &PodSeen, node: &NodeEntry) -> Option<usize> {
        let index = self.pod_index.get(&pod.pod).copied()?;
        let is_same = self.pods.get(index).is_some_and(|own| own.seen.uid == pod.uid);
        (is_same && node.pods.contains(&index)).then_some(index)
    }

    /// Whether a pod may be on a node by its rules, by the node's host and beside the pods that are there.
    pub(crate) fn admits(&self, pod: &PodSeen, node: &NodeEntry) -> Result<(), Reason> {
        let Some(object) = &pod.object else { return Ok(()) };
        if let Some(node) = node.seen.as_ref().and_then(|seen| seen.object.as_ref()) {
            fit::suits(object, node)?;
            fit::receives(object, node)?;
        }
        let own = self.own(pod, node);
        let others = node.pods.iter().filter(|index| Some(**index) != own);
        let others = others.filter_map(|index| self.pods.get(*index));
        fit::beside(
            object,
            others.filter(|other| !other.seen.ended).filter_map(|other| other.seen.object.as_deref()),
        )
    }

    fn fits_at(&self, pod: &PodSeen, node: &NodeEntry) -> Result<(), Reason> {
        let Some(seen) = &node.seen else { return Err(Reason::NotReady) };
        self.admits(pod, node)?;
        if self.own(pod, node).is_some() {
            return Ok(());
        }
        self.other_room(pod, node)?;
        let used = node.sums.reserved.with(node.sums.ignored, u128::saturating_add);
        let enough = |resource: &str, unit: i128, needs: u128, total: u64, used: u128| {
            let has = u128::from(total).saturating_sub(used);
            if needs == 0 || needs <= has {
                return Ok(());
            }
            let nanos = |amount: u128| i128::try_from(amount).unwrap_or(i128::MAX).saturating_mul(unit);
            Err(Reason::Insufficient { resource: resource.to_owned(), needs: nanos(needs), has: nanos(has) })
        };
        let needs = pod.counted_at_first();
        enough("cpu", 1_000_000, needs.cpu, seen.total.cpu, used.cpu)?;
        enough("memory", 1_000_000_000, needs.mem, seen.total.mem, used.mem)
    }

    pub(crate) fn other_room(&self, pod: &PodSeen, node: &NodeEntry) -> Result<(), Reason> {
        let offered: Option<&Amounts> = node.seen.as_ref().and_then(|seen| seen.other.as_ref());
        offered.map_or(Ok(()), |offered| fit::room(&pod.other, offered, &node.other))
    }

    /// 0 to 100: how good a node is for a pod; 0 if it does not fit.
    #[must_use]
    pub fn score(&self, pod: &PodSeen, node: &str) -> u32 {
        let index = self.node_index.get(node);
        let Some(node) = index.and_then(|index| self.nodes.get(*index)) else { return 0 };
        let mut sum = node.sums.reserved;
        sum.add(pod.counted_at_first());
        self.settings.scoring.score(sum, node.total(), self.largest)
    }

    /// The node that is least loaded once the pod is there, by the fuller of CPU and memory; of equals the first by name.
    #[must_use]
    pub fn choose(&self, pod: &PodSeen) -> Choice {
        self.choose_among(pod, |_| true)
    }

    /// The same, among some of the nodes.
    pub(crate) fn choose_among(&self, pod: &PodSeen, of: impl Fn(&str) -> bool) -> Choice {
        let mut best: Option<(u128, &str)> = None;
        let mut reasons = Vec::new();
        for (name, index) in self.node_index.iter().filter(|(name, _)| of(name)) {
            let Some(node) = self.nodes.get(*index) else { continue };
            let Some(seen) = &node.seen else { continue };
            if let Err(reason) = self.fits_at(pod, node) {
                reasons.push((name.clone(), reason));
                continue;
            }
            let mut sum = node.sums.reserved;
            sum.add(node.sums.ignored);
            sum.add(pod.counted_at_first());
            let share = sum.with(seen.total, |sum, total| {
                sum.saturating_mul(1_000_000).checked_div(u128::from(total)).unwrap_or(0)
            });
            let load = share.cpu.max(share.mem);
            if best.is_none_or(|(least, _)| load < least) {
                best = Some((load, name));
            }
        }
        match best {
            Some((_, name)) => Choice::Node(name.to_owned()),
            None => Choice::Nowhere(reasons),
        }
    }

    /// Reserves room for a pod that is about to be bound. The check and the reservation are atomic.
    ///
    /// # Errors
    /// The reason why it does not fit. `None`: there is no such node, or the pod is bound elsewhere.
    pub fn reserve(&mut self, now: Duration, pod: PodSeen, node: &str) -> Result<(), Option<Reason>> {
        self.latest = self.latest.max(now);
        let kept = self.try_reserve(pod, node);
        match kept {
            Ok(()) => self.counters.reservations += 1,
            Err(_) => self.counters.reservations_denied += 1,
        }
        kept
    }

    fn try_reserve(&mut self, mut pod: PodSeen, node: &str) -> Result<(), Option<Reason>> {
        if !self.listed {
            return Err(None);
        }
        self.fits(&pod, node)?;
        let index = self.pod_index.get(&pod.pod).copied();
        let index =
            match index.filter(|index| self.pods.get(*index).is_some_and(|old| old.seen.uid == pod.uid)) {
                Some(index) => index,
                None => {
                    pod.node = None;
                    let key = pod.pod.clone();
                    self.step(self.latest, super::Event::PodGone { pod: key.clone(), uid: String::new() });
                    self.pod_new(pod);
                    *self.pod_index.get(&key).ok_or(None)?
                }
            };
        if self.pods.get(index).is_some_and(|pod| pod.node.is_some() && pod.tentative.is_none()) {
            return Err(None);
        }
        self.detach(index);
        let now = self.latest;
        self.change(index, |pod| {
            pod.tentative = Some(now);
            // It starts at this size, and no scheduler has permitted more.
            let scaled = pod.seen.vm.as_ref().is_some_and(|vm| vm.scaled);
            pod.held = if scaled { pod.seen.usage } else { super::Pair::default() };
            (pod.buffer, pod.known) = (super::Pair::default(), true);
        });
        self.pending.insert(index);
        self.attach(index, node);
        Ok(())
    }

    /// The pod was not bound: its room is free again. Nothing happens if the cluster shows it bound.
    pub fn unreserve(&mut self, pod: &NamespacedName, uid: &str) {
        let Some(index) = self.pod_index.get(pod).copied() else { return };
        if self.pods.get(index).is_some_and(|pod| pod.tentative.is_some() && pod.seen.uid == uid) {
            self.detach(index);
            self.change(index, |pod| pod.tentative = None);
            self.pending.remove(&index);
        }
    }

    /// Pods that wait for a node: highest priority first, then the oldest.
    #[must_use]
    pub fn waiting(&self) -> Vec<&PodSeen> {
        let waits = self.pods.iter().filter(|(_, pod)| pod.seen.waits && pod.tentative.is_none());
        let mut waiting: Vec<&PodSeen> = waits.map(|(_, pod)| &pod.seen).collect();
        waiting.sort_by_key(|pod| (std::cmp::Reverse(pod.priority), pod.created, &pod.pod));
        waiting
    }

    /// The observed state of a pod.
    #[must_use]
    pub fn pod(&self, pod: &NamespacedName) -> Option<&PodSeen> {
        Some(&self.pods.get(*self.pod_index.get(pod)?)?.seen)
    }

    #[must_use]
    pub fn node_of(&self, pod: &NamespacedName) -> Option<&str> {
        let pod = self.pods.get(*self.pod_index.get(pod)?)?;
        Some(&self.nodes.get(pod.node?)?.name)
    }

    /// The permit noted in a pod's VM, as last observed.
    #[must_use]
    pub fn noted(&self, pod: &NamespacedName) -> Option<Noted> {
        self.pods.get(*self.pod_index.get(pod)?)?.noted
    }
}
