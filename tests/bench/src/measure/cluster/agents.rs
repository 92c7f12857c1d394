//! Simulated agents: one for each node, with the certificate, the lease and the connections of a real one. For each VM a request
//! goes to the scheduler as often as the agent's defaults require for a VM at rest.

mod account;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::StatusCode;
use kube::Client;
use neonvm_api::names::{SCHEDULER_LEASE, agent_lease};
use neonvm_kit::authority::{self, AGENTS, SCHEDULER_NAME, agent_common_name};
use neonvm_kit::call::Callers;
use neonvm_kit::lease::{self, Elector, Times};
use neonvm_kit::service::{self, Endpoint};
use neonvm_kit::tls;
use neonvm_types::scheduler_protocol::{AgentRequest, Metrics, PluginResponse};
use neonvm_types::version::PluginProtoVersion;
use neonvm_types::{MilliCpu, NamespacedName, Resources};
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::rustls::client::Resumption;

pub(super) use self::account::{Account, Totals};
use crate::fleet::NAMESPACE;

/// Between two requests for a VM at rest; with the next two, the agent's defaults.
pub(super) const PERIOD: Duration = Duration::from_secs(15);
/// Longest wait for a reply.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause after a request that failed.
const RETRY: Duration = Duration::from_secs(3);
/// Connections of an agent.
const CONNECTIONS: usize = 8;
/// Nodes whose leases share a connection to the API server.
const SHARE: usize = 64;
/// CPU and memory of the compute unit, which is also the size at which a VM starts.
const UNIT: Resources = Resources::new(MilliCpu::new(250), neonvm_types::Bytes::gib(1));
/// Of so many VMs one is permitted a second unit.
const LARGER: usize = 10;

/// The agent of a node.
#[derive(Debug)]
struct Agent {
    callers: Callers,
    places: Semaphore,
}

/// A VM as its agent sees it.
#[derive(Debug)]
struct Vm {
    /// Milliseconds from the start to the last permit, plus one; 0: none yet.
    last: AtomicU64,
    task: Mutex<Option<AbortHandle>>,
}

/// All agents.
#[derive(Debug)]
pub(super) struct Agents {
    nodes: HashMap<String, Arc<Agent>>,
    vms: Mutex<HashMap<String, Arc<Vm>>>,
    scheduler: watch::Receiver<Option<Endpoint>>,
    begun: Instant,
    /// What came of requests.
    pub(super) account: Account,
    /// Leases, and the watch of the scheduler's. Aborted when dropped.
    tasks: Mutex<JoinSet<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Agents {
    /// Those of these nodes, each with a certificate of the internal authority.
    pub(super) async fn start_all(client: &Client, nodes: Vec<String>) -> anyhow::Result<Arc<Self>> {
        let authority = authority::open(client, NAMESPACE, authority::INTERNAL, "bench").await?;
        let mut all = HashMap::new();
        for node in nodes {
            let identity = authority.client(&agent_common_name(&node), &[AGENTS])?;
            let mut config = tls::client(Some(&identity), authority.certificate().as_bytes())?;
            // As those of services, whose certificates are exchanged.
            config.resumption = Resumption::disabled();
            let callers = Callers::new(Arc::new(config), SCHEDULER_NAME, CONNECTIONS);
            all.insert(node, Arc::new(Agent { callers, places: Semaphore::new(CONNECTIONS) }));
        }
        let (found, scheduler) = watch::channel(None);
        let mut tasks = JoinSet::new();
        let own = client.clone();
        tasks.spawn(async move {
            service::follow(&own, NAMESPACE, SCHEDULER_LEASE, |endpoint| {
                found.send_replace(endpoint);
            })
            .await;
        });
        Ok(Arc::new(Self {
            nodes: all,
            vms: Mutex::default(),
            scheduler,
            begun: Instant::now(),
            account: Account::default(),
            tasks: Mutex::new(tasks),
        }))
    }

    /// Takes and renews the lease of each node, as agents do, until this is dropped.
    pub(super) async fn hold_leases(
        &self,
        connect: impl AsyncFn() -> anyhow::Result<Client>,
    ) -> anyhow::Result<()> {
        let nodes: Vec<&String> = self.nodes.keys().collect();
        for some in nodes.chunks(SHARE) {
            let client = connect().await?;
            for node in some {
                let mut config = lease::Config::new(NAMESPACE, agent_lease(node), format!("agent-{node}"));
                config.times = Times::of_each_node();
                let elector = Elector::new(client.clone(), config);
                lock(&self.tasks).spawn(async move {
                    let led =
                        elector.lead(std::future::pending(), std::future::pending::<Result<(), Infallible>>);
                    led.await.ok();
                });
            }
        }
        Ok(())
    }

    /// Whether the scheduler's lease has a holder.
    pub(super) fn know_scheduler(&self) -> bool {
        self.scheduler.borrow().is_some()
    }

    /// A VM has started.
    pub(super) fn start(self: &Arc<Self>, node: &str, pod: &str) {
        let Some(agent) = self.nodes.get(node).cloned() else { return };
        let vm = Arc::new(Vm { last: AtomicU64::new(0), task: Mutex::default() });
        let (agents, name, own) = (Arc::clone(self), pod.to_owned(), Arc::clone(&vm));
        let task = tokio::spawn(async move { agents.scale(&agent, &own, name).await });
        *lock(&vm.task) = Some(task.abort_handle());
        lock(&self.vms).insert(pod.to_owned(), vm);
    }

    /// A VM has ended.
    pub(super) fn stop(&self, pod: &str) {
        let gone = lock(&self.vms).remove(pod);
        if let Some(task) = gone.and_then(|vm| lock(&vm.task).take()) {
            task.abort();
        }
    }

    /// All VMs have ended.
    pub(super) fn stop_all(&self) {
        let all: Vec<String> = lock(&self.vms).keys().cloned().collect();
        all.iter().for_each(|pod| self.stop(pod));
        lock(&self.tasks).abort_all();
    }

    /// VMs whose last permit came after `since`, and all VMs.
    pub(super) fn permitted_since(&self, since: Instant) -> (usize, usize) {
        let since = self.millis(since);
        let vms = lock(&self.vms);
        (vms.values().filter(|vm| vm.last.load(Ordering::Relaxed) > since).count(), vms.len())
    }

    /// VMs without a permit.
    pub(super) fn without_permit(&self) -> usize {
        lock(&self.vms).values().filter(|vm| vm.last.load(Ordering::Relaxed) == 0).count()
    }

    fn millis(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.begun).as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    /// Requests the same size again and again.
    async fn scale(&self, agent: &Agent, vm: &Vm, pod: String) {
        let larger =
            pod.bytes().fold(0, |sum: usize, byte| sum.wrapping_mul(31) ^ usize::from(byte)) % LARGER == 0;
        let wanted = if larger { UNIT.saturating_mul(2) } else { UNIT };
        let mut held = None;
        loop {
            let asked = Instant::now();
            match self.ask(agent, &pod, (wanted, held)).await {
                Ok(permit) => {
                    let lost = held.is_some_and(|held: Resources| held.any_greater(permit));
                    self.account.permitted(asked.elapsed(), lost);
                    held = Some(permit);
                    vm.last.store(self.millis(Instant::now()), Ordering::Relaxed);
                    tokio::time::sleep(PERIOD).await;
                }
                Err(error) => {
                    self.account.failed(&error);
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    async fn ask(
        &self,
        agent: &Agent,
        pod: &str,
        (wanted, held): (Resources, Option<Resources>),
    ) -> anyhow::Result<Resources> {
        let endpoint = (*self.scheduler.borrow()).context("no scheduler")?;
        let request = AgentRequest {
            proto_version: PluginProtoVersion::V5_0,
            pod: NamespacedName::new("default", pod),
            compute_unit: UNIT,
            resources: wanted,
            last_permit: held,
            metrics: Some(Metrics { load_avg_1m: 0.01, load_avg_5m: None, memory_usage_bytes: None }),
        };
        let body = Bytes::from(serde_json::to_vec(&request)?);
        let until = tokio::time::Instant::now() + PATIENCE;
        let place = tokio::time::timeout_at(until, agent.places.acquire()).await;
        let Ok(Ok(_place)) = place else { bail!("busy") };
        let left = until.saturating_duration_since(tokio::time::Instant::now());
        let (status, answer) = agent.callers.post(endpoint, body, left).await.context("no reply")?;
        if status != StatusCode::OK {
            bail!("{status}: {}", String::from_utf8_lossy(&answer).trim());
        }
        Ok(PluginResponse::decode(&answer)?.permit)
    }
}
