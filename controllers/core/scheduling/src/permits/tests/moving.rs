//! Which VMs leave, and for which nodes.

use super::*;

fn movable(pod: &str, on: &str, units: u64, created: i64) -> PodSeen {
    let mut pod = PodSeen { created, ..vm(pod, on, units, 8) };
    pod.vm.as_mut().unwrap().migratable = true;
    pod.vm.as_mut().unwrap().max = Some(res(units));
    pod
}

/// Node `n` of ten units; `m` of ten as well.
fn two_nodes(settings: Settings) -> State {
    let mut state = State::new(settings);
    state.step(at(0), node("n", cu(10)));
    state.step(at(0), node("m", cu(10)));
    state.step(at(0), Event::Listed);
    state
}

fn moving() -> Settings {
    Settings { do_migration: true, ..Settings::default() }
}

fn with_load(state: &mut State, pod: &str, units: u64, load: f32) -> Reply {
    let request = Request { load: Some(load), ..Request::new(res(1), res(units), Some(res(units))) };
    state.request(at(1), &name(pod), &request).unwrap()
}

#[test]
fn the_idlest_goes_first_then_the_oldest_and_node_and_reason_are_shown() {
    let mut state = two_nodes(Settings::default());
    for (pod, created) in [("young", 3), ("old", 1), ("busy", 0), ("idle", 9)] {
        state.step(at(0), seen(movable(pod, "n", 2, created)));
    }
    state.step(at(0), seen(plain("filler", "n", cu(2))));
    let first = |state: &State| state.inspect_node("n").unwrap().next;
    assert_eq!(first(&state)[0].pod, name("busy"), "no load is known: the oldest");
    with_load(&mut state, "busy", 2, 1.9);
    assert_eq!(first(&state)[0].pod, name("busy"), "those without a report come last");
    with_load(&mut state, "idle", 2, 0.1);
    let view = state.inspect_node("n").unwrap();
    assert!(view.too_much_pressure);
    assert_eq!(view.next.len(), 1, "one is enough");
    assert_eq!((view.next[0].pod.clone(), view.next[0].target.as_deref()), (name("idle"), Some("m")));
    assert_eq!(
        view.next[0].why,
        "n is over its CPU watermark by 1.00, over its memory watermark by 4Gi; load 0.1, the lowest of those that may \
         move; m stays below its watermark with it"
    );
    // Only planned: nothing is done while migrations are off.
    assert_eq!(
        state.take_actions(at(1), 9).into_iter().filter(|a| !matches!(a, Action::Annotate(_))).count(),
        0
    );
    // No room elsewhere.
    state.step(at(2), seen(plain("other", "m", cu(8))));
    let view = state.inspect_node("n").unwrap();
    assert!(view.next.iter().all(|planned| planned.target.is_none()));
    assert!(
        view.next[0].why.ends_with("none of 1 other nodes has room below its watermark"),
        "{}",
        view.next[0].why
    );
    assert_eq!(view.note.as_deref(), Some("above its watermark also when all who can go have gone"));
}

/// Services of nodes preempt nothing: a VM makes room for them.
#[test]
fn a_vm_leaves_for_a_pod_that_waits_for_this_node() {
    let mut state = two_nodes(Settings::default());
    state.step(at(0), seen(movable("p", "n", 9, 0)));
    with_load(&mut state, "p", 9, 0.1);
    assert!(state.inspect_node("n").unwrap().next.is_empty());
    let service =
        PodSeen { node: None, expects: Some("n".into()), waits: true, ..plain("agent", "n", cu(2)) };
    state.step(at(2), seen(service.clone()));
    let view = state.inspect_node("n").unwrap();
    assert_eq!(view.next.first().and_then(|next| next.target.as_deref()), Some("m"));
    // When it has its node it counts once.
    let reserved = view.cpu.reserved;
    state.step(
        at(3),
        seen(PodSeen { node: Some("n".into()), expects: None, waits: false, ..service.clone() }),
    );
    assert_eq!(state.inspect_node("n").unwrap().cpu.reserved, reserved);
    state.step(at(4), Event::PodGone { pod: service.pod, uid: service.uid });
    assert!(state.inspect_node("n").unwrap().next.is_empty());
}

#[test]
fn closed_nodes_and_those_a_pod_may_not_go_to_are_no_targets() {
    let mut state = two_nodes(Settings::default());
    state.step(at(0), seen(movable("p", "n", 9, 0)));
    state.step(at(0), seen(movable("q", "n", 1, 0)));
    let target =
        |state: &State| state.inspect_node("n").unwrap().next.first().and_then(|one| one.target.clone());
    assert_eq!(target(&state).as_deref(), Some("m"));
    let closed = Some("is cordoned".to_owned());
    let cordoned = NodeSeen { name: "m".into(), total: cu(10), closed, ..NodeSeen::default() };
    state.step(at(0), Event::Node(Box::new(cordoned)));
    assert_eq!(target(&state), None);
}

#[test]
fn a_vm_larger_than_the_watermark_is_not_moved_and_without_labels_no_vm_is() {
    let mut state = two_nodes(Settings::default());
    state.step(at(0), seen(movable("p", "n", 10, 0)));
    assert!(state.inspect_node("n").unwrap().next.is_empty());
    let mut state = two_nodes(Settings::default());
    state.step(at(0), seen(vm("p", "n", 10, 10)));
    let view = state.inspect_node("n").unwrap();
    assert!(view.too_much_pressure && view.next.is_empty());
    assert!(view.note.unwrap().contains("auto-migration-enabled"));
}

#[test]
fn buffers_and_those_that_leave_are_accounted_for() {
    let mut state = two_nodes(Settings::default());
    let mut unknown = movable("p", "n", 2, 0);
    unknown.vm.as_mut().unwrap().max = Some(res(10));
    state.step(at(0), seen(unknown));
    let view = state.inspect_node("n").unwrap();
    assert_eq!((view.cpu.reserved, view.cpu.buffer, view.too_much_pressure), (10_000, 8000, false));
    assert!(view.note.unwrap().contains("without a report yet"));

    let mut state = two_nodes(Settings::default());
    state.step(at(0), seen(movable("p", "n", 4, 0)));
    state.step(at(0), seen(movable("q", "n", 6, 0)));
    let mut leaving = movable("p", "n", 4, 0);
    leaving.vm.as_mut().unwrap().migration = Some((MigrationRole::Source, "m1".into()));
    state.step(at(1), seen(leaving));
    let view = state.inspect_node("n").unwrap();
    assert_eq!((view.cpu.pressure_accounted_for, view.cpu.migrating), (4000, 4000));
    assert_eq!((view.too_much_pressure, view.leaving), (false, vec![name("p")]));
    assert_eq!(view.note.as_deref(), Some("above its watermark; enough leaves already (1 VMs)"));
}

#[test]
fn one_at_a_time_leaves_and_gets_notified_and_does_not_grow() {
    let mut state = two_nodes(moving());
    state.step(at(0), Event::MigrationsListed);
    for pod in ["p", "q", "r"] {
        let mut machine = movable(pod, "n", 3, 0);
        machine.vm.as_mut().unwrap().max = Some(res(6));
        state.step(at(0), seen(machine));
        assert!(!with_load(&mut state, pod, 3, 1.0).migrate);
    }
    // Requests more than there is: capacity pressure, on top of the logical one.
    let request =
        |units, load| Request { load: Some(load), ..Request::new(res(1), res(units), Some(res(3))) };
    assert_eq!(state.request(at(5), &name("q"), &request(6, 2.0)).unwrap().permit, res(4));
    assert_eq!(sums(&state, "n").pressure.cpu, 2000);
    let reply = state.request(at(5), &name("p"), &request(4, 1.0)).unwrap();
    assert_eq!(reply, Reply { permit: res(3), migrate: true }, "it leaves, and does not grow before");
    let reply = state.request(at(9), &name("r"), &request(3, 0.0)).unwrap();
    assert!(!reply.migrate, "one at a time");
    let wanted: Vec<WantedMigration> = state
        .take_actions(at(9), 99)
        .into_iter()
        .filter_map(|action| if let Action::CreateMigration(wanted) = action { Some(wanted) } else { None })
        .collect();
    assert_eq!(wanted.len(), 1);
    assert_eq!((wanted[0].name(), wanted[0].target.as_str()), ("schedplugin-p".to_owned(), "m"));
    // The cluster shows it.
    let mut source = movable("p", "n", 3, 0);
    let its = source.vm.as_mut().unwrap();
    (its.max, its.migration) = (Some(res(6)), Some((MigrationRole::Source, "u".into())));
    let migration = |ended| MigrationSeen {
        migration: name("schedplugin-p"),
        uid: "u".into(),
        vm: "vm-p".into(),
        ours: true,
        pending: false,
        placed: true,
        ended,
        deleting: false,
    };
    state.step(at(9), Event::Migration(migration(false)));
    state.step(at(9), seen(source));
    let refusal = state.request(at(10), &name("p"), &request(4, 1.0)).unwrap_err();
    assert_eq!(refusal.status(), 400, "{refusal}");
    // S12: what has ended is deleted, this very one; and the VM rests for a while.
    state.step(at(11), Event::Migration(migration(true)));
    let actions = state.take_actions(at(11), 99);
    let expected = Action::DeleteMigration { migration: name("schedplugin-p"), uid: "u".into() };
    assert!(actions.contains(&expected), "{actions:?}");
    state.step(at(12), Event::Tick);
    let view = state.inspect_node("n").unwrap();
    assert!(!view.leaving.contains(&name("p")) && view.next.iter().all(|planned| planned.pod != name("p")));
}

/// A migration of a user whose target has no node: the VM counts as leaving, and grows as before.
#[test]
fn a_vm_grows_until_the_target_of_its_migration_has_a_node() {
    let mut state = two_nodes(moving());
    state.step(at(0), Event::MigrationsListed);
    let mut pod = movable("p", "n", 3, 0);
    let its = pod.vm.as_mut().unwrap();
    (its.max, its.migration) = (Some(res(6)), Some((MigrationRole::Source, "u".into())));
    let request =
        |units| Request { load: Some(1.0), ..Request::new(res(1), res(units), Some(res(units - 1))) };
    let migration = |placed| MigrationSeen { ours: false, migration: name("by-hand"), placed, ..queued("u") };
    state.step(at(1), Event::Migration(migration(false)));
    state.step(at(1), seen(pod));
    let reply = state.request(at(2), &name("p"), &request(4)).unwrap();
    assert_eq!((reply.permit, reply.migrate), (res(4), false));
    assert_eq!(state.inspect_node("n").unwrap().leaving, [name("p")]);
    state.step(at(3), Event::Migration(migration(true)));
    state.request(at(4), &name("p"), &request(5)).unwrap_err();
    // It is made again for a larger guest, and there is no room for that.
    state.step(at(5), Event::Migration(migration(false)));
    assert_eq!(state.request(at(6), &name("p"), &request(5)).unwrap().permit, res(5));
}

#[test]
fn a_migration_that_cannot_be_made_or_is_never_seen_is_forgotten() {
    let mut state = two_nodes(moving());
    for pod in ["p", "q"] {
        state.step(at(0), seen(movable(pod, "n", 5, 0)));
    }
    state.step(at(1), Event::Tick);
    let actions = state.take_actions(at(1), 9);
    assert_eq!(actions.len(), 1);
    assert_eq!(state.inspect_node("n").unwrap().leaving.len(), 1);
    state.done(at(1), &actions[0], false);
    assert_eq!(state.inspect_node("n").unwrap().leaving.len(), 0);
    // The other is tried, and its outcome is not reported.
    state.step(at(3), Event::Tick);
    let actions = state.take_actions(at(3), 9);
    state.done(at(3), &actions[0], true);
    assert_eq!(state.inspect_node("n").unwrap().leaving.len(), 1);
    state.step(at(63), Event::Tick);
    let leaving = state.inspect_node("n").unwrap().leaving;
    assert!(!leaving.contains(&name("q")), "{leaving:?}");
}

/// A migration of ours for pod `p`.
fn queued(uid: &str) -> MigrationSeen {
    MigrationSeen {
        migration: name("schedplugin-p"),
        uid: uid.into(),
        vm: "vm-p".into(),
        ours: true,
        pending: true,
        placed: false,
        ended: false,
        deleting: false,
    }
}

/// Node `n` is too full, and a migration of `p` was requested.
fn asked_to_leave() -> State {
    let mut state = two_nodes(moving());
    state.step(at(0), Event::MigrationsListed);
    state.step(at(0), seen(movable("p", "n", 5, 0)));
    state.step(at(0), seen(movable("q", "n", 5, 1)));
    state.step(at(1), Event::Tick);
    let actions = state.take_actions(at(1), 9);
    assert!(matches!(actions.as_slice(), [Action::CreateMigration(_)]), "{actions:?}");
    state.done(at(1), &actions[0], true);
    state
}

fn deletes(state: &mut State, now: u64) -> Vec<String> {
    let actions = state.take_actions(at(now), 99);
    let deleted = actions.into_iter().filter_map(|action| match action {
        Action::DeleteMigration { uid, .. } => Some(uid),
        _ => None,
    });
    deleted.collect()
}

#[test]
fn one_that_waits_for_its_turn_for_long_is_remembered() {
    let mut state = asked_to_leave();
    state.step(at(2), Event::Migration(queued("u")));
    for now in [63, 600, 6000] {
        state.step(at(now), Event::Tick);
        assert_eq!(state.inspect_node("n").unwrap().leaving, [name("p")], "after {now} s");
        assert!(!state.take_actions(at(now), 99).iter().any(|a| matches!(a, Action::CreateMigration(_))));
        audit(&state);
    }
    // It may grow meanwhile if there is room, or shrink.
    let request = Request { load: Some(1.0), ..Request::new(res(1), res(4), Some(res(5))) };
    let reply = state.request(at(6001), &name("p"), &request).unwrap();
    assert_eq!(reply, Reply { permit: res(4), migrate: false });
    let request = Request { load: Some(1.0), ..Request::new(res(1), res(5), Some(res(4))) };
    assert_eq!(state.request(at(6002), &name("p"), &request).unwrap().permit, res(5));
    // A scheduler that takes over reads it from the lists, in whichever order they come.
    for migrations_first in [true, false] {
        let mut state = state.clone();
        state.step(at(6003), Event::TakenOver);
        assert!(state.inspect_node("n").unwrap().leaving.is_empty());
        let migration = Event::Migration(queued("u"));
        let pod = seen(movable("p", "n", 5, 0));
        for event in if migrations_first { [migration, pod] } else { [pod, migration] } {
            state.step(at(6004), event);
        }
        assert_eq!(state.inspect_node("n").unwrap().leaving, [name("p")]);
        audit(&state);
    }
    // Over: it rests, then another may go.
    state.step(at(6005), Event::MigrationGone { uid: "u".into() });
    assert!(state.inspect_node("n").unwrap().leaving.is_empty());
    assert!(state.inspect_node("n").unwrap().next.iter().all(|planned| planned.pod != name("p")));
    assert!(deletes(&mut state, 6006).is_empty(), "there is nothing to withdraw");
}

#[test]
fn one_that_waits_for_a_vm_that_has_left_is_withdrawn() {
    let gone = Event::PodGone { pod: name("p"), uid: String::new() };
    let ended = seen(PodSeen { ended: true, ..movable("p", "n", 5, 0) });
    for left in [gone, ended] {
        let mut state = asked_to_leave();
        state.step(at(2), Event::Migration(queued("u")));
        assert!(deletes(&mut state, 3).is_empty());
        state.step(at(90), left.clone());
        assert_eq!(deletes(&mut state, 90), ["u"]);
        // Once, until that has failed; and not if it has begun meanwhile.
        state.step(at(91), Event::MigrationsListed);
        assert!(deletes(&mut state, 91).is_empty());
        let action = Action::DeleteMigration { migration: name("schedplugin-p"), uid: "u".into() };
        state.done(at(92), &action, false);
        assert_eq!(deletes(&mut state, 100), ["u"]);
        state.done(at(100), &action, false);
        state.step(at(101), Event::Migration(MigrationSeen { pending: false, ..queued("u") }));
        assert!(deletes(&mut state, 200).is_empty());
        assert_eq!(state.wake_at().filter(|due| *due < at(200)), None, "nothing is left to be tried");
    }
    // Others', those that run, and what was not listed yet are left alone.
    let others = MigrationSeen { ours: false, ..queued("u") };
    let runs = MigrationSeen { pending: false, ..queued("u") };
    for (migration, listed) in [(others, true), (runs, true), (queued("u"), false)] {
        let mut state = two_nodes(moving());
        if listed {
            state.step(at(0), Event::MigrationsListed);
        }
        state.step(at(1), Event::Migration(migration));
        assert!(deletes(&mut state, 2).is_empty());
        if !listed {
            state.step(at(3), Event::MigrationsListed);
            assert_eq!(deletes(&mut state, 3), ["u"]);
        }
    }
}

#[test]
fn who_is_to_be_moved_always_is_moved_once_its_load_is_known() {
    let mut state = two_nodes(moving());
    let mut restless = movable("p", "n", 1, 0);
    restless.vm.as_mut().unwrap().always_migrate = true;
    state.step(at(0), seen(restless));
    assert!(!with_load(&mut state, "p", 1, 0.1).migrate, "the first report");
    assert!(with_load(&mut state, "p", 1, 0.1).migrate);
}

#[test]
fn questions_change_nothing_and_are_answered_in_words() {
    use neonvm_types::scheduler_inspect::WhatIf;
    // Four CPUs and sixteen gibibytes; units of a quarter and one.
    let unit = Resources::new(MilliCpu::new(250), Bytes::gib(1));
    let units = |count: u16| unit.saturating_mul(count);
    let mut state = state(Pair::new(4000, 16 * GI));
    state.step(at(0), seen(plain("ordinary", "n", Pair::new(1100, 3 * GI))));
    let mut pod = vm("pg-main-x7k2p", "n", 0, 0);
    pod.usage = units(11).into();
    pod.vm.as_mut().unwrap().name = "pg-main".into();
    pod.vm.as_mut().unwrap().max = Some(units(12));
    state.step(at(0), seen(pod));
    let request = Request::new(unit, units(12), Some(units(11)));
    assert_eq!(state.request(at(1), &name("pg-main-x7k2p"), &request).unwrap().permit, units(11));
    let before = state.clone();
    let mut question =
        WhatIf { namespace: "d".into(), vm: "pg-main".into(), size: Some(units(12)), ..WhatIf::default() };
    let answer = state.what_if(&question).unwrap();
    assert_eq!(
        answer.why,
        "4.10 CPU (103%), 15Gi (94%) - refused: 0.10 CPU above capacity; 11 CU is the most n can give"
    );
    assert_eq!(
        (answer.permit, answer.most_units, answer.sum),
        (Some(units(11)), Some(11), Some((4100, 15 * GI)))
    );
    question.size = Some(units(8));
    assert!(state.what_if(&question).unwrap().why.ends_with("granted"));
    let all = WhatIf { watermark: Some(0.5), ..WhatIf::default() };
    assert_eq!(state.what_if(&all).unwrap().why, "with a watermark of 0.5 VMs would have to leave: n");
    for (wrong, text) in [
        (WhatIf { watermark: Some(2.0), ..WhatIf::default() }, "watermark"),
        (WhatIf { vm: "x".into(), size: Some(unit), ..WhatIf::default() }, "no VM /x"),
        (WhatIf::default(), "neither"),
    ] {
        assert!(state.what_if(&wrong).unwrap_err().contains(text));
    }
    assert_eq!(before, state);
}

#[test]
fn where_a_vm_would_go_is_answered_for_each_node() {
    use neonvm_types::scheduler_inspect::WhatIf;
    let mut state = two_nodes(Settings::default());
    for (name, total) in [("o", cu(10)), ("small", cu(1))] {
        state.step(at(0), node(name, total));
    }
    state.step(at(0), seen(movable("p", "n", 2, 0)));
    state.step(at(0), seen(plain("filler", "m", cu(5))));
    let before = state.clone();
    let asked = |change: fn(&mut WhatIf)| {
        let mut question =
            WhatIf { namespace: "d".into(), vm: "vm-p".into(), leave: true, ..WhatIf::default() };
        change(&mut question);
        state.what_if(&question)
    };
    let answer = asked(|_| {}).unwrap();
    assert_eq!(answer.why, "vm-p would go from n to o, the least loaded node it fits on");
    let lines: Vec<String> = answer
        .targets
        .iter()
        .map(|t| format!("{}{} {}", t.node, if t.chosen { "*" } else { "" }, t.why))
        .collect();
    assert_eq!(
        lines,
        [
            "m would have 70% of its CPU and 70% of its memory reserved",
            "n runs it now",
            "o* would have 20% of its CPU and 20% of its memory reserved",
            "small insufficient cpu (needs 2, has 1)",
        ]
    );
    let answer = asked(|question| question.avoid.push("o".into())).unwrap();
    assert!(answer.targets.iter().any(|target| target.node == "m" && target.chosen));
    let answer = asked(|question| question.to.push("small".into())).unwrap();
    assert_eq!(answer.why, "vm-p can go nowhere from n");
    assert!(answer.targets.iter().all(|target| !target.chosen));
    assert_eq!(asked(|question| question.to.push("x".into())).unwrap_err(), "there is no node x");
    assert!(asked(|question| question.watermark = Some(0.5)).unwrap_err().starts_with("leave:"));
    assert_eq!(before, state);
}

/// The pod that a VM has left stays for some seconds.
#[test]
fn a_vm_that_migrated_runs_in_the_pod_that_is_not_deleted() {
    use neonvm_types::scheduler_inspect::WhatIf;
    let mut state = two_nodes(Settings::default());
    for (pod, on, created) in [("old", "n", 0), ("new", "m", 1)] {
        let mut of_vm = PodSeen { deleting: pod == "old", ..movable(pod, on, 2, created) };
        of_vm.vm.as_mut().unwrap().name = "v".into();
        state.step(at(0), seen(of_vm));
    }
    let question = WhatIf { namespace: "d".into(), vm: "v".into(), leave: true, ..WhatIf::default() };
    let why = state.what_if(&question).unwrap().why;
    assert_eq!(why, "v would go from m to n, the least loaded node it fits on");
}
