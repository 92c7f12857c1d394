//! What must be true of each VM: a small model of the documented behaviour.

use std::collections::BTreeMap;

use serde_json::Value;

use super::object::{find, observed, requested, text};
use super::shape::{Range, Shape, Size};
use super::step::{Changes, Creation, Restart, Step, Workload};

/// How a command must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It succeeds. `wait`: what it orders is carried out at once, so it can be waited for.
    Accepted {
        /// See there.
        wait: bool,
    },
    /// It fails, and nothing has changed.
    Refused,
    /// The order is carried out, and the command fails, because the workload does.
    Fails,
}

/// Whether a VM runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Power {
    Running,
    Paused,
    Stopped,
    /// Its workload has ended.
    Ended,
}

/// In which pod a VM must be, seen from the pod before the last command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the same one.
    Same,
    /// In another one.
    NewPod,
    /// In another one, on another node.
    NewNode,
    /// In the same one, or in another one on another node.
    Either,
}

/// What takes effect when a VM starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) shape: Shape,
    pub(super) image: String,
    pub(super) env: BTreeMap<String, String>,
}

/// One VM.
#[derive(Clone, Debug)]
pub(super) struct Vm {
    pub(super) now: Made,
    /// What it is made of at its next start.
    pub(super) next: Made,
    /// The requested size.
    pub(super) asked: Size,
    /// The size that it had when its guest last ran.
    pub(super) seen: Size,
    pub(super) auto: bool,
    /// Its own bounds of scaling.
    pub(super) bounds: Option<(Size, Size)>,
    pub(super) hold: Option<Size>,
    pub(super) power: Power,
    pub(super) workload: Workload,
    pub(super) restart: Restart,
    pub(super) place: Place,
    /// Pod and node, as they were last observed.
    pub(super) pod: String,
    pub(super) node: String,
}

impl Vm {
    fn new(creation: &Creation) -> Self {
        let made = Made { shape: creation.shape, image: creation.image.clone(), env: BTreeMap::new() };
        let start = creation.start.unwrap_or(creation.shape.least());
        let mut vm = Self {
            next: made.clone(),
            now: made,
            asked: start,
            seen: start,
            auto: creation.auto && creation.shape.has_room(),
            bounds: None,
            hold: None,
            power: Power::Running,
            workload: creation.workload,
            restart: creation.restart,
            place: Place::NewPod,
            pod: String::new(),
            node: String::new(),
        };
        vm.start();
        vm
    }

    /// Whether a pod keeps the VM from changing.
    fn has_pod(&self) -> bool {
        match self.power {
            Power::Running | Power::Paused => true,
            Power::Stopped => false,
            Power::Ended => !self.pod.is_empty(),
        }
    }

    /// The bounds within which its load or a hold scales it: its own, as far as its object allows them.
    pub(super) fn range(&self) -> Shape {
        let shape = self.now.shape;
        let Some((min, max)) = self.bounds else { return shape };
        let (min, max) = (shape.fit(min), shape.fit(max));
        Shape {
            cpu: Range { min: min.cpu, max: max.cpu },
            memory: Range { min: min.memory, max: max.memory },
            ..shape
        }
    }

    /// The size that it must come to.
    pub(super) fn goal(&self) -> Size {
        match (self.power, self.auto, self.hold) {
            (Power::Paused, ..) => self.seen,
            (_, false, _) => self.asked,
            (_, true, Some(held)) => self.range().fit(held),
            (_, true, None) => self.range().least(),
        }
    }

    /// A new pod: what waited for it takes effect.
    fn start(&mut self) {
        self.now = self.next.clone();
        self.asked = self.now.shape.fit(self.asked);
        self.seen = self.asked;
        self.place = Place::NewPod;
        if self.power == Power::Paused {
            return;
        }
        self.power = if self.workload == Workload::Stays { Power::Running } else { Power::Ended };
    }

    fn set(&mut self, changes: &Changes) {
        let next = &mut self.next;
        next.shape.cpu = changes.cpu.unwrap_or(next.shape.cpu);
        next.shape.memory = changes.memory.unwrap_or(next.shape.memory);
        if let Some(image) = &changes.image {
            next.image.clone_from(image);
        }
        match &changes.env {
            Some((name, Some(value))) => drop(next.env.insert(name.clone(), value.clone())),
            Some((name, None)) => drop(next.env.remove(name)),
            None => {}
        }
        self.restart = changes.restart.unwrap_or(self.restart);
        if self.has_pod() {
            // Only the lower bound of CPU changes under a pod, as far as the upper one lets it.
            let min = self.next.shape.cpu.min;
            if min <= self.now.shape.cpu.max {
                self.now.shape.cpu.min = min;
            }
            // The size follows the bounds to come, as far as those of now let it.
            self.asked = self.now.shape.fit(self.next.shape.fit(self.asked));
        } else {
            self.now = self.next.clone();
            self.asked = self.now.shape.fit(self.asked);
        }
        if changes.now && self.has_pod() && self.next != self.now {
            self.start();
        }
    }
}

/// All VMs of a session.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub(super) vms: BTreeMap<String, Vm>,
}

const DONE: Verdict = Verdict::Accepted { wait: true };

impl Model {
    /// How the command must end. A step about a VM that is not there is refused.
    #[must_use]
    pub fn verdict(&self, step: &Step) -> Verdict {
        let accepted_if = |yes: bool| if yes { DONE } else { Verdict::Refused };
        let Some(vm) = self.vms.get(step.vm()) else {
            return match step {
                Step::Create(creation) if creation.workload == Workload::EndsBadly => Verdict::Fails,
                other => accepted_if(matches!(other, Step::Create(_))),
            };
        };
        let starts = || if vm.workload == Workload::EndsBadly { Verdict::Fails } else { DONE };
        let runs = vm.power == Power::Running;
        match step {
            Step::Create(_) | Step::RemoveImage(..) => Verdict::Refused,
            Step::Fix(_, size, off) if (vm.auto && !off) || !vm.now.shape.has(*size) => Verdict::Refused,
            Step::Fix(..) => Verdict::Accepted { wait: runs },
            Step::Hold(_, size) if !vm.auto || !vm.range().has(*size) => Verdict::Refused,
            Step::Hold(..) => Verdict::Accepted { wait: runs },
            Step::Bounds(_, min, max) => accepted_if(vm.now.shape.has(*min) && vm.now.shape.has(*max)),
            Step::Start(_) if runs => DONE,
            Step::Start(_) if vm.power == Power::Paused => DONE,
            Step::Start(_) | Step::Restart(_) => starts(),
            Step::Set(_, changes) if changes.now => {
                let mut after = Vm { place: Place::Same, ..vm.clone() };
                after.set(changes);
                if after.place == Place::NewPod && after.power != Power::Paused { starts() } else { DONE }
            }
            Step::Pause(_) => accepted_if(matches!(vm.power, Power::Running | Power::Paused)),
            Step::Resume(_) => accepted_if(vm.power != Power::Stopped),
            Step::Migrate(_) | Step::Cancel(_) | Step::Drain(_) => accepted_if(runs),
            Step::Set(..) | Step::Auto(..) | Step::Release(_) | Step::Stop(_) | Step::Delete(_) => DONE,
        }
    }

    /// The model after a command. One that is refused changes nothing.
    pub fn apply(&mut self, step: &Step) {
        let verdict = self.verdict(step);
        for vm in self.vms.values_mut() {
            vm.place = Place::Same;
        }
        if verdict == Verdict::Refused {
            return;
        }
        match step {
            Step::Create(creation) => drop(self.vms.insert(creation.vm.clone(), Vm::new(creation))),
            Step::Delete(name) => drop(self.vms.remove(name)),
            Step::Drain(name) => self.drained(name),
            other => {
                if let Some(vm) = self.vms.get_mut(other.vm()) {
                    order(vm, other);
                }
            }
        }
    }

    /// All VMs of the node go, except those that are paused.
    fn drained(&mut self, name: &str) {
        let node = self.vms.get(name).map(|vm| vm.node.clone()).unwrap_or_default();
        for vm in self.vms.values_mut().filter(|vm| vm.node == node) {
            vm.place = match vm.power {
                Power::Running => Place::NewNode,
                Power::Paused | Power::Stopped | Power::Ended => Place::Same,
            };
        }
    }

    /// Whether a VM on the node of this one keeps it from being drained.
    #[must_use]
    pub fn blocks_drain(&self, name: &str) -> bool {
        let node = self.vms.get(name).map(|vm| vm.node.clone()).unwrap_or_default();
        self.vms.values().any(|vm| vm.node == node && vm.power == Power::Paused)
    }

    /// The node on which a VM was observed.
    #[must_use]
    pub fn node_of(&self, name: &str) -> Option<&str> {
        self.vms.get(name).map(|vm| vm.node.as_str())
    }

    /// Bounds of a VM.
    pub(super) fn shape_of(&self, name: &str) -> Option<Shape> {
        self.vms.get(name).map(|vm| vm.now.shape)
    }

    /// Image of a VM.
    pub(super) fn image_of(&self, name: &str) -> Option<String> {
        self.vms.get(name).map(|vm| vm.now.image.clone())
    }

    /// Whether a VM with this policy would be started without end.
    pub(super) fn repeats(&self, name: &str, policy: Restart) -> bool {
        self.vms.get(name).is_some_and(|vm| policy.repeats(vm.workload))
    }

    /// Names of the VMs.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.vms.keys().map(String::as_str)
    }

    /// Keeps what the model does not determine: pods, nodes, and where a VM that its load scales is.
    pub fn observe(&mut self, objects: &[Value]) {
        for (name, vm) in &mut self.vms {
            let Some(object) = find(objects, name) else { continue };
            (vm.pod, vm.node) = (text(object, "/status/podName"), text(object, "/status/node"));
            if let Some(asked) = requested(object).filter(|_| vm.auto) {
                vm.asked = asked;
            }
            if let Some(size) = observed(object).filter(|_| vm.power == Power::Running) {
                vm.seen = size;
            }
        }
    }
}

/// What an accepted order changes.
fn order(vm: &mut Vm, step: &Step) {
    match step {
        Step::Set(_, changes) => vm.set(changes),
        Step::Fix(_, size, off) => {
            vm.asked = *size;
            if *off {
                (vm.auto, vm.hold) = (false, None);
            }
        }
        Step::Auto(_, true) => vm.auto = true,
        Step::Auto(_, false) => (vm.auto, vm.hold) = (false, None),
        Step::Bounds(_, min, max) => {
            let made = vm.now.shape;
            vm.bounds = Some((*min, *max)).filter(|bounds| *bounds != (made.least(), made.most()));
        }
        Step::Hold(_, size) => vm.hold = Some(*size),
        Step::Release(_) => vm.hold = None,
        Step::Stop(_) => {
            vm.power = Power::Stopped;
            vm.place = Place::Either;
        }
        Step::Start(_) if vm.power == Power::Running => {}
        Step::Start(_) | Step::Resume(_) if vm.power == Power::Paused => vm.power = Power::Running,
        Step::Resume(_) => {}
        Step::Start(_) => vm.start(),
        Step::Restart(_) => {
            vm.power = Power::Running;
            vm.start();
        }
        Step::Pause(_) => vm.power = Power::Paused,
        Step::Migrate(_) => vm.place = Place::NewNode,
        Step::Cancel(_) => vm.place = Place::Either,
        Step::Create(_) | Step::Drain(_) | Step::RemoveImage(..) | Step::Delete(_) => {}
    }
}
