//! The objects of a VM in migration: as the API server has them, and as the controller has received them.

use std::collections::BTreeMap;
use std::rc::Rc;

use neonvm_api::virtual_machine::{
    CpuBounds, CpuScalingMode, ExtraNetwork, Guest, MemorySlots, Phase as Stage,
};
use neonvm_api::{VirtualMachine, VirtualMachineMigration, VirtualMachineSpec, VirtualMachineStatus};
use neonvm_core_vm_lifecycle::{Failure, PodView, Settings, SizeUnanswered, pod};
use neonvm_types::runner_protocol::SizeRequest;
use neonvm_types::{Bytes, Resources, Timestamp};

use super::super::model::{Id, Pod, Vm};
use super::runner::Runner;
use crate::queue::{SECOND, Time};

/// Where the world's clock begins, in seconds of Unix time.
const BEGIN: i64 = 1_700_000_000;

/// The time as objects show it: whole seconds. Always there for the times of a world.
pub(super) fn stamp(at: Time) -> Option<Timestamp> {
    let seconds = i64::try_from(at / SECOND).unwrap_or(0);
    Timestamp::from_unix(BEGIN + seconds)
}

/// A moment after the second that an object shows.
pub(super) fn moment(at: Timestamp) -> Time {
    let seconds = u64::try_from(at.unix() - BEGIN).unwrap_or(0);
    seconds * SECOND + 20 * crate::queue::MILLI
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Vm,
    Moves,
    Pods,
}

#[derive(Clone, Debug)]
pub(crate) struct Objects {
    pub(super) vm: Rc<VirtualMachine>,
    /// The VM is no more.
    pub(super) gone: bool,
    pub(super) moves: BTreeMap<String, Rc<VirtualMachineMigration>>,
    pub(super) pods: BTreeMap<Id, Rc<PodView>>,
}

/// What the controller remembers of a migration.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyState {
    pub(super) failure: Option<Failure>,
    pub(super) unknown_at_source: bool,
}

/// What the controller remembers of a VM.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyStates {
    pub(super) failure: Option<Failure>,
    pub(super) recovered: Option<Timestamp>,
    /// A size that was requested from a runner without a reply.
    pub(super) unanswered: Option<SizeUnanswered>,
    /// The pod that does not take the VM.
    pub(super) refused: Option<Id>,
    pub(super) of: BTreeMap<String, KeyState>,
}

/// A VM with migrations: its objects, and the runners in its pods.
#[derive(Debug)]
pub(crate) struct Care {
    /// As the API server has them.
    pub(super) now: Objects,
    /// As the controller sees them.
    pub(super) seen: Objects,
    /// Which watches have an event on its way to the controller.
    pub(super) dirty: [bool; 3],
    pub(super) key_states: KeyStates,
    pub(super) runners: BTreeMap<Id, Runner>,
    /// When the controller looks next.
    pub(super) due: Option<Time>,
    pub(super) failures: u32,
    pub(super) written: u64,
    /// Whether its disks are copied in a migration, or on storage that all nodes share.
    pub(super) disks: bool,
    /// Whether it is migrated by post-copy.
    pub(super) post_copy: bool,
}

/// The hardware address of a VM follows from its UID.
pub(in crate::world) fn uid_of(id: Id) -> String {
    format!("vm-uid-{id}")
}

/// The size that the spec requests.
pub(super) fn set_use(vm: &mut VirtualMachine, asked: Resources, slot: Bytes) {
    vm.spec.guest.cpus.r#use = asked.vcpus;
    let slots = asked.mem.slots(slot).and_then(|slots| u16::try_from(slots).ok());
    vm.spec.guest.memory_slots.r#use = slots.unwrap_or(u16::MAX);
}

fn object(id: Id, vm: &Vm, slot: Bytes, stage: Stage, pod: &Pod, node: &str) -> VirtualMachine {
    let cpus = CpuBounds { min: vm.min.vcpus, max: vm.max.vcpus, r#use: vm.asked.vcpus };
    let slots = MemorySlots { min: vm.info.mem.min, max: vm.info.mem.max, r#use: vm.info.mem.r#use };
    let mut spec = VirtualMachineSpec::new(Guest::new(cpus, slots, "image"));
    spec.guest.memory_slot_size = slot.to_quantity();
    spec.cpu_scaling_mode = Some(CpuScalingMode::SysfsScaling);
    if vm.address.is_some() {
        let network =
            ExtraNetwork { enable: true, interface: "net1".to_owned(), multus_network: String::new() };
        spec.extra_network = Some(network);
    }
    let mut object = VirtualMachine::new(&vm.name, spec);
    object.metadata.namespace = Some("default".to_owned());
    object.metadata.uid = Some(uid_of(id));
    object.metadata.generation = Some(vm.generation);
    object.metadata.finalizers = Some(vec![neonvm_api::names::FINALIZER.to_owned()]);
    set_use(&mut object, vm.asked, slot);
    object.status = Some(VirtualMachineStatus {
        phase: Some(stage),
        pod_name: pod.key.name.clone(),
        pod_ip: ip_of(pod.uid.len(), id),
        node: node.to_owned(),
        extra_net_ip: vm.address.map(|address| address.to_string()).unwrap_or_default(),
        ..VirtualMachineStatus::default()
    });
    object
}

/// The size of the pod for a VM whose guest has this size.
pub(super) fn size_of(vm: &VirtualMachine, guest: Resources, settings: &Settings) -> pod::PodSize {
    pod::size(vm, SizeRequest { cpu: guest.vcpus, memory: guest.mem }, false, settings)
}

/// An address for a pod; it has no effect.
pub(super) fn ip_of(a: usize, b: usize) -> String {
    format!("10.0.{}.{}", a % 256, b % 256)
}

/// A pod that was made just now.
pub(super) fn view_of(id: Id, pod: &Pod, vm: &VirtualMachine, settings: &Settings) -> PodView {
    let mut view = PodView {
        name: pod.key.name.clone(),
        uid: pod.uid.clone(),
        controller: vm.metadata.uid.clone().unwrap_or_default(),
        ip: ip_of(id / 256, id),
        size: Some(size_of(vm, pod.usage, settings)),
        ..PodView::default()
    };
    if let Some(change) = pod::metadata_change(vm, &view, settings) {
        write_metadata(&mut view, &change);
    }
    view
}

pub(super) fn write_metadata(view: &mut PodView, change: &pod::Metadata) {
    let parts = [(&mut view.labels, &change.labels), (&mut view.annotations, &change.annotations)];
    for (have, change) in parts {
        for (key, value) in change {
            match value {
                Some(value) => drop(have.insert(key.clone(), value.clone())),
                None => drop(have.remove(key)),
            }
        }
    }
}

impl Care {
    /// The objects of a VM with a guest that runs in `at`.
    pub(super) fn new(
        id: Id,
        vm: &Vm,
        (at, pod): (Id, &Pod),
        node: &str,
        slot: Bytes,
        settings: &Settings,
    ) -> Self {
        let object = object(id, vm, slot, Stage::Running, pod, node);
        let mut view = view_of(at, pod, &object, settings);
        (view.node, view.running, view.ready) = (node.to_owned(), true, true);
        // A guest that shrinks has more than its last requested size.
        let most = Resources::new(vm.has.vcpus.max(vm.asked.vcpus), vm.has.mem.max(vm.asked.mem));
        view.size = Some(size_of(&object, most, settings));
        (view.applied, view.current) = (view.size, true);
        let now = Objects {
            vm: Rc::new(object),
            gone: false,
            moves: BTreeMap::new(),
            pods: [(at, Rc::new(view))].into(),
        };
        Self {
            seen: now.clone(),
            now,
            dirty: [false; 3],
            key_states: KeyStates::default(),
            runners: [(at, Runner::booted(vm.asked, 1))].into(),
            due: None,
            failures: 0,
            written: 1,
            disks: true,
            post_copy: false,
        }
    }

    /// The pod of this name, by the API server.
    pub(super) fn pod_named(&self, name: &str) -> Option<Id> {
        let found = self.now.pods.iter().find(|(_, view)| view.name == name);
        found.map(|(id, _)| *id)
    }

    /// Whether nothing is left to look after.
    pub(super) fn is_at_rest(&self) -> bool {
        if self.now.gone {
            return self.now.moves.is_empty() && self.now.pods.is_empty();
        }
        let status = self.now.vm.status.as_ref();
        let runs = status
            .is_some_and(|status| matches!(status.phase, Some(Stage::Running)) && status.migration.is_none());
        let whole = self.now.pods.len() == 1
            && self.now.pods.values().all(|view| view.ended.is_none() && view.migrations.is_empty());
        let quiet = self.runners.values().filter(|runner| runner.alive).all(Runner::is_at_rest);
        runs && whole
            && quiet
            && self.now.moves.is_empty()
            && self.now.vm.metadata.deletion_timestamp.is_none()
            && self.runners.values().filter(|runner| runner.guest).count() == 1
    }
}
