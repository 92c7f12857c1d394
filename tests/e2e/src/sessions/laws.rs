//! The laws: what of a VM's object is compared with the model.

use std::collections::BTreeMap;

use serde_json::Value;

use super::model::{Model, Place, Power, Vm};
use super::object::{find, number, observed, requested, text};
use super::shape::{Range, read_cpu, read_memory};
use super::step::Workload;

/// Status and message of a condition.
fn condition(object: &Value, kind: &str) -> (String, String) {
    let all = object.pointer("/status/conditions").and_then(Value::as_array);
    let found = all.into_iter().flatten().find(|one| text(one, "/type") == kind);
    found.map(|one| (text(one, "/status"), text(one, "/message"))).unwrap_or_default()
}

impl Model {
    /// Everything that is not as it must be, if these are the VMs that there are. `idle`: a VM without load is soon at its lower
    /// bounds.
    #[must_use]
    pub fn faults(&self, objects: &[Value], idle: bool) -> Vec<String> {
        faults(self, objects, idle)
    }
}

fn faults(model: &Model, objects: &[Value], idle: bool) -> Vec<String> {
    let mut all = Vec::new();
    for (name, vm) in &model.vms {
        let Some(object) = find(objects, name) else {
            all.push(format!("{name} is not there"));
            continue;
        };
        let mut faults = Faults { name, list: Vec::new() };
        spec(vm, object, &mut faults);
        power(vm, object, &mut faults);
        if matches!(vm.power, Power::Running | Power::Paused) {
            size(vm, object, idle, &mut faults);
            place(vm, object, &mut faults);
        }
        all.extend(faults.list);
    }
    let names = objects.iter().map(|object| text(object, "/metadata/name"));
    all.extend(names.filter(|name| !model.vms.contains_key(name)).map(|name| format!("{name} is there")));
    all
}

struct Faults<'a> {
    name: &'a str,
    list: Vec<String>,
}

impl Faults<'_> {
    #[expect(clippy::needless_pass_by_value, reason = "most of them are made for this call")]
    fn differ<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, found: T, wanted: T) {
        if wanted != found {
            self.list.push(format!("{}: {what} is {found:?}, not {wanted:?}", self.name));
        }
    }
}

/// The object has what was ordered, and nothing else has changed it.
fn spec(vm: &Vm, object: &Value, faults: &mut Faults<'_>) {
    let guest = object.pointer("/spec/guest").cloned().unwrap_or_default();
    let cpu = |end: &str| guest.pointer(&format!("/cpus/{end}")).and_then(read_cpu);
    let step = guest.get("memorySlotSize").and_then(read_memory);
    let memory = |end: &str| {
        number(&guest, &format!("/memorySlots/{end}"))
            .zip(step)
            .and_then(|(slots, step)| slots.checked_mul(step))
    };
    let of = |bounds: Range| (Some(bounds.min), Some(bounds.max));
    let shape = vm.now.shape;
    faults.differ("bounds of CPU", (cpu("min"), cpu("max")), of(shape.cpu));
    faults.differ("bounds of memory", (memory("min"), memory("max")), of(shape.memory));
    faults.differ("step of memory", step, Some(shape.step));
    faults.differ("image", text(&guest, "/rootDisk/image"), vm.now.image.clone());
    let env = guest.get("env").and_then(Value::as_array).cloned().unwrap_or_default();
    let env: BTreeMap<String, String> =
        env.iter().map(|one| (text(one, "/name"), text(one, "/value"))).collect();
    faults.differ("environment", env, vm.now.env.clone());
    faults.differ("restart policy", text(object, "/spec/restartPolicy"), vm.restart.word().to_owned());
    match requested(object) {
        Some(asked) if !shape.has(asked) => faults.differ("requested size", asked, shape.fit(asked)),
        asked if !vm.auto => faults.differ("requested size", asked, Some(vm.asked)),
        _ => {}
    }
}

/// Whether it runs, and whether it is well.
fn power(vm: &Vm, object: &Value, faults: &mut Faults<'_>) {
    let phase = text(object, "/status/phase");
    let state = text(object, "/status/powerState");
    let degraded = condition(object, "Degraded");
    match vm.power {
        Power::Running | Power::Paused => {
            let wanted = if vm.power == Power::Paused { "Paused" } else { "" };
            faults.differ("power state", state.as_str(), wanted);
            faults.differ("phase", phase.as_str(), "Running");
            if vm.power == Power::Running {
                faults.differ("condition Available", condition(object, "Available").0.as_str(), "True");
                faults.differ("condition Scaled", condition(object, "Scaled").0.as_str(), "True");
            }
            if degraded.0 != "False" {
                faults.differ("condition Degraded", degraded, ("False".to_owned(), String::new()));
            }
        }
        Power::Stopped => {
            faults.differ("power state", state.as_str(), "Stopped");
            faults.differ("pod", text(object, "/status/podName").as_str(), "");
        }
        Power::Ended => {
            let wanted = if vm.workload == Workload::EndsBadly { "Failed" } else { "Succeeded" };
            faults.differ("phase", phase.as_str(), wanted);
            faults.differ("power state", state.as_str(), "");
            let code = object.pointer("/status/lastExit/exitCode").and_then(Value::as_i64);
            faults.differ("exit code", code, Some(if vm.workload == Workload::EndsBadly { 3 } else { 0 }));
        }
    }
    faults.differ("restarts", number(object, "/status/restartCount").unwrap_or(0), 0);
    if let Some(migration) = object.pointer("/status/migration").filter(|migration| !migration.is_null()) {
        faults.differ("migration", migration.clone(), Value::Null);
    }
}

fn size(vm: &Vm, object: &Value, idle: bool, faults: &mut Faults<'_>) {
    let found = observed(object);
    let exact = idle || vm.power == Power::Paused || !vm.auto || vm.hold.is_some();
    match found {
        Some(size) if !exact && vm.range().has(size) => {}
        _ => faults.differ("size", found, Some(vm.goal())),
    }
}

/// Whether it is in the pod where it must be.
fn place(vm: &Vm, object: &Value, faults: &mut Faults<'_>) {
    let (pod, node) = (text(object, "/status/podName"), text(object, "/status/node"));
    let (other_pod, other_node) = (pod != vm.pod && !pod.is_empty(), node != vm.node && !node.is_empty());
    let good = match vm.place {
        Place::Same => pod == vm.pod && node == vm.node,
        Place::NewPod => other_pod,
        Place::NewNode => other_pod && other_node,
        Place::Either => other_pod == other_node,
    };
    if !good {
        let before = (vm.pod.clone(), vm.node.clone());
        faults.list.push(format!(
            "{}: is in {:?}, was in {before:?}: {:?}",
            faults.name,
            (pod, node),
            vm.place
        ));
    }
}
