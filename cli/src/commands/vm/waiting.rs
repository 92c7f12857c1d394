//! Waiting until something is true of a virtual machine: told by a watch, never by asking again and again.

use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _};
use kube::runtime::watcher;
use neonvm_api::VirtualMachine;
use tokio::signal::unix::{SignalKind, signal};

use super::machines::Machines;
use crate::error::{Code, Error, Result};

/// What waiting has seen.
pub(super) enum Seen {
    /// Not yet.
    NotYet,
    /// It is true.
    Done,
    /// It will not become true.
    Never(Error),
}

/// How waiting ended well.
pub(super) struct Waited {
    pub(super) machine: Option<VirtualMachine>,
    pub(super) took: Duration,
}

/// Waits until `look` says so of the machine, or of its absence. Ctrl-C detaches: the work goes on.
pub(super) async fn until(
    machines: &Machines,
    name: &str,
    limit: Duration,
    what: &str,
    mut look: impl FnMut(Option<&VirtualMachine>) -> Seen,
) -> Result<Waited> {
    let start = Instant::now();
    let mut interrupt = signal(SignalKind::interrupt())
        .map_err(|error| Error::new(Code::Failed, "cannot wait").cause(crate::error::reason(&error)))?;
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut stream = watcher(machines.api(), config).boxed();
    let mut last: Option<VirtualMachine> = None;
    let deadline = tokio::time::sleep(limit);
    tokio::pin!(deadline);
    let mut initial = None;
    loop {
        let event = tokio::select! {
            event = stream.try_next() => event,
            () = &mut deadline => return Err(timed_out(name, limit, what, last.as_ref())),
            _ = interrupt.recv() => return Err(Error::new(Code::Interrupted, format!("stopped waiting for {name}"))
                .hint(format!("the work goes on; wait again: neonctl vm wait {name} --for {what}"))),
        };
        last = match event {
            Ok(Some(watcher::Event::Apply(machine))) => Some(machine),
            Ok(Some(watcher::Event::InitApply(machine))) => {
                initial = Some(machine);
                continue;
            }
            Ok(Some(watcher::Event::Init)) => continue,
            Ok(Some(watcher::Event::InitDone)) => initial.take(),
            Ok(Some(watcher::Event::Delete(_))) => None,
            Ok(None) => return Err(Error::new(Code::Failed, "the watch ended")),
            // The watcher goes on by itself, with pauses; the deadline ends it.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        match look(last.as_ref()) {
            Seen::Done => return Ok(Waited { machine: last, took: start.elapsed() }),
            Seen::Never(error) => return Err(error),
            Seen::NotYet => {}
        }
    }
}

fn timed_out(name: &str, limit: Duration, what: &str, last: Option<&VirtualMachine>) -> Error {
    let now = match last {
        None => "it does not exist".to_owned(),
        Some(machine) => state(machine),
    };
    Error::new(Code::Timeout, format!("timed out after {limit:?} waiting for {name} to be {what}: {now}"))
        .hint(format!("the work goes on; see why: neonctl vm describe {name}"))
}

/// The state in a few words: the phase, and what stands in the way.
pub(super) fn state(machine: &VirtualMachine) -> String {
    let Some(status) = &machine.status else {
        return "nobody has looked at it yet; is vm-controller running?".to_owned();
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
