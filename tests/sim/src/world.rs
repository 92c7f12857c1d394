//! The world: everything that happens goes through one queue, and through [`World::happen`].

mod account;
mod addresses;
mod agents;
mod api;
mod build;
mod calm;
mod chaos;
mod event;
mod guest;
mod machine;
mod migration;
mod model;
mod notes;
mod people;
mod placing;
mod record;
mod scheduler;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use neonvm_core_vertical_scaling::agent::Settings as AgentSettings;
use neonvm_types::Resources;

use crate::outcome::{Broken, Series, Stats};
use crate::queue::{MILLI, Queue, SECOND, Time};
use crate::rng::Rngs;
use crate::scenario::{People, SimSettings, VmGroup};
use crate::{Bug, Fault, FaultSet, Invariant};
use event::Event;
use model::{Id, Keys, Migration, Node, Person, Pod, Replica, Vm};
use notes::{Line, Notes};
use record::Recorder;

pub(crate) use build::build;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Time,
    queue: Queue<Event>,
    rngs: Rngs,
    settings: SimSettings,
    unit: Resources,
    agent_settings: AgentSettings,
    people: People,
    groups: Vec<VmGroup>,
    pub(crate) faults: FaultSet,
    bug: Option<Bug>,
    faults_on: bool,
    faults_end: Time,
    ends: Time,
    nodes: Vec<Node>,
    vms: Vec<Vm>,
    pods: Vec<Pod>,
    keys: Keys,
    /// Pods without a node.
    waiting: BTreeSet<Id>,
    placing: bool,
    migrations: Vec<Migration>,
    /// Migrations that have not ended; and those that have and are there.
    open: BTreeSet<Id>,
    ended: BTreeSet<Id>,
    locked: BTreeSet<Id>,
    /// The objects of VMs that have migrations.
    cares: BTreeMap<Id, Box<migration::Care>>,
    controller: migration::Controller,
    /// Writes that the controller makes before it dies.
    budget: u64,
    addresses: addresses::Addresses,
    replicas: Vec<Replica>,
    leader: Option<Id>,
    incs: u64,
    uids: u64,
    pub(crate) stats: Stats,
    pub(crate) events: u64,
    pub(crate) checked: BTreeMap<Invariant, u64>,
    counts: [u64; 24],
    pub(crate) broken: Option<Broken>,
    notes: Notes,
    recorder: Option<Recorder>,
}

/// The cores' clock.
pub(crate) fn duration(at: Time) -> Duration {
    Duration::from_micros(at)
}

pub(crate) fn micros(span: Duration) -> Time {
    Time::try_from(span.as_micros()).unwrap_or(Time::MAX / 4)
}

impl World {
    /// Lets time pass until the end, or until an invariant does not hold.
    pub(crate) fn run(&mut self) {
        while self.broken.is_none()
            && let Some((at, event)) = self.queue.pop()
        {
            if at > self.ends {
                break;
            }
            self.now = self.now.max(at);
            self.events += 1;
            self.happen(event);
            if self.events.is_multiple_of(256) {
                self.check_queue();
            }
        }
        if self.broken.is_none() {
            self.now = self.now.max(self.ends);
            self.check_calm();
        }
        self.finish();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Create(vm) => self.create(vm),
            Event::Boot(pod) => self.boot(pod),
            Event::Demand(vm) => self.demand_changes(vm, false),
            Event::Memory(vm) => self.demand_changes(vm, true),
            Event::Sample(vm) => self.sample(vm),
            Event::Attach(vm) => self.attach(vm),
            Event::Connect { vm, inc } => self.connect(vm, inc),
            Event::Scrape { vm, inc } => self.scrape(vm, inc),
            Event::Wake { vm, inc, at } => self.wake(vm, inc, at),
            Event::Watch { vm, inc, seen } => self.watched(vm, inc, &seen),
            Event::Ask { vm, inc, id, to, last, load, again } => {
                self.asked(vm, inc, id, scheduler::Asked { target: to, last, load, again });
            }
            Event::Permit { vm, inc, id, result } => self.permitted(vm, inc, id, result),
            Event::Patch { vm, inc, id, from, to, revision, again } => {
                self.patch(vm, inc, id, &api::Change { from, to, revision, again });
            }
            Event::Patched { vm, inc, id, result, to } => self.patched(vm, inc, id, result, to),
            Event::Question { vm, inc, connection, id, to, down } => {
                self.question(vm, (inc, connection), id, to, down);
            }
            Event::Verdict { vm, inc, connection, id, result } => {
                self.verdict(vm, (inc, connection), id, result);
            }
            Event::GuestRequest { vm, inc, connection, wants } => {
                self.guest_request(vm, (inc, connection), wants);
            }
            Event::Control(vm) => self.control(vm),
            Event::MemoryStep { vm, epoch } => self.memory_step(vm, epoch),
            Event::AgentStart { node } => self.agent_starts(node),
            Event::Uncordon(node) => self.set_open(node, true),
            Event::Chaos => self.chaos(),
            Event::People(person) => self.person(person),
            Event::Record => self.record(),
            Event::Audit => self.look(),
            Event::EndOfFaults => self.end_faults(),
            other => self.happen_to_scheduler(other),
        }
    }

    fn happen_to_scheduler(&mut self, event: Event) {
        match event {
            Event::PodWatch { replica, inc, pod } => self.pod_watched(replica, inc, pod),
            Event::NodeWatch { replica, inc, node } => self.node_watched(replica, inc, node),
            Event::MigrationWatch { replica, inc, migration } => {
                self.migration_watched(replica, inc, migration);
            }
            Event::SchedulerWake { replica, inc, at } => self.scheduler_wake(replica, inc, at),
            Event::SchedulerList { replica, inc } => self.scheduler_lists(replica, inc),
            Event::SchedulerRelist { replica, inc } => self.scheduler_relists(replica, inc),
            Event::Lead { replica } => self.lead(replica),
            Event::Act { replica, inc, action } => self.act(replica, inc, action),
            Event::Acted { replica, inc, action, ok } => self.acted(replica, inc, &action, ok),
            Event::Place => self.place(),
            Event::Bind { replica, inc, pod, node } => self.bind(replica, inc, pod, node),
            Event::Ends(pod) => self.pod_ends(pod),
            Event::Removed(pod) => self.pod_removed(pod),
            Event::Reconcile { vm, at } => self.reconcile(vm, at),
            Event::Move { vm, step } => self.moves(vm, *step),
            Event::ControllerStarts => self.controller_starts(),
            Event::NodeLost(node) => self.lose_node(node),
            Event::Address(vm) => self.give_pod_when_ready(vm),
            _ => {}
        }
    }

    fn after(&mut self, wait: Time, event: Event) {
        self.queue.push(self.now.saturating_add(wait), event);
    }

    /// A time between the two, in milliseconds.
    fn latency(&mut self, low: u64, high: u64) -> Time {
        self.rngs.latency.between(low * MILLI, high * MILLI)
    }

    /// Whether a fault happens now.
    fn fault(&mut self, fault: Fault, probability: f64) -> bool {
        let happens = self.faults_on && self.faults.has(fault) && self.rngs.faults.chance(probability);
        self.stats.faults += u64::from(happens);
        happens
    }

    fn bug(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn note(&mut self, line: Line) {
        self.notes.push(self.now, line);
    }

    fn check(&mut self, invariant: Invariant) {
        if let Some(count) = self.counts.get_mut(invariant as usize) {
            *count += 1;
        }
    }

    /// The run is over.
    #[cold]
    fn fail(&mut self, invariant: Invariant, message: String) {
        if self.broken.is_none() {
            let notes = self.notes.lines(&self.vms, &self.nodes);
            self.broken = Some(Broken { invariant, at: duration(self.now), message, notes });
        }
    }

    /// Faults end: what is broken heals, loads stay as they are, users do nothing more.
    fn end_faults(&mut self) {
        self.faults_on = false;
        self.note(Line::Text("faults have ended"));
        for node in 0..self.nodes.len() {
            self.set_open(node, true);
        }
        let now = self.now;
        for vm in &mut self.vms {
            (vm.slow_until, vm.stuck_until) = (now, now);
            vm.hold = vm.hold.filter(|_| false);
            let guest = &mut vm.guest;
            (guest.silent_until, guest.refuses_until, guest.garbage_until) = (now, now, now);
            (guest.metrics_lost_until, guest.metrics_lie_until) = (now, now);
        }
        self.moves_heal();
        for vm in 0..self.vms.len() {
            self.show(vm);
            self.after(0, Event::Control(vm));
        }
    }

    fn finish(&mut self) {
        for vm in 0..self.vms.len() {
            self.account(vm);
        }
        for invariant in Invariant::ALL {
            let count = self.counts.get(*invariant as usize).copied().unwrap_or(0);
            if count > 0 {
                self.checked.insert(*invariant, count);
            }
        }
    }

    pub(crate) fn series(&mut self) -> Option<Series> {
        self.recorder.take().map(Recorder::into_series)
    }

    fn check_queue(&mut self) {
        self.check(Invariant::Bounded);
        let limit = 4_000 + 40 * (self.vms.len() + self.pods.len() + self.nodes.len());
        let length = self.queue.len();
        if length > limit {
            self.fail(Invariant::Bounded, format!("{length} things are about to happen, limit {limit}"));
        }
    }

    /// Adds to the counts what a VM had since they were last brought up to date.
    fn account(&mut self, id: Id) {
        let now = self.now;
        let Some(vm) = self.vms.get_mut(id) else { return };
        let elapsed = duration(now.saturating_sub(vm.counted_at));
        vm.counted_at = now;
        if matches!(vm.phase, model::Phase::Running | model::Phase::Migrating) {
            self.stats.ran += elapsed;
            if vm.has.any_less(vm.needs.min(vm.max)) {
                self.stats.short += elapsed;
            }
        }
    }

    fn schedule_people(&mut self, person: Person) {
        let rate = match person {
            Person::Creates => self.people.creates,
            Person::Deletes => self.people.deletes,
            Person::Bounds => self.people.bounds,
            Person::Holds => self.people.holds,
            Person::Cordons => self.people.cordons,
            Person::Drains => self.people.drains,
            Person::Moves => self.people.moves,
            Person::Cancels => self.people.cancels,
        };
        if rate > 0.0 {
            let mean = 3600.0 / rate;
            let wait = (mean * SECOND as f64 * (0.2 + 1.6 * self.rngs.people.unit())) as Time;
            self.after(wait.max(MILLI), Event::People(person));
        }
    }
}
