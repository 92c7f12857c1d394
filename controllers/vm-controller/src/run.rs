//! The whole controller: what runs always, and what only the leader runs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use kube::Client;
use neonvm_api::VirtualMachine;
use neonvm_kit::event::{self, Events};
use neonvm_kit::http::{Ending, FullRequest, FullResponse, Gate, OPEN, no_body, probes, serve, text};
use neonvm_kit::lease;
use neonvm_kit::supervise::{self, TaskEnded, Tasks};
use ring::rand::SystemRandom;
use tokio::net::TcpListener;
use tokio::sync::watch as channel;

use crate::addresses::{Addresses, Worker as Pools};
use crate::authority::Authority;
use crate::cache::{Key, key_of};
use crate::cert_manager::CertManager;
use crate::config::{Config, WebhookConfig};
use crate::growth::Growth;
use crate::key_state::KeyStates;
use crate::lag::Lag;
use crate::metrics::{Conditions, Metrics, Work};
use crate::reconciler::Reconciler;
use crate::request::MANAGER;
use crate::requests::Requests;
use crate::state::State;
use crate::{clock, cluster, reconcile, renewal, watch, webhook};

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
    let metrics: Arc<Metrics> = Arc::default();
    let authority =
        Authority::open(&client, (&config.namespace, config.lifetimes), &metrics.certificates).await?;
    let authority = Arc::new(authority);
    let tasks = supervise::Health::default();
    let mut always = Tasks::new(&tasks);
    let (events, sender) = event::channel(client.clone(), MANAGER);
    always.spawn("event sender", sender.run());
    let mut pending = None;
    let ending = Ending::default();
    if let Some(webhook) = &config.webhook {
        let listener = listen(webhook.listen).await?;
        let address = listener.local_addr().unwrap_or(webhook.listen);
        let hooks = webhook::Webhooks::new(&client, &authority, (webhook, &config), address, events.clone())?;
        pending = Some(hooks.pending());
        always.spawn("webhooks", hooks.run(listener, ending.watched()));
    }
    let health = Arc::new(Health {
        tasks: tasks.clone(),
        metrics,
        lag: Arc::new(Lag::new(config.failure_pending_period)),
        pending,
        leader: Mutex::default(),
    });
    if let Some(address) = config.metrics {
        let listener = listen(address).await?;
        let health = Arc::clone(&health);
        let answer = move |request: FullRequest| std::future::ready(health.answer(&request));
        let gate = Gate::open(OPEN, &Arc::default());
        always.spawn("metrics server", serve(listener, None, gate, no_body, answer));
    }
    if let Some(address) = config.probes {
        let listener = listen(address).await?;
        let health = Arc::clone(&health);
        always.spawn("probes", probes(listener, move |path| health.probe(path)));
    }
    let renewed = Arc::clone(&authority);
    let look = config.authority_look.unwrap_or_else(|| config.lifetimes.look());
    always.spawn("certificate renewal", async move { renewed.keep(look).await });
    let work = || lead(&client, &authority, &events, &config, &health);
    let led = lease::lead(&client, config.leader_election.clone(), always.until(stop), work).await;
    ending.end(config.webhook.as_ref().map_or(Duration::ZERO, WebhookConfig::leave)).await;
    led?;
    Ok(tasks.check()?)
}

async fn listen(address: std::net::SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })
}

/// Watches and reconciles; returns when a part of that ends.
async fn lead(
    client: &Client,
    authority: &Arc<Authority>,
    events: &Events,
    config: &Config,
    health: &Health,
) -> Result<(), TaskEnded> {
    let mut settings = config.settings.clone();
    settings.pod_size = settings.pod_size && cluster::resizes_pods(client).await;
    let state = Arc::new(State::new(settings, authority));
    let requests = Requests::new(client.clone(), Arc::clone(&health.metrics));
    let mut tasks = Tasks::new(&health.tasks);
    let signer = authority.signer(client.clone(), &config.namespace);
    tasks.spawn("signer of certificates", signer.serve());
    watch_all(client, &state, &mut tasks).await?;
    let (addresses, pools) =
        Addresses::new(config.addresses.clone(), &config.namespace, Arc::clone(&health.metrics.ipam));
    let addresses = Arc::new(addresses);
    let _shown = health.show(&state, &addresses);
    tasks.spawn("address allocation", look_after_addresses(client.clone(), Arc::clone(&state), pools));
    let budgets = Arc::new(webhook::Budgets::new(config.webhook.is_some()));
    let kept = webhook::Budgets::keep(Arc::clone(&budgets), client.clone(), Arc::clone(&state.cache));
    tasks.spawn("disruption budgets", kept);
    let renewed = renewal::keep(requests.clone(), Arc::clone(&state.cache), Arc::clone(authority));
    tasks.spawn("renewal of runners' certificates", renewed);
    let key_states = Arc::new(KeyStates::default());
    let reconciler = Arc::new(Reconciler {
        growth: Growth::new(requests.clone(), Arc::clone(&state), Arc::clone(&key_states), events.clone()),
        requests,
        state: Arc::clone(&state),
        authority: Arc::clone(authority),
        addresses,
        events: events.clone(),
        metrics: Arc::clone(&health.metrics),
        lag: Arc::clone(&health.lag),
        cert_manager: CertManager::default(),
        key_states,
        random: SystemRandom::new(),
    });
    let reconcile = |key: Key| {
        budgets.see(&key.namespace, state.cache.vm(&key).as_deref());
        let reconciler = Arc::clone(&reconciler);
        async move { reconcile::reconcile(&reconciler, &key).await }
    };
    let reconciling = state.queue.serve(config.concurrency, reconcile);
    tokio::select! {
        ended = health.tasks.supervise("work queue", reconciling) => Err(ended),
        ended = tasks.ended() => Err(ended),
    }
}

/// Starts all watches, and waits until each has listed its objects: before, what is missing in the cache is not missing in the
/// cluster.
async fn watch_all(client: &Client, state: &Arc<State>, tasks: &mut Tasks) -> Result<(), TaskEnded> {
    let (listed, mut ready) = channel::channel(0);
    let listed = Arc::new(listed);
    let parts =
        || watch::Watch { client: client.clone(), state: Arc::clone(state), listed: Arc::clone(&listed) };
    tasks.spawn("watch of VMs", watch::machines(parts()));
    tasks.spawn("watch of pods", watch::pods(parts()));
    tasks.spawn("watch of secrets", watch::secrets(parts()));
    tasks.spawn("watch of migrations", watch::migrations(parts()));
    tasks.spawn("watch of migration policies", watch::policies(parts()));
    tasks.spawn("watch of namespaces", watch::namespaces(parts()));
    tasks.spawn("watch of claims", watch::claims(parts()));
    tasks.spawn("watch of cordoned nodes", watch::cordoned(parts()));
    tokio::select! {
        _ = ready.wait_for(|count| *count >= watch::WATCHES) => Ok(()),
        ended = tasks.ended() => Err(ended),
    }
}

/// Allocates addresses; never returns. VMs that wait for the pools to be read are reconciled then.
async fn look_after_addresses(client: Client, state: Arc<State>, pools: Pools) {
    let known = || {
        let wants = |vm: &VirtualMachine| vm.spec.extra_network.as_ref().is_some_and(|net| net.enable);
        let all = state.cache.all_vms();
        all.iter().filter(|vm| wants(vm)).for_each(|vm| state.queue.add(&key_of(&vm.metadata)));
    };
    pools.run(client, &state.cache, known).await;
}

/// What is served over HTTP.
#[derive(Debug)]
struct Health {
    tasks: supervise::Health,
    metrics: Arc<Metrics>,
    lag: Arc<Lag>,
    /// What is left to be registered of the webhooks.
    pending: Option<Arc<webhook::Pending>>,
    leader: Mutex<Option<Leader>>,
}

/// The state of the controller that leads.
#[derive(Clone, Debug)]
struct Leader {
    state: Arc<State>,
    addresses: Arc<Addresses>,
}

struct Shown<'a>(&'a Health);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        *self.0.leader.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Health {
    /// Serves the leader's state until the result is dropped, which is when it no longer leads.
    fn show(&self, state: &Arc<State>, addresses: &Arc<Addresses>) -> Shown<'_> {
        let leader = Leader { state: Arc::clone(state), addresses: Arc::clone(addresses) };
        *self.leader.lock().unwrap_or_else(PoisonError::into_inner) = Some(leader);
        Shown(self)
    }

    /// Whether it runs, and whether its webhooks are registered at the API server.
    fn probe(&self, path: &str) -> FullResponse {
        if path == "/readyz" && self.pending.as_ref().is_some_and(|pending| !pending.is_over()) {
            let why = "the webhooks are not registered yet\n";
            return text(StatusCode::SERVICE_UNAVAILABLE, "text/plain", why);
        }
        self.tasks.answer()
    }

    fn answer(&self, request: &FullRequest) -> FullResponse {
        if request.method() != http::Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET\n");
        }
        match request.uri().path() {
            path @ ("/healthz" | "/readyz") => self.probe(path),
            "/metrics" => {
                let leader = self.leader.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let work = leader.as_ref().map(|Leader { state, .. }| Work {
                    vms: state.cache.phases(),
                    migrations: state.migrating.phases(),
                    depth: state.queue.depth(),
                    panics: state.queue.panics(),
                    conditions: Conditions::new(state.cache.all_vms().iter().map(AsRef::as_ref)),
                    progress: state.migrating.progress(clock::now()),
                    shared_addresses: crate::addresses::shared(&state.cache),
                });
                let addresses = leader.as_ref().and_then(|leader| leader.addresses.usage());
                neonvm_kit::metrics::answer(self.metrics.page(&self.lag, work.as_ref(), addresses.as_ref()))
            }
            "/debug/failing" => text(StatusCode::OK, "application/json", self.lag.debug().to_string()),
            _ => text(StatusCode::NOT_FOUND, "text/plain", "not found\n"),
        }
    }
}
