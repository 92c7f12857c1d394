//! A world with a server, pods that live and die, watches that lag, and a controller that dies between any two writes.

use std::collections::BTreeSet;

use neonvm_api::merge_patch::merge;
use neonvm_api::names::annotation::AT_NEXT_START;
use neonvm_api::next_start;
use neonvm_api::virtual_machine::{Phase, PowerState};
use neonvm_api::{VirtualMachine, VirtualMachineSpec};
use neonvm_core_vm_lifecycle::{Action, Observed, PodView, RunnerView, owned_pod, step};
use neonvm_types::runner_protocol::{ExitReason, PauseStatus, RunnerStatus};
use proptest::prelude::*;

use crate::machine::{at, pod, runner, running, seen, settings, vm};
use crate::observations::ended;

#[derive(Clone, Debug)]
enum Turn {
    /// The controller works with news this many versions old and dies after this many writes.
    Work {
        age: usize,
        writes: usize,
        lost: bool,
    },
    PodRuns,
    PodEnds(bool),
    PodVanishes,
    PodIsDeleted,
    PodGoes,
    Resize(u16),
    Wait(i64),
    Power(PowerState),
    /// The runner does what was requested of it.
    PauseIsCarriedOut,
    Restart(u8),
    ChangeAtNextStart(u32),
    Delete,
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        8 => (0usize..30, 0usize..6, any::<bool>()).prop_map(|(age, writes, lost)| Turn::Work { age, writes, lost }),
        4 => Just(Turn::Work { age: 0, writes: 9, lost: false }),
        3 => Just(Turn::PodRuns),
        2 => any::<bool>().prop_map(Turn::PodEnds),
        1 => Just(Turn::PodVanishes),
        1 => Just(Turn::PodIsDeleted),
        3 => Just(Turn::PodGoes),
        1 => (1u16..=4).prop_map(Turn::Resize),
        2 => (0i64..400).prop_map(Turn::Wait),
        3 => prop_oneof![Just(PowerState::Running), Just(PowerState::Stopped), Just(PowerState::Paused)].prop_map(Turn::Power),
        1 => Just(Turn::PauseIsCarriedOut),
        1 => any::<u8>().prop_map(Turn::Restart),
        1 => (2u32..9).prop_map(Turn::ChangeAtNextStart),
        1 => Just(Turn::Delete),
    ]
}

#[derive(Clone)]
struct Version {
    vm: VirtualMachine,
    pods: Vec<PodView>,
}

struct World {
    now: i64,
    history: Vec<Version>,
    names: u32,
    gone: bool,
    restarts: i32,
    /// Of the runner in the pod with this name.
    pause: (String, PauseStatus),
    ends_on_record: BTreeSet<String>,
}

impl World {
    fn new() -> Self {
        let history = vec![Version { vm: vm(), pods: Vec::new() }];
        let (pause, ends_on_record) = Default::default();
        Self { now: 1000, history, names: 0, gone: false, restarts: 0, pause, ends_on_record }
    }

    fn newest(&self) -> &Version {
        self.history.last().unwrap()
    }

    fn change(&mut self, change: impl FnOnce(&mut Version)) {
        let mut next = self.newest().clone();
        change(&mut next);
        let live: Vec<&str> =
            next.pods.iter().filter(|pod| pod.is_live()).map(|pod| pod.name.as_str()).collect();
        assert!(live.len() <= 1, "two instances: {live:?}");
        let restarts = next.vm.status.as_ref().map_or(0, |status| status.restart_count);
        assert!(restarts >= self.restarts, "restarts are only counted up");
        self.restarts = restarts;
        self.history.push(next);
    }

    fn observe(&mut self, version: &Version, fresh: bool) -> Observed {
        self.names += 1;
        let name = owned_pod(&version.vm).map(str::to_owned);
        let own = |pod: &&PodView| Some(pod.name.as_str()) == name.as_deref();
        let pod = version.pods.iter().find(own).cloned();
        let up = pod.as_ref().is_some_and(|pod| pod.running && pod.is_live());
        let guest = version.vm.spec.guest.memory_slots.r#use;
        Observed {
            fresh,
            orphans: version.pods.iter().filter(|pod| !own(pod)).cloned().collect(),
            pod,
            runner: if up {
                seen(RunnerStatus { pause: self.pause_of(name.as_deref()), ..runner(500, u32::from(guest)) })
            } else {
                RunnerView::Unknown
            },
            suffix: format!("{:05}", self.names),
            ..Observed::default()
        }
    }

    fn pause_of(&self, pod: Option<&str>) -> PauseStatus {
        if pod == Some(self.pause.0.as_str()) { self.pause.1 } else { PauseStatus::default() }
    }

    fn set_paused(&mut self, asked: bool) {
        let name = owned_pod(&self.newest().vm).unwrap_or_default().to_owned();
        let applied = self.pause_of(Some(&name)).applied;
        self.pause = (name, PauseStatus { asked, applied });
    }

    /// As the shell does it: step, write the status unless another client wrote, act, step again.
    fn work(&mut self, age: usize, mut writes: usize, lost: bool) {
        let oldest = self.history.len().saturating_sub(1 + age);
        let mut view = self.history[oldest].clone();
        // The watches of VMs and of pods lag independently of each other.
        view.pods
            .clone_from(&self.history[self.history.len() - 1 - (self.history.len() - 1 - oldest) / 3].pods);
        let mut version = oldest;
        let mut fresh = false;
        for _ in 0..10 {
            if self.gone {
                return;
            }
            let observed = self.observe(&view, fresh);
            let outcome = step(at(self.now), &view.vm, &observed, &settings());
            if outcome.actions == [Action::Refresh] {
                assert!(!fresh, "asks for what it has");
                (view, version, fresh) = (self.newest().clone(), self.history.len() - 1, true);
                continue;
            }
            let before = view.vm.status.clone().unwrap_or_default();
            let mut changed = false;
            if outcome.status != before {
                // The write is refused if the VM's version is not the one that was read.
                let same = self.newest().vm == self.history[version].vm;
                if writes == 0 || !same {
                    return;
                }
                writes -= 1;
                self.change(|next| next.vm.status = Some(outcome.status.clone()));
                fresh |= before.phase.is_none();
                (view.vm, changed) = (self.newest().vm.clone(), true);
                if lost && writes == 0 {
                    return;
                }
            }
            for action in &outcome.actions {
                if writes == 0 {
                    return;
                }
                writes -= 1;
                self.act(action);
                changed = true;
            }
            if !changed {
                return;
            }
            view.pods.clone_from(&self.newest().pods);
            if self.newest().vm != view.vm {
                return;
            }
            version = self.history.len() - 1;
        }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::CreatePod { name } => {
                if self.newest().pods.iter().any(|pod| pod.name == *name) {
                    return;
                }
                let made = pod(&self.newest().vm, name);
                self.change(|next| next.pods.push(made));
            }
            Action::DeletePod { name, uid: Some(uid) } => {
                let grace = self.now + 5;
                let record = self.newest().vm.status.as_ref().and_then(|status| status.last_exit.clone());
                if let Some(record) = record {
                    self.ends_on_record.insert(record.pod_name);
                }
                let current = &self.newest().vm;
                let status = current.status.clone().unwrap_or_default();
                let restarts = current.spec.restart_request.is_some()
                    && current.spec.restart_request != status.restart_request;
                let wanted = owned_pod(current) == Some(name.as_str())
                    && current.metadata.deletion_timestamp.is_none()
                    && !current.spec.is_stopped()
                    && !restarts
                    && current.status.as_ref().and_then(|now| now.phase).is_some_and(Phase::is_alive)
                    && self.newest().pods.iter().any(|pod| pod.name == *name && pod.is_live());
                assert!(!wanted, "a good instance is deleted on old news");
                self.change(|next| {
                    next.pods.retain(|pod| !(pod.name == *name && pod.uid == *uid && pod.ended.is_some()));
                    for pod in next.pods.iter_mut().filter(|pod| pod.name == *name && pod.uid == *uid) {
                        pod.deleting = Some(at(grace));
                    }
                });
            }
            Action::SyncPod { name, change } => {
                let change = change.clone();
                self.change(|next| {
                    for pod in next.pods.iter_mut().filter(|pod| pod.name == *name) {
                        let labels = change.labels.iter().filter_map(|(k, v)| Some((k.clone(), v.clone()?)));
                        pod.labels.extend(labels);
                        let annotations =
                            change.annotations.iter().filter_map(|(k, v)| Some((k.clone(), v.clone()?)));
                        pod.annotations.extend(annotations);
                    }
                });
            }
            Action::ResizePod { name, size, .. } => self.change(|next| {
                for pod in next.pods.iter_mut().filter(|pod| pod.name == *name) {
                    (pod.size, pod.applied) = (Some(*size), Some(*size));
                }
            }),
            Action::Amend { spec } => {
                let status = self.newest().vm.status.clone().unwrap_or_default();
                assert_eq!(status.pod_name, "", "a change between two pods");
                let next = next_start::changed(&self.newest().vm).unwrap().unwrap();
                let mut amended = serde_json::to_value(&self.newest().vm.spec).unwrap();
                merge(&mut amended, &spec.clone().into());
                assert_eq!(serde_json::from_value::<VirtualMachineSpec>(amended).unwrap(), next.spec);
                self.change(|version| {
                    version.vm.spec = next.spec;
                    version.vm.metadata.annotations = None;
                });
            }
            Action::GrowDisk(_) | Action::LimitDisks(_) => panic!("VMs of this world have no such disks"),
            Action::SetPaused(asked) => self.set_paused(*asked),
            Action::RemoveFinalizer => {
                assert!(!self.newest().pods.iter().any(PodView::is_live), "an instance outlives its VM");
                self.gone = true;
            }
            _ => {}
        }
    }

    fn with_pod(&mut self, index: usize, change: impl FnOnce(&mut PodView)) {
        if index < self.newest().pods.len() {
            self.change(|next| change(&mut next.pods[index]));
        }
    }

    fn turn(&mut self, turn: &Turn) {
        let last = self.newest().pods.len().saturating_sub(1);
        match turn {
            Turn::Work { age, writes, lost } => self.work(*age, *writes, *lost),
            Turn::PodRuns => self.with_pod(last, |pod| {
                if pod.is_live() && pod.deleting.is_none() {
                    *pod = running(pod.clone());
                }
            }),
            Turn::PodEnds(well) => self.with_pod(last, |pod| {
                let reason = if *well { ExitReason::PoweredOff } else { ExitReason::GuestPanic };
                if pod.is_live() {
                    *pod = ended(pod.clone(), reason);
                }
            }),
            Turn::PodVanishes => {
                if !self.newest().pods.is_empty() {
                    self.change(|next| next.pods.truncate(last));
                }
            }
            Turn::PodIsDeleted => {
                let until = at(self.now + 5);
                self.with_pod(last, |pod| pod.deleting = pod.deleting.or(Some(until)));
            }
            Turn::PodGoes => {
                if self.newest().pods.iter().any(|pod| pod.deleting.is_some()) {
                    self.change(|next| next.pods.retain(|pod| pod.deleting.is_none()));
                }
            }
            Turn::Resize(slots) => self.change(|next| {
                next.vm.spec.guest.memory_slots.r#use = *slots;
                next.vm.metadata.generation = next.vm.metadata.generation.map(|number| number + 1);
            }),
            Turn::Wait(seconds) => self.now += seconds,
            Turn::Power(state) => self.change(|next| next.vm.spec.power_state = Some(*state)),
            Turn::PauseIsCarriedOut => self.pause.1.applied = self.pause.1.asked,
            Turn::Restart(number) => {
                self.change(|next| next.vm.spec.restart_request = Some(number.to_string()));
            }
            Turn::ChangeAtNextStart(cpus) => self.change(|next| {
                let patch = format!("{{\"guest\": {{\"cpus\": {{\"max\": {cpus}}}}}}}");
                next.vm.metadata.annotations = Some([(AT_NEXT_START.to_owned(), patch)].into());
            }),
            Turn::Delete => self.change(|next| {
                let now = k8s_openapi::jiff::Timestamp::UNIX_EPOCH;
                next.vm.metadata.deletion_timestamp =
                    Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
            }),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever is late, lost or dead: never two instances; and in the end the VM runs, or is gone.
    #[test]
    fn at_most_one_instance_and_an_end_to_everything(turns in prop::collection::vec(turn(), 0..100)) {
        let mut world = World::new();
        for turn in &turns {
            if world.gone {
                break;
            }
            world.turn(turn);
        }
        let deleted = world.newest().vm.metadata.deletion_timestamp.is_some();
        for _ in 0..12 {
            world.turn(&Turn::Work { age: 0, writes: 99, lost: false });
            world.turn(&Turn::PodGoes);
            world.turn(&Turn::PodRuns);
            world.turn(&Turn::PauseIsCarriedOut);
            world.turn(&Turn::Wait(400));
        }
        if deleted {
            prop_assert!(world.gone, "{:?}", world.newest().pods);
        } else {
            let newest = world.newest().clone();
            let status = newest.vm.status.clone().unwrap();
            if newest.vm.spec.is_stopped() {
                prop_assert_eq!(newest.pods.len(), 0);
                prop_assert_eq!(status.power_state, Some(PowerState::Stopped));
                prop_assert_eq!(status.pod_name, "");
            } else {
                prop_assert_eq!(status.phase, Some(Phase::Running));
                prop_assert_eq!(newest.pods.len(), 1);
                let paused = newest.vm.spec.is_paused().then_some(PowerState::Paused);
                prop_assert_eq!(status.power_state, paused);
                if newest.vm.spec.restart_request.is_some() {
                    prop_assert_eq!(status.restart_request, newest.vm.spec.restart_request);
                }
            }
            // Idle: one more look writes nothing.
            let before = world.history.len();
            world.turn(&Turn::Work { age: 0, writes: 99, lost: false });
            prop_assert_eq!(world.history.len(), before);
        }
    }
}

#[test]
fn a_pod_that_cannot_end_is_waited_for_and_reported() {
    let mut world = World::new();
    world.turn(&Turn::Work { age: 0, writes: 99, lost: false });
    world.turn(&Turn::PodRuns);
    world.turn(&Turn::Work { age: 0, writes: 99, lost: false });
    world.turn(&Turn::PodIsDeleted);
    for _ in 0..5 {
        world.turn(&Turn::Wait(100));
        world.turn(&Turn::Work { age: 0, writes: 99, lost: false });
    }
    let status = world.newest().vm.status.clone().unwrap();
    assert_eq!(world.newest().pods.len(), 1);
    let degraded = neonvm_core_vm_lifecycle::condition::find(&status, "Degraded").unwrap();
    assert_eq!((degraded.status.as_str(), degraded.reason.as_str()), ("True", "PodStuckTerminating"));
    assert!(degraded.message.contains("node n1"), "{}", degraded.message);
    world.turn(&Turn::Delete);
    for _ in 0..5 {
        world.turn(&Turn::Work { age: 0, writes: 99, lost: false });
    }
    assert!(!world.gone);
    world.turn(&Turn::PodGoes);
    world.turn(&Turn::Work { age: 0, writes: 99, lost: false });
    assert!(world.gone);
}

/// A world in which the VM runs.
fn up() -> World {
    let mut world = World::new();
    settle(&mut world);
    assert_eq!(world.newest().vm.status.as_ref().unwrap().phase, Some(Phase::Running));
    world
}

/// The controller works, pods end and start as they are to.
fn settle(world: &mut World) {
    for _ in 0..6 {
        world.turn(&Turn::Work { age: 0, writes: 99, lost: false });
        world.turn(&Turn::PodGoes);
        world.turn(&Turn::PodRuns);
    }
    world.turn(&Turn::Work { age: 0, writes: 99, lost: false });
}

#[test]
fn a_vm_is_stopped_changed_and_started_and_no_restart_is_counted() {
    let mut world = up();
    let first = world.newest().pods[0].name.clone();
    world.turn(&Turn::ChangeAtNextStart(8));
    settle(&mut world);
    let status = world.newest().vm.status.clone().unwrap();
    let pending = neonvm_core_vm_lifecycle::condition::find(&status, "ChangePending").unwrap();
    assert_eq!(pending.message, "at the next start: guest.cpus.max");
    assert_eq!(world.newest().pods[0].name, first, "the change waits");
    world.turn(&Turn::Power(PowerState::Stopped));
    settle(&mut world);
    let stopped = world.newest().vm.status.clone().unwrap();
    assert_eq!(stopped.phase, Some(Phase::Succeeded));
    assert_eq!(stopped.last_exit.unwrap().reason, "Stopped");
    world.turn(&Turn::Power(PowerState::Running));
    settle(&mut world);
    let newest = world.newest();
    assert_eq!(newest.vm.spec.guest.cpus.max, neonvm_types::MilliCpu::from_cpus(8));
    assert_ne!(newest.pods[0].name, first);
    let status = newest.vm.status.clone().unwrap();
    assert_eq!((status.phase, status.restart_count), (Some(Phase::Running), 0));
    assert!(neonvm_core_vm_lifecycle::condition::find(&status, "ChangePending").is_none());
}

#[test]
fn a_restart_request_restarts_once_whatever_the_policy() {
    let mut world = up();
    world.change(|next| next.vm.spec.restart_policy = neonvm_api::virtual_machine::RestartPolicy::Never);
    let first = world.newest().pods[0].name.clone();
    world.turn(&Turn::Restart(7));
    settle(&mut world);
    let second = world.newest().pods[0].name.clone();
    assert_ne!(first, second);
    settle(&mut world);
    assert_eq!(world.newest().pods[0].name, second, "once");
    assert_eq!(world.newest().vm.status.as_ref().unwrap().restart_count, 0);
}

#[test]
fn a_vm_made_stopped_gets_no_pod_until_it_is_started() {
    let mut world = World::new();
    world.turn(&Turn::Power(PowerState::Stopped));
    settle(&mut world);
    assert!(world.newest().pods.is_empty());
    let status = world.newest().vm.status.clone().unwrap();
    assert_eq!((status.phase, status.power_state), (Some(Phase::Pending), Some(PowerState::Stopped)));
    world.turn(&Turn::Power(PowerState::Running));
    settle(&mut world);
    assert_eq!(world.newest().pods.len(), 1);
}
