//! Waiting until something is true of a virtual machine.

use std::time::Duration;

use neonvm_api::VirtualMachine;

use super::machines::Machines;
use crate::commands::watching;
pub(super) use crate::commands::watching::Seen;
use crate::error::{Code, Error, Result};

/// How waiting ended well.
pub(super) type Waited = watching::Waited<VirtualMachine>;

/// Waits until `look` returns true for the machine, or for its absence. Ctrl-C detaches: the work continues.
pub(super) async fn until(
    machines: &Machines,
    name: &str,
    limit: Duration,
    what: &str,
    look: impl FnMut(Option<&VirtualMachine>) -> Seen,
) -> Result<Waited> {
    let detached = || {
        Error::new(Code::Interrupted, format!("stopped waiting for {name}"))
            .hint(format!("the operation continues; to wait again: neonctl vm wait {name} --for {what}"))
    };
    let late = |last: Option<&VirtualMachine>| timed_out(name, limit, what, last);
    watching::until(machines.api(), (name, None), limit, detached, late, look).await
}

fn timed_out(name: &str, limit: Duration, what: &str, last: Option<&VirtualMachine>) -> Error {
    let now = match last {
        None => "it does not exist".to_owned(),
        Some(machine) => state(machine),
    };
    Error::new(Code::Timeout, format!("timed out after {limit:?} waiting for {name} to be {what}: {now}"))
        .hint(format!("the operation continues; see why: neonctl vm describe {name}"))
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

/// Seconds with one place, as `0.4s`.
pub(super) fn seconds(took: Duration) -> String {
    format!("{:.1}s", took.as_secs_f64())
}
