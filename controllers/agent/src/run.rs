//! The whole agent: it acts only while it holds the lease of its node, so that two agents never act for one VM.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::select_all;
use kube::Client;
use neonvm_api::names::agent_lease;
use neonvm_kit::authority::OPERATORS;
use neonvm_kit::ca::Purpose;
use neonvm_kit::certificate::{self, Certificate, CertificateFor};
use neonvm_kit::expiry::Expiry;
use neonvm_kit::http::{self, Gate, OPEN, PRIVATE};
use neonvm_kit::lease::{self, Elector, Times};
use neonvm_kit::service::{Endpoint, advertised};
use neonvm_kit::supervise::{Health, TaskEnded, Tasks};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::billing::bill;
use crate::config::{AgentConfig, DumpState};
use crate::exporter::{self, Exporter, Layout, Target};
use crate::fleet::Fleet;
use crate::history::History;
use crate::inspect::{Inspector, dump_head, only_operators};
use crate::metrics::Metrics;
use crate::monitor::informant;
use crate::monitor::informant::callbacks::{self, Callbacks};
use crate::scaling_events::ScalingEvents;
use crate::shared::Shared;
use crate::unscaled;

#[derive(Clone, Debug)]
pub struct Config {
    /// File for access to the cluster; `None`: the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Name of the node whose VMs are scaled.
    pub node: String,
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
    /// Where the state is served as upstream's agent does, over plain HTTP; `None`: the port of the file, on 127.0.0.1.
    pub dump_state: Option<SocketAddr>,
    /// Where probes are answered, and nothing else; `None`: nowhere.
    pub probes: Option<SocketAddr>,
    /// Where the history of each VM is kept; `None`: nowhere.
    pub history: Option<PathBuf>,
    /// The content of the configuration file.
    pub agent: AgentConfig,
}

/// What the agent shows: to the scheduler and runners, and to operators.
struct Certificates {
    client: Certificate,
    server: Certificate,
}

impl Certificates {
    async fn at_start(client: &Client, config: &Config, expiry: &Expiry) -> Result<Self, certificate::Error> {
        let one = |purpose| {
            let wanted = CertificateFor::agent(&config.node, purpose);
            Certificate::at_start(client, &config.namespace, wanted)
        };
        let (client, server) = tokio::try_join!(one(Purpose::Client), one(Purpose::Server))?;
        Ok(Self { client: client.reported(expiry), server: server.reported(expiry) })
    }
}

/// Why the agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No client.
    #[error(transparent)]
    Client(#[from] neonvm_kit::client::Error),
    /// No certificates.
    #[error(transparent)]
    Certificate(#[from] certificate::Error),
    /// No TLS.
    #[error(transparent)]
    Tls(#[from] neonvm_kit::ca::Error),
    /// The address cannot be bound.
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        /// Error of the socket.
        #[source]
        source: std::io::Error,
    },
    /// Where events go.
    #[error("{key}: {reason}")]
    Exporter {
        /// Part of the configuration.
        key: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The directory of the history.
    #[error("cannot keep a history in {}", directory.display())]
    History {
        directory: PathBuf,
        /// Error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// Part of it ended.
    #[error(transparent)]
    Task(#[from] TaskEnded),
}

/// Runs until `stop` ends; then sends what events are left.
///
/// # Errors
/// If the API server cannot be reached at start, an address cannot be used, the configuration of an exporter is invalid, or a
/// background task ends; the lease is released before.
pub async fn run(config: Config, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let client = neonvm_kit::client::connect(config.kubeconfig.as_deref()).await?;
    run_with(client, config, stop).await
}

/// As [`run`], with a client at hand.
///
/// # Errors
/// As [`run`].
pub async fn run_with(client: Client, config: Config, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let health = Health::default();
    let metrics: Arc<Metrics> = Arc::default();
    let (billing, mut exporter_tasks) = exporters(&config.agent, &metrics, Kind::Billing)?;
    let (events, event_tasks) = exporters(&config.agent, &metrics, Kind::Scaling)?;
    exporter_tasks.extend(event_tasks);
    tokio::pin!(stop);
    let certificates = tokio::select! {
        certificates = Certificates::at_start(&client, &config, &metrics.certificates) => certificates?,
        () = &mut stop => return Ok(()),
    };
    let tls = Arc::new(certificates.client.client_config()?);
    let events = ScalingEvents::new(config.agent.scaling_events.clone(), events, Arc::clone(&metrics));
    let (informants, callbacks) = match listen_to_informants(&config, &metrics).await? {
        Some((settings, listener)) => (Some(settings), Some(listener)),
        None => (None, None),
    };
    let (history, writer) = history(config.history.as_deref())?;
    let shared =
        Shared::new(client.clone(), tls, config.agent.clone(), events, informants.clone(), history.clone());
    let shared = Arc::new(shared);
    let fleet = Arc::new(Fleet::new(Arc::clone(&shared), config.node.clone()));
    let inspector = Inspector::new(
        config.identity.clone(),
        config.node.clone(),
        Arc::clone(&fleet),
        (Arc::clone(&metrics), history),
        health.clone(),
        config.agent.scaling_events.as_ref().map_or(1.0, |events| events.cu_multiplier),
    );
    let inspector = Arc::new(inspector);
    let mut always = Tasks::new(&health);
    let address = serve(&mut always, &config, &certificates.server, Arc::clone(&inspector)).await?;
    if let Some((informants, listener)) = informants.as_ref().zip(callbacks) {
        always.spawn("callback server", callbacks::serve(listener, Arc::clone(&informants.callbacks)));
    }
    always.spawn("renewal of the client certificate", certificates.client.keep());
    always.spawn("renewal of the server certificate", certificates.server.keep());
    watch_scheduler(&mut always, &shared, &config.namespace);
    let mut lease = lease::Config::new(&config.namespace, agent_lease(&config.node), &config.identity);
    lease.times = Times::of_each_node();
    lease.annotations = Endpoint { address, plain: false }.annotations();
    let work = || async {
        // Without the lease nothing may be done any more: all tasks end then, with all they have under way.
        let _cleared = Cleared(&fleet);
        Err(tokio::select! {
            ended = health.supervise("watch of VMs", fleet.watch()) => ended,
            ended = health.supervise("use of disks", unscaled::read(&shared, &fleet)) => ended,
            ended = health.supervise("billing", bill(&config.agent, &fleet, &billing)) => ended,
        })
    };
    let stop = async {
        tokio::select! {
            () = always.until(stop) => inspector.stop(),
            _ = health.supervise("event exporters", ended_early(&mut exporter_tasks)) => {}
        }
    };
    let led: Result<(), TaskEnded> = Elector::new(client, lease).lead(stop, work).await;
    if let Some(informants) = &informants {
        informants.callbacks.emptied().await;
    }
    always.shutdown().await;
    // The exporters send what they have once all senders are gone.
    drop((billing, fleet, shared, inspector));
    for task in exporter_tasks.into_iter().filter(|task| !task.is_finished()) {
        let _ = task.await;
    }
    // So does the writer of the history.
    if let Some(writer) = writer {
        let _ = tokio::task::spawn_blocking(|| writer.join()).await;
    }
    led.and(health.check()).map_err(Error::from)
}

/// Begins to keep a history, if there is a directory for it.
fn history(directory: Option<&Path>) -> Result<(History, Option<std::thread::JoinHandle<()>>), Error> {
    let Some(directory) = directory else { return Ok(<_>::default()) };
    let started = History::start(directory);
    let failed = |source| Error::History { directory: directory.to_owned(), source };
    started.map(|(history, writer)| (history, Some(writer))).map_err(failed)
}

/// Follows where the scheduler is reached.
fn watch_scheduler(always: &mut Tasks, shared: &Arc<Shared>, namespace: &str) {
    if shared.config.scheduler.none {
        return;
    }
    let (lease, pods, namespace) = (Arc::clone(shared), Arc::clone(shared), namespace.to_owned());
    always.spawn("watch of the scheduler's lease", async move {
        lease.scheduler.follow_lease(lease.client.clone(), &namespace).await;
    });
    always.spawn("watch of scheduler pods", async move {
        let scheduler = &pods.config.scheduler;
        let (name, port) = (&scheduler.scheduler_name, scheduler.request_port);
        pods.scheduler.follow_pods(pods.client.clone(), name, port).await;
    });
}

/// Returns when the task of an exporter ends, or panics with it. The tasks end when all senders are gone, so none of them
/// ends as long as the agent runs.
async fn ended_early(tasks: &mut [JoinHandle<()>]) {
    if tasks.is_empty() {
        return std::future::pending().await;
    }
    if let (Err(error), ..) = select_all(tasks).await
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

/// Ends all tasks of a fleet when dropped.
struct Cleared<'a>(&'a Fleet);

impl Drop for Cleared<'_> {
    fn drop(&mut self) {
        self.0.clear();
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })
}

/// Where informants call the agent, if guests may have them.
async fn listen_to_informants(
    config: &Config,
    metrics: &Arc<Metrics>,
) -> Result<Option<(informant::Settings, TcpListener)>, Error> {
    let Some(informant) = config.agent.informant.clone() else { return Ok(None) };
    let address = SocketAddr::new(config.listen.ip(), informant.callback_port);
    let listener = listen(address).await?;
    let callbacks = Callbacks::new(advertised(address, config.pod_ip), Arc::clone(metrics));
    Ok(Some((informant::Settings { config: Arc::new(informant), callbacks }, listener)))
}

/// Starts all servers; the address of the one with TLS, as others reach it.
async fn serve(
    always: &mut Tasks,
    config: &Config,
    certificate: &Certificate,
    inspector: Arc<Inspector>,
) -> Result<SocketAddr, Error> {
    let listener = listen(config.listen).await?;
    let address = listener.local_addr().unwrap_or(config.listen);
    let tls = Arc::new(std::sync::RwLock::new(Arc::new(certificate.server_config()?)));
    let budget = Arc::default();
    let gate = Gate::new(PRIVATE, &budget, |peer| peer.is_one_of(&[OPERATORS]));
    let answer = inspector.handler(Inspector::inspect);
    always.spawn("inspection server", http::serve(listener, Some(tls), gate, only_operators, answer));
    let open = || Gate::open(OPEN, &budget);
    let loopback = |dump: DumpState| SocketAddr::from((Ipv4Addr::LOCALHOST, dump.port));
    if let Some(address) = config.dump_state.or(config.agent.dump_state.map(loopback)) {
        if !address.ip().is_loopback() {
            tracing::warn!(%address, "every client that reaches this address reads the state of all VMs");
        }
        let answer = inspector.handler(Inspector::dump);
        always.spawn("dump server", http::serve(listen(address).await?, None, open(), dump_head, answer));
    }
    if let Some(address) = config.metrics {
        let answer = inspector.handler(Inspector::metrics);
        let server = http::serve(listen(address).await?, None, open(), http::no_body, answer);
        always.spawn("metrics server", server);
    }
    if let Some(address) = config.vm_metrics {
        let answer = inspector.handler(Inspector::vm_metrics);
        let server = http::serve(listen(address).await?, None, open(), http::no_body, answer);
        always.spawn("VM metrics server", server);
    }
    if let Some(address) = config.probes {
        let answer = move |path: &str| inspector.probe(path);
        always.spawn("probes", http::probes(listen(address).await?, answer));
    }
    Ok(advertised(address, config.pod_ip))
}

#[derive(Clone, Copy)]
enum Kind {
    Billing,
    Scaling,
}

fn exporters(
    config: &AgentConfig,
    metrics: &Arc<Metrics>,
    kind: Kind,
) -> Result<(Vec<Exporter>, Vec<JoinHandle<()>>), Error> {
    let (key, clients, layout, names) = match kind {
        Kind::Billing => (
            "billing.clients",
            config.billing.as_ref().map(|billing| &billing.clients),
            Layout::Billing,
            exporter::Names {
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
            exporter::Names {
                queue: "autoscaling_agent_scalingevents_queue_size",
                took: "autoscaling_agent_scalingevents_last_send_duration_seconds",
                errors: "autoscaling_agent_scalingevents_send_errors_total",
                dropped: "autoscaling_agent_scalingevents_dropped_events_total",
            },
        ),
    };
    let Some(clients) = clients else { return Ok((Vec::new(), Vec::new())) };
    let targets = Target::all(clients, layout).map_err(|reason| Error::Exporter { key, reason })?;
    let started = targets.into_iter().map(|(target, push)| Exporter::start(target, push, names, metrics));
    Ok(started.unzip())
}
