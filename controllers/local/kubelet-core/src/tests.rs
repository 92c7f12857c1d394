use proptest::prelude::*;

use super::*;

fn container(name: &str) -> ContainerPlan {
    ContainerPlan { name: name.into(), image: "i".into(), startup: false, readiness: false }
}

fn plan(init: &[&str], main: &[&str], restart: RestartPolicy) -> Plan {
    let all = |names: &[&str]| names.iter().map(|name| container(name)).collect();
    Plan { init: all(init), main: all(main), restart, pause: 10_000, grace: 30_000, unsupported: None }
}

fn ended(code: i32, started: Millis, finished: Millis) -> Ended {
    Ended { code, signal: None, reason: "Error".into(), message: String::new(), started, finished }
}

fn exited(container: &str, code: i32) -> Event {
    Event::Exited { container: container.into(), ended: ended(code, 0, 100) }
}

fn up(container: &str) -> Event {
    Event::Started { container: container.into() }
}

/// The actions as words; notes are left out.
fn words(actions: Vec<Action>) -> String {
    let word = |action: Action| match action {
        Action::Prepare => Some("prepare".to_owned()),
        Action::Start { container } => Some(format!("start {container}")),
        Action::Terminate { container } => Some(format!("terminate {container}")),
        Action::Kill { container } => Some(format!("kill {container}")),
        Action::CleanUp => Some("clean".to_owned()),
        Action::Remove => Some("remove".to_owned()),
        Action::Forget => Some("forget".to_owned()),
        Action::Note { .. } | Action::Resize => None,
    };
    actions.into_iter().filter_map(word).collect::<Vec<_>>().join(", ")
}

/// Events at times, and what follows.
fn play(plan: Plan, script: &[(Millis, Event, &str)]) -> Machine {
    let mut machine = Machine::new(plan, 0);
    assert_eq!(words(machine.resume(0)), "prepare");
    for (now, event, expected) in script {
        let text = format!("{event:?} at {now}");
        assert_eq!(words(machine.step(*now, event.clone())), *expected, "{text}");
    }
    machine
}

#[test]
fn a_pod_lives_and_succeeds() {
    use Event::{Cleaned, Delete, Prepared, Vanished};
    let machine = play(
        plan(&["a", "b"], &["c"], RestartPolicy::Never),
        &[
            (1, Prepared, "start a"),
            (2, up("a"), ""),
            (3, exited("a", 0), "start b"),
            (4, up("b"), ""),
            (5, exited("b", 0), "start c"),
            (6, up("c"), ""),
            (7, exited("c", 0), "clean"),
            (8, Cleaned, ""),
            (9, Delete { grace: 5 }, "remove"),
            (9, Vanished, "forget"),
        ],
    );
    assert_eq!(machine.pod_phase(), "Succeeded");
}

#[test]
fn restart_policies() {
    use Event::{Prepared, Time};
    use RestartPolicy::{Always, Never, OnFailure};
    for (policy, code, expected) in [
        (Always, 0, ""),
        (Always, 1, ""),
        (OnFailure, 0, "clean"),
        (OnFailure, 1, ""),
        (Never, 0, "clean"),
        (Never, 1, "clean"),
    ] {
        let script = [(1, Prepared, "start c"), (2, up("c"), ""), (100, exited("c", code), expected)];
        let mut machine = play(plan(&[], &["c"], policy), &script);
        if expected.is_empty() {
            assert_eq!(machine.wake_at(), Some(10_100));
            assert_eq!(words(machine.step(10_099, Time)), "");
            assert_eq!(words(machine.step(10_100, Time)), "start c");
            assert_eq!(machine.runs["c"].restarts, 1);
            machine.step(10_101, up("c"));
            machine.step(10_200, exited("c", 1));
            assert_eq!(machine.wake_at(), Some(30_200), "the pause doubles");
        } else {
            assert_eq!(machine.pod_phase(), if code == 0 { "Succeeded" } else { "Failed" });
        }
    }
    let init = [(1, Event::Prepared, "start a"), (2, up("a"), ""), (3, exited("a", 1), "clean")];
    assert_eq!(play(plan(&["a"], &["c"], Never), &init).pod_phase(), "Failed");
}

#[test]
fn deletion_at_every_stage() {
    use Event::{Cleaned, Delete, Prepared, Time, Vanished};
    let one = || plan(&[], &["c"], RestartPolicy::Always);
    let delete = || Delete { grace: 1000 };
    play(one(), &[(1, delete(), "clean"), (2, Cleaned, "remove"), (3, Vanished, "forget")]);
    play(one(), &[(1, delete(), "clean"), (2, Vanished, ""), (3, Cleaned, "forget")]);
    // While it is being started.
    play(
        one(),
        &[
            (1, Prepared, "start c"),
            (2, delete(), ""),
            (3, up("c"), "terminate c"),
            (4, exited("c", 0), "clean"),
        ],
    );
    // It does not end in time, and the time is cut short.
    let script = [
        (1, Prepared, "start c"),
        (2, up("c"), ""),
        (3, delete(), "terminate c"),
        (4, Delete { grace: 5000 }, ""),
        (5, Delete { grace: 100 }, ""),
        (104, Time, ""),
        (105, Time, "kill c"),
        (106, Time, ""),
        (107, exited("c", 137), "clean"),
        (108, Cleaned, "remove"),
    ];
    play(one(), &script);
    // While it waits to be started again.
    let script = [
        (1, Prepared, "start c"),
        (2, up("c"), ""),
        (3, exited("c", 1), ""),
        (4, delete(), "clean"),
        (5, Cleaned, "remove"),
    ];
    play(one(), &script);
    // Gone without a word.
    let script = [
        (1, Prepared, "start c"),
        (2, up("c"), ""),
        (3, Vanished, "terminate c"),
        (2003, Time, "kill c"),
        (2004, exited("c", 137), "clean"),
        (2005, Cleaned, "forget"),
    ];
    play(one(), &script);
}

#[test]
fn probes_make_ready_and_end() {
    let mut with = plan(&[], &["c"], RestartPolicy::Always);
    with.main[0].startup = true;
    with.main[0].readiness = true;
    let probed = |probe, good| Event::Probed { container: "c".into(), probe, good, message: "no".into() };
    let script = [
        (1, Event::Prepared, "start c"),
        (2, up("c"), ""),
        (3, probed(ProbeKind::Readiness, true), ""),
        (4, probed(ProbeKind::Startup, true), ""),
    ];
    let mut machine = play(with, &script);
    assert!(!machine.runs["c"].ready && machine.runs["c"].started);
    machine.step(5, probed(ProbeKind::Readiness, true));
    assert!(machine.runs["c"].ready);
    machine.step(6, probed(ProbeKind::Readiness, false));
    assert!(!machine.runs["c"].ready);
    assert_eq!(words(machine.step(7, probed(ProbeKind::Liveness, false))), "terminate c");
    assert_eq!(words(machine.step(8, probed(ProbeKind::Liveness, false))), "");
    assert_eq!(machine.wake_at(), Some(30_007));
    assert_eq!(words(machine.step(30_007, Event::Time)), "kill c");
    machine.step(30_008, exited("c", 137));
    assert_eq!(machine.runs["c"].restarts, 1);
}

#[test]
fn what_cannot_run_reports_the_reason() {
    let mut other = plan(&[], &["c"], RestartPolicy::Always);
    other.unsupported = Some("no container runtime".into());
    let mut machine = Machine::new(other, 0);
    assert_eq!(words(machine.resume(0)), "clean");
    machine.step(1, Event::Cleaned);
    let status =
        machine.status(&k8s_openapi::api::core::v1::Pod::default(), &status::Surroundings::default(), 5);
    assert_eq!(
        (status.phase.as_deref(), status.message.as_deref()),
        (Some("Failed"), Some("no container runtime"))
    );
    let refused = Event::Refused { reason: "R".into(), message: "m".into() };
    let machine = play(plan(&[], &["c"], RestartPolicy::Never), &[(1, refused, "clean")]);
    assert_eq!(machine.pod_phase(), "Failed");
}

fn event() -> impl Strategy<Value = Event> {
    let name = || prop_oneof![Just("a".to_owned()), Just("c".to_owned()), Just("x".to_owned())];
    prop_oneof![
        Just(Event::Prepared),
        Just(Event::Time),
        Just(Event::Vanished),
        Just(Event::Cleaned),
        (0_u64..5000).prop_map(|grace| Event::Delete { grace }),
        name().prop_map(|container| Event::Started { container }),
        (name(), 0..3).prop_map(|(container, code)| Event::Exited { container, ended: ended(code, 0, 10) }),
        (name(), any::<bool>()).prop_map(|(container, good)| Event::Probed {
            container,
            probe: ProbeKind::Liveness,
            good,
            message: String::new()
        }),
        Just(Event::Refused { reason: String::new(), message: String::new() }),
    ]
}

proptest! {
    /// Whatever happens in whatever order: a container is started only when it does not run, nothing is started once the
    /// pod is to end, clean-up comes once nothing runs, and the VM survives being written to disk.
    #[test]
    fn laws(events in proptest::collection::vec((event(), 0_u64..20_000), 0..60), policy in 0..3) {
        let policy = [RestartPolicy::Always, RestartPolicy::OnFailure, RestartPolicy::Never][policy as usize];
        let mut machine = Machine::new(plan(&["a"], &["c"], policy), 0);
        machine.resume(0);
        let mut now = 0;
        for (event, later) in events {
            now += later;
            let before = machine.clone();
            let actions = machine.step(now, event);
            for action in &actions {
                match action {
                    Action::Start { container } => {
                        prop_assert!(machine.stop.is_none());
                        prop_assert_eq!(&machine.runs[container].state, &State::Starting);
                        prop_assert_ne!(&before.runs[container].state, &State::Starting);
                    }
                    Action::CleanUp => prop_assert_eq!(machine.running().count(), 0),
                    Action::Forget => prop_assert!(machine.stop.is_some_and(|stop| stop.gone)),
                    _ => {}
                }
            }
            let text = serde_json::to_string(&machine).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Machine>(&text).unwrap(), &machine);
        }
    }
}
