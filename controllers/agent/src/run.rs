//! The whole agent: it acts only while it holds the lease of its node, so that two agents never act for one VM.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use neonvm_api::names::agent_lease;
use neonvm_kit::authority::{self, AGENT_NAME, AGENTS};
use neonvm_kit::ca::Authority;
use neonvm_kit::lease::{self, Elector};
use neonvm_kit::service::{Endpoint, advertised};
use neonvm_kit::{http, tls};
use neonvm_types::runner_protocol::CLIENT_ORGANISATION;
use rustls::ClientConfig;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::billing::bill;
use crate::config::AgentConfig;
use crate::fleet::Fleet;
use crate::inspect::Inspector;
use crate::metrics::Metrics;
use crate::scaling_events::ScalingEvents;
use crate::shared::{Certificates, Shared};
use crate::sink::{self, Layout, Sink, Target};

/// Field manager of what the agent writes.
const MANAGER: &str = "neonvm-agent";
/// Pauses while the API server cannot be used at start.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(15));
/// Length of the lease: an agent that dies is replaced by another of the same node after this.
const LEASE: Duration = Duration::from_secs(10);

/// How the agent runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// File for access to the cluster; `None`: the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Name of the node whose VMs are scaled.
    pub node: String,
    /// Namespace of the services.
    pub namespace: String,
    /// Unique among all agents.
    pub identity: String,
    /// Where people look into the agent, over TLS.
    pub listen: SocketAddr,
    /// Address of the agent's pod, if it listens everywhere.
    pub pod_ip: Option<IpAddr>,
    /// Where metrics of the agent are served; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
    /// Where metrics of each VM are served; `None`: nowhere.
    pub vm_metrics: Option<SocketAddr>,
    /// What the configuration file says.
    pub agent: AgentConfig,
}

/// Why the agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No client.
    #[error(transparent)]
    Client(#[from] neonvm_kit::client::Error),
    /// No authority.
    #[error(transparent)]
    Authority(#[from] authority::Error),
    /// No certificates.
    #[error(transparent)]
    Certificate(#[from] neonvm_kit::ca::Error),
    /// An address.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Where events go.
    #[error("{key}: {reason}")]
    Sink {
        /// Part of the configuration.
        key: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

/// Runs until `stop` ends; then sends what events are left.
///
/// # Errors
/// If the API server cannot be reached at start, an address cannot be used or the configuration names a sink that cannot be.
pub async fn run(config: Config, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let client = neonvm_kit::client::connect(config.kubeconfig.as_deref()).await?;
    let metrics: Arc<Metrics> = Arc::default();
    let (billing, billing_tasks) = sinks(&config.agent, &metrics, Kind::Billing)?;
    let (events, event_tasks) = sinks(&config.agent, &metrics, Kind::Scaling)?;
    tokio::pin!(stop);
    let authority = tokio::select! {
        authority = open(&client, &config.namespace) => authority?,
        () = &mut stop => return Ok(()),
    };
    let tls = Certificates {
        scheduler: client_tls(&authority, AGENTS)?,
        runners: client_tls(&authority, CLIENT_ORGANISATION)?,
    };
    let events = ScalingEvents::new(config.agent.scaling_events.clone(), events, Arc::clone(&metrics));
    let shared = Arc::new(Shared::new(client.clone(), tls, config.agent.clone(), events));
    let fleet = Arc::new(Fleet::new(Arc::clone(&shared), config.node.clone()));
    let mut always = JoinSet::new();
    let address = serve(&mut always, &config, &authority, &fleet, &metrics).await?;
    always.spawn({
        let (shared, client, namespace) = (Arc::clone(&shared), client.clone(), config.namespace.clone());
        async move {
            shared.scheduler.follow_lease(client, &namespace).await;
        }
    });
    always.spawn({
        let (shared, client) = (Arc::clone(&shared), client.clone());
        async move {
            let scheduler = &shared.config.scheduler;
            shared.scheduler.follow_pods(client, &scheduler.scheduler_name, scheduler.request_port).await;
        }
    });
    let mut lease = lease::Config::new(&config.namespace, agent_lease(&config.node), &config.identity);
    lease.duration = LEASE;
    lease.renew_deadline = LEASE * 2 / 3;
    lease.annotations = Endpoint { address, plain: false }.annotations();
    let work = || async {
        // Without the lease nothing may be done any more: all tasks end then, with all they have under way.
        let _cleared = Cleared(&fleet);
        tokio::select! {
            () = fleet.watch() => {}
            () = bill(&config.agent, &fleet, &billing) => {}
        }
    };
    Elector::new(client, lease).lead(stop, work).await;
    always.shutdown().await;
    // The queues send what they have when nobody can tell them anything any more.
    drop((billing, fleet, shared));
    for task in billing_tasks.into_iter().chain(event_tasks) {
        let _ = task.await;
    }
    Ok(())
}

/// Ends all tasks of a fleet when dropped.
struct Cleared<'a>(&'a Fleet);

impl Drop for Cleared<'_> {
    fn drop(&mut self) {
        self.0.clear();
    }
}

fn client_tls(authority: &Authority, organisation: &str) -> Result<Arc<ClientConfig>, Error> {
    let shown = authority.client(MANAGER, &[organisation])?;
    let mut config = tls::client(Some(&shown), authority.certificate().as_bytes())?;
    // There are hundreds of runners, and connections to them live long: tickets would only take memory.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// A server that is just starting is waited for.
async fn open(client: &Client, namespace: &str) -> Result<Authority, Error> {
    let mut pause = PAUSES.0;
    loop {
        match authority::open(client, namespace, MANAGER).await {
            Ok(authority) => return Ok(authority),
            Err(error) if pause > PAUSES.1 => return Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, "the internal authority cannot be opened; it is tried again");
            }
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })
}

/// Starts all servers; the address of the one with TLS, as others reach it.
async fn serve(
    always: &mut JoinSet<()>,
    config: &Config,
    authority: &Authority,
    fleet: &Arc<Fleet>,
    metrics: &Arc<Metrics>,
) -> Result<SocketAddr, Error> {
    let listener = listen(config.listen).await?;
    let address = listener.local_addr().unwrap_or(config.listen);
    let identity = authority.server(MANAGER, &[AGENT_NAME.to_owned()])?;
    let tls = tls::server(&identity, authority.certificate())?;
    let tls = Arc::new(std::sync::RwLock::new(Arc::new(tls)));
    let inspector = Arc::new(Inspector::new(
        config.identity.clone(),
        config.node.clone(),
        Arc::clone(fleet),
        Arc::clone(metrics),
    ));
    always.spawn(http::serve(listener, Some(tls), inspector.handler(Inspector::inspect)));
    let dump = config.agent.dump_state.map(|dump| SocketAddr::new(config.listen.ip(), dump.port));
    if let Some(address) = dump {
        always.spawn(http::serve(listen(address).await?, None, inspector.handler(Inspector::dump)));
    }
    if let Some(address) = config.metrics {
        always.spawn(http::serve(listen(address).await?, None, inspector.handler(Inspector::metrics)));
    }
    if let Some(address) = config.vm_metrics {
        always.spawn(http::serve(listen(address).await?, None, inspector.handler(Inspector::vm_metrics)));
    }
    Ok(advertised(address, config.pod_ip))
}

#[derive(Clone, Copy)]
enum Kind {
    Billing,
    Scaling,
}

fn sinks(
    config: &AgentConfig,
    metrics: &Arc<Metrics>,
    kind: Kind,
) -> Result<(Vec<Sink>, Vec<JoinHandle<()>>), Error> {
    let (key, clients, layout, names) = match kind {
        Kind::Billing => (
            "billing.clients",
            config.billing.as_ref().map(|billing| &billing.clients),
            Layout::Billing,
            sink::Names {
                queue: "autoscaling_agent_billing_queue_size",
                took: "autoscaling_agent_billing_last_send_duration_seconds",
                errors: "autoscaling_agent_billing_send_errors_total",
                dropped: "autoscaling_agent_billing_dropped_events_total",
            },
        ),
        Kind::Scaling => (
            "scalingEvents.clients",
            config.scaling_events.as_ref().map(|events| &events.clients),
            Layout::Scaling,
            sink::Names {
                queue: "autoscaling_agent_scalingevents_queue_size",
                took: "autoscaling_agent_scalingevents_last_send_duration_seconds",
                errors: "autoscaling_agent_scalingevents_send_errors_total",
                dropped: "autoscaling_agent_scalingevents_dropped_events_total",
            },
        ),
    };
    let Some(clients) = clients else { return Ok((Vec::new(), Vec::new())) };
    let targets = Target::all(clients, layout).map_err(|reason| Error::Sink { key, reason })?;
    let started =
        targets.into_iter().map(|(target, push)| Sink::start(target, push, names, Arc::clone(metrics)));
    Ok(started.unzip())
}
