//! Every phase meets every event.

use std::fmt::Write as _;

use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::{ActiveMigration, LastExit, Phase};
use neonvm_core_vm_lifecycle::{
    Action, Failure, FailureReason, Mover, Observed, Outcome, PodView, RunnerView, condition, step,
};
use neonvm_types::runner_protocol::{Exit, ExitReason, Problem, ProblemReason, ProcessExit, RunnerState};
use neonvm_types::{Bytes, MilliCpu, Quantity};

use crate::machine::{at, pod, runner, running, seen, settings, vm};
use crate::observations::{ended, observed};

const NOW: i64 = 10_000;
const PHASES: [Option<Phase>; 8] = [
    None,
    Some(Phase::Pending),
    Some(Phase::Running),
    Some(Phase::Scaling),
    Some(Phase::PreMigrating),
    Some(Phase::Migrating),
    Some(Phase::Succeeded),
    Some(Phase::Failed),
];
const EVENTS: [&str; 20] = [
    "no pod, by a watch",
    "no pod, by the server",
    "pod waits",
    "pod boots",
    "guest ready",
    "probe ready, runner unknown",
    "runner lost for long",
    "size differs",
    "size asked, not reached",
    "memory refused",
    "runner reports end",
    "pod succeeded",
    "pod failed",
    "pod is deleted",
    "pod does not go",
    "orphan pod lives",
    "action failed",
    "deleted, pod lives",
    "deleted, pod going",
    "deleted, no pod",
];

fn lock() -> ActiveMigration {
    ActiveMigration {
        name: "move".into(),
        uid: "m-1".into(),
        target_pod_name: "db-new".into(),
        target_node: "n2".into(),
        retain_volumes: false,
        content: None,
    }
}

fn in_phase(phase: Option<Phase>) -> VirtualMachine {
    let mut vm = vm();
    let Some(phase) = phase else { return vm };
    let status = vm.status.get_or_insert_default();
    status.phase = Some(phase);
    status.pod_name = "db-old".into();
    if matches!(phase, Phase::Succeeded | Phase::Failed) {
        status.last_exit = Some(LastExit {
            reason: "PoweredOff".into(),
            message: String::new(),
            exit_code: None,
            pod_name: "db-old".into(),
            time: at(NOW - 5),
            console: Vec::new(),
        });
    } else if phase.is_alive() {
        if matches!(phase, Phase::PreMigrating | Phase::Migrating) {
            status.migration = Some(lock());
        }
        status.cpus = Some(MilliCpu::new(500));
        status.memory_size = Some(Bytes::gib(1).to_quantity());
    }
    vm
}

fn meets(event: &str, vm: &mut VirtualMachine) -> Observed {
    let name = "db-old";
    let live = running(pod(vm, name));
    let mut seen_pod = observed(Some(live.clone()), RunnerView::Unknown);
    match event {
        "no pod, by a watch" => return Observed { fresh: false, pod: None, ..seen_pod },
        "no pod, by the server" => return observed(None, RunnerView::Unknown),
        "pod waits" => return observed(Some(pod(vm, name)), RunnerView::Unknown),
        "pod boots" => {
            let mut status = runner(500, 1);
            (status.state, status.ready) = (RunnerState::Booting, false);
            seen_pod.runner = seen(status);
        }
        "guest ready" => seen_pod.runner = seen(runner(500, 1)),
        "probe ready, runner unknown" => {
            seen_pod.pod = Some(neonvm_core_vm_lifecycle::PodView { ready: true, ..live });
        }
        "runner lost for long" => {
            seen_pod.runner = RunnerView::Unreachable { since: at(NOW - 60), last: None };
        }
        "size differs" => seen_pod.runner = seen(runner(250, 1)),
        "size asked, not reached" => {
            let mut status = runner(500, 1);
            status.memory.actual = Bytes::gib(2);
            seen_pod.runner = seen(status);
        }
        "memory refused" => {
            let mut status = runner(500, 1);
            status.memory.actual = Bytes::gib(2);
            let reason = ProblemReason::MemoryNotReleased;
            status.problems = vec![Problem { reason, message: "the guest keeps 2Gi".into() }];
            seen_pod.runner = seen(status);
        }
        "runner reports end" => {
            let mut status = runner(500, 1);
            status.state = RunnerState::Ended;
            status.exit = Some(Exit::new(ExitReason::GuestPanic, "panic"));
            seen_pod.runner = seen(status);
        }
        "pod succeeded" => seen_pod.pod = Some(ended(live, ExitReason::PoweredOff)),
        "pod failed" => seen_pod.pod = Some(ended(live, ExitReason::GuestPanic)),
        "pod is deleted" => seen_pod.pod.as_mut().unwrap().deleting = Some(at(NOW + 5)),
        "pod does not go" => seen_pod.pod.as_mut().unwrap().deleting = Some(at(NOW - 31)),
        "orphan pod lives" => {
            seen_pod.pod = None;
            seen_pod.orphans = vec![running(pod(vm, "db-orphan"))];
        }
        "action failed" => {
            seen_pod.pod = None;
            let reason = FailureReason::PodFailed;
            seen_pod.failure = Some(Failure { reason, message: "quota".into() });
        }
        _ => {
            vm.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
                k8s_openapi::jiff::Timestamp::UNIX_EPOCH,
            ));
            match event {
                "deleted, pod lives" => {}
                "deleted, pod going" => seen_pod.pod.as_mut().unwrap().deleting = Some(at(NOW + 5)),
                "deleted, no pod" => seen_pod.pod = None,
                other => panic!("no such event: {other}"),
            }
        }
    }
    seen_pod
}

/// In the phases of a migration there is one that is running.
fn moving(phase: Option<Phase>, mut seen: Observed) -> Observed {
    if matches!(phase, Some(Phase::PreMigrating | Phase::Migrating)) {
        let ordered = phase == Some(Phase::Migrating);
        seen.moving.mover = Some(Mover { ordered, over: false });
        if let Some(pod) = seen.pod.as_mut() {
            pod.migrations = ["m-1".to_owned()].into();
        }
        let target = PodView { migrations: ["m-1".to_owned()].into(), ..pod(&vm(), "db-new") };
        seen.moving.target = Some(running(target));
    }
    seen
}

fn describe(outcome: &Outcome) -> String {
    let mut text = outcome.status.phase.map_or("-", Phase::as_str).to_owned();
    let available = condition::find(&outcome.status, condition::AVAILABLE);
    write!(text, " {}", available.map_or("-", |now| now.reason.as_str())).unwrap();
    if condition::holds(&outcome.status, condition::DEGRADED) {
        let degraded = condition::find(&outcome.status, condition::DEGRADED).unwrap();
        write!(text, " !{}", degraded.reason).unwrap();
    }
    for action in &outcome.actions {
        let word = match action {
            Action::Refresh => "Refresh",
            Action::Adopt { .. } => "Adopt",
            Action::Amend { .. } => "Amend",
            Action::CreateClaim { .. } => "CreateClaim",
            Action::DeleteClaim { .. } => "DeleteClaim",
            Action::MarkCopy { .. } => "MarkCopy",
            Action::ReplaceClaim { .. } => "ReplaceClaim",
            Action::CreatePod { .. } => "CreatePod",
            Action::DeletePod { uid: Some(_), .. } => "DeletePod",
            Action::DeletePod { uid: None, .. } => "DeleteSecret",
            Action::SyncPod { .. } => "SyncPod",
            Action::ResizePod { .. } => "ResizePod",
            Action::TakeAddress { .. } => "TakeAddress",
            Action::ReleaseAddress => "ReleaseAddress",
            Action::OwnPod { .. } => "OwnPod",
            Action::CancelMove(_) => "CancelMove",
            Action::RecoverMove(_) => "RecoverMove",
            Action::Settle { .. } => "Settle",
            Action::SetSize(_) => "SetSize",
            Action::GrowDisk(_) => "GrowDisk",
            Action::LimitDisks(_) => "LimitDisks",
            Action::SetPaused(_) => "SetPaused",
            Action::SetSuspended(_) => "SetSuspended",
            Action::Tls(_) => "Tls",
            Action::RemoveFinalizer => "RemoveFinalizer",
        };
        write!(text, " +{word}").unwrap();
    }
    text
}

fn table() -> String {
    let mut text = String::new();
    for event in EVENTS {
        writeln!(text, "{event}").unwrap();
        for phase in PHASES {
            let mut vm = in_phase(phase);
            let observed = moving(phase, meets(event, &mut vm));
            let outcome = step(at(NOW), &vm, &observed, &settings());
            writeln!(text, "  {:13}→ {}", phase.map_or("\"\"", Phase::as_str), describe(&outcome)).unwrap();
        }
    }
    text
}

#[test]
fn every_phase_meets_every_event() {
    let have = table();
    let want = include_str!("table.txt");
    for (number, (have, want)) in have.lines().zip(want.lines()).enumerate() {
        assert_eq!(have, want, "line {}", number + 1);
    }
    assert_eq!(have.lines().count(), want.lines().count(), "{have}");
}

#[test]
fn an_object_without_finalizer_or_mode_is_adopted_first() {
    let mut vm = vm();
    vm.metadata.finalizers = None;
    let seen = observed(None, RunnerView::Unknown);
    let outcome = step(at(NOW), &vm, &seen, &settings());
    assert_eq!(outcome.actions, [Action::Adopt { cpu_scaling_mode: None }]);
    vm.spec.cpu_scaling_mode = None;
    let outcome = step(at(NOW), &vm, &seen, &settings());
    let mode = Some(neonvm_api::virtual_machine::CpuScalingMode::SysfsScaling);
    assert_eq!(outcome.actions, [Action::Adopt { cpu_scaling_mode: mode }]);
    vm.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
    assert_eq!(step(at(NOW), &vm, &seen, &settings()).actions, []);
}

#[test]
fn restart_policies_honour_how_it_ended() {
    use neonvm_api::virtual_machine::RestartPolicy as R;
    let workload = |code| {
        let workload = Some(ProcessExit { code: Some(code), ..ProcessExit::default() });
        Exit { workload, ..Exit::new(ExitReason::WorkloadEnded, "") }
    };
    let plain = |reason| Exit::new(reason, "");
    for (exit, phase, on_failure) in [
        (workload(0), Phase::Succeeded, false),
        (workload(3), Phase::Failed, true),
        (plain(ExitReason::PoweredOff), Phase::Succeeded, false),
        (plain(ExitReason::Rebooted), Phase::Succeeded, true),
        (plain(ExitReason::Stopped), Phase::Succeeded, false),
        (plain(ExitReason::StoppedByForce), Phase::Failed, true),
        (plain(ExitReason::GuestPanic), Phase::Failed, true),
        (plain(ExitReason::QemuEnded), Phase::Failed, true),
        (plain(ExitReason::AcceleratorFailure), Phase::Failed, true),
        (plain(ExitReason::RunnerKilled), Phase::Failed, true),
    ] {
        for (policy, again) in [(R::Always, true), (R::OnFailure, on_failure), (R::Never, false)] {
            let mut vm = in_phase(Some(Phase::Running));
            vm.spec.restart_policy = policy;
            let mut dead = running(pod(&vm, "db-old"));
            dead.ended = Some(exit.clone());
            let seen = observed(Some(dead), RunnerView::Unknown);
            let first = step(at(NOW), &vm, &seen, &settings());
            assert_eq!(first.status.phase, Some(phase), "{exit:?}");
            assert_eq!(first.actions, [], "the end is on record before the pod goes");
            let last = first.status.last_exit.clone().unwrap();
            assert_eq!((last.reason.as_str(), last.pod_name.as_str()), (exit.reason.as_str(), "db-old"));
            vm.status = Some(first.status);
            let second = step(at(NOW), &vm, &seen, &settings());
            let status = &second.status;
            assert_eq!(status.restart_count, i32::from(again), "{policy:?} {exit:?}");
            assert_eq!(status.phase, Some(if again { Phase::Pending } else { phase }));
            let name = if again { "db-new01" } else { "db-old" };
            assert_eq!(status.pod_name, name, "{policy:?} {exit:?}");
        }
    }
}

#[test]
fn memory_that_is_not_released_is_reported_once_and_cleared_by_success() {
    let mut vm = in_phase(Some(Phase::Scaling));
    let refused = meets("memory refused", &mut vm);
    let outcome = step(at(NOW), &vm, &refused, &settings());
    let scaled = condition::find(&outcome.status, condition::SCALED).unwrap();
    assert_eq!((scaled.status.as_str(), scaled.reason.as_str()), ("False", "MemoryNotReleased"));
    assert_eq!(scaled.message, "the guest keeps 2Gi; reached 500m CPU and 2Gi of memory");
    assert_eq!(outcome.status.memory_size, Some("2Gi".parse::<Quantity>().unwrap()));
    assert_eq!(outcome.status.phase, Some(Phase::Running));
    assert_eq!(outcome.events.iter().filter(|note| note.reason.as_str() == "ScaleLimited").count(), 1);
    vm.status = Some(outcome.status);
    let again = step(at(NOW + 1), &vm, &refused, &settings());
    assert_eq!((again.events.len(), Some(&again.status)), (0, vm.status.as_ref()));
    // The spec gives in.
    vm.spec.guest.memory_slots.r#use = 2;
    vm.metadata.generation = Some(2);
    // Its pod had the size of now all along.
    let has = pod(&vm, "db-old");
    let mut refused = refused;
    let seen_pod = refused.pod.as_mut().unwrap();
    (seen_pod.size, seen_pod.applied) = (has.size, has.applied);
    let outcome = step(at(NOW + 2), &vm, &refused, &settings());
    assert!(
        matches!(outcome.actions[..], [Action::SyncPod { .. }, Action::SetSize(size)] if size.memory == Bytes::gib(2))
    );
    let outcome = step(
        at(NOW + 2),
        &vm,
        &observed(Some(running(pod(&vm, "db-old"))), seen(runner(500, 2))),
        &settings(),
    );
    assert!(condition::holds(&outcome.status, condition::SCALED));
    assert!(!condition::holds(&outcome.status, condition::DEGRADED));
    assert_eq!(outcome.status.phase, Some(Phase::Running));
}

/// What the guest keeps of the last step: the size is reached, and the VM is healthy.
/// The CPU is there before the memory: the event names the size before both.
#[test]
fn a_change_in_two_steps_is_one_change() {
    let mut vm = in_phase(Some(Phase::Running));
    vm.spec.guest.cpus.r#use = MilliCpu::new(1000);
    vm.spec.guest.memory_slots.r#use = 3;
    let mut events = Vec::new();
    for (cpu, memory) in [(500, 1), (1000, 1), (1000, 2), (1000, 3), (1000, 3)] {
        let mut status = runner(1000, 3);
        status.cpu.applied = MilliCpu::new(cpu);
        status.memory.actual = Bytes::gib(memory);
        let seen = observed(Some(running(pod(&in_phase(Some(Phase::Running)), "db-old"))), seen(status));
        let outcome = step(at(NOW), &vm, &seen, &settings());
        let scaled = outcome.events.iter().filter(|note| note.reason.as_str().starts_with("Scale"));
        events.extend(scaled.map(|note| note.message.clone()));
        vm.status = Some(outcome.status);
    }
    assert_eq!(events, ["from 500m CPU and 1Gi of memory to 1 CPU and 3Gi of memory"]);
    assert_eq!(vm.status.unwrap().scaling_from, None);
}

#[test]
fn a_remainder_below_one_step_is_no_problem() {
    let mut vm = in_phase(Some(Phase::Scaling));
    vm.status.as_mut().unwrap().memory_size = Some(Bytes::gib(8).to_quantity());
    let keeps = |more: u64, cpu: u32| {
        let mut status = runner(500, 1);
        status.cpu.applied = MilliCpu::new(cpu);
        status.memory.actual = Bytes::new(Bytes::gib(1).get() + more);
        let problem = |reason, message: &str| Problem { reason, message: message.to_owned() };
        status.problems = vec![problem(ProblemReason::MemoryNotReleased, "the guest keeps it")];
        observed(Some(running(pod(&in_phase(Some(Phase::Running)), "db-old"))), seen(status))
    };
    let words = |outcome: &Outcome, kind: &str| {
        let found = condition::find(&outcome.status, kind).unwrap();
        (found.status.clone(), found.reason.clone(), found.message.clone())
    };
    let step_bytes = Bytes::gib(1).get();
    for (more, cpu, reason, degraded) in [
        (12 << 20, 500, "Reached", "Healthy"),
        (step_bytes - 1, 500, "Reached", "Healthy"),
        (step_bytes, 500, "MemoryNotReleased", "MemoryNotReleased"),
        // Its CPU is on the way.
        (12 << 20, 1000, "InProgress", "Healthy"),
    ] {
        let outcome = step(at(NOW), &vm, &keeps(more, cpu), &settings());
        assert_eq!(words(&outcome, condition::SCALED).1, reason, "{more}");
        assert_eq!(words(&outcome, condition::DEGRADED).1, degraded, "{more}");
    }
    let outcome = step(at(NOW), &vm, &keeps(12 << 20, 500), &settings());
    let (_, _, message) = words(&outcome, condition::SCALED);
    assert_eq!(message, "500m CPU and 1Gi of memory; the guest keeps 12Mi more, less than one step of 1Gi");
    assert_eq!(outcome.status.memory_size, Some("1036Mi".parse::<Quantity>().unwrap()), "what it has");
    assert_eq!(outcome.status.phase, Some(Phase::Running));
    assert_eq!(outcome.events.iter().filter(|note| note.reason.as_str() == "ScaledDown").count(), 1);
    // What is given back later is no change of the size.
    vm.status = Some(outcome.status);
    for more in [12 << 20, 8 << 20, 0] {
        let outcome = step(at(NOW + 1), &vm, &keeps(more, 500), &settings());
        assert_eq!(outcome.events.len(), 0, "{more}");
        vm.status = Some(outcome.status);
    }
    // Another problem of the runner is reported beside it.
    let mut seen_pod = keeps(12 << 20, 500);
    if let RunnerView::Seen(status) = &mut seen_pod.runner {
        let message = "a disk failed".to_owned();
        status.problems.push(Problem { reason: ProblemReason::DiskFailure, message });
    }
    let outcome = step(at(NOW + 2), &vm, &seen_pod, &settings());
    assert_eq!(words(&outcome, condition::DEGRADED).1, "DiskFailure");
}

/// A VM whose cgroup limit cannot be set has the requested size; its changes take their time like those of any other.
#[test]
fn a_missing_limit_is_reported_and_keeps_nothing_from_its_size() {
    let mut vm = in_phase(Some(Phase::Running));
    let unlimited = |actual| {
        let mut status = runner(500, 1);
        status.memory.actual = Bytes::gib(actual);
        let message = "not permitted".to_owned();
        status.problems = vec![Problem { reason: ProblemReason::CpuNotLimited, message }];
        observed(Some(running(pod(&in_phase(Some(Phase::Running)), "db-old"))), seen(status))
    };
    for (actual, wanted) in [(2, "InProgress"), (1, "Reached")] {
        let outcome = step(at(NOW), &vm, &unlimited(actual), &settings());
        let scaled = condition::find(&outcome.status, condition::SCALED).unwrap();
        assert_eq!(scaled.reason, wanted);
        let degraded = condition::find(&outcome.status, condition::DEGRADED).unwrap();
        assert_eq!((degraded.status.as_str(), degraded.reason.as_str()), ("True", "CpuNotLimited"));
        assert!(outcome.events.iter().all(|note| note.reason.as_str() != "ScaleLimited"));
        vm.status = Some(outcome.status);
    }
}

/// After a migration the target's runner has not reported the VM's size yet: that is no change of the size.
#[test]
fn a_size_that_is_not_known_yet_is_no_change() {
    let mut vm = in_phase(Some(Phase::Running));
    let with = |milli, gib| {
        let mut status = runner(500, 1);
        (status.cpu.applied, status.memory.actual) = (MilliCpu::new(milli), Bytes::gib(gib));
        observed(Some(running(pod(&in_phase(Some(Phase::Running)), "db-old"))), seen(status))
    };
    vm.status = Some(step(at(NOW), &vm, &with(500, 1), &settings()).status);
    for (milli, gib) in [(500, 0), (0, 1), (0, 0)] {
        let outcome = step(at(NOW), &vm, &with(milli, gib), &settings());
        assert_eq!(Some(&outcome.status), vm.status.as_ref(), "{milli} {gib}");
    }
}

/// A growth that is cancelled half-way: memory that is still plugged is shown in the status, so that the scheduler does not
/// permit it to another machine.
#[test]
fn a_change_that_is_called_off_shows_what_is_plugged() {
    let mut vm = in_phase(Some(Phase::Running));
    vm.spec.guest.memory_slots.r#use = 3;
    let under_way = |asked, actual| {
        let mut status = runner(500, asked);
        status.memory.actual = Bytes::gib(actual);
        observed(Some(running(pod(&in_phase(Some(Phase::Running)), "db-old"))), seen(status))
    };
    let memory = |vm: &mut neonvm_api::VirtualMachine, asked, actual| {
        let outcome = step(at(NOW), vm, &under_way(asked, actual), &settings());
        vm.status = Some(outcome.status.clone());
        outcome.status.memory_size.unwrap().to_string()
    };
    assert_eq!(memory(&mut vm, 3, 2), "1Gi", "steps on the way are not written");
    vm.spec.guest.memory_slots.r#use = 1;
    vm.metadata.generation = Some(2);
    assert_eq!(memory(&mut vm, 3, 2), "2Gi", "it is cancelled with 2Gi plugged");
    assert_eq!(memory(&mut vm, 1, 2), "2Gi");
    assert_eq!(memory(&mut vm, 1, 1), "1Gi");
}

#[test]
fn revisions_follow_the_size_even_backwards() {
    use neonvm_types::{Revision, RevisionFlags, RevisionWithTime};
    let revision = |value| Revision { value, flags: RevisionFlags::UPSCALE };
    let target = |value| Some(RevisionWithTime { revision: revision(value), updated_at: Some(at(1)) });
    let mut vm = in_phase(Some(Phase::Running));
    for value in [7, 3] {
        vm.spec.target_revision = target(value);
        let waiting = meets("size asked, not reached", &mut vm);
        let outcome = step(at(NOW), &vm, &waiting, &settings());
        assert_ne!(outcome.status.current_revision.map(|now| now.revision), Some(revision(value)));
        let reached = meets("guest ready", &mut vm);
        let outcome = step(at(NOW), &vm, &reached, &settings());
        assert_eq!(outcome.status.current_revision.unwrap().revision, revision(value));
        vm.status = Some(outcome.status);
        assert_eq!(step(at(NOW + 9), &vm, &reached, &settings()).status, vm.status.clone().unwrap());
    }
}

#[test]
fn what_was_observed_twice_is_done_once() {
    for event in EVENTS {
        for phase in PHASES {
            let mut vm = in_phase(phase);
            let observed = moving(phase, meets(event, &mut vm));
            for _ in 0..12 {
                let outcome = step(at(NOW), &vm, &observed, &settings());
                vm.status = Some(outcome.status);
            }
            let outcome = step(at(NOW), &vm, &observed, &settings());
            assert_eq!(Some(&outcome.status), vm.status.as_ref(), "{event} {phase:?}");
            let silent = outcome.events.iter().all(|note| note.reason.as_str() == "Deleted");
            assert!(silent, "{event} {phase:?}: {:?}", outcome.events);
        }
    }
}
