//! The size of the pod follows that of the VM: a kubelet that accepts, defers and refuses, watches that lag, and a controller that dies
//! between any two writes.

use neonvm_api::VirtualMachine;
use neonvm_api::names::label;
use neonvm_api::virtual_machine::Phase;
use neonvm_core_vm_lifecycle::growth::Denial;
use neonvm_core_vm_lifecycle::pod::{PodSize, size};
use neonvm_core_vm_lifecycle::{
    Action, Observed, Obstacle, PodView, Resize, ResizeDenial, ResizeRefused, SizeUnanswered, condition, step,
};
use neonvm_types::runner_protocol::{Problem, ProblemReason, RunnerStatus, SizeRequest};
use neonvm_types::{Bytes, MilliCpu};
use proptest::prelude::*;

use crate::machine::{at, pod, runner, running, seen, settings, vm};

const FULL: &str = "Node didn't have enough resource: cpu, requested: 1020, used: 3500, capacity: 4000";
const SMALL: &str = "Node didn't have enough capacity: cpu, requested: 4100, capacity: 4000";
const AWAY: &str = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices neonvm/kvm, which is \
                    unexpected";

#[derive(Clone, Copy, Debug)]
enum Turn {
    /// The spec requests so many quarters of a CPU and slots.
    Use(u32, u16),
    /// The controller dies after so many writes.
    Work(usize),
    /// The controller is started again: it reads all, and remembers nothing.
    Restart,
    /// The watch of pods, or the stream of the runner, brings what is newest.
    PodSeen,
    RunnerSeen,
    Accepts,
    Defers,
    Infeasible,
    Away,
    /// The API server refuses, or no longer.
    Refuses(bool),
    /// The guest takes or gives a step.
    Guest,
    /// It gives nothing back.
    Keeps(bool),
    /// The next request to the runner arrives late, and gets no response.
    Delays,
    /// Such a request arrives.
    Arrives,
    Wait(i64),
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        3 => (1u32..=8, 1u16..=4).prop_map(|(quarters, slots)| Turn::Use(quarters, slots)),
        8 => (0usize..5).prop_map(Turn::Work),
        4 => Just(Turn::Work(9)),
        1 => Just(Turn::Restart),
        4 => Just(Turn::PodSeen),
        4 => Just(Turn::RunnerSeen),
        5 => Just(Turn::Accepts),
        2 => Just(Turn::Defers),
        1 => Just(Turn::Infeasible),
        2 => Just(Turn::Away),
        1 => any::<bool>().prop_map(Turn::Refuses),
        6 => Just(Turn::Guest),
        1 => any::<bool>().prop_map(Turn::Keeps),
        1 => Just(Turn::Delays),
        2 => Just(Turn::Arrives),
        1 => (0i64..90).prop_map(Turn::Wait),
    ]
}

struct World {
    now: i64,
    vm: VirtualMachine,
    pod: PodView,
    pod_seen: PodView,
    runner: RunnerStatus,
    runner_seen: RunnerStatus,
    refused: Option<ResizeRefused>,
    /// Whether the next request to the runner is late, and those that are, with the time they were sent.
    delays: bool,
    late: Vec<(i64, SizeRequest)>,
    unanswered: Option<SizeUnanswered>,
    /// A late request has arrived: the runner reports that by its stream within the second.
    unreported: bool,
    refuses: bool,
    keeps: bool,
    resizes: usize,
}

impl World {
    fn new() -> Self {
        let mut vm = vm();
        let status = vm.status.get_or_insert_default();
        (status.phase, status.pod_name) = (Some(Phase::Running), "db-1".into());
        let pod = running(pod(&vm, "db-1"));
        let runner = runner(500, 1);
        Self {
            now: 1000,
            vm,
            pod_seen: pod.clone(),
            pod,
            runner_seen: runner.clone(),
            runner,
            refused: None,
            delays: false,
            late: Vec::new(),
            unanswered: None,
            unreported: false,
            refuses: false,
            keeps: false,
            resizes: 0,
        }
    }

    fn needed(&self, guest: SizeRequest) -> PodSize {
        size(&self.vm, guest, false, &settings())
    }

    /// No law is ever broken, whatever has happened.
    fn check(&self) {
        let asked = SizeRequest { cpu: self.runner.cpu.asked, memory: self.runner.memory.asked };
        let has = SizeRequest { cpu: self.runner.cpu.applied, memory: self.runner.memory.actual };
        let Some(applied) = self.pod.applied.map(|applied| applied.limits) else { return };
        for (what, guest) in [("is asked for", asked), ("has", has)] {
            let needed = self.needed(guest).limits;
            assert!(
                needed.cpu <= applied.cpu && needed.memory <= applied.memory,
                "the guest {what} {guest:?}, which needs {needed:?} of {applied:?}"
            );
        }
    }

    fn work(&mut self, mut writes: usize) {
        for _ in 0..9 {
            let observed = Observed {
                fresh: true,
                pod: Some(self.pod_seen.clone()),
                runner: seen(self.runner_seen.clone()),
                resize_refused: self.refused.clone(),
                size_unanswered: self.unanswered.clone(),
                ..Observed::default()
            };
            let outcome = step(at(self.now), &self.vm, &observed, &settings());
            let idle = self.vm.status.as_ref() == Some(&outcome.status);
            self.vm.status = Some(outcome.status);
            let mut acted = false;
            for action in outcome.actions {
                if writes == 0 {
                    return;
                }
                writes -= 1;
                acted |= self.act(&action);
                self.check();
            }
            if idle && !acted {
                return;
            }
        }
    }

    fn act(&mut self, action: &Action) -> bool {
        match action {
            Action::SetSize(size) if std::mem::take(&mut self.delays) => {
                self.late.push((self.now, *size));
                let before = self.unanswered.take();
                self.unanswered = Some(SizeUnanswered::next(before, "db-1", *size, at(self.now)));
                return false;
            }
            Action::SetSize(size) => {
                (self.runner.cpu.asked, self.runner.memory.asked) = (size.cpu, size.memory);
                self.runner.cpu.applied = size.cpu;
                self.runner_seen = self.runner.clone();
            }
            Action::ResizePod { name, uid, size } => {
                assert_eq!((name.as_str(), uid.as_str()), ("db-1", "uid-db-1"));
                self.resizes += 1;
                if self.refuses {
                    let message = "node \"n1\" has no such room".to_owned();
                    let at = at(self.now);
                    self.refused = Some(ResizeRefused { pod: uid.clone(), size: *size, message, at });
                    return true;
                }
                assert_ne!(self.pod.size, Some(*size), "nothing is written twice");
                (self.pod.size, self.pod.current, self.pod.resize) = (Some(*size), false, Resize::None);
                self.pod_seen = self.pod.clone();
            }
            _ => return false,
        }
        true
    }

    /// The oldest request that was late reaches the runner, if its connection still lives.
    fn arrives(&mut self) {
        self.late.retain(|(sent, _)| self.now - sent < settings().request_lifetime);
        if self.late.is_empty() {
            return;
        }
        let (_, size) = self.late.remove(0);
        (self.runner.cpu.asked, self.runner.memory.asked) = (size.cpu, size.memory);
        self.runner.cpu.applied = size.cpu;
        self.unreported = true;
        self.check();
    }

    fn kubelet(&mut self, resize: Resize) {
        self.pod.current = true;
        if self.pod.applied != self.pod.size {
            if resize == Resize::None {
                self.pod.applied = self.pod.size;
            }
            self.pod.resize = resize;
        } else {
            self.pod.resize = Resize::None;
        }
        self.check();
    }

    /// As a kubelet: it looks at a pod when its resources have changed, and an old denial stays what it was.
    fn denies(&mut self, message: &str) {
        if self.pod.current {
            return;
        }
        let (obstacle, since) = (Obstacle::from_message(message), Some(at(self.now)));
        self.kubelet(Resize::Denied(ResizeDenial { obstacle, message: message.to_owned(), since }));
    }

    fn guest(&mut self) {
        let (asked, actual) = (self.runner.memory.asked, &mut self.runner.memory.actual);
        if asked > *actual {
            *actual = actual.saturating_add(Bytes::gib(1));
        } else if asked < *actual && !self.keeps {
            *actual = actual.saturating_sub(Bytes::gib(1));
        }
        let stuck = asked < *actual && self.keeps;
        let reason = ProblemReason::MemoryNotReleased;
        self.runner.problems =
            stuck.then(|| Problem { reason, message: "it keeps it".into() }).into_iter().collect();
        self.check();
    }

    fn turn(&mut self, turn: Turn) {
        match turn {
            Turn::Use(quarters, slots) => {
                self.vm.spec.guest.cpus.r#use = MilliCpu::new(quarters * 250);
                self.vm.spec.guest.memory_slots.r#use = slots;
                self.vm.metadata.generation = self.vm.metadata.generation.map(|number| number + 1);
            }
            Turn::Work(writes) => self.work(writes),
            Turn::Restart => {
                self.refused = None;
                // Its connections have ended with it.
                (self.late, self.unanswered) = (Vec::new(), None);
                (self.pod_seen, self.runner_seen) = (self.pod.clone(), self.runner.clone());
            }
            Turn::Delays => self.delays = true,
            Turn::Arrives => self.arrives(),
            Turn::PodSeen => self.pod_seen = self.pod.clone(),
            Turn::RunnerSeen => self.runner_seen = self.runner.clone(),
            Turn::Accepts => self.kubelet(Resize::None),
            Turn::Defers => self.denies(FULL),
            Turn::Infeasible => self.denies(SMALL),
            Turn::Away => self.denies(AWAY),
            Turn::Refuses(refuses) => self.refuses = refuses,
            Turn::Guest => self.guest(),
            Turn::Keeps(keeps) => self.keeps = keeps,
            Turn::Wait(seconds) => {
                self.now += seconds;
                if seconds > 0 && std::mem::take(&mut self.unreported) {
                    self.runner_seen = self.runner.clone();
                }
            }
        }
    }

    /// One round in which each component acts once.
    fn round(&mut self, kubelet: Turn) {
        for turn in [Turn::PodSeen, Turn::RunnerSeen, Turn::Work(99), kubelet, Turn::Guest] {
            self.turn(turn);
        }
    }

    fn scaled(&self) -> (String, String, String) {
        let scaled = condition::find(self.vm.status.as_ref().unwrap(), condition::SCALED).unwrap().clone();
        (scaled.status, scaled.reason, scaled.message)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// Never more in the guest than its pod has, never less in the pod than its guest has; and with a kubelet that
    /// accepts all requests the size is as in the spec, and no action remains.
    #[test]
    fn the_pod_is_never_smaller_than_its_guest_and_both_converge(turns in prop::collection::vec(turn(), 0..80)) {
        let mut world = World::new();
        for turn in turns {
            world.turn(turn);
        }
        (world.refuses, world.keeps) = (false, false);
        for _ in 0..12 {
            world.round(Turn::Accepts);
            world.turn(Turn::Wait(61));
        }
        let guest = &world.vm.spec.guest;
        let wanted = SizeRequest { cpu: guest.cpus.r#use, memory: guest.memory_use().unwrap() };
        prop_assert_eq!(world.runner.memory.actual, wanted.memory);
        prop_assert_eq!(world.runner.cpu.asked, wanted.cpu);
        prop_assert_eq!(world.pod.applied, Some(world.needed(wanted)));
        prop_assert_eq!(world.scaled().1, "Reached");
        let before = (world.resizes, world.vm.status.clone());
        world.round(Turn::Accepts);
        prop_assert_eq!(before, (world.resizes, world.vm.status.clone()));
    }
}

/// A node without room denies once, with its reason, and the request is not repeated needlessly; with room the resize
/// continues without another one.
#[test]
fn a_node_without_room_is_a_denial_with_a_reason() {
    for (kubelet, reason, words) in [
        (Turn::Defers, "ResizeDeferred", "capacity: 4000; make room on the node, or migrate the VM"),
        (Turn::Infeasible, "ResizeInfeasible", "denied by node n1: Node didn't have enough capacity: cpu"),
    ] {
        let mut world = World::new();
        world.turn(Turn::Use(4, 4));
        for _ in 0..20 {
            world.round(kubelet);
            world.turn(Turn::Wait(30));
        }
        let (status, word, message) = world.scaled();
        assert_eq!((status.as_str(), word.as_str()), ("False", reason));
        assert!(message.starts_with("1 CPU and 4Gi of memory: ") && message.contains(words), "{message}");
        assert_eq!(world.resizes, 1, "a kubelet tries again by itself");
        assert_eq!(world.runner.memory.asked, Bytes::gib(1));
        let status = world.vm.status.as_ref().unwrap();
        assert_eq!(status.phase, Some(Phase::Running), "it is not stuck on its way");
        assert_eq!(status.memory_size, Some(Bytes::gib(1).to_quantity()));
        for _ in 0..6 {
            world.round(Turn::Accepts);
        }
        assert_eq!((world.scaled().1.as_str(), world.resizes), ("Reached", 1));
        assert_eq!(world.runner.memory.actual, Bytes::gib(4));
    }
}

/// A resize that the API server refuses is requested again once a minute, and dropped at once when the spec no longer
/// needs it.
#[test]
fn a_refused_resize_is_a_denial_and_is_rarely_repeated() {
    let mut world = World::new();
    world.turn(Turn::Use(8, 4));
    world.turn(Turn::Refuses(true));
    for _ in 0..60 {
        world.round(Turn::Accepts);
        world.turn(Turn::Wait(10));
    }
    let (_, reason, message) = world.scaled();
    assert_eq!(reason, "ResizeRefused");
    assert!(message.contains("denied for node n1: node \"n1\" has no such room"), "{message}");
    assert!((2..=11).contains(&world.resizes), "{}", world.resizes);
    world.turn(Turn::Use(2, 1));
    world.round(Turn::Accepts);
    assert_eq!(world.scaled().1, "Reached");
}

/// A kubelet that never responds: waited for, then reported.
#[test]
fn a_node_that_does_not_answer_is_reported() {
    let mut world = World::new();
    world.turn(Turn::Use(8, 4));
    world.round(Turn::PodSeen);
    assert_eq!(world.scaled().1, "InProgress");
    assert!(world.scaled().2.ends_with("; waits for node n1 to resize pod db-1"), "{}", world.scaled().2);
    for _ in 0..4 {
        world.turn(Turn::Wait(20));
        world.round(Turn::PodSeen);
    }
    assert_eq!(world.scaled().1, "ResizeUnanswered");
    assert_eq!(world.vm.status.as_ref().unwrap().phase, Some(Phase::Running));
}

/// During a migration the limit of CPU is lifted and nothing else changes; afterwards it is the VM's again.
#[test]
fn a_migration_lifts_the_limit_of_cpu_alone() {
    let vm = vm();
    let guest = SizeRequest { cpu: MilliCpu::new(250), memory: Bytes::gib(2) };
    let (still, moving) = (size(&vm, guest, false, &settings()), size(&vm, guest, true, &settings()));
    assert_eq!((still.limits.cpu, moving.limits.cpu), (MilliCpu::new(350), MilliCpu::new(2350)));
    assert_eq!((still.requests, still.limits.memory), (moving.requests, moving.limits.memory));
}

/// Pods without a size from an older release do not limit their VMs' sizes, and the status reports that.
#[test]
fn a_pod_without_size_is_reported_and_delays_nothing() {
    let mut world = World::new();
    (world.pod.size, world.pod.applied) = (None, None);
    world.turn(Turn::PodSeen);
    world.turn(Turn::Use(8, 4));
    world.turn(Turn::Work(99));
    assert_eq!((world.runner.memory.asked, world.resizes), (Bytes::gib(4), 0));
    let sized = condition::find(world.vm.status.as_ref().unwrap(), condition::POD_SIZED).unwrap();
    assert_eq!((sized.status.as_str(), sized.reason.as_str()), ("False", "MadeWithoutSize"));
}

/// While the devices of a node are away no VM there can grow; the request is repeated in a form that the kubelet looks at, and the
/// growth comes soon after the devices are back. Until then the reason is the same one.
#[test]
fn a_growth_goes_on_when_devices_are_back() {
    let mut world = World::new();
    world.turn(Turn::Use(4, 4));
    world.turn(Turn::Work(2));
    let mut reasons = Vec::new();
    for _ in 0..19 {
        world.turn(Turn::Wait(5));
        // The kubelet acts between any two steps of the controller, each of which has one write for the pod's metadata.
        for turn in [Turn::PodSeen, Turn::Work(2), Turn::Away, Turn::PodSeen, Turn::Work(2), Turn::Away] {
            world.turn(turn);
            reasons.push(world.scaled().1);
            assert_eq!(Denial::from_vm(&movable(&world.vm)), None, "no migration");
        }
    }
    reasons.dedup();
    assert_eq!(reasons, ["InProgress", "DevicesUnavailable"]);
    let (_, _, message) = world.scaled();
    assert!(message.contains(AWAY) && message.ends_with("(DaemonSet neonvm-node) is back"), "{message}");
    assert!((7..=19).contains(&world.resizes), "{}", world.resizes);
    assert_eq!(world.runner.memory.asked, Bytes::gib(1));
    // They are back after 95 s.
    let back = world.now;
    while world.scaled().1 != "Reached" {
        assert!(world.now - back < 40, "{:?}", world.scaled());
        world.turn(Turn::Wait(5));
        for _ in 0..4 {
            if !world.pod.current {
                world.turn(Turn::Accepts);
            }
            for turn in [Turn::PodSeen, Turn::RunnerSeen, Turn::Work(99), Turn::Guest] {
                world.turn(turn);
            }
        }
    }
    assert_eq!(world.runner.memory.actual, Bytes::gib(4));
}

/// The same VM, if it could be migrated for a growth.
fn movable(vm: &VirtualMachine) -> VirtualMachine {
    let mut vm = vm.clone();
    vm.metadata.labels = Some([(label::AUTO_MIGRATION_ENABLED.to_owned(), "true".to_owned())].into());
    vm.status.get_or_insert_default().node = "n1".into();
    vm
}

/// Only a lack of room leads to a migration. What a text of an unknown kind asks for is left to people.
#[test]
fn each_denial_has_its_reason_and_few_lead_to_a_migration() {
    for (message, reason, migrates) in [
        (FULL, "ResizeDeferred", true),
        (SMALL, "ResizeInfeasible", true),
        (AWAY, "DevicesUnavailable", false),
        (
            "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"",
            "ResizeForbidden",
            false,
        ),
        ("In-place resize of containers with swap is not supported.", "ResizeForbidden", false),
        ("the moon is in the wrong house", "ResizeDenied", false),
    ] {
        let mut world = World::new();
        world.turn(Turn::Use(4, 4));
        world.turn(Turn::Work(99));
        world.denies(message);
        world.turn(Turn::PodSeen);
        world.turn(Turn::Work(99));
        let (status, word, text) = world.scaled();
        assert_eq!((status.as_str(), word.as_str()), ("False", reason));
        assert!(text.contains(&format!("denied by node n1: {message}")), "{text}");
        assert_eq!(text.ends_with(message), reason == "ResizeDenied", "a remedy: {text}");
        assert_eq!(Denial::from_vm(&movable(&world.vm)).is_some(), migrates, "{message}");
    }
}

/// A resize that the kubelet has begun and cannot finish.
#[test]
fn a_resize_that_fails_is_not_unanswered() {
    let mut world = World::new();
    world.turn(Turn::Use(8, 4));
    world.turn(Turn::Work(99));
    let fails =
        "cannot decrease memory limits: attempting to set pod memory limit (1) below current usage (2)";
    let since = Some(at(world.now + 100));
    world.now += 100;
    world.kubelet(Resize::InProgress { fails: fails.to_owned(), since });
    for (wait, reason) in [(0, "InProgress"), (20, "InProgress"), (20, "ResizeFailing")] {
        world.turn(Turn::Wait(wait));
        world.turn(Turn::PodSeen);
        world.turn(Turn::Work(99));
        assert_eq!(world.scaled().1, reason);
        assert!(world.scaled().2.contains(fails), "{}", world.scaled().2);
    }
}
