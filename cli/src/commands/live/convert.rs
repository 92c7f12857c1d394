//! Objects as the model takes them in. Pure; every text is cleaned here.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Event as CoreEvent, Node};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use neonvm_api::names::label;
use neonvm_api::virtual_machine::Phase;
use neonvm_api::{VirtualMachine, VirtualMachineMigration};
use neonvm_types::agent_inspect::VmInspect;
use neonvm_types::scheduler_inspect::{Inspect, NodeView};
use neonvm_types::{Bytes, MilliCpu, Quantity, Resources};

use crate::commands::migration::show;
use crate::commands::vm::events::Event;
use crate::commands::vm::table::{limited, observed};
use crate::live::input::{Account, Entry, Key, Kind, MoveFacts, NodeFacts, VmFacts};
use crate::render::one_line;

/// Longest text that is kept of a message, in characters.
const LONGEST: usize = 1000;

fn text(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => one_line(text.get(..at).unwrap_or_default()) + "...",
        None => one_line(text),
    }
}

fn key<K: kube::Resource>(object: &K) -> Key {
    let part = |part: &Option<String>| text(part.as_deref().unwrap_or_default());
    Key::new(part(&object.meta().namespace), part(&object.meta().name))
}

pub(super) fn node(node: &Node) -> (String, NodeFacts) {
    let status = node.status.as_ref();
    let total = resources(status.and_then(|status| status.allocatable.as_ref()));
    let ready = status.and_then(|status| status.conditions.iter().flatten().find(|one| one.type_ == "Ready"));
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    let closed = match ready {
        Some(ready) if ready.status != "True" => {
            Some(format!("not ready: {}", text(ready.message.as_deref().unwrap_or_default())))
        }
        _ => cordoned.then(|| "cordoned".to_owned()),
    };
    (key(node).name, NodeFacts { total, closed })
}

fn resources(amounts: Option<&BTreeMap<String, Written>>) -> Resources {
    let parsed =
        |name: &str| amounts.and_then(|all| all.get(name)).and_then(|text| text.0.parse::<Quantity>().ok());
    let cpu = parsed("cpu").and_then(|cpu| u32::try_from(cpu.milli_rounded_up()).ok()).unwrap_or(0);
    let memory = parsed("memory").and_then(|memory| Bytes::try_from(memory).ok()).unwrap_or_default();
    Resources::new(MilliCpu::new(cpu), memory)
}

pub(super) fn vm(vm: &VirtualMachine) -> (Key, VmFacts) {
    let status = vm.status.clone().unwrap_or_default();
    let guest = &vm.spec.guest;
    let slot = guest.slot_size().unwrap_or_default();
    let size = |cpu: MilliCpu, slots: u16| Resources::new(cpu, slot.saturating_mul(u32::from(slots)));
    let (cpu, memory) = observed(vm);
    let labels = vm.metadata.labels.as_ref();
    let phase = match status.phase {
        _ if vm.metadata.deletion_timestamp.is_some() => "Terminating".to_owned(),
        Some(phase) => phase.to_string(),
        None => "New".to_owned(),
    };
    let facts = VmFacts {
        node: text(&status.node),
        pod: text(&status.pod_name),
        phase,
        // A suspended one has no counters, and its phase is all that there is to it.
        running: status.phase.is_some_and(|phase| phase.is_alive() && phase != Phase::Suspended)
            && !status.pod_name.is_empty(),
        scaled: labels.and_then(|all| all.get(label::SCALING_ENABLED)).is_some_and(|value| value == "true"),
        size: Resources::new(cpu, memory),
        requested: size(guest.cpus.r#use, guest.memory_slots.r#use),
        min: size(guest.cpus.min, guest.memory_slots.min),
        max: size(guest.cpus.max, guest.memory_slots.max),
        limited: text(limited(vm)),
    };
    (key(vm), facts)
}

pub(super) fn migration(migration: &VirtualMachineMigration) -> (Key, MoveFacts) {
    let status = show::status(migration);
    let created = migration.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_millisecond());
    let over = crate::commands::migration::is_over(migration);
    let ended = status.completion_time.map(|time| time.unix() * 1000);
    let phase = show::phase_word(migration);
    let words = match (over, phase.as_str()) {
        (true, "Succeeded") => format!("succeeded, downtime {}", show::downtime(&status.info)),
        (true, _) => show::ending(migration),
        (false, _) => progress(migration),
    };
    let facts = MoveFacts {
        vm: text(&migration.spec.vm_name),
        source: text(&status.source_node),
        target: text(&status.target_node),
        failed: over && phase != "Succeeded",
        phase,
        percent: show::percent(migration),
        text: text(&words),
        by: show::asked_by(migration).to_owned(),
        created,
        ended: over.then(|| ended.unwrap_or(created)),
    };
    (key(migration), facts)
}

/// Where an active migration is: the step, and numbers while memory is copied.
fn progress(migration: &VirtualMachineMigration) -> String {
    let info = show::status(migration).info;
    if info.ram.total == 0 {
        return show::state(migration);
    }
    let mut words = format!(
        "iteration {}, {}/s, dirty {}/s",
        info.passes,
        show::size(info.throughput),
        show::size(info.dirty_rate)
    );
    if info.throttle_percent > 0 {
        words.push_str(&format!(", throttled by {}%", info.throttle_percent));
    }
    words
}

pub(super) fn event(event: CoreEvent) -> Entry {
    let about = &event.involved_object;
    let part = |part: &Option<String>| text(part.as_deref().unwrap_or_default());
    let vm = Key::new(part(&about.namespace), part(&about.name));
    let id = event.metadata.uid.clone().or_else(|| event.metadata.name.clone()).unwrap_or_default();
    let event = Event::from_event(event);
    let times = if event.count > 1 { format!(" (x{})", event.count) } else { String::new() };
    Entry {
        at: event.at.map_or(0, |at| at.as_millisecond()),
        id,
        kind: if event.kind == "Warning" { Kind::Warning } else { Kind::Event },
        vm,
        text: text(&format!("{}: {}{times}", event.reason, event.message)),
    }
}

pub(super) fn accounts(inspect: Inspect) -> Vec<(String, Account)> {
    inspect.nodes.into_iter().map(|node| (text(&node.name), account(&node))).collect()
}

fn account(node: &NodeView) -> Account {
    let mut notes = Vec::new();
    let special = crate::commands::scheduler::note(node);
    if special != "-" {
        notes.push(special);
    }
    notes.extend(node.note.clone());
    for next in &node.next {
        let to = next.target.as_ref().map_or_else(|| "nowhere".to_owned(), |target| format!("to {target}"));
        notes.push(format!("next: migrate {} {to}: {}", next.vm, next.why));
    }
    let note = (!notes.is_empty()).then(|| text(&notes.join("; ")));
    Account { cpu: node.cpu, memory: node.mem, note }
}

/// A VM as its agent reports it, with cleaned texts.
pub(super) fn inspected(mut vm: VmInspect) -> VmInspect {
    for field in [&mut vm.name, &mut vm.namespace, &mut vm.state] {
        *field = text(field);
    }
    for field in [&mut vm.guest_protocol, &mut vm.stuck, &mut vm.limit].into_iter().flatten() {
        *field = text(field);
    }
    for decision in &mut vm.decisions {
        decision.at = text(&decision.at);
        decision.text = text(&decision.text);
        decision.reason = decision.reason.as_deref().map(text);
    }
    vm
}

#[cfg(test)]
mod tests;
