//! The task that watches a machine: translates events, remembers why it ended.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;

use super::event::{MachineEvent, RunState, run_state, translate};
use super::exit::QemuExit;
use super::stderr::Tail;
use crate::plan::MachinePlan;
use crate::qmp::{EVENT_BUFFER, Event, Session};

/// How long the last events of a process that has ended may take to arrive.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

pub(super) struct Watched {
    pub(super) plan: Arc<MachinePlan>,
    pub(super) session: Arc<Session>,
    pub(super) ended: watch::Receiver<Option<ExitStatus>>,
    pub(super) tail: Tail,
    pub(super) stderr: JoinHandle<()>,
}

type Spawned = (JoinHandle<()>, broadcast::Sender<MachineEvent>, watch::Receiver<Option<QemuExit>>);

pub(super) fn spawn(watched: Watched, events: broadcast::Receiver<Event>) -> Spawned {
    let (out, _) = broadcast::channel(EVENT_BUFFER);
    let (exit_sender, exit) = watch::channel(None);
    let task = tokio::spawn(run(watched, events, out.clone(), exit_sender));
    (task, out, exit)
}

async fn run(
    mut watched: Watched,
    mut events: broadcast::Receiver<Event>,
    out: broadcast::Sender<MachineEvent>,
    exit: watch::Sender<Option<QemuExit>>,
) {
    let mut known = QemuExit::default();
    let mut ended = watched.ended.clone();
    let status = loop {
        tokio::select! {
            event = events.recv() => match event {
                Ok(event) => take(&watched, &event, &mut known, &out).await,
                // The session holds a sender as long as this task holds the session: it is never closed.
                Err(RecvError::Lagged(_) | RecvError::Closed) => {}
            },
            end = end_of(&mut ended) => break end,
        }
    };
    let ended_at = Instant::now();
    // Its last events may still be on the way.
    let _ = tokio::time::timeout(PATIENCE, watched.session.ended()).await;
    while let Ok(event) = events.try_recv() {
        take(&watched, &event, &mut known, &out).await;
    }
    let _ = tokio::time::timeout(PATIENCE, &mut watched.stderr).await;
    known.code = status.and_then(|status| status.code());
    known.signal = status.and_then(|status| status.signal());
    known.stderr = watched.tail.lines();
    known.last_line = watched.tail.at_end(ended_at);
    exit.send_replace(Some(known));
}

/// Waits for the end of the process.
async fn end_of(ended: &mut watch::Receiver<Option<ExitStatus>>) -> Option<ExitStatus> {
    ended.wait_for(Option::is_some).await.ok().and_then(|status| *status)
}

async fn take(watched: &Watched, event: &Event, known: &mut QemuExit, out: &broadcast::Sender<MachineEvent>) {
    let mut translated = translate(event, &watched.plan);
    match &mut translated {
        MachineEvent::Stopped(state) => {
            // QEMU's event about a stop has no reason.
            match run_state(&watched.session).await {
                Ok(RunState::InternalError) => {
                    known.internal_error = true;
                    *state = RunState::InternalError;
                    let _ = out.send(MachineEvent::AcceleratorFailed);
                }
                Ok(now) => *state = now,
                Err(_) => {}
            }
        }
        MachineEvent::Shutdown { guest, reason } => {
            known.guest_panicked |= reason == "guest-panic";
            known.shutdown = Some((*guest, reason.clone()));
        }
        MachineEvent::GuestPanicked => known.guest_panicked = true,
        _ => {}
    }
    // Having no receiver is no error.
    let _ = out.send(translated);
}

#[cfg(test)]
mod tests;
