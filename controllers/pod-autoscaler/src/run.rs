//! The whole service: lead, watches, workers, health.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use kube::Client;
use neonvm_kit::event;
use neonvm_kit::http::{Ending, FullRequest, FullResponse, Gate, LEAVE, OPEN, no_body, probes, serve, text};
use neonvm_kit::lease;
use neonvm_kit::supervise::{self, TaskEnded, Tasks};
use tokio::net::TcpListener;
use tokio::sync::watch as channel;

use crate::Config;
use crate::cache::Key;
use crate::context::Context;
use crate::error::Error;
use crate::observe::Observer;
use crate::services;
use crate::telemetry::{Others, Telemetry};
use crate::watch;
use crate::webhook::Webhooks;
use crate::work;
use crate::wrapped::MANAGER;

/// Runs until `stop` ends.
///
/// # Errors
/// If settings or addresses cannot be used, or a background task ends; the lease is given back before.
pub async fn run(config: Config, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let client = neonvm_kit::client::connect(config.kubeconfig.as_deref()).await?;
    let metrics = neonvm_kit::client::connect_without_retries(config.kubeconfig.as_deref()).await?;
    run_with(client, metrics, config, stop).await
}

/// As [`run`], with existing clients; `metrics` is for the metrics APIs and must not retry by itself, so that an API that is
/// down is reported as such and delays nothing. When the future is dropped, everything it started ends.
///
/// # Errors
/// As [`run`].
pub async fn run_with(
    client: Client,
    metrics: Client,
    config: Config,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    // One for all times that this replica leads: its connections are of use to the next, too.
    let observer = Arc::new(Observer::new(metrics, &config).map_err(Error::Config)?);
    let tasks = supervise::Health::default();
    let mut always = Tasks::new(&tasks);
    let (events, sender) = event::channel(client.clone(), MANAGER);
    always.spawn("event sender", sender.run());
    let health = Arc::new(Health {
        tasks: tasks.clone(),
        telemetry: Arc::default(),
        lists: AtomicBool::new(false),
        context: Mutex::default(),
    });
    if let Some(address) = config.metrics {
        let listener = listen(address).await?;
        let health = Arc::clone(&health);
        let answer = move |request: FullRequest| std::future::ready(health.answer(&request));
        let gate = Gate::open(OPEN, &Arc::default());
        always.spawn("metrics server", serve(listener, None, gate, no_body, answer));
    }
    if let Some(address) = config.probes {
        let health = Arc::clone(&health);
        always.spawn("probes", probes(listen(address).await?, move |path| health.probe(path)));
    }
    let ending = Arc::new(Ending::default());
    if let Some(webhooks) = &config.webhooks {
        let webhooks = Webhooks::new(webhooks)?;
        let expiry = health.telemetry.certificates.clone();
        always.spawn(
            "webhooks",
            webhooks.run(client.clone(), config.namespace.clone(), expiry, Arc::clone(&ending)),
        );
    }
    let context = || {
        let (observer, telemetry) = (Arc::clone(&observer), Arc::clone(&health.telemetry));
        Arc::new(Context::new(client.clone(), observer, events.clone(), telemetry))
    };
    let work = || lead(context(), &config, &health);
    let led = lease::lead(&client, config.leader_election.clone(), always.until(stop), work).await;
    // In a pod the webhooks are behind a Service.
    ending.end(if config.kubeconfig.is_none() { LEAVE } else { Duration::ZERO }).await;
    led?;
    Ok(tasks.check()?)
}

async fn listen(address: std::net::SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })
}

/// Watches and reconciles; returns when a part of that ends.
async fn lead(context: Arc<Context>, config: &Config, health: &Health) -> Result<(), TaskEnded> {
    let lists = health.listing();
    if config.service_networks.is_empty() {
        context.observer.reader.refuse(&services::networks(&context.client).await);
    }
    let (listed, mut ready) = channel::channel(0);
    let listed = Arc::new(listed);
    let mut tasks = Tasks::new(&health.tasks);
    tasks.spawn("watch of pods", watch::pods(Arc::clone(&context), Arc::clone(&listed)));
    tasks.spawn("watch of wrappers", watch::wrappers(Arc::clone(&context), Arc::clone(&listed)));
    tasks.spawn("watch of autoscalers", watch::autoscalers(Arc::clone(&context), Arc::clone(&listed)));
    // Before all is listed, what is missing in the cache is not missing in the cluster.
    tokio::select! {
        _ = ready.wait_for(|count| *count >= watch::WATCHES) => {}
        ended = tasks.ended() => return Err(ended),
    }
    drop(lists);
    let _shown = health.show(&context);
    let reconcile = |key: Key| {
        let context = Arc::clone(&context);
        async move { work::reconcile(&context, &key).await }
    };
    let reconciling = context.queue.serve(config.concurrency, reconcile);
    tokio::select! {
        ended = health.tasks.supervise("work queue", reconciling) => Err(ended),
        ended = tasks.ended() => Err(ended),
    }
}

/// What is served over HTTP.
struct Health {
    tasks: supervise::Health,
    telemetry: Arc<Telemetry>,
    /// This replica leads, and has not listed everything yet.
    lists: AtomicBool,
    /// Of the leader.
    context: Mutex<Option<Arc<Context>>>,
}

struct Listing<'a>(&'a Health);

impl Drop for Listing<'_> {
    fn drop(&mut self) {
        self.0.lists.store(false, Ordering::Release);
    }
}

struct Shown<'a>(&'a Health);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        *self.0.context.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Health {
    /// Not ready until the result is dropped.
    fn listing(&self) -> Listing<'_> {
        self.lists.store(true, Ordering::Release);
        Listing(self)
    }

    /// Whether it runs, and whether it has listed all objects that it acts on. A standby acts on nothing.
    fn probe(&self, path: &str) -> FullResponse {
        if path == "/readyz" && self.lists.load(Ordering::Acquire) {
            let why = "autoscalers and pods are not known yet\n";
            return text(StatusCode::SERVICE_UNAVAILABLE, "text/plain", why);
        }
        self.tasks.answer()
    }

    /// Serves the leader's state until the result is dropped, which is when it no longer leads.
    fn show(&self, context: &Arc<Context>) -> Shown<'_> {
        *self.context.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(context));
        Shown(self)
    }

    fn answer(&self, request: &FullRequest) -> FullResponse {
        if request.method() != http::Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET\n");
        }
        match request.uri().path() {
            path @ ("/healthz" | "/readyz") => self.probe(path),
            "/metrics" => {
                let context = self.context.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let others = context.map_or_else(Others::default, |context| Others {
                    objects: context.cache.count(),
                    depth: context.queue.depth(),
                    scrapes: context.observer.scrapes.load(Ordering::Relaxed),
                    failures: context.observer.failures.load(Ordering::Relaxed),
                });
                neonvm_kit::metrics::answer(self.telemetry.page(others))
            }
            _ => text(StatusCode::NOT_FOUND, "text/plain", "not found\n"),
        }
    }
}
