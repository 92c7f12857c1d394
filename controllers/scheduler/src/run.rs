//! From start to end: certificates, listeners, the lease, and what only its holder does.

use std::future::pending;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use kube::Client;
use neonvm_api::names::SCHEDULER_LEASE;
use neonvm_core_scheduling::permits::Event;
use neonvm_kit::certificate::{self, Certificate, CertificateFor};
use neonvm_kit::http;
use neonvm_kit::lease::{self, Elector, Times};
use neonvm_kit::service::{Endpoint, advertised};
use neonvm_kit::supervise::{TaskEnded, Tasks};
use tokio::net::TcpListener;

use crate::config::{Config, Mode};
use crate::serve::{Door, admit, handle, probe};
use crate::shared::Shared;
use crate::{bind, dump, watch, write};

/// Name of the task that watches nodes, pods and migrations.
const WATCHES: &str = "watches";

/// Why the scheduler cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server.
    #[error("cannot use the API server")]
    Client(#[from] neonvm_kit::client::Error),
    /// What the API server offers cannot be read.
    #[error("cannot read which resources the API server has")]
    Resources(#[source] Box<kube::Error>),
    /// An address cannot be listened on.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    /// Certificates.
    #[error("cannot have certificates")]
    Certificate(#[from] certificate::Error),
    /// TLS.
    #[error("cannot serve TLS")]
    Tls(#[from] neonvm_kit::ca::Error),
    /// Part of it ended.
    #[error(transparent)]
    Task(#[from] TaskEnded),
}

/// A scheduler that listens, and leads once [`Running::lead`] is awaited.
pub struct Running {
    shared: Arc<Shared>,
    certificate: Certificate,
    listeners: Vec<(TcpListener, Option<http::Tls>, Door)>,
    probes: Option<TcpListener>,
    endpoint: Endpoint,
    plain: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
}

/// A way to send requests without a connection: for measurements of the service, not of its network.
#[derive(Clone)]
pub struct Local(Arc<Shared>);

impl std::fmt::Debug for Local {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Local").finish_non_exhaustive()
    }
}

impl Local {
    /// Answers a request as over a connection of any peer.
    pub async fn call(&self, request: http::FullRequest) -> http::FullResponse {
        handle(Arc::clone(&self.0), request).await
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// Serves until `stop` ends.
///
/// # Errors
/// If there is no way to reach the API server, no certificate or no port, or a background task ends; the lease is given back
/// before. That the API server does not respond later is no error.
pub async fn run(config: Config, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let mut stop = std::pin::pin!(stop);
    tokio::select! {
        started = start(config) => Ok(started?.lead(stop).await?),
        () = stop.as_mut() => Ok(()),
    }
}

/// Prepares everything: certificates are there and ports are bound.
///
/// # Errors
/// As [`run`], as far as the start is concerned.
pub async fn start(config: Config) -> Result<Running, Error> {
    let client = neonvm_kit::client::connect(config.kubeconfig.as_deref()).await?;
    start_with(client, config).await
}

/// As [`start`], with a client at hand.
///
/// # Errors
/// As [`start`].
pub async fn start_with(client: Client, mut config: Config) -> Result<Running, Error> {
    if config.settings.pods_are_resized {
        config.settings.pods_are_resized = resizes_pods(&client).await?;
    }
    let certificate = Certificate::at_start(&client, &config.namespace, CertificateFor::scheduler()).await?;
    let mut server = certificate.server_config()?;
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    let tls = Arc::new(RwLock::new(Arc::new(server)));
    let main = listen(config.listen).await?;
    let own = local(&main, config.listen);
    let mut listeners = vec![(main, Some(tls), Door::Tls)];
    let mut plain = None;
    if let Some(address) = config.plain {
        let listener = listen(address).await?;
        if !address.ip().is_loopback() {
            tracing::warn!(%address, "every client that reaches this address may request sizes for VMs: plain HTTP has no authentication");
        }
        plain = Some(local(&listener, address));
        listeners.push((listener, None, Door::Plain { loopback: address.ip().is_loopback() }));
    }
    let mut metrics = None;
    if let Some(address) = config.metrics {
        let listener = listen(address).await?;
        metrics = Some(local(&listener, address));
        listeners.push((listener, None, Door::Metrics));
    }
    if let Some(address) = config.dump_state.filter(|_| !config.shares_dump()) {
        if !address.ip().is_loopback() {
            tracing::warn!(%address, "every client that reaches this address reads names and sizes of all VMs");
        }
        listeners.push((listen(address).await?, None, Door::Dump));
    }
    let probes = match config.probes {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    let endpoint = Endpoint { address: advertised(own, config.pod_ip), plain: false };
    let shared = Arc::new(Shared::new(config, client));
    let certificate = certificate.reported(&shared.metrics.certificates);
    Ok(Running { shared, certificate, listeners, probes, endpoint, plain, metrics })
}

/// Whether the cluster resizes pods in place, which the vm-controller then does with those of VMs.
async fn resizes_pods(client: &Client) -> Result<bool, Error> {
    let offered = client.list_core_api_resources("v1").await;
    let offered = offered.map_err(|error| Error::Resources(Box::new(error)))?;
    Ok(offered.resources.iter().any(|resource| resource.name == "pods/resize"))
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|error| Error::Listen(address, error))
}

fn local(listener: &TcpListener, wanted: SocketAddr) -> SocketAddr {
    listener.local_addr().unwrap_or(wanted)
}

impl Running {
    /// A handle for requests from within this process.
    #[must_use]
    pub fn local(&self) -> Local {
        Local(Arc::clone(&self.shared))
    }

    /// Where agents find it, over TLS.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// Where it speaks plain HTTP, if it does.
    #[must_use]
    pub fn plain(&self) -> Option<SocketAddr> {
        self.plain
    }

    /// Where its metrics are, if anywhere.
    #[must_use]
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Serves, and leads when it can, until `stop` ends.
    ///
    /// # Errors
    /// If a background task ends; the lease is given back before.
    pub async fn lead(self, stop: impl Future<Output = ()>) -> Result<(), TaskEnded> {
        let Self { shared, certificate, listeners, probes, endpoint, .. } = self;
        let mut servers = Tasks::new(&shared.health);
        servers.spawn("renewal of the certificate", certificate.keep());
        let budget = Arc::default();
        for (listener, tls, door) in listeners {
            let shared = Arc::clone(&shared);
            let answer = move |request: http::FullRequest| {
                let shared = Arc::clone(&shared);
                async move {
                    match door {
                        Door::Dump => dump::answer(&shared, request.body()),
                        _ => handle(shared, request).await,
                    }
                }
            };
            let admit = move |head: &_| admit(door, head);
            servers.spawn(door.name(), http::serve(listener, tls, door.gate(&budget), admit, answer));
        }
        if let Some(listener) = probes {
            let shared = Arc::clone(&shared);
            servers.spawn("probes", http::probes(listener, move |path| probe(&shared, path)));
        }
        let settings = &shared.config;
        let mut config = lease::Config::new(&settings.namespace, SCHEDULER_LEASE, &settings.identity);
        config.times = settings.lease;
        config.annotations = endpoint.annotations();
        config.beside.clone_from(&settings.beside);
        let mut elector = Elector::new(shared.client.clone(), config);
        let mut stop = std::pin::pin!(async {
            servers.until(stop).await;
            shared.stop();
        });
        loop {
            let acquired = tokio::select! {
                _ = elector.acquire() => true,
                // The standby keeps its cache warm.
                _ = shared.health.supervise(WATCHES, watch::follow(&shared)) => false,
                () = stop.as_mut() => false,
            };
            if !acquired {
                break;
            }
            // Renewed once more, so that the time since which the lease is held is certain.
            if renew(&shared, &mut elector, shared.config.lease.renew_deadline).await.is_none() {
                continue;
            }
            tracing::info!(identity = %shared.config.identity, "leads");
            take_over(&shared);
            let stopped = term(&shared, &mut elector, stop.as_mut()).await;
            tracing::info!(identity = %shared.config.identity, "does not lead any more");
            if stopped || shared.health.check().is_err() {
                break;
            }
            // If the lease is still ours: it was released because the kube-scheduler leads in another pod, and the
            // replica there need not wait.
            elector.release().await;
        }
        // An attempt to take it that was under way may have succeeded.
        elector.release().await;
        shared.health.check()
    }
}

/// Does what only the leader does, until the lease is lost, a part of it ends or `stop` does. Whether it was `stop`.
async fn term(shared: &Arc<Shared>, elector: &mut Elector, stop: Pin<&mut impl Future<Output = ()>>) -> bool {
    let health = &shared.health;
    let working = async {
        tokio::select! {
            _ = health.supervise(WATCHES, watch::follow(shared)) => {}
            _ = health.supervise("writes", write::keep_writing(shared)) => {}
            _ = health.supervise("placement of pods", placing(shared)) => {}
        }
    };
    let mut working = std::pin::pin!(working);
    let (has_ended, stopped) = tokio::select! {
        () = hold(shared, elector) => (false, false),
        () = working.as_mut() => (true, false),
        () = stop => (false, true),
    };
    {
        // With the lock on the state held: no permit is given after this.
        let _state = shared.state();
        shared.lead(false);
    }
    // Bindings that are on their way end, one way or the other, before another looks.
    tokio::select! {
        _ = shared.binding.write() => {}
        () = working.as_mut(), if !has_ended => {}
        () = tokio::time::sleep(shared.config.request_timeout) => {}
    }
    stopped
}

/// Renews the lease once, within a time. Since when it is ours for certain; none: it is lost.
async fn renew(shared: &Shared, elector: &mut Elector, within: Duration) -> Option<Duration> {
    match elector.renew(within).await {
        Ok(sent) => {
            let since = shared.now().saturating_sub(sent.elapsed());
            shared.renewed(since);
            Some(since)
        }
        Err(lost) => {
            tracing::error!(%lost, "the lease is lost");
            None
        }
    }
}

/// Renews the lease until another replica holds it or the renewal fails for too long. Leadership ends before the lease can
/// have passed to another replica and back.
async fn hold(shared: &Shared, elector: &mut Elector) {
    let Times { duration, renew_deadline: deadline, retry } = shared.config.lease;
    let mut last = shared.now();
    loop {
        tokio::time::sleep(retry).await;
        let left = deadline.min(duration).saturating_sub(shared.now().saturating_sub(last));
        let Some(since) = renew(shared, elector, left).await else { return };
        last = since;
    }
}

/// What agents hold is unknown, and everything is listed again before any permit: the cache may lack what the previous leader
/// bound last.
fn take_over(shared: &Shared) {
    shared.step(Event::TakenOver);
    shared.lead(true);
}

async fn placing(shared: &Shared) {
    match shared.config.mode {
        Mode::Bind => bind::keep_placing(shared).await,
        Mode::Extender => pending().await,
    }
}
