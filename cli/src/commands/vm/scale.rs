//! `vm scale`

mod automatic;

use std::convert::Infallible;

use automatic::Changes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use neonvm_api::VirtualMachine;
use neonvm_types::agent_inspect::VmInspect;
use neonvm_types::{Bytes, MilliCpu, Resources, Timestamp};
use serde_json::{Value, json};

use super::size::{self, UNIT_CPU, UNIT_MEMORY, cores};
use super::{decisions, table};
use crate::args::vm::Scale;
use crate::commands::finals::{self, Awaited};
use crate::commands::flags::duration;
use crate::commands::resource::wait::{self, Messages};
use crate::commands::resource::{NamespaceClient, document};
use crate::commands::vm::table::observed;
use crate::commands::vm::waiting;
use crate::commands::watching::{WaitProgress, Waited};
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::render::Reporter;
use crate::report::{Document, Report};
use crate::settings::Settings;

/// Time between two requests to the agent while a person waits.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_secs(2);

/// What is wanted.
#[derive(Clone, Copy)]
struct RequestedSize {
    cpu: MilliCpu,
    memory: Bytes,
    slots: u16,
}

/// Changes the size within the bounds, the bounds, or who decides.
pub(crate) fn run(settings: &Settings, args: &Scale, quiet: bool) -> Result<Report> {
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let machine = client.find(&args.name).await?;
        let sized = args.cpu.is_some() || args.memory.is_some() || args.cu.is_some();
        let wanted = if sized { Some(wanted(&machine, args)?) } else { None };
        let asked = wanted.map(|wanted| Resources::new(wanted.cpu, wanted.memory));
        let changes = automatic::changes(&machine, args, asked, now()?)?;
        let patch = patch(&changes, wanted.filter(|_| changes.held.is_none()));
        let attempt = format!("cannot scale {}", args.name);
        let (api, parameters, patch) =
            (client.api::<VirtualMachine>(), PatchParams::default(), Patch::Merge(&patch));
        let patched = client.connection.within(&attempt, api.patch(&args.name, &parameters, &patch)).await?;
        let mut text = summary(&machine, wanted, &changes);
        let mut shown = patched;
        let goal = wanted
            .map(|wanted| (wanted.cpu, wanted.memory))
            .or(changes.held.map(|size| (size.vcpus, size.mem)))
            .map(|(cpu, memory)| Goal { cpu, memory, generation: shown.metadata.generation });
        if let (true, Some(goal)) = (args.waiting.wait, goal) {
            let waited = tokio::select! {
                waited = wait(&client, args, goal) => waited,
                never = show_obstacles(&client, &machine, args, quiet) => match never {},
            };
            let waited = match waited {
                Ok(waited) => waited,
                Err(error) => return Err(explained(error, &client, &machine, args).await),
            };
            text.push_str(&format!(", applied in {}", wait::seconds(waited.took)));
            shown = waited.object.unwrap_or(shown);
            if let Some(rest) = goal.remainder(&shown).filter(|rest| *rest != Bytes::ZERO) {
                text.push_str(&format!("; the guest keeps {rest} more, less than one step"));
            }
        }
        let document = document(&[shown]);
        Ok(Report::document(Document { text: Some(text), ..document }))
    })
}

fn now() -> Result<Timestamp> {
    let seconds = k8s_openapi::jiff::Timestamp::now().as_second();
    Timestamp::from_unix(seconds).ok_or_else(|| Error::new(Code::Failed, "the clock of this host is far off"))
}

fn patch(changes: &Changes, wanted: Option<RequestedSize>) -> Value {
    let metadata = json!({ "labels": changes.labels, "annotations": changes.annotations });
    match wanted {
        None => json!({ "metadata": metadata }),
        Some(RequestedSize { cpu, slots, .. }) => json!({ "metadata": metadata,
            "spec": { "guest": { "cpus": { "use": cpu }, "memorySlots": { "use": slots } } } }),
    }
}

fn summary(machine: &VirtualMachine, wanted: Option<RequestedSize>, changes: &Changes) -> String {
    let mut parts = Vec::new();
    if let (Some(wanted), None) = (wanted, changes.held) {
        parts.push(format!("{} -> {} CPU, {}", describe(machine), cores(wanted.cpu), wanted.memory));
    }
    parts.extend(changes.notes.iter().cloned());
    format!("virtualmachine/{} {}", machine.metadata.name.as_deref().unwrap_or_default(), parts.join(", "))
}

/// Shows a person at a terminal what keeps the VM from its size, as its agent reports it. Does not end.
async fn show_obstacles(
    client: &NamespaceClient,
    machine: &VirtualMachine,
    args: &Scale,
    quiet: bool,
) -> Infallible {
    if quiet || !crate::env::terminals().1 {
        return std::future::pending().await;
    }
    let reporter = Reporter::lines(false);
    let mut last = String::new();
    let mut services = None;
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        if services.is_none() {
            services = decisions::services(client, machine).await;
        }
        let Some(services) = &services else { continue };
        let Some((_, vm)) = decisions::ask(services, client, machine).await else { continue };
        let obstacle = decisions::obstacle(&vm);
        if obstacle.is_empty() || obstacle == last {
            continue;
        }
        reporter.show(&format!("  waiting: {obstacle}"));
        if last.is_empty()
            && let Some(hint) = force_hint(args, &vm)
        {
            reporter.show(&format!("  hint: {hint}"));
        }
        last = obstacle;
    }
}

/// An order that was not carried out in time, with the reason that the agent reports.
async fn explained(error: Error, client: &NamespaceClient, machine: &VirtualMachine, args: &Scale) -> Error {
    if error.code != Code::Timeout {
        return error;
    }
    if !table::is_on(machine) {
        return error;
    }
    let Ok(vm) = decisions::of_vm(client, machine).await else { return error };
    let obstacle = decisions::obstacle(&vm);
    let error = if obstacle.is_empty() { error } else { error.cause(obstacle) };
    match force_hint(args, &vm) {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// The order that does not wait for the guest, if CPU is what the guest keeps.
fn force_hint(args: &Scale, vm: &VmInspect) -> Option<String> {
    let hold = vm.hold.as_ref().filter(|hold| !hold.force && args.hold.is_some())?;
    let keeps = vm.now.is_some_and(|now| now.vcpus > hold.size.vcpus);
    keeps.then(|| {
        let size = automatic::flags(hold.size);
        let time = args.hold.as_deref().unwrap_or("30m");
        format!(
            "CPU can be taken without its consent: neonctl vm scale {} {size} --hold {time} --force",
            args.name
        )
    })
}

async fn wait(client: &NamespaceClient, args: &Scale, goal: Goal) -> Result<Waited<VirtualMachine>> {
    let limit = duration("timeout", &args.waiting.timeout)?;
    let (name, cpu) = (&args.name, cores(goal.cpu));
    let messages = Messages {
        what: &format!("at {cpu} CPU, {}", goal.memory),
        continues: "the operation",
        again: &format!("neonctl vm wait {name} --for 'cpu={cpu}'"),
        why: &format!("neonctl vm describe {name}"),
    };
    let look = |seen: Option<&VirtualMachine>| goal.progress(name, seen);
    wait::until(client, (name, None), limit, &messages, state, look).await
}

fn describe(machine: &VirtualMachine) -> String {
    let (cpu, memory) = table::observed(machine);
    if cpu == MilliCpu::ZERO { "(not running)".to_owned() } else { format!("{} CPU, {memory}", cores(cpu)) }
}

fn wanted(machine: &VirtualMachine, args: &Scale) -> Result<RequestedSize> {
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
        Error::new(Code::Conflict, format!("cannot scale {} to {what}: {side} of {bound}", args.name)).hint(
            format!(
                "wider bounds take effect at the next start: neonctl vm set {} --cpu MIN..MAX",
                args.name
            ),
        )
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
        Error::new(Code::Usage, format!("--memory: {memory} is not a multiple of the VM's step of {slot}"))
    })?;
    Ok(RequestedSize { cpu, memory, slots })
}

/// A size that was requested.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    pub(crate) cpu: MilliCpu,
    /// Memory, whole steps.
    pub(crate) memory: Bytes,
    /// Generation of the object with the request; a status about an older one is about another size.
    pub(crate) generation: Option<i64>,
}

impl Goal {
    /// What the VM has beyond the requested memory, if the size is reached: less than one step, which the guest keeps.
    pub(crate) fn remainder(&self, machine: &VirtualMachine) -> Option<Bytes> {
        let (cpu, memory) = observed(machine);
        let rest = memory.saturating_sub(self.memory);
        let arrived = cpu == self.cpu && memory >= self.memory;
        let step = machine.spec.guest.slot_size().unwrap_or_default();
        let settled = rest == Bytes::ZERO
            || (rest < step && scaled(machine).is_some_and(|condition| condition.status == "True"));
        (arrived && settled).then_some(rest)
    }

    /// Whether the size is reached. What the controller, the node or the guest tries again is waited for; what only another
    /// request changes is an error.
    pub(crate) fn progress(&self, name: &str, machine: Option<&VirtualMachine>) -> WaitProgress {
        let Some(machine) = machine else {
            return WaitProgress::Never(Error::new(Code::NotFound, format!("{name} was deleted")));
        };
        // A VM on the way to another size may pass this one before the controller has seen the request.
        let status = machine.status.as_ref();
        if status.is_none_or(|status| status.observed_generation < self.generation) {
            return WaitProgress::NotYet;
        }
        if self.remainder(machine).is_some() {
            return WaitProgress::Done;
        }
        finals::of_vm(Awaited::Size, machine)
    }
}

fn scaled(machine: &VirtualMachine) -> Option<&Condition> {
    let status = machine.status.as_ref()?;
    status.conditions.iter().find(|condition| condition.type_ == "Scaled")
}

/// The size that the VM has, and why it has no other one.
fn state(machine: &VirtualMachine) -> String {
    let (cpu, memory) = observed(machine);
    match scaled(machine).filter(|condition| condition.status == "False") {
        Some(condition) if cpu != MilliCpu::ZERO => {
            format!("it has {} CPU, {memory}: {}", cores(cpu), condition.message)
        }
        _ => waiting::state(machine),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A VM of 256Mi to 8Gi in steps of 256Mi, with the condition `Scaled`.
    fn vm(memory: &str, scaled: (&str, &str), phase: &str) -> VirtualMachine {
        serde_json::from_value(serde_json::json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
            "metadata": {"name": "pg", "generation": 2}, "spec": {"guest": {"cpus": {"min": 1, "max": 1, "use": 1},
                "memorySlotSize": "256Mi", "memorySlots": {"min": 1, "max": 32, "use": 1},
                "rootDisk": {"image": "pg:1"}}},
            "status": {"phase": phase, "cpus": 1, "memorySize": memory, "observedGeneration": 2, "conditions": [
                {"type": "Scaled", "status": scaled.0, "reason": scaled.1, "message": "as the controller wrote",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}))
        .unwrap()
    }

    fn words(machine: &VirtualMachine, generation: i64) -> String {
        let (cpu, memory) = (MilliCpu::new(1000), Bytes::mib(256));
        match (Goal { cpu, memory, generation: Some(generation) }).progress("pg", Some(machine)) {
            WaitProgress::Done => "done".to_owned(),
            WaitProgress::NotYet => "not yet".to_owned(),
            WaitProgress::Never(error) => error.hint.unwrap_or_default(),
        }
    }

    #[test]
    fn a_size_is_reached_within_one_step_once_the_guest_keeps_the_rest() {
        for (memory, scaled, expected) in [
            ("256Mi", ("True", "Reached"), "done"),
            ("268Mi", ("True", "Reached"), "done"),
            ("268Mi", ("False", "InProgress"), "not yet"),
            ("512Mi", ("True", "Reached"), "not yet"),
            ("255Mi", ("True", "Reached"), "not yet"),
        ] {
            assert_eq!(words(&vm(memory, scaled, "Running"), 2), expected, "{memory} {scaled:?}");
        }
        let old = vm("256Mi", ("True", "Reached"), "Running");
        assert_eq!(words(&old, 3), "not yet", "the status is about an older request");
    }

    #[test]
    fn the_state_has_the_size_and_the_reason() {
        let limited = vm("568Mi", ("False", "MemoryNotReleased"), "Running");
        assert_eq!(state(&limited), "it has 1.00 CPU, 568Mi: as the controller wrote");
        assert_eq!(state(&vm("568Mi", ("True", "Reached"), "Running")), "it is Running");
    }
}
