//! Pods get their nodes: chosen and kept room for by the real core, bound by the API server.

use neonvm_core_scheduling::Choice;
use neonvm_core_scheduling::permits::PodSeen;

use super::event::Event;
use super::model::Id;
use super::{World, duration};
use crate::queue::{SECOND, Time};
use crate::{Bug, Fault};

impl World {
    /// Waiting pods will be placed soon.
    pub(super) fn place_soon(&mut self, wait: Time) {
        if !std::mem::replace(&mut self.placing, true) {
            self.after(wait, Event::Place);
        }
    }

    /// Tries to place all pods that wait.
    pub(super) fn place(&mut self) {
        self.placing = false;
        let Some(leader) = self.leader else { return };
        let waiting: Vec<Id> = self.waiting.iter().copied().collect();
        for pod in waiting {
            self.place_one(leader, pod);
        }
        if !self.waiting.is_empty() {
            self.place_soon(10 * SECOND);
        }
    }

    fn place_one(&mut self, leader: Id, id: Id) {
        let now = duration(self.now);
        let Some(pod) = self.pods.get(id).filter(|pod| pod.alive && !pod.binding) else { return };
        let Some(replica) =
            self.replicas.get(leader).filter(|replica| replica.up && replica.state.is_listed())
        else {
            return;
        };
        // A binding names the pod by its uid: one of its name from before is not it.
        let waits = |seen: &&PodSeen| seen.node.is_none() && seen.uid == pod.uid;
        let Some(seen) = replica.state.pod(&pod.key).filter(waits).cloned() else { return };
        let inc = replica.inc;
        let name = if self.bug(Bug::BindWithoutRoom) {
            let open = self.nodes.iter().find(|node| node.open && !node.lost);
            open.map(|node| node.name.clone())
        } else {
            let Choice::Node(name) = replica.state.choose(&seen) else { return };
            Some(name)
        };
        let Some(node) = name.and_then(|name| self.node_named(&name)) else { return };
        // Rules that need the objects of nodes and pods, which the world does not have: closed nodes, and a VM is not
        // migrated to its own node.
        let source =
            self.pods.get(id).and_then(|pod| self.vms.get(pod.vm?)?.pod).filter(|source| *source != id);
        let source = source.and_then(|source| self.pods.get(source)?.node);
        let good = Some(node) != source && self.nodes.get(node).is_some_and(|node| node.open);
        let node = if good { Some(node) } else { self.open_node(leader, &seen, source) };
        let Some(node) = node else { return };
        let Some(name) = self.nodes.get(node).map(|node| node.name.clone()) else { return };
        let Some(replica) = self.replicas.get_mut(leader) else { return };
        if !matches!(self.bug, Some(Bug::BindWithoutRoom)) && replica.state.reserve(now, seen, &name).is_err()
        {
            return;
        }
        if let Some(pod) = self.pods.get_mut(id) {
            pod.binding = true;
        }
        let wait = self.latency(2, 20);
        self.after(wait, Event::Bind { replica: leader, inc, pod: id, node });
        self.settle(leader, inc);
    }

    /// The best open node on which the pod fits.
    fn open_node(&self, leader: Id, seen: &PodSeen, not: Option<Id>) -> Option<Id> {
        let state = &self.replicas.get(leader)?.state;
        let open = self.nodes.iter().enumerate();
        let open = open.filter(|(at, node)| node.open && !node.lost && Some(*at) != not);
        let fitting = open.filter(|(_, node)| state.fits(seen, &node.name).is_ok());
        fitting.max_by_key(|(at, node)| (state.score(seen, &node.name), usize::MAX - at)).map(|(at, _)| at)
    }

    pub(super) fn node_named(&self, name: &str) -> Option<Id> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// A binding arrives at the API server.
    pub(super) fn bind(&mut self, replica: Id, inc: u64, id: Id, node: Id) {
        let Some(pod) = self.pods.get_mut(id) else { return };
        pod.binding = false;
        let (key, uid, possible) = (pod.key.clone(), pod.uid.clone(), pod.alive && pod.node.is_none());
        let there = self.nodes.get(node).is_some_and(|node| !node.lost);
        if !possible || !there || self.fault(Fault::BindFails, 0.1) {
            if let Some(replica) = self.replica(replica, inc) {
                replica.state.unreserve(&key, &uid);
            }
            return self.place_soon(SECOND);
        }
        self.bound(id, node);
        self.touch_pod(id);
        let owner = self.pods.get(id).and_then(|pod| pod.vm);
        if let Some(vm) = owner.filter(|vm| self.cares.contains_key(vm)) {
            return self.pod_starts(vm, id);
        }
        let wait = self.latency(500, 4_000);
        if self.pods.get(id).is_some_and(|pod| pod.vm.is_some()) {
            self.after(wait, Event::Boot(id));
        } else if let Some(lasts) = self.pods.get(id).and_then(|pod| pod.lasts) {
            let wait = self.rngs.people.between(lasts / 2, lasts);
            self.after(wait, Event::Ends(id));
        }
    }

    /// A pod that is no VM's has ended. Another one takes its place, on whichever node.
    pub(super) fn pod_ends(&mut self, id: Id) {
        let Some(pod) = self.pods.get_mut(id).filter(|pod| pod.alive && !pod.ended) else { return };
        if !self.faults_on {
            return;
        }
        pod.ended = true;
        let (usage, lasts) = (pod.usage, pod.lasts);
        self.recount(id);
        self.touch_pod(id);
        let wait = self.latency(1_000, 120_000);
        self.after(wait, Event::Removed(id));
        let next = self.make_pod(None, usage);
        if let Some(pod) = self.pods.get_mut(next) {
            pod.lasts = lasts;
        }
        self.waiting.insert(next);
        self.touch_pod(next);
    }

    /// A pod is gone from the API server.
    pub(super) fn pod_removed(&mut self, id: Id) {
        let Some(pod) = self.pods.get_mut(id).filter(|pod| pod.alive) else { return };
        pod.alive = false;
        let (key, vm) = (pod.key.clone(), pod.vm);
        self.unbound(id);
        self.keys.remove(&key);
        self.touch_pod(id);
        // The last pod of a VM that is gone.
        let gone = |vm: &Id| {
            self.vms.get(*vm).is_some_and(|one| one.phase == super::model::Phase::Gone)
                && !self.cares.contains_key(vm)
                && !self.has_pods(*vm)
        };
        if let Some(vm) = vm.filter(gone) {
            self.give_back_address(vm);
        }
    }
}
