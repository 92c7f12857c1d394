//! A cluster with a scheduler, guests and agents.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, StatusCode};
use kube::Client;
use neonvm_agent::{AgentConfig, Config};
use neonvm_api::names::agent_lease;
use neonvm_kit::authority::{self, OPERATORS, agent_name};
use neonvm_kit::call::Caller;
use neonvm_kit::port::Reserved;
use neonvm_kit::service;
use neonvm_types::agent_inspect::{AgentInspect, VmInspect};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, NAMESPACE, NODE, eventually};
use crate::guest::Guest;
use crate::scheduler::Scheduler;

pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) scheduler: Scheduler,
    /// The VMs `v0`, `v1`, …
    pub(crate) guests: Vec<Guest>,
}

/// An agent. Dropped, it is gone at once, as if it was killed.
pub(crate) struct Agent {
    task: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
    pub(crate) metrics: Reserved,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Agent {
    /// Stops it as SIGTERM does, and waits until it is gone.
    pub(crate) async fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        (&mut self.task).await.unwrap();
    }

    pub(crate) fn is_alive(&self) -> bool {
        !self.task.is_finished()
    }

    /// The text of the agent's metrics.
    pub(crate) async fn metrics(&self) -> String {
        let endpoint = service::Endpoint { address: self.metrics.address(), plain: true };
        let mut caller = Caller::new(endpoint, None, "");
        let within = Duration::from_secs(10);
        let (status, body) = caller.call(Method::GET, "/metrics", Bytes::new(), within).await.unwrap();
        assert_eq!(status, StatusCode::OK);
        String::from_utf8(body.to_vec()).unwrap()
    }
}

pub(crate) fn set(document: &mut Value, path: &str, value: impl Into<Value>) {
    *path.split('.').fold(document, |at, key| &mut at[key]) = value.into();
}

impl World {
    /// With so many VMs and guests that behave; no agent yet.
    pub(crate) async fn start(vms: u8) -> Self {
        let cluster = Cluster::start().await;
        let scheduler = Scheduler::start(&cluster).await;
        cluster.scheduler_is_at(Some(scheduler.endpoint())).await;
        let mut world = Self { cluster, scheduler, guests: Vec::new() };
        for number in 0..vms {
            let guest = world.guest(number).await;
            world.cluster.vm(&format!("v{number}"), &guest.ip.to_string(), json!({})).await;
            world.guests.push(guest);
        }
        world
    }

    /// The guest of the VM with this number. All have the same ports, at different addresses.
    pub(crate) async fn guest(&self, number: u8) -> Guest {
        let ports = self.guests.first().map(Guest::ports);
        Guest::start([127, 0, 0, number + 1].into(), ports).await
    }

    /// The agent's configuration: everything as fast as it can be.
    pub(crate) fn settings(&self) -> Value {
        let mut settings = serde_json::to_value(AgentConfig::default()).unwrap();
        let (metrics, monitor) = self.guests[0].ports();
        for (path, value) in [
            ("monitor.serverPort", u64::from(monitor)),
            ("monitor.responseTimeoutSeconds", 1),
            ("monitor.connectionTimeoutSeconds", 1),
            ("monitor.connectionRetryMinWaitSeconds", 1),
            ("monitor.unhealthyAfterSilenceDurationSeconds", 8),
            ("monitor.unhealthyStartupGracePeriodSeconds", 1),
            ("monitor.maxHealthCheckSequentialFailuresSeconds", 7),
            ("monitor.retryDeniedDownscaleSeconds", 1),
            // Long enough to become true before it is forgotten.
            ("monitor.requestedUpscaleValidSeconds", 8),
            ("monitor.retryFailedRequestSeconds", 1),
            ("metrics.system.port", u64::from(metrics)),
            ("metrics.system.requestTimeoutSeconds", 1),
            ("metrics.system.secondsBetweenRequests", 1),
            ("scheduler.requestTimeoutSeconds", 1),
            ("scheduler.requestAtLeastEverySeconds", 2),
            ("scheduler.retryFailedRequestSeconds", 1),
            ("scheduler.retryDeniedUpscaleSeconds", 1),
            ("neonvm.requestTimeoutSeconds", 2),
            ("neonvm.retryFailedRequestSeconds", 1),
        ] {
            set(&mut settings, path, value);
        }
        settings
    }

    pub(crate) fn config(&self, identity: &str, settings: &Value) -> Config {
        let loopback: SocketAddr = ([127, 0, 0, 1], 0).into();
        Config {
            kubeconfig: Some(self.cluster.server.kubeconfig()),
            node: NODE.into(),
            namespace: NAMESPACE.into(),
            identity: identity.into(),
            listen: loopback,
            pod_ip: None,
            metrics: None,
            dump_state: None,
            probes: None,
            vm_metrics: None,
            history: None,
            agent: AgentConfig::parse(&settings.to_string(), "agent.json").unwrap(),
        }
    }

    /// With a separate port for its metrics.
    pub(crate) fn run(config: Config) -> Agent {
        Self::spawn(None, config)
    }

    /// The same with a client at hand.
    pub(crate) fn run_with(client: Client, config: Config) -> Agent {
        Self::spawn(Some(client), config)
    }

    fn spawn(client: Option<Client>, mut config: Config) -> Agent {
        let metrics = Reserved::loopback().unwrap();
        config.metrics = Some(metrics.address());
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let stop = async {
                if stopped.await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let ended = match client {
                Some(client) => neonvm_agent::run_with(client, config, stop).await,
                None => neonvm_agent::run(config, stop).await,
            };
            ended.unwrap();
        });
        Agent { task, stop: Some(stop), metrics }
    }

    /// An agent that scales the VMs of the node.
    pub(crate) async fn agent(&self) -> Agent {
        self.agent_with(&self.settings()).await
    }

    pub(crate) async fn agent_with(&self, settings: &Value) -> Agent {
        let agent = Self::run(self.config("a", settings));
        eventually("the agent", async || {
            self.try_inspect().await.filter(|i| i.vms.len() >= self.guests.len())
        })
        .await;
        agent
    }

    async fn try_inspect(&self) -> Option<AgentInspect> {
        let client = &self.cluster.client;
        // The API server may be having a bad day.
        let endpoint = service::find(client, NAMESPACE, &agent_lease(NODE)).await.ok()??;
        let authority = authority::read(client, NAMESPACE).await.ok()?;
        let identity = authority.client("other", &[OPERATORS]).unwrap();
        let tls = neonvm_kit::tls::client(Some(&identity), authority.certificate().as_bytes()).unwrap();
        let mut caller = Caller::new(endpoint, Some(Arc::new(tls)), agent_name(NODE));
        let within = Duration::from_secs(10);
        let (status, body) = caller.call(Method::GET, "/v1/inspect", Bytes::new(), within).await.ok()?;
        assert_eq!(status, StatusCode::OK);
        Some(serde_json::from_slice(&body).unwrap())
    }

    /// What the agent that has the lease shows.
    pub(crate) async fn inspect(&self) -> AgentInspect {
        eventually("an answer of the agent", async || self.try_inspect().await).await
    }

    /// What the agent shows of a VM, if it does.
    pub(crate) async fn view(&self, vm: &str) -> Option<VmInspect> {
        self.inspect().await.vms.into_iter().find(|view| view.name == vm)
    }

    /// Waits until what the agent shows of a VM contains a text.
    pub(crate) async fn shows(&self, vm: &str, text: &str) {
        eventually(&format!("{vm}: {text:?}"), async || {
            let view = format!("{:#?}", self.view(vm).await);
            if view.contains(text) { Ok(()) } else { Err(view) }
        })
        .await;
    }

    /// Waits until the metrics of each VM were requested twice more.
    pub(crate) async fn reads_on(&self) {
        let before: Vec<usize> = self.guests.iter().map(|guest| guest.metrics.count()).collect();
        eventually("two more readings of each", async || {
            let all =
                self.guests.iter().zip(&before).all(|(guest, before)| guest.metrics.count() > before + 1);
            all.then_some(())
        })
        .await;
    }

    /// Waits until a VM has so many compute units, shows them, and its monitor has been notified.
    pub(crate) async fn settles(&self, vm: &str, units: u32) {
        let cpu = units * 250;
        eventually(&format!("{vm} settles at {units} units"), async || {
            let view = self.view(vm).await;
            let has =
                |size: Option<neonvm_types::Resources>| size.is_some_and(|size| size.vcpus.milli() == cpu);
            let sizes = view.as_ref().map(|view| [view.asked, view.now, view.approved, view.permit]);
            if sizes.is_some_and(|sizes| sizes.into_iter().all(has)) {
                Ok(())
            } else {
                Err(format!("{view:#?}"))
            }
        })
        .await;
    }
}

/// Counts what comes while nothing should be overdone: no more than so many a second, and a few.
pub(crate) struct Pace {
    since: Instant,
    before: usize,
}

impl Pace {
    pub(crate) fn new(before: usize) -> Self {
        Self { since: Instant::now(), before }
    }

    pub(crate) fn is_kept(&self, what: &str, now: usize, a_second: usize) {
        let most = (usize::try_from(self.since.elapsed().as_secs()).unwrap() + 1) * a_second + 5;
        let count = now - self.before;
        assert!(count <= most, "{what}: {count} within {:?}", self.since.elapsed());
    }
}
