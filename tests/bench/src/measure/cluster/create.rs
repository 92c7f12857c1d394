//! Creation of the fleet, and of single VMs beside it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use kube::api::{Api, PostParams};
use neonvm_api::VirtualMachine;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::leases::revision;
use super::runners::PORT;
use super::services::KINDS;
use super::{Cluster, NAME, mebibytes, until};
use crate::measure::objects;
use crate::report::{Row, quantile};

/// VMs that are created one after the other, beside the fleet.
pub(super) const SINGLE: usize = 100;
/// Time between two of them.
const PACE: Duration = Duration::from_millis(100);
/// Pods a second at which the kube-scheduler's own benchmark fails if it is slower: `SchedulingBasic`, 5,000 nodes, 10,000 pods.
const KUBE_SCHEDULER: f64 = 680.0;
/// Seconds in which Kubernetes' objective has 99 of 100 pods started.
const POD_STARTUP: f64 = 5.0;

fn vm(name: &str) -> Value {
    json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
        "metadata": {"name": name, "labels": {"autoscaling.neon.tech/enabled": "true"}},
        "spec": {"runnerPort": PORT, "schedulerName": "autoscale-scheduler", "guest": {
            "cpus": {"min": 0.25, "max": 1, "use": 0.25}, "memorySlots": {"min": 1, "max": 4, "use": 1},
            "rootDisk": {"image": "img:1"}}}})
}

/// All at once.
pub(super) async fn fleet(cluster: &Cluster) -> anyhow::Result<Vec<Row>> {
    let (begun, before) = (Instant::now(), revision(&cluster.client).await?);
    objects::create::<VirtualMachine>(&cluster.client, true, cluster.vms, |number| {
        vm(&format!("vm-{number}"))
    })
    .await?;
    let created = begun.elapsed().as_secs_f64();
    until("all VMs run", || cluster.view.running() >= cluster.vms).await?;
    let running = begun.elapsed().as_secs_f64();
    until("every VM has a permit", || {
        cluster.agents.permitted_since(begun).0 >= cluster.vms && cluster.agents.without_permit() == 0
    })
    .await?;
    let permitted = begun.elapsed().as_secs_f64();
    let writes = revision(&cluster.client).await? - before;
    let rate = cluster.vms as f64 / running;
    let mut rows = vec![
        Row::plain(NAME, "created → all Running", running, "s").note(format!(
            "{}; all objects created after {created:.1} s; every VM permitted after {permitted:.1} s",
            cluster.scale()
        )),
        Row::plain(NAME, "the same, as a rate", rate, "VMs/s").note(format!(
            "{:.1} writes for each VM; for comparison: kube-scheduler's benchmark demands {KUBE_SCHEDULER} pods/s of the scheduler alone",
            writes as f64 / cluster.vms.max(1) as f64
        )),
    ];
    for (kind, usage) in KINDS.iter().zip(cluster.services.usages()?) {
        let name = kind.name();
        rows.push(
            Row::plain(NAME, &format!("creation: {name}, memory, at most"), mebibytes(usage.peak), "MiB")
                .note(format!("{:.1} s of processor", usage.cpu.as_secs_f64())),
        );
    }
    Ok(rows)
}

/// One after the other: the time that each takes.
pub(super) async fn single(cluster: &Cluster) -> anyhow::Result<Row> {
    let api: Api<VirtualMachine> = Api::default_namespaced(cluster.client.clone());
    let mut creating = JoinSet::new();
    let mut pace = tokio::time::interval(PACE);
    for number in 0..SINGLE {
        pace.tick().await;
        let (api, view) = (api.clone(), Arc::clone(&cluster.view));
        creating.spawn(async move {
            let name = format!("single-{number}");
            let begun = Instant::now();
            api.create(&PostParams::default(), &serde_json::from_value(vm(&name))?).await?;
            until("a VM runs", || view.vm(&name).is_some_and(|seen| seen.since.is_some())).await?;
            let since = view.vm(&name).and_then(|seen| seen.since).context("it does not run any more")?;
            anyhow::Ok(since.saturating_duration_since(begun).as_secs_f64())
        });
    }
    let mut times = Vec::new();
    while let Some(done) = creating.join_next().await {
        times.push(done??);
    }
    let (median, p99) = (quantile(&mut times, 0.5), quantile(&mut times, 0.99));
    Ok(Row::at_most(NAME, "one VM beside the fleet, created → Running, p99", p99, "s", POD_STARTUP).note(
        format!(
            "{SINGLE} VMs, one every {} ms, median {median:.2} s; the goal is Kubernetes' objective for pods",
            PACE.as_millis()
        ),
    ))
}
