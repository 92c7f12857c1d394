//! Load in a guest → the machine shows more, without a request. Beside the same hot-plug without anything of ours.
//!
//! The machine grows by what its guest sees (run queue, free memory); the slow load average is kept out of it, so that it is back
//! at its least a few seconds after each round.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use neonvm_api::VirtualMachine;
use neonvm_types::MilliCpu;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::super::Setup;
use super::bare::Bare;
use super::cluster::{Cluster, machines};
use super::size::{Change, asked};
use super::watch::Watch;
use super::{LIMIT, NAME_GROWTH as NAME, milliseconds, missing, start};
use crate::report::{Row, Rows, quantile};

const ROUNDS: usize = 20;
/// Rounds of memory that are not counted: the guest writes slowly to memory that its host has never given it before.
const WARM: usize = 3;
/// Beyond the bare hot-plug, in milliseconds.
const GOAL_CPU: f64 = 500.0;
const GOAL_MEMORY: f64 = 400.0;
const SLOT: u64 = 256 << 20;
/// Before each round: while its kernel gives memory back, and two seconds longer, a guest does not ask for CPU.
const REST: Duration = Duration::from_secs(3);
/// After a start: its own load has ended, and the agent has seen it.
const START: Duration = Duration::from_secs(8);
/// The port at which the guest's workload takes commands.
const PORT: u16 = 7000;
/// All virtual CPUs are busy for three seconds.
const BUSY: &str = "for i in $(seq $(nproc)); do timeout 3 sh -c 'while :; do :; done' & done; wait; exit\n";
/// 320 MiB are taken at once, of the 512 that are there, and given back after a second.
const TAKE: &str = "mkdir -p /spike; mountpoint -q /spike || mount -t tmpfs -o size=2g none /spike; \
                    dd if=/dev/zero of=/spike/fill bs=16M count=20 2>/dev/null; sleep 1; rm /spike/fill; exit\n";

/// A step is a whole CPU and half a gibibyte, so that the next step is the next virtual CPU.
fn agent() -> serde_json::Value {
    let rate = json!({"intervalSeconds": 120, "threshold": 2});
    json!({
        "refereshStateIntervalSeconds": 5,
        "scaling": {"computeUnit": {"vCPUs": 1, "mem": "512Mi"}, "defaultConfig": {
            "loadAverageFractionTarget": 0.9, "memoryUsageFractionTarget": 0.75, "memoryTotalFractionTarget": 0.9,
            "enableLFCMetrics": false, "lfcUseLargestWindow": false, "lfcToMemoryRatio": 0.75,
            "lfcMinWaitBeforeDownscaleMinutes": 5, "lfcWindowSizeMinutes": 5,
            "cpuStableZoneRatio": 0.0, "cpuMixedZoneRatio": 0.0}},
        "monitor": {"serverPort": 10301, "responseTimeoutSeconds": 5, "connectionTimeoutSeconds": 4,
            "connectionRetryMinWaitSeconds": 5, "unhealthyAfterSilenceDurationSeconds": 20,
            "unhealthyStartupGracePeriodSeconds": 20, "maxHealthCheckSequentialFailuresSeconds": 30,
            "retryDeniedDownscaleSeconds": 1, "requestedUpscaleValidSeconds": 1, "retryFailedRequestSeconds": 3,
            "maxFailedRequestRate": rate},
        "metrics": {"system": {"port": 9100, "requestTimeoutSeconds": 2, "secondsBetweenRequests": 1},
            "lfc": {"port": 9499, "requestTimeoutSeconds": 5, "secondsBetweenRequests": 15}},
        "scheduler": {"schedulerName": "autoscale-scheduler", "requestTimeoutSeconds": 2,
            "requestAtLeastEverySeconds": 5, "retryFailedRequestSeconds": 3, "retryDeniedUpscaleSeconds": 2,
            "requestPort": 10299, "maxFailedRequestRate": rate},
        "neonvm": {"requestTimeoutSeconds": 10, "retryFailedRequestSeconds": 2, "maxFailedRequestRate": rate},
    })
}

fn machine() -> anyhow::Result<kube::api::DynamicObject> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
        "metadata": {"name": "grows", "labels": {"autoscaling.neon.tech/enabled": "true"},
            "annotations": {"autoscaling.neon.tech/config": r#"{"loadAverageFractionTarget": 1.9}"#}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "guest": {
            "cpus": {"min": 1, "max": 2, "use": 1},
            "memorySlotSize": "256Mi", "memorySlots": {"min": 2, "max": 4, "use": 2},
            "rootDisk": {"image": "busy:1"}, "ports": [{"port": PORT}]}}
    }))?)
}

/// All of it, in a cluster of its own.
pub(in super::super) async fn run(setup: &Setup, rows: &mut Rows) -> anyhow::Result<()> {
    if let Some(missing) = missing()? {
        return rows.push(Row::plain(NAME, "skipped", 0.0, "").note(missing));
    }
    let config = setup.directory()?;
    let file = config.path().join("agent.json");
    std::fs::write(&file, agent().to_string())?;
    let file = file.display().to_string();
    let cluster = Cluster::start(setup, &["--nodes", "1", "--cpus", "4", "--agent-config", &file])?;
    cluster.image()?;
    cluster.image_of("busy:1", &format!("exec nc -ll -p {PORT} -e /bin/sh"))?;
    let reference = start::warm_up(&cluster).await?;
    let client = cluster.client().await?;
    let (mut bare, _) = reference.start(false).await?;
    let measured = rounds(&client, &mut bare, rows).await;
    bare.end()?;
    cluster.down()?;
    measured
}

/// Creates the machine, and waits until what it did at its start is over. The address of its workload.
async fn create(client: &Client) -> anyhow::Result<SocketAddr> {
    let mut watch = Watch::open(client).await?;
    machines(client).create(&PostParams::default(), &machine()?).await?;
    let mut address = String::new();
    watch
        .machine("grows", "started", |machine| {
            address = machine.status.as_ref().map(|status| status.pod_ip.clone()).unwrap_or_default();
            is(machine, 1, 2)
        })
        .await?;
    let address = format!("{address}:{PORT}").parse()?;
    let listens = async {
        while TcpStream::connect(address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(LIMIT, listens).await.context("the workload does not listen")?;
    calm(client).await?;
    Ok(address)
}

/// Waits until the machine is at its least, and the agent has seen it for a while.
async fn calm(client: &Client) -> anyhow::Result<()> {
    for _ in 0..10 {
        tokio::time::sleep(START).await;
        if is(&super::cluster::typed(&machines(client).get("grows").await?)?, 1, 2) {
            return Ok(());
        }
    }
    anyhow::bail!("the machine is not back at its least")
}

/// Takes the machine from the agent, and gives it back at its least.
async fn shrink(client: &Client) -> anyhow::Result<()> {
    let merge = |patch: serde_json::Value| async move {
        machines(client).patch("grows", &PatchParams::default(), &Patch::Merge(patch)).await
    };
    let mut watch = Watch::open(client).await?;
    let least = json!({"cpus": {"use": 1}, "memorySlots": {"use": 2}});
    let label = |value: Option<&str>| json!({"labels": {"autoscaling.neon.tech/enabled": value}});
    merge(json!({"metadata": label(None), "spec": {"guest": least}})).await?;
    if !is(&super::cluster::typed(&machines(client).get("grows").await?)?, 1, 2) {
        watch.machine("grows", "back at its least", |machine| is(machine, 1, 2)).await?;
    }
    tokio::time::sleep(REST).await;
    merge(json!({"metadata": label(Some("true"))})).await?;
    calm(client).await
}

/// Deletes the machine; it must not have been restarted.
async fn delete(client: &Client) -> anyhow::Result<()> {
    let now = machines(client).get("grows").await?;
    let restarts = super::cluster::typed(&now)?.status.map(|status| status.restart_count);
    ensure!(restarts.unwrap_or(0) == 0, "the machine was restarted");
    Watch::open(client).await?.delete(client, "grows").await
}

async fn rounds(client: &Client, bare: &mut Bare, rows: &mut Rows) -> anyhow::Result<()> {
    let device = bare.monitor.memory_device().await?;
    let (up, down) = (Change::Cpus(2), Change::Cpus(1));
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    let address = create(client).await?;
    for _ in 0..ROUNDS {
        tokio::time::sleep(REST).await;
        // A watch of the API server ends after five minutes; all rounds together take longer.
        let mut watch = Watch::open(client).await?;
        ours.push(grows(&mut watch, address, BUSY, up).await.context("CPU")?);
        watch.machine("grows", "back at its least", |machine| is(machine, 1, 2)).await?;
        plain.push(asked(bare, &device, up).await?);
        asked(bare, &device, down).await?;
    }
    rows.push(row("busy loop → next vCPU shown, beyond a bare hot-plug", ours, plain, GOAL_CPU))?;

    // An agent keeps memory for a minute and longer when a machine needs it again soon after it was taken; it forgets that with the
    // machine.
    let (up, down) = (Change::Slots(4), Change::Slots(2));
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for round in 0..WARM + ROUNDS {
        shrink(client).await?;
        let mut watch = Watch::open(client).await?;
        let took = grows(&mut watch, address, TAKE, up).await.context("memory")?;
        if round < WARM {
            continue;
        }
        ours.push(took);
        plain.push(asked(bare, &device, up).await?);
        asked(bare, &device, down).await?;
    }
    delete(client).await?;
    rows.push(row("320 MiB taken → more memory shown, beyond a bare hot-plug", ours, plain, GOAL_MEMORY))
}

fn row(what: &str, mut ours: Vec<f64>, mut plain: Vec<f64>, goal: f64) -> Row {
    let rounds: Vec<String> = ours.iter().map(|took| format!("{took:.0}")).collect();
    let at = |samples: &mut Vec<f64>, share| quantile(samples, share);
    let (median, slowest) = (at(&mut ours, 0.5), at(&mut ours, 1.0));
    let (bare, bare_slowest) = (at(&mut plain, 0.5), at(&mut plain, 1.0));
    Row::at_most(NAME, what, slowest - bare, "ms", goal).note(format!(
        "slowest of {ROUNDS} rounds: {slowest:.0}, median {median:.0} ms; bare: median {bare:.0}, slowest {bare_slowest:.0} ms; rounds: {}",
        rounds.join(" ")
    ))
}

fn is(machine: &VirtualMachine, cpus: u32, slots: u64) -> bool {
    let Some(status) = &machine.status else { return false };
    let memory = status.memory_size.as_ref().map(|size| size.units_rounded_up());
    status.cpus == Some(MilliCpu::new(cpus * 1000)) && memory == Some(i128::from(slots * SLOT))
}

/// Milliseconds from the command to the guest until the status shows more.
async fn grows(watch: &mut Watch, address: SocketAddr, script: &str, up: Change) -> anyhow::Result<f64> {
    let stream = tokio::time::timeout(LIMIT, TcpStream::connect(address)).await.context("the guest")?;
    let mut stream = stream?;
    let begun = Instant::now();
    stream.write_all(script.as_bytes()).await?;
    let shown = watch.machine("grows", "grown", |machine| super::size::shows(machine, up)).await?;
    // The load ends by itself.
    let mut rest = Vec::new();
    tokio::time::timeout(LIMIT, stream.read_to_end(&mut rest)).await.context("the load does not end")??;
    Ok(milliseconds(shown.saturating_duration_since(begun)).max(0.0))
}
