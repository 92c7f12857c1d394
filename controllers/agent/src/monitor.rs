//! The connection to the monitor in one guest: made, kept, checked and made again for as long as the VM is ours.

mod link;

use std::sync::Arc;
use std::time::Duration;

use neonvm_kit::supervise::catch;
use neonvm_types::monitor_protocol::{
    AgentMessage, HandshakeReply, MONITOR_PATH, MonitorMessage, SUPPORTED, Wants,
};
use neonvm_types::version::MonitorProtoVersion;
use rustls::ClientConfig;
use tokio::sync::mpsc;
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

/// What happens on the connection.
#[derive(Debug)]
pub(crate) enum MonitorEvent {
    /// There is one, with this version.
    Connected(MonitorProtoVersion),
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
    pub(crate) metrics: Arc<Metrics>,
}

/// A way to send requests. Dropping it ends the connection.
#[derive(Debug)]
pub(crate) struct Handle {
    asks: mpsc::Sender<Ask>,
}

impl Handle {
    /// Sends a request; `false` if it cannot be taken, which counts as failed.
    pub(crate) fn ask(&self, ask: Ask) -> bool {
        self.asks.try_send(ask).is_ok()
    }
}

/// Receives the events of a connection. A busy listener delays the connection, so that nothing is lost and no further messages
/// of the monitor are read.
pub(crate) trait Listener: Send + Sync + 'static {
    /// Takes an event.
    fn notify(&self, event: MonitorEvent) -> impl Future<Output = ()> + Send;
}

/// Starts the connection; its events go to `listener`.
pub(crate) fn start(settings: Settings, listener: impl Listener) -> Handle {
    let (asks, waiting) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        let least = seconds(settings.config.connection_retry_min_wait_seconds);
        let mut waiting = waiting;
        while let Err(panic) = catch(keep(&settings, &mut waiting, &listener)).await {
            tracing::error!(panic, "the connection to a monitor panicked; it is made again");
            listener.notify(MonitorEvent::Lost(format!("the connection panicked: {panic}"))).await;
            tokio::time::sleep(least).await;
        }
    });
    Handle { asks }
}

async fn keep(settings: &Settings, asks: &mut mpsc::Receiver<Ask>, listener: &impl Listener) {
    let least = seconds(settings.config.connection_retry_min_wait_seconds);
    loop {
        let started = Instant::now();
        let connected = tokio::select! {
            connected = connect_in_time(settings) => connected,
            () = refuse(asks, listener) => return,
        };
        let why = match connected {
            Err(why) => why,
            Ok(link) => match live(settings, link, asks, listener).await {
                Ended::Dropped => return,
                Ended::Failed(why) => why,
            },
        };
        listener.notify(MonitorEvent::Lost(why)).await;
        // A connection that lived is made again at once, one that did not after a pause.
        let pause = least.saturating_sub(started.elapsed());
        tokio::select! {
            () = refuse(asks, listener) => return,
            () = tokio::time::sleep(pause) => {}
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
}

/// One connection, from its beginning to its end.
async fn live(
    settings: &Settings,
    mut link: Link,
    asks: &mut mpsc::Receiver<Ask>,
    listener: &impl Listener,
) -> Ended {
    listener.notify(MonitorEvent::Connected(link.version)).await;
    let ended = serve(settings, &mut link, asks, listener).await;
    match &ended {
        Ended::Dropped => link.close(None).await,
        Ended::Failed(why) => link.close(Some(why)).await,
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
    listener: &impl Listener,
) -> Ended {
    let answer_within = seconds(settings.config.response_timeout_seconds);
    let longest_silence = seconds(settings.config.max_health_check_sequential_failures_seconds);
    let mut health = tokio::time::interval_at(Instant::now() + HEALTH, HEALTH);
    health.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last_message = Instant::now();
    let mut frames = 0_u32;
    loop {
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
                        Some(text) => {
                            last_message = Instant::now();
                            take(settings, link, &text, listener).await
                        }
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
                if last_message.elapsed() > longest_silence {
                    Err(format!("the monitor was silent for {} s", longest_silence.as_secs()))
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

/// Handles a message of the monitor. An invalid one is answered and the connection stays.
async fn take(
    settings: &Settings,
    link: &mut Link,
    text: &str,
    listener: &impl Listener,
) -> Result<(), String> {
    let (number, message) = match MonitorMessage::decode(text.as_bytes()) {
        Ok(read) => read,
        Err(error) => {
            let Some(id) = error.id else { return Err(format!("a message without a number: {error}")) };
            if is_complaint(text) {
                // Complaints about complaints would go to and fro without end.
                tracing::debug!(text, "the monitor complains in a way that cannot be read");
                return Ok(());
            }
            return link.complain(id, &error.reason).await;
        }
    };
    if let MonitorMessage::UpscaleRequest { wants } = message {
        settings.metrics.monitor_asks("UpscaleRequest");
        listener.notify(MonitorEvent::Wants(wants)).await;
        return Ok(());
    }
    let Some((id, request)) = link.waiting(number) else {
        if matches!(message, MonitorMessage::InvalidMessage { .. } | MonitorMessage::InternalError { .. }) {
            tracing::debug!(?message, "the monitor complains");
            return Ok(());
        }
        return link.complain(number, &format!("{} answers nothing that was asked", message.kind())).await;
    };
    listener.notify(MonitorEvent::Alive).await;
    let answers = message.answers(&request);
    let complaint = (!answers).then(|| format!("{} does not answer {}", message.kind(), request.kind()));
    let code = if complaint.is_none() { "ok" } else { "[error: wrong kind of answer]" };
    settings.metrics.monitor_asked(request.kind(), code);
    if let Some(id) = id {
        let result = match complaint.clone() {
            Some(why) => Err(why),
            None => Ok(message),
        };
        listener.notify(MonitorEvent::Reply { id, result }).await;
    }
    match complaint {
        Some(why) => link.complain(number, &why).await,
        None => Ok(()),
    }
}
