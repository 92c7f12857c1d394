//! A VM whose memory is in a file: what goes to the runner, what the status shows, what its pod requests.

use neonvm_api::VirtualMachine;
use neonvm_api::names::label;
use neonvm_api::virtual_machine::{ActiveMigration, Idle, Phase, PowerState, WakeOn};
use neonvm_core_vm_lifecycle::condition::{AVAILABLE, SCALED, SUSPENDED, find};
use neonvm_core_vm_lifecycle::growth::Denial;
use neonvm_core_vm_lifecycle::pod::PodSize;
use neonvm_core_vm_lifecycle::{
    Action, NodePolicy, Obstacle, Outcome, PodView, Resize, ResizeDenial, RunnerView, step,
};
use neonvm_types::runner_protocol::{
    ASLEEP, ExitReason, RunnerStatus, SuspendRequest, SuspendState, SuspendStatus, WokenBy,
};
use neonvm_types::{Bytes, MilliCpu};

use crate::machine::{at, pod, runner, running, seen, settings, vm};
use crate::observations::{ended, observed};

const NOW: i64 = 10_000;
const GENERATION: i64 = 5;

fn with(power: Option<PowerState>) -> VirtualMachine {
    let mut vm = vm();
    vm.metadata.generation = Some(GENERATION);
    vm.spec.power_state = power;
    let status = vm.status.get_or_insert_default();
    (status.phase, status.pod_name) = (Some(Phase::Running), "db-old".into());
    status.cpus = Some(MilliCpu::new(500));
    status.memory_size = Some(Bytes::gib(1).to_quantity());
    vm
}

fn idle(vm: &mut VirtualMachine, wake_on: &[WakeOn]) {
    vm.spec.idle = Some(Idle { suspend_after: "5m".parse().unwrap(), wake_on: wake_on.to_vec() });
}

fn reports(suspend: SuspendStatus) -> RunnerView {
    seen(RunnerStatus { suspend: Some(suspend), ..runner(500, 1) })
}

fn asleep(idle: bool) -> SuspendStatus {
    SuspendStatus {
        asked: true,
        idle,
        request: GENERATION,
        asks: true,
        state: SuspendState::Suspended,
        stored: Some(Bytes::mib(160)),
        stored_in_ms: Some(400),
        ..SuspendStatus::default()
    }
}

fn woken() -> SuspendStatus {
    SuspendStatus {
        request: GENERATION,
        asks: true,
        wakes: 1,
        woken_by: Some(WokenBy::Network),
        woke_in_ms: Some(230),
        ..SuspendStatus::default()
    }
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

fn events(outcome: &Outcome) -> Vec<String> {
    outcome.events.iter().map(|note| format!("{}: {}", note.reason.as_str(), note.message)).collect()
}

/// Requests to the runner and changes of the spec.
fn orders(outcome: &Outcome) -> Vec<Action> {
    let is = |action: &&Action| matches!(action, Action::SetSuspended(_) | Action::Amend { .. });
    outcome.actions.iter().filter(is).cloned().collect()
}

fn request(suspended: bool, minutes: Option<u64>) -> Action {
    let idle_after_ms = minutes.map(|minutes| minutes * 60_000);
    Action::SetSuspended(SuspendRequest {
        suspended,
        request: GENERATION,
        idle_after_ms,
        asks: true,
        ..SuspendRequest::default()
    })
}

fn runs() -> Action {
    let spec = serde_json::json!({ "powerState": "Running" });
    Action::Amend { spec: spec.as_object().cloned().unwrap() }
}

#[test]
fn a_vm_is_suspended_and_a_packet_makes_it_run_for_good() {
    let mut vm = with(None);
    assert_eq!(orders(&pass(&mut vm, seen(runner(500, 1)))), []);
    vm.spec.power_state = Some(PowerState::Suspended);
    let asked = pass(&mut vm, seen(runner(500, 1)));
    assert_eq!(orders(&asked), [request(true, None)]);
    let waits = SuspendStatus { asked: true, asks: true, request: GENERATION, ..SuspendStatus::default() };
    let denied = SuspendStatus { denied: Some("PostgreSQL is not idle".into()), ..waits.clone() };
    let busy = pass(&mut vm, reports(denied));
    assert_eq!((orders(&busy), shown(&busy, SUSPENDED).as_str()), (vec![], "False GuestBusy"));
    let storing = SuspendStatus { state: SuspendState::Suspending, ..waits };
    assert_eq!(shown(&pass(&mut vm, reports(storing)), SUSPENDED), "False Suspending");

    let still = pass(&mut vm, reports(asleep(false)));
    assert_eq!(events(&still), ["Suspended: as requested; 160 MiB of memory were stored in 400 ms"]);
    assert_eq!(
        (still.status.phase, still.status.power_state),
        (Some(Phase::Suspended), Some(PowerState::Suspended))
    );
    assert_eq!(
        (shown(&still, SUSPENDED).as_str(), shown(&still, AVAILABLE).as_str()),
        ("True Requested", "True Suspended")
    );
    let still = pass(&mut vm, reports(asleep(false)));
    assert_eq!((orders(&still), events(&still)), (vec![], vec![]));

    let awake = pass(&mut vm, reports(woken()));
    assert_eq!(events(&awake), ["Woken: by a packet in 230 ms"]);
    assert_eq!((orders(&awake), awake.status.phase), (vec![runs()], Some(Phase::Running)));
    // The change was lost, and the object has another generation meanwhile: it is made again, and the VM is not suspended again.
    vm.metadata.generation = Some(GENERATION + 1);
    let awake = pass(&mut vm, reports(woken()));
    assert_eq!((orders(&awake), events(&awake)), (vec![runs()], vec![]));
    vm.spec.power_state = Some(PowerState::Running);
    let runs = pass(&mut vm, reports(woken()));
    assert_eq!((orders(&runs), runs.status.power_state), (vec![], None));
}

#[test]
fn a_request_that_a_packet_has_cancelled_is_withdrawn() {
    let mut vm = with(Some(PowerState::Suspended));
    let cancelled = SuspendStatus { request: GENERATION, asks: true, ..SuspendStatus::default() };
    assert_eq!(orders(&pass(&mut vm, reports(cancelled))), [runs()]);
}

#[test]
fn a_vm_that_is_to_run_is_woken_by_request() {
    let mut vm = with(Some(PowerState::Suspended));
    pass(&mut vm, reports(asleep(false)));
    vm.spec.power_state = Some(PowerState::Running);
    assert_eq!(orders(&pass(&mut vm, reports(asleep(false)))), [request(false, None)]);
}

#[test]
fn a_vm_that_sleeps_because_it_was_idle_sleeps_on() {
    let mut vm = with(None);
    idle(&mut vm, &[WakeOn::Network]);
    assert_eq!(orders(&pass(&mut vm, seen(runner(500, 1)))), [request(false, Some(5))]);
    let five = |suspend: SuspendStatus| SuspendStatus { idle_after_ms: Some(300_000), ..suspend };
    let awake = pass(&mut vm, reports(five(SuspendStatus { asks: true, ..SuspendStatus::default() })));
    assert_eq!((orders(&awake), shown(&awake, SUSPENDED).as_str()), (vec![], "False Awake"));
    let still = pass(&mut vm, reports(five(asleep(true))));
    assert_eq!((orders(&still), shown(&still, SUSPENDED).as_str()), (vec![], "True Idle"));
    let again = pass(&mut vm, reports(five(woken())));
    assert_eq!((orders(&again), again.status.phase), (vec![], Some(Phase::Running)));

    // Packets that do not wake it, and a policy that is gone.
    idle(&mut vm, &[]);
    let deaf = SuspendRequest {
        request: GENERATION,
        idle_after_ms: Some(300_000),
        deaf: true,
        asks: true,
        ..SuspendRequest::default()
    };
    assert_eq!(orders(&pass(&mut vm, reports(five(asleep(true))))), [Action::SetSuspended(deaf)]);
    vm.spec.idle = None;
    assert_eq!(orders(&pass(&mut vm, reports(five(asleep(true))))), [request(false, None)]);
}

#[test]
fn a_vm_that_is_migrated_is_awake() {
    let mut vm = with(None);
    idle(&mut vm, &[WakeOn::Network]);
    let five = SuspendStatus { idle_after_ms: Some(300_000), ..asleep(true) };
    pass(&mut vm, reports(five.clone()));
    vm.status.as_mut().unwrap().migration =
        Some(ActiveMigration { name: "m".into(), ..ActiveMigration::default() });
    let outcome = pass(&mut vm, reports(five));
    let runs = SuspendRequest { request: GENERATION, ..SuspendRequest::default() };
    assert!(orders(&outcome).contains(&Action::SetSuspended(runs)), "{:?}", outcome.actions);
}

#[test]
fn the_end_of_a_suspended_vm_states_that_its_memory_is_lost() {
    let mut vm = with(Some(PowerState::Suspended));
    pass(&mut vm, reports(asleep(false)));
    let killed = || Some(ended(pod(&vm, "db-old"), ExitReason::RunnerKilled));
    let stopped = Some(ended(pod(&vm, "db-old"), ExitReason::Stopped));
    // Its pod has ended, or is gone with its node; one that has shut down was woken for that.
    for (pod, lost) in [(killed(), true), (None, true), (stopped, false)] {
        let outcome = step(at(NOW), &vm, &observed(pod, RunnerView::Unknown), &settings());
        let words = "it was suspended, and its stored memory is lost";
        let last = outcome.status.last_exit.as_ref().unwrap();
        assert_eq!(last.message.ends_with(words), lost, "{}", last.message);
        assert_eq!(events(&outcome).iter().any(|event| event.ends_with(words)), lost, "{:?}", outcome.events);
        assert_eq!((outcome.status.power_state, find(&outcome.status, SUSPENDED)), (None, None));
    }
}

#[test]
fn the_pod_of_a_suspended_vm_requests_little_and_may_use_what_it_did() {
    let mut vm = with(Some(PowerState::Suspended));
    let outcome = pass(&mut vm, reports(asleep(false)));
    let sizes = outcome.actions.iter().find_map(|action| match action {
        Action::ResizePod { size, .. } => Some(*size),
        _ => None,
    });
    let written = running(pod(&vm, "db-old")).size;
    match (written, sizes) {
        (Some(written), Some(size)) => {
            assert_eq!(size.limits, written.limits);
            assert_eq!((size.requests.memory, size.requests.cpu), (Bytes::mib(32), MilliCpu::new(10)));
        }
        (written, size) => panic!("{written:?} {size:?}"),
    }
}

/// A packet has arrived for a VM that slept; its pod, which requests next to nothing, gets this answer of the kubelet.
fn needed(vm: &mut VirtualMachine, answer: impl Fn(PodView) -> PodView) -> Outcome {
    let waits = SuspendStatus { asked: false, ..asleep(false) };
    let whole = running(pod(vm, "db-old")).size.unwrap();
    let small = PodSize { requests: ASLEEP, ..whole };
    let pod = PodView { ready: true, size: Some(small), ..running(pod(vm, "db-old")) };
    let outcome = step(at(NOW), vm, &observed(Some(answer(pod)), reports(waits)), &settings());
    vm.status = Some(outcome.status.clone());
    outcome
}

fn answers(outcome: &Outcome) -> Vec<bool> {
    let room = outcome.actions.iter().filter_map(|action| match action {
        Action::SetSuspended(SuspendRequest { suspended: false, room: Some(room), .. }) => Some(room.granted),
        _ => None,
    });
    room.collect()
}

#[test]
fn a_suspended_vm_wakes_when_its_node_gives_its_room_back() {
    let mut vm = with(Some(PowerState::Suspended));
    pass(&mut vm, reports(asleep(false)));
    let whole = running(pod(&vm, "db-old")).size.unwrap();
    let asks = needed(&mut vm, |pod| pod);
    let resized = Action::ResizePod { name: "db-old".into(), uid: pod(&vm, "db-old").uid, size: whole };
    assert!(asks.actions.contains(&resized) && answers(&asks).is_empty(), "{:?}", asks.actions);
    assert_eq!(shown(&asks, SUSPENDED), "True Waking");
    let unseen = needed(&mut vm, |pod| PodView { size: Some(whole), current: false, ..pod });
    assert!(answers(&unseen).is_empty());
    let granted = needed(&mut vm, |pod| PodView { size: Some(whole), ..pod });
    assert_eq!(answers(&granted), [true]);
}

#[test]
fn a_suspended_vm_without_room_waits_and_may_be_migrated() {
    let mut vm = with(Some(PowerState::Suspended));
    vm.metadata.labels = Some([(label::AUTO_MIGRATION_ENABLED.to_owned(), "true".to_owned())].into());
    let status = vm.status.as_mut().unwrap();
    status.node = "node-1".into();
    pass(&mut vm, reports(asleep(false)));
    let whole = running(pod(&vm, "db-old")).size.unwrap();
    let denied = |obstacle, message: &str| {
        let denial = ResizeDenial { obstacle, message: message.into(), since: None };
        move |pod| PodView { size: Some(whole), resize: Resize::Denied(denial.clone()), ..pod }
    };
    let full = || denied(Obstacle::NoRoom, "Node didn't have enough resource: memory");
    let outcome = needed(&mut vm, full());
    assert_eq!((answers(&outcome), shown(&outcome, SUSPENDED).as_str()), (vec![false], "True NoRoom"));
    assert_eq!(outcome.events.len(), 1, "{:?}", outcome.events);
    assert!(events(&outcome)[0].contains("Node didn't have enough resource"), "{:?}", outcome.events);
    assert_eq!(
        (shown(&outcome, SCALED).as_str(), shown(&outcome, AVAILABLE).as_str()),
        ("False ResizeDeferred", "True Suspended")
    );
    assert_eq!(needed(&mut vm, full()).events, [], "one event for one refusal");
    assert!(Denial::from_vm(&vm).is_some_and(|denial| denial.lasting), "nothing is waited for");
    // What is no lack of room does not keep it from waking.
    for obstacle in [Obstacle::DevicesAway, Obstacle::Policy(NodePolicy::Swap), Obstacle::Unknown] {
        assert_eq!(answers(&needed(&mut vm, denied(obstacle, "why"))), [true], "{obstacle:?}");
    }
}
