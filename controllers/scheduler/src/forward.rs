//! For agents of upstream's releases: they look for a pod with the label `name=<scheduler>` in `kube-system`, and send plain HTTP
//! to its port 10299. What runs in that pod decides nothing: it forwards requests to the scheduler that leads, over mutual TLS.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::request::Parts;
use http::{Method, StatusCode};
use kube::Client;
use neonvm_api::names::SCHEDULER_LEASE;
use neonvm_kit::authority::SCHEDULER_NAME;
use neonvm_kit::call::Callers;
use neonvm_kit::certificate::{Certificate, CertificateFor};
use neonvm_kit::http::{self as server, BUSY, FullRequest, FullResponse, Gate, SMALL_BODY, text};
use neonvm_kit::service::{Endpoint, follow};
use neonvm_kit::supervise::{Health, Tasks};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::run::Error;

const PLAIN: &str = "text/plain";
/// Connections to the scheduler that are kept.
const MOST_IDLE: usize = 16;

/// How requests are forwarded.
#[derive(Clone, Debug)]
pub struct Forward {
    /// How to reach the API server; none: as the service account of the pod.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the scheduler's lease and of the internal authority.
    pub namespace: String,
    /// Where upstream's agents send their requests, over plain HTTP and without authentication.
    pub listen: SocketAddr,
    /// Where probes are answered; none: nowhere.
    pub probes: Option<SocketAddr>,
    /// Longest time for an answer of the scheduler. Upstream's agents wait for 10 s.
    pub within: Duration,
}

/// Where the scheduler is, and connections to it.
struct Forwarder {
    callers: Callers,
    within: Duration,
    scheduler: Mutex<Option<Endpoint>>,
    /// The scheduler gave no answer, or another replica leads.
    doubt: Notify,
}

/// Forwards until `stop` ends.
///
/// # Errors
/// If there is no way to reach the API server, no certificate or no port, or a background task ends.
pub async fn forward(config: Forward, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let client = neonvm_kit::client::connect(config.kubeconfig.as_deref()).await?;
    forward_with(client, config, stop).await
}

/// As [`forward`], with a client at hand.
///
/// # Errors
/// As [`forward`].
pub async fn forward_with(
    client: Client,
    config: Forward,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let wanted = CertificateFor::upstream_agents();
    let certificate = Certificate::at_start(&client, &config.namespace, wanted).await?;
    let forwarder = Arc::new(Forwarder {
        callers: Callers::new(Arc::new(certificate.client_config()?), SCHEDULER_NAME, MOST_IDLE),
        within: config.within,
        scheduler: Mutex::default(),
        doubt: Notify::new(),
    });
    tracing::warn!(address = %config.listen, "every client that reaches this address may request sizes for VMs: plain HTTP has no authentication");
    let listener = listen(config.listen).await?;
    let health = Health::default();
    let mut tasks = Tasks::new(&health);
    tasks.spawn("renewal of the certificate", certificate.keep());
    let (following, namespace) = (Arc::clone(&forwarder), config.namespace);
    tasks.spawn("watch of the scheduler's lease", async move {
        let lease = (namespace.as_str(), SCHEDULER_LEASE);
        follow(&client, lease, &following.doubt, |found| following.learn(found)).await;
    });
    let answering = Arc::clone(&forwarder);
    let answer = move |request: FullRequest| {
        let forwarder = Arc::clone(&answering);
        async move { forwarder.answer(request).await }
    };
    let gate = Gate::open(BUSY, &Arc::default());
    tasks.spawn("server", server::serve(listener, None, gate, |_: &Parts| Ok(SMALL_BODY), answer));
    if let Some(address) = config.probes {
        let (forwarder, health) = (Arc::clone(&forwarder), health.clone());
        let answer = move |path: &str| match path {
            "/readyz" if forwarder.known().is_none() => unavailable("no scheduler leads"),
            _ => health.answer(),
        };
        tasks.spawn("probes", server::probes(listen(address).await?, answer));
    }
    tasks.until(stop).await;
    tasks.shutdown().await;
    Ok(health.check()?)
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|error| Error::Listen(address, error))
}

fn unavailable(why: &str) -> FullResponse {
    text(StatusCode::SERVICE_UNAVAILABLE, PLAIN, format!("{why}\n"))
}

impl Forwarder {
    fn learn(&self, found: Option<Endpoint>) {
        let mut scheduler = self.scheduler.lock().unwrap_or_else(PoisonError::into_inner);
        if *scheduler != found {
            tracing::info!(scheduler = ?found.map(|endpoint| endpoint.to_string()), "the scheduler is here");
            *scheduler = found;
        }
    }

    fn known(&self) -> Option<Endpoint> {
        *self.scheduler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The scheduler's answer, as it is; 503 if there is none.
    async fn answer(&self, request: FullRequest) -> FullResponse {
        // As upstream's scheduler; only these are meant for agents.
        if request.method() != Method::POST {
            return text(StatusCode::BAD_REQUEST, PLAIN, "must be POST\n");
        }
        let Some(endpoint) = self.known() else { return unavailable("no scheduler leads") };
        let answer = self.callers.post(endpoint, request.into_body(), self.within).await;
        if matches!(answer, Err(_) | Ok((StatusCode::SERVICE_UNAVAILABLE, _))) {
            self.doubt.notify_one();
        }
        match answer {
            Ok((status, body)) if status == StatusCode::OK => text(status, "application/json", body),
            Ok((status, body)) => text(status, PLAIN, body),
            Err(error) => {
                tracing::warn!(%error, "the scheduler does not answer");
                unavailable("the scheduler does not answer")
            }
        }
    }
}
