//! VMs of any shape under a load that does not change, or changes by noise alone: the decision has a fixed point, nothing grows
//! without evidence for it, and every size of the bounds is reached and left again, whatever the guest takes of it.

use std::time::Duration;

use neonvm_api::VmInfo;
use neonvm_api::vm_info::{VmConfig, VmCpuInfo, VmMemInfo};
use neonvm_core_vertical_scaling::agent::{
    Action, Event, PluginAnswer, Settings, State, SystemMetrics, Verdict, Vm,
};
use neonvm_types::monitor_protocol::Wants;
use neonvm_types::version::MonitorProtoVersion;
use neonvm_types::{Bytes, MilliCpu, Resources};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
/// Time between two scrapes.
const SCRAPE: Duration = Duration::from_secs(5);

/// What a guest takes of a size that it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    All,
    /// Whole memory blocks of 128 MiB beyond the lower bound.
    Blocks,
    /// No more memory than it booted with.
    Nothing,
    /// All, but keeps so many thousandths of a slot of what it is to give back.
    Keeps(u64),
    /// All, so many seconds late.
    Late(u64),
}

/// A VM and where it begins.
#[derive(Clone, Debug)]
struct Shape {
    unit: Resources,
    slot: Bytes,
    min: Resources,
    max: Resources,
    start: Resources,
    takes: Takes,
    /// What its node has for it.
    room: Resources,
}

/// What the guest does.
#[derive(Clone, Copy, Debug)]
struct Load {
    cpus: f64,
    memory: u64,
}

/// The world around one agent: peers that reply at once and permit everything.
struct World {
    state: State,
    vm: Vm,
    shape: Shape,
    now: Duration,
    load: Load,
    busy: f64,
    given_at: Duration,
    resized: Vec<(Duration, Resources, Resources)>,
}

impl World {
    fn new(shape: &Shape, load: Load) -> Self {
        let slots = |bytes: Bytes| u16::try_from(bytes.slots(shape.slot).unwrap()).unwrap();
        let (min, max, start) = (shape.min, shape.max, shape.start);
        let info = VmInfo {
            name: "vm".into(),
            namespace: "default".into(),
            cpu: VmCpuInfo { min: min.vcpus, max: max.vcpus, r#use: start.vcpus },
            mem: VmMemInfo {
                min: slots(min.mem),
                max: slots(max.mem),
                r#use: slots(start.mem),
                slot_size: shape.slot,
            },
            config: VmConfig { scaling_enabled: true, ..VmConfig::default() },
            current_revision: None,
        };
        let vm = Vm { observed: Some(start), generation: Some(1), ..Vm::new(info) };
        let settings = Settings { compute_unit: shape.unit, ..Settings::SHIPPED };
        let state = State::new(vm.clone(), settings, Duration::ZERO);
        let (shape, now) = (shape.clone(), Duration::ZERO);
        let mut world = Self { state, vm, shape, now, load, busy: 0.0, given_at: now, resized: Vec::new() };
        world.step(Event::MonitorConnected { version: MonitorProtoVersion::V2_0 });
        world
    }

    fn asked(&self) -> Resources {
        self.vm.info.using()
    }

    fn has(&self) -> Resources {
        self.vm.observed.unwrap()
    }

    fn step(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let outcome = self.state.step(self.now, event);
            events.extend(outcome.actions.iter().map(|action| self.reply(action)));
        }
    }

    fn reply(&mut self, action: &Action) -> Event {
        match *action {
            Action::AskScheduler { id, request } => {
                let permit = request.target.min(self.shape.room.max(self.asked()));
                Event::PluginReply { id, result: Ok(PluginAnswer { permit, migrate: false }) }
            }
            Action::PatchVm { id, from, to, .. } => {
                self.resized.push((self.now, from, to));
                self.vm.info.set_using(to).unwrap();
                self.vm.generation = self.vm.generation.map(|generation| generation + 1);
                self.given_at = self.now;
                Event::PatchReply { id, result: Ok(self.vm.generation) }
            }
            Action::AskMonitorDownscale { id, to, .. } => {
                let status = String::new();
                let denies =
                    self.load.cpus >= to.vcpus.as_f64() * 0.9 || self.load.memory * 10 >= to.mem.get() * 9;
                let verdict = if denies { Verdict::Denied { status } } else { Verdict::Agreed { status } };
                Event::MonitorReply { id, result: Ok(verdict) }
            }
            Action::NotifyUpscale { id, .. } => Event::MonitorReply { id, result: Ok(Verdict::Confirmed) },
            Action::ResetMonitor { .. } => panic!("the monitor was not silent"),
        }
    }

    /// What the guest has of what it was given.
    fn take(&mut self) {
        let (asked, min) = (self.asked(), self.shape.min);
        let more = asked.mem.saturating_sub(min.mem).get();
        let mem = match self.shape.takes {
            Takes::All => asked.mem,
            Takes::Blocks => min.mem.saturating_add(Bytes::new(more - more % (128 * MIB))),
            Takes::Nothing => self.has().mem.min(asked.mem),
            Takes::Keeps(share) => {
                let rest = Bytes::new(self.shape.slot.get() / 1000 * share);
                asked.mem.max(self.has().mem.min(asked.mem.saturating_add(rest)))
            }
            Takes::Late(seconds) if self.now < self.given_at + Duration::from_secs(seconds) => return,
            Takes::Late(_) => asked.mem,
        };
        self.vm.observed = Some(Resources::new(asked.vcpus, mem));
        let status_generation = self.vm.generation;
        self.step(Event::VmSeen { vm: self.vm.clone(), status_generation });
    }

    /// Passes so many seconds; `noise` gives the load of each interval between scrapes.
    fn run(&mut self, seconds: u64, mut noise: impl FnMut(&mut Load)) {
        for second in 0..seconds {
            let has = self.has();
            self.now += Duration::from_secs(1);
            self.busy += self.load.cpus.min(has.vcpus.as_f64());
            self.take();
            self.step(Event::MonitorAlive);
            if self.load.cpus >= has.vcpus.as_f64() {
                let cpus = ((self.load.cpus / 0.9 * 1000.0) as u32).max(has.vcpus.milli() + 1);
                let wants = Wants { cpu: Some(MilliCpu::new(cpus)), ..Wants::default() };
                self.step(Event::UpscaleRequested { wants: Some(wants) });
            }
            if second % SCRAPE.as_secs() == 0 {
                self.step(Event::SystemMetrics(SystemMetrics {
                    load1: self.load.cpus,
                    load5: self.load.cpus,
                    memory_usage_bytes: self.load.memory as f64,
                    busy_seconds: Some(self.busy),
                    ..SystemMetrics::default()
                }));
                noise(&mut self.load);
            }
            self.step(Event::Timer);
        }
    }

    fn steady(&mut self, seconds: u64) {
        self.run(seconds, |_| {});
    }

    /// Growths of one resource, and how often it grew after it had shrunk, since `from`.
    fn turns(&self, from: Duration, of: fn(Resources) -> u64) -> (usize, usize) {
        let steps = self.resized.iter().filter(|(at, ..)| *at >= from).map(|(_, a, b)| of(*a).cmp(&of(*b)));
        let steps: Vec<_> = steps.filter(|order| order.is_ne()).collect();
        let turns = steps.windows(2).filter(|pair| pair[0].is_gt() && pair[1].is_lt()).count();
        (steps.iter().filter(|order| order.is_lt()).count(), turns)
    }
}

fn cpu(size: Resources) -> u64 {
    size.vcpus.milli().into()
}

fn mem(size: Resources) -> u64 {
    size.mem.get()
}

/// Between two values, the ends more often.
fn between(low: u64, high: u64) -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(low), 1 => Just(high), 4 => low..=high]
}

/// Bounds of one resource on and off the grid of its unit, equal ones among them.
fn bounds(unit: u64, slot: u64) -> impl Strategy<Value = (u64, u64, u64)> {
    let grain = prop_oneof![Just(slot), Just(unit.max(slot))];
    (grain, 1_u64..24, prop_oneof![2 => Just(0), 5 => 0_u64..64]).prop_flat_map(move |(grain, min, more)| {
        let (min, max) =
            ((min * grain).next_multiple_of(slot), ((min + more) * grain).next_multiple_of(slot));
        (Just(min), Just(max), between(min / slot, max / slot).prop_map(move |slots| slots * slot))
    })
}

fn shape() -> impl Strategy<Value = Shape> {
    let unit = (prop_oneof![Just(250_u64), Just(1000), 10_u64..3000], prop_oneof![Just(8_u64), 1_u64..40]);
    let slot = prop_oneof![Just(8_u64), Just(128), Just(1024), (1_u64..80).prop_map(|n| n * 8)];
    let takes = prop_oneof![3 => Just(Takes::All), 1 => Just(Takes::Blocks), 1 => Just(Takes::Nothing),
        1 => (1_u64..1000).prop_map(Takes::Keeps), 1 => (1_u64..40).prop_map(Takes::Late)];
    (unit, slot, takes).prop_flat_map(|((unit_cpu, unit_mem), slot, takes)| {
        let (unit_mem, slot) = (unit_mem * 128 * MIB, slot * MIB);
        (bounds(unit_cpu, 10), bounds(unit_mem, slot)).prop_map(move |(cpu, mem)| {
            let size = |cpu: u64, mem: u64| {
                Resources::new(MilliCpu::new(u32::try_from(cpu).unwrap()), Bytes::new(mem))
            };
            Shape {
                unit: size(unit_cpu, unit_mem),
                slot: Bytes::new(slot),
                min: size(cpu.0, mem.0),
                max: size(cpu.1, mem.1),
                start: size(cpu.2, mem.2),
                takes,
                room: size(cpu.1, mem.1),
            }
        })
    })
}

/// A share of a VM's upper bound.
fn load_of(shape: &Shape, cpu: f64, memory: f64) -> Load {
    Load { cpus: shape.max.vcpus.as_f64() * cpu, memory: (shape.max.mem.get() as f64 * memory) as u64 }
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..super::laws::config(cases) }
}

proptest! {
    #![proptest_config(config(64))]

    /// Applied to its own result under the same inputs, a decision stays, also on a node that has less room.
    #[test]
    fn a_constant_load_has_a_fixed_point(
        shape in shape(), room in (0.0..2.0_f64, 0.0..2.0_f64), cpus in 0.0..1.3_f64, memory in 0.0..0.8_f64,
    ) {
        let of = |amount: u64, share: f64| (amount as f64 * share.min(1.0)) as u64;
        let vcpus = MilliCpu::new(u32::try_from(of(cpu(shape.max), room.0)).unwrap());
        let room = Resources::new(vcpus, Bytes::new(of(mem(shape.max), room.1)));
        let shape = Shape { room, ..shape };
        let mut world = World::new(&shape, load_of(&shape, cpus, memory));
        world.steady(900);
        let before = world.resized.len();
        world.steady(600);
        prop_assert_eq!(before, world.resized.len(), "{:?}", &world.resized[before..]);
        let (_, cpu_turns) = world.turns(Duration::ZERO, cpu);
        let (_, mem_turns) = world.turns(Duration::ZERO, mem);
        prop_assert!(cpu_turns <= 1 && mem_turns <= 1, "{cpu_turns} {mem_turns} {:?}", world.resized);
    }

    /// An idle VM never grows, whatever its shape and its size at the start, and ends at its lower bound.
    #[test]
    fn idle_stays_idle(shape in shape(), cpus in 0.0..0.3_f64, memory in 0.0..0.7_f64) {
        let (least_cpu, least_mem) = (shape.min.vcpus.as_f64(), shape.min.mem.get() as f64);
        let load = Load { cpus: least_cpu * cpus, memory: (least_mem * memory) as u64 };
        let mut world = World::new(&shape, load);
        world.steady(900);
        prop_assert_eq!(world.turns(Duration::ZERO, cpu).0, 0, "{:?}", world.resized);
        prop_assert_eq!(world.turns(Duration::ZERO, mem).0, 0, "{:?}", world.resized);
        prop_assert_eq!(world.asked(), shape.min);
    }

    /// A resource at its bound, or without room on the node, takes the other one nowhere.
    #[test]
    fn a_resource_that_cannot_grow_takes_nothing_of_the_other(
        shape in shape(), is_cpu in any::<bool>(), is_fixed in any::<bool>(),
    ) {
        let mut shape = shape;
        let mut load = Load { cpus: 0.0, memory: 0 };
        if is_cpu {
            if is_fixed {
                shape.min.vcpus = shape.max.vcpus;
            }
            (shape.start.vcpus, shape.room.vcpus) = (shape.min.vcpus, shape.min.vcpus);
            load.cpus = shape.max.vcpus.as_f64() * 3.0;
        } else {
            if is_fixed {
                shape.min.mem = shape.max.mem;
            }
            (shape.start.mem, shape.room.mem) = (shape.min.mem, shape.min.mem);
            load.memory = shape.max.mem.get();
        }
        let mut world = World::new(&shape, load);
        world.steady(300);
        let grown = world.turns(Duration::ZERO, if is_cpu { mem } else { cpu }).0;
        prop_assert_eq!(grown, 0, "{:?}", world.resized);
    }

    /// Every size of the bounds is reached by a hold, and left again, whatever the guest takes of it.
    #[test]
    fn every_size_is_reached_and_left_again(shape in shape(), to in (0.0..=1.0_f64, 0.0..=1.0_f64)) {
        let at = |low: u64, high: u64, share: f64| low + ((high - low) as f64 * share) as u64;
        let (slot, min, max) = (shape.slot.get(), shape.min, shape.max);
        let size = Resources::new(
            MilliCpu::new(u32::try_from(at(cpu(min), cpu(max), to.0)).unwrap()),
            Bytes::new(at(mem(min), mem(max), to.1).div_ceil(slot) * slot),
        );
        let mut world = World::new(&shape, Load { cpus: 0.0, memory: 0 });
        world.steady(120);
        world.vm.hold = Some((size, world.now + Duration::from_secs(600)));
        world.steady(120);
        prop_assert_eq!(world.asked(), size, "{:?} {:?}", world.resized, world.state.view(world.now));
        if matches!(shape.takes, Takes::All | Takes::Late(_)) {
            prop_assert_eq!(world.has(), size);
        }
        if matches!(shape.takes, Takes::Keeps(_)) {
            prop_assert_eq!(world.state.stuck(world.now), None, "a remainder below one step");
        }
        world.vm.hold = None;
        world.steady(600);
        prop_assert_eq!(world.asked(), shape.min, "{:?}", world.resized);
    }

    /// Load takes a VM to its upper bound, and its end takes it back, even if the guest took only a part.
    #[test]
    fn a_vm_grown_by_load_shrinks_again(shape in shape()) {
        let mut world = World::new(&shape, load_of(&shape, 1.2, 0.95));
        world.steady(1200);
        prop_assert_eq!(world.asked(), shape.max, "{:?}", world.resized);
        world.load = Load { cpus: 0.0, memory: 0 };
        world.steady(1200);
        prop_assert_eq!(world.asked(), shape.min, "{:?}", world.resized);
    }
}

proptest! {
    #![proptest_config(config(12))]

    /// Noise turns a resource no more often than the law of `caution.rs` allows: eight times in an hour at most, in the long run once in 16 minutes.
    #[test]
    fn noise_does_not_make_a_vm_swing(
        shape in shape(), low in 0.0..1.0_f64, wide in 0.0..0.5_f64, memory in (0.0..0.9_f64, 0.0..0.9_f64),
        draws in prop::collection::vec((0.0..1.0_f64, 0.0..1.0_f64), 997),
    ) {
        let mut world = World::new(&shape, load_of(&shape, low, memory.0));
        let (mut draws, full) = (draws.iter().cycle(), shape.clone());
        let mut noise = |load: &mut Load| {
            let (one, two) = draws.next().copied().unwrap_or_default();
            let low_memory = memory.0.min(memory.1);
            // Never so low that it is a pause.
            *load = load_of(&full, low * (1.0 + one * wide), low_memory + two * (memory.0.max(memory.1) - low_memory));
        };
        world.run(1800, &mut noise);
        let late = world.now;
        world.run(3600, &mut noise);
        for of in [cpu, mem] {
            let (early, later) = (world.turns(Duration::ZERO, of).1, world.turns(late, of).1);
            prop_assert!(early <= 10 && later <= 8, "{early}, {later} of them later: {:?}", world.resized);
        }
    }
}
