use proptest::prelude::*;

use super::*;

const GRACE: Duration = Duration::from_secs(10);
const PHASES: [Phase; 6] =
    [Phase::Running, Phase::Services, Phase::Draining, Phase::Terminating, Phase::Killing, Phase::Done];
const EVENTS: [Event; 7] = [
    Event::Asked(Target::Reboot),
    Event::WorkloadStarted,
    Event::WorkloadEnded,
    Event::ServicesEnded,
    Event::HookEnded,
    Event::AllEnded,
    Event::Tick,
];

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The VM in a phase, with a running workload, at second 0; deadlines are over at second 100.
fn machine(phase: Phase, has_hook: bool) -> Shutdown {
    let mut machine = Shutdown::new(has_hook, GRACE);
    machine.step(at(0), Event::WorkloadStarted);
    let way = [
        Event::Asked(Target::PowerOff),
        Event::ServicesEnded,
        Event::WorkloadEnded,
        Event::AllEnded,
        Event::AllEnded,
    ];
    for event in way {
        if machine.phase() == phase {
            break;
        }
        machine.step(at(0), event);
    }
    assert_eq!(machine.phase(), phase);
    machine
}

/// What each event (a column, in the order of `EVENTS`) does in each phase (a row). Empty: nothing.
#[test]
fn every_event_in_every_phase() {
    use Phase::{Done, Draining, Killing, Services, Terminating};
    let table: [[Option<Phase>; 7]; 6] = [
        [Some(Services), None, None, None, None, None, None],
        [None, None, None, Some(Draining), None, None, Some(Draining)],
        [None, None, Some(Terminating), None, None, None, Some(Terminating)],
        [None, None, None, None, None, Some(Killing), Some(Killing)],
        [None, None, None, None, None, Some(Done), Some(Done)],
        [None, None, None, None, None, None, None],
    ];
    for (phase, row) in PHASES.into_iter().zip(table) {
        for (event, next) in EVENTS.into_iter().zip(row) {
            let mut machine = machine(phase, false);
            let actions = machine.step(at(100), event);
            assert_eq!(machine.phase(), next.unwrap_or(phase), "{phase:?} {event:?}");
            assert_eq!(actions.is_empty(), next.is_none(), "{phase:?} {event:?} {actions:?}");
        }
    }
}

#[test]
fn nothing_is_late_before_its_time() {
    for phase in PHASES {
        let mut machine = machine(phase, false);
        assert_eq!(machine.step(at(0), Event::Tick), [], "{phase:?}");
    }
}

#[test]
fn the_hook_runs_again_until_the_workload_is_gone() {
    let mut machine = machine(Phase::Services, true);
    assert_eq!(machine.step(at(1), Event::ServicesEnded), [Action::StartHook]);
    for round in 2..50 {
        assert_eq!(machine.step(at(round), Event::Tick), []);
        machine.step(at(round), Event::HookEnded);
        assert_eq!(machine.wake_at(), Some(at(round) + HOOK_PAUSE));
        assert_eq!(machine.step(at(round) + HOOK_PAUSE, Event::Tick), [Action::StartHook]);
    }
    assert_eq!(machine.step(at(60), Event::WorkloadEnded), [Action::TerminateAll]);
}

#[test]
fn without_a_workload_there_is_nothing_to_drain() {
    for has_hook in [false, true] {
        let mut machine = Shutdown::new(has_hook, GRACE);
        machine.step(at(0), Event::Asked(Target::Halt));
        assert_eq!(machine.step(at(0), Event::ServicesEnded), [Action::TerminateAll]);
    }
}

#[test]
fn a_second_request_does_not_change_the_first() {
    let mut machine = machine(Phase::Killing, false);
    machine.step(at(0), Event::Asked(Target::Reboot));
    assert_eq!(machine.step(at(0), Event::AllEnded), [Action::Finish(Target::PowerOff)]);
}

fn order(phase: Phase) -> usize {
    PHASES.iter().position(|other| *other == phase).unwrap()
}

proptest! {
    /// Phases only go forward; each action of the way comes once (but the hook); with time alone it ends, unless a
    /// hook delays it.
    #[test]
    fn it_goes_forward_and_ends(
        has_hook: bool,
        events in proptest::collection::vec((0_usize..7, 0_u64..20), 0..60),
    ) {
        let mut machine = Shutdown::new(has_hook, GRACE);
        let mut now = at(0);
        let mut actions = Vec::new();
        for (event, passed) in events {
            now += at(passed);
            let before = order(machine.phase());
            actions.extend(machine.step(now, EVENTS[event]));
            prop_assert!(order(machine.phase()) >= before);
        }
        for single in [Action::StopRespawning, Action::StartServices, Action::SignalWorkload, Action::TerminateAll, Action::KillAll] {
            prop_assert!(actions.iter().filter(|action| **action == single).count() <= 1);
        }
        let asked = machine.phase() != Phase::Running;
        if asked && (!has_hook || machine.phase() != Phase::Draining) {
            let mut rounds = 0;
            machine.step(now, Event::WorkloadEnded);
            while let Some(wake) = machine.wake_at() {
                now = now.max(wake);
                machine.step(now, Event::Tick);
                rounds += 1;
                prop_assert!(rounds < 10);
            }
            prop_assert_eq!(machine.phase(), Phase::Done);
        }
    }
}
