//! An agent with 500 idle VMs: API server, scheduler, runners and guests are simulated in this process; the agent is a child of
//! its own, so that its memory and processor time are its own. Guests are reached as real ones are: through the runner, over TLS.

mod guest;

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use neonvm_api::VirtualMachine;
use neonvm_apiserver::Server;
use neonvm_scheduler::Config;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::guest::Counts;
use super::Setup;
use super::objects::create;
use crate::fleet::{acceptor, client, define, until};
use crate::report::Row;
use crate::service::Service;

/// Name for `--only`.
const NAME: &str = "agents";
const VMS: usize = 500;
/// Runners' port; not the usual one, so that a local cluster may run beside this.
const PORT: u16 = 25_994;
/// After everything is connected, until the agent is at rest.
const SETTLE: Duration = Duration::from_secs(10);
/// Time over which rest is measured: several readings of every guest.
const REST: Duration = Duration::from_secs(30);

/// All of it.
pub(super) async fn run(setup: &Setup) -> anyhow::Result<Vec<Row>> {
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
    std::fs::write(&kubeconfig, server.kubeconfig("agents").to_string())?;
    let client = client(&kubeconfig).await?;
    let mut playing = JoinSet::new();
    playing.spawn(crate::fleet::until_it_fails(server));
    define(&client).await?;
    playing.spawn(crate::fleet::signing(&client).await?);
    let config = Config { kubeconfig: Some(kubeconfig.clone()), ..Config::default() };
    let scheduler = neonvm_scheduler::start(config).await?;
    playing.spawn(async move {
        let _ = scheduler.lead(std::future::pending()).await;
    });
    let counts = Arc::new(Counts::default());
    playing.spawn(guest::serve(acceptor(&client).await?, PORT, Arc::clone(&counts)));

    let start = |node: &str| {
        let arguments: [&OsStr; 4] =
            ["--node".as_ref(), node.as_ref(), "--kubeconfig".as_ref(), kubeconfig.as_ref()];
        Service::start(setup.program.path(), "agent", &arguments, directory.path())
    };
    let none = start("empty")?;
    tokio::time::sleep(SETTLE).await;
    let bare = none.memory()?;
    drop(none);
    cluster(&client).await?;
    let begun = Instant::now();
    let agent = start("n1")?;
    until("every monitor is connected", || counts.monitors.load(Ordering::Relaxed) >= VMS).await?;
    let connected = begun.elapsed().as_secs_f64();
    tokio::time::sleep(SETTLE).await;
    let (before, read) = (agent.cpu()?, counts.readings.load(Ordering::Relaxed));
    tokio::time::sleep(REST).await;
    let used = agent.cpu()?.saturating_sub(before).as_secs_f64();
    let readings = counts.readings.load(Ordering::Relaxed) - read;
    ensure!(readings >= VMS, "the agent reads no metrics: {readings} readings");
    let memory = agent.memory()?;
    Ok(rows(bare, memory, used, readings, connected))
}

fn rows(bare: u64, memory: u64, used: f64, readings: usize, connected: f64) -> Vec<Row> {
    let kib = |bytes: u64| bytes as f64 / 1024.0;
    let each = kib(memory.saturating_sub(bare)) / VMS as f64;
    let share = 100.0 * used / REST.as_secs_f64() / VMS as f64;
    vec![
        Row::at_most(NAME, "memory of an idle VM", each, "KiB", 256.0).note(format!(
            "{VMS} VMs: {:.0} KiB, none: {:.0} KiB",
            kib(memory),
            kib(bare)
        )),
        Row::at_most(NAME, "processor of an idle VM", share, "% of a core", 0.05)
            .note(format!("{used:.2} s in {} s; {readings} readings of metrics over TLS", REST.as_secs())),
        Row::plain(NAME, "start → all monitors connected", connected, "s").note(format!("{VMS} VMs")),
    ]
}

fn vm(number: usize) -> Value {
    let address = std::net::Ipv4Addr::from(0x7f11_0001 + u32::try_from(number).unwrap_or(0));
    json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
        "metadata": {"name": format!("vm-{number}"), "labels": {"autoscaling.neon.tech/enabled": "true"}},
        "spec": {"runnerPort": PORT, "schedulerName": "autoscale-scheduler", "guest": {
            "cpus": {"min": 0.25, "max": 4, "use": 0.25}, "memorySlotSize": "1Gi",
            "memorySlots": {"min": 1, "max": 16, "use": 1}, "rootDisk": {"image": "i"}}},
        "status": {"phase": "Running", "node": "n1", "podName": format!("pod-{number}"), "podIP": address.to_string(),
            "cpus": "250m", "memorySize": "1Gi",
            "machine": {"accelerator": "tcg", "machineType": "pc-q35-7.2"}}})
}

fn pod(number: usize) -> Value {
    let usage = json!({"cpu": "250m", "memory": "1Gi"}).to_string();
    let resources = json!({"cpus": {"min": 0.25, "max": 4, "use": 0.25},
        "memorySlots": {"min": 1, "max": 16, "use": 1}, "memorySlotSize": "1Gi"});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod-{number}"),
        "labels": {"autoscaling.neon.tech/enabled": "true", "vm.neon.tech/name": format!("vm-{number}")},
        "annotations": {"vm.neon.tech/usage": usage, "vm.neon.tech/resources": resources.to_string()}},
        "spec": {"nodeName": "n1", "containers": [{"name": "neonvm-runner", "image": "i"}]}})
}

async fn cluster(client: &Client) -> anyhow::Result<()> {
    create::<Node>(client, false, 1, |_| {
        let amounts = json!({"cpu": "1000", "memory": "4000Gi", "pods": "1000"});
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
            "status": {"allocatable": amounts, "capacity": amounts}})
    })
    .await?;
    create::<Pod>(client, true, VMS, pod).await?;
    create::<VirtualMachine>(client, true, VMS, vm).await
}
