//! Leader election on a `Lease`: of several replicas one acts. Time is compared by the local clock only: a lease has
//! expired when it was not seen to change for its duration.

mod times;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use tokio::time::{Instant, sleep, timeout};

use crate::backoff::Backoff;

pub use times::{Invalid, Times};

/// Longest wait for one response of the API server.
const REQUEST: Duration = Duration::from_secs(5);
/// Pause before a lease is read again that another client wrote to between our read and our write.
const CONFLICT: Duration = Duration::from_millis(100);
/// First and longest pause before work that has ended is started again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));
/// Work that ran for this long did not end at once: the pauses begin again with the first.
const SETTLED: Duration = Duration::from_secs(60);

/// Which lease, and how fast.
#[derive(Clone, Debug)]
pub struct Config {
    pub namespace: String,
    pub name: String,
    /// Identity of this replica; unique among the replicas.
    pub identity: String,
    /// Durations of the lease and its renewals.
    pub times: Times,
    /// Written to the lease by its holder: where it is reached, see [`crate::service`].
    pub annotations: BTreeMap<String, String>,
    /// Another program that has to lead in the same pod.
    pub beside: Option<Beside>,
}

/// Another program, with a separate lease in the same namespace, that is of use only where this one leads. Where it
/// leads decides: as long as a replica of it in another pod holds its lease, this one does not lead. If none of them
/// does, this one may lead nevertheless: what it does for others than that program does not wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    /// Name of the other lease.
    pub name: String,
    /// What the identity of its holder begins with if that is in our pod.
    pub holder: String,
}

impl Config {
    /// With the usual times.
    #[must_use]
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            times: Times::default(),
            annotations: BTreeMap::new(),
            beside: None,
        }
    }
}

/// Does `work` while this replica leads, as [`Elector::lead`] does; without a lease it always leads.
///
/// # Errors
/// If the work fails.
pub async fn lead<F, E>(
    client: &Client,
    lease: Option<Config>,
    stop: impl Future<Output = ()>,
    mut work: impl FnMut() -> F,
) -> Result<(), E>
where
    F: Future<Output = Result<(), E>>,
{
    let Some(lease) = lease else {
        let working = async {
            let mut restarts = Restarts::new();
            loop {
                let started = Instant::now();
                work().await?;
                sleep(restarts.pause(started)).await;
            }
        };
        return tokio::select! {
            ended = working => ended,
            () = stop => Ok(()),
        };
    };
    Elector::new(client.clone(), lease).lead(stop, work).await
}

/// Pauses before work that has ended is started again.
struct Restarts(Backoff);

impl Restarts {
    fn new() -> Self {
        Self(Backoff::new(PAUSES.0, PAUSES.1))
    }

    /// The pause after work that was started at `started`.
    fn pause(&mut self, started: Instant) -> Duration {
        if started.elapsed() >= SETTLED {
            self.0.reset();
        }
        let pause = self.0.pause();
        tracing::warn!(?pause, "the work of the leader ended; it is started again after a pause");
        pause
    }
}

/// Why this replica does not hold the lease any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// Another replica holds it.
    #[error("{0} holds the lease")]
    Holder(String),
    /// The program beside it leads in another pod.
    #[error("{0} leads, which is in another pod")]
    Beside(String),
    /// It could not be renewed in time.
    #[error("the lease could not be renewed for {} s", .0.as_secs_f32())]
    Late(Duration),
}

/// What came of one attempt to take or renew the lease.
enum Attempt {
    Held,
    /// Another replica holds it, and it has not expired.
    Other(String),
    /// The program beside us leads in another pod.
    Beside(String),
    /// Another client wrote to the lease between our read and our write; its holder is unknown.
    Conflict,
    /// The server refused or did not respond.
    Failed,
}

/// A candidate, and after [`Elector::acquire`] the leader.
#[derive(Debug)]
pub struct Elector {
    api: Api<Lease>,
    config: Config,
    own: ObservedLease,
    beside: ObservedLease,
    /// The lease as this replica wrote it last; `None` if it does not hold it, or another client may have written since.
    written: Option<Lease>,
}

/// What was read last of a lease, and when it was first read.
#[derive(Debug, Default)]
struct ObservedLease(Option<(LeaseSpec, Instant)>);

impl ObservedLease {
    /// The holder of a lease that was read now; none if it has expired.
    fn holder(&mut self, spec: &LeaseSpec) -> Option<String> {
        let since = match &self.0 {
            Some((seen, since)) if seen == spec => *since,
            _ => {
                let now = Instant::now();
                self.0 = Some((spec.clone(), now));
                now
            }
        };
        let seconds = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(0);
        let expired = since.elapsed() > Duration::from_secs(seconds);
        spec.holder_identity.clone().filter(|holder| !holder.is_empty() && !expired)
    }
}

impl Elector {
    /// A candidate that does not hold the lease yet.
    #[must_use]
    pub fn new(client: Client, config: Config) -> Self {
        let api = Api::namespaced(client, &config.namespace);
        Self { api, config, own: ObservedLease::default(), beside: ObservedLease::default(), written: None }
    }

    /// Does `work` whenever this replica leads, until `stop` ends or the work fails. When the lease is lost `work` is dropped at
    /// once, with all that it started; it starts again when the lease is held again. Work that returns without an error is
    /// started again with backoff; in the meantime another replica may lead. At the end the lease is given back.
    ///
    /// # Errors
    /// If the work fails.
    pub async fn lead<F, E>(
        mut self,
        stop: impl Future<Output = ()>,
        mut work: impl FnMut() -> F,
    ) -> Result<(), E>
    where
        F: Future<Output = Result<(), E>>,
    {
        let leading = async {
            let mut restarts = Restarts::new();
            loop {
                let renewed = self.acquire().await;
                tracing::info!(lease = %self.config.name, "this replica leads");
                let started = Instant::now();
                tokio::select! {
                    ended = work() => ended?,
                    lost = self.hold(renewed) => {
                        if matches!(lost, Lost::Beside(_)) {
                            self.release().await;
                        }
                        continue;
                    }
                }
                self.release().await;
                sleep(restarts.pause(started)).await;
            }
        };
        let ended = tokio::select! {
            ended = leading => ended,
            () = stop => Ok(()),
        };
        // A try to get it that was under way may have succeeded.
        self.release().await;
        ended
    }

    /// Waits until this replica holds the lease; the time at which the request that took it was sent. Errors of the server are
    /// waited out.
    pub async fn acquire(&mut self) -> Instant {
        loop {
            let started = Instant::now();
            let pause = match self.attempt_within(REQUEST).await {
                Attempt::Held => return started,
                Attempt::Conflict => CONFLICT,
                Attempt::Other(_) | Attempt::Beside(_) | Attempt::Failed => self.config.times.retry,
            };
            sleep(pause).await;
        }
    }

    /// Renews the lease; the time at which the request that did it was sent, because the server may have written it then. Errors
    /// of the server are retried. So are conflicts: a write of another client does not mean that another replica holds it.
    ///
    /// # Errors
    /// If another replica holds the lease, the program beside this one leads in another pod, or `within` has passed.
    pub async fn renew(&mut self, within: Duration) -> Result<Instant, Lost> {
        let deadline = Instant::now() + within;
        loop {
            let started = Instant::now();
            let left = deadline.saturating_duration_since(started);
            if left.is_zero() {
                return Err(Lost::Late(within));
            }
            let pause = match self.attempt_within(left.min(REQUEST)).await {
                Attempt::Held => return Ok(started),
                Attempt::Other(holder) => return Err(Lost::Holder(holder)),
                Attempt::Beside(holder) => return Err(Lost::Beside(holder)),
                Attempt::Conflict => CONFLICT,
                Attempt::Failed => self.config.times.retry,
            };
            sleep(pause.min(deadline.saturating_duration_since(Instant::now()))).await;
        }
    }

    /// Renews until that fails for too long or another holds the lease; then the leader must stop at once.
    async fn hold(&mut self, mut renewed: Instant) -> Lost {
        loop {
            sleep(self.config.times.retry).await;
            let left = self.config.times.renew_deadline.saturating_sub(renewed.elapsed());
            match self.renew(left).await {
                Ok(at) => renewed = at,
                Err(lost) => {
                    tracing::error!(lease = %self.config.name, %lost, "the lease is lost");
                    return lost;
                }
            }
        }
    }

    /// Gives the lease back, so that another need not wait for its end.
    pub async fn release(&mut self) {
        self.written = None;
        let given_back = async {
            let Some(mut lease) = self.api.get_opt(&self.config.name).await? else { return Ok(()) };
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() == Some(self.config.identity.as_str()) {
                spec.holder_identity = Some(String::new());
                spec.lease_duration_seconds = Some(1);
                self.api.replace(&self.config.name, &PostParams::default(), &lease).await?;
            }
            Ok::<(), Error>(())
        };
        match timeout(REQUEST, given_back).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the lease could not be given back"),
            Err(_) => tracing::debug!("the lease could not be given back in time"),
        }
    }

    async fn attempt_within(&mut self, within: Duration) -> Attempt {
        match timeout(within, self.attempt()).await {
            Ok(Ok(attempt)) => attempt,
            Ok(Err(error)) => {
                tracing::warn!(lease = %self.config.name, %error, "the lease cannot be read or written");
                Attempt::Failed
            }
            Err(_) => {
                tracing::warn!(lease = %self.config.name, "the API server does not respond about the lease");
                Attempt::Failed
            }
        }
    }

    /// Takes or renews the lease if it is ours, free or expired.
    async fn attempt(&mut self) -> Result<Attempt, Error> {
        if let Some(lease) = self.written.take().filter(|_| self.config.beside.is_none()) {
            return self.write_again(lease).await;
        }
        // Both are read each time: that they expire is noticed at the same time.
        let found = self.api.get_opt(&self.config.name).await?;
        let spec = found.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let holder = self.own.holder(&spec).filter(|holder| *holder != self.config.identity);
        if let Some(holder) = self.led_elsewhere().await? {
            return Ok(Attempt::Beside(holder));
        }
        if let Some(holder) = holder {
            return Ok(Attempt::Other(holder));
        }
        let now = MicroTime(jiff::Timestamp::now());
        let Some(mut lease) = found else {
            let annotations = Some(self.config.annotations.clone()).filter(|all| !all.is_empty());
            let metadata =
                ObjectMeta { name: Some(self.config.name.clone()), annotations, ..ObjectMeta::default() };
            let spec = Some(self.spec(&LeaseSpec::default(), now));
            let made = self.api.create(&PostParams::default(), &Lease { metadata, spec }).await;
            return self.won(made);
        };
        lease.spec = Some(self.spec(&spec, now));
        if !self.config.annotations.is_empty() {
            lease.metadata.annotations.get_or_insert_default().extend(self.config.annotations.clone());
        }
        // Guarded by the resource version that was read.
        let written = self.api.replace(&self.config.name, &PostParams::default(), &lease).await;
        self.won(written)
    }

    /// Renews a lease that this replica holds without reading it before: a write of another client in between is a conflict.
    async fn write_again(&mut self, mut lease: Lease) -> Result<Attempt, Error> {
        let spec = lease.spec.take().unwrap_or_default();
        lease.spec = Some(self.spec(&spec, MicroTime(jiff::Timestamp::now())));
        match self.api.replace(&self.config.name, &PostParams::default(), &lease).await {
            // It was deleted; it is read and made again.
            Err(Error::Api(status)) if status.code == 404 => Ok(Attempt::Conflict),
            written => self.won(written),
        }
    }

    /// The leader of the program beside this one, if that is in another pod.
    async fn led_elsewhere(&mut self) -> Result<Option<String>, Error> {
        let Some(beside) = &self.config.beside else { return Ok(None) };
        let found = self.api.get_opt(&beside.name).await?;
        let spec = found.and_then(|lease| lease.spec).unwrap_or_default();
        Ok(self.beside.holder(&spec).filter(|holder| !holder.starts_with(&beside.holder)))
    }

    fn won(&mut self, result: Result<Lease, Error>) -> Result<Attempt, Error> {
        match result {
            Ok(lease) => {
                self.written = Some(lease);
                Ok(Attempt::Held)
            }
            Err(Error::Api(status)) if status.code == 409 => Ok(Attempt::Conflict),
            Err(error) => Err(error),
        }
    }

    fn spec(&self, before: &LeaseSpec, now: MicroTime) -> LeaseSpec {
        let ours = before.holder_identity.as_deref() == Some(self.config.identity.as_str());
        let changes = before.lease_transitions.unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.config.identity.clone()),
            lease_duration_seconds: Some(
                i32::try_from(self.config.times.duration.as_secs()).unwrap_or(i32::MAX),
            ),
            acquire_time: if ours { before.acquire_time.clone() } else { Some(now.clone()) },
            renew_time: Some(now),
            lease_transitions: Some(if ours { changes } else { changes.saturating_add(1) }),
            ..LeaseSpec::default()
        }
    }
}

#[cfg(test)]
mod tests;
