//! The whole service beside the embedded API server, asked within this process: bytes of a request in, bytes of an answer out.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use neonvm_api::VirtualMachine;
use neonvm_apiserver::Server;
use neonvm_kit::http::{FullRequest, FullResponse};
use neonvm_scheduler::{Config, Local};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::super::Setup;
use super::super::objects::create;
use super::{NAME, NODES, VMS, node, pod, wanted};
use crate::fleet::{client, define};
use crate::report::{Row, Rows, quantile};

const REQUESTS: usize = 500_000;
const EVENTS: usize = 200;
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) async fn run(setup: &Setup, rows: &mut Rows) -> anyhow::Result<()> {
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
    std::fs::write(&kubeconfig, server.kubeconfig("scheduler").to_string())?;
    let client = client(&kubeconfig).await?;
    let mut playing = JoinSet::new();
    playing.spawn(crate::fleet::until_it_fails(server));
    define(&client).await?;
    cluster(&client).await?;
    playing.spawn(crate::fleet::signing(&client).await?);
    let begun = Instant::now();
    let config = Config { kubeconfig: Some(kubeconfig), ..Config::default() };
    let running = neonvm_scheduler::start(config).await?;
    let local = running.local();
    playing.spawn(async move {
        let _ = running.lead(std::future::pending()).await;
    });
    ready(&local).await?;
    let ready = begun.elapsed().as_secs_f64();
    rows.push(
        Row::plain(NAME, "service, start → ready to permit", ready, "s")
            .note(format!("{NODES} nodes, {VMS} VMs are listed")),
    )?;
    requests(&local, rows).await?;
    rows.push(events(&client, &local).await?)
}

async fn cluster(client: &Client) -> anyhow::Result<()> {
    create::<Node>(client, false, NODES, |number| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node(number)},
            "status": {"allocatable": allocatable(100), "capacity": allocatable(100)}})
    })
    .await?;
    create::<VirtualMachine>(client, true, VMS, |number| {
        json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
            "metadata": {"name": format!("vm-{number}"), "labels": {"autoscaling.neon.tech/enabled": "true"}},
            "spec": {"guest": guest(), "schedulerName": "autoscale-scheduler"}})
    })
    .await?;
    create::<Pod>(client, true, VMS, |number| {
        let usage = json!({"cpu": "1", "memory": "4Gi"}).to_string();
        let resources = json!({"cpus": {"min": 1, "max": 8, "use": 1},
            "memorySlots": {"min": 4, "max": 32, "use": 4}, "memorySlotSize": "1Gi"});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod(number),
            "labels": {"autoscaling.neon.tech/enabled": "true", "vm.neon.tech/name": format!("vm-{number}")},
            "annotations": {"vm.neon.tech/usage": usage, "vm.neon.tech/resources": resources.to_string()}},
            "spec": {"nodeName": node(number), "containers": [{"name": "neonvm-runner", "image": "i"}]}})
    })
    .await
}

fn allocatable(units: usize) -> Value {
    json!({"cpu": units.to_string(), "memory": format!("{}Gi", 4 * units), "pods": "1000"})
}

fn guest() -> Value {
    json!({"cpus": {"min": 1, "max": 8, "use": 1}, "memorySlotSize": "1Gi",
        "memorySlots": {"min": 4, "max": 32, "use": 4}, "rootDisk": {"image": "i"}})
}

async fn ready(local: &Local) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let request = Request::builder().uri("/leadz").body(Bytes::new())?;
        if local.call(request).await.status() == StatusCode::OK {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the scheduler does not lead");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What an agent sends.
fn request(at: usize, units: u64, held: Option<u64>) -> anyhow::Result<FullRequest> {
    let amount = |units: u64| json!({"vCPUs": units, "mem": format!("{}Gi", 4 * units)});
    let body = json!({"protoVersion": 7, "pod": {"namespace": "default", "name": pod(at)},
        "computeUnit": amount(1), "resources": amount(units), "lastPermit": held.map(amount),
        "metrics": {"loadAvg1M": 0.5}});
    Ok(Request::builder().method(Method::POST).uri("/").body(Bytes::from(serde_json::to_vec(&body)?))?)
}

async fn requests(local: &Local, rows: &mut Rows) -> anyhow::Result<()> {
    let prepared = (0..REQUESTS).map(|round| {
        let at = (round * 7919) % VMS;
        request(at, wanted(round, at), Some(1))
    });
    let prepared: Vec<FullRequest> = prepared.collect::<anyhow::Result<_>>()?;
    let mut times = Vec::with_capacity(REQUESTS);
    let begun = Instant::now();
    for request in prepared {
        let asked = Instant::now();
        let answer = local.call(request).await;
        times.push(asked.elapsed().as_secs_f64() * 1e6);
        ensure!(answer.status() == StatusCode::OK, "an agent was refused: {}", answer.status());
    }
    let rate = REQUESTS as f64 / begun.elapsed().as_secs_f64();
    let (median, p99) = (quantile(&mut times, 0.5), quantile(&mut times, 0.99));
    let note = "in process: bytes in, bytes out; meanwhile permits are written to the embedded API server";
    rows.push(Row::at_least(NAME, "service", rate, "requests/s", 1e5).note(note))?;
    rows.push(
        Row::at_most(NAME, "service, one request, p99", p99, "µs", 50.0)
            .note(format!("median {median:.1} µs")),
    )
}

/// A node shrinks to what its VMs hold and grows again; milliseconds from the API server's answer until a refused VM is permitted.
async fn events(client: &Client, local: &Local) -> anyhow::Result<Row> {
    let nodes: Api<Node> = Api::all(client.clone());
    let resize = async |units: usize| {
        let status = json!({"status": {"allocatable": allocatable(units), "capacity": allocatable(units)}});
        let name = node(0);
        nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.map(drop)
    };
    let mut times = Vec::new();
    for _ in 0..EVENTS {
        resize(20).await?;
        while asked(local, 8).await? == 8 {
            asked(local, 1).await?;
        }
        resize(1000).await?;
        let begun = Instant::now();
        while asked(local, 8).await? < 8 {
            tokio::task::yield_now().await;
            ensure!(begun.elapsed() < PATIENCE, "the node's size is not taken in");
        }
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    let (median, p99) = (quantile(&mut times, 0.5), quantile(&mut times, 0.99));
    Ok(Row::at_most(NAME, "service, node patched → permits follow, p99", p99, "ms", 1.0)
        .note(format!("from the API server's answer; {EVENTS} rounds, median {median:.2} ms")))
}

/// Units that the first VM of the first node is permitted.
async fn asked(local: &Local, units: u64) -> anyhow::Result<u64> {
    let answer: FullResponse = local.call(request(0, units, Some(1))?).await;
    ensure!(answer.status() == StatusCode::OK, "refused: {}", answer.status());
    let body = http_body_util::BodyExt::collect(answer.into_body()).await?.to_bytes();
    let answer: Value = serde_json::from_slice(&body)?;
    answer.pointer("/permit/vCPUs").and_then(Value::as_u64).context("no permit")
}
