//! Waiting until something is true of a virtual machine.

use std::time::Duration;

use neonvm_api::VirtualMachine;

use crate::commands::resource::client::NamespaceClient;
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
        again: &format!("neonctl vm wait {name} --for {what}"),
        why: &format!("neonctl vm describe {name}"),
    };
    wait::until(client, (name, None), limit, &messages, state, look).await
}

/// The state in a few words: the phase, and what stands in the way.
pub(in crate::commands) fn state(machine: &VirtualMachine) -> String {
    let Some(status) = &machine.status else {
        return "not reconciled yet; is vm-controller running?".to_owned();
    };
    let phase = status.phase.map_or_else(|| "new".to_owned(), |phase| format!("{phase}"));
    let trouble = status.conditions.iter().find(|condition| {
        let bad = if condition.type_ == "Degraded" { "True" } else { "False" };
        condition.status == bad && !condition.message.is_empty()
    });
    match trouble {
        Some(condition) => format!("it is {phase}: {}", condition.message),
        None => format!("it is {phase}"),
    }
}
