//! The target's end: carries out what [`neonvm_core_migration::Target`] decides, and what its source orders.

mod listen;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use neonvm_core_migration::target::{Action, CALLED_OFF, Event};
use neonvm_core_migration::{Refused, Target};
use neonvm_hypervisor::machine::{Machine, MachineEvent, MigrationPhase, RunState, Settings};
use neonvm_types::Bytes;
use neonvm_types::runner_protocol::{
    MigrationAnswer, MigrationOrder, MigrationRefusal, MigrationState, MigrationStatus,
};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{mpsc, oneshot, watch};

use super::carrier::{Carrier, Guarded};
use super::open_connections::OpenConnections;
use super::{INCOMING, Message, NBD};
use crate::config::PodFiles;
use crate::network::Frames;

/// How long an order to let the guest run waits for what is on its way.
const ARRIVE: Duration = Duration::from_secs(5);
/// How long a listener of QEMU may take to be there.
const PAUSED: Duration = Duration::from_secs(10);
/// Pause between two times at which copies of volumes are brought to their storage.
const SYNC: Duration = Duration::from_secs(1);

/// What the tasks of this end share.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) machine: Arc<Machine>,
    pub(super) messages: mpsc::Sender<Message>,
    pub(super) status: watch::Receiver<MigrationStatus>,
    pub(super) id: String,
    /// Name that the other runner's certificate must have.
    pub(super) name: String,
    pub(super) carrier: Carrier,
    frames: Option<Arc<Frames>>,
    pub(super) talks: OpenConnections,
}

/// The end, and the tasks that serve it.
#[derive(Debug)]
pub(crate) struct Shell {
    pub(crate) core: Target,
    status: watch::Sender<MigrationStatus>,
    /// Until the source has finished the migration, as are the listeners: threads are not kept beyond it.
    work: Option<Arc<Work>>,
    listeners: Vec<Guarded>,
    follow: Vec<Guarded>,
    tasks: Vec<Guarded>,
}

/// What the loop must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consequence {
    /// Nothing.
    None,
    /// QEMU is to be killed: nothing will ever run here.
    End,
}

/// The parts of the runner that a migration uses.
pub(crate) struct TargetParts<'a> {
    pub(crate) machine: Arc<Machine>,
    pub(crate) messages: mpsc::Sender<Message>,
    /// Where the source is waited for.
    pub(crate) addresses: &'a [SocketAddr],
    /// The guest's place on the overlay, if it has one.
    pub(crate) frames: Option<Arc<Frames>>,
}

impl Shell {
    /// Waits for the source.
    pub(crate) async fn begin(
        now: Duration,
        pod: &PodFiles,
        id: &str,
        parts: TargetParts<'_>,
    ) -> Result<Self, String> {
        let TargetParts { machine, messages, addresses, frames } = parts;
        let core = Target::new(now, id.to_owned());
        let (status, seen) = watch::channel(core.status().clone());
        let carrier = Carrier::start().map_err(|error| format!("threads: {error}"))?;
        let name = neonvm_types::runner_protocol::server_name(&pod.config.uid);
        let (talks, id) = (OpenConnections::default(), id.to_owned());
        let work = Work { machine, messages, status: seen, id, name, carrier, frames, talks };
        let work = Arc::new(work);
        let mut listeners = Vec::new();
        for address in addresses {
            listeners.push(listen::listen(&work, pod, *address).await?);
        }
        let mut follow = vec![tokio::spawn(follow(Arc::clone(&work))).into()];
        if !work.machine.copied_volumes().is_empty() {
            follow.push(tokio::spawn(keep_synced(Arc::clone(&work))).into());
        }
        Ok(Self { core, status, work: Some(work), listeners, follow, tasks: Vec::new() })
    }

    /// Takes in what has happened.
    pub(crate) fn step(&mut self, now: Duration, event: Event) -> Result<Consequence, Refused> {
        let before = self.core.status().state;
        let actions = self.core.step(now, event)?;
        let status = self.core.status();
        if status.state != before {
            tracing::info!(id = status.id, state = ?status.state, reason = status.reason, "the move goes on");
        }
        self.status.send_if_modified(|seen| {
            let changed = seen != status;
            seen.clone_from(status);
            changed
        });
        let mut consequence = Consequence::None;
        for action in actions {
            match action {
                Action::Continue => self.let_run(),
                Action::End => consequence = Consequence::End,
                Action::Close => self.listeners.clear(),
            }
        }
        if self.listeners.is_empty() && self.core.status().state.is_over() {
            (self.work, self.follow) = (None, Vec::new());
        }
        Ok(consequence)
    }

    /// Waits until the source, if it is connected, has received why this end has failed.
    pub(crate) fn source_notified(&self) -> impl Future<Output = ()> + use<> {
        let has_failed = self.core.status().state == MigrationState::Failed;
        let work = self.work.clone().filter(|_| has_failed);
        async move {
            if let Some(work) = work {
                work.talks.are_over().await;
            }
        }
    }

    fn let_run(&mut self) {
        let Some(work) = self.work.clone() else { return };
        self.tasks.push(
            tokio::spawn(async move {
                let event = match work.machine.continue_().await {
                    Ok(()) => Event::Runs,
                    Err(error) => {
                        tracing::warn!(%error, "the guest cannot be let run");
                        Event::RunsNot
                    }
                };
                let _ = work.messages.send(Message::Target(event, None)).await;
                if let Err(error) = work.machine.announce().await {
                    tracing::warn!(%error, "the new place cannot be announced");
                }
            })
            .into(),
        );
    }
}

/// Passes on QEMU's events about the migration.
async fn follow(work: Arc<Work>) {
    let mut events = work.machine.events();
    loop {
        let phase = match events.recv().await {
            Ok(MachineEvent::Migration(phase)) => phase,
            Ok(_) => continue,
            Err(RecvError::Lagged(_)) => match work.machine.migration().await {
                Ok(info) => info.phase,
                Err(_) => return,
            },
            Err(RecvError::Closed) => return,
        };
        // Reported when pages can be requested; the devices come after that, and only then the guest is complete.
        if phase == MigrationPhase::PostCopyActive && !has_devices(&work.machine).await {
            continue;
        }
        let _ = work.messages.send(Message::Target(Event::Phase(super::phase(&phase)), None)).await;
    }
}

/// Brings copies to their storage while they are made, so that little is left at the switchover.
async fn keep_synced(work: Arc<Work>) {
    let mut status = work.status.clone();
    if status.wait_for(|status| status.state != MigrationState::Waiting).await.is_err() {
        return;
    }
    loop {
        let past = status.wait_for(|status| status.state != MigrationState::Receiving);
        if tokio::time::timeout(SYNC, past).await.is_ok() {
            return;
        }
        if let Err(why) = work.sync_volumes().await {
            tracing::warn!(why, "a volume is not synchronised while it is copied");
        }
    }
}

/// Waits until QEMU has left the state in which it takes devices. There is no event for that.
async fn has_devices(machine: &Machine) -> bool {
    let until = Instant::now() + PAUSED;
    while Instant::now() < until {
        match machine.status().await {
            Ok(RunState::Paused) => return true,
            Ok(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            Err(_) => return false,
        }
    }
    false
}

fn failed(why: impl std::fmt::Display) -> MigrationAnswer {
    MigrationAnswer { error: why.to_string(), ..MigrationAnswer::default() }
}

fn answer(result: Result<(), String>) -> MigrationAnswer {
    result.map_or_else(failed, |()| MigrationAnswer::default())
}

impl Work {
    /// Sends an event to the loop and returns its answer.
    pub(super) async fn report(&self, event: Event) -> Result<(), String> {
        let (sender, answer) = oneshot::channel();
        let gone = || "the runner ends".to_owned();
        self.messages.send(Message::Target(event, Some(sender))).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Follows an order.
    pub(super) async fn order(&self, order: MigrationOrder) -> MigrationAnswer {
        tracing::debug!(?order, "ordered by the source");
        match order {
            MigrationOrder::Offer => self.offer().await,
            MigrationOrder::Receive { capabilities, channels, compression, disks } => {
                let settings = Settings {
                    capabilities: capabilities.into_iter().collect(),
                    // The source keeps the limits.
                    bandwidth: Bytes::gib(1024),
                    downtime_limit_ms: 300,
                    channels,
                    compression,
                };
                answer(self.receive(settings, &disks).await)
            }
            MigrationOrder::Claim => answer(self.claim()),
            MigrationOrder::Settle => answer(self.settle().await),
            MigrationOrder::Run { progress, guest } => {
                answer(self.run(Event::Run(Box::new((progress, guest)))).await)
            }
            MigrationOrder::Recover => answer(self.recover().await),
            MigrationOrder::Stop => answer(self.stop().await),
        }
    }

    async fn offer(&self) -> MigrationAnswer {
        match self.machine.migration_abilities().await {
            Ok(abilities) => MigrationAnswer {
                capabilities: abilities.capabilities.into_iter().collect(),
                qemu_version: self.machine.version().to_string(),
                refused: abilities
                    .refused
                    .into_iter()
                    .map(|(capability, reason)| MigrationRefusal { capability, reason })
                    .collect(),
                ..MigrationAnswer::default()
            },
            Err(error) => failed(format!("QEMU: {error}")),
        }
    }

    async fn receive(&self, settings: Settings, disks: &[String]) -> Result<(), String> {
        let state = self.status.borrow().state;
        if state != MigrationState::Waiting {
            return Err(format!("this target is {state:?}"));
        }
        let text = |error: &dyn std::fmt::Display| format!("QEMU: {error}");
        self.machine.set_migration(&settings).await.map_err(|error| text(&error))?;
        if !disks.is_empty() {
            self.machine.export_disks(NBD, disks).await.map_err(|error| text(&error))?;
        }
        self.machine.receive_memory(INCOMING).await.map_err(|error| text(&error))?;
        self.report(Event::Listening).await
    }

    /// Nothing to claim is no error: the guest is then not on the overlay.
    fn claim(&self) -> Result<(), String> {
        let sent = self.frames.as_ref().map_or(Ok(()), |frames| frames.claim());
        sent.map_err(|error| format!("the overlay: {error}"))
    }

    async fn settle(&self) -> Result<(), String> {
        self.machine.stop_exports().await.map_err(|error| format!("QEMU: {error}"))?;
        // What the guest has flushed at the source is on the storage here before it runs.
        self.sync_volumes().await?;
        self.report(Event::Settled).await
    }

    /// Brings what was copied to the storage of the volumes that outlive this VM's pods. QEMU flushes a mirror once, when it is whole
    /// for the first time.
    async fn sync_volumes(&self) -> Result<(), String> {
        let paths = self.machine.copied_volumes();
        let sync = move || {
            paths.iter().try_for_each(|path| {
                let synced = std::fs::File::open(path).and_then(|file| file.sync_all());
                synced.map_err(|error| format!("{} cannot be written: {error}", path.display()))
            })
        };
        tokio::task::spawn_blocking(sync).await.map_err(|error| error.to_string())?
    }

    /// The end of the stream and the order come by different ways: whichever is first waits for the other.
    async fn run(&self, event: Event) -> Result<(), String> {
        let mut status = self.status.clone();
        let whole = |status: &MigrationStatus| status.state != MigrationState::Receiving;
        let _ = tokio::time::timeout(ARRIVE, status.wait_for(whole)).await;
        self.report(event).await?;
        let done =
            |status: &MigrationStatus| status.state.is_over() || status.state == MigrationState::PostCopy;
        match tokio::time::timeout(ARRIVE, status.wait_for(done)).await {
            Ok(Ok(status)) if status.state == MigrationState::Failed => Err(status.reason.clone()),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err("the runner ends".to_owned()),
            Err(_) => Err("QEMU does not let the guest run".to_owned()),
        }
    }

    /// Answers with the reason if this end has failed by itself.
    async fn stop(&self) -> Result<(), String> {
        let before = self.status.borrow().state;
        self.report(Event::Stop).await?;
        let mut status = self.status.clone();
        let settled = |status: &MigrationStatus| {
            status.state.is_over() || matches!(status.state, MigrationState::PostCopy)
        };
        let called_off = self.status.borrow().reason == CALLED_OFF;
        if before == MigrationState::Completed || called_off {
            return Ok(());
        }
        match tokio::time::timeout(ARRIVE, status.wait_for(settled)).await {
            Ok(Ok(status)) if status.state == MigrationState::Failed => Err(status.reason.clone()),
            _ => Ok(()),
        }
    }

    async fn recover(&self) -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| format!("QEMU: {error}");
        let info = self.machine.migration().await.map_err(|error| text(&error))?;
        if info.phase == MigrationPhase::PostCopyActive {
            // The connection is dead, and QEMU has not noticed.
            self.machine.pause_post_copy().await.map_err(|error| text(&error))?;
        }
        self.machine.receive_memory_again(INCOMING).await.map_err(|error| text(&error))
    }
}
