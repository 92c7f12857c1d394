//! `vm scale`

use kube::api::{Patch, PatchParams};
use neonvm_api::VirtualMachine;
use neonvm_types::{Bytes, MilliCpu};
use serde_json::json;

use super::machines::{Machines, duration};
use super::size::{self, UNIT_CPU, UNIT_MEMORY, cores};
use super::table;
use super::waiting::{self, Seen, until};
use crate::args::vm::Scale;
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::report::{Document, Report};
use crate::settings::Settings;

/// What is wanted.
#[derive(Clone, Copy)]
struct Wanted {
    cpu: MilliCpu,
    memory: Bytes,
    slots: u16,
}

/// Changes the size within the bounds.
pub(in crate::commands) fn run(settings: &Settings, args: &Scale) -> Result<Report> {
    block_on(async {
        let machines = Machines::open(settings, &args.place).await?;
        let machine = machines.get(&args.name).await?;
        let wanted = wanted(&machine, args)?;
        let before = describe(&machine);
        let patch = json!({ "spec": { "guest": { "cpus": { "use": wanted.cpu }, "memorySlots": { "use": wanted.slots } } } });
        let attempt = format!("cannot scale {}", args.name);
        let (api, parameters, patch) = (machines.api(), PatchParams::default(), Patch::Merge(&patch));
        let patched =
            machines.connection.within(&attempt, api.patch(&args.name, &parameters, &patch)).await?;
        let after = format!("{} CPU, {}", cores(wanted.cpu), wanted.memory);
        let mut text = format!("virtualmachine/{} {before} -> {after}", args.name);
        let mut shown = patched;
        if args.waiting.wait {
            let limit = duration("timeout", &args.waiting.timeout)?;
            let what = format!("'cpu>={}'", cores(wanted.cpu));
            let name = args.name.clone();
            let generation = shown.metadata.generation;
            let waited = until(&machines, &args.name, limit, &what, move |seen| {
                reached(&name, seen, wanted, generation)
            })
            .await?;
            text.push_str(&format!(", applied in {}", waiting::seconds(waited.took)));
            shown = waited.machine.unwrap_or(shown);
        }
        let document = table::document(&[shown], false, false);
        Ok(Report::document(Document { text: Some(text), ..document }))
    })
}

fn describe(machine: &VirtualMachine) -> String {
    let (cpu, memory) = table::observed(machine);
    if cpu == MilliCpu::ZERO { "(not running)".to_owned() } else { format!("{} CPU, {memory}", cores(cpu)) }
}

fn wanted(machine: &VirtualMachine, args: &Scale) -> Result<Wanted> {
    let guest = &machine.spec.guest;
    let slot = guest.slot_size().map_err(|error| Error::new(Code::Failed, error.to_string()))?;
    let cpu = match (&args.cpu, args.cu) {
        (Some(text), _) => size::cpu("cpu", text)?,
        (None, Some(units)) => UNIT_CPU.saturating_mul(units),
        (None, None) => guest.cpus.r#use,
    };
    let memory = match (&args.memory, args.cu) {
        (Some(text), _) => size::memory("memory", text)?,
        (None, Some(units)) => UNIT_MEMORY.saturating_mul(u32::from(units)),
        (None, None) => slot.saturating_mul(u32::from(guest.memory_slots.r#use)),
    };
    let outside = |what: String, side: &str, bound: String| {
        Error::new(Code::Conflict, format!("cannot scale {} to {what}: {side} of {bound}", args.name))
            .hint("bounds are fixed when a machine is made: make another one with wider ones")
    };
    let (least, most) = (guest.cpus.min, guest.cpus.max);
    if cpu > most {
        return Err(outside(
            format!("{} CPU", cores(cpu)),
            "above its maximum",
            format!("{} CPU", cores(most)),
        ));
    }
    if cpu < least {
        return Err(outside(
            format!("{} CPU", cores(cpu)),
            "below its minimum",
            format!("{} CPU", cores(least)),
        ));
    }
    let bound = |slots: u16| slot.saturating_mul(u32::from(slots));
    let (least, most) = (bound(guest.memory_slots.min), bound(guest.memory_slots.max));
    if memory > most {
        return Err(outside(memory.to_string(), "above its maximum", most.to_string()));
    }
    if memory < least {
        return Err(outside(memory.to_string(), "below its minimum", least.to_string()));
    }
    let slots = memory
        .slots(slot)
        .filter(|_| memory.is_multiple_of(slot))
        .and_then(|slots| u16::try_from(slots).ok());
    let slots = slots.ok_or_else(|| {
        Error::new(
            Code::Usage,
            format!("--memory: {memory} is not a multiple of the machine's step of {slot}"),
        )
    })?;
    Ok(Wanted { cpu, memory, slots })
}

/// Whether the size is what was wanted; a guest that refuses is an error with the size it reached.
fn reached(name: &str, machine: Option<&VirtualMachine>, wanted: Wanted, generation: Option<i64>) -> Seen {
    let Some(machine) = machine else {
        return Seen::Never(Error::new(Code::NotFound, format!("{name} was deleted")));
    };
    if table::observed(machine) == (wanted.cpu, wanted.memory) {
        return Seen::Done;
    }
    let status = machine.status.as_ref();
    let current = status.is_some_and(|status| status.observed_generation >= generation);
    let scaled =
        status.and_then(|status| status.conditions.iter().find(|condition| condition.type_ == "Scaled"));
    match scaled {
        Some(condition) if current && condition.status == "False" && condition.reason != "InProgress" => {
            Seen::Never(
                Error::new(
                    Code::Failed,
                    format!("{name} did not reach {} CPU, {}", cores(wanted.cpu), wanted.memory),
                )
                .cause(condition.message.clone())
                .hint(format!("see more: neonctl vm describe {name}")),
            )
        }
        _ => Seen::NotYet,
    }
}
