//! Growths that a node denies: when the VM is migrated for them, and that this comes to an end whatever nodes do.

use std::sync::Arc;

use neonvm_api::migration::MigrationPhase;
use neonvm_api::names::annotation;
use neonvm_api::virtual_machine::{ActiveMigration, Phase};
use neonvm_api::{VirtualMachine, VirtualMachineMigration};
use neonvm_core_migration::phases::plan_target;
use neonvm_core_vm_lifecycle::condition::{self, Finding, SCALED};
use neonvm_core_vm_lifecycle::growth::{
    CandidateNode, Case, Decision, Denial, Spell, decide, forgotten, migration, superfluous,
};
use neonvm_core_vm_lifecycle::{GrowthSettings, pod::PodSize};
use neonvm_types::runner_protocol::SizeRequest;
use neonvm_types::{Bytes, MilliCpu};
use proptest::prelude::*;

use crate::machine::{at, settings, vm};

const DAY: i64 = 86_400;

fn size(units: u32) -> SizeRequest {
    SizeRequest { cpu: MilliCpu::new(units * 250), memory: Bytes::gib(units) }
}

fn denied(reason: &str, message: &str) -> VirtualMachine {
    let mut vm = vm();
    vm.metadata.labels =
        Some([("autoscaling.neon.tech/auto-migration-enabled".into(), "true".into())].into());
    let status = vm.status.get_or_insert_default();
    (status.phase, status.pod_name, status.node) = (Some(Phase::Running), "db-1".into(), "n1".into());
    condition::set(status, SCALED, &Finding::no(reason, message), at(5), Some(1));
    vm
}

#[test]
fn only_what_another_node_could_give_is_a_denial() {
    let lasting = |reason, message| Denial::from_vm(&denied(reason, message)).map(|denial| denial.lasting);
    assert_eq!(lasting("ResizeDeferred", ""), Some(false));
    assert_eq!(lasting("ResizeInfeasible", ""), Some(true));
    for reason in ["ResizeRefused", "ResizeForbidden", "ResizeDenied", "ResizeFailing", "DevicesUnavailable"]
    {
        assert_eq!(lasting(reason, ""), None, "{reason}");
    }
    assert_eq!(lasting("ResizeUnanswered", ""), None);
    assert_eq!(lasting("InProgress", ""), None);
    let deferred = || denied("ResizeDeferred", "");
    let denial = Denial::from_vm(&deferred()).unwrap();
    let wanted = SizeRequest { cpu: MilliCpu::new(500), memory: Bytes::gib(1) };
    assert_eq!((denial.pod.as_str(), denial.node.as_str(), denial.size), ("db-1", "n1", wanted));
    let mut pinned = deferred();
    pinned.metadata.labels = None;
    assert_eq!(Denial::from_vm(&pinned), None, "it may not be migrated");
    let mut moving = deferred();
    let lock = ActiveMigration {
        name: "m".into(),
        uid: "m".into(),
        target_pod_name: "db-2".into(),
        ..ActiveMigration::default()
    };
    moving.status.as_mut().unwrap().migration = Some(lock);
    assert_eq!(Denial::from_vm(&moving), None, "it is migrated already");
}

/// An agent that was denied sets the size back and repeats the request after a pause that grows to 240 s.
#[test]
fn denials_with_short_pauses_are_one() {
    let first = Spell::next(None, "db-1", at(100));
    let second = Spell::next(Some(first.clone()), "db-1", at(340));
    assert_eq!((second.first, second.last), (at(100), at(340)));
    assert_eq!(Spell::next(Some(second.clone()), "db-1", at(700)).first, at(700), "long ago");
    assert_eq!(Spell::next(Some(second), "db-2", at(341)).first, at(341), "another pod");
}

fn denial(node: &str, units: u32, lasting: bool) -> Denial {
    Denial { pod: "db-1".into(), node: node.into(), size: size(units), lasting }
}

fn place(name: &str, room: Result<(), String>) -> CandidateNode {
    CandidateNode { name: name.into(), room }
}

#[test]
fn a_deferred_growth_waits_and_one_that_never_fits_does_not() {
    let spell = Spell::next(None, "db-1", at(100));
    let settings = GrowthSettings::default();
    let decided = |now, lasting, looked: Option<i64>, places: Option<&[CandidateNode]>| {
        let denial = denial("n1", 4, lasting);
        let case = Case { denial: &denial, spell: &spell, migrations: &[], looked: looked.map(at) };
        decide(at(now), &case, places, &settings)
    };
    assert_eq!(decided(100, false, None, None), Decision::Wait(at(130)));
    assert_eq!(decided(130, false, None, None), Decision::Look);
    assert_eq!(decided(100, true, None, None), Decision::Look);
    assert_eq!(decided(120, true, Some(100), None), Decision::Wait(at(160)));
    let own = place("n1", Ok(()));
    assert_eq!(
        decided(100, true, None, Some(std::slice::from_ref(&own))),
        Decision::Nowhere("there is no other node".into())
    );
    let full = place("n2", Err("insufficient cpu (needs 1, has 500m)".into()));
    let nowhere = Decision::Nowhere("n2 insufficient cpu (needs 1, has 500m)".into());
    assert_eq!(decided(100, true, None, Some(&[own, full])), nowhere);
    let go = Decision::Migrate { number: 1, avoid: vec![] };
    assert_eq!(decided(100, true, None, Some(&[place("n2", Ok(()))])), go);
}

/// The target has room for the size that the VM is migrated for, also if its spec requests less by then; never for more
/// than its bounds.
#[test]
fn the_target_requests_the_grown_size() {
    let vm = vm();
    let of = |units| {
        let mut made = migration("db", &denial("n1", units, true), 3, &["n3".into()]);
        assert_eq!(made.metadata.name.as_deref(), Some("grow-db-1-3"));
        made.metadata.uid = Some("m".into());
        let plan = plan_target(&vm, &made, "db-2", "n1", size(1), &settings()).unwrap();
        let text = plan.metadata.annotations.as_ref().unwrap()[annotation::USAGE].clone();
        (
            PodSize::from_resources(plan.spec.as_ref().unwrap().containers[0].resources.as_ref().unwrap())
                .unwrap(),
            text,
            plan,
        )
    };
    let (four, text, plan) = of(4);
    assert_eq!(four.requests.cpu, MilliCpu::new(1020));
    assert!(four.requests.memory > Bytes::gib(4), "{four:?}");
    assert_eq!(text, r#"{"cpu":"1","memory":"4Gi"}"#);
    let rules = plan.spec.unwrap().affinity.unwrap().node_affinity.unwrap();
    let terms = rules.required_during_scheduling_ignored_during_execution.unwrap().node_selector_terms;
    let fields: Vec<_> = terms.iter().flat_map(|term| term.match_fields.iter().flatten()).collect();
    assert!(fields.iter().all(|one| one.values.as_ref().unwrap().len() == 1), "{fields:?}");
    assert!(
        ["n1", "n3"].iter().all(|node| fields.iter().any(|one| one.values.as_ref().unwrap()[0] == *node))
    );
    assert_eq!(of(400).1, r#"{"cpu":"2","memory":"4Gi"}"#, "its bounds");
}

#[test]
fn a_migration_that_waits_is_withdrawn_when_the_node_has_granted_the_growth() {
    let mut vm = vm();
    let made = Arc::new(migration("db", &denial("n1", 2, true), 1, &[]));
    let all = [Arc::clone(&made)];
    vm.status.get_or_insert_default().pod_name = "db-1".into();
    assert_eq!(superfluous(&vm, &all), None);
    vm.status.get_or_insert_default().pod_name = "db-2".into();
    assert_eq!(superfluous(&vm, &all), Some(&*made), "another migration was faster");
    vm.status.get_or_insert_default().pod_name = "db-1".into();
    let status = vm.status.get_or_insert_default();
    (status.cpus, status.memory_size) = (Some(MilliCpu::new(500)), Some(Bytes::gib(1).to_quantity()));
    assert_eq!(superfluous(&vm, &all), None, "not all of it");
    vm.status.as_mut().unwrap().memory_size = Some(Bytes::gib(2).to_quantity());
    assert_eq!(superfluous(&vm, &all), Some(&*made));
    let mut begun = (*made).clone();
    begun.status.get_or_insert_default().phase = Some(MigrationPhase::Running);
    assert_eq!(superfluous(&vm, &[Arc::new(begun)]), None);
}

/// Nodes with a constant amount of room for the VM; kubelets that keep to it, or that deny everything.
struct World {
    now: i64,
    room: Vec<u32>,
    liars: bool,
    home: usize,
    pods: u32,
    migrations: Vec<Arc<VirtualMachineMigration>>,
    spell: Option<Spell>,
    looked: Option<i64>,
    wanted: u32,
    /// When migrations were made, from where and for how much.
    made: Vec<(i64, usize, u32)>,
    moved: usize,
}

#[derive(Clone, Copy, Debug)]
enum Turn {
    Wants(u32),
    Passes(i64),
    Ends(bool),
    /// The controller is started again.
    Restarts,
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        3 => (1u32..=8).prop_map(Turn::Wants),
        4 => (0i64..200).prop_map(Turn::Passes),
        2 => (0i64..20_000).prop_map(Turn::Passes),
        4 => prop::bool::weighted(0.7).prop_map(Turn::Ends),
        1 => Just(Turn::Restarts),
    ]
}

fn node(index: usize) -> String {
    format!("n{index}")
}

impl World {
    fn open(&self) -> Option<usize> {
        self.migrations.iter().position(|one| one.status.as_ref().is_none_or(|status| status.phase.is_none()))
    }

    /// One reconcile, as the shell does it.
    fn reconcile(&mut self) {
        let granted = !self.liars && self.wanted <= self.room[self.home];
        if granted {
            return;
        }
        let denial =
            Denial { pod: format!("db-{}", self.pods), ..denial(&node(self.home), self.wanted, false) };
        let spell = Spell::next(self.spell.take(), &denial.pod, at(self.now));
        self.spell = Some(spell.clone());
        let settings = GrowthSettings::default();
        let looked = self.looked.map(at);
        let case = Case { denial: &denial, spell: &spell, migrations: &self.migrations, looked };
        if decide(at(self.now), &case, None, &settings) != Decision::Look {
            return;
        }
        let has_room = |room: &u32| *room >= self.wanted;
        let room = |room: &u32| if has_room(room) { Ok(()) } else { Err("full".to_owned()) };
        let places: Vec<CandidateNode> =
            self.room.iter().enumerate().map(|(index, amount)| place(&node(index), room(amount))).collect();
        match decide(at(self.now), &case, Some(&places), &settings) {
            Decision::Migrate { number, avoid } => {
                assert_eq!(self.open(), None, "two at once");
                let fits = |(index, amount): (usize, &u32)| {
                    index != self.home && has_room(amount) && !avoid.contains(&node(index))
                };
                assert!(self.room.iter().enumerate().any(fits), "no other node has room");
                let mut made = migration("db", &denial, number, &avoid);
                let name = made.metadata.name.clone();
                assert!(self.migrations.iter().all(|one| one.metadata.name != name), "{name:?} is taken");
                made.metadata.uid = name;
                self.made.push((self.now, self.home, self.wanted));
                self.migrations.push(Arc::new(made));
            }
            Decision::Nowhere(_) => self.looked = Some(self.now),
            other => panic!("{other:?} after a look"),
        }
    }

    /// The migration that is open ends.
    fn end(&mut self, well: bool) {
        let Some(index) = self.open() else { return };
        let mut ended = (*self.migrations[index]).clone();
        let text = serde_json::to_string(&ended.spec).unwrap();
        let allowed = |index: &usize| *index != self.home && !text.contains(&format!("\"{}\"", node(*index)));
        let target = (0..self.room.len())
            .filter(allowed)
            .find(|index| self.room[*index] >= self.made.last().unwrap().2);
        let status = ended.status.get_or_insert_default();
        status.source_node = node(self.home);
        status.completion_time = Some(at(self.now));
        status.phase = Some(if well { MigrationPhase::Succeeded } else { MigrationPhase::Failed });
        self.migrations[index] = Arc::new(ended);
        if well {
            self.home = target.expect("it was made for a node with room");
            self.pods += 1;
            self.moved += 1;
        }
    }
}

proptest! {
    /// One at a time, only to where there is room, so many in a day, and not without end.
    #[test]
    fn migrations_for_growth_come_to_an_end(
        room in prop::collection::vec(0u32..9, 1..5),
        liars in prop::bool::weighted(0.3),
        turns in prop::collection::vec(turn(), 0..200),
    ) {
        let mut world = World { now: 1_000_000, room, liars, home: 0, pods: 1, migrations: vec![], spell: None,
            looked: None, wanted: 1, made: vec![], moved: 0 };
        for turn in turns {
            match turn {
                Turn::Wants(units) => world.wanted = units,
                Turn::Passes(seconds) => world.now += seconds,
                Turn::Ends(well) => world.end(well),
                Turn::Restarts => (world.spell, world.looked) = (None, None),
            }
            world.reconcile();
            world.reconcile();
        }
        let settings = GrowthSettings::default();
        for (index, (when, from, units)) in world.made.iter().enumerate() {
            let of_a_day = world.made[..=index].iter().filter(|(other, ..)| when - other < DAY);
            prop_assert!(of_a_day.count() <= settings.most, "{:?}", world.made);
            if let Some((last, ..)) = index.checked_sub(1).map(|index| world.made[index]) {
                prop_assert!(when - last >= settings.pause, "{:?}", world.made);
            }
            let back = world.made.get(index + 1).map(|(next, home, _)| (next - when, *home));
            // It has not gone where as much was denied within a day.
            let denied = |(other, node, less): &&(i64, usize, u32)| {
                back.is_some_and(|(_, home)| home == *node) && *node != *from && when - other < DAY && less <= units
            };
            prop_assert!(!world.made[..index].iter().any(|one| denied(&one)), "{:?}", world.made);
        }
        // Each node that it comes to has more room than the one before.
        prop_assert!(world.liars || world.moved < world.room.len(), "{} times", world.moved);
        let kept = forgotten(&world.migrations, at(world.now + 2 * DAY)).count();
        prop_assert_eq!(kept, world.migrations.iter().filter(|one| one.status.is_some()).count());
    }
}
