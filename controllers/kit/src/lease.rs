//! Leader election on a `Lease`: of several replicas one acts. Time is compared by the local clock only: a lease has
//! expired when it was not seen to change for its duration.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use tokio::time::{Instant, sleep, timeout};

/// Longest wait for one answer of the API server.
const REQUEST: Duration = Duration::from_secs(5);

/// Which lease, and how fast.
#[derive(Clone, Debug)]
pub struct Config {
    /// Namespace of the lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who we are; unique among the replicas.
    pub identity: String,
    /// How long others wait after the last sign of life of the leader.
    pub duration: Duration,
    /// How long the leader tries to renew before it gives up; shorter than `duration`.
    pub renew_deadline: Duration,
    /// Pause between two tries.
    pub retry: Duration,
    /// Written to the lease by whoever holds it: where it is reached, see [`crate::service`].
    pub annotations: BTreeMap<String, String>,
}

impl Config {
    /// With 15 s, 10 s and 2 s.
    #[must_use]
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
            annotations: BTreeMap::new(),
        }
    }
}

/// Does `work` while this replica leads, as [`Elector::lead`] does; without a lease it always leads.
pub async fn lead<F>(
    client: &Client,
    lease: Option<Config>,
    stop: impl Future<Output = ()>,
    mut work: impl FnMut() -> F,
) where
    F: Future<Output = ()>,
{
    match lease {
        Some(lease) => Elector::new(client.clone(), lease).lead(stop, work).await,
        None => tokio::select! {
            () = work() => {}
            () = stop => {}
        },
    }
}

/// A candidate, and after [`Elector::acquire`] the leader.
#[derive(Debug)]
pub struct Elector {
    api: Api<Lease>,
    config: Config,
    /// What was seen last, and when it was first seen.
    seen: Option<(LeaseSpec, Instant)>,
}

impl Elector {
    /// A candidate.
    #[must_use]
    pub fn new(client: Client, config: Config) -> Self {
        let api = Api::namespaced(client, &config.namespace);
        Self { api, config, seen: None }
    }

    /// Does `work` whenever this replica leads, until `stop` ends. When the lease is lost `work` is dropped at once, with all that it
    /// started; it begins anew with the next. At the end the lease is given back.
    pub async fn lead<F>(mut self, stop: impl Future<Output = ()>, mut work: impl FnMut() -> F)
    where
        F: Future<Output = ()>,
    {
        let leading = async {
            loop {
                self.acquire().await;
                tracing::info!(lease = %self.config.name, "this replica leads");
                tokio::select! {
                    () = work() => {}
                    () = self.hold() => {}
                }
            }
        };
        tokio::select! {
            () = leading => {}
            () = stop => {}
        }
        // A try to get it that was under way may have succeeded.
        self.release().await;
    }

    /// Waits until we are the leader. Errors of the server are waited out.
    pub async fn acquire(&mut self) {
        loop {
            match timeout(REQUEST, self.attempt()).await {
                Ok(Ok(true)) => return,
                Ok(Ok(false)) => {}
                Ok(Err(error)) => tracing::debug!(%error, "the lease cannot be read or written"),
                Err(_) => tracing::debug!("the API server does not answer about the lease"),
            }
            sleep(self.config.retry).await;
        }
    }

    /// Renews until that fails for too long or another has the lease; then whoever leads must stop at once.
    async fn hold(&mut self) {
        let mut renewed = Instant::now();
        while renewed.elapsed() < self.config.renew_deadline {
            sleep(self.config.retry).await;
            let started = Instant::now();
            let left = self.config.renew_deadline.saturating_sub(renewed.elapsed());
            match timeout(left.min(REQUEST), self.attempt()).await {
                // From when it was asked for, because the server may have written it then.
                Ok(Ok(true)) => renewed = started,
                Ok(Ok(false)) => {
                    tracing::warn!(lease = %self.config.name, "another replica has the lease");
                    return;
                }
                Ok(Err(error)) => tracing::warn!(%error, "the lease could not be renewed"),
                Err(_) => tracing::warn!("the API server does not answer about the lease"),
            }
        }
        tracing::error!(lease = %self.config.name, "the lease is lost");
    }

    /// Gives the lease back, so that another need not wait for its end.
    pub async fn release(&mut self) {
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

    /// Takes or renews the lease if it is ours, free or expired.
    async fn attempt(&mut self) -> Result<bool, Error> {
        let now = MicroTime(jiff::Timestamp::now());
        let Some(mut lease) = self.api.get_opt(&self.config.name).await? else {
            let annotations = Some(self.config.annotations.clone()).filter(|all| !all.is_empty());
            let metadata =
                ObjectMeta { name: Some(self.config.name.clone()), annotations, ..ObjectMeta::default() };
            let spec = Some(self.spec(&LeaseSpec::default(), now));
            return won(self.api.create(&PostParams::default(), &Lease { metadata, spec }).await);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.clone().unwrap_or_default();
        let since = match &self.seen {
            Some((seen, since)) if *seen == spec => *since,
            _ => {
                let now = Instant::now();
                self.seen = Some((spec.clone(), now));
                now
            }
        };
        let seconds = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(0);
        let expired = since.elapsed() > Duration::from_secs(seconds);
        if holder != self.config.identity && !holder.is_empty() && !expired {
            return Ok(false);
        }
        lease.spec = Some(self.spec(&spec, now));
        if !self.config.annotations.is_empty() {
            lease.metadata.annotations.get_or_insert_default().extend(self.config.annotations.clone());
        }
        // Guarded by the resource version that was read.
        won(self.api.replace(&self.config.name, &PostParams::default(), &lease).await)
    }

    fn spec(&self, before: &LeaseSpec, now: MicroTime) -> LeaseSpec {
        let ours = before.holder_identity.as_deref() == Some(self.config.identity.as_str());
        let changes = before.lease_transitions.unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.config.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(self.config.duration.as_secs()).unwrap_or(i32::MAX)),
            acquire_time: if ours { before.acquire_time.clone() } else { Some(now.clone()) },
            renew_time: Some(now),
            lease_transitions: Some(if ours { changes } else { changes.saturating_add(1) }),
            ..LeaseSpec::default()
        }
    }
}

/// A conflict means that another was faster.
fn won(result: Result<Lease, Error>) -> Result<bool, Error> {
    match result {
        Ok(_) => Ok(true),
        Err(Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}
