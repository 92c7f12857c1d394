//! The connection to the monitor in one guest: made, kept, checked and made again for as long as the VM is ours. Where the
//! configuration allows it, a guest without a monitor is tried with the informant's protocol.

pub(crate) mod informant;
mod link;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use neonvm_kit::supervise::catch;
use neonvm_types::monitor_protocol::{
    AgentMessage, HandshakeReply, MONITOR_PATH, MessageError, MonitorMessage, SUPPORTED, Wants,
};
use neonvm_types::version::{InformantProtoVersion, MonitorProtoVersion};
use rustls::ClientConfig;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::config::{Monitor, seconds};
use crate::guest::Route;
use crate::metrics::Metrics;
use link::{Happening, Link};

/// Requests of the core that wait for the connection; it has at most two under way.
const WAITING: usize = 8;
/// Pause between two health checks.
const HEALTH: Duration = Duration::from_secs(5);
/// Frames that a monitor may send between two health checks. An honest one sends a few; each costs the agent work.
const MOST_FRAMES: u32 = 200;

/// What answers in the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Monitor(MonitorProtoVersion),
    /// An informant, with the port of the guest's metrics.
    Informant {
        version: InformantProtoVersion,
        metrics_port: u16,
    },
}

impl Peer {
    /// The version of the monitor's protocol that the requests of the core have. An informant has the same as the oldest: it
    /// requests memory without an amount.
    pub(crate) const fn monitor_version(self) -> MonitorProtoVersion {
        match self {
            Self::Monitor(version) => version,
            Self::Informant { .. } => MonitorProtoVersion::V1_0,
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Monitor(version) => write!(f, "monitor {version}"),
            Self::Informant { version, .. } => write!(f, "informant {version}"),
        }
    }
}

/// What happens on the connection.
#[derive(Debug)]
pub(crate) enum MonitorEvent {
    /// There is one, to this peer.
    Connected(Peer),
    /// The informant made another agent the current one. The sender is used when nothing of this agent is under way.
    Suspended(Option<oneshot::Sender<()>>),
    /// There is none, for this reason.
    Lost(String),
    /// The guest wants more.
    Wants(Option<Wants>),
    /// The answer to the request with this number of the core; an error if there is none.
    Reply { id: u64, result: Result<MonitorMessage, String> },
    /// A sign of life.
    Alive,
}

/// A request of the core, with its number.
pub(crate) type Ask = (u64, AgentMessage);

/// How the monitor is reached, and how patient we are.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) route: Route,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) config: Monitor,
    /// If the guest may have an informant.
    pub(crate) informant: Option<informant::Settings>,
    pub(crate) metrics: Arc<Metrics>,
}

/// A way to send requests. Dropping it ends the connection.
#[derive(Debug)]
pub(crate) struct Handle {
    asks: mpsc::Sender<Ask>,
    waiting: Arc<Waiting>,
}

/// How many requests are not answered yet; none without a connection.
#[derive(Debug, Default)]
struct Waiting(Mutex<Option<usize>>);

impl Waiting {
    fn set(&self, count: Option<usize>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = count;
    }

    fn get(&self) -> Option<usize> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handle {
    /// Sends a request; `false` if it cannot be taken, which counts as failed.
    pub(crate) fn ask(&self, ask: Ask) -> bool {
        self.asks.try_send(ask).is_ok()
    }

    /// Requests that are not answered yet; none without a connection.
    pub(crate) fn waiting(&self) -> Option<usize> {
        self.waiting.get()
    }
}

/// Receives the events of a connection. A busy listener delays the connection, so that nothing is lost and no further messages
/// of the monitor are read.
pub(crate) trait Listener: Send + Sync + 'static {
    fn notify(&self, event: MonitorEvent) -> impl Future<Output = ()> + Send;
}

/// Starts the connection; its events go to `listener`.
pub(crate) fn start(settings: Settings, listener: impl Listener) -> Handle {
    let (asks, mut queue) = mpsc::channel(WAITING);
    let waiting = Arc::new(Waiting::default());
    let handle = Handle { asks, waiting: Arc::clone(&waiting) };
    tokio::spawn(async move {
        let least = seconds(settings.config.connection_retry_min_wait_seconds);
        while let Err(panic) = catch(keep(&settings, &mut queue, &waiting, &listener)).await {
            tracing::error!(panic, "the connection to a monitor panicked; it is made again");
            listener.notify(MonitorEvent::Lost(format!("the connection panicked: {panic}"))).await;
            tokio::time::sleep(least).await;
        }
    });
    handle
}

async fn keep(
    settings: &Settings,
    asks: &mut mpsc::Receiver<Ask>,
    waiting: &Waiting,
    listener: &impl Listener,
) {
    let least = seconds(settings.config.connection_retry_min_wait_seconds);
    loop {
        let started = Instant::now();
        let skip = settings.informant.as_ref().is_some_and(|informant| informant.config.skip_monitor);
        let connected = tokio::select! {
            connected = connect_in_time(settings), if !skip => connected,
            () = std::future::ready(()), if skip => Err("informant.skipMonitor is set".into()),
            () = refuse(asks, listener) => return,
        };
        let ended = match connected {
            Err(why) => fall_back(settings, &why, asks, listener).await,
            Ok(link) => {
                let ended = live(settings, link, asks, waiting, listener).await;
                waiting.set(None);
                ended
            }
        };
        let (why, pause) = match ended {
            Ended::Dropped => return,
            // A connection that lived is made again at once, one that did not after a pause.
            Ended::Failed(why) => (why, least.saturating_sub(started.elapsed())),
            Ended::Left { why, pause } => (why, pause),
        };
        listener.notify(MonitorEvent::Lost(why)).await;
        tokio::select! {
            () = refuse(asks, listener) => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// The informant's protocol, where the guest may speak it; `no_monitor` is why there is no monitor.
async fn fall_back(
    settings: &Settings,
    no_monitor: &str,
    asks: &mut mpsc::Receiver<Ask>,
    listener: &impl Listener,
) -> Ended {
    let Some(informant) = &settings.informant else { return Ended::Failed(no_monitor.to_owned()) };
    let way = informant::Way {
        route: settings.route.clone(),
        tls: Arc::clone(&settings.tls),
        metrics: Arc::clone(&settings.metrics),
    };
    match informant::live(informant, way, asks, listener).await {
        informant::Ended::Dropped => Ended::Dropped,
        informant::Ended::Failed { why, confirmed: true, pause } => Ended::Left { why, pause },
        informant::Ended::Failed { why, confirmed: false, pause } => {
            Ended::Left { why: format!("no monitor: {no_monitor}; no informant: {why}"), pause }
        }
    }
}

/// Without a connection every request fails at once. Ends when all senders of requests are gone.
async fn refuse(asks: &mut mpsc::Receiver<Ask>, listener: &impl Listener) {
    while let Some((id, _)) = asks.recv().await {
        let result = Err("there is no connection to the monitor".into());
        listener.notify(MonitorEvent::Reply { id, result }).await;
    }
}

enum Ended {
    /// The VM is no longer ours.
    Dropped,
    Failed(String),
    /// A registration with an informant: why it ended, and the time before the next attempt.
    Left {
        why: String,
        pause: Duration,
    },
}

/// One connection, from its beginning to its end.
async fn live(
    settings: &Settings,
    mut link: Link,
    asks: &mut mpsc::Receiver<Ask>,
    waiting: &Waiting,
    listener: &impl Listener,
) -> Ended {
    listener.notify(MonitorEvent::Connected(Peer::Monitor(link.version))).await;
    let ended = serve(settings, &mut link, asks, waiting, listener).await;
    match &ended {
        Ended::Dropped => link.close(None).await,
        Ended::Failed(why) | Ended::Left { why, .. } => link.close(Some(why)).await,
    }
    for id in link.abandoned() {
        listener.notify(MonitorEvent::Reply { id, result: Err("the connection was lost".into()) }).await;
    }
    ended
}

async fn connect_in_time(settings: &Settings) -> Result<Link, String> {
    let within = seconds(settings.config.connection_timeout_seconds);
    let connected = tokio::time::timeout(within, connect(settings)).await;
    connected.unwrap_or_else(|_| Err(format!("no connection within {} s", within.as_secs())))
}

async fn connect(settings: &Settings) -> Result<Link, String> {
    let port = settings.config.server_port;
    let stream = settings.route.connect(port, &settings.tls).await?;
    let mut link = Link::open(stream, &format!("ws://guest:{port}{MONITOR_PATH}")).await?;
    let offer = serde_json::to_string(&SUPPORTED).map_err(|error| error.to_string())?;
    link.send_text(offer).await?;
    let reply = link.receive_text().await?;
    link.version = match HandshakeReply::accept(reply.as_bytes(), SUPPORTED) {
        Ok(version) => version,
        Err(error) => {
            link.close_protocol(&error.to_string()).await;
            return Err(error.to_string());
        }
    };
    Ok(link)
}

async fn serve(
    settings: &Settings,
    link: &mut Link,
    asks: &mut mpsc::Receiver<Ask>,
    waiting: &Waiting,
    listener: &impl Listener,
) -> Ended {
    let answer_within = seconds(settings.config.response_timeout_seconds);
    let longest_silence = seconds(settings.config.max_health_check_sequential_failures_seconds);
    let mut health = tokio::time::interval_at(Instant::now() + HEALTH, HEALTH);
    health.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last_sign = Instant::now();
    let mut frames = 0_u32;
    loop {
        waiting.set(Some(link.unanswered()));
        let step = tokio::select! {
            ask = asks.recv() => match ask {
                None => return Ended::Dropped,
                Some((id, message)) => link.request(Some(id), message, answer_within).await,
            },
            happening = link.happening() => match happening {
                Happening::Frame(Err(why)) => Err(why),
                Happening::Frame(Ok(_)) if frames >= MOST_FRAMES => {
                    Err(format!("the monitor sends too many messages: {frames} within {} s", HEALTH.as_secs()))
                }
                Happening::Frame(Ok(text)) => {
                    frames += 1;
                    match text {
                        None => Ok(()),
                        Some(text) => match take(settings, link, &text, listener).await {
                            Ok(Sign::OfLife) => {
                                last_sign = Instant::now();
                                Ok(())
                            }
                            Ok(Sign::None) => Ok(()),
                            Err(why) => Err(why),
                        },
                    }
                }
                Happening::Overdue { id, request } => {
                    settings.metrics.monitor_asked(request.kind(), "[error: timeout]");
                    if let Some(id) = id {
                        let why = format!("no answer within {} s", answer_within.as_secs());
                        listener.notify(MonitorEvent::Reply { id, result: Err(why) }).await;
                    }
                    Ok(())
                }
            },
            _ = health.tick() => {
                frames = 0;
                if last_sign.elapsed() > longest_silence {
                    Err(format!("the monitor has served nothing for {} s", longest_silence.as_secs()))
                } else {
                    link.request(None, AgentMessage::HealthCheck, answer_within).await
                }
            }
        };
        if let Err(why) = step {
            return Ended::Failed(why);
        }
    }
}

/// Whether an invalid message of the monitor was meant to complain about one of ours.
fn is_complaint(text: &str) -> bool {
    let message: Option<serde_json::Value> = serde_json::from_str(text).ok();
    let kind = message.as_ref().and_then(|message| message.get("type")?.as_str());
    matches!(kind, Some("InvalidMessage" | "InternalError"))
}

/// Whether a message shows that the monitor works.
enum Sign {
    /// It has served a request, or has one itself.
    OfLife,
    /// It failed, or sent something that cannot be used: as often as it may, this does not keep the connection.
    None,
}

/// Handles a message of the monitor. An invalid one is answered and the connection stays.
async fn take(
    settings: &Settings,
    link: &mut Link,
    text: &str,
    listener: &impl Listener,
) -> Result<Sign, String> {
    let (number, message) = match MonitorMessage::decode(text.as_bytes()) {
        Ok(read) => read,
        Err(error) => return invalid(settings, link, text, listener, error).await,
    };
    if let MonitorMessage::UpscaleRequest { wants } = message {
        settings.metrics.monitor_asks("UpscaleRequest");
        listener.notify(MonitorEvent::Wants(wants)).await;
        return Ok(Sign::OfLife);
    }
    let Some((id, request)) = link.waiting(number) else {
        if message.is_error() {
            tracing::debug!(?message, "the monitor complains");
            return Ok(Sign::None);
        }
        link.complain(number, &format!("{} answers nothing that was asked", message.kind())).await?;
        return Ok(Sign::None);
    };
    if !message.answers(&request) {
        let why = format!("{} does not answer {}", message.kind(), request.kind());
        fail(settings, (id, &request), "[error: wrong kind of answer]", &why, listener).await;
        link.complain(number, &why).await?;
        return Ok(Sign::None);
    }
    let failed = message.is_error();
    if !failed {
        listener.notify(MonitorEvent::Alive).await;
    }
    let code = if failed { "[error: the monitor failed]" } else { "ok" };
    settings.metrics.monitor_asked(request.kind(), code);
    if let Some(id) = id {
        listener.notify(MonitorEvent::Reply { id, result: Ok(message) }).await;
    }
    Ok(if failed { Sign::None } else { Sign::OfLife })
}

/// A message that cannot be read: it is answered, and a request that it answers has failed.
async fn invalid(
    settings: &Settings,
    link: &mut Link,
    text: &str,
    listener: &impl Listener,
    error: MessageError,
) -> Result<Sign, String> {
    let Some(number) = error.id else { return Err(format!("a message without a number: {error}")) };
    if let Some((id, request)) = link.waiting(number) {
        fail(settings, (id, &request), "[error: invalid answer]", &error.reason, listener).await;
    }
    if is_complaint(text) {
        // Complaints about complaints would go to and fro without end.
        tracing::debug!(text, "the monitor complains in a way that cannot be read");
        return Ok(Sign::None);
    }
    link.complain(number, &error.reason).await?;
    Ok(Sign::None)
}

/// Reports that a request has failed.
async fn fail(
    settings: &Settings,
    (id, request): (Option<u64>, &AgentMessage),
    code: &str,
    why: &str,
    listener: &impl Listener,
) {
    settings.metrics.monitor_asked(request.kind(), code);
    if let Some(id) = id {
        listener.notify(MonitorEvent::Reply { id, result: Err(why.to_owned()) }).await;
    }
}
