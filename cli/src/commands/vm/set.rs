//! `vm set`

use neonvm_api::VirtualMachine;
use neonvm_types::Bytes;
use serde_json::{Value, json};

use super::change::{Change, base};
use super::create::manifest::{disk, idle, variable};
use super::size::{self, UNIT_CPU, UNIT_MEMORY};
use crate::args::vm::Set;
use crate::commands::resource::NamespaceClient;
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::report::Report;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings, args: &Set, quiet: bool) -> Result<Report> {
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let machine: VirtualMachine = client.find(&args.name).await?;
        let target = target(&machine, args)?;
        let change = Change::to(machine, &target);
        if change.is_empty(args.applying.restart_now) {
            return Ok(Report::text(format!("virtualmachine/{} unchanged\n", args.name)));
        }
        change.apply(&client, &args.applying, args.applying.restart_now, quiet).await
    })
}

fn target(machine: &VirtualMachine, args: &Set) -> Result<Value> {
    let mut spec = base(machine)?;
    if let Some(text) = &args.cpu {
        let (min, max) = size::bounds("cpu", text, size::cpu)?;
        cpus(&mut spec, min, max);
    }
    if let Some(text) = &args.memory {
        let (min, max) = size::bounds("memory", text, size::memory)?;
        memory(&mut spec, machine, min, max)?;
    }
    if let Some(text) = &args.cu {
        let (min, max) = size::bounds("cu", text, size::units)?;
        cpus(&mut spec, UNIT_CPU.saturating_mul(min), UNIT_CPU.saturating_mul(max));
        let units = |units: u16| UNIT_MEMORY.saturating_mul(u32::from(units));
        memory(&mut spec, machine, units(min), units(max))?;
    }
    if let (Some(image), Some(root)) =
        (&args.image, spec.pointer_mut("/guest/rootDisk").and_then(Value::as_object_mut))
    {
        root.insert("image".to_owned(), json!(image));
    }
    if let (Some(policy), Some(spec)) = (&args.restart, spec.as_object_mut()) {
        spec.insert("restartPolicy".to_owned(), json!(policy));
    }
    if let (Some(after), Some(spec)) = (&args.suspend_after, spec.as_object_mut()) {
        match idle(after)? {
            Some(idle) => spec.insert("idle".to_owned(), idle),
            None => spec.remove("idle"),
        };
    }
    disks(&mut spec, args)?;
    environment(&mut spec, args)?;
    Ok(spec)
}

fn put(spec: &mut Value, object: &str, field: &str, value: Value) {
    if let Some(fields) = spec.pointer_mut(object).and_then(Value::as_object_mut) {
        fields.insert(field.to_owned(), value);
    }
}

/// Bounds of the CPU; the size follows them.
fn cpus(spec: &mut Value, min: neonvm_types::MilliCpu, max: neonvm_types::MilliCpu) {
    let used = spec.pointer("/guest/cpus/use").and_then(|used| serde_json::from_value(used.clone()).ok());
    let used = used.unwrap_or(min).max(min).min(max);
    for (field, cpu) in [("min", min), ("max", max), ("use", used)] {
        put(spec, "/guest/cpus", field, json!(cpu));
    }
}

/// Bounds of the memory, in slots of the size that the VM has.
fn memory(spec: &mut Value, machine: &VirtualMachine, min: Bytes, max: Bytes) -> Result<()> {
    let slot = machine.spec.guest.slot_size().map_err(|error| Error::new(Code::Failed, error.to_string()))?;
    let slots = |bound: Bytes| {
        let slots = bound
            .slots(slot)
            .filter(|_| bound.is_multiple_of(slot))
            .and_then(|slots| u16::try_from(slots).ok());
        slots.ok_or_else(|| {
            Error::new(Code::Usage, format!("--memory: {bound} is not a multiple of the VM's step of {slot}"))
                .hint("the step is spec.guest.memorySlotSize; stop the VM and change it with kubectl edit")
        })
    };
    let (min, max) = (slots(min)?, slots(max)?);
    let used = spec
        .pointer("/guest/memorySlots/use")
        .and_then(Value::as_u64)
        .and_then(|used| u16::try_from(used).ok());
    let used = used.unwrap_or(min).max(min).min(max);
    for (field, count) in [("min", min), ("max", max), ("use", used)] {
        put(spec, "/guest/memorySlots", field, json!(count));
    }
    Ok(())
}

pub(super) fn name_of(entry: &Value) -> Option<&str> {
    entry.get("name").and_then(Value::as_str)
}

/// Adds, changes and removes entries of a list by their names.
fn merge(list: &mut Vec<Value>, entry: Value) {
    match list.iter_mut().find(|one| name_of(one) == name_of(&entry)) {
        Some(one) => *one = entry,
        None => list.push(entry),
    }
}

pub(super) fn list_of(spec: &Value, pointer: &str) -> Vec<Value> {
    spec.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default()
}

fn disks(spec: &mut Value, args: &Set) -> Result<()> {
    let mut list = list_of(spec, "/disks");
    for name in &args.remove_disk {
        let before = list.len();
        list.retain(|disk| name_of(disk) != Some(name));
        if list.len() == before {
            let known: Vec<&str> = list.iter().filter_map(name_of).collect();
            let hint = if known.is_empty() {
                "the VM has no disks besides its root disk".to_owned()
            } else {
                format!("its disks are: {}", known.join(", "))
            };
            return Err(Error::new(
                Code::NotFound,
                format!("--remove-disk: {} has no disk {name:?}", args.name),
            )
            .hint(hint));
        }
    }
    for text in &args.disk {
        merge(&mut list, disk("disk", text)?);
    }
    if !(args.disk.is_empty() && args.remove_disk.is_empty()) {
        set_list(spec, "", "disks", list);
    }
    Ok(())
}

fn environment(spec: &mut Value, args: &Set) -> Result<()> {
    let mut list = list_of(spec, "/guest/env");
    for text in &args.env {
        match text.strip_suffix('-').filter(|name| !name.contains('=')) {
            Some(name) => list.retain(|one| name_of(one) != Some(name)),
            None => merge(&mut list, variable(text)?),
        }
    }
    if !args.env.is_empty() {
        set_list(spec, "/guest", "env", list);
    }
    Ok(())
}

/// Empty lists are left out, as the API has them.
pub(super) fn set_list(spec: &mut Value, object: &str, field: &str, list: Vec<Value>) {
    let Some(fields) = spec.pointer_mut(object).and_then(Value::as_object_mut) else { return };
    if list.is_empty() {
        fields.remove(field);
    } else {
        fields.insert(field.to_owned(), Value::Array(list));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::vm::Command;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(subcommand)]
        command: Command,
    }

    fn changed(flags: &[&str]) -> (Value, Value) {
        let line = ["vm", "set", "pg"].iter().chain(flags);
        let Command::Set(args) = Line::try_parse_from(line).unwrap().command else { panic!("no set") };
        let vm: VirtualMachine = serde_json::from_value(json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
            "metadata": { "name": "pg" }, "spec": { "guest": { "cpus": { "min": "250m", "max": "1", "use": "500m" },
                "rootDisk": { "image": "i" }, "env": [{ "name": "A", "value": "1" }],
                "memorySlots": { "min": 1, "max": 4, "use": 2 } },
                "disks": [{ "name": "d", "mountPath": "/d", "emptyDisk": { "size": "1Gi" } }] },
            "status": { "podName": "pg-1" } }))
        .unwrap();
        let target = target(&vm, &args).unwrap();
        let change = Change::to(vm, &target);
        (Value::Object(change.plan.now), Value::Object(change.plan.later))
    }

    #[test]
    fn bounds_change_now_or_at_the_next_start() {
        let (now, later) = changed(&["--cpu", "0.1..4", "--memory", "1Gi..8Gi"]);
        assert_eq!(now, json!({ "guest": { "cpus": { "min": "100m" } } }));
        assert_eq!(later, json!({ "guest": { "cpus": { "max": 4 }, "memorySlots": { "max": 8 } } }));
        let (now, _) = changed(&["--cpu", "0.75..1"]);
        assert_eq!(now, json!({ "guest": { "cpus": { "min": "750m", "use": "750m" } } }));
        let (now, later) = changed(&["--restart", "Never", "--cu", "1..4"]);
        assert_eq!((now, later), (json!({ "restartPolicy": "Never" }), json!({})));
    }

    /// What an earlier command left for the next start: the same command with `--restart-now` brings the start about.
    #[test]
    fn a_change_that_waits_already_is_enough_for_a_restart() {
        let line = ["vm", "set", "pg", "--image", "j"];
        let Command::Set(args) = Line::try_parse_from(line).unwrap().command else { panic!("no set") };
        let vm = |annotation: &str| -> VirtualMachine {
            serde_json::from_value(json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
                "metadata": { "name": "pg", "annotations": { "vm.neon.tech/at-next-start": annotation } },
                "spec": { "guest": { "cpus": { "min": "250m", "max": "1", "use": "500m" },
                    "rootDisk": { "image": "i" }, "memorySlots": { "min": 1, "max": 4, "use": 2 } } },
                "status": { "podName": "pg-1" } }))
            .unwrap()
        };
        for (annotation, [waits, nothing]) in
            [(r#"{"guest":{"rootDisk":{"image":"j"}}}"#, [true, false]), ("{}", [false, false])]
        {
            let vm = vm(annotation);
            let change = Change::to(vm.clone(), &target(&vm, &args).unwrap());
            assert_eq!([change.is_empty(false), change.is_empty(true)], [waits, nothing], "{annotation}");
        }
    }

    #[test]
    fn disks_and_variables_are_changed_by_name() {
        let (now, later) =
            changed(&["--disk", "d=2Gi:/d", "--disk", "e=1Gi:/e", "--env", "A-", "--env", "B=2"]);
        assert_eq!(now, json!({}));
        let names: Vec<&str> = later["disks"].as_array().unwrap().iter().filter_map(name_of).collect();
        assert_eq!(names, ["d", "e"]);
        assert_eq!(later["guest"]["env"], json!([{ "name": "B", "value": "2" }]));
        let (_, later) = changed(&["--remove-disk", "d"]);
        assert_eq!(later, json!({ "disks": null }));
    }
}
