//! Disks on claims that grow while the VM runs: what goes to the runner, what the status shows.

use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::{ActiveMigration, Phase, PowerState, VolumeStatus};
use neonvm_core_vm_lifecycle::claims::ClaimView;
use neonvm_core_vm_lifecycle::{Action, DiskRequested, Mover, Observed, Outcome, PodView, step};
use neonvm_types::Bytes;
use neonvm_types::runner_protocol::{
    DiskRequest, PauseStatus, Problem, ProblemReason, RunnerState, RunnerStatus,
};
use proptest::prelude::*;

use crate::machine::{at, pod, runner, running, seen, settings, vm};
use crate::observations::observed;

const NOW: i64 = 10_000;

/// A VM whose disk `data` is on the claim `data-db`, and `old`, which is not written, on `archive`.
fn with_disks() -> VirtualMachine {
    let mut vm = vm();
    let status = vm.status.get_or_insert_default();
    (status.phase, status.pod_name) = (Some(Phase::Running), "db-old".into());
    let volume = |name: &str, claim: &str| VolumeStatus {
        name: name.into(),
        claim_name: claim.into(),
        ..VolumeStatus::default()
    };
    let old = VolumeStatus { read_only: true, ..volume("old", "archive") };
    status.volumes = vec![volume("data", "data-db"), old];
    vm
}

fn reports(gib: u32) -> RunnerStatus {
    RunnerStatus { disks: [("data".into(), Bytes::gib(gib))].into(), ..runner(500, 1) }
}

fn sees(vm: &VirtualMachine, runner: RunnerStatus, claim: u32) -> Observed {
    let pod = PodView { ready: true, ..running(pod(vm, "db-old")) };
    let claims = [("data-db", claim), ("archive", 9)].map(|(name, gib)| ClaimView {
        name: name.into(),
        size: Bytes::gib(gib),
        ..ClaimView::default()
    });
    Observed { claims: claims.into(), ..observed(Some(pod), seen(runner)) }
}

fn pass(vm: &mut VirtualMachine, observed: &Observed, now: i64) -> Outcome {
    let outcome = step(at(now), vm, observed, &settings());
    vm.status = Some(outcome.status.clone());
    outcome
}

fn asked(outcome: &Outcome) -> Vec<DiskRequest> {
    let requests = outcome.actions.iter().filter_map(|action| match action {
        Action::GrowDisk(request) => Some(request.clone()),
        _ => None,
    });
    requests.collect()
}

fn to(gib: u32) -> DiskRequest {
    DiskRequest { disk: "data".into(), size: Bytes::gib(gib) }
}

fn sent(gib: u32, when: i64) -> Vec<DiskRequested> {
    vec![DiskRequested { pod: "db-old".into(), request: to(gib), at: at(when) }]
}

fn grown(outcome: &Outcome) -> Vec<&str> {
    let notes = outcome.events.iter().filter(|note| note.reason.as_str() == "DiskGrown");
    notes.map(|note| note.message.as_str()).collect()
}

fn shown(vm: &VirtualMachine) -> Option<String> {
    vm.status.as_ref()?.volumes[0].size.map(|size| size.to_string())
}

#[test]
fn a_claim_that_has_grown_goes_to_the_runner_and_is_reported_once() {
    let mut vm = with_disks();
    let first = sees(&vm, reports(1), 1);
    let outcome = pass(&mut vm, &first, NOW);
    assert_eq!((asked(&outcome), grown(&outcome).len()), (vec![], 0), "the first report is no growth");
    assert_eq!(shown(&vm).as_deref(), Some("1Gi"));
    assert_eq!(vm.status.as_ref().unwrap().volumes[1].size, None, "what is not written is not reported");

    let larger = sees(&vm, reports(1), 2);
    assert_eq!(asked(&pass(&mut vm, &larger, NOW)), [to(2)]);
    let waits = Observed { disks_requested: sent(2, NOW), ..larger.clone() };
    let outcome = pass(&mut vm, &waits, NOW + 1);
    assert_eq!((asked(&outcome), grown(&outcome).len()), (vec![], 0), "it is under way");
    assert_eq!(outcome.wake_at, Some(at(NOW + settings().request_lifetime)), "it is requested again then");
    assert_eq!(asked(&pass(&mut vm, &waits, NOW + settings().request_lifetime)), [to(2)]);

    let done = Observed { disks_requested: sent(2, NOW), ..sees(&vm, reports(2), 2) };
    let outcome = pass(&mut vm, &done, NOW + 2);
    assert_eq!(grown(&outcome), ["disk data: from 1Gi to 2Gi, the size of claim data-db"]);
    assert_eq!((asked(&outcome), shown(&vm).as_deref()), (vec![], Some("2Gi")));
    let outcome = pass(&mut vm, &done, NOW + 3);
    assert_eq!((asked(&outcome), grown(&outcome).len()), (vec![], 0), "it is reported once");
}

#[test]
fn another_size_and_another_pod_are_requested_at_once() {
    let mut vm = with_disks();
    let larger = sees(&vm, reports(1), 3);
    let before = Observed { disks_requested: sent(2, NOW), ..larger.clone() };
    assert_eq!(asked(&pass(&mut vm, &before, NOW + 1)), [to(3)]);
    let mut other = sent(3, NOW);
    other[0].pod = "db-before".into();
    let other = Observed { disks_requested: other, ..larger };
    assert_eq!(asked(&pass(&mut vm, &other, NOW + 1)), [to(3)]);
}

#[test]
fn nothing_is_requested_of_a_runner_that_cannot_or_may_not_grow_it_now() {
    let older = RunnerStatus { disks: [].into(), ..reports(1) };
    let paused = RunnerStatus { pause: PauseStatus { asked: true, applied: true }, ..reports(1) };
    let booting = RunnerStatus { state: RunnerState::Booting, ready: false, ..reports(1) };
    for runner in [older, paused, booting] {
        let mut vm = with_disks();
        vm.spec.power_state = runner.pause.applied.then_some(PowerState::Paused);
        let observed = sees(&vm, runner.clone(), 2);
        assert_eq!(asked(&pass(&mut vm, &observed, NOW)), [], "{runner:?}");
    }
    let mut vm = with_disks();
    let lock = ActiveMigration { name: "m".into(), uid: "m-1".into(), ..ActiveMigration::default() };
    vm.status.as_mut().unwrap().migration = Some(lock);
    let mut observed = sees(&vm, reports(1), 2);
    observed.moving.mover = Some(Mover::default());
    assert_eq!(asked(&pass(&mut vm, &observed, NOW)), [], "it is being migrated");
}

#[test]
fn a_runner_without_the_list_leaves_no_size_and_a_smaller_one_is_no_growth() {
    let mut vm = with_disks();
    let observed = sees(&vm, reports(2), 2);
    pass(&mut vm, &observed, NOW);
    let observed = sees(&vm, reports(1), 1);
    assert_eq!(grown(&pass(&mut vm, &observed, NOW)).len(), 0);
    assert_eq!(shown(&vm).as_deref(), Some("1Gi"));
    let observed = sees(&vm, runner(500, 1), 1);
    pass(&mut vm, &observed, NOW);
    assert_eq!(shown(&vm), None);
}

#[test]
fn what_the_runner_cannot_do_is_shown() {
    let mut vm = with_disks();
    let message = "disk data: QEMU refuses".to_owned();
    let problems = vec![Problem { reason: ProblemReason::DiskNotGrown, message }];
    let observed =
        Observed { disks_requested: sent(2, NOW), ..sees(&vm, RunnerStatus { problems, ..reports(1) }, 2) };
    let outcome = pass(&mut vm, &observed, NOW + 1);
    let degraded = outcome.status.conditions.iter().find(|one| one.type_ == "Degraded").unwrap();
    assert_eq!(
        (degraded.reason.as_str(), degraded.message.as_str()),
        ("DiskNotGrown", "disk data: QEMU refuses")
    );
    assert_eq!(asked(&outcome), [], "not in a loop");
}

proptest! {
    /// Whatever the order of reports and expansions: each growth that is seen has one event, and the sum of them is the whole.
    #[test]
    fn events_and_growths_are_equal_in_number(steps in proptest::collection::vec((any::<bool>(), 0_u32..3), 1..40)) {
        let mut vm = with_disks();
        let (mut claim, mut has, mut last, mut events) = (1, 1, None, 0);
        let (mut growths, mut sent) = (0, Vec::new());
        for (now, (grows, by)) in (NOW..).zip(steps) {
            if grows { has = claim } else { claim += by }
            let observed = Observed { disks_requested: sent.clone(), ..sees(&vm, reports(has), claim) };
            let outcome = pass(&mut vm, &observed, now);
            for request in asked(&outcome) {
                prop_assert!(request.size > Bytes::gib(has) && request.size == Bytes::gib(claim));
                prop_assert!(!sent.iter().any(|one: &DiskRequested| one.request == request), "not twice within a minute");
                sent = vec![DiskRequested { pod: "db-old".into(), request, at: at(now) }];
            }
            events += grown(&outcome).len();
            growths += usize::from(last.is_some_and(|last| last < has));
            last = Some(has);
        }
        prop_assert_eq!(events, growths);
    }
}

/// A freeze that no client ended is one event, also for a controller that was started again; a new runner begins with none.
#[test]
fn a_freeze_that_the_guest_has_ended_is_reported_once() {
    let mut vm = with_disks();
    let expired = |count| RunnerStatus { freezes_expired: count, ..reports(1) };
    let notes = |vm: &mut VirtualMachine, count| {
        let observed = sees(vm, expired(count), 1);
        let outcome = pass(vm, &observed, NOW);
        outcome.events.iter().filter(|note| note.reason.as_str() == "FreezeExpired").count()
    };
    assert_eq!(notes(&mut vm, 0), 0);
    assert_eq!(notes(&mut vm, 1), 1);
    assert_eq!(vm.status.as_ref().unwrap().freezes_expired, 1);
    assert_eq!(notes(&mut vm, 1), 0);
    assert_eq!(notes(&mut vm, 0), 0, "another runner");
    assert_eq!(notes(&mut vm, 1), 1);
}
