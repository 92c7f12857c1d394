//! Waiting until something is true of a virtual machine.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::Phase;

use crate::commands::resource::NamespaceClient;
use crate::commands::resource::wait::{self, Messages};
use crate::commands::watching::{self, WaitProgress};
use crate::error::Result;

/// How waiting ended well.
pub(super) type Waited = watching::Waited<VirtualMachine>;

/// Waits until `look` returns true for the VM, or for its absence. Ctrl-C detaches: the work continues.
pub(super) async fn until(
    client: &NamespaceClient,
    name: &str,
    limit: Duration,
    what: &str,
    look: impl FnMut(Option<&VirtualMachine>) -> WaitProgress,
) -> Result<Waited> {
    let messages = Messages {
        what,
        continues: "the operation",
        again: &again(name, what),
        why: &format!("neonctl vm describe {name}"),
    };
    wait::until(client, (name, None), limit, &messages, state, look).await
}

/// The command that waits for a phase, a condition, a size or the end of the VM.
fn again(name: &str, what: &str) -> String {
    match what.split_once('=') {
        Some(("phase", phase)) => {
            format!("kubectl wait neonvm/{name} --for=jsonpath='{{.status.phase}}'={phase}")
        }
        Some(("condition", _)) => format!("kubectl wait neonvm/{name} --for={what}"),
        Some(_) => format!("neonctl vm wait {name} --for '{what}'"),
        None => format!("kubectl wait neonvm/{name} --for=delete"),
    }
}

/// The state in a few words: the phase, and what stands in the way.
pub(crate) fn state(machine: &VirtualMachine) -> String {
    let Some(status) = &machine.status else {
        return "not reconciled yet; is vm-controller running?".to_owned();
    };
    let phase = status.phase.map_or_else(|| "new".to_owned(), |phase| format!("{phase}"));
    let is = |condition: &&Condition, bad: &str| condition.status == bad && !condition.message.is_empty();
    let mut all = status.conditions.iter();
    // Why it does not work comes before what follows from that: `it starts again at 9:00`. Nothing follows for a VM that has
    // Failed; its other conditions name the reason alone.
    let ended = status.phase == Some(Phase::Failed);
    let is_degraded = |condition: &&Condition| condition.type_ == "Degraded" && is(condition, "True");
    let degraded = all.clone().find(is_degraded).filter(|_| !ended);
    let trouble =
        degraded.or_else(|| all.find(|condition| condition.type_ != "Degraded" && is(condition, "False")));
    match trouble {
        Some(condition) => format!("it is {phase}: {}", condition.message),
        None => format!("it is {phase}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_comes_before_the_next_attempt() {
        let machine = |phase: &str, degraded: &str| -> VirtualMachine {
            let condition = |kind: &str, status: &str, message: &str| {
                serde_json::json!({"type": kind, "status": status, "reason": "R", "message": message,
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            };
            let object = serde_json::json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
                "metadata": {"name": "pg"}, "spec": {"guest": {"cpus": {"min": 1, "max": 1, "use": 1},
                    "memorySlots": {"min": 1, "max": 1, "use": 1}, "rootDisk": {"image": "pg:1"}}},
                "status": {"phase": phase, "conditions": [
                    condition("Available", "False", "starts again at 9:00"),
                    condition("Degraded", degraded, "no such device")]}});
            serde_json::from_value(object).unwrap()
        };
        assert_eq!(state(&machine("Pending", "True")), "it is Pending: no such device");
        assert_eq!(state(&machine("Pending", "False")), "it is Pending: starts again at 9:00");
        assert_eq!(state(&machine("Failed", "True")), "it is Failed: starts again at 9:00");
    }
}
