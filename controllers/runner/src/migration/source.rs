//! The source's end: carries out what [`neonvm_core_migration::Source`] decides. Slow steps are tasks that end with a message.

mod disks;
mod frames;
mod hand_over;
mod watch;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use neonvm_core_migration::source::{Action, Event};
use neonvm_core_migration::{DiskPace, Phase, Refused, Source};
use neonvm_hypervisor::machine::{
    Agreement, Machine, MachineEvent, MigrationInfo, MigrationPhase, RequestedFeatures, RunState, Settings,
    negotiate,
};
use neonvm_hypervisor::patience::scaled;
use neonvm_types::runner_protocol::{
    MigrationAnswer, MigrationChannel, MigrationGuest, MigrationOrder, MigrationRefusal, MigrationRequest,
    PostCopy,
};
use tokio::sync::{Mutex as AsyncMutex, mpsc};

use super::carrier::{Carrier, Guarded};
use super::connect::Connector;
use super::control::Control;
use super::relay::{self, Helpers};
use super::{DISK, MEMORY, Message, phase};
use crate::network::Frames;

/// Time for the target to set its QEMU up, and for most other orders.
const ORDER: Duration = Duration::from_secs(10);
/// Time for the target to let the guest run: it waits a while for what is on its way.
const RUN: Duration = Duration::from_secs(8);
/// Time for a target that is no longer needed; it may have to wait for the last output of its QEMU.
const STOP: Duration = Duration::from_secs(4);
/// Time for the last numbers, and for the last order, whose reply is only logged.
const LAST: Duration = Duration::from_secs(1);
/// Attempts to reach the target at the beginning, and the first pause between them; doubled.
const ATTEMPTS: (u32, Duration) = (5, Duration::from_millis(100));
/// Time for a guest that continues here to run.
const RESUME: Duration = Duration::from_secs(10);

/// State that the tasks of one migration share.
#[derive(Debug)]
struct Work {
    number: u64,
    machine: Arc<Machine>,
    messages: mpsc::Sender<Message>,
    connector: Connector,
    request: MigrationRequest,
    carrier: Carrier,
    frames: Option<Arc<Frames>>,
    control: AsyncMutex<Option<Control>>,
    relays: Mutex<Vec<Guarded>>,
    agreement: Mutex<Agreement>,
    /// Numbers of the disks that are copied.
    mirrors: Mutex<Vec<usize>>,
    /// How fast the guest may write them, and when that was last computed.
    pace: Mutex<(DiskPace, Option<Instant>)>,
}

/// The end, and the tasks that serve it.
#[derive(Debug)]
pub(crate) struct Shell {
    pub(crate) core: Source,
    number: u64,
    /// While the migration is active: threads and connections are not kept beyond it.
    work: Option<Arc<Work>>,
    watch: Option<Guarded>,
    tasks: Vec<Guarded>,
}

/// The parts of the runner that a migration uses.
pub(crate) struct SourceParts {
    pub(crate) number: u64,
    pub(crate) machine: Arc<Machine>,
    pub(crate) messages: mpsc::Sender<Message>,
    pub(crate) connector: Connector,
    /// Of the guest on the overlay, if it is there.
    pub(crate) frames: Option<Arc<Frames>>,
}

impl Shell {
    pub(crate) fn begin(
        now: Duration,
        parts: SourceParts,
        request: MigrationRequest,
    ) -> Result<Self, String> {
        let carrier = Carrier::start().map_err(|error| format!("threads: {error}"))?;
        let SourceParts { number, machine, messages, connector, frames } = parts;
        let (core, actions) = Source::new(now, request.clone());
        let work = Arc::new(Work {
            number,
            machine,
            messages,
            connector,
            request,
            carrier,
            frames,
            control: AsyncMutex::default(),
            relays: Mutex::default(),
            agreement: Mutex::default(),
            mirrors: Mutex::default(),
            pace: Mutex::default(),
        });
        let watch = Some(tokio::spawn(watch::follow(Arc::clone(&work))).into());
        let mut shell = Self { core, number, work: Some(work), watch, tasks: Vec::new() };
        for action in actions {
            shell.act(action, MigrationGuest::default());
        }
        Ok(shell)
    }

    /// Whether a message belongs to this migration.
    pub(crate) fn is(&self, number: u64) -> bool {
        self.number == number
    }

    /// Takes in an event; `guest`: the data for the target if the guest leaves now.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        event: Event,
        guest: &MigrationGuest,
    ) -> Result<(), Refused> {
        let before = self.core.status().state;
        let actions = self.core.step(now, event)?;
        let status = self.core.status();
        if status.state != before {
            tracing::info!(id = status.id, state = ?status.state, reason = status.reason, "the move goes on");
        }
        for action in actions {
            tracing::debug!(?action);
            self.act(action, guest.clone());
        }
        if self.core.status().state.is_over() {
            self.tasks.clear();
            (self.watch, self.work) = (None, None);
        }
        Ok(())
    }

    fn act(&mut self, action: Action, guest: MigrationGuest) {
        let Some(work) = self.work.clone() else { return };
        let numbers = (action == Action::Copy).then(|| watch::numbers(Arc::clone(&work)));
        if action == Action::Copy {
            self.tasks.extend(work.copy_frames());
        }
        let last = self.core.status().progress.clone();
        // Actions of the migration that still run must not overlap with those that undo them.
        let undone = if action == Action::StayHere { std::mem::take(&mut self.tasks) } else { Vec::new() };
        let task = tokio::spawn(async move {
            for task in undone {
                task.end().await;
            }
            let event = match action {
                Action::Negotiate => work.negotiate().await.unwrap_or_else(Event::Trouble),
                Action::Mirror => work.mirror().await.map_or_else(Event::Trouble, |()| Event::Mirrored),
                Action::Copy => match work.machine.send_memory(MEMORY).await {
                    Ok(()) => return,
                    Err(error) => Event::Phase(Phase::Failed, error.to_string()),
                },
                Action::StartPostCopy => match work.machine.start_post_copy().await {
                    Ok(()) => return,
                    Err(error) => Event::Trouble(error.to_string()),
                },
                Action::Settle => work.settle().await.map_or_else(Event::Trouble, |()| Event::Settled),
                Action::SwitchOver => match work.machine.switch_over().await {
                    Ok(()) => return,
                    Err(error) => Event::NotSwitched(error.to_string()),
                },
                Action::CancelCopy => work.cancel().await,
                Action::HandOver => work
                    .hand_over(last, guest)
                    .await
                    .map_or_else(Event::NotHandedOver, |()| Event::HandedOver),
                Action::Recover => match work.recover().await {
                    Ok(()) => return,
                    Err(why) => Event::NotRecovered(why),
                },
                Action::StayHere => work.stay_here().await,
                Action::Leave => return work.leave(&last, guest).await,
            };
            work.report(event).await;
        });
        // What ends the migration must be done even if the shell is dropped.
        if !matches!(action, Action::StayHere | Action::Leave) {
            self.tasks.push(task.into());
        }
        if let Some(numbers) = numbers {
            self.tasks.push(tokio::spawn(numbers).into());
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Work {
    async fn report(&self, event: Event) {
        let _ = self.messages.send(Message::Source(self.number, event)).await;
    }

    /// A new control connection; its loss is reported.
    async fn connect(&self) -> Result<Control, String> {
        let (messages, number) = (self.messages.clone(), self.number);
        let lost = move |why: String| {
            tokio::spawn(async move {
                let _ = messages.send(Message::Source(number, Event::Trouble(why))).await;
            });
        };
        Control::open(&self.connector, lost).await
    }

    /// Gives an order, by a new connection if the old one is lost.
    async fn order(&self, order: MigrationOrder, within: Duration) -> Result<MigrationAnswer, String> {
        let mut control = self.control.lock().await;
        if !control.as_ref().is_some_and(Control::is_open) {
            *control = Some(self.connect().await?);
        }
        match control.as_ref() {
            Some(control) => control.order(order, scaled(within)).await,
            None => Err("the connection to the target is lost".to_owned()),
        }
    }

    async fn negotiate(&self) -> Result<Event, String> {
        let mut pause = ATTEMPTS.1;
        let mut attempt = 1;
        let offer = loop {
            match self.order(MigrationOrder::Offer, ORDER).await {
                Ok(answer) => break answer,
                Err(why) if attempt == ATTEMPTS.0 => return Err(why),
                Err(why) => tracing::debug!(why, attempt, "the target cannot be reached yet"),
            }
            tokio::time::sleep(pause).await;
            (pause, attempt) = (pause * 2, attempt + 1);
        };
        let text = |error: &dyn std::fmt::Display| format!("QEMU: {error}");
        let blocked = self.machine.migration().await.map_err(|error| text(&error))?.blocked;
        if let Some(reason) = blocked.first() {
            return Err(format!("QEMU: {reason}"));
        }
        let own = self.machine.migration_abilities().await.map_err(|error| text(&error))?;
        let theirs = neonvm_hypervisor::machine::Abilities {
            capabilities: offer.capabilities.into_iter().collect(),
            refused: offer
                .refused
                .into_iter()
                .map(|MigrationRefusal { capability, reason }| (capability, reason))
                .collect(),
        };
        let parameters = &self.request.parameters;
        let agreement = negotiate(&RequestedFeatures::from(parameters), &own, &theirs)?;
        let disks = self.machine.written_disks();
        // A post-copy that follows the first pass needs no second one.
        let by_post_copy = agreement.has_post_copy() && parameters.post_copy == PostCopy::AfterFirstPass;
        let one_pass = !self.machine.sees_all_writes() && !by_post_copy;
        let settings = Settings {
            capabilities: agreement.capabilities.clone(),
            bandwidth: parameters.bandwidth,
            downtime_limit_ms: if one_pass { 0 } else { parameters.downtime_limit_ms },
            channels: agreement.channels,
            compression: agreement.compression,
        };
        self.machine.set_migration(&settings).await.map_err(|error| text(&error))?;
        let receive = MigrationOrder::Receive {
            capabilities: agreement.capabilities.iter().cloned().collect(),
            channels: agreement.channels,
            compression: agreement.compression,
            disks: disks.clone(),
        };
        self.order(receive, ORDER).await?;
        self.listen(agreement.capabilities.contains("multifd"))
            .map_err(|error| format!("sockets: {error}"))?;
        let (mut dropped, post_copy) = (agreement.dropped.clone(), agreement.has_post_copy());
        let passes = if one_pass { ", one pass (emulated)" } else { "" };
        if one_pass {
            let limit = parameters.downtime_limit_ms;
            dropped.push(format!(
                "downtime limit {limit} ms: what is written during the one pass is sent afterwards"
            ));
        }
        let mode = format!("{}, tls{passes}", agreement.mode());
        *locked(&self.agreement) = agreement;
        Ok(Event::Agreed { mode, dropped, post_copy, disks: !disks.is_empty() })
    }

    /// Sockets for our QEMU, which notices and reports what they cannot pass on.
    fn listen(&self, multifd: bool) -> std::io::Result<()> {
        let missing = || std::io::Error::other("the VM was started without a place for them");
        let (sender, mut troubles) = mpsc::channel(1);
        let handle = self.carrier.handle().ok_or_else(missing)?;
        let mut relays = Vec::new();
        let helpers = if multifd { Helpers::Present } else { Helpers::Absent };
        let memory = (MigrationChannel::Memory, helpers);
        for (name, kind) in [(MEMORY, memory), (DISK, (MigrationChannel::Disk, Helpers::Absent))] {
            let path = self.machine.socket(name).ok_or_else(missing)?;
            relays.push(relay::listen(&handle, &path, self.connector.clone(), kind, sender.clone())?);
        }
        let (messages, number) = (self.messages.clone(), self.number);
        let task = tokio::spawn(async move {
            while let Some(why) = troubles.recv().await {
                let _ = messages.send(Message::Source(number, Event::Trouble(why))).await;
            }
        });
        relays.push(task.into());
        *locked(&self.relays) = relays;
        Ok(())
    }

    async fn cancel_if_needed(&self) -> Event {
        match self.machine.migration().await {
            Ok(info) if info.phase.is_over() => Event::Phase(phase(&info.phase), info.error),
            _ => self.cancel().await,
        }
    }

    /// QEMU's event about the end may have come before the request, or not at all.
    async fn cancel(&self) -> Event {
        if let Err(error) = self.machine.cancel_migration().await {
            tracing::warn!(%error, "QEMU does not cancel the migration");
        }
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            match self.machine.migration().await {
                Ok(MigrationInfo { phase: current, error, .. }) if current.is_over() => {
                    return Event::Phase(phase(&current), error);
                }
                Err(error) => return Event::Trouble(format!("QEMU: {error}")),
                Ok(info) if Instant::now() > until => return Event::Phase(phase(&info.phase), String::new()),
                Ok(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    async fn recover(&self) -> Result<(), String> {
        self.order(MigrationOrder::Recover, ORDER).await?;
        self.machine.send_memory_again(MEMORY).await.map_err(|error| error.to_string())
    }

    /// The guest continues here: nothing is left of the migration.
    async fn stay_here(&self) -> Event {
        // Whatever QEMU reported: it must not continue the migration.
        if !matches!(self.cancel_if_needed().await, Event::Phase(phase, _) if phase.is_over()) {
            tracing::error!("QEMU has not cancelled the migration");
        }
        self.give_up_disks().await;
        let control = self.control.lock().await.take();
        let mut words = String::new();
        if let Some(control) = control {
            if control.is_open()
                && let Err(why) = control.order(MigrationOrder::Stop, STOP).await
            {
                words = why.strip_prefix("the target: ").unwrap_or_default().to_owned();
            }
            if words.is_empty() {
                words = control.words();
            }
        }
        let until = Instant::now() + RESUME;
        let mut pause = Duration::from_millis(2);
        while Instant::now() < until {
            match self.machine.status().await {
                // After its own failure QEMU lets the guest continue a moment later, without a command.
                Ok(RunState::Paused | RunState::Other(_)) => {
                    if let Err(error) = self.machine.continue_().await {
                        tracing::warn!(%error, "the guest cannot go on");
                    }
                }
                Ok(_) | Err(_) => break,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
        // The target may have claimed the guest's frames.
        let _ = self.machine.announce().await;
        self.keep_frames();
        Event::Cleaned(words)
    }
}
