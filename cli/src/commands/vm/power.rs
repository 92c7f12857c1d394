//! `vm stop`, `vm start`, `vm restart`, `vm pause`, `vm suspend` and `vm resume`

use kube::api::{Patch, PatchParams};
use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::{Phase, PowerState};
use serde_json::{Value, json};

use super::create::up;
use super::exec;
use super::waiting::until;
use crate::args::vm::Power;
use crate::commands::finals::{self, Awaited};
use crate::commands::flags::duration;
use crate::commands::resource::{NamespaceClient, document, wait};
use crate::commands::watching::WaitProgress;
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::render::Reporter;
use crate::report::{Document, Report};
use crate::settings::Settings;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Stop,
    Start,
    Restart,
    Pause,
    Suspend,
    Resume,
}

impl Order {
    const fn verb(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Start => "start",
            Self::Restart => "restart",
            Self::Pause => "pause",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
        }
    }

    const fn done(self) -> &'static str {
        match self {
            Self::Stop => "stopped",
            Self::Start => "started",
            Self::Restart => "restarted",
            Self::Pause => "paused",
            Self::Suspend => "suspended",
            Self::Resume => "resumed",
        }
    }

    /// Whether the guest is shut down by it.
    const fn shuts_down(self) -> bool {
        matches!(self, Self::Stop | Self::Restart)
    }

    /// What of the object shows that it is carried out.
    const fn condition(self) -> &'static str {
        match self {
            Self::Stop => "condition=Available=False",
            Self::Start | Self::Restart | Self::Resume => "condition=Available",
            Self::Pause => "condition=Paused",
            Self::Suspend => "condition=Suspended",
        }
    }
}

/// Gives the order to each VM, then waits for all.
pub(super) fn run(settings: &Settings, args: &Power, order: Order, quiet: bool) -> Result<Report> {
    let reporter = Reporter::lines(quiet);
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let found = client.find_all::<VirtualMachine>(&args.names).await?;
        for machine in &found {
            refuse(machine, order)?;
        }
        let mut ordered = Vec::new();
        for machine in &found {
            ordered.push(give(&client, machine, order, &reporter).await?);
        }
        let limit = duration("timeout", &args.waiting.timeout)?;
        let (mut shown, mut lines) = (Vec::new(), Vec::new());
        for (name, patched) in args.names.iter().zip(ordered) {
            if args.waiting.no_wait {
                lines.push(format!("virtualmachine/{name} {} requested", order.verb()));
                shown.push(patched);
                continue;
            }
            let waited = wait_for(&client, &patched, order, limit).await?;
            lines.push(format!("virtualmachine/{name} {} ({})", order.done(), wait::seconds(waited.took)));
            shown.push(waited.object.unwrap_or(patched));
        }
        let document = document(&shown);
        Ok(Report::document(Document { text: Some(lines.join("\n")), ..document }))
    })
}

/// A VM that does not run is neither paused, suspended nor resumed: by the spec alone it would be started.
fn refuse(machine: &VirtualMachine, order: Order) -> Result<()> {
    let status = machine.status.as_ref();
    let ended = status
        .and_then(|status| status.phase)
        .filter(|phase| matches!(phase, Phase::Succeeded | Phase::Failed));
    let why = match ended {
        _ if !matches!(order, Order::Pause | Order::Suspend | Order::Resume) => return Ok(()),
        _ if machine.spec.is_stopped() => "it is stopped".to_owned(),
        Some(phase) if order != Order::Resume => format!("it has ended ({phase})"),
        _ => return Ok(()),
    };
    let name = crate::commands::resource::name_of(machine);
    let error = Error::new(Code::Conflict, format!("cannot {} {name}", order.verb()));
    Err(error.cause(why).hint(format!("start it: neonctl vm start {name}")))
}

/// Writes the order into the VM's spec.
async fn give(
    client: &NamespaceClient,
    machine: &VirtualMachine,
    order: Order,
    reporter: &Reporter,
) -> Result<VirtualMachine> {
    let name = crate::commands::resource::name_of(machine);
    let attempt = format!("cannot {} {name}", order.verb());
    let (api, parameters) = (client.api::<VirtualMachine>(), PatchParams::default());
    let spec = change(machine, order, &k8s_openapi::jiff::Timestamp::now().to_string());
    let patch = Patch::Merge(json!({ "spec": spec }));
    let request = api.patch(name, &parameters, &patch);
    let patched = client.connection.within(&attempt, request).await?;
    if order == Order::Resume && power_state(machine) == Some(PowerState::Suspended) {
        // One that sleeps because it was idle is woken by no change of its object.
        let pod = exec::pod_of(client, machine)?;
        exec::output(client, &pod, &["wake"]).await?;
    }
    if order.shuts_down() && is_alive(machine) {
        let grace = machine.spec.termination_grace_period_seconds.unwrap_or_default();
        reporter.show(&format!("virtualmachine/{name} shutting down (grace {grace}s)"));
    }
    if let Some(migration) = machine.status.as_ref().and_then(|status| status.migration.as_ref()) {
        reporter.show(&format!(
            "virtualmachine/{name} is being migrated; the order is carried out afterwards, or cancel the migration: neonctl \
             migration cancel {}",
            migration.name
        ));
    }
    Ok(patched)
}

fn power_state(machine: &VirtualMachine) -> Option<PowerState> {
    machine.status.as_ref().and_then(|status| status.power_state)
}

fn is_alive(machine: &VirtualMachine) -> bool {
    machine.status.as_ref().and_then(|status| status.phase).is_some_and(Phase::is_alive)
}

/// The change of the spec. A VM that has ended by itself is started by a restart request; `now` makes it a new one.
fn change(machine: &VirtualMachine, order: Order, now: &str) -> Value {
    let ended = machine
        .status
        .as_ref()
        .and_then(|status| status.phase)
        .is_some_and(|phase| matches!(phase, Phase::Succeeded | Phase::Failed));
    match order {
        Order::Stop => json!({ "powerState": PowerState::Stopped }),
        Order::Start if ended && !machine.spec.is_stopped() => json!({ "restartRequest": now }),
        Order::Start | Order::Resume => json!({ "powerState": PowerState::Running }),
        Order::Pause => json!({ "powerState": PowerState::Paused }),
        Order::Suspend => json!({ "powerState": PowerState::Suspended }),
        Order::Restart => json!({ "powerState": PowerState::Running, "restartRequest": now }),
    }
}

/// Waits until the order is carried out.
pub(super) async fn wait_for(
    client: &NamespaceClient,
    patched: &VirtualMachine,
    order: Order,
    limit: std::time::Duration,
) -> Result<super::waiting::Waited> {
    let name = crate::commands::resource::name_of(patched).to_owned();
    let spec = (patched.metadata.generation, patched.spec.restart_request.clone());
    until(client, &name.clone(), limit, order.condition(), move |seen| progress(&name, seen, order, &spec))
        .await
}

fn progress(
    name: &str,
    seen: Option<&VirtualMachine>,
    order: Order,
    (generation, request): &(Option<i64>, Option<String>),
) -> WaitProgress {
    let Some(machine) = seen else {
        return WaitProgress::Never(Error::new(Code::NotFound, format!("{name} was deleted")));
    };
    let Some(status) = &machine.status else { return WaitProgress::NotYet };
    if status.observed_generation < *generation {
        return WaitProgress::NotYet;
    }
    let off = status.power_state == Some(PowerState::Stopped);
    let paused = status.power_state == Some(PowerState::Paused);
    let suspended = status.power_state == Some(PowerState::Suspended);
    match order {
        Order::Suspend if suspended => WaitProgress::Done,
        // It was requested, and is not any more.
        Order::Suspend if !machine.spec.is_suspended() => WaitProgress::Never(
            Error::new(Code::Conflict, format!("{name} was not suspended"))
                .cause("a packet for its guest, or a command, arrived meanwhile")
                .hint(format!(
                    "try again when it is idle, or suspend it then: neonctl vm set {name} --suspend-after 5m"
                )),
        ),
        Order::Suspend => finals::of_vm(Awaited::Suspended, machine),
        Order::Pause if paused => WaitProgress::Done,
        Order::Pause => finals::of_vm(Awaited::Paused, machine),
        Order::Resume if paused || suspended => finals::of_vm(Awaited::Resumed, machine),
        Order::Resume => WaitProgress::Done,
        Order::Stop if off && status.pod_name.is_empty() => WaitProgress::Done,
        Order::Stop => WaitProgress::NotYet,
        Order::Start | Order::Restart if off || status.restart_request != *request => WaitProgress::NotYet,
        Order::Start | Order::Restart => up(name, seen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(power: Option<&str>, status: &Value) -> VirtualMachine {
        let mut object = json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": { "name": "pg" },
            "spec": { "guest": { "cpus": { "min": 1, "max": 1, "use": 1 }, "rootDisk": { "image": "i" },
                "memorySlots": { "min": 1, "max": 1, "use": 1 } } }, "status": status });
        if let Some(power) = power {
            object["spec"]["powerState"] = json!(power);
        }
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_start_is_a_request_only_for_a_vm_that_ended_by_itself() {
        let request = json!({ "restartRequest": "now" });
        let running = json!({ "powerState": "Running" });
        let start = |vm: &VirtualMachine| change(vm, Order::Start, "now");
        assert_eq!(start(&vm(None, &json!({ "phase": "Succeeded" }))), request);
        assert_eq!(start(&vm(Some("Running"), &json!({ "phase": "Failed" }))), request);
        assert_eq!(start(&vm(Some("Stopped"), &json!({ "phase": "Succeeded" }))), running);
        assert_eq!(start(&vm(None, &json!({ "phase": "Running" }))), running);
    }

    #[test]
    fn a_vm_that_does_not_run_is_neither_paused_nor_resumed() {
        let why = |power, phase, order| {
            let refused = refuse(&vm(power, &json!({ "phase": phase })), order).err()?;
            Some(format!("{refused:?}"))
        };
        assert!(why(Some("Stopped"), "Succeeded", Order::Pause).unwrap().contains("it is stopped"));
        assert!(why(Some("Stopped"), "Succeeded", Order::Resume).is_some());
        assert!(why(None, "Failed", Order::Pause).unwrap().contains("it has ended (Failed)"));
        assert_eq!(why(Some("Paused"), "Failed", Order::Resume), None, "its next start is not paused");
        for order in [Order::Stop, Order::Start, Order::Restart] {
            assert_eq!(why(Some("Stopped"), "Failed", order), None);
        }
        for phase in ["Pending", "Running", "Migrating"] {
            assert_eq!(why(Some("Running"), phase, Order::Pause), None);
        }
        let running = json!({ "powerState": "Running" });
        assert_eq!(change(&vm(Some("Paused"), &json!({ "phase": "Running" })), Order::Start, "now"), running);
        assert_eq!(change(&vm(None, &json!({})), Order::Pause, "now"), json!({ "powerState": "Paused" }));
    }

    #[test]
    fn it_is_done_when_the_status_has_it() {
        let done = |order, status| {
            let seen = vm(None, &status);
            matches!(progress("pg", Some(&seen), order, &(Some(2), Some("r".into()))), WaitProgress::Done)
        };
        let off = json!({ "observedGeneration": 2, "powerState": "Stopped", "phase": "Succeeded" });
        assert!(done(Order::Stop, off.clone()) && !done(Order::Start, off));
        let old = json!({ "observedGeneration": 1, "powerState": "Stopped", "phase": "Succeeded" });
        assert!(!done(Order::Stop, old), "the controller has not seen the order");
        let going = json!({ "observedGeneration": 2, "powerState": "Stopped", "podName": "pg-1" });
        assert!(!done(Order::Stop, going));
        let paused = json!({ "observedGeneration": 2, "powerState": "Paused", "phase": "Running" });
        let runs = json!({ "observedGeneration": 2, "phase": "Running" });
        assert!(done(Order::Pause, paused.clone()) && !done(Order::Pause, runs.clone()));
        assert!(done(Order::Resume, runs) && !done(Order::Resume, paused));
        let before = json!({ "observedGeneration": 1, "powerState": "Paused", "phase": "Running" });
        assert!(!done(Order::Pause, before.clone()) && !done(Order::Resume, before));
        let up = |request| json!({ "observedGeneration": 2, "restartRequest": request, "phase": "Running" });
        assert!(done(Order::Restart, up("r")) && !done(Order::Restart, up("before")));
    }
}
