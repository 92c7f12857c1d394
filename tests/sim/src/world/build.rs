//! A world from a scenario.

use std::collections::{BTreeMap, BTreeSet};

use neonvm_api::VmInfo;
use neonvm_api::vm_info::{VmConfig, VmCpuInfo, VmMemInfo};
use neonvm_core_scheduling::permits::{Pair, Settings, State};
use neonvm_core_vertical_scaling::agent::{Settings as AgentSettings, units};
use neonvm_core_vertical_scaling::monitor::{Policy, Settings as PolicySettings};
use neonvm_types::guest::MemoryLimits;
use neonvm_types::{Bytes, MilliCpu, NamespacedName, Resources, Revision};

use super::event::Event;
use super::model::{GuestState, Id, Node, Person, Phase, Pod, Replica, Vm};
use super::notes::Notes;
use super::record::Recorder;
use super::{World, micros};
use crate::outcome::Stats;
use crate::queue::{MILLI, Queue, SECOND, Time};
use crate::rng::{Rng, Rngs};
use crate::scenario::{Curve, Demand, NodeGroup, Scenario, SimSettings, VmGroup};
use crate::{Bug, FaultSet, Options};

/// Shipped settings with the scenario's. What must be longer than the time between two scrapes, is.
fn agent_settings(settings: &SimSettings) -> AgentSettings {
    let idle = settings.idle_scrape;
    let shipped = AgentSettings::SHIPPED;
    AgentSettings {
        compute_unit: settings.unit(),
        plugin_request_tick: settings.tick,
        metrics_stale_after: shipped.metrics_stale_after.max(idle * 2),
        metrics_lost_after: shipped.metrics_lost_after.max(idle * 4),
        monitor_unhealthy: shipped.monitor_unhealthy.max(idle * 3),
        monitor_silence: shipped.monitor_silence.max(idle * 3),
        ..shipped
    }
}

fn replica(settings: &SimSettings, bug: Option<Bug>) -> Replica {
    let watermark = if bug == Some(Bug::WatermarkIgnored) { 1.0 } else { settings.watermark };
    let settings = Settings {
        watermark: Pair::both(watermark),
        compute_unit: settings.unit(),
        do_migration: settings.migration,
        ..Settings::default()
    };
    Replica {
        state: State::new(settings),
        up: false,
        inc: 0,
        wake: None,
        counters: neonvm_types::scheduler_inspect::Counters::default(),
        checks: 0,
    }
}

pub(crate) fn build(scenario: &Scenario, options: &Options) -> World {
    let settings = scenario.settings.clone();
    let mut rngs = Rngs::new(options.seed);
    // Drawn in any case, so that a replay with the faults named is the same run.
    let drawn = scenario.faults.some(&mut rngs.faults);
    let faults = options.faults.unwrap_or(drawn);
    let faults_end = micros(options.until.unwrap_or(scenario.duration).min(scenario.duration));
    let ends = faults_end.saturating_add(micros(scenario.quiet));
    let replicas = if settings.standby || faults.has(crate::Fault::Handover) { 2 } else { 1 };
    let mut world = World {
        now: 0,
        queue: Queue::new(),
        rngs,
        unit: settings.unit(),
        agent_settings: agent_settings(&settings),
        people: scenario.people,
        groups: scenario.vms.clone(),
        faults,
        bug: options.bug,
        faults_on: true,
        faults_end,
        ends,
        nodes: Vec::new(),
        vms: Vec::new(),
        pods: Vec::new(),
        keys: BTreeMap::new(),
        waiting: BTreeSet::new(),
        placing: false,
        migrations: Vec::new(),
        open: BTreeSet::new(),
        ended: BTreeSet::new(),
        locked: BTreeSet::new(),
        cares: BTreeMap::new(),
        controller: super::migration::Controller::new(),
        budget: u64::MAX,
        addresses: super::addresses::Addresses::new(options.bug),
        replicas: (0..replicas).map(|_| replica(&settings, options.bug)).collect(),
        leader: None,
        incs: 0,
        uids: 0,
        stats: Stats::default(),
        events: 0,
        checked: BTreeMap::new(),
        counts: [0; 24],
        broken: None,
        notes: Notes::default(),
        recorder: None,
        settings,
    };
    world.make_nodes(&scenario.nodes);
    for group in 0..scenario.vms.len() {
        world.make_vms(group);
    }
    world.recorder = Recorder::new(options.record, &mut world.vms);
    world.start();
    world
}

impl World {
    fn make_nodes(&mut self, groups: &[NodeGroup]) {
        for group in groups {
            for number in 0..group.count {
                let node = self.nodes.len();
                let total = Pair::from(Resources::new(group.cpu, group.memory));
                self.nodes.push(Node {
                    name: format!("{}-{number:04}", group.name),
                    total,
                    taken: Pair::default(),
                    used: Pair::default(),
                    open: true,
                    lost: false,
                    agent_up: true,
                    pods: BTreeSet::new(),
                    dirty: [false; 2],
                    misses: 0,
                });
                for pods in &group.pods {
                    for _ in 0..pods.count {
                        let usage = Resources::new(pods.cpu, pods.memory);
                        let pod = self.make_pod(None, usage);
                        self.bound(pod, node);
                        let Some(lasts) = pods.lasts.map(micros) else { continue };
                        if let Some(pod) = self.pods.get_mut(pod) {
                            pod.lasts = Some(lasts);
                        }
                        let wait = self.rngs.people.between(lasts / 10, lasts);
                        self.after(wait, Event::Ends(pod));
                    }
                }
            }
        }
    }

    /// A pod that no watch has shown yet.
    pub(super) fn make_pod(&mut self, vm: Option<Id>, usage: Resources) -> Id {
        let id = self.pods.len();
        let name = match vm.and_then(|vm| self.vms.get_mut(vm)) {
            Some(vm) => format!("{}-{}", vm.name, vm.pods_made + 1),
            None => format!("pod-{id}"),
        };
        self.make_pod_named(vm, usage, NamespacedName::new("default", name))
    }

    /// The same, with this name.
    pub(super) fn make_pod_named(&mut self, vm: Option<Id>, usage: Resources, key: NamespacedName) -> Id {
        let id = self.pods.len();
        self.uids += 1;
        if let Some(vm) = vm.and_then(|vm| self.vms.get_mut(vm)) {
            vm.pods_made += 1;
        }
        self.keys.insert(key.clone(), id);
        self.pods.push(Pod {
            key,
            uid: format!("u{}", self.uids),
            vm,
            node: None,
            bound_at: 0,
            created: i64::try_from(self.now / SECOND).unwrap_or(i64::MAX),
            alive: true,
            ended: false,
            usage,
            noted: None,
            role: None,
            dirty: [false; 2],
            binding: false,
            counted: [Pair::default(); 2],
            misses: 0,
            lasts: None,
        });
        id
    }

    fn make_vms(&mut self, group: usize) {
        let count = self.groups.get(group).map_or(0, |group| group.count);
        let spread = (u64::from(count) * 20 * MILLI).min(60 * SECOND);
        for _ in 0..count {
            if let Some(vm) = self.make_vm(group) {
                let wait = 2 * SECOND + self.rngs.people.below(spread + 1);
                self.after(wait, Event::Create(vm));
            }
        }
    }

    /// A VM that does not exist yet.
    pub(super) fn make_vm(&mut self, group: usize) -> Option<Id> {
        let id = self.vms.len();
        let group = self.groups.get(group)?;
        let vm = new_vm(group, id, &self.settings, &mut self.rngs);
        self.vms.push(vm);
        Some(id)
    }

    fn start(&mut self) {
        for replica in 0..self.replicas.len() {
            self.scheduler_starts(replica, 0);
        }
        self.after(10 * MILLI, Event::Lead { replica: 0 });
        for person in Person::ALL {
            self.schedule_people(*person);
        }
        if self.faults != FaultSet::NONE {
            self.after(20 * SECOND, Event::Chaos);
        }
        let faults_end: Time = self.faults_end;
        self.after(faults_end, Event::EndOfFaults);
        for before in 1..super::calm::LOOKS {
            self.after(self.ends - u64::from(before) * super::calm::LOOK, Event::Audit);
        }
        if self.recorder.is_some() {
            self.after(0, Event::Record);
        }
    }
}

fn new_vm(group: &VmGroup, id: Id, settings: &SimSettings, rngs: &mut Rngs) -> Vm {
    let unit = settings.unit();
    let start = units::times(unit, group.start.unwrap_or(group.min));
    let bounds = (units::times(unit, group.min), units::times(unit, group.max));
    let (min, max) = shape(bounds, settings, &mut rngs.shapes);
    let asked = start.min(max).max(min);
    let name = format!("{}-{id:05}", group.name);
    let slots = |size: Resources| {
        size.mem.slots(settings.slot).and_then(|slots| u16::try_from(slots).ok()).unwrap_or(u16::MAX)
    };
    let info = VmInfo {
        name: name.clone(),
        namespace: "default".to_owned(),
        cpu: VmCpuInfo { min: min.vcpus, max: max.vcpus, r#use: asked.vcpus },
        mem: VmMemInfo { min: slots(min), max: slots(max), r#use: slots(asked), slot_size: settings.slot },
        config: VmConfig {
            scaling_enabled: true,
            auto_migration_enabled: group.movable,
            ..VmConfig::default()
        },
        current_revision: None,
    };
    let zero = Resources::default();
    Vm {
        name,
        info,
        first_bounds: (min, max),
        overcommit: (group.overcommit * 1000.0) as u64,
        movable: group.movable,
        phase: Phase::Gone,
        pods_made: 0,
        pod: None,
        target: None,
        network: group.address,
        address: None,
        asked,
        generation: 1,
        target_revision: Revision::default(),
        min,
        max,
        hold: None,
        observed: None,
        observed_generation: 0,
        revision: Revision::default(),
        has: zero,
        mem_epoch: 0,
        slow_until: 0,
        stuck_until: 0,
        controlled: false,
        guest: new_guest(group, max, &mut rngs.load),
        agent: None,
        watched: 0,
        needs: min,
        counted_at: 0,
        there_since: 0,
        misses: 0,
        record: false,
    }
}

/// Steps of CPU in which bounds are drawn.
const GRAIN: u64 = 10;

/// The bounds that a VM gets: those of its group, or near them and off the grid of compute units, of each resource for itself.
/// An upper bound is never raised, a lower one by less than a compute unit.
pub(super) fn shape(
    (min, max): (Resources, Resources),
    settings: &SimSettings,
    rng: &mut Rng,
) -> (Resources, Resources) {
    if rng.chance(0.5) {
        return (min, max);
    }
    let mut field = |low: u64, high: u64, unit: u64, grain: u64| {
        let less = |from: u64, by: u64| (from - by) / grain * grain;
        let top = less(high, rng.below(unit.min(high - low + 1))).max(grain);
        match rng.below(4) {
            0 => (low.min(top), low.min(top)),
            1 => (low.min(top), high),
            2 => (less(low, rng.below(low * 6 / 10)).clamp(grain, top), top),
            _ => (less(low + rng.below(unit), 0).clamp(grain, top), top),
        }
    };
    let (unit, slot) = (settings.unit(), settings.slot.get().max(1));
    let milli = |size: Resources| u64::from(size.vcpus.milli());
    let cpu = field(milli(min), milli(max), milli(unit), GRAIN);
    let mem = field(min.mem.get(), max.mem.get(), unit.mem.get(), slot);
    let size = |cpu: u64, mem: u64| {
        Resources::new(MilliCpu::new(u32::try_from(cpu).unwrap_or(u32::MAX)), Bytes::new(mem))
    };
    (size(cpu.0, mem.0), size(cpu.1, mem.1))
}

fn new_guest(group: &VmGroup, max: Resources, rng: &mut Rng) -> GuestState {
    let memory = group.memory.clone().unwrap_or(Demand::Constant { level: f64::from(group.min) / 2.0 });
    GuestState {
        kind: group.guest,
        cpu: Curve::new(&group.demand, rng),
        memory: Curve::new(&memory, rng),
        cpu_level: 0.0,
        memory_level: 0.0,
        load1: 0.0,
        load5: 0.0,
        load_at: 0,
        busy: 0.0,
        scraped: None,
        policy: policy(max),
        connection: None,
        inbox: 0,
        silent_until: 0,
        refuses_until: 0,
        garbage_until: 0,
        metrics_lost_until: 0,
        metrics_lie_until: 0,
        sampling: false,
        samples: 0,
        agreed: Resources::default(),
    }
}

/// The monitor of a guest that just booted.
pub(super) fn policy(max: Resources) -> Policy {
    let most_cpus = max.vcpus.cpus_rounded_up();
    Policy::new(PolicySettings { file_cache: false, measures: true, most_cpus, limits: MemoryLimits::Off })
}
