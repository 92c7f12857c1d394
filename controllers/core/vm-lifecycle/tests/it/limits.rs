//! Limits of disks: what goes to the runner, what the status shows, when there is an event.

use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::{ActiveMigration, DiskLimit, Phase};
use neonvm_core_vm_lifecycle::condition::{DISK_LIMITED, find};
use neonvm_core_vm_lifecycle::{Action, LimitsRequested, Mover, Observed, Outcome, PodView, step};
use neonvm_types::runner_protocol::{
    DiskLimitStatus, DiskLimits, LimitsByDisk, RunnerStatus, SuspendState, SuspendStatus,
};
use proptest::prelude::*;

use crate::machine::{at, pod, runner, running, seen, settings, vm};
use crate::observations::observed;

const NOW: i64 = 10_000;

fn iops(iops: u32) -> LimitsByDisk {
    [("rootdisk".to_owned(), DiskLimits { iops: Some(iops), ..DiskLimits::default() })].into()
}

/// A running VM whose spec has these limits.
fn limited(limits: &LimitsByDisk) -> VirtualMachine {
    let mut vm = vm();
    vm.spec.disk_limits = limits.iter().map(|(disk, limits)| DiskLimit::new(disk, limits)).collect();
    let status = vm.status.get_or_insert_default();
    (status.phase, status.pod_name) = (Some(Phase::Running), "db-old".into());
    vm
}

fn reports(limits: &LimitsByDisk, iops_bind: bool) -> RunnerStatus {
    let status = |limits: &DiskLimits| DiskLimitStatus { limits: *limits, iops_bind, bandwidth_binds: false };
    let disk_limits = limits.iter().map(|(disk, limits)| (disk.clone(), status(limits))).collect();
    RunnerStatus { disk_limits, ..runner(500, 1) }
}

fn sees(vm: &VirtualMachine, runner: RunnerStatus) -> Observed {
    let pod = PodView { ready: true, ..running(pod(vm, "db-old")) };
    observed(Some(pod), seen(runner))
}

fn pass(vm: &mut VirtualMachine, observed: &Observed, now: i64) -> Outcome {
    let outcome = step(at(now), vm, observed, &settings());
    vm.status = Some(outcome.status.clone());
    outcome
}

fn asked(outcome: &Outcome) -> Vec<LimitsByDisk> {
    let requests = outcome.actions.iter().filter_map(|action| match action {
        Action::LimitDisks(limits) => Some(limits.clone()),
        _ => None,
    });
    requests.collect()
}

fn events(outcome: &Outcome) -> Vec<(&str, &str)> {
    let notes = outcome.events.iter().map(|note| (note.reason.as_str(), note.message.as_str()));
    notes.filter(|(reason, _)| reason.starts_with("Disk")).collect()
}

#[test]
fn limits_of_the_spec_go_to_the_runner_once_and_come_back_as_status() {
    let mut vm = limited(&iops(100));
    let none = sees(&vm, reports(&iops(50), false));
    assert_eq!(asked(&pass(&mut vm, &none, NOW)), [iops(100)]);
    assert_eq!(
        vm.status.as_ref().unwrap().disk_limits[0].iops,
        Some(50),
        "what is in force, not what is requested"
    );
    let sent = LimitsRequested { pod: "db-old".into(), limits: iops(100), at: at(NOW) };
    let waits = Observed { limits_requested: Some(sent.clone()), ..none };
    let outcome = pass(&mut vm, &waits, NOW + 1);
    assert_eq!(asked(&outcome), []);
    assert_eq!(outcome.wake_at, Some(at(NOW + settings().request_lifetime)));
    assert_eq!(asked(&pass(&mut vm, &waits, NOW + settings().request_lifetime)), [iops(100)]);
    let other = LimitsRequested { pod: "db-before".into(), ..sent };
    let other = Observed { limits_requested: Some(other), ..waits };
    assert_eq!(asked(&pass(&mut vm, &other, NOW + 1)), [iops(100)], "another runner");
    let done = sees(&vm, reports(&iops(100), false));
    assert_eq!(asked(&pass(&mut vm, &done, NOW + 2)), []);
    vm.spec.disk_limits.clear();
    assert_eq!(asked(&pass(&mut vm, &done, NOW + 3)), [LimitsByDisk::new()], "no limit is a request, too");
}

#[test]
fn nothing_is_requested_while_the_vm_moves_or_is_suspended() {
    let mut vm = limited(&iops(100));
    let suspend = Some(SuspendStatus { state: SuspendState::Suspended, ..SuspendStatus::default() });
    let asleep = sees(&vm, RunnerStatus { suspend, ..reports(&iops(50), false) });
    assert_eq!(asked(&pass(&mut vm, &asleep, NOW)), []);
    let mut vm = limited(&iops(100));
    let lock = ActiveMigration { name: "m".into(), uid: "m-1".into(), ..ActiveMigration::default() };
    vm.status.as_mut().unwrap().migration = Some(lock);
    let mut moves = sees(&vm, reports(&iops(50), false));
    moves.moving.mover = Some(Mover::default());
    assert_eq!(asked(&pass(&mut vm, &moves, NOW)), []);
}

#[test]
fn a_limit_that_binds_is_a_condition_with_one_event() {
    let mut vm = limited(&iops(100));
    let (within, binds) = (sees(&vm, reports(&iops(100), false)), sees(&vm, reports(&iops(100), true)));
    assert_eq!(events(&pass(&mut vm, &within, NOW)), []);
    let text = "disk rootdisk is held to its limit of 100 IOPS";
    assert_eq!(events(&pass(&mut vm, &binds, NOW)), [("DiskLimited", text)]);
    assert_eq!(events(&pass(&mut vm, &binds, NOW + 1)), []);
    let found = find(vm.status.as_ref().unwrap(), DISK_LIMITED).unwrap();
    assert_eq!(
        (found.status.as_str(), found.reason.as_str(), found.message.as_str()),
        ("True", "LimitBinds", text)
    );
    assert_eq!(
        events(&pass(&mut vm, &within, NOW + 2)),
        [("DiskNotLimited", "no limit of a disk binds any more")]
    );
    let free = sees(&vm, reports(&LimitsByDisk::new(), false));
    pass(&mut vm, &free, NOW + 3);
    let status = vm.status.as_ref().unwrap();
    assert!(find(status, DISK_LIMITED).is_none() && status.disk_limits.is_empty());
}

proptest! {
    /// Whatever the order of changes and reports: requests are never what is in force, and each change of what binds has one event.
    #[test]
    fn events_are_changes(steps in proptest::collection::vec((1_u32..4, any::<bool>(), any::<bool>()), 1..40)) {
        let mut vm = limited(&iops(1));
        let (mut in_force, mut bound) = (iops(1), String::new());
        for (now, (rate, obeys, binds)) in (NOW..).zip(steps) {
            vm.spec.disk_limits = vec![DiskLimit::new("rootdisk", &iops(rate)["rootdisk"])];
            let outcome = pass(&mut vm.clone(), &sees(&vm, reports(&in_force, binds)), now);
            vm.status = Some(outcome.status.clone());
            for request in asked(&outcome) {
                prop_assert!(request == iops(rate) && request != in_force);
                if obeys { in_force = request; }
            }
            let text = find(&outcome.status, DISK_LIMITED).map(|found| found.message.clone()).unwrap_or_default();
            prop_assert_eq!(events(&outcome).len(), usize::from(text != bound));
            bound = text;
        }
    }
}
