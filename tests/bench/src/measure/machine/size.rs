//! Another size asked for → shown in status, beside QMP and the guest's daemon without anything of ours.

use std::time::{Duration, Instant};

use kube::api::{Patch, PatchParams};
use neonvm_api::VirtualMachine;
use neonvm_types::MilliCpu;
use serde_json::{Value, json};

use super::bare::{self, Bare, Recipe};
use super::cluster::{self, Cluster, machines};
use super::watch::Watch;
use super::{beyond, milliseconds};
use crate::report::Row;

const GOAL: f64 = 50.0;
const ROUNDS: usize = 15;
const SLOT: u64 = 256 << 20;
/// Between two changes: clients pause between changes, and the effects of the last one are over.
const PAUSE: Duration = Duration::from_millis(300);
/// After the boot, until the guest is at rest.
const REST: Duration = Duration::from_secs(3);

#[derive(Clone, Copy)]
pub(super) enum Change {
    Slots(u64),
    Cpus(u32),
}

/// Ours and bare in turn, both running.
pub(super) async fn run(cluster: &Cluster, reference: &Recipe) -> anyhow::Result<Vec<Row>> {
    let client = cluster.client().await?;
    let mut watch = Watch::open(&client).await?;
    cluster::create(&machines(&client), "sized").await?;
    watch.machine("sized", "available", |machine| shows(machine, Change::Slots(1))).await?;
    let (mut machine, _) = reference.start(false).await?;
    let device = machine.monitor.memory_device().await?;
    tokio::time::sleep(REST).await;
    let changes = [
        ("memory + 256 MiB → shown", Change::Slots(2)),
        ("memory − 256 MiB → shown", Change::Slots(1)),
        ("CPU 1 → 2 → shown", Change::Cpus(2)),
        ("CPU 2 → 1 → shown", Change::Cpus(1)),
    ];
    let mut samples = changes.map(|_| (Vec::new(), Vec::new()));
    for _ in 0..ROUNDS {
        for ((_, change), (ours, bare)) in changes.iter().zip(&mut samples) {
            ours.push(patched(&client, &mut watch, *change).await?);
            tokio::time::sleep(PAUSE).await;
            bare.push(asked(&mut machine, &device, *change).await?);
            tokio::time::sleep(PAUSE).await;
        }
    }
    machine.end()?;
    watch.delete(&client, "sized").await?;
    let rows = changes.iter().zip(&samples).map(|((what, _), (ours, bare))| {
        beyond(&format!("{what}, beyond bare QMP"), ours, bare, GOAL)
            .note_more(format!("{ROUNDS} rounds, in turn"))
    });
    Ok(rows.collect())
}

pub(super) fn shows(machine: &VirtualMachine, change: Change) -> bool {
    let Some(status) = &machine.status else { return false };
    match change {
        Change::Slots(slots) => status
            .memory_size
            .as_ref()
            .is_some_and(|size| size.units_rounded_up() == i128::from(slots * SLOT)),
        Change::Cpus(cpus) => status.cpus == Some(MilliCpu::new(cpus * 1000)),
    }
}

/// Milliseconds from the patch to the status.
async fn patched(client: &kube::Client, watch: &mut Watch, change: Change) -> anyhow::Result<f64> {
    let guest: Value = match change {
        Change::Slots(slots) => json!({"memorySlots": {"use": slots}}),
        Change::Cpus(cpus) => json!({"cpus": {"use": cpus}}),
    };
    let patch = Patch::Merge(json!({"spec": {"guest": guest}}));
    let api = machines(client);
    let begun = Instant::now();
    let parameters = PatchParams::default();
    let (patched, seen) = tokio::join!(
        api.patch("sized", &parameters, &patch),
        watch.machine("sized", "another size", |machine| shows(machine, change)),
    );
    patched?;
    Ok(milliseconds(seen?.saturating_duration_since(begun)))
}

/// The same without anything of ours: milliseconds.
pub(super) async fn asked(machine: &mut Bare, device: &str, change: Change) -> anyhow::Result<f64> {
    let begun = Instant::now();
    match change {
        // The first slot is the board's own memory.
        Change::Slots(slots) => machine.monitor.memory(device, (slots - 1) * SLOT).await?,
        Change::Cpus(cpus) => {
            bare::ask(machine.address, "PUT", &(cpus * 1000).to_string()).await?;
        }
    }
    Ok(milliseconds(begun.elapsed()))
}
