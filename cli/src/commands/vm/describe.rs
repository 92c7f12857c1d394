//! `vm describe`

use crate::commands::resource::document;
use std::fmt::Write as _;

use k8s_openapi::jiff::Timestamp;
use neonvm_api::VirtualMachine;
use neonvm_api::runner_pod::ROOT_DISK_VOLUME;
use neonvm_api::virtual_machine::PortProtocol;
use neonvm_types::agent_inspect::VmInspect;
use neonvm_types::guest::{DiskReport, ROOT};

use super::disk::{limit, usage};
use super::events::{Event, allowed, of_vm};
use super::size::{cores, in_units};
use super::{decisions, table};
use crate::args::vm::Describe;
use crate::commands::resource::{NamespaceClient, name_of};
use crate::connect::block_on;
use crate::error::Result;
use crate::render::{age, one_line};
use crate::report::{Document, Report};
use crate::settings::Settings;

pub(crate) fn run(settings: &Settings, args: &Describe) -> Result<Report> {
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let machine = client.find(&args.name).await?;
        let (events, denied) = allowed(of_vm(&client, name_of(&machine)).await)?;
        let agent = async {
            match table::is_on(&machine) {
                true => Some(decisions::of_vm(&client, &machine).await),
                false => None,
            }
        };
        let (agent, usage) = tokio::join!(agent, usage::of_vm(&client, &machine));
        let text = describe(&machine, agent.as_ref(), usage.as_ref(), &events, args.events);
        let document = document(&[machine]);
        let report = Report::document(Document { text: Some(text), ..document });
        Ok(denied.into_iter().fold(report, Report::note))
    })
}

/// What the agent knows, or why that is not known; none if it does not scale the VM.
type Agent<'a> = Option<&'a std::result::Result<VmInspect, String>>;
/// How full the disks are, or why that is not known; none if the VM does not run.
type Usage<'a> = Option<&'a std::result::Result<DiskReport, String>>;

fn describe(
    machine: &VirtualMachine,
    agent: Agent<'_>,
    usage: Usage<'_>,
    events: &[Event],
    most: usize,
) -> String {
    let mut text = String::new();
    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "{key:<13} {}", one_line(&value));
    };
    let (spec, status) = (&machine.spec, machine.status.clone().unwrap_or_default());
    let meta = &machine.metadata;
    let uid = meta.uid.clone().unwrap_or_default();
    line(
        "Name",
        format!("{} (namespace {}, uid {uid})", name_of(machine), meta.namespace.clone().unwrap_or_default()),
    );
    line("Phase", phase(machine));
    let address = address(machine);
    if !address.is_empty() {
        line("Address", address);
    }
    if let Some(port) = spec.guest.ports.iter().find(|port| port.protocol != PortProtocol::Udp) {
        line("Connect", format!("neonctl vm port-forward {} {}", name_of(machine), port.port));
    }
    line("Size", size(machine));
    line("Scaling", scaling(machine, agent));
    if let Some(active) = &status.migration {
        let (name, target) = (&active.name, &active.target_pod_name);
        line("Migration", format!("{name}, to pod {target}; see: neonctl migration describe {name}"));
    }
    if status.machine.is_some() {
        line("Machine", hardware(machine));
    }
    line("Image", spec.guest.root_disk.image.clone());
    for (key, value) in disks(machine, usage) {
        line(key, value);
    }
    let inside =
        status.workload.map(|workload| format!(", {} of its workload in the guest", workload.restarts));
    let restarts = format!(
        "{} so far{}, policy {:?}",
        status.restart_count,
        inside.unwrap_or_default(),
        spec.restart_policy
    );
    line("Restarts", restarts);
    if let Some(exit) = &status.last_exit {
        let code = exit.exit_code.map(|code| format!(", code {code}")).unwrap_or_default();
        line("Last exit", format!("{}{code}: {}", exit.reason, exit.message));
        for words in exit.console.iter().rev().take(5).rev() {
            line("", format!("  {words}"));
        }
    }
    if !status.ssh_secret_name.is_empty() {
        line(
            "SSH",
            format!("neonctl vm ssh {} (keys in secret {})", name_of(machine), status.ssh_secret_name),
        );
    }
    text.push_str(&happened(machine, events, most));
    text.trim_end().to_owned()
}

/// Each disk with what has its content and how full it is, the root file system first if that is known.
fn disks(machine: &VirtualMachine, usage: Usage<'_>) -> Vec<(&'static str, String)> {
    let status = machine.status.clone().unwrap_or_default();
    let known = usage.and_then(|usage| usage.as_ref().ok());
    let full = |name: &str| {
        let disk = known?.disks.iter().find(|disk| disk.name == name)?;
        Some(usage::line(disk))
    };
    let limits = |name: &str| match limit::of_disk(machine, name) {
        None => String::new(),
        Some((limits, true)) => format!("; limited to {limits}"),
        Some((limits, false)) => format!("; to be limited to {limits}"),
    };
    let root = full(ROOT).unwrap_or_default() + &limits(ROOT_DISK_VOLUME);
    let root = root.trim_start_matches("; ").to_owned();
    let mut lines: Vec<_> = (!root.is_empty()).then_some(("Root", root)).into_iter().collect();
    for disk in &machine.spec.disks {
        let claim = disk.claim(name_of(machine));
        let kind = if let Some(claim) = claim {
            match status.claim_for(&disk.name, &claim) {
                now if now == claim => format!("claim {claim}"),
                now => format!("claim {now}, in place of {claim} since a migration"),
            }
        } else if disk.empty_disk.is_some() {
            "empty".to_owned()
        } else if disk.tmpfs.is_some() {
            "tmpfs".to_owned()
        } else {
            "files".to_owned()
        };
        let full = full(&disk.name).map(|text| format!(": {text}")).unwrap_or_default();
        let (name, limits) = (&disk.name, limits(&disk.name));
        lines.push(("Disk", format!("{name} at {} ({kind}){full}{limits}", disk.mount_path)));
    }
    if let Some(left) = known.and_then(|known| known.frozen_left_ms) {
        let left = left / 1000;
        lines.push((
            "Frozen",
            format!("for another {left}s at most; to end it: neonctl vm thaw {}", name_of(machine)),
        ));
    }
    if let Some(Err(why)) = usage {
        lines.push(("Disk use", format!("unknown: {why}")));
    }
    lines
}

fn happened(machine: &VirtualMachine, events: &[Event], most: usize) -> String {
    let mut text = String::new();
    for condition in machine.status.iter().flat_map(|status| &status.conditions) {
        let message =
            if condition.message.is_empty() { String::new() } else { format!(": {}", condition.message) };
        let (kind, status, reason) = (&condition.type_, &condition.status, &condition.reason);
        let value = one_line(&format!("{kind} {status} ({reason}){message}"));
        let _ = writeln!(text, "{:<13} {value}", "Condition");
    }
    let shown = events.len().min(most);
    let _ = writeln!(text, "{:<13} last {shown}", "Events");
    for event in events.iter().rev().take(most) {
        let _ = writeln!(
            text,
            "  {:>5}  {:<7}  {:<20}  {}",
            event.age(),
            one_line(&event.kind),
            one_line(&event.reason),
            one_line(event.brief())
        );
    }
    text
}

/// Whether it follows its load, and why it is as large as it is.
fn scaling(machine: &VirtualMachine, agent: Agent<'_>) -> String {
    match agent {
        None => "off: the VM keeps its size".to_owned(),
        Some(Ok(vm)) => decisions::why(vm, &decisions::node_of(machine).unwrap_or_default()),
        Some(Err(why)) => format!("on; {why}"),
    }
}

fn phase(machine: &VirtualMachine) -> String {
    let status = machine.status.clone().unwrap_or_default();
    let mut text = match table::phase(machine) {
        "New" => "New: not reconciled yet".to_owned(),
        phase => phase.to_owned(),
    };
    if let Some(since) = phase_since(machine) {
        let _ = write!(text, " for {}", age(since));
    }
    if !status.node.is_empty() {
        let _ = write!(text, " on {}", status.node);
    }
    if !status.pod_name.is_empty() {
        let _ = write!(text, ", pod {}", status.pod_name);
    }
    text
}

/// Since when it is in this phase: by the condition that is of this phase, as another one may be older.
fn phase_since(machine: &VirtualMachine) -> Option<Timestamp> {
    let of = match table::phase(machine) {
        "Terminating" => {
            let deleted = machine.metadata.deletion_timestamp.as_ref()?;
            return Timestamp::from_second(deleted.0.as_second()).ok();
        }
        // The migration has its times, see neonctl migration describe.
        "PreMigrating" | "Migrating" => return None,
        "Pausing" | "Paused" | "Resuming" => "Paused",
        "Suspending" | "Suspended" => "Suspended",
        "Scaling" => "Scaled",
        _ if table::failing(machine).is_some() => "Degraded",
        _ => "Available",
    };
    let mut conditions = machine.status.as_ref()?.conditions.iter();
    let condition = conditions.find(|condition| condition.type_ == of)?;
    Timestamp::from_second(condition.last_transition_time.0.as_second()).ok()
}

/// What QEMU emulates, and how; empty before it is known.
fn hardware(machine: &VirtualMachine) -> String {
    let Some(found) = machine.status.as_ref().and_then(|status| status.machine.as_ref()) else {
        return String::new();
    };
    let note = match found.accelerator_note.as_str() {
        "" => String::new(),
        note => format!(": {note}"),
    };
    format!(
        "{} {}, CPU {}, QEMU {}, network {}{note}",
        found.accelerator, found.machine_type, found.cpu_model, found.qemu_version, found.network
    )
}

/// The address that stays, if the VM is on the overlay, and that of the pod, which changes with each migration.
fn address(machine: &VirtualMachine) -> String {
    let status = machine.status.clone().unwrap_or_default();
    match (status.extra_net_ip.as_str(), status.pod_ip.as_str()) {
        ("", "") => String::new(),
        ("", pod) => format!("{pod}{}", ports(machine)),
        (overlay, "") => format!("{overlay}{}", ports(machine)),
        (overlay, pod) => {
            format!("{overlay} on the overlay, stays when the VM migrates; pod {pod}{}", ports(machine))
        }
    }
}

fn ports(machine: &VirtualMachine) -> String {
    let word = |protocol| if protocol == PortProtocol::Udp { "udp" } else { "tcp" };
    let ports: Vec<String> = machine
        .spec
        .guest
        .ports
        .iter()
        .map(|port| format!("{}/{}", port.port, word(port.protocol)))
        .collect();
    if ports.is_empty() { String::new() } else { format!(", ports {}", ports.join(" ")) }
}

fn size(machine: &VirtualMachine) -> String {
    let (cpu, memory) = table::observed(machine);
    let guest = &machine.spec.guest;
    let slot = guest.slot_size().unwrap_or_default();
    let of = |slots: u16| slot.saturating_mul(u32::from(slots));
    let units = in_units(cpu, memory).map(|units| format!("{units} CU = ")).unwrap_or_default();
    let bounds = format!(
        "range {}..{} CPU, {}..{}",
        cores(guest.cpus.min),
        cores(guest.cpus.max),
        of(guest.memory_slots.min),
        of(guest.memory_slots.max)
    );
    let wanted = (guest.cpus.r#use, of(guest.memory_slots.r#use));
    if cpu.milli() == 0 {
        return format!("not running; requested {} CPU, {}   {bounds}", cores(wanted.0), wanted.1);
    }
    let coming = if (cpu, memory) == wanted {
        String::new()
    } else {
        format!(", requested {} CPU, {}", cores(wanted.0), wanted.1)
    };
    format!("{units}{} CPU, {memory}{coming}   {bounds}", cores(cpu))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of_second(condition: &str, status: &str, reason: &str, second: u8) -> serde_json::Value {
        json!({ "type": condition, "status": status, "reason": reason, "message": "m",
            "lastTransitionTime": format!("2026-01-01T00:00:0{second}Z") })
    }

    #[test]
    fn a_phase_has_the_age_of_its_own_condition() {
        let since = |phase: &str, power: &str, degraded: &str, meta: serde_json::Value| {
            let conditions = [
                of_second("Available", "True", "Ready", 1),
                of_second("Scaled", "False", "Scaling", 2),
                of_second("Paused", "True", "Paused", 3),
                of_second("Suspended", "True", "Idle", 6),
                of_second("Degraded", if degraded.is_empty() { "False" } else { "True" }, degraded, 4),
            ];
            let machine: VirtualMachine =
                serde_json::from_value(json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
                "metadata": meta, "status": { "phase": phase, "podName": "p", "conditions": conditions },
                "spec": { "powerState": power, "guest": { "cpus": { "min": 1, "max": 1, "use": 1 },
                    "rootDisk": { "image": "i" }, "memorySlots": { "min": 1, "max": 1, "use": 1 } } } }))
                .unwrap();
            phase_since(&machine).map(|since| since.as_second() % 60)
        };
        let plain = || json!({ "name": "pg" });
        assert_eq!(since("Running", "Running", "", plain()), Some(1));
        assert_eq!(since("Running", "Running", "WorkloadFailing", plain()), Some(4));
        assert_eq!(since("Running", "Running", "MemoryNotTaken", plain()), Some(1));
        assert_eq!(since("Scaling", "Running", "", plain()), Some(2));
        assert_eq!(since("Running", "Paused", "", plain()), Some(3));
        assert_eq!(since("Suspended", "Running", "", plain()), Some(6));
        assert_eq!(since("PreMigrating", "Running", "", plain()), None);
        let going = json!({ "name": "pg", "deletionTimestamp": "2026-01-01T00:00:05Z" });
        assert_eq!(since("Running", "Running", "", going), Some(5));
    }

    #[test]
    fn the_address_that_stays_is_the_first() {
        let machine = |status: serde_json::Value| -> VirtualMachine {
            serde_json::from_value(json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
                "metadata": { "name": "pg" }, "status": status,
                "spec": { "guest": { "cpus": { "min": 1, "max": 1, "use": 1 }, "rootDisk": { "image": "i" },
                    "ports": [{ "port": 5432 }], "memorySlots": { "min": 1, "max": 1, "use": 1 } } } }))
            .unwrap()
        };
        let both = machine(json!({ "podIP": "10.166.1.2", "extraNetIP": "10.54.128.0" }));
        let text = address(&both);
        assert_eq!(
            text,
            "10.54.128.0 on the overlay, stays when the VM migrates; pod 10.166.1.2, ports 5432/tcp"
        );
        assert_eq!(address(&machine(json!({ "podIP": "10.166.1.2" }))), "10.166.1.2, ports 5432/tcp");
        assert_eq!(address(&machine(json!({}))), "");
        let text = describe(&both, None, None, &[], 5);
        assert!(text.contains("neonctl vm port-forward pg 5432"), "{text}");
    }
}
