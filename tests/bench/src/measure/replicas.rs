//! A replica autoscaler with 1,000 objects of 20 pods each: API server and pods are simulated in this process; the autoscaler is
//! a child of its own, so that its memory and processor time are its own. Every pod has an address of its own in 127.0.0.0/8;
//! one listener answers for all of them.
//!
//! Turns are spread over the period. To see a whole round at once the autoscaler is stopped for longer than a period and
//! continued: then all objects are due.

mod autoscaler;
mod pods;

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::ensure;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use neonvm_api::PodAutoscaler;
use neonvm_apiserver::Server;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::autoscaler::Autoscaler;
use self::pods::Pods;
use super::Setup;
use super::objects::create;
use crate::fleet::{client, define, quiet};
use crate::process::{open_files, own_cpu};
use crate::report::{Row, quantile};

/// Name for `--only`.
const NAME: &str = "replicas";
const OBJECTS: usize = 1_000;
/// Of each object.
const PODS: usize = 20;
/// Pods' port; not a usual one, so that a local cluster may run beside this.
const PORT: u16 = 25_992;
/// Time between two turns of an object.
const PERIOD: Duration = Duration::from_secs(10);
/// Stable window of an object: it starts in panic and is calm after that.
const WINDOW: Duration = Duration::from_secs(30);
/// Rounds that are measured, all at once each.
const ROUNDS: usize = 5;
/// Open files for a connection to each pod, at both ends, and all else.
const FILES: u64 = 65_536;
/// Longest wait for a round.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks at the counters.
const LOOK: Duration = Duration::from_millis(5);
/// Readings after which the turns are counted: who asks for them takes processor time from the round.
const MOST_READ: usize = OBJECTS * PODS * 9 / 10;

/// Processor time so far.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    autoscaler: Duration,
    pods: Duration,
    /// API server, and the little that the measurement itself takes.
    server: Duration,
}

impl Spent {
    fn now(autoscaler: &Autoscaler, pods: &Pods) -> anyhow::Result<Self> {
        let used = pods.cpu()?;
        Ok(Self {
            autoscaler: autoscaler.service.cpu()?,
            pods: used,
            server: own_cpu()?.saturating_sub(used),
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            autoscaler: self.autoscaler.saturating_sub(before.autoscaler),
            pods: self.pods.saturating_sub(before.pods),
            server: self.server.saturating_sub(before.server),
        }
    }
}

/// One round, seen from outside.
#[derive(Clone, Copy, Debug)]
struct Round {
    wall: Duration,
    spent: Spent,
}

impl Round {
    /// Waits until every object had its turn since there were `turns` of them; counts from the first reading after
    /// `answers` if nothing was read before, from now otherwise.
    async fn from_autoscaler(autoscaler: &Autoscaler, pods: &Pods, turns: u64) -> anyhow::Result<Self> {
        let answers = pods.answers();
        let (mut begun, mut before) = (Instant::now(), Spent::now(autoscaler, pods)?);
        let deadline = begun + PATIENCE;
        loop {
            let read = pods.answers() - answers;
            if read >= MOST_READ && autoscaler.turns().await?.saturating_sub(turns) >= OBJECTS as u64 {
                let spent = Spent::now(autoscaler, pods)?.since(before);
                return Ok(Self { wall: begun.elapsed(), spent });
            }
            if answers == 0 && read == 0 {
                // It still lists.
                (begun, before) = (Instant::now(), Spent::now(autoscaler, pods)?);
            }
            ensure!(
                Instant::now() < deadline,
                "a round of {read} readings only, or some objects had no turn"
            );
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// All of it.
pub(super) async fn run(setup: &Setup) -> anyhow::Result<Vec<Row>> {
    open_files(FILES);
    let directory = setup.directory()?;
    let config = neonvm_apiserver::server::Config {
        directory: directory.path().to_owned(),
        listen: "127.0.0.1:0".parse()?,
        names: Vec::new(),
        faults: false,
        has_hpa_controller: true,
    };
    let server = Server::start(&config).await?;
    let kubeconfig = directory.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig("replicas").to_string())?;
    let state = server.state();
    let client = client(&kubeconfig).await?;
    let mut playing = JoinSet::new();
    playing.spawn(crate::fleet::until_it_fails(server));
    define(&client).await?;
    let pods = Pods::start(PORT)?;
    cluster(&client).await?;
    let revision = || state.with(|engine| engine.store().revision());

    let autoscaler = Autoscaler::start(setup.program.path(), &kubeconfig, directory.path()).await?;
    let first = Round::from_autoscaler(&autoscaler, &pods, 0).await?;
    // After its first messages it is idle.
    tokio::time::sleep(WINDOW + PERIOD * 2).await;
    quiet(revision).await?;
    let (writes, opened) = (revision(), pods.connections());
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let before = autoscaler.stop().await?;
        tokio::time::sleep(PERIOD + PERIOD / 5).await;
        autoscaler.service.signal(Signal::CONT)?;
        rounds.push(Round::from_autoscaler(&autoscaler, &pods, before).await?);
    }
    let writes = revision() - writes;
    let opened = pods.connections() - opened;
    let memory = (autoscaler.service.memory()?, autoscaler.service.peak_memory()?);
    let failures = autoscaler.counter("neonvm_pod_autoscaler_scrape_failures_total").await?;
    ensure!(failures == 0, "{failures} readings failed");
    Ok(rows(first, &rounds, writes, opened, memory))
}

fn rows(first: Round, rounds: &[Round], writes: u64, opened: usize, memory: (u64, u64)) -> Vec<Row> {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let median = |of: fn(&Round) -> Duration| {
        quantile(&mut rounds.iter().map(|round| of(round).as_secs_f64()).collect::<Vec<_>>(), 0.5)
    };
    let wall = median(|round| round.wall);
    let fastest = rounds.iter().map(|round| round.wall.as_secs_f64()).fold(f64::INFINITY, f64::min);
    let (pods, server) = (median(|round| round.spent.pods), median(|round| round.spent.server));
    vec![
        Row::at_most(NAME, "all evaluated at once", wall, "s", 1.0).note(format!(
            "{OBJECTS} objects, {PODS} pods each; median of {}, fastest {fastest:.2} s; {cores} cores, pods and API server on them, too",
            rounds.len()
        )),
        Row::plain(NAME, "processor time of that", median(|round| round.spent.autoscaler), "s")
            .note(format!("of the autoscaler; simulated pods {pods:.2} s, API server {server:.2} s on the same cores")),
        Row::plain(NAME, "the first round after a start", first.wall.as_secs_f64(), "s")
            .note(format!("a connection to every pod is made; {:.2} s of processor", first.spent.autoscaler.as_secs_f64())),
        Row::at_most(NAME, "writes of those rounds", writes as f64, "", 0.0).note("nothing changed"),
        Row::plain(NAME, "connections made in them", opened as f64, ""),
        Row::at_most(NAME, "memory, at most", mib(memory.1), "MiB", 200.0)
            .note(format!("{:.0} MiB at the end", mib(memory.0))),
    ]
}

fn name(number: usize) -> String {
    format!("app-{number}")
}

fn deployment(number: usize) -> Value {
    let name = name(number);
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": PODS, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

fn pod(number: usize) -> Value {
    let address = Ipv4Addr::from(0x7f12_0001 + u32::try_from(number).unwrap_or(0));
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("pod-{number}"), "labels": {"app": name(number / PODS)}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "podIP": address.to_string(),
            "conditions": [{"type": "Ready", "status": "True"}]}})
}

fn object(number: usize) -> Value {
    let name = name(number);
    let strategy = if number.is_multiple_of(2) { "KPA" } else { "APA" };
    json!({"apiVersion": "autoscaling.aibrix.ai/v1alpha1", "kind": "PodAutoscaler", "metadata": {"name": name},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1, "maxReplicas": 100, "scalingStrategy": strategy, "syncPeriodSeconds": PERIOD.as_secs(),
            "observeWindowSeconds": WINDOW.as_secs(), "panicWindowSeconds": PERIOD.as_secs(),
            "metricsSources": [{"metricSourceType": "pod", "protocolType": "http", "path": "/metrics",
                "port": PORT.to_string(), "targetMetric": pods::METRIC, "targetValue": "10"}]}})
}

async fn cluster(client: &Client) -> anyhow::Result<()> {
    create::<Deployment>(client, true, OBJECTS, deployment).await?;
    create::<Pod>(client, true, OBJECTS * PODS, pod).await?;
    create::<PodAutoscaler>(client, true, OBJECTS, object).await
}
