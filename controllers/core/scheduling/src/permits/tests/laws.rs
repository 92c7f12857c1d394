//! Laws that hold for whatever happens.

use proptest::prelude::*;

use super::*;
use neonvm_types::version::PluginProtoVersion;

fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..20_000, any::<u64>(), Just(0), Just(u64::MAX)]
}

fn pair() -> impl Strategy<Value = Pair<u64>> {
    (amount(), amount()).prop_map(|(cpu, mem)| Pair::new(cpu, mem))
}

fn resources() -> impl Strategy<Value = Resources> {
    (any::<u32>(), amount()).prop_map(|(cpu, mem)| Resources::new(MilliCpu::new(cpu), Bytes::new(mem)))
}

fn some_name() -> impl Strategy<Value = String> {
    (0_u8..4).prop_map(|n| format!("x{n}"))
}

fn some_vm() -> BoxedStrategy<VmSeen> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let sizes = (
        proptest::option::of(resources()),
        proptest::option::of(amount()),
        pair(),
        proptest::option::of(resources()),
    );
    let role = proptest::option::of((any::<bool>(), some_name()));
    (flags, sizes, role)
        .prop_map(|((scaled, migratable, always), (max, slot, overcommit, approved), role)| VmSeen {
            name: "v".into(),
            scaled,
            max,
            slot_size: slot.map(Bytes::new),
            overcommit,
            migratable,
            always_migrate: always,
            migration: role.map(|(source, uid)| {
                (if source { MigrationRole::Source } else { MigrationRole::Target }, uid)
            }),
            unit: approved,
            requested: approved,
            approved,
            ..VmSeen::default()
        })
        .boxed()
}

fn some_pod() -> BoxedStrategy<PodSeen> {
    let id = (some_name(), some_name(), proptest::option::of(some_name()));
    let beside = (prop_oneof![Just(Pair::default()), pair()], prop_oneof![Just(Pair::default()), pair()]);
    (id, any::<bool>(), (pair(), beside), proptest::option::of(some_vm()), any::<i64>())
        .prop_map(|((pod, uid, node), ended, (usage, (requests, overhead)), vm, created)| PodSeen {
            requests: if vm.is_some() { requests } else { Pair::default() },
            overhead: if vm.is_some() { overhead } else { Pair::default() },
            pod: NamespacedName::new(if pod == "x3" { "ignored" } else { "d" }, pod),
            uid,
            created,
            waits: node.is_none(),
            node,
            ended,
            usage,
            vm,
            ..PodSeen::default()
        })
        .boxed()
}

#[derive(Clone, Debug)]
enum Do {
    Step(Event),
    Ask(String, Request),
    Reserve(PodSeen, String),
    Unreserve(PodSeen),
    Act(bool),
}

fn some_event() -> BoxedStrategy<Event> {
    prop_oneof![
        4 => some_pod().prop_map(seen),
        2 => (some_name(), pair(), any::<bool>()).prop_map(|(name, total, closed)| {
            let closed = closed.then(|| "is cordoned".to_owned());
            Event::Node(Box::new(NodeSeen { name, total, closed, ..NodeSeen::default() }))
        }),
        1 => some_name().prop_map(Event::NodeGone),
        1 => (some_name(), some_name()).prop_map(|(pod, uid)| Event::PodGone { pod: name(&pod), uid }),
        1 => (some_name(), some_name(), any::<(bool, bool, bool, bool)>()).prop_map(|(pod, uid, (ours, pending, placed, ended))| {
            let (migration, vm) = (name(&format!("schedplugin-{pod}")), "v".to_owned());
            Event::Migration(MigrationSeen { migration, uid, vm, ours, pending, placed, ended, deleting: false })
        }),
        1 => some_name().prop_map(|uid| Event::MigrationGone { uid }),
        1 => prop_oneof![
            Just(Event::Listed), Just(Event::MigrationsListed), Just(Event::TakenOver), Just(Event::Tick)
        ],
    ]
    .boxed()
}

fn something() -> BoxedStrategy<Do> {
    let request = (1_u32..9, resources(), resources(), proptest::option::of(resources()), any::<f32>());
    let request = request.prop_map(|(version, unit, resources, last_permit, load)| Request {
        version: PluginProtoVersion(version),
        unit,
        resources,
        last_permit,
        load: Some(load),
    });
    prop_oneof![
        4 => some_event().prop_map(Do::Step),
        3 => (some_name(), request).prop_map(|(pod, request)| Do::Ask(pod, request)),
        1 => (some_pod(), some_name()).prop_map(|(pod, node)| Do::Reserve(pod, node)),
        1 => some_pod().prop_map(Do::Unreserve),
        1 => any::<bool>().prop_map(Do::Act),
    ]
    .boxed()
}

fn carry_out(state: &mut State, now: Duration, what: &Do) {
    match what {
        Do::Step(event) => drop(state.step(now, event.clone())),
        Do::Ask(pod, request) => {
            if let Ok(reply) = state.request(now, &name(pod), request) {
                assert!(!reply.permit.any_greater(request.resources), "never more than was asked for");
            }
        }
        Do::Reserve(pod, node) => drop(state.reserve(now, pod.clone(), node)),
        Do::Unreserve(pod) => state.unreserve(&pod.pod, &pod.uid),
        Do::Act(ok) => {
            for action in state.take_actions(now, 4) {
                state.done(now, &action, *ok);
            }
        }
    }
}

fn restless() -> Settings {
    let ignored_namespaces = ["ignored".to_owned()].into();
    Settings { do_migration: true, migrations_per_node: 2, ignored_namespaces, ..Settings::default() }
}

proptest! {
    /// Totality and §7.9 (7): whatever comes, nothing panics, and the sums of each node are those of its pods. Nothing
    /// grows without a limit (S13), and the dump is always there.
    #[test]
    fn sums_are_those_of_the_pods_whatever_comes(all in proptest::collection::vec((0_u64..300, something()), 1..60)) {
        let mut state = State::new(restless());
        for (now, what) in &all {
            carry_out(&mut state, at(*now), what);
            audit(&state);
        }
        let pods = state.pods.iter().count();
        prop_assert_eq!(pods, state.pod_index.len());
        prop_assert!(pods <= 8 && state.due.len() <= pods && state.pending.len() <= pods);
        prop_assert!(state.node_index.len() <= 4 && state.migrations.len() <= 4);
        let text = serde_json::to_string(&state.inspect()).unwrap();
        serde_json::from_str::<neonvm_types::scheduler_inspect::Inspect>(&text).unwrap();
    }

    /// S11 and determinism: the same observation twice changes nothing the second time; the same steps give the same state.
    #[test]
    fn the_same_observation_twice_changes_nothing(
        all in proptest::collection::vec((0_u64..300, something()), 1..40), last in some_event(),
    ) {
        let mut state = State::new(restless());
        let mut again = State::new(restless());
        for (now, what) in &all {
            carry_out(&mut state, at(*now), what);
            carry_out(&mut again, at(*now), what);
        }
        prop_assert_eq!(&state, &again);
        if matches!(last, Event::Tick) {
            return Ok(());
        }
        state.step(at(400), last.clone());
        state.take_actions(at(400), 100);
        let before = state.clone();
        state.step(at(400), last);
        prop_assert!(state.take_actions(at(400), 100).is_empty());
        prop_assert_eq!(before, state);
    }

    /// §7.9 (8): grants of whole requests are whole units, as many for CPU as for memory; less is always granted.
    #[test]
    fn grants_are_whole_units_and_less_is_always_granted(
        total in (1_u64..40, 1_u64..40), filler in (0_u64..40, 0_u64..40), odd in 0_u64..4000,
        asks in proptest::collection::vec(1_u64..30, 1..20),
    ) {
        let mut state = state(Pair::new(total.0 * 1000 + odd, total.1 * 4 * GI + odd));
        state.step(at(0), seen(plain("filler", "n", Pair::new(filler.0 * 1000, filler.1 * 4 * GI))));
        state.step(at(0), seen(vm("p", "n", 1, 30)));
        let mut last = None;
        for asked in asks {
            let permit = ask(&mut state, "p", asked, last).unwrap().permit;
            let units = permit.exact_quotient(res(1)).map(u64::from);
            prop_assert!(units.is_some(), "{permit:?}");
            if last.is_some_and(|last| asked <= last) {
                prop_assert_eq!(units, Some(asked));
            }
            last = units;
        }
    }
}

proptest! {
    /// S1 with overcommit: what is permitted, divided by the factors, fits; and factors below one take more.
    #[test]
    fn overcommitted_permits_fit(
        total in 1_u64..40, factors in proptest::collection::vec((100_u64..4000, 100_u64..4000), 1..6),
        asks in proptest::collection::vec((0_usize..6, 1_u64..30), 1..60),
    ) {
        let mut state = state(cu(total));
        let mut held = Vec::new();
        for (index, (cpu, mem)) in factors.iter().enumerate() {
            let mut new = PodSeen { node: None, waits: true, ..vm(&format!("p{index}"), "", 1, 30) };
            new.vm.as_mut().unwrap().overcommit = Pair::new(*cpu, *mem);
            if state.reserve(at(0), new.clone(), "n").is_ok() {
                state.step(at(0), seen(PodSeen { node: Some("n".into()), waits: false, ..new }));
                held.push((index, 1));
            }
        }
        for (which, asked) in asks {
            let count = held.len().max(1);
            let Some((index, last)) = held.get_mut(which % count) else { continue };
            let reply = ask(&mut state, &format!("p{index}"), asked, Some(*last)).unwrap();
            *last = u64::from(reply.permit.exact_quotient(res(1)).unwrap());
            let share = |of: fn(&(u64, u64)) -> u64, unit: f64| -> f64 {
                held.iter().map(|(index, units)| *units as f64 * unit * 1000.0 / of(&factors[*index]) as f64).sum()
            };
            prop_assert!(share(|factor| factor.0, 1.0) <= total as f64 + 1e-6);
            prop_assert!(share(|factor| factor.1, 1.0) <= total as f64 + 1e-6);
            audit(&state);
        }
    }
}
