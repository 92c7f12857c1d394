//! The scheduler: one or two replicas of the real core, fed by watches; one of them leads.

use neonvm_core_scheduling::permits::{
    Action, Annotation, Event as Seen, MigrationRole, NodeSeen, Pair, PodSeen, Reply, Request, State, VmSeen,
};
use neonvm_core_vertical_scaling::agent::PluginAnswer;
use neonvm_types::{Resources, version::PluginProtoVersion};

use super::event::Event;
use super::model::{Id, Replica};
use super::notes::Line;
use super::{World, duration, micros};
use crate::queue::{MILLI, SECOND, Time};
use crate::{Bug, Fault, Invariant};

/// Most actions that are taken from the core at once.
const ACTIONS: usize = 64;

/// A request as it arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) target: Resources,
    pub(crate) last: Option<Resources>,
    pub(crate) load: Option<f32>,
    pub(crate) again: bool,
}

impl World {
    pub(super) fn replica(&mut self, id: Id, inc: u64) -> Option<&mut Replica> {
        self.replicas.get_mut(id).filter(|replica| replica.up && replica.inc == inc)
    }

    /// A pod has changed: all schedulers get one event.
    pub(super) fn touch_pod(&mut self, pod: Id) {
        self.notify_schedulers(
            |world| Some(&mut world.pods.get_mut(pod)?.dirty),
            |replica, inc| Event::PodWatch { replica, inc, pod },
        );
    }

    pub(super) fn touch_node(&mut self, node: Id) {
        self.notify_schedulers(
            |world| Some(&mut world.nodes.get_mut(node)?.dirty),
            |replica, inc| Event::NodeWatch { replica, inc, node },
        );
    }

    pub(super) fn touch_migration(&mut self, migration: Id) {
        self.notify_schedulers(
            |world| Some(&mut world.migrations.get_mut(migration)?.dirty),
            |replica, inc| Event::MigrationWatch { replica, inc, migration },
        );
    }

    fn notify_schedulers(
        &mut self,
        dirty: impl Fn(&mut Self) -> Option<&mut [bool; 2]>,
        event: impl Fn(Id, u64) -> Event,
    ) {
        for replica in 0..self.replicas.len() {
            let Some(inc) = self.replicas.get(replica).filter(|one| one.up).map(|one| one.inc) else {
                continue;
            };
            let Some(dirty) = dirty(self).and_then(|dirty| dirty.get_mut(replica)) else { continue };
            if !std::mem::replace(dirty, true) {
                let late = if self.fault(Fault::PodLag, 0.05) { self.latency(500, 10_000) } else { 0 };
                let wait = late + self.latency(1, 20);
                self.after(wait, event(replica, inc));
            }
        }
    }

    /// The pod as the scheduler sees it; `None` if it is gone.
    pub(super) fn pod_seen(&self, id: Id) -> Option<PodSeen> {
        let pod = self.pods.get(id).filter(|pod| pod.alive)?;
        let vm = pod.vm.and_then(|vm| self.vms.get(vm)).map(|vm| VmSeen {
            name: vm.name.clone(),
            uid: Some(vm.name.clone()),
            scaled: true,
            max: Some(vm.max),
            slot_size: Some(self.settings.slot),
            overcommit: Pair::both(vm.overcommit),
            migratable: vm.movable && !matches!(pod.role, Some((MigrationRole::Target, _))),
            always_migrate: false,
            migration: pod.role.clone(),
            unit: pod.noted.map(|noted| noted.unit),
            requested: pod.noted.map(|noted| noted.requested),
            approved: pod.noted.map(|noted| noted.approved),
        });
        let target = matches!(pod.role, Some((MigrationRole::Target, _)));
        let free = target && self.bug(Bug::TargetNotReserved);
        Some(PodSeen {
            pod: pod.key.clone(),
            uid: pod.uid.clone(),
            created: pod.created,
            node: pod.node.and_then(|node| Some(self.nodes.get(node)?.name.clone())),
            ended: pod.ended && !self.bug(Bug::CompletedPodsStay),
            usage: if free { Pair::new(1, 1) } else { pod.usage.into() },
            vm,
            waits: pod.node.is_none(),
            ..PodSeen::default()
        })
    }

    pub(super) fn pod_watched(&mut self, replica: Id, inc: u64, id: Id) {
        let Some(pod) = self.pods.get_mut(id) else { return };
        if let Some(dirty) = pod.dirty.get_mut(replica) {
            *dirty = false;
        }
        let gone = Seen::PodGone { pod: pod.key.clone(), uid: pod.uid.clone() };
        let stays = pod.vm.is_none() && self.bug(Bug::CompletedPodsStay);
        let seen = match self.pod_seen(id) {
            Some(seen) => Seen::Pod(Box::new(seen)),
            None if stays => return,
            None => gone,
        };
        self.feed(replica, inc, seen);
    }

    pub(super) fn node_watched(&mut self, replica: Id, inc: u64, id: Id) {
        let Some(node) = self.nodes.get_mut(id) else { return };
        if let Some(dirty) = node.dirty.get_mut(replica) {
            *dirty = false;
        }
        let seen = self.node_seen(id);
        if let Some(seen) = seen {
            self.feed(replica, inc, seen);
        }
    }

    fn node_seen(&self, id: Id) -> Option<Seen> {
        let node = self.nodes.get(id)?;
        if node.lost {
            return Some(Seen::NodeGone(node.name.clone()));
        }
        Some(Seen::Node(Box::new(NodeSeen {
            name: node.name.clone(),
            total: node.total,
            closed: (!node.open).then(|| "is cordoned".to_owned()),
            ..NodeSeen::default()
        })))
    }

    pub(super) fn migration_watched(&mut self, replica: Id, inc: u64, id: Id) {
        let Some(migration) = self.migrations.get_mut(id) else { return };
        if let Some(dirty) = migration.dirty.get_mut(replica) {
            *dirty = false;
        }
        let seen = if migration.gone {
            Seen::MigrationGone { uid: migration.seen.uid.clone() }
        } else {
            Seen::Migration(migration.seen.clone())
        };
        self.feed(replica, inc, seen);
    }

    /// A scheduler takes something in. Now and then it is given the same once more, which must change nothing.
    fn feed(&mut self, id: Id, inc: u64, seen: Seen) {
        let now = duration(self.now);
        let Some(replica) = self.replica(id, inc) else { return };
        replica.checks = replica.checks.wrapping_add(1);
        let again = replica.checks.is_multiple_of(8).then(|| seen.clone());
        let changed = replica.state.step(now, seen);
        if let Some(again) = again {
            let twice = replica.state.step(now, again);
            self.check(Invariant::Quiet);
            if twice {
                self.fail(Invariant::Quiet, "the scheduler takes the same object for news".to_owned());
            }
        }
        if changed && self.leader == Some(id) && !self.waiting.is_empty() {
            self.place_soon(10 * MILLI);
        }
        self.settle(id, inc);
    }

    /// The writes that the core requests are made, by the leader; and it is woken at the time that it requested.
    pub(super) fn settle(&mut self, id: Id, inc: u64) {
        let (now, leads) = (self.now, self.leader == Some(id));
        if !leads {
            return;
        }
        let Some(replica) = self.replica(id, inc) else { return };
        let mut next = replica.state.wake_at().map(micros);
        let mut actions = Vec::new();
        if next.is_some_and(|at| at <= now) {
            actions = replica.state.take_actions(duration(now), ACTIONS);
            next = replica.state.wake_at().map(micros);
        }
        if let Some(at) =
            next.map(|at| at.max(now + MILLI)).filter(|at| replica.wake.is_none_or(|wake| *at < wake))
        {
            replica.wake = Some(at);
            self.after(at - now, Event::SchedulerWake { replica: id, inc, at });
        }
        for action in actions {
            let wait = self.latency(2, 15);
            self.after(wait, Event::Act { replica: id, inc, action: Box::new(action) });
        }
    }

    pub(super) fn scheduler_wake(&mut self, id: Id, inc: u64, at: Time) {
        let now = duration(self.now);
        let leads = self.leader == Some(id);
        let Some(replica) = self.replica(id, inc).filter(|replica| replica.wake == Some(at)) else { return };
        replica.wake = None;
        if leads && replica.state.step(now, Seen::Tick) && !self.waiting.is_empty() {
            self.place_soon(10 * MILLI);
        }
        self.check_counters(id);
        self.settle(id, inc);
    }

    fn check_counters(&mut self, id: Id) {
        self.check(Invariant::Monotonic);
        let Some(replica) = self.replicas.get_mut(id) else { return };
        let (now, before) = (replica.state.counters(), replica.counters);
        replica.counters = now;
        let fell = now.permits < before.permits
            || now.denials < before.denials
            || now.refusals < before.refusals
            || now.reservations < before.reservations
            || now.migrations < before.migrations;
        if fell {
            self.fail(Invariant::Monotonic, "a counter of the scheduler fell".to_owned());
        }
    }

    /// An agent's request arrives.
    pub(super) fn asked(&mut self, id: Id, inc: u64, number: u64, asked: Asked) {
        let Some(pod) = self.vms.get(id).and_then(|vm| vm.pod) else { return };
        let Some(key) = self.pods.get(pod).map(|pod| pod.key.clone()) else { return };
        if self.agent_of(id, inc).is_none() {
            return;
        }
        let result = self.decide(&key, &asked);
        match result {
            Ok(PluginAnswer { permit, .. }) => {
                if asked.target.any_greater(permit) {
                    self.stats.denials += 1;
                    self.note(Line::Size(id, "the scheduler permits only", permit));
                }
                self.book_issue(id, inc, number, permit);
            }
            Err(_) => self.stats.refusals += 1,
        }
        if self.fault(Fault::Loss, 0.05) {
            return self.note(Line::Vm(id, "an answer of the scheduler is lost"));
        }
        let wait = self.latency(1, 5);
        let late = if self.fault(Fault::Delay, 0.05) { self.latency(500, 12_000) } else { 0 };
        self.after(wait + late, Event::Permit { vm: id, inc, id: number, result });
        if self.fault(Fault::Duplicate, 0.1) {
            let wait = wait + late + self.latency(1, 8_000);
            self.after(wait, Event::Permit { vm: id, inc, id: number, result });
        }
    }

    /// The leader answers, if there is one.
    fn decide(
        &mut self,
        key: &neonvm_types::NamespacedName,
        asked: &Asked,
    ) -> Result<PluginAnswer, &'static str> {
        let (now, unit) = (duration(self.now), self.unit);
        let Some(leader) = self.leader else { return Err("no scheduler leads") };
        self.forget_pod(leader, key);
        let forgets = self.bug(Bug::ForgetLastPermit);
        let (generous, halves) = (self.bug(Bug::GrantEverything), self.bug(Bug::HalfUnits));
        let twice = asked.again && self.bug(Bug::DuplicateCountsTwice);
        let Some(replica) = self.replicas.get_mut(leader).filter(|replica| replica.up) else {
            return Err("the scheduler does not answer");
        };
        let request = Request {
            version: PluginProtoVersion::V5_0,
            unit,
            resources: asked.target,
            last_permit: asked.last.filter(|_| !forgets),
            load: asked.load,
        };
        let inc = replica.inc;
        let answer = replica.state.request(now, key, &request);
        self.settle(leader, inc);
        let Reply { mut permit, migrate } = answer.map_err(|_| "the scheduler refuses")?;
        if twice {
            permit = permit.saturating_add(unit).min(asked.target);
        }
        if halves {
            permit.vcpus = neonvm_types::MilliCpu::new(permit.vcpus.milli() / 2);
            permit.mem = neonvm_types::Bytes::new(permit.mem.get() / 2);
            permit = permit.max(asked.last.unwrap_or(permit)).min(asked.target);
        }
        let permit = if generous { asked.target } else { permit };
        Ok(PluginAnswer { permit, migrate })
    }

    /// The planted bug: another pod of the node is forgotten.
    fn forget_pod(&mut self, leader: Id, key: &neonvm_types::NamespacedName) {
        if !self.bug(Bug::ForgetPod) || !self.rngs.faults.chance(0.05) {
            return;
        }
        let node = self
            .keys
            .get(key)
            .and_then(|pod| self.pods.get(*pod)?.node)
            .and_then(|node| self.nodes.get(node));
        let others = node.into_iter().flat_map(|node| node.pods.iter()).filter_map(|pod| self.pods.get(*pod));
        let others: Vec<_> = others.filter(|pod| pod.vm.is_some() && pod.key != *key).collect();
        let Some(other) = self.rngs.faults.pick(&others) else { return };
        let (pod, uid) = (other.key.clone(), other.uid.clone());
        if let Some(replica) = self.replicas.get_mut(leader) {
            replica.state.step(duration(self.now), Seen::PodGone { pod, uid });
        }
    }

    /// A scheduler starts after `wait`: it lists, then it may lead.
    pub(super) fn scheduler_starts(&mut self, id: Id, wait: Time) {
        let Some(replica) = self.replicas.get_mut(id) else { return };
        replica.inc += 1;
        replica.up = true;
        replica.wake = None;
        replica.state = State::new(replica.state.settings().clone());
        replica.counters = replica.state.counters();
        let inc = replica.inc;
        self.after(wait, Event::SchedulerList { replica: id, inc });
    }

    pub(super) fn scheduler_lists(&mut self, id: Id, inc: u64) {
        if self.replica(id, inc).is_none() {
            return;
        }
        let now = duration(self.now);
        let mut seen: Vec<Seen> = (0..self.nodes.len()).filter_map(|node| self.node_seen(node)).collect();
        let early = self.bug(Bug::PermitBeforeListed);
        for pod in 0..self.pods.len() {
            if let Some(pod) = self.pods.get_mut(pod)
                && let Some(dirty) = pod.dirty.get_mut(id)
            {
                *dirty = false;
            }
            if let Some(mut pod) = self.pod_seen(pod) {
                if let Some(vm) = &mut pod.vm
                    && self.bug(Bug::ForgetLastPermit)
                {
                    (vm.max, vm.approved) = (None, None);
                }
                // The planted bug: half of the pods come later.
                if !early || seen.len().is_multiple_of(2) {
                    seen.push(Seen::Pod(Box::new(pod)));
                } else {
                    seen.push(Seen::Tick);
                }
            }
        }
        seen.push(Seen::Listed);
        let migrations =
            self.migrations.iter().filter(|one| !one.gone).map(|one| Seen::Migration(one.seen.clone()));
        seen.extend(migrations);
        seen.push(Seen::MigrationsListed);
        let Some(replica) = self.replica(id, inc) else { return };
        for seen in seen {
            replica.state.step(now, seen);
        }
        if early {
            self.after(30 * SECOND, Event::SchedulerRelist { replica: id, inc });
        }
        self.place_soon(10 * MILLI);
        self.settle(id, inc);
    }

    /// All pods are shown again, for the planted bug that lists only some at first.
    pub(super) fn scheduler_relists(&mut self, id: Id, inc: u64) {
        let now = duration(self.now);
        let seen: Vec<_> = (0..self.pods.len()).filter_map(|pod| self.pod_seen(pod)).collect();
        let Some(replica) = self.replica(id, inc) else { return };
        for pod in seen {
            replica.state.step(now, Seen::Pod(Box::new(pod)));
        }
    }

    /// The scheduler ends and loses all its state.
    pub(super) fn scheduler_ends(&mut self) {
        let Some(leader) = self.leader.take() else { return };
        self.note(Line::Text("the scheduler ends"));
        if let Some(replica) = self.replicas.get_mut(leader) {
            replica.up = false;
        }
        let back = self.latency(500, 15_000);
        let standby = (0..self.replicas.len())
            .find(|id| *id != leader && self.replicas.get(*id).is_some_and(|one| one.up));
        let wait = self.latency(500, 10_000);
        self.after(
            wait.max(if standby.is_none() { back } else { 0 }),
            Event::Lead { replica: standby.unwrap_or(leader) },
        );
        if standby.is_some() {
            self.scheduler_starts(leader, back);
        }
    }

    /// The lead goes to the other scheduler; the one that had it permits nothing from now on.
    pub(super) fn hand_over(&mut self) {
        let Some(leader) = self.leader else { return };
        let other = (0..self.replicas.len())
            .find(|id| *id != leader && self.replicas.get(*id).is_some_and(|one| one.up));
        let Some(other) = other else { return };
        self.leader = None;
        self.note(Line::Text("the scheduler loses its lease"));
        let wait = self.latency(100, 5_000);
        self.after(wait, Event::Lead { replica: other });
    }

    /// A scheduler leads from now on: permits given by others meanwhile are unknown, so everything is listed again.
    pub(super) fn lead(&mut self, id: Id) {
        let now = duration(self.now);
        self.leader = Some(id);
        self.stats.scheduler_starts += 1;
        self.note(Line::Text("a scheduler leads"));
        let wait = self.latency(10, 1_000);
        let Some(replica) = self.replicas.get_mut(id) else { return };
        if !replica.up {
            return self.scheduler_starts(id, wait);
        }
        replica.state.step(now, Seen::TakenOver);
        replica.wake = None;
        let inc = replica.inc;
        self.after(wait, Event::SchedulerList { replica: id, inc });
    }

    /// A change that the scheduler wants arrives at the API server.
    pub(super) fn act(&mut self, id: Id, inc: u64, action: Box<Action>) {
        if self.replica(id, inc).is_none() {
            return;
        }
        let ok = match &*action {
            Action::Annotate(note) => self.annotate(note),
            Action::CreateMigration(wanted) => self.create_migration(wanted),
            Action::DeleteMigration { uid, .. } => self.delete_migration(uid),
        };
        let wait = self.latency(1, 10);
        self.after(wait, Event::Acted { replica: id, inc, action, ok });
    }

    pub(super) fn acted(&mut self, id: Id, inc: u64, action: &Action, ok: bool) {
        let now = duration(self.now);
        if let Some(replica) = self.replica(id, inc) {
            replica.state.done(now, action, ok);
            self.settle(id, inc);
        }
    }

    fn annotate(&mut self, note: &Annotation) -> bool {
        if self.fault(Fault::NoteLoss, 0.5) {
            return false;
        }
        let Some(id) = self.keys.get(&note.pod).copied() else { return false };
        let Some(pod) = self.pods.get_mut(id).filter(|pod| pod.alive && pod.uid == note.pod_uid) else {
            return false;
        };
        if pod.noted != Some(note.values) {
            pod.noted = Some(note.values);
            self.touch_pod(id);
        }
        true
    }
}
