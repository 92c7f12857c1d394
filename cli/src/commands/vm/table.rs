//! The table of virtual machines, one for `list`, `get` and what they show when something changes: `vm list` and `vm get`.

use neonvm_api::names::{TRUE, label};
use neonvm_api::virtual_machine::{Phase, PowerState};
use neonvm_api::{VirtualMachine, VirtualMachineStatus};
use neonvm_types::{Bytes, MilliCpu};

use super::size::{cores, in_units};
use crate::args::vm::{Get, List};
use crate::commands::resource::{NONE, Resource, age_cell, list, name_of, or_none};
use crate::error::Result;
use crate::report::{Column, Report, left, right, wide};
use crate::settings::Settings;

impl Resource for VirtualMachine {
    const NOUN: &'static str = "vm";
    const ONE: &'static str = "VM";
    const MANY: &'static str = "VMs";
    const PREFIX: &'static str = "virtualmachine";
    const CREATE: &'static str = "create one: neonctl vm create NAME --image IMAGE";
    const WIDTHS: &'static [usize] = &[16, 15, 4, 15, 6, 7, 8, 15, 8, 6];

    fn columns() -> Vec<Column> {
        vec![
            left("NAME"),
            left("PHASE"),
            right("CU"),
            left("RANGE"),
            right("CPU"),
            right("MEMORY"),
            left("NODE"),
            left("IP"),
            right("RESTARTS"),
            left("AGE"),
            wide("POD"),
            wide("ACCEL"),
            wide("MODE"),
            wide("IMAGE"),
        ]
    }

    fn cells(&self) -> Vec<String> {
        let unknown = VirtualMachineStatus::default();
        let status = self.status.as_ref().unwrap_or(&unknown);
        let (cpu, memory) = observed(self);
        let sized = cpu > MilliCpu::ZERO;
        let units = in_units(cpu, memory).map(|units| units.to_string());
        let phase = phase(self).to_owned();
        let accelerator = status.machine.as_ref().map_or("", |machine| machine.accelerator.as_str());
        let mode = self.spec.cpu_scaling_mode.map_or(String::new(), |mode| format!("{mode:?}"));
        vec![
            name_of(self).to_owned(),
            phase,
            units.unwrap_or_else(|| NONE.to_owned()),
            range(self),
            if sized { cores(cpu) } else { NONE.to_owned() },
            if sized { memory.to_string() } else { NONE.to_owned() },
            or_none(&status.node),
            or_none(if status.extra_net_ip.is_empty() { &status.pod_ip } else { &status.extra_net_ip }),
            restarts(self).to_string(),
            age_cell(self),
            or_none(&status.pod_name),
            or_none(accelerator),
            or_none(&mode),
            or_none(&self.spec.guest.root_disk.image),
        ]
    }
}

/// The phase in a word; that a VM is off, or about to be, is not seen from the phase of the API.
pub(crate) fn phase(machine: &VirtualMachine) -> &'static str {
    let status = machine.status.as_ref();
    let pod = status.is_some_and(|status| !status.pod_name.is_empty());
    match status.and_then(|status| status.phase) {
        _ if machine.metadata.deletion_timestamp.is_some() => "Terminating",
        _ if machine.spec.is_stopped() && pod => "Stopping",
        _ if status.and_then(|status| status.power_state) == Some(PowerState::Stopped) => "Stopped",
        Some(phase) if phase.is_alive() && status.is_some_and(is_still) => {
            if machine.spec.is_paused() {
                "Paused"
            } else {
                "Resuming"
            }
        }
        Some(phase) if phase.is_alive() && machine.spec.is_paused() => "Pausing",
        Some(phase) if phase.is_alive() && machine.spec.is_suspended() && phase != Phase::Suspended => {
            "Suspending"
        }
        Some(phase) if phase.is_alive() => failing(machine).unwrap_or(phase.as_str()),
        Some(phase) => phase.as_str(),
        None => "New",
    }
}

fn is_still(status: &VirtualMachineStatus) -> bool {
    status.power_state == Some(PowerState::Paused)
}

/// Why the workload of a VM that runs does not do its work.
pub(crate) fn failing(machine: &VirtualMachine) -> Option<&'static str> {
    let conditions = &machine.status.as_ref()?.conditions;
    let degraded = conditions.iter().find(|one| one.type_ == "Degraded" && one.status == "True")?;
    let out_of_memory = machine.status.as_ref()?.workload.is_some_and(|workload| workload.out_of_memory);
    match degraded.reason.as_str() {
        "WorkloadFailing" if out_of_memory => Some("OutOfMemory"),
        "WorkloadFailing" => Some("WorkloadFailing"),
        "WorkloadNotStarted" => Some("NotStarted"),
        "GuestFailure" => Some("GuestFailure"),
        _ => None,
    }
}

/// Restarts of the VM, and those of its workload since it started.
fn restarts(machine: &VirtualMachine) -> i64 {
    let status = machine.status.as_ref();
    let own = status.map_or(0, |status| i64::from(status.restart_count));
    own + status.and_then(|status| status.workload).map_or(0, |workload| i64::from(workload.restarts))
}

pub(super) fn is_on(machine: &VirtualMachine) -> bool {
    machine
        .metadata
        .labels
        .as_ref()
        .and_then(|all| all.get(label::SCALING_ENABLED))
        .is_some_and(|v| v == TRUE)
}

/// Which limits of disks bind, in the words of the condition; empty: none.
pub(crate) fn limited(vm: &VirtualMachine) -> &str {
    let mut conditions = vm.status.iter().flat_map(|status| &status.conditions);
    let binds = conditions.find(|one| one.type_ == "DiskLimited" && one.status == "True");
    binds.map_or("", |binds| &binds.message)
}

/// CPU and memory as they are; zero while they are not known.
pub(crate) fn observed(machine: &VirtualMachine) -> (MilliCpu, Bytes) {
    let status = machine.status.as_ref();
    let memory = status.and_then(|status| status.memory_size).and_then(|size| Bytes::try_from(size).ok());
    (status.and_then(|status| status.cpus).unwrap_or_default(), memory.unwrap_or_default())
}

/// Bounds: in compute units if they are whole ones, else CPU.
pub(super) fn range(machine: &VirtualMachine) -> String {
    let guest = &machine.spec.guest;
    let slot = guest.slot_size().unwrap_or_default();
    let memory = |slots: u16| slot.saturating_mul(u32::from(slots));
    let least = in_units(guest.cpus.min, memory(guest.memory_slots.min));
    let most = in_units(guest.cpus.max, memory(guest.memory_slots.max));
    match (least, most) {
        (Some(least), Some(most)) => format!("{least}..{most}"),
        _ => format!("{}..{}cpu", decimal(guest.cpus.min), decimal(guest.cpus.max)),
    }
}

fn decimal(cpu: MilliCpu) -> String {
    let text = cores(cpu);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub(crate) fn list(settings: &Settings, args: &List) -> Result<Report> {
    let (pending, migrating, node) = (args.pending, args.migrating, args.node.clone());
    let filter = move |vm: &VirtualMachine| {
        let on = vm.status.as_ref().map(|status| status.node.as_str()).unwrap_or_default();
        let moves = vm.status.as_ref().is_some_and(|status| status.migration.is_some());
        (!pending || on.is_empty()) && (!migrating || moves) && node.as_ref().is_none_or(|node| node == on)
    };
    list::list(settings, &args.list, filter, |found| found)
}

pub(crate) fn get(settings: &Settings, args: &Get) -> Result<Report> {
    list::get::<VirtualMachine>(settings, &args.names, args.watch)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::commands::resource;

    #[test]
    fn a_machine_in_columns() {
        let machine: VirtualMachine = serde_json::from_value(json!({
            "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": { "name": "pg", "namespace": "db" },
            "spec": { "guest": { "cpus": { "min": "250m", "max": 3, "use": 1 }, "rootDisk": { "image": "img" },
                "memorySlots": { "min": 1, "max": 12, "use": 4 } } },
            "status": { "phase": "Running", "cpus": 1, "memorySize": "4Gi", "node": "n1", "podIP": "10.0.0.7",
                "podName": "pg-abcde", "restartCount": 2, "machine": { "accelerator": "tcg" } } }))
        .unwrap();
        let cells = resource::row(&machine, true);
        assert_eq!(cells[..10], ["db", "pg", "Running", "4", "1..12", "1.00", "4Gi", "n1", "10.0.0.7", "2"]);
        assert_eq!(cells[11..13], ["pg-abcde", "tcg"]);
        assert_eq!(resource::columns::<VirtualMachine>(true).len(), cells.len());
    }

    #[test]
    fn a_vm_that_is_off_is_shown_as_such() {
        let vm = |power: &str, status| -> VirtualMachine {
            serde_json::from_value(json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": {},
                "spec": { "powerState": power, "guest": { "cpus": { "min": 1, "max": 1, "use": 1 },
                    "rootDisk": { "image": "i" }, "memorySlots": { "min": 1, "max": 1, "use": 1 } } }, "status": status }))
            .unwrap()
        };
        let off = json!({ "phase": "Succeeded", "powerState": "Stopped" });
        assert_eq!(phase(&vm("Stopped", off.clone())), "Stopped");
        assert_eq!(phase(&vm("Running", off)), "Stopped", "it has no pod yet");
        assert_eq!(phase(&vm("Stopped", json!({ "phase": "Running", "podName": "a-1" }))), "Stopping");
        assert_eq!(phase(&vm("Running", json!({ "phase": "Failed" }))), "Failed");
        let still = json!({ "phase": "Running", "powerState": "Paused", "podName": "a-1" });
        assert_eq!(phase(&vm("Paused", still.clone())), "Paused");
        assert_eq!(phase(&vm("Running", still.clone())), "Resuming");
        assert_eq!(phase(&vm("Stopped", still)), "Stopping");
        assert_eq!(phase(&vm("Paused", json!({ "phase": "Running", "podName": "a-1" }))), "Pausing");
        assert_eq!(phase(&vm("Paused", json!({ "phase": "Pending", "podName": "a-1" }))), "Pending");
    }

    #[test]
    fn a_workload_that_fails_is_seen_in_the_list() {
        let machine: VirtualMachine = serde_json::from_value(json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
            "metadata": { "name": "a" }, "spec": { "guest": { "cpus": { "min": 1, "max": 1, "use": 1 },
                "rootDisk": { "image": "i" }, "memorySlots": { "min": 1, "max": 1, "use": 1 } } },
            "status": { "phase": "Running", "podName": "a-1", "restartCount": 1, "workload": { "restarts": 5, "outOfMemory": true },
                "conditions": [{ "type": "Degraded", "status": "True", "reason": "WorkloadFailing", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z" }] } }))
        .unwrap();
        assert_eq!(phase(&machine), "OutOfMemory");
        assert_eq!(machine.cells()[8], "6");
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        let machine = VirtualMachine::new(
            "x",
            serde_json::from_value(json!({ "guest": {
            "cpus": { "min": "100m", "max": 1, "use": 1 }, "memorySlots": { "min": 1, "max": 1, "use": 1 },
            "rootDisk": { "image": "img" } } }))
            .unwrap(),
        );
        let cells = resource::row(&machine, false);
        assert_eq!(cells[..8], ["x", "New", "-", "0.1..1cpu", "-", "-", "-", "-"]);
        let mut wide = machine;
        (wide.spec.guest.cpus.min, wide.spec.guest.cpus.max) = (MilliCpu::new(250), MilliCpu::new(12_750));
        assert!(range(&wide).len() <= VirtualMachine::WIDTHS[3], "{}", range(&wide));
        assert!("WorkloadFailing".len() <= VirtualMachine::WIDTHS[1]);
    }
}
