//! The whole controller: what runs always, and what only the leader runs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use kube::Client;
use neonvm_api::VirtualMachine;
use neonvm_kit::event;
use neonvm_kit::http::{Answer, Whole, serve, text};
use neonvm_kit::lease;
use tokio::net::TcpListener;
use tokio::sync::watch as channel;
use tokio::task::JoinSet;

use crate::addresses::Worker as Pools;
use crate::authority::Authority;
use crate::cache::{Key, key_of};
use crate::config::Config;
use crate::context::{Context, MANAGER, Parts};
use crate::lag::Lag;
use crate::metrics::{Metrics, Work};
use crate::{reconcile, watch, webhook};

/// Pauses while the API server cannot be used at start: half a minute in all.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Why the controller cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No client.
    #[error(transparent)]
    Client(#[from] neonvm_kit::client::Error),
    /// No authority.
    #[error(transparent)]
    Authority(#[from] neonvm_kit::authority::Error),
    /// An address.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which.
        address: std::net::SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Webhooks.
    #[error(transparent)]
    Webhook(#[from] webhook::Error),
}

/// Runs until `stop` ends. When it is dropped, everything it started ends.
///
/// # Errors
/// If the API server cannot be reached at start, or an address cannot be used.
pub async fn run(config: Config, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let client = neonvm_kit::client::connect(config.kubeconfig.as_deref()).await?;
    let authority = Arc::new(open(&client, &config.namespace).await?);
    let mut always = JoinSet::new();
    let (events, sender) = event::channel(client.clone(), MANAGER);
    always.spawn(sender.run());
    let mut pending = None;
    if let Some(webhook) = &config.webhook {
        let listener = listen(webhook.listen).await?;
        let address = listener.local_addr().unwrap_or(webhook.listen);
        let hooks = webhook::Webhooks::new(&client, &authority, (webhook, &config), address, events.clone())?;
        pending = Some(hooks.pending());
        always.spawn(hooks.run(listener));
    }
    let health = Arc::new(Health {
        metrics: Arc::default(),
        lag: Arc::new(Lag::new(config.failure_pending_period)),
        pending,
        context: Mutex::default(),
    });
    if let Some(address) = config.metrics {
        let listener = listen(address).await?;
        let health = Arc::clone(&health);
        always.spawn(serve(listener, None, move |request: Whole| {
            let health = Arc::clone(&health);
            async move { health.answer(&request) }
        }));
    }
    always.spawn({
        let authority = Arc::clone(&authority);
        async move { authority.renew().await }
    });
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
    lease::lead(&client, config.leader_election.clone(), stop, work).await;
    Ok(())
}

/// A server that is just starting is waited for.
async fn open(client: &Client, namespace: &str) -> Result<Authority, Error> {
    let mut pause = FIRST_PAUSE;
    loop {
        match Authority::open(client, namespace).await {
            Ok(authority) => return Ok(authority),
            Err(error) if pause > LONGEST_PAUSE => return Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, "the internal authority cannot be opened; it is tried again");
            }
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
}

async fn listen(address: std::net::SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })
}

/// Watches and works; never returns.
async fn lead(parts: Parts, config: &Config, health: &Health) {
    let (context, pools) = Context::new(parts);
    let context = Arc::new(context);
    let (listed, mut ready) = channel::channel(0);
    let listed = Arc::new(listed);
    let mut tasks = JoinSet::new();
    tasks.spawn(watch::machines(Arc::clone(&context), Arc::clone(&listed)));
    tasks.spawn(watch::pods(Arc::clone(&context), Arc::clone(&listed)));
    tasks.spawn(watch::secrets(Arc::clone(&context), Arc::clone(&listed)));
    tasks.spawn(watch::migrations(Arc::clone(&context), Arc::clone(&listed)));
    tasks.spawn(watch::policies(Arc::clone(&context), Arc::clone(&listed)));
    // Before all is listed, what is missing in the picture is not missing in the cluster.
    if ready.wait_for(|count| *count >= watch::WATCHES).await.is_err() {
        return;
    }
    let _shown = health.show(&context);
    tasks.spawn(look_after_addresses(Arc::clone(&context), pools));
    let budgets = Arc::new(webhook::Budgets::new(config.webhook.is_some()));
    tasks.spawn(webhook::Budgets::keep(Arc::clone(&budgets), Arc::clone(&context)));
    let turn = |key: Key| {
        budgets.see(&key.namespace, context.cache.vm(&key).is_some());
        let context = Arc::clone(&context);
        async move { reconcile::turn(&context, &key).await }
    };
    context.queue.serve(config.concurrency, turn).await;
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

/// What is told over HTTP.
#[derive(Debug)]
struct Health {
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
    /// What the leader knows is told as long as it leads: until the result is dropped.
    fn show(&self, context: &Arc<Context>) -> Shown<'_> {
        *self.context.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(context));
        Shown(self)
    }

    fn answer(&self, request: &Whole) -> Answer {
        if request.method() != http::Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET\n");
        }
        match request.uri().path() {
            "/readyz" if self.pending.as_ref().is_some_and(|pending| !pending.is_over()) => {
                text(StatusCode::SERVICE_UNAVAILABLE, "text/plain", "the webhooks are not registered yet\n")
            }
            "/healthz" | "/readyz" => text(StatusCode::OK, "text/plain", "ok\n"),
            "/metrics" => {
                let context = self.context.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let work = context.as_ref().map(|context| Work {
                    vms: context.cache.phases(),
                    migrations: context.moves.phases(),
                    depth: context.queue.depth(),
                });
                let addresses = context.as_ref().and_then(|context| context.addresses.counts());
                let body = self.metrics.render(&self.lag, work.as_ref(), addresses);
                text(StatusCode::OK, "text/plain; version=0.0.4", body)
            }
            "/debug/failing" => text(StatusCode::OK, "application/json", self.lag.debug().to_string()),
            _ => text(StatusCode::NOT_FOUND, "text/plain", "not found\n"),
        }
    }
}
