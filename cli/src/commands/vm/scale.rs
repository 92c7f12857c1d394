//! `vm scale`

mod automatic;
pub(in crate::commands) mod progress;

use std::convert::Infallible;

use crate::commands::resource::document;
use kube::api::{Patch, PatchParams};
use neonvm_api::VirtualMachine;
use neonvm_types::agent_inspect::VmInspect;
use neonvm_types::{Bytes, MilliCpu, Resources, Timestamp};
use serde_json::{Value, json};

use super::decisions;
use super::size::{self, UNIT_CPU, UNIT_MEMORY, cores};
use super::table;
use crate::args::vm::Scale;
use crate::commands::flags::duration;
use crate::commands::resource::client::NamespaceClient;
use crate::commands::resource::wait;
use crate::commands::resource::wait::Messages;
use crate::commands::watching::Waited;
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::render::Reporter;
use crate::report::{Document, Report};
use crate::settings::Settings;
use automatic::Changes;
use progress::Goal;

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
pub(in crate::commands) fn run(settings: &Settings, args: &Scale, quiet: bool) -> Result<Report> {
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
    if quiet || !crate::render::terminals().1 {
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
    let Some((_, vm)) = decisions::of_vm(client, machine).await else { return error };
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
    wait::until(client, (name, None), limit, &messages, progress::state, look).await
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
