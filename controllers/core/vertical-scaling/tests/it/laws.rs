//! Laws that hold for every sequence of events.

use std::time::Duration;

use neonvm_api::ScalingConfig;
use neonvm_core_vertical_scaling::agent::{
    Event, FailureRate, LfcMetrics, MetricsSource, PatchError, PluginAnswer, Settings, State, SystemMetrics,
    Verdict, Vm,
};
use neonvm_types::{
    Bytes, MilliCpu, Resources, Revision, RevisionFlags, RevisionWithTime, monitor_protocol::Wants,
    version::MonitorProtoVersion,
};
use proptest::{prelude::*, test_runner::RngSeed};

use crate::{
    dsl::{self, cu, load, settings},
    world::{Treat, World},
};

/// The same cases in every run; `PROPTEST_RNG_SEED` and `PROPTEST_CASES` explore others.
pub fn config(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    let (cases, rng_seed) = match default.rng_seed {
        RngSeed::Random => (cases, RngSeed::Fixed(5)),
        chosen => (default.cases, chosen),
    };
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..default }
}

/// One thing that the world does.
#[derive(Clone, Debug)]
enum Op {
    Pass(u64),
    Scheduler(Treat),
    Reply(u32, u32),
    Api(Treat),
    Monitor(Treat),
    Machine(bool),
    Look,
    See,
    SeeOld,
    Scrape(f64),
    ScrapeFails,
    Connect(bool),
    Lose,
    MoreMemory,
    Wants(u32, u16),
    Needs(u16),
    Bounds(u16, u16),
    Capacity(u16),
    Outside(u16),
    Stale(u64),
    Hold(u16, u64, bool),
    Pause(bool),
}

fn treat() -> impl Strategy<Value = Treat> {
    prop_oneof![6 => Just(Treat::Well), 1 => Just(Treat::Silently), 1 => Just(Treat::Fail), 1 => Just(Treat::Deny)]
}

fn op(outside: bool) -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (1u64..8000).prop_map(Op::Pass),
        6 => treat().prop_map(Op::Scheduler),
        1 => (0u32..24, 0u32..24).prop_map(|(cpu, mem)| Op::Reply(cpu, mem)),
        6 => treat().prop_map(Op::Api),
        6 => treat().prop_map(Op::Monitor),
        3 => any::<bool>().prop_map(Op::Machine),
        3 => Just(Op::Look),
        4 => Just(Op::See),
        1 => Just(Op::SeeOld),
        4 => (0.0..1.5).prop_map(Op::Scrape),
        1 => Just(Op::ScrapeFails),
        2 => any::<bool>().prop_map(Op::Connect),
        1 => Just(Op::Lose),
        1 => Just(Op::MoreMemory),
        1 => (0u32..9000, 0u16..20).prop_map(|(cpu, mem)| Op::Wants(cpu, mem)),
        1 => (0u16..6).prop_map(Op::Needs),
        1 => (1u16..8, 1u16..8).prop_map(|(min, max)| Op::Bounds(min, max)),
        1 => (1u16..12).prop_map(Op::Capacity),
        1 => (1u16..9).prop_map(move |units| if outside { Op::Outside(units) } else { Op::See }),
        1 => any::<u64>().prop_map(Op::Stale),
        1 => (0u16..12, 0u64..20, any::<bool>()).prop_map(|(size, time, forced)| Op::Hold(size, time, forced)),
        1 => any::<bool>().prop_map(Op::Pause),
    ]
}

fn play(world: &mut World, op: &Op) {
    match *op {
        Op::Pass(ms) => {
            world.now += Duration::from_millis(ms);
            world.timer();
        }
        Op::Scheduler(treat) => world.scheduler(treat),
        // Half compute units, and each field for itself.
        Op::Reply(cpu, mem) => {
            world.scheduler_replies(Resources::new(MilliCpu::new(cpu * 125), Bytes::mib(mem * 512)));
        }
        Op::Api(treat) => world.api(treat),
        Op::Monitor(treat) => world.monitor(treat),
        Op::Machine(wholly) => world.machine(wholly),
        Op::Look => world.look(),
        Op::See => world.see(),
        Op::SeeOld => {
            let mut old = world.vm.clone();
            old.generation = Some(0);
            old.info.set_using(cu(7)).unwrap();
            if world.vm.generation > Some(1) {
                world.step(Event::Vm(old));
            }
        }
        Op::Scrape(load) => {
            world.load = load;
            world.scrape();
        }
        Op::ScrapeFails => {
            world.step(Event::MetricsFailed { source: MetricsSource::System, reason: "404".into() });
        }
        Op::Connect(new) => {
            world.connect(if new { MonitorProtoVersion::V2_0 } else { MonitorProtoVersion::V1_0 });
        }
        Op::Lose => world.lose(),
        Op::MoreMemory => world.step(Event::UpscaleRequested { wants: None }),
        Op::Wants(cpu, mem) => {
            let wants = Wants {
                cpu: Some(MilliCpu::new(cpu)),
                mem: Some(Bytes::gib(u32::from(mem))),
                reason: "law".into(),
            };
            world.step(Event::UpscaleRequested { wants: Some(wants) });
        }
        Op::Needs(units) => world.needs = Resources { mem: cu(units).mem, ..Resources::default() },
        Op::Bounds(min, max) => world.bounds(min, max),
        Op::Capacity(units) => world.capacity = cu(units),
        Op::Outside(units) => world.outside(units),
        Op::Stale(id) => stale(world, id),
        Op::Hold(size, seconds, forced) => {
            world.hold_until = world.now + Duration::from_secs(seconds);
            world.vm.hold = Some((cu(size), world.hold_until));
            (world.vm.forced, world.forced) = (forced, forced);
            world.see();
            (world.vm.hold, world.vm.forced) = (None, false);
        }
        Op::Pause(paused) if paused != world.vm.paused => world.pause(paused),
        Op::Pause(_) => {}
    }
}

/// Replies with a number that belongs to no request change nothing but a counter.
fn stale(world: &mut World, id: u64) {
    let id = id | 1 << 63;
    world.timer();
    let before = world.state.view(world.now);
    for event in [
        Event::PluginReply { id, result: Ok(cu(3).into()) },
        Event::PatchReply { id, result: Ok(Some(9)) },
        Event::MonitorReply { id, result: Ok(Verdict::Confirmed) },
    ] {
        world.step(event);
    }
    let after = world.state.view(world.now);
    assert_eq!(after.stale_replies, before.stale_replies + 3);
    let counted = neonvm_core_vertical_scaling::agent::View { stale_replies: before.stale_replies, ..after };
    assert_eq!(counted, before);
}

proptest! {
    #![proptest_config(config(40))]

    /// After any faults, once all components work, the VM has the size that its load requires, and all components have
    /// been notified of it; an agent that is restarted reaches the same state.
    #[test]
    fn calm_after_faults_ends_at_the_goal(
        using in 1u16..9, ops in prop::collection::vec(op(true), 0..60),
        load in 0.0..1.4, needs in 0u16..5, restart: bool, new: bool,
    ) {
        let mut world = World::new(using, 12);
        for op in &ops {
            play(&mut world, op);
        }
        world.capacity = cu(12);
        world.pause(false);
        world.bounds(1, 8);
        world.needs = Resources { mem: cu(needs).mem, ..Resources::default() };
        world.connect(if new { MonitorProtoVersion::V2_0 } else { MonitorProtoVersion::V1_0 });
        world.load = load;
        if restart {
            world.restart();
        }
        world.calm(300);
        let wants = ((load / 0.5 / 0.25_f64).round() as u16).clamp(1, 8);
        let view = world.state.view(world.now);
        // What the guest does not give back stays, but nothing makes the VM grow to it.
        let expected = world.asked();
        prop_assert!(!expected.any_less(cu(wants)) && !expected.any_greater(cu(wants.max(needs))), "{:?}", view);
        prop_assert_eq!((world.has, world.vm.observed), (expected, Some(expected)));
        prop_assert_eq!(world.reserved, expected, "the scheduler knows");
        prop_assert_eq!(world.knows, expected, "the monitor knows");
        prop_assert_eq!(view.stuck, None);
    }
}

proptest! {
    #![proptest_config(config(3000))]

    /// §7.9, 1 to 6 and 9; deterministic, quiescent, bounded; stale replies. The checks are in `World::step`.
    #[test]
    fn invariants_hold_under_all_faults(
        using in 1u16..9, capacity in 1u16..12, ops in prop::collection::vec(op(false), 1..80),
    ) {
        let mut world = World::new(using, capacity);
        world.timer();
        for op in &ops {
            play(&mut world, op);
        }
    }

    /// A step in the past is a step now.
    #[test]
    fn time_never_goes_back(ops in prop::collection::vec(op(false), 0..30), back in 0u64..100_000) {
        let mut world = World::new(2, 8);
        for op in &ops {
            play(&mut world, op);
        }
        world.timer();
        let earlier = world.now.saturating_sub(Duration::from_millis(back));
        let (mut a, mut b) = (world.state.clone(), world.state.clone());
        let metrics = Event::SystemMetrics(load(1.0));
        prop_assert_eq!(a.step(world.now, metrics.clone()), b.step(earlier, metrics));
        prop_assert_eq!(a, b);
    }

    /// The same observation again causes no action and no note.
    #[test]
    fn the_same_again_does_nothing(ops in prop::collection::vec(op(true), 0..40), load in 0.0..1.5) {
        let mut world = World::new(2, 8);
        for op in &ops {
            play(&mut world, op);
        }
        world.load = load;
        world.scrape();
        for event in [world.seen(), Event::SystemMetrics(dsl::load(load)), Event::Timer] {
            world.step(event.clone());
            let outcome = world.state.step(world.now, event);
            prop_assert_eq!((outcome.actions.len(), outcome.notes.len()), (0, 0));
        }
    }
}

// Total: arbitrary values everywhere.

fn amount() -> impl Strategy<Value = Resources> {
    let cpu = prop_oneof![Just(0), Just(u32::MAX), any::<u32>(), (0u32..64).prop_map(|n| n * 250)];
    let gib = (0u64..64).prop_map(|n| n << 30);
    let mem = prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), gib];
    (cpu, mem).prop_map(|(cpu, mem)| Resources::new(MilliCpu::new(cpu), Bytes::new(mem)))
}

fn float() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>(), 0.0..100.0, Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), Just(f64::MAX)]
}

fn time() -> impl Strategy<Value = Duration> {
    let wide = prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 0u64..20_000];
    wide.prop_map(Duration::from_millis)
}

prop_compose! {
    fn wild_vm()(
        min in amount(), max in amount(), slots in any::<[u16; 3]>(), using in amount(), slot in any::<u64>(),
        gib_slot: bool, observed in prop::option::of(amount()), hold in prop::option::of((amount(), time())),
        generation in prop::option::of(-2i64..4), revision in prop::option::of(-2i64..9), config in wild_config(),
        paused: bool, forced: bool,
    ) -> Vm {
        let mut vm = dsl::vm(cu(1), cu(4), cu(1));
        (vm.info.cpu.min, vm.info.cpu.max, vm.info.cpu.r#use) = (min.vcpus, max.vcpus, using.vcpus);
        [vm.info.mem.min, vm.info.mem.max, vm.info.mem.r#use] = slots;
        vm.info.mem.slot_size = if gib_slot { Bytes::gib(1) } else { Bytes::new(slot) };
        vm.info.config.scaling_config = Some(config);
        vm.info.current_revision = revision
            .map(|value| RevisionWithTime { revision: Revision { value, flags: RevisionFlags(3) }, updated_at: None });
        Vm { observed, hold, forced, generation, paused, ..vm }
    }
}

prop_compose! {
    fn wild_config()(f in any::<[Option<f64>; 6]>(), flags: (Option<bool>, Option<bool>), n: [Option<u32>; 2]) -> ScalingConfig {
        ScalingConfig {
            load_average_fraction_target: f[0],
            memory_usage_fraction_target: f[1],
            memory_total_fraction_target: f[2],
            enable_lfc_metrics: flags.0,
            lfc_use_largest_window: flags.1,
            lfc_to_memory_ratio: f[3],
            lfc_window_size_minutes: n[0].map(|n| n % 70),
            lfc_min_wait_before_downscale_minutes: n[1].map(|n| n % 70),
            cpu_stable_zone_ratio: f[4],
            cpu_mixed_zone_ratio: f[5],
        }
    }
}

prop_compose! {
    fn wild_settings()(compute_unit in amount(), normal: bool, defaults in wild_config(), t in prop::array::uniform18(time())) -> Settings {
        let rate = FailureRate { interval: t[15], threshold: 3 };
        Settings {
            compute_unit: if normal { cu(1) } else { compute_unit },
            defaults,
            neonvm_retry_wait: t[0],
            plugin_request_tick: t[1],
            plugin_retry_wait: t[2],
            plugin_denied_retry_wait: t[3],
            monitor_denied_downscale_cooldown: t[4],
            monitor_requested_upscale_valid_period: t[5],
            monitor_retry_wait: t[6],
            plugin_reply_deadline: t[7],
            neonvm_reply_deadline: t[8],
            monitor_reply_deadline: t[9],
            monitor_silence: t[10],
            monitor_startup_grace: t[11],
            resize_deadline: t[12],
            monitor_unhealthy: t[16],
            migration_deadline: t[17],
            metrics_stale_after: t[13],
            metrics_lost_after: t[14],
            plugin_failures: rate,
            monitor_failures: rate,
            neonvm_failures: rate,
            rereport_threshold: 0.25,
        }
    }
}

prop_compose! {
    fn wild_system()(needed in prop::array::uniform4(float()), more in prop::array::uniform5(prop::option::of(float()))) -> SystemMetrics {
        SystemMetrics {
            load1: needed[0],
            load5: needed[1],
            memory_usage_bytes: needed[2],
            memory_cached_bytes: needed[3],
            cpu_pressure: more[0],
            memory_pressure: more[1],
            steal_seconds: more[2],
            user: more[3],
            busy_seconds: more[4],
        }
    }
}

fn wild_event() -> BoxedStrategy<Event> {
    let id = 0u64..12;
    let patch = prop_oneof![
        any::<Option<i64>>().prop_map(Ok),
        Just(Err(PatchError::Conflict)),
        any::<String>().prop_map(|e| Err(PatchError::Failed(e))),
    ];
    let verdict = prop_oneof![
        Just(Ok(Verdict::Confirmed)),
        Just(Ok(Verdict::Agreed { status: "ok".into() })),
        any::<String>().prop_map(|status| Ok(Verdict::Denied { status })),
        any::<String>().prop_map(Err),
    ];
    let wants =
        prop::option::of((amount(), any::<[bool; 2]>(), any::<String>()).prop_map(|(size, has, reason)| {
            Wants { cpu: has[0].then_some(size.vcpus), mem: has[1].then_some(size.mem), reason }
        }));
    let lfc = prop::collection::vec(float(), 0..80);
    prop_oneof![
        3 => wild_vm().prop_map(Event::Vm).boxed(),
        3 => wild_system().prop_map(Event::SystemMetrics).boxed(),
        1 => lfc.prop_map(|windows| Event::LfcMetrics(LfcMetrics { windows, ..LfcMetrics::default() })),
        1 => any::<String>().prop_map(|reason| Event::MetricsFailed { source: MetricsSource::Lfc, reason }),
        2 => any::<u32>().prop_map(|v| Event::MonitorConnected { version: MonitorProtoVersion(v % 4) }),
        1 => any::<String>().prop_map(|reason| Event::MonitorLost { reason }),
        1 => Just(Event::MonitorAlive),
        2 => wants.prop_map(|wants| Event::UpscaleRequested { wants }),
        3 => (id.clone(), prop_oneof![(amount(), any::<bool>()).prop_map(|(permit, migrate)| Ok(PluginAnswer { permit, migrate })), any::<String>().prop_map(Err)])
            .prop_map(|(id, result)| Event::PluginReply { id, result }),
        3 => (id.clone(), patch).prop_map(|(id, result)| Event::PatchReply { id, result }),
        3 => (id, verdict).prop_map(|(id, result)| Event::MonitorReply { id, result }),
        2 => Just(Event::Timer),
    ]
    .boxed()
}

proptest! {
    #![proptest_config(config(1000))]

    /// No input of any kind makes a step fail, spin, or remember without limit.
    #[test]
    fn every_event_is_survived(
        vm in wild_vm().boxed(), settings in wild_settings().boxed(), events in prop::collection::vec((time(), wild_event()), 0..60),
    ) {
        let mut state = State::new(vm, settings, Duration::ZERO);
        for (now, event) in events {
            let outcome = state.step(now, event);
            let view = state.view(now);
            prop_assert!(view.decisions.len() <= State::MOST_NOTES);
            prop_assert!(serde_json::to_string(&view.to_inspect(1_700_000_000_000)).is_ok());
            prop_assert!(outcome.notes.iter().all(|note| note.to_string().len() < 2000));
            prop_assert!(serde_json::to_string(&outcome).is_ok());
        }
        prop_assert!(serde_json::to_string(&state).unwrap().len() < 128 << 10);
    }
}

/// An idle VM causes no notes and no growth of the state, however long.
#[test]
fn an_idle_vm_is_quiet() {
    let mut world = World::new(1, 8);
    world.settings = settings();
    world.connect(MonitorProtoVersion::V2_0);
    world.calm(60);
    let size = |world: &World| serde_json::to_string(&world.state).unwrap().len();
    let (before, notes) = (size(&world), world.state.view(world.now).decisions.len());
    world.calm(3600);
    assert_eq!(world.state.view(world.now).decisions.len(), notes);
    assert!(size(&world) < before + 64, "{before} -> {}", size(&world));
    assert!(size(&world) < 8 << 10, "{}", size(&world));
}
