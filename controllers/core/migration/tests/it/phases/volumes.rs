//! The volume of the VM's disk in the abstract world: rows that its guest has written, and on which claims they are.

use std::collections::{BTreeMap, BTreeSet};

use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::{CopyOf, VolumeStatus};
use neonvm_core_vm_lifecycle::claims::{self, ClaimView, Readiness, copy};
use neonvm_types::Bytes;
use serde_json::json;

use super::{Turn, world::World};

/// Rows of a volume that has a part of a copy: fewer than any guest has written.
const PART: u64 = 0;

#[derive(Debug)]
pub(crate) struct Storage {
    /// Rows that the guest has written, all of them acknowledged.
    rows: u64,
    /// How many of them each claim has.
    on: BTreeMap<String, u64>,
    /// The claim that each pod was made with.
    mounted: BTreeMap<String, String>,
    /// Target pods of which it is on record that they have the newest content.
    known: BTreeSet<String>,
}

/// The VM with a disk on a claim of its own, which one node at a time can mount.
pub(super) fn with_disk(mut vm: VirtualMachine) -> VirtualMachine {
    let template = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    vm.spec.volume_claim_templates = vec![serde_json::from_value(template).unwrap()];
    vm.spec.disks = vec![serde_json::from_value(json!({"name": "data", "mountPath": "/data"})).unwrap()];
    let volume =
        VolumeStatus { name: "data".into(), claim_name: "data-db".into(), ..VolumeStatus::default() };
    vm.status.get_or_insert_default().volumes = vec![volume];
    vm
}

/// The claim that the VM begins with.
pub(super) fn first() -> ClaimView {
    ClaimView {
        name: "data-db".into(),
        access: vec!["ReadWriteOnce".into()],
        size: Bytes::gib(1),
        vm: "db".into(),
        ..ClaimView::default()
    }
}

impl Storage {
    pub(super) fn new(pod: &str) -> Self {
        Self {
            rows: 1,
            on: [("data-db".to_owned(), 1)].into(),
            mounted: [(pod.to_owned(), "data-db".to_owned())].into(),
            known: BTreeSet::new(),
        }
    }

    /// The guest is paused: what it has written is at the target.
    pub(super) fn finish_mirror(&mut self, source: &str, target: &str) {
        let (from, to) = (&self.mounted[source], &self.mounted[target]);
        assert_ne!(from, to, "D4: two QEMUs would have one volume");
        self.on.insert(to.clone(), self.on[from]);
    }
}

impl World {
    /// A pod is made with the claim of its VM, or as a target with the copy.
    pub(super) fn mount(&mut self, pod: &str, target: Option<&str>) {
        let newest = self.newest();
        let claims = match target {
            Some(target) => copy::for_target(&newest.vm, &newest.claims, target),
            None => claims::for_runner(&newest.vm, &newest.claims),
        };
        let claim = claims["data"].name.clone();
        assert!(newest.claims.iter().any(|one| one.name == claim), "a pod without its claim {claim}");
        self.storage.mounted.insert(pod.to_owned(), claim);
    }

    pub(super) fn make_copies(&mut self, target: &str) {
        let vm = self.newest().vm.clone();
        let copies: Vec<_> = vm.status.iter().flat_map(|status| status.copies(target)).collect();
        for (volume, name) in copies {
            if self.newest().claims.iter().any(|claim| claim.name == name) {
                continue;
            }
            let named = if volume.copy_of.is_empty() { &volume.claim_name } else { &volume.copy_of };
            let copy = Some(CopyOf { claim: named.clone(), vm: "u-1".into(), whole: false });
            let made = ClaimView { name: name.clone(), copy, ..first() };
            self.storage.on.insert(name, PART);
            self.change(|next| next.claims.push(made));
        }
    }

    pub(super) fn with_claim(&mut self, name: &str, change: impl FnOnce(&mut ClaimView)) {
        self.change(|next| {
            if let Some(claim) = next.claims.iter_mut().find(|claim| claim.name == name) {
                change(claim);
            }
        });
    }

    /// As the API server does it: a claim that a pod uses goes after the pod.
    pub(super) fn delete_claim(&mut self, name: &str, partial: bool) {
        let Some(claim) = self.newest().claims.iter().find(|claim| claim.name == name) else { return };
        if partial && claim.copy.as_ref().is_none_or(|copy| copy.whole) {
            return;
        }
        let has_all = |name: &str| self.storage.on.get(name) == Some(&self.storage.rows);
        let stays = |claim: &&ClaimView| claim.name != name && !claim.deleting && has_all(&claim.name);
        let other = self.newest().claims.iter().any(|claim| stays(&claim));
        assert!(
            !has_all(name) || other || self.is_unseen(),
            "D2: claim {name} has the only copy of all rows"
        );
        self.with_claim(name, |claim| claim.deleting = true);
        self.collect_claims();
    }

    pub(super) fn collect_claims(&mut self) {
        let used: Vec<String> = self
            .newest()
            .pods
            .iter()
            .filter(|pod| pod.ended.is_none())
            .filter_map(|pod| self.storage.mounted.get(&pod.name).cloned())
            .collect();
        self.change(|next| next.claims.retain(|claim| !claim.deleting || used.contains(&claim.name)));
    }

    /// The guest writes a row.
    pub(super) fn write_rows(&mut self) {
        let guest = self.runners.iter().find(|(_, run)| run.guest).map(|(name, _)| name.clone());
        let Some(pod) = guest else { return };
        let claim = self.storage.mounted[&pod].clone();
        self.storage.rows += 1;
        self.storage.on.insert(claim, self.storage.rows);
    }

    /// What is on record of where the content is.
    pub(super) fn note_content(&mut self) {
        let status = self.newest().vm.status.clone().unwrap_or_default();
        let lock = status.migration.as_ref();
        self.storage
            .known
            .extend(lock.filter(|lock| lock.content.is_some()).map(|lock| lock.target_pod_name.clone()));
        self.storage.known.insert(status.pod_name);
    }

    /// Whether the last guest ran on a volume of which no one could know: both runners died before the controller had it on record.
    fn is_unseen(&self) -> bool {
        let newest = |claim: &String| self.storage.on.get(claim) == Some(&self.storage.rows);
        let pods = self.storage.mounted.iter().filter(|(_, claim)| newest(claim)).map(|(pod, _)| pod);
        let last: Vec<&String> = pods.collect();
        !last.iter().any(|pod| self.storage.known.contains(*pod))
            && last.iter().all(|pod| self.targets.contains_key(*pod))
    }

    /// D1: a guest that boots finds all that was acknowledged.
    pub(super) fn check_rows(&mut self, pod: &str) {
        let claim = self.storage.mounted[pod].clone();
        if self.storage.on[&claim] != self.storage.rows {
            assert!(
                self.is_unseen(),
                "D1: {pod} boots from {claim} with {} rows: {:#?}",
                self.storage.rows,
                self.storage
            );
            self.storage.rows = self.storage.on[&claim];
        }
    }

    /// D5: a later VM of the same name finds all rows.
    pub(super) fn check_heir(&mut self) {
        let newest = self.newest();
        let mut heir = newest.vm.clone();
        heir.status = None;
        heir.metadata.uid = Some("u-2".into());
        let Readiness::Ready(volumes) = claims::readiness(&heir, &newest.claims) else {
            panic!("D5: {:?} of {:?}", claims::readiness(&heir, &newest.claims), newest.claims)
        };
        let claim = &volumes[0].claim_name;
        let whole = self.storage.on[claim] == self.storage.rows;
        assert!(whole || self.is_unseen(), "D5: the next VM gets {claim}: {:#?}", self.storage);
    }

    /// D3: at rest there is one claim, the one with all rows.
    pub(super) fn check_claims(&self) {
        let newest = self.newest();
        let names: Vec<&str> = newest.claims.iter().map(|claim| claim.name.as_str()).collect();
        assert_eq!(names.len(), 1, "D3: {:#?}", newest.claims);
        assert!(
            self.is_unseen() || self.storage.on[names[0]] == self.storage.rows,
            "D3: {names:?} {:#?}",
            self.storage
        );
        if newest.vm.metadata.deletion_timestamp.is_none() {
            let volume = &newest.vm.status.as_ref().unwrap().volumes[0];
            assert_eq!((volume.claim_name.as_str(), volume.previous.as_str()), (names[0], ""));
        }
    }
}

/// What the controller has seen of the handover outlives it: both runners die before the next controller has seen them, and the VM starts
/// from the volume on which it ran last.
#[test]
fn the_volume_that_was_written_last_is_on_record() {
    let mut world = World::at_handover();
    world.lives_through(&[
        Turn::Work { age: 0, writes: 99 },
        Turn::Carry(1),
        Turn::NewController,
        Turn::Vanishes(0),
        Turn::Vanishes(0),
    ]);
    let status = world.newest().vm.status.clone().unwrap();
    assert_eq!((status.restart_count, status.volumes[0].copy_of.as_str()), (1, "data-db"));
}

/// A target whose node dies after the handover may have run the guest, which wrote to the volume, before any controller had a report of
/// it. The source's memory is older than the volume: the VM starts again from the volume.
#[test]
fn a_source_does_not_go_on_beside_a_volume_that_is_newer() {
    for ran in [true, false] {
        let mut world = World::at_handover();
        world.turn(&Turn::Work { age: 0, writes: 99 });
        if ran {
            world.turn(&Turn::Carry(1));
        }
        world.lives_through(&[Turn::Vanishes(1)]);
        let status = world.newest().vm.status.clone().unwrap();
        assert_eq!((status.restart_count, status.volumes[0].copy_of.as_str()), (1, "data-db"));
    }
}

/// A VM that is deleted when its guest runs at the target, of which nothing is left then: the claim that was written last stays.
#[test]
fn a_deletion_keeps_the_claim_that_was_written_last() {
    let work = Turn::Work { age: 0, writes: 99 };
    let turns = [work.clone(), Turn::Carry(1), Turn::Delete, Turn::Carry(1), Turn::Vanishes(1), work];
    World::at_handover().lives_through(&turns);
}
