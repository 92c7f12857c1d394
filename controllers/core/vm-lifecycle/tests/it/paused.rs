//! A VM whose guest stands still on request: what goes to the runner, what the status shows.

use neonvm_api::VirtualMachine;
use neonvm_api::names::label;
use neonvm_api::virtual_machine::{ActiveMigration, Phase, PowerState};
use neonvm_core_vm_lifecycle::condition::{AVAILABLE, PAUSED, SCALED, find};
use neonvm_core_vm_lifecycle::{Action, Mover, Outcome, PodView, RunnerView, step};
use neonvm_types::runner_protocol::{Exit, ExitReason, PauseStatus, RunnerState, RunnerStatus};
use neonvm_types::{Bytes, MilliCpu};

use crate::machine::{at, pod, runner, running, seen, settings, vm};
use crate::observations::{ended, observed};

const NOW: i64 = 10_000;

fn with(power: Option<PowerState>) -> VirtualMachine {
    let mut vm = vm();
    vm.spec.power_state = power;
    let status = vm.status.get_or_insert_default();
    (status.phase, status.pod_name) = (Some(Phase::Running), "db-old".into());
    status.cpus = Some(MilliCpu::new(500));
    status.memory_size = Some(Bytes::gib(1).to_quantity());
    vm
}

fn reports(asked: bool, applied: bool) -> RunnerStatus {
    RunnerStatus { pause: PauseStatus { asked, applied }, ..runner(500, 1) }
}

fn pass(vm: &mut VirtualMachine, runner: RunnerView) -> Outcome {
    let pod = PodView { ready: true, ..running(pod(vm, "db-old")) };
    let outcome = step(at(NOW), vm, &observed(Some(pod), runner), &settings());
    vm.status = Some(outcome.status.clone());
    outcome
}

fn shown(outcome: &Outcome, kind: &str) -> String {
    find(&outcome.status, kind).map_or("-".into(), |now| format!("{} {}", now.status, now.reason))
}

fn events(outcome: &Outcome) -> Vec<&str> {
    outcome.events.iter().map(|note| note.reason.as_str()).collect()
}

#[test]
fn a_vm_is_paused_and_resumed() {
    let mut vm = with(None);
    pass(&mut vm, seen(reports(false, false)));
    vm.spec.power_state = Some(PowerState::Paused);
    let asked = pass(&mut vm, seen(reports(false, false)));
    assert_eq!(asked.actions, [Action::SetPaused(true)]);
    assert_eq!((shown(&asked, PAUSED).as_str(), asked.status.power_state), ("False Pausing", None));
    assert_eq!(shown(&asked, AVAILABLE), "True Ready", "it still answers");
    let waits = pass(&mut vm, seen(reports(true, false)));
    assert_eq!((waits.actions.as_slice(), events(&waits)), (&[][..], vec![]));
    let still = pass(&mut vm, seen(reports(true, true)));
    assert_eq!((still.actions.as_slice(), events(&still)), (&[][..], vec!["Paused"]));
    assert_eq!(
        (still.status.phase, still.status.power_state),
        (Some(Phase::Running), Some(PowerState::Paused))
    );
    assert_eq!(
        (shown(&still, PAUSED), shown(&still, AVAILABLE)),
        ("True Paused".into(), "False Paused".into())
    );
    assert_eq!(shown(&still, "Degraded"), "False Healthy");
    let again = pass(&mut vm, seen(reports(true, true)));
    assert_eq!((events(&again), &again.status), (vec![], &still.status), "it is reported once");
    vm.spec.power_state = Some(PowerState::Running);
    let resuming = pass(&mut vm, seen(reports(true, true)));
    assert_eq!(resuming.actions, [Action::SetPaused(false)]);
    assert_eq!(shown(&resuming, PAUSED), "True Resuming");
    let resumed = pass(&mut vm, seen(reports(false, false)));
    assert_eq!((resumed.actions.as_slice(), events(&resumed)), (&[][..], vec!["Resumed"]));
    assert_eq!((shown(&resumed, PAUSED), resumed.status.power_state), ("-".into(), None));
    assert_eq!(shown(&resumed, AVAILABLE), "True Ready");
}

#[test]
fn a_vm_that_boots_is_paused_when_its_guest_is_up() {
    let mut vm = with(Some(PowerState::Paused));
    let booting = RunnerStatus { state: RunnerState::Booting, ready: false, ..reports(false, false) };
    let asked = pass(&mut vm, seen(booting.clone()));
    assert_eq!(asked.actions, [Action::SetPaused(true)], "the runner waits until the guest is up");
    assert_eq!(shown(&asked, PAUSED), "False Booting");
    let preparing = RunnerStatus { state: RunnerState::Preparing, ..booting };
    assert_eq!(pass(&mut vm, seen(preparing)).actions, [], "it has no guest yet");
}

/// As after a start of its cluster: the guest was never seen running.
#[test]
fn a_vm_that_was_paused_as_soon_as_it_was_up_has_its_size() {
    for (asked, applied) in [(true, false), (true, true)] {
        let mut vm = with(Some(PowerState::Paused));
        let status = vm.status.as_mut().unwrap();
        (status.cpus, status.memory_size) = (None, None);
        let status = pass(&mut vm, seen(reports(asked, applied))).status;
        assert_eq!(status.cpus, Some(MilliCpu::new(500)));
        assert_eq!(status.memory_size, Some(Bytes::gib(1).to_quantity()));
        // What the runner does not know yet is not made up.
        let mut vm = with(Some(PowerState::Paused));
        let status = vm.status.as_mut().unwrap();
        (status.cpus, status.memory_size) = (None, None);
        let mut unknown = reports(asked, applied);
        (unknown.cpu.applied, unknown.memory.actual) = (MilliCpu::ZERO, Bytes::ZERO);
        let status = pass(&mut vm, seen(unknown)).status;
        assert_eq!((status.cpus, status.memory_size), (None, None));
    }
}

/// The controller was started again, or the connection is lost: the record holds, and nothing is done.
#[test]
fn a_runner_that_is_not_connected_changes_nothing() {
    let mut vm = with(Some(PowerState::Paused));
    let still = pass(&mut vm, seen(reports(true, true)));
    let lost = RunnerView::Unreachable { since: at(NOW - 1), last: Some(Box::new(reports(true, true))) };
    for view in [RunnerView::Unknown, lost] {
        let outcome = pass(&mut vm, view);
        assert_eq!((outcome.actions.as_slice(), events(&outcome)), (&[][..], vec![]));
        assert_eq!(outcome.status, still.status);
    }
}

#[test]
fn a_size_waits_until_the_vm_is_resumed() {
    let mut vm = with(Some(PowerState::Paused));
    pass(&mut vm, seen(reports(true, true)));
    vm.spec.guest.memory_slots.r#use = 3;
    let outcome = pass(&mut vm, seen(reports(true, true)));
    let sizes = |action: &&Action| matches!(action, Action::SetSize(_) | Action::ResizePod { .. });
    assert_eq!(outcome.actions.iter().filter(sizes).count(), 0, "{:?}", outcome.actions);
    assert_eq!(
        (shown(&outcome, SCALED).as_str(), outcome.status.phase),
        ("False Paused", Some(Phase::Running))
    );
    assert!(find(&outcome.status, SCALED).unwrap().message.contains("comes when the VM is resumed"));
    vm.spec.power_state = None;
    assert_eq!(pass(&mut vm, seen(reports(true, true))).actions.iter().filter(sizes).count(), 0, "not yet");
    let outcome = pass(&mut vm, seen(reports(false, false)));
    assert_eq!(outcome.actions.iter().filter(sizes).count(), 1, "{:?}", outcome.actions);
}

#[test]
fn a_migration_ends_before_the_pause() {
    let mut vm = with(Some(PowerState::Paused));
    let lock = ActiveMigration {
        name: "m".into(),
        uid: "m-1".into(),
        target_pod_name: "db-new".into(),
        ..ActiveMigration::default()
    };
    let status = vm.status.as_mut().unwrap();
    (status.phase, status.migration) = (Some(Phase::PreMigrating), Some(lock));
    let mut around = observed(Some(running(pod(&vm, "db-old"))), seen(reports(false, false)));
    around.moving.mover = Some(Mover { ordered: false, over: false });
    around.moving.target = Some(pod(&vm, "db-new"));
    let outcome = step(at(NOW), &vm, &around, &settings());
    assert!(
        !outcome.actions.iter().any(|action| matches!(action, Action::SetPaused(_))),
        "{:?}",
        outcome.actions
    );
    assert_eq!(shown(&outcome, PAUSED), "False Migrating");
    // One that was to be paused before is continued: it could not be migrated.
    around.runner = seen(reports(true, false));
    let outcome = step(at(NOW), &vm, &around, &settings());
    assert!(outcome.actions.contains(&Action::SetPaused(false)), "{:?}", outcome.actions);
}

#[test]
fn the_scheduler_starts_no_migration_of_a_paused_vm() {
    let mut vm = with(Some(PowerState::Paused));
    vm.metadata.labels = Some([(label::AUTO_MIGRATION_ENABLED.to_owned(), "true".to_owned())].into());
    assert_eq!(pod(&vm, "db-old").labels.get(label::AUTO_MIGRATION_ENABLED), None);
    vm.spec.power_state = None;
    assert!(pod(&vm, "db-old").labels.contains_key(label::AUTO_MIGRATION_ENABLED));
}

#[test]
fn a_paused_vm_that_ends_is_not_paused_any_more() {
    for stops in [false, true] {
        let mut vm = with(Some(PowerState::Paused));
        pass(&mut vm, seen(reports(true, true)));
        if stops {
            vm.spec.power_state = Some(PowerState::Stopped);
            let outcome = pass(&mut vm, seen(reports(true, true)));
            assert!(outcome.actions.iter().any(|action| matches!(action, Action::DeletePod { .. })));
            assert!(!outcome.actions.iter().any(|action| matches!(action, Action::SetPaused(_))));
        }
        let dead = ended(running(pod(&vm, "db-old")), ExitReason::Stopped);
        let mut last = reports(true, false);
        (last.state, last.exit) = (RunnerState::Ended, Some(Exit::new(ExitReason::Stopped, "")));
        let outcome = step(at(NOW), &vm, &observed(Some(dead), seen(last)), &settings());
        assert_eq!((shown(&outcome, PAUSED), outcome.status.power_state), ("-".into(), None));
        assert_eq!(outcome.status.phase, Some(Phase::Succeeded));
    }
}
