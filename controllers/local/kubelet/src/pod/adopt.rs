//! Finding the processes of a pod again after a restart of the node.

use std::sync::Arc;

use super::container;
use super::state::Worker;
use crate::clock;
use crate::process::{Identity, Outcome, Process};
use neonvm_core_kubelet::{Event, State};

/// Takes the processes of a pod over. Returns the events for the core.
pub(super) fn adopt(worker: &mut Worker, same_boot: bool) -> Vec<Event> {
    let mut events = Vec::new();
    let running: Vec<String> = worker.machine.running().map(str::to_owned).collect();
    for name in running {
        let Some(run) = worker.machine.runs.get_mut(&name) else { continue };
        let identity = Identity::read(&worker.handle.directory.pid(&name, run.restarts));
        let was_starting = run.state == State::Starting;
        let Some(identity) = identity else {
            if was_starting {
                // It never got as far as its program.
                let (reason, message) = ("ContainerCreating".to_owned(), String::new());
                run.state = State::Waiting { until: clock::now(), reason, message };
            } else {
                let ended = container::ended(worker, &name, Outcome::Unknown);
                events.push(Event::Exited { container: name, ended });
            }
            continue;
        };
        if was_starting {
            events.push(Event::Started { container: name.clone() });
        }
        let process = if same_boot { Process::open(identity) } else { Ok(None) };
        match process {
            Ok(Some(process)) => {
                tracing::info!(pid = identity.pid, container = name, "found again");
                container::attend(worker, &name, Arc::new(process));
            }
            Ok(None) => {
                let ended = container::ended(worker, &name, Outcome::Unknown);
                events.push(Event::Exited { container: name, ended });
            }
            Err(error) => tracing::error!(%error, pid = identity.pid, "a process cannot be watched"),
        }
    }
    events
}
