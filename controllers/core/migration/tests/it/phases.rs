//! Migrations of VMs, in an abstract world where any component fails at any time.

mod planted;
mod runners;
mod volumes;
mod work;
mod world;

use neonvm_api::migration::MigrationPhase;
use neonvm_api::virtual_machine::{Phase, PowerState};
use neonvm_core_migration::phases::is_over;
use neonvm_types::runner_protocol::{ExitReason, MigrationRole, MigrationState as S};
use proptest::prelude::*;

use runners::Contact;
use world::World;

#[derive(Clone, Debug)]
enum Turn {
    Work { age: usize, writes: usize },
    Boot,
    Carry(u8),
    Fails,
    PodsGo,
    Dies { pod: usize, by: u8 },
    Vanishes(usize),
    DeletePod(usize),
    Contact { pod: usize, how: u8 },
    NewController,
    Create(u8),
    Cancel(u8),
    DeleteMove { which: u8, by_force: bool },
    Resize(u16),
    Wait(i64),
    NoRoom(usize),
    Evict(u8),
    Cordon(bool),
    Delete,
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        10 => (prop_oneof![3 => Just(0usize), 1 => 0usize..12], prop_oneof![3 => Just(99usize), 2 => 0usize..5])
            .prop_map(|(age, writes)| Turn::Work { age, writes }),
        4 => Just(Turn::Boot),
        12 => any::<u8>().prop_map(Turn::Carry),
        1 => Just(Turn::Fails),
        2 => Just(Turn::PodsGo),
        1 => (0usize..3, any::<u8>()).prop_map(|(pod, by)| Turn::Dies { pod, by }),
        1 => (0usize..3).prop_map(Turn::Vanishes),
        1 => (0usize..3).prop_map(Turn::DeletePod),
        2 => (0usize..3, 0u8..3).prop_map(|(pod, how)| Turn::Contact { pod, how }),
        1 => Just(Turn::NewController),
        4 => (0u8..3).prop_map(Turn::Create),
        1 => (0u8..3).prop_map(Turn::Cancel),
        1 => (0u8..3, prop::bool::weighted(0.2)).prop_map(|(which, by_force)| Turn::DeleteMove { which, by_force }),
        1 => (1u16..=4).prop_map(Turn::Resize),
        1 => (0i64..400).prop_map(Turn::Wait),
        1 => (0usize..2).prop_map(Turn::NoRoom),
        1 => (0u8..3).prop_map(Turn::Evict),
        1 => any::<bool>().prop_map(Turn::Cordon),
        1 => prop::bool::weighted(0.2).prop_map(|really| if really { Turn::Delete } else { Turn::Boot }),
    ]
}

fn name(which: u8) -> String {
    format!("move-{which}")
}

impl World {
    fn pod(&self, index: usize) -> Option<String> {
        let pods = &self.newest().pods;
        pods.get(index % pods.len().max(1)).map(|pod| pod.name.clone())
    }

    fn turn(&mut self, turn: &Turn) {
        match turn {
            Turn::Work { age, writes } => self.work(*age, *writes),
            Turn::Boot => self.boot(),
            Turn::Carry(choice) => self.carry(*choice),
            Turn::Fails => self.fails(),
            Turn::PodsGo => self.go(),
            Turn::Dies { pod, by } => {
                if let Some(pod) = self.pod(*pod) {
                    let guest = self.runners.get(&pod).is_some_and(|run| run.guest);
                    let by = match by % 3 {
                        0 if guest => ExitReason::PoweredOff,
                        1 if guest => ExitReason::GuestPanic,
                        _ => ExitReason::RunnerKilled,
                    };
                    self.end_pod(&pod, by);
                }
            }
            Turn::Vanishes(pod) => {
                if let Some(pod) = self.pod(*pod) {
                    self.vanish(&pod);
                }
            }
            Turn::DeletePod(pod) => {
                if let Some(name) = self.pod(*pod) {
                    let until = crate::machine::at(self.now + 5);
                    self.change(|next| {
                        for pod in next.pods.iter_mut().filter(|pod| pod.name == name) {
                            pod.deleting = pod.deleting.or(Some(until));
                        }
                    });
                }
            }
            Turn::Contact { pod, how } => {
                if let Some(run) = self.pod(*pod).and_then(|pod| self.runners.get_mut(&pod)) {
                    run.contact = [Contact::Well, Contact::NotAnyMore, Contact::NotYet][usize::from(*how)];
                }
            }
            Turn::NewController => {
                for run in self.runners.values_mut() {
                    run.contact = Contact::NotYet;
                    run.forget();
                }
            }
            Turn::Create(which) => self.create(&name(*which)),
            Turn::Evict(which) => self.evict(&name(*which)),
            Turn::Cordon(cordoned) => self.cordoned = *cordoned,
            Turn::Cancel(which) => self.with_move(&name(*which), |migration| migration.spec.cancel = true),
            Turn::DeleteMove { which, by_force } => self.delete_move(&name(*which), *by_force),
            Turn::Resize(slots) => self.change(|next| next.vm.spec.guest.memory_slots.r#use = *slots),
            Turn::NoRoom(held_up) => {
                self.held_up = *held_up;
                self.no_room();
            }
            Turn::Delete => self.delete(),
            Turn::Wait(seconds) => self.now += seconds,
        }
        self.notice();
        self.write_rows();
        self.note_content();
        self.check();
    }

    /// The next thing happens between two runners.
    fn carry(&mut self, choice: u8) {
        let found = self.runners.iter().find(|(_, run)| run.alive && run.is_leaving());
        let Some((source, target)) = found.map(|(name, run)| (name.clone(), run.partner.clone())) else {
            return;
        };
        let mut s = self.runners[&source].clone();
        let Some(mut t) = self.runners.get(&target).filter(|run| run.alive).cloned() else { return };
        let mut leaves = false;
        let had_guest = s.guest;
        match (s.state().unwrap(), t.state()) {
            (S::Negotiating, Some(S::Waiting)) => {
                t.set(S::Receiving);
                s.set(S::Mirroring);
            }
            (S::Mirroring, _) => s.set(S::Copying),
            (S::Copying, _) if choice.is_multiple_of(4) => {
                (s.guest, t.post_copy) = (false, true);
                s.set(S::PostCopy);
                t.set(S::Arrived);
            }
            (S::Copying, _) => {
                s.guest = false;
                s.set(S::Switching);
            }
            (S::Switching, Some(S::Receiving)) => t.set(S::Arrived),
            (S::Switching, Some(S::Arrived)) => s.set(S::HandingOver),
            (S::HandingOver, Some(S::Arrived)) => {
                t.guest = true;
                t.set(S::Completed);
            }
            (S::PostCopy, Some(S::Arrived)) => {
                t.guest = true;
                t.set(S::PostCopy);
            }
            (S::PostCopy, Some(S::PostCopy)) if choice.is_multiple_of(3) => s.set(S::PostCopyPaused),
            (S::PostCopy, Some(S::PostCopy)) => t.set(S::Completed),
            // The reply may be lost; the request is repeated.
            (S::HandingOver | S::PostCopy, Some(S::Completed)) if !choice.is_multiple_of(3) => {
                s.set(S::Completed);
                leaves = true;
            }
            _ => {}
        }
        if had_guest && !s.guest && self.bug != Some(planted::Bug::MirrorNotFinished) {
            self.storage.finish_mirror(&source, &target);
        }
        self.runners.insert(source.clone(), s);
        self.runners.insert(target, t);
        if leaves {
            self.end_pod(&source, ExitReason::Migrated);
        }
    }

    /// Something between the two breaks: before the VM has left it stays.
    fn fails(&mut self) {
        let found = self.runners.iter_mut().find(|(_, run)| run.alive && run.is_leaving());
        let Some((_, run)) = found.filter(|(_, run)| !run.state().unwrap().has_left()) else { return };
        run.set(S::Failed);
        run.guest = true;
    }

    /// A runner whose peer is gone.
    fn notice(&mut self) {
        let lives = |world: &Self, name: &str| world.runners.get(name).is_some_and(|run| run.alive);
        for name in self.runners.keys().cloned().collect::<Vec<_>>() {
            let run = self.runners[&name].clone();
            let Some(reported) = run.migration.clone().filter(|_| run.alive) else { continue };
            let partner = self.runners.get(&run.partner).cloned().unwrap_or_default();
            match reported.role {
                MigrationRole::Source
                    if run.is_leaving() && !reported.state.has_left() && !lives(self, &run.partner) =>
                {
                    let run = self.runners.get_mut(&name).unwrap();
                    run.set(S::Failed);
                    run.guest = true;
                }
                MigrationRole::Target => {
                    let goes_on = partner.alive && partner.is_leaving();
                    // The source lives and keeps the guest.
                    let stays = partner.alive && partner.state() == Some(S::Failed);
                    if (reported.state == S::Receiving && !goes_on) || (reported.state == S::Arrived && stays)
                    {
                        self.runners.get_mut(&name).unwrap().set(S::Failed);
                        self.end_pod(&name, ExitReason::MigrationFailed);
                    }
                }
                _ => {}
            }
        }
    }

    /// A VM whose migration is at its handover.
    fn at_handover() -> Self {
        let mut world = Self::new();
        world.create("move-0");
        world.hands_over();
        world
    }

    /// All of it happens, then nothing breaks any more, and all is well.
    fn lives_through(&mut self, turns: &[Turn]) {
        for turn in turns {
            self.turn(turn);
        }
        self.calm();
        audit(self);
    }

    fn hands_over(&mut self) {
        while !self.runners.values().any(|run| run.state() == Some(S::HandingOver)) {
            self.turn(&Turn::Work { age: 0, writes: 99 });
            self.turn(&Turn::Boot);
            self.turn(&Turn::Carry(1));
        }
    }

    /// Nothing breaks any more.
    fn calm(&mut self) {
        for round in 0..90 {
            self.runners.values_mut().for_each(|run| run.contact = Contact::Well);
            self.turn(&Turn::Work { age: 0, writes: 999 });
            self.turn(&Turn::Boot);
            self.turn(&Turn::Carry(1));
            self.turn(&Turn::PodsGo);
            self.turn(&Turn::Wait(if round % 10 == 9 { 400 } else { 1 }));
        }
    }
}

/// In the end the VM runs, in one pod, and nothing of its migrations is left.
fn audit(world: &mut World) {
    let newest = world.newest().clone();
    ended(world);
    world.check_claims();
    if newest.vm.metadata.deletion_timestamp.is_some() {
        assert!(newest.gone && newest.pods.is_empty(), "{:?}", newest.pods);
        return;
    }
    let status = newest.vm.status.clone().unwrap();
    assert_eq!(status.phase, Some(Phase::Running), "{status:#?}");
    assert_eq!(status.migration, None);
    let pods: Vec<&str> = newest.pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(pods, [status.pod_name.as_str()]);
    assert_eq!((newest.pods[0].controller.as_str(), newest.pods[0].migrations.len()), ("u-1", 0));
    let guests: Vec<&String> =
        world.runners.iter().filter(|(_, run)| run.guest).map(|(name, _)| name).collect();
    assert_eq!(guests, [&status.pod_name]);
    let before = world.history.len();
    world.turn(&Turn::Work { age: 0, writes: 99 });
    assert_eq!(world.history.len(), before, "S11: idle, and it writes");
}

/// L2, with a reason.
fn ended(world: &World) {
    for migration in world.newest().moves.values() {
        assert!(is_over(migration), "L2: {:#?}", migration.status);
        let last = migration.status.as_ref().unwrap();
        assert!(last.completion_time.is_some() && !last.reason.is_empty());
        if last.phase == Some(MigrationPhase::Succeeded) {
            assert_eq!(last.reason, "Completed");
        }
    }
}

proptest! {
    #[test]
    fn whatever_dies_the_machine_runs_once_and_every_migration_ends(turns in prop::collection::vec(turn(), 0..120)) {
        World::new().lives_through(&turns);
    }

    #[test]
    fn whatever_dies_at_the_handover_no_row_is_lost(turns in prop::collection::vec(turn(), 0..30)) {
        World::at_handover().lives_through(&turns);
    }
}

/// Only the user and the controller act, and connections to runners fail.
fn peaceful() -> impl Strategy<Value = Turn> {
    turn().prop_filter("of peace", |turn| {
        !matches!(turn, Turn::Dies { .. } | Turn::Vanishes(_) | Turn::DeletePod(_) | Turn::Delete)
    })
}

proptest! {
    /// A migration that is cancelled, deleted, or forgotten by a controller never ends the VM.
    #[test]
    fn where_no_runner_dies_the_machine_lives_through(turns in prop::collection::vec(peaceful(), 0..120)) {
        let mut world = World::new();
        world.lives_through(&turns);
        prop_assert_eq!(world.newest().vm.status.as_ref().unwrap().restart_count, 0);
    }
}

/// A list of pods older than the target does not mean that the target is gone: the source stays stopped.
#[test]
fn a_target_that_an_old_list_lacks_is_not_gone() {
    for age in 0..20 {
        let mut world = World::new();
        world.create("move-0");
        for turn in [
            Turn::Work { age: 0, writes: 99 },
            Turn::Boot,
            Turn::Work { age: 0, writes: 99 },
            Turn::Carry(1),
            Turn::Carry(1),
            Turn::Carry(1),
            Turn::Carry(1),
            Turn::Work { age: 0, writes: 99 },
            Turn::Carry(1),
            // From here on the target has no connection: it lets the guest run.
            Turn::Contact { pod: 1, how: 1 },
            Turn::Carry(1),
            Turn::Work { age, writes: 99 },
        ] {
            world.turn(&turn);
        }
        world.calm();
        audit(&mut world);
        assert_eq!(world.newest().vm.status.as_ref().unwrap().restart_count, 0);
    }
}

/// A target that vanishes before its node is on record is made again, although its runner has reported that it waits for the VM.
#[test]
fn a_target_that_vanishes_unseen_is_made_again() {
    for writes in 0..3 {
        let mut world = World::new();
        world.create("move-0");
        for turn in [
            Turn::Work { age: 0, writes: 99 },
            Turn::Boot,
            Turn::Work { age: 0, writes },
            Turn::Vanishes(1),
            Turn::Work { age: 0, writes: 99 },
        ] {
            world.turn(&turn);
        }
        world.calm();
        audit(&mut world);
    }
}

/// A target for which there is no room keeps its place until another migration needs it.
#[test]
fn a_target_without_a_node_gives_way_to_those_that_can_go() {
    let mut world = World::new();
    world.create("move-0");
    let work = |world: &mut World, seconds: i64| {
        world.now += seconds;
        world.turn(&Turn::Work { age: 0, writes: 99 });
        world.newest().moves["move-0"].status.clone().unwrap()
    };
    work(&mut world, 0);
    world.held_up = 1;
    assert_eq!(
        work(&mut world, 100).phase,
        Some(MigrationPhase::Pending),
        "the scheduler has not answered yet"
    );
    world.held_up = 0;
    world.no_room();
    let status = work(&mut world, 100);
    assert_eq!((status.phase, status.reason.as_str()), (Some(MigrationPhase::Pending), "Preparing"));
    assert_eq!(status.message, "target pod: Unschedulable: no node has room");
    world.held_up = 1;
    work(&mut world, 1);
    world.turn(&Turn::PodsGo);
    let status = work(&mut world, 1);
    assert_eq!((status.phase, status.reason.as_str()), (Some(MigrationPhase::Failed), "TargetFailed"));
    assert_eq!(status.message, "gives way to 1 that can go: target pod: Unschedulable: no node has room");
    audit(&mut world);
    // Not before it had some time: room may come.
    let mut world = World::new();
    (world.held_up, world.now) = (1, 2000);
    world.create("move-0");
    work(&mut world, 0);
    world.no_room();
    assert_eq!(work(&mut world, 29).phase, Some(MigrationPhase::Pending));
    world.turn(&Turn::Boot);
    world.calm();
    assert_eq!(world.newest().moves["move-0"].status.as_ref().unwrap().reason, "Completed");
}

/// Until its target has a node, the VM is scaled, and what is made at last is made for the size of then.
#[test]
fn a_vm_is_scaled_while_its_target_has_no_node() {
    let mut world = World::new();
    world.create("move-0");
    let work = |world: &mut World| {
        world.turn(&Turn::PodsGo);
        world.turn(&Turn::Work { age: 0, writes: 99 });
        world.newest().vm.status.clone().unwrap()
    };
    work(&mut world);
    world.no_room();
    for gib in [3, 2] {
        world.turn(&Turn::Resize(gib));
        work(&mut world);
        let status = work(&mut world);
        assert_eq!((status.phase, status.size_is_held()), (Some(Phase::Running), false), "{status:?}");
        assert!(status.migration.is_some());
        assert_eq!(world.runners["db-first"].gib, u32::from(gib));
        let target = &status.migration.unwrap().target_pod_name;
        work(&mut world);
        assert_eq!(world.made[target], u32::from(gib), "the target is made again");
    }
    world.turn(&Turn::Boot);
    let status = work(&mut world);
    assert!(status.size_is_held() && status.phase == Some(Phase::Migrating), "{status:?}");
    world.turn(&Turn::Resize(4));
    work(&mut world);
    assert_eq!(world.runners["db-first"].gib, 2, "it comes after the migration");
    world.calm();
    audit(&mut world);
    let pod = world.newest().vm.status.clone().unwrap().pod_name;
    assert_eq!((pod.as_str() == "db-first", world.runners[&pod].gib), (false, 4));
}

/// A target that was given a node while the VM was scaled takes no VM.
#[test]
fn a_target_of_another_size_takes_no_vm() {
    let mut world = World::new();
    world.create("move-0");
    let work = |writes: usize| Turn::Work { age: 0, writes };
    for turn in [work(99), Turn::Resize(2), work(1), work(4), Turn::Boot, work(99)] {
        world.turn(&turn);
    }
    let status = world.newest().moves["move-0"].status.clone().unwrap();
    assert_eq!(status.reason, "TargetFailed");
    assert!(status.message.starts_with("the VM was scaled while its target was given a node"));
    world.calm();
    audit(&mut world);
}

/// The spec requested more after the target was made, and the controller was away until the target had a node: what the spec requests has
/// no room reserved there.
#[test]
fn a_target_that_is_too_small_for_the_spec_takes_no_vm() {
    let mut world = World::new();
    world.create("move-0");
    let work = Turn::Work { age: 0, writes: 99 };
    for turn in [work.clone(), Turn::Boot, Turn::Resize(4), work] {
        world.turn(&turn);
    }
    let status = world.newest().moves["move-0"].status.clone().unwrap();
    assert_eq!(status.reason, "TargetFailed");
    world.calm();
    audit(&mut world);
    assert_eq!(world.runners["db-first"].gib, 4);
}

/// A drain that is given up: its migrations end, others do not.
#[test]
fn what_an_eviction_requested_ends_when_the_node_accepts_pods_again() {
    let ends = |evicted: bool, cordoned: bool, queued: bool| {
        let mut world = World::new();
        if queued {
            // It waits behind another one of the same VM.
            world.create("move-0");
            world.turn(&Turn::Work { age: 0, writes: 99 });
        }
        if evicted {
            world.evict("move-1");
        } else {
            world.create("move-1");
        }
        world.cordoned = cordoned;
        world.turn(&Turn::Work { age: 0, writes: 99 });
        world.no_room();
        world.cordoned = false;
        for _ in 0..3 {
            world.turn(&Turn::Work { age: 0, writes: 99 });
            world.turn(&Turn::PodsGo);
        }
        let status = world.newest().moves["move-1"].status.clone().unwrap();
        let ended = status.phase == Some(MigrationPhase::Failed);
        assert!(!ended || (status.reason == "Cancelled" && status.message.contains("accepts pods again")));
        world.calm();
        audit(&mut world);
        ended
    };
    for queued in [false, true] {
        assert!(ends(true, true, queued));
        // The node was not cordoned: the eviction was about something else.
        assert!(!ends(true, false, queued));
        assert!(!ends(false, true, queued));
    }
}

/// A stop, a restart or a pause does not wait for a node that may never come.
#[test]
fn orders_come_before_a_migration_without_a_target() {
    let order = |set: &dyn Fn(&mut neonvm_api::VirtualMachineSpec), placed: bool| {
        let mut world = World::new();
        world.create("move-0");
        world.turn(&Turn::Work { age: 0, writes: 99 });
        if placed {
            world.turn(&Turn::Boot);
        }
        world.change(|next| set(&mut next.vm.spec));
        world.turn(&Turn::Work { age: 0, writes: 99 });
        world.newest().moves["move-0"].status.clone().unwrap().reason
    };
    let stop = |spec: &mut neonvm_api::VirtualMachineSpec| spec.power_state = Some(PowerState::Stopped);
    let pause = |spec: &mut neonvm_api::VirtualMachineSpec| spec.power_state = Some(PowerState::Paused);
    let restart = |spec: &mut neonvm_api::VirtualMachineSpec| spec.restart_request = Some("2".into());
    for set in [&stop as &dyn Fn(&mut _), &pause, &restart] {
        assert_eq!(order(set, false), "Cancelled");
        assert_ne!(order(set, true), "Cancelled");
    }
}

/// Without faults it goes through each phase once, with the matching status.
#[test]
fn a_move() {
    let mut world = World::new();
    world.create("move-0");
    world.calm();
    audit(&mut world);
    let status = world.newest().moves["move-0"].status.clone().unwrap();
    assert_eq!(status.phase, Some(MigrationPhase::Succeeded));
    assert_eq!((status.info.status.as_str(), status.info.downtime_ms), ("completed", 7));
    assert_eq!((status.source_node.as_str(), status.source_pod_name.as_str()), ("n-db-first", "db-first"));
    assert_eq!(world.newest().vm.status.as_ref().unwrap().pod_name, status.target_pod_name);
    assert_eq!(world.newest().vm.status.as_ref().unwrap().restart_count, 0);
}

/// QEMU reports completion a moment before its final statistics. Statistics that it never reports stay absent.
#[test]
fn the_numbers_of_a_move_are_awaited() {
    for counts in [true, false] {
        let mut world = World::at_handover();
        world.turn(&Turn::Carry(1));
        let reported = |world: &mut World, downtime_ms: Option<u64>| {
            for run in world.runners.values_mut() {
                run.set(S::Completed);
                run.migration.as_mut().unwrap().progress.downtime_ms = downtime_ms;
            }
            for _ in 0..3 {
                world.turn(&Turn::Work { age: 0, writes: 99 });
            }
            world.newest().moves["move-0"].status.clone().unwrap()
        };
        let status = reported(&mut world, None);
        assert_eq!(status.message, "the VM has moved; its last numbers are awaited");
        assert_ne!(status.phase, Some(MigrationPhase::Succeeded));
        world.turn(&Turn::Wait(if counts { 0 } else { 3 }));
        let status = reported(&mut world, counts.then_some(9));
        assert_eq!(status.phase, Some(MigrationPhase::Succeeded), "{status:#?}");
        assert_eq!(status.info.downtime_ms, if counts { 9 } else { 0 });
    }
}

/// The controller dies after each write of the whole way.
#[test]
fn a_controller_that_dies_after_every_write_completes_it_all_the_same() {
    for writes in 1..4 {
        let mut world = World::new();
        world.create("move-0");
        for _ in 0..60 {
            world.turn(&Turn::Work { age: 0, writes });
            world.turn(&Turn::Boot);
            world.turn(&Turn::Carry(1));
        }
        world.calm();
        audit(&mut world);
        let status = world.newest().moves["move-0"].status.clone().unwrap();
        assert_eq!(status.phase, Some(MigrationPhase::Succeeded), "{status:#?}");
    }
}
