//! The whole controller: what runs always, and what only the leader runs.

use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;
use kube::Client;
use neonvm_api::VirtualMachine;
use neonvm_kit::event;
use neonvm_kit::http::{Answer, Gate, OPEN, Whole, no_body, probes, serve, text};
use neonvm_kit::lease;
use neonvm_kit::supervise::{self, TaskEnded, Tasks};
use tokio::net::TcpListener;
use tokio::sync::watch as channel;

use crate::addresses::Worker as Pools;
use crate::authority::Authority;
use crate::cache::{Key, key_of};
use crate::config::Config;
use crate::context::{Context, Parts};
use crate::lag::Lag;
use crate::metrics::{Metrics, Work};
use crate::request::MANAGER;
use crate::{cluster, reconcile, renewal, watch, webhook};

/// Why the controller cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No client.
    #[error(transparent)]
    Client(#[from] neonvm_kit::client::Error),
    /// No authority.
    #[error(transparent)]
    Authority(#[from] neonvm_kit::authority::Error),
    /// The address cannot be bound.
    #[error("cannot listen on {address}")]
    Listen {
        /// Address to listen on.
        address: std::net::SocketAddr,
        /// Error of the socket.
        #[source]
        source: std::io::Error,
    },
    /// Webhooks.
    #[error(transparent)]
    Webhook(#[from] webhook::Error),
    /// Part of it ended.
    #[error(transparent)]
    Task(#[from] TaskEnded),
}

/// Runs until `stop` ends. When it is dropped, everything it started ends.
///
/// # Errors
/// If the API server cannot be reached at start, an address cannot be used, or a background task ends; the lease is given back
/// before.
pub async fn run(config: Config, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let client = neonvm_kit::client::connect(config.kubeconfig.as_deref()).await?;
    run_with(client, config, stop).await
}

/// As [`run`], with a client at hand.
///
/// # Errors
/// As [`run`].
pub async fn run_with(client: Client, config: Config, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let authority = Arc::new(Authority::open(&client, &config.namespace).await?);
    let tasks = supervise::Health::default();
    let mut always = Tasks::new(&tasks);
    let (events, sender) = event::channel(client.clone(), MANAGER);
    always.spawn("event sender", sender.run());
    let mut pending = None;
    if let Some(webhook) = &config.webhook {
        let listener = listen(webhook.listen).await?;
        let address = listener.local_addr().unwrap_or(webhook.listen);
        let hooks = webhook::Webhooks::new(&client, &authority, (webhook, &config), address, events.clone())?;
        pending = Some(hooks.pending());
        always.spawn("webhooks", hooks.run(listener));
    }
    let health = Arc::new(Health {
        tasks: tasks.clone(),
        metrics: Arc::default(),
        lag: Arc::new(Lag::new(config.failure_pending_period)),
        pending,
        context: Mutex::default(),
    });
    if let Some(address) = config.metrics {
        let listener = listen(address).await?;
        let health = Arc::clone(&health);
        let answer = move |request: Whole| std::future::ready(health.answer(&request));
        let gate = Gate::open(OPEN, &Arc::default());
        always.spawn("metrics server", serve(listener, None, gate, no_body, answer));
    }
    if let Some(address) = config.probes {
        let listener = listen(address).await?;
        let health = Arc::clone(&health);
        always.spawn("probes", probes(listener, move |path| health.probe(path)));
    }
    let renewed = Arc::clone(&authority);
    let look = config.authority_look;
    always.spawn("certificate renewal", async move { renewed.keep(look).await });
    let parts = || Parts {
        client: client.clone(),
        settings: config.settings.clone(),
        authority: Arc::clone(&authority),
        addresses: config.addresses.clone(),
        namespace: config.namespace.clone(),
        metrics: Arc::clone(&health.metrics),
        lag: Arc::clone(&health.lag),
        events: events.clone(),
    };
    let work = || lead(parts(), &config, &health);
    lease::lead(&client, config.leader_election.clone(), always.until(stop), work).await?;
    Ok(tasks.check()?)
}

async fn listen(address: std::net::SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })
}

/// Watches and reconciles; returns when a part of that ends.
async fn lead(mut parts: Parts, config: &Config, health: &Health) -> Result<(), TaskEnded> {
    parts.settings.pod_size = parts.settings.pod_size && cluster::resizes_pods(&parts.client).await;
    let (context, pools) = Context::new(parts);
    let context = Arc::new(context);
    let (listed, mut ready) = channel::channel(0);
    let listed = Arc::new(listed);
    let mut tasks = Tasks::new(&health.tasks);
    let signer = context.authority.signer(context.client.clone(), &config.namespace);
    tasks.spawn("signer of certificates", signer.serve());
    tasks.spawn("watch of VMs", watch::machines(Arc::clone(&context), Arc::clone(&listed)));
    tasks.spawn("watch of pods", watch::pods(Arc::clone(&context), Arc::clone(&listed)));
    tasks.spawn("watch of secrets", watch::secrets(Arc::clone(&context), Arc::clone(&listed)));
    tasks.spawn("watch of migrations", watch::migrations(Arc::clone(&context), Arc::clone(&listed)));
    tasks.spawn("watch of migration policies", watch::policies(Arc::clone(&context), Arc::clone(&listed)));
    tasks.spawn("watch of namespaces", watch::namespaces(Arc::clone(&context), Arc::clone(&listed)));
    // Before all is listed, what is missing in the cache is not missing in the cluster.
    tokio::select! {
        _ = ready.wait_for(|count| *count >= watch::WATCHES) => {}
        ended = tasks.ended() => return Err(ended),
    }
    let _shown = health.show(&context);
    tasks.spawn("address allocation", look_after_addresses(Arc::clone(&context), pools));
    let budgets = Arc::new(webhook::Budgets::new(config.webhook.is_some()));
    let kept = webhook::Budgets::keep(Arc::clone(&budgets), Arc::clone(&context));
    tasks.spawn("disruption budgets", kept);
    tasks.spawn("renewal of runners' certificates", renewal::keep(Arc::clone(&context)));
    let reconcile = |key: Key| {
        budgets.see(&key.namespace, context.cache.vm(&key).as_deref());
        let context = Arc::clone(&context);
        async move { reconcile::reconcile(&context, &key).await }
    };
    let reconciling = context.queue.serve(config.concurrency, reconcile);
    tokio::select! {
        ended = health.tasks.supervise("work queue", reconciling) => Err(ended),
        ended = tasks.ended() => Err(ended),
    }
}

/// Gives addresses; never returns. Machines that wait for the pools to be read go on then.
async fn look_after_addresses(context: Arc<Context>, pools: Pools) {
    let known = || {
        let wants = |vm: &VirtualMachine| vm.spec.extra_network.as_ref().is_some_and(|net| net.enable);
        let all = context.cache.all_vms();
        all.iter().filter(|vm| wants(vm)).for_each(|vm| context.queue.add(&key_of(&vm.metadata)));
    };
    pools.run(context.client.clone(), &context.cache, known).await;
}

/// What is served over HTTP.
#[derive(Debug)]
struct Health {
    tasks: supervise::Health,
    metrics: Arc<Metrics>,
    lag: Arc<Lag>,
    /// What is left to be registered of the webhooks.
    pending: Option<Arc<webhook::Pending>>,
    /// Of the leader.
    context: Mutex<Option<Arc<Context>>>,
}

struct Shown<'a>(&'a Health);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        *self.0.context.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Health {
    /// Serves the leader's state until the result is dropped, which is when it no longer leads.
    fn show(&self, context: &Arc<Context>) -> Shown<'_> {
        *self.context.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(context));
        Shown(self)
    }

    /// Whether it runs, and whether its webhooks are registered at the API server.
    fn probe(&self, path: &str) -> Answer {
        if path == "/readyz" && self.pending.as_ref().is_some_and(|pending| !pending.is_over()) {
            let why = "the webhooks are not registered yet\n";
            return text(StatusCode::SERVICE_UNAVAILABLE, "text/plain", why);
        }
        self.tasks.answer()
    }

    fn answer(&self, request: &Whole) -> Answer {
        if request.method() != http::Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET\n");
        }
        match request.uri().path() {
            path @ ("/healthz" | "/readyz") => self.probe(path),
            "/metrics" => {
                let context = self.context.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let work = context.as_ref().map(|context| Work {
                    vms: context.cache.phases(),
                    migrations: context.migrating.phases(),
                    depth: context.queue.depth(),
                    panics: context.queue.panics(),
                });
                let addresses = context.as_ref().and_then(|context| context.addresses.counts());
                neonvm_kit::metrics::answer(self.metrics.page(&self.lag, work.as_ref(), addresses))
            }
            "/debug/failing" => text(StatusCode::OK, "application/json", self.lag.debug().to_string()),
            _ => text(StatusCode::NOT_FOUND, "text/plain", "not found\n"),
        }
    }
}
