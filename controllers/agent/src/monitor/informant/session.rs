//! A registration that the informant has confirmed.

use std::pin::Pin;
use std::time::Duration;

use http::Method;
use neonvm_core_vertical_scaling::agent::informant::{Change, Confirmed, Effect, End, Failure, Mode, Pause};
use neonvm_types::MoreResources;
use neonvm_types::informant_protocol::{AgentIdentificationMessage, DownscaleResult, Empty, informant_path};
use neonvm_types::monitor_protocol::{AgentMessage, MonitorMessage};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use super::callbacks::Incoming;
use super::{Attempt, code, reply, unanswered};
use crate::config::seconds;
use crate::monitor::{Ask, Listener, MonitorEvent, Peer};

/// Pause between two health checks.
const HEALTH: Duration = Duration::from_secs(5);
/// Requests that an informant may make between two health checks. An honest one makes a few; each costs the agent work.
const MOST_CALLS: u32 = 100;
/// After this time without the informant the agent registers again, which makes it the current one: it has the lease of its
/// node, and an informant never resumes an agent that it suspended.
const LONGEST_SUSPENSION: Duration = Duration::from_secs(60);

/// What came of a request of the agent.
enum Done {
    Health(Result<Empty, Failure>),
    Down { id: u64, answer: Result<DownscaleResult, Failure> },
    Up { id: u64, answer: Result<Empty, Failure> },
}

type Request = Pin<Box<dyn Future<Output = Done> + Send>>;

/// `/suspend` that is answered when what was begun before has ended.
struct Suspending {
    incoming: Incoming,
    message: AgentIdentificationMessage,
    finished: oneshot::Receiver<()>,
}

pub(super) struct Session<'a> {
    attempt: &'a mut Attempt,
    confirmed: Confirmed,
    pending: Option<Request>,
    suspending: Option<Suspending>,
    /// The last successful exchange, or since when this agent is suspended.
    since: Instant,
    /// Whether the informant has made this agent the current one at least once.
    resumed: bool,
    calls: u32,
}

impl<'a> Session<'a> {
    pub(super) fn new(attempt: &'a mut Attempt, confirmed: Confirmed) -> Self {
        Self {
            attempt,
            confirmed,
            pending: None,
            suspending: None,
            since: Instant::now(),
            resumed: confirmed.running,
            calls: 0,
        }
    }

    /// Until the registration ends; `None`: the VM is no longer ours.
    pub(super) async fn run(
        mut self,
        asks: &mut mpsc::Receiver<Ask>,
        listener: &impl Listener,
    ) -> Option<End> {
        if self.confirmed.running {
            listener.notify(self.connected()).await;
            self.wants(self.confirmed.wants, listener).await;
        } else {
            listener.notify(MonitorEvent::Suspended(None)).await;
        }
        let mut health = interval_at(Instant::now() + HEALTH, HEALTH);
        health.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if let Some(end) = self.attempt.registration.end() {
                return Some(end.clone());
            }
            let deadline = self.since + self.patience();
            tokio::select! {
                done = finished(&mut self.pending) => self.done(done, listener).await,
                ask = asks.recv(), if self.pending.is_none() => match ask {
                    None => return None,
                    Some(ask) => self.ask(ask, listener).await,
                },
                Some(incoming) = self.attempt.registered.calls.recv() => self.take(incoming, listener).await,
                () = settled(&mut self.suspending), if self.pending.is_none() => self.suspended(),
                _ = health.tick() => self.tick(),
                () = sleep_until(deadline) => self.overdue(),
            }
        }
    }

    fn connected(&self) -> MonitorEvent {
        let Confirmed { version, metrics_port, .. } = self.confirmed;
        MonitorEvent::Connected(Peer::Informant { version, metrics_port })
    }

    /// How long nothing may happen.
    fn patience(&self) -> Duration {
        let config = &self.attempt.config;
        match self.attempt.registration.mode() {
            Mode::Running => seconds(config.unhealthy_after_silence_duration_seconds),
            _ if self.resumed => LONGEST_SUSPENSION,
            _ => seconds(config.unhealthy_startup_grace_period_seconds),
        }
    }

    fn overdue(&mut self) {
        let (patience, registration) = (self.patience().as_secs(), &mut self.attempt.registration);
        let reason = match registration.mode() {
            Mode::Running => format!("the informant was silent for {patience} s"),
            _ => format!("the informant has not resumed this agent for {patience} s"),
        };
        registration.finish(reason, Pause::AtOnce);
    }

    async fn wants(&mut self, wants: Option<MoreResources>, listener: &impl Listener) {
        if wants.is_some() {
            listener.notify(MonitorEvent::Wants(None)).await;
        }
    }

    /// A request of the informant.
    async fn take(&mut self, incoming: Incoming, listener: &impl Listener) {
        self.calls += 1;
        if self.calls > MOST_CALLS {
            let reason = format!("the informant makes too many requests: {} within 5 s", self.calls);
            self.attempt.registration.finish(reason, Pause::Normal);
        }
        let (message, effect) = match self.attempt.registration.call(&incoming.call) {
            Err(refusal) => return reply(incoming, Err(refusal)),
            Ok(accepted) => accepted,
        };
        match effect {
            None => {}
            Some(Effect::Alive) => self.alive(listener).await,
            Some(Effect::Resumed) => {
                (self.since, self.resumed) = (Instant::now(), true);
                listener.notify(self.connected()).await;
            }
            Some(Effect::Suspended) => {
                self.since = Instant::now();
                let (done, finished) = oneshot::channel();
                listener.notify(MonitorEvent::Suspended(Some(done))).await;
                self.suspending = Some(Suspending { incoming, message, finished });
                return;
            }
            Some(Effect::Wants(more)) => {
                self.since = Instant::now();
                self.wants(Some(more), listener).await;
            }
        }
        reply(incoming, Ok(message));
    }

    /// Nothing that was begun before `/suspend` is under way any more.
    fn suspended(&mut self) {
        if let Some(Suspending { incoming, message, .. }) = self.suspending.take() {
            reply(incoming, Ok(message));
        }
    }

    async fn alive(&mut self, listener: &impl Listener) {
        self.since = Instant::now();
        listener.notify(MonitorEvent::Alive).await;
    }

    fn tick(&mut self) {
        self.calls = 0;
        // Another request is as good.
        if self.pending.is_some() {
            return;
        }
        if let Some(body) = self.attempt.registration.health_check() {
            let client = self.attempt.client.clone();
            let within = seconds(self.attempt.config.request_timeout_seconds);
            self.pending = Some(Box::pin(async move {
                Done::Health(client.call(Method::PUT, informant_path::HEALTH_CHECK, &body, within).await)
            }));
        }
    }

    /// A request of the core.
    async fn ask(&mut self, (id, message): Ask, listener: &impl Listener) {
        let (size, down) = match &message {
            AgentMessage::DownscaleRequest { target } => (target.to_resources(), true),
            AgentMessage::UpscaleNotification { granted } => (granted.to_resources(), false),
            _ => (None, false),
        };
        let size = size.ok_or_else(|| format!("{} is no change of size", message.kind()));
        match size.and_then(|size| self.attempt.registration.change(size)) {
            Ok(change) => self.pending = Some(self.send(id, change, down)),
            Err(why) => unanswered(listener, id, &why).await,
        }
    }

    fn send(&self, id: u64, change: Change, down: bool) -> Request {
        let client = self.attempt.client.clone();
        let within = seconds(self.attempt.config.downscale_timeout_seconds);
        Box::pin(async move {
            if down {
                let answer = client.call(Method::PUT, informant_path::DOWNSCALE, &change, within).await;
                Done::Down { id, answer }
            } else {
                let answer = client.call(Method::PUT, informant_path::UPSCALE, &change, within).await;
                Done::Up { id, answer }
            }
        })
    }

    async fn done(&mut self, done: Done, listener: &impl Listener) {
        self.pending = None;
        match done {
            Done::Health(answer) => {
                if self.outcome(informant_path::HEALTH_CHECK, answer).is_ok() {
                    self.alive(listener).await;
                }
            }
            Done::Down { id, answer } => {
                let answer = self.outcome(informant_path::DOWNSCALE, answer);
                let result = answer
                    .map(|DownscaleResult { ok, status }| MonitorMessage::DownscaleResult { ok, status });
                listener.notify(MonitorEvent::Reply { id, result }).await;
            }
            Done::Up { id, answer } => {
                let answer = self.outcome(informant_path::UPSCALE, answer);
                let result = answer.map(|Empty {}| MonitorMessage::UpscaleConfirmation);
                listener.notify(MonitorEvent::Reply { id, result }).await;
            }
        }
    }

    /// The answer, or why there is none; an answer with an error ends the registration.
    fn outcome<R>(&mut self, path: &str, answer: Result<R, Failure>) -> Result<R, String> {
        self.attempt.metrics.informant_asked(&code(&answer));
        match &answer {
            Ok(_) => self.since = Instant::now(),
            Err(failure) => self.attempt.registration.failed(path, failure),
        }
        answer.map_err(|failure| format!("{path}: {failure}"))
    }
}

/// The end of the request under way; never, if there is none.
async fn finished(pending: &mut Option<Request>) -> Done {
    match pending {
        Some(request) => request.as_mut().await,
        None => std::future::pending().await,
    }
}

/// Returns once the agent has ended what was begun before `/suspend`.
async fn settled(suspending: &mut Option<Suspending>) {
    match suspending {
        // Without a sender the VM's task is gone, and with it all it had begun.
        Some(Suspending { finished, .. }) => drop(finished.await),
        None => std::future::pending().await,
    }
}
