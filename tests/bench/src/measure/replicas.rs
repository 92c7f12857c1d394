//! A replica autoscaler with 1,000 objects of 20 pods each: API server and pods are played in this process; the autoscaler is a
//! child of its own, so that its memory and processor time are its own. Every pod has an address of its own in 127.0.0.0/8;
//! one listener answers for all of them.
//!
//! Turns are spread over the period. To see a whole round at once the autoscaler is stopped for longer than a period and
//! continued: then all objects are due.

mod pods;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use neonvm_api::PodAutoscaler;
use neonvm_local::Server;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use self::pods::Counts;
use super::Setup;
use super::objects::create;
use crate::fleet::{client, define, quiet};
use crate::process::cpu_of;
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

/// One round, seen from outside.
#[derive(Clone, Copy, Debug)]
struct Round {
    wall: Duration,
    cpu: Duration,
}

/// All of it.
pub(super) async fn run(setup: &Setup) -> anyhow::Result<Vec<Row>> {
    files();
    let directory = setup.directory()?;
    let config = neonvm_local::server::Config {
        directory: directory.path().to_owned(),
        listen: "127.0.0.1:0".parse()?,
        names: Vec::new(),
        faults: false,
    };
    let server = Server::start(&config).await?;
    let kubeconfig = directory.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig("replicas").to_string())?;
    let state = server.state();
    let client = client(&kubeconfig).await?;
    let mut playing = JoinSet::new();
    playing.spawn(server.run(std::future::pending()));
    define(&client).await?;
    let counts = Arc::new(Counts::default());
    let listener = pods::listen(PORT).await?;
    playing.spawn(pods::serve(listener, Arc::clone(&counts)));
    cluster(&client).await?;
    let revision = || state.with(|engine| engine.store().revision());

    let autoscaler = Autoscaler::start(setup.program.path(), &kubeconfig, directory.path()).await?;
    let first = autoscaler.round(0).await?;
    // What it has to say at first it says once; then there is rest.
    tokio::time::sleep(WINDOW + PERIOD * 2).await;
    quiet(revision).await?;
    let (writes, opened) = (revision(), counts.connections.load(Ordering::Relaxed));
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let before = autoscaler.stop().await?;
        tokio::time::sleep(PERIOD + PERIOD / 5).await;
        let read = counts.answers.load(Ordering::Relaxed);
        autoscaler.signal(Signal::CONT)?;
        rounds.push(autoscaler.round(before).await?);
        let read = counts.answers.load(Ordering::Relaxed) - read;
        // Some objects were in the middle of their turn when it was stopped.
        ensure!(read >= OBJECTS * PODS * 9 / 10, "a round reads {read} pods only");
    }
    let writes = revision() - writes;
    let opened = counts.connections.load(Ordering::Relaxed) - opened;
    let memory = (autoscaler.memory("VmRSS:")?, autoscaler.memory("VmHWM:")?);
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
    let (wall, cpu) = (median(|round| round.wall), median(|round| round.cpu));
    let fastest = rounds.iter().map(|round| round.wall.as_secs_f64()).fold(f64::INFINITY, f64::min);
    vec![
        Row::at_most(NAME, "all evaluated at once", wall, "s", 1.0).note(format!(
            "{OBJECTS} objects, {PODS} pods each; median of {}, fastest {fastest:.2} s; {cores} cores, pods and API server on them, too",
            rounds.len()
        )),
        Row::plain(NAME, "processor time of that", cpu, "s").note("of the autoscaler alone"),
        Row::plain(NAME, "the first round after a start", first.wall.as_secs_f64(), "s")
            .note(format!("a connection to every pod is made; {:.2} s of processor", first.cpu.as_secs_f64())),
        Row::at_most(NAME, "writes of those rounds", writes as f64, "", 0.0).note("nothing changed"),
        Row::plain(NAME, "connections made in them", opened as f64, ""),
        Row::at_most(NAME, "memory, at most", mib(memory.1), "MiB", 200.0)
            .note(format!("{:.0} MiB at the end", mib(memory.0))),
    ]
}

/// This process and its children may open so many files, if it has the right to say so.
fn files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|files| files < FILES) {
        let maximum = limit.maximum.map(|files| files.max(FILES));
        // Without it connections are made anew, which the numbers show.
        setrlimit(Resource::Nofile, Rlimit { current: Some(FILES), maximum }).ok();
    }
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

/// The autoscaler as a process of its own; killed when dropped.
struct Autoscaler {
    child: Child,
    metrics: SocketAddr,
}

impl Autoscaler {
    async fn start(program: &Path, kubeconfig: &Path, directory: &Path) -> anyhow::Result<Self> {
        // Free now; whoever takes it in between makes the start fail.
        let metrics = tokio::net::TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
        let log = std::fs::File::create(directory.join("autoscaler.log"))?;
        let mut command = Command::new(program);
        command.arg("pod-autoscaler").arg("--kubeconfig").arg(kubeconfig);
        command.args(["--metrics-bind-address", &metrics.to_string()]).env("RUST_LOG", "warn");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let autoscaler = Self { child, metrics };
        let deadline = Instant::now() + PATIENCE;
        while autoscaler.turns().await.is_err() {
            ensure!(Instant::now() < deadline, "the autoscaler does not serve its metrics");
            tokio::time::sleep(LOOK).await;
        }
        Ok(autoscaler)
    }

    /// Waits until every object had its turn since there were `before` of them; counts from the first.
    async fn round(&self, before: u64) -> anyhow::Result<Round> {
        let (mut begun, mut cpu) = (Instant::now(), self.cpu()?);
        let deadline = begun + PATIENCE;
        loop {
            let done = self.turns().await?.saturating_sub(before);
            if done >= OBJECTS as u64 {
                return Ok(Round { wall: begun.elapsed(), cpu: self.cpu()?.saturating_sub(cpu) });
            }
            if done == 0 && before == 0 {
                // It still lists.
                (begun, cpu) = (Instant::now(), self.cpu()?);
            }
            ensure!(Instant::now() < deadline, "{done} turns of {OBJECTS} only");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Stops it between two turns; answers with their count until then.
    async fn stop(&self) -> anyhow::Result<u64> {
        let turns = self.turns().await?;
        self.signal(Signal::STOP)?;
        Ok(turns)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let process = Pid::from_child(&self.child);
        Ok(kill_process(process, signal)?)
    }

    async fn turns(&self) -> anyhow::Result<u64> {
        self.counter("neonvm_pod_autoscaler_turns_total").await
    }

    /// A counter from its metrics.
    async fn counter(&self, name: &str) -> anyhow::Result<u64> {
        let mut stream = TcpStream::connect(self.metrics).await?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.trim().parse().ok()).with_context(|| format!("no {name} in {text:?}"))
    }

    /// In bytes.
    fn memory(&self, field: &str) -> anyhow::Result<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.and_then(|rest| rest.split_whitespace().next()).and_then(|n| n.parse::<u64>().ok());
        Ok(kib.with_context(|| format!("no {field} in the status of the autoscaler"))? * 1024)
    }

    fn cpu(&self) -> anyhow::Result<Duration> {
        cpu_of(&self.child.id().to_string())
    }
}

impl Drop for Autoscaler {
    fn drop(&mut self) {
        // It may be gone already; there is nobody to tell. SIGKILL ends a stopped one, too.
        if self.child.kill().is_ok() {
            self.child.wait().ok();
        }
    }
}
