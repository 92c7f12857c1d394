//! The registration with the informant in one guest: the protocol of guests up to v0.17 of upstream, HTTP both ways.
//!
//! To the rest of the agent it is a connection to a monitor: the same requests, the same events. One task for each
//! registration takes in the informant's requests and sends the agent's, one at a time.

pub(crate) mod callbacks;
mod client;
mod session;

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use neonvm_core_vertical_scaling::agent::informant::{Confirmed, End, Failure, Pause, Refusal, Registration};
use neonvm_types::informant_protocol::{
    AgentId, AgentIdentificationMessage, InformantDesc, UnregisterAgent, informant_path,
};
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::config::{Informant, seconds};
use crate::guest::Route;
use crate::metrics::Metrics;
use crate::monitor::{Ask, Listener, MonitorEvent};
use callbacks::{Callbacks, Incoming, Registered};
use client::Client;
use session::Session;

/// What an informant's protocol needs besides the way to the guest.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) config: Arc<Informant>,
    pub(crate) callbacks: Arc<Callbacks>,
}

#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) route: Route,
    pub(crate) tls: Arc<rustls::ClientConfig>,
    pub(crate) metrics: Arc<Metrics>,
}

#[derive(Debug)]
pub(crate) enum Ended {
    /// The VM is no longer ours.
    Dropped,
    /// For this reason; the next attempt comes after the pause.
    Failed { why: String, confirmed: bool, pause: Duration },
}

fn random_id() -> Option<AgentId> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).ok()?;
    let bits = u128::from_be_bytes(bytes);
    // Version 4, variant 1 (RFC 9562).
    Some(AgentId::new(bits & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62))
}

/// One registration, from its beginning to its end.
pub(crate) async fn live(
    settings: &Settings,
    way: Way,
    asks: &mut mpsc::Receiver<Ask>,
    listener: &impl Listener,
) -> Ended {
    let started = Instant::now();
    let config = &settings.config;
    let Some((id, path)) = random_id().zip(random_id()) else {
        let pause = seconds(config.retry_server_normal_wait_seconds);
        let why = "no random numbers for an identity".to_owned();
        return Ended::Failed { why, confirmed: false, pause };
    };
    let port = config.server_port;
    let metrics = Arc::clone(&way.metrics);
    let mut attempt = Attempt {
        registered: settings.callbacks.register(path, way.route.address()),
        registration: Registration::new(id),
        client: Client { route: way.route, port, tls: way.tls },
        config: Arc::clone(config),
        metrics,
        contacted: false,
    };
    let confirmed = attempt.register(asks, listener).await;
    let (end, confirmed) = match confirmed {
        None => return attempt.leave(None, false, started).await,
        Some(Err(end)) => (Some(end), false),
        Some(Ok(confirmed)) => (Session::new(&mut attempt, confirmed).run(asks, listener).await, true),
    };
    attempt.leave(end, confirmed, started).await
}

/// A registration and all it needs.
struct Attempt {
    registered: Registered,
    registration: Registration,
    client: Client,
    config: Arc<Informant>,
    metrics: Arc<Metrics>,
    /// Whether the informant may know this registration.
    contacted: bool,
}

impl Attempt {
    /// Registers. The informant's requests are answered meanwhile: it requests `/id` first. `None`: the VM is not ours.
    async fn register(
        &mut self,
        asks: &mut mpsc::Receiver<Ask>,
        listener: &impl Listener,
    ) -> Option<Result<Confirmed, End>> {
        let description = self.registration.describe(&self.registered.address());
        let within = seconds(self.config.register_timeout_seconds);
        let client = self.client.clone();
        let call = client.call::<InformantDesc>(Method::POST, informant_path::REGISTER, &description, within);
        tokio::pin!(call);
        let answer = loop {
            tokio::select! {
                answer = &mut call => break answer,
                Some(incoming) = self.registered.calls.recv() => {
                    self.contacted = true;
                    let answer = self.registration.call(&incoming.call);
                    reply(incoming, answer.map(|(message, _)| message));
                }
                ask = asks.recv() => match ask {
                    None => return None,
                    Some((id, _)) => unanswered(listener, id, "the informant has not answered /register").await,
                },
            }
        };
        self.contacted |= !matches!(answer, Err(Failure::Transport(_)));
        self.metrics.informant_asked(&code(&answer));
        Some(self.registration.registered(answer))
    }

    /// Leaves the informant, and makes room for the next attempt.
    async fn leave(mut self, end: Option<End>, confirmed: bool, started: Instant) -> Ended {
        // Whatever it still sends is about a registration that is gone.
        self.registered.calls.close();
        let config = Arc::clone(&self.config);
        if self.contacted {
            let unregister = async move {
                let description = self.registration.describe(&self.registered.address());
                let within = seconds(self.config.register_timeout_seconds);
                let path = informant_path::UNREGISTER;
                let answer =
                    self.client.call::<UnregisterAgent>(Method::DELETE, path, &description, within).await;
                self.metrics.informant_asked(&code(&answer));
                if let Err(error) = answer {
                    tracing::debug!(%error, "an informant was not left in order");
                }
            };
            tokio::spawn(unregister);
        }
        let Some(End { reason, pause }) = end else { return Ended::Dropped };
        let pause = match pause {
            Pause::AtOnce => Duration::ZERO,
            Pause::Normal => seconds(config.retry_server_normal_wait_seconds),
            Pause::Register => seconds(config.register_retry_seconds),
        };
        let least = seconds(config.retry_server_min_wait_seconds).saturating_sub(started.elapsed());
        Ended::Failed { why: reason, confirmed, pause: pause.max(least) }
    }
}

/// Answers a request of the informant, if it still waits.
fn reply(incoming: Incoming, answer: Result<AgentIdentificationMessage, Refusal>) {
    let _ = incoming.answer.send(answer);
}

/// A request of the core that was not sent, or whose answer did not arrive.
async fn unanswered(listener: &impl Listener, id: u64, why: &str) {
    listener.notify(MonitorEvent::Reply { id, result: Err(why.to_owned()) }).await;
}

/// How a request ended, for the metrics.
fn code<R>(answer: &Result<R, Failure>) -> String {
    match answer {
        Ok(_) => "200".into(),
        Err(Failure::Status(status, _)) => status.to_string(),
        Err(Failure::Invalid(_)) => "[error: invalid answer]".into(),
        Err(Failure::Transport(_)) => "[error: no answer]".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_random_uuids() {
        let (one, other) = (random_id().unwrap(), random_id().unwrap());
        assert_ne!(one, other);
        let text = one.to_string();
        assert_eq!(text.chars().nth(14), Some('4'), "{text}");
        assert!(matches!(text.chars().nth(19), Some('8' | '9' | 'a' | 'b')), "{text}");
    }
}
