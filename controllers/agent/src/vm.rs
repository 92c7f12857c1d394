//! One VM: everything that happens to it goes through one inbox into the core; what the core wants done is done beside it.

mod act;
mod observe;

pub(crate) use observe::is_paused;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use neonvm_api::{VirtualMachine, VmInfo};
use neonvm_core_vertical_scaling::agent::{Event, Outcome, State};
use neonvm_kit::supervise::{catch, panic_of};
use neonvm_types::agent_history::{Began, Decided, Record};
use neonvm_types::agent_inspect::VmInspect;
use neonvm_types::monitor_protocol::MonitorMessage;
use neonvm_types::{Resources, Timestamp};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::guest::Route;
use crate::history::Keep;
use crate::monitor::{self, MonitorEvent, Peer};
use crate::shared::Shared;

/// What may wait to be taken in. Each source has at most a few things under way.
const INBOX: usize = 32;

#[derive(Debug)]
pub(crate) enum Input {
    Object(Box<VirtualMachine>),
    /// Something for the core.
    Event(Box<Event>),
    /// Something about the connection with this number to the monitor.
    Monitor(u64, MonitorEvent),
    View(oneshot::Sender<VmInspect>),
}

/// A way to a VM's task. Dropping it ends the task and all it started.
#[derive(Debug)]
pub(crate) struct Handle {
    inbox: mpsc::Sender<Input>,
    task: tokio::task::AbortHandle,
    panic: Arc<OnceLock<Panic>>,
}

/// How a task ended: nothing else ends it but that it is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Panic {
    pub(crate) text: String,
    pub(crate) at: Option<Timestamp>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Handle {
    /// Passes on a changed object.
    pub(crate) async fn object(&self, vm: VirtualMachine) {
        // Only full if the task hangs, which would be a bug: then it is better to wait than to skip news.
        let _ = self.inbox.send(Input::Object(Box::new(vm))).await;
    }

    /// What the VM looks like now.
    pub(crate) async fn view(&self) -> Option<VmInspect> {
        let asked = async {
            let (answer, view) = oneshot::channel();
            self.inbox.send(Input::View(answer)).await.ok()?;
            view.await.ok()
        };
        tokio::time::timeout(Duration::from_secs(2), asked).await.ok()?
    }

    /// The panic that ended its task.
    pub(crate) fn panic(&self) -> Option<&Panic> {
        self.panic.get()
    }

    /// Whether its task is there.
    pub(crate) fn is_running(&self) -> bool {
        !self.task.is_finished()
    }
}

/// Whether a VM can be scaled according to its object.
///
/// # Errors
/// What is wrong with it, and in which field.
pub(crate) fn check(vm: &VirtualMachine) -> Result<(), String> {
    VmInfo::from_vm(vm).map_err(|error| error.to_string())?;
    Route::from_vm(vm).map(drop).ok_or_else(|| "status.podIP is no address".to_owned())
}

/// The generation that the status is about; if the controller does not report it, the status counts as current.
fn status_generation(vm: &VirtualMachine) -> Option<i64> {
    vm.status.as_ref()?.observed_generation
}

/// Begins to look after a VM.
///
/// # Errors
/// As [`check`].
pub(crate) fn start(shared: Arc<Shared>, vm: &VirtualMachine) -> Result<Handle, String> {
    check(vm)?;
    let wrong = || "its object cannot be understood".to_owned();
    let observed = observe::observe(&shared, vm).ok_or_else(wrong)?;
    let route = Route::from_vm(vm).ok_or_else(wrong)?;
    let (inbox, waiting) = mpsc::channel(INBOX);
    let settings = shared.settings_of(&observe::Identity::from_vm(vm).uid);
    let state = State::found(observed, status_generation(vm), settings, shared.now());
    let identity = observe::Identity::from_vm(vm);
    let began = Began { uid: identity.uid.clone(), pod: identity.pod.name.clone() };
    let at = State::unix_ms(shared.now(), shared.epoch_unix_ms);
    shared.history.record(&identity.vm, Record { at, began: Some(began), ..Record::default() });
    let actor = Actor {
        identity,
        watched: observe::Watched::from_shared(&shared, vm),
        informant: observe::may_have_informant(&shared, vm),
        shared,
        state,
        keep: Keep::default(),
        route,
        inbox: inbox.downgrade(),
        monitor: None,
        peer: None,
        metrics_port: None,
        suspending: Vec::new(),
        change: None,
        paused: observe::is_paused(vm),
        generation: 0,
        work: JoinSet::new(),
        loops: JoinSet::new(),
    };
    let (name, metrics) = (actor.identity.vm.clone(), Arc::clone(&actor.shared.metrics));
    let panic = Arc::new(OnceLock::new());
    let ended = Arc::clone(&panic);
    let run = async move {
        if let Err(text) = catch(actor.run(waiting)).await {
            tracing::error!(vm = %name, panic = text, "the task of a VM panicked; it is started again");
            metrics.runner_panicked();
            let _ = ended.set(Panic { text, at: crate::shared::wall_clock() });
        }
    };
    let task = tokio::spawn(run).abort_handle();
    Ok(Handle { inbox, task, panic })
}

struct Actor {
    identity: observe::Identity,
    /// What of the guest's metrics matters.
    watched: observe::Watched,
    shared: Arc<Shared>,
    state: State,
    /// What of it was recorded last.
    keep: Keep,
    route: Route,
    /// Weak: the task ends when all other senders are gone.
    inbox: mpsc::WeakSender<Input>,
    /// Whether the guest may have an informant.
    informant: bool,
    monitor: Option<monitor::Handle>,
    /// What answers in the guest, while it does.
    peer: Option<Peer>,
    /// The port of the guest's metrics that its informant named.
    metrics_port: Option<u16>,
    /// Where it is reported that nothing is under way any more, after `/suspend`.
    suspending: Vec<oneshot::Sender<()>>,
    /// The change that the monitor was asked for, with the number of the request.
    change: Option<(u64, Resources, Resources)>,
    /// Whether the guest stands still on request: it is neither read nor connected to.
    paused: bool,
    /// Number of the connection to the monitor: events of older ones are ignored.
    generation: u64,
    /// Requests under way; they end with the task.
    work: JoinSet<()>,
    /// The loops that read metrics.
    loops: JoinSet<()>,
}

impl Actor {
    async fn run(mut self, mut inbox: mpsc::Receiver<Input>) {
        self.connect();
        self.read_metrics();
        let mut outcome = self.state.step(self.shared.now(), Event::Timer);
        loop {
            let wake_at = outcome.wake_at;
            self.remember(&outcome);
            self.act(outcome);
            if self.work.is_empty() {
                for done in self.suspending.drain(..) {
                    let _ = done.send(());
                }
            }
            let input = tokio::select! {
                input = inbox.recv() => match input {
                    Some(input) => Some(input),
                    None => return,
                },
                () = until(&self.shared, wake_at) => None,
                // A request reports by itself what came of it, even that it panicked.
                Some(ended) = self.work.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(vm = %self.identity.vm, panic = panic_of(error), "a request panicked");
                    }
                    outcome = Outcome { wake_at, ..Outcome::default() };
                    continue;
                }
            };
            let event = match input {
                None => Some(Event::Timer),
                Some(input) => self.take(input),
            };
            outcome = match event {
                Some(event) => self.state.step(self.shared.now(), event),
                None => Outcome { wake_at, ..Outcome::default() },
            };
        }
    }

    /// Records what was decided, and sizes and load if they changed.
    fn remember(&mut self, outcome: &Outcome) {
        let (shared, vm) = (&self.shared, &self.identity.vm);
        if !shared.history.is_kept() {
            return;
        }
        for note in outcome.notes.iter().chain(&outcome.repeated) {
            let text = note.to_string();
            if self.keep.decision(note.at, &text) {
                let decision = Decided { text, reason: note.reason().map(str::to_owned) };
                let at = State::unix_ms(note.at, shared.epoch_unix_ms);
                shared.history.record(vm, Record { at, decision: Some(decision), ..Record::default() });
            }
        }
        let now = shared.now();
        let sample = self.state.sample(now);
        if self.keep.sample(now, sample) {
            let at = State::unix_ms(now, shared.epoch_unix_ms);
            shared.history.record(vm, Record { at, sample: Some(sample), ..Record::default() });
        }
    }

    /// What an input means to the core.
    fn take(&mut self, input: Input) -> Option<Event> {
        match input {
            Input::Event(event) => Some(*event),
            Input::Object(vm) => self.object(&vm),
            Input::Monitor(generation, event) => {
                if generation != self.generation {
                    return None;
                }
                self.count_consent(&event);
                Some(self.monitor_event(event))
            }
            Input::View(answer) => {
                let mut view = self.state.view(self.shared.now()).to_inspect(self.shared.epoch_unix_ms);
                view.guest_protocol = self.peer.map(|peer| peer.to_string());
                view.background_tasks = counted(self.work.len() + self.loops.len());
                view.monitor_waiting = self.monitor.as_ref().and_then(monitor::Handle::waiting).map(counted);
                let _ = answer.send(view);
                None
            }
        }
    }

    /// Keeps what the core does not need to know, and passes on the rest.
    fn monitor_event(&mut self, mut event: MonitorEvent) -> Event {
        match &mut event {
            MonitorEvent::Connected(peer) => {
                self.peer = Some(*peer);
                let port = match peer {
                    Peer::Monitor(_) => None,
                    Peer::Informant { metrics_port, .. } => Some(*metrics_port),
                };
                if port != self.metrics_port {
                    self.metrics_port = port;
                    self.loops.abort_all();
                    self.read_metrics();
                }
            }
            MonitorEvent::Suspended(done) => self.suspending.extend(done.take()),
            MonitorEvent::Lost(_) => self.peer = None,
            _ => {}
        }
        observe::of_monitor(event)
    }

    /// Counts a change of size that the monitor has acknowledged.
    fn count_consent(&mut self, event: &MonitorEvent) {
        let MonitorEvent::Reply { id, result: Ok(message) } = event else { return };
        let Some((_, from, to)) = self.change.take_if(|(asked, ..)| asked == id) else { return };
        if matches!(
            message,
            MonitorMessage::UpscaleConfirmation | MonitorMessage::DownscaleResult { ok: true, .. }
        ) {
            self.shared.metrics.monitor_approved(from, to);
        }
    }

    fn object(&mut self, vm: &VirtualMachine) -> Option<Event> {
        let route = Route::from_vm(vm)?;
        let watched = observe::Watched::from_shared(&self.shared, vm);
        let paused = observe::is_paused(vm);
        let moved = route != self.route || paused != self.paused;
        self.paused = paused;
        let informant = observe::may_have_informant(&self.shared, vm);
        if moved || watched != self.watched {
            self.route = route;
            self.watched = watched;
            self.loops.abort_all();
            self.read_metrics();
        }
        if moved || informant != self.informant {
            self.informant = informant;
            self.connect();
        }
        self.identity = observe::Identity::from_vm(vm);
        let status_generation = status_generation(vm);
        observe::observe(&self.shared, vm).map(|vm| Event::VmSeen { vm, status_generation })
    }

    fn connect(&mut self) {
        self.generation += 1;
        self.peer = None;
        self.monitor = None;
        if self.paused {
            return;
        }
        let news = News { generation: self.generation, inbox: self.inbox.clone() };
        let settings = monitor::Settings {
            route: self.route.clone(),
            tls: Arc::clone(&self.shared.tls),
            config: self.shared.config.monitor,
            informant: self.shared.informants.clone().filter(|_| self.informant),
            metrics: Arc::clone(&self.shared.metrics),
        };
        self.monitor = Some(monitor::start(settings, news));
    }
}

fn counted(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// News of one connection to the monitor.
struct News {
    generation: u64,
    inbox: mpsc::WeakSender<Input>,
}

impl monitor::Listener for News {
    async fn notify(&self, event: MonitorEvent) {
        if let Some(inbox) = self.inbox.upgrade() {
            let _ = inbox.send(Input::Monitor(self.generation, event)).await;
        }
    }
}

async fn until(shared: &Shared, wake_at: Option<Duration>) {
    match wake_at {
        Some(at) => tokio::time::sleep_until(shared.instant(at)).await,
        None => std::future::pending().await,
    }
}

/// Sends what came of some work to the task, if it is still there.
async fn report(inbox: mpsc::WeakSender<Input>, event: Event) {
    if let Some(inbox) = inbox.upgrade() {
        let _ = inbox.send(Input::Event(Box::new(event))).await;
    }
}

/// The moment `after` from now on.
fn later(after: Duration) -> Instant {
    Instant::now() + after
}
