//! Moves between two nodes, beside two bare QEMUs that do the same: memory by the same channels, disks by the same mirror, but
//! without encryption and without a controller. Also measures what clients observe.

mod clients;
mod pair;

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures_util::TryStreamExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use neonvm_api::migration::MigrationPhase;
use neonvm_api::{VirtualMachineMigration, VirtualMachineMigrationStatus};
use serde_json::json;

use self::clients::Clients;
use self::pair::{Pair, Wire};
use super::super::Setup;
use super::cluster::{self, Cluster, machines};
use super::watch::Watch;
use super::{LIMIT, NAME_MIGRATION as NAME, NAME_VOLUME, both, log, milliseconds, missing, start};
use crate::measure::processors;
use crate::report::{Row, Rows};

/// Moves of each kind; an even number, so that a machine ends where it began.
const ROUNDS: usize = 20;
/// Connections that are held meanwhile.
const CONNECTIONS: usize = 1000;
/// Time for connections to come to rest, and to be looked at without a move.
const SETTLE: Duration = Duration::from_secs(10);
/// Moves of each kind of a machine whose memory is in use; even, too.
const FULL_ROUNDS: usize = 10;
/// MiB that its workload writes: programs, which compress about as pages of a database do.
const FILLED: u64 = 600;
/// Image with that workload.
const FULL: &str = "full:1";
/// Moves of each kind of a machine with a volume, which is copied; even, too.
const VOLUME_ROUNDS: usize = 10;
/// MiB that its workload writes to the volume, which has twice as much room.
const WRITTEN: u64 = 1024;
/// Image with that workload.
const VOLUME: &str = "volume:1";
/// Port of the guest that sends everything back.
const ECHO: u16 = 7;

#[derive(Clone, Copy, Debug, Default)]
struct Move {
    /// Milliseconds by QEMU, from the first byte of memory.
    total: f64,
    /// Milliseconds by QEMU in which the guest stood still.
    downtime: f64,
    /// Milliseconds from the request, or the start of the second process, to the end.
    whole: f64,
    /// Milliseconds of processor time of the whole computer meanwhile.
    processor: f64,
}

/// All of it, in a cluster of its own.
pub(in super::super) async fn run(setup: &Setup, rows: &mut Rows) -> anyhow::Result<()> {
    if let Some(missing) = missing()? {
        return rows.push(Row::plain(NAME, "skipped", 0.0, "").note(missing));
    }
    let cluster = Cluster::start(setup, &["--nodes", "2", "--cpus", "4"])?;
    cluster.image()?;
    cluster.image_of("echo:1", &format!("exec nc -ll -p {ECHO} -e cat"))?;
    let bytes = FILLED << 20;
    let file =
        format!("i=0; while [ $i -lt {FILLED} ]; do cat /bin/busybox; i=$((i+1)); done | head -c {bytes}");
    let fill = format!(
        "mkdir -p /full; mount -t tmpfs -o size=90% full /full; {file} >/full/file; exec sleep 1000000"
    );
    cluster.image_of(FULL, &fill)?;
    let client = cluster.client().await?;
    let mut watch = Watch::open(&client).await?;
    let idle = cluster::machine("moves")?;
    let idle = in_turn(&cluster, &mut watch, (&idle, Use::default()), ROUNDS).await?;
    rows.extend(beside(&idle.ours, &idle.bare))?;
    rows.push(encryption("processor time of bare QEMUs with their own TLS, beside without", &idle))?;
    let mut full = cluster::machine("full")?;
    let guest = full.data.pointer_mut("/spec/guest").context("a machine without a guest")?;
    *guest = json!({"cpus": {"min": 1, "max": 2, "use": 1}, "memorySlotSize": "256Mi",
        "memorySlots": {"min": 4, "max": 4, "use": 4}, "rootDisk": {"image": FULL}});
    let full = in_turn(&cluster, &mut watch, (&full, Use { memory: FILLED, volume: 0 }), FULL_ROUNDS).await?;
    rows.push(full_beside(&full.ours, &full.bare))?;
    let what =
        format!("processor time of bare QEMUs with their own TLS, {FILLED} MiB in use, beside without");
    rows.push(encryption(&what, &full))?;
    rows.extend(connections(&client, &mut watch).await?)?;
    cluster.down()
}

/// A machine that moves with its volume, in a cluster of its own.
pub(in super::super) async fn with_volume(setup: &Setup, rows: &mut Rows) -> anyhow::Result<()> {
    let cluster = Cluster::start(setup, &["--nodes", "2", "--cpus", "4"])?;
    let bytes = WRITTEN << 20;
    // Each program that is started takes a while in an emulated guest, and so does a pipe: few large pieces. What is in the page cache afterwards
    // is memory that moves.
    let write = format!(
        "b=/bin/busybox; b=\"$b $b $b $b\"; b=\"$b $b $b $b\"; f=/data/file; touch $f; \
         while [ $(stat -c %s $f) -lt {bytes} ]; do cat $b >>$f; done; sync; exec sleep 1000000"
    );
    cluster.image_of(VOLUME, &write)?;
    let mut watch = Watch::open(&cluster.client().await?).await?;
    let machine = cluster::machine_with_a_volume("volume", VOLUME, 2 * WRITTEN)?;
    let moves =
        in_turn(&cluster, &mut watch, (&machine, Use { memory: 0, volume: WRITTEN }), VOLUME_ROUNDS).await?;
    rows.extend(volume_beside(&moves))?;
    cluster.down()
}

/// MiB that a guest has in use before it moves.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    memory: u64,
    /// On its volume.
    volume: u64,
}

/// Moves of a machine, of bare QEMUs, and of bare QEMUs that encrypt.
#[derive(Debug, Default)]
struct Moves {
    ours: Vec<Move>,
    bare: Vec<Move>,
    encrypted: Vec<Move>,
}

/// Moves of a machine and of bare QEMUs with the same command line; each begins when so much of the guest is in use.
async fn in_turn(
    cluster: &Cluster,
    watch: &mut Watch,
    (object, used): (&DynamicObject, Use),
    rounds: usize,
) -> anyhow::Result<Moves> {
    let (client, name) = (cluster.client().await?, object.name_any());
    watch.create(&client, object).await?;
    let process = log::child(start::runner(cluster)?)?;
    pair::filled(process, used).await?;
    let pair = Pair::from_process(process, &cluster.home().join(format!("bare-{name}")), used)?;
    let mut moves = Moves::default();
    for _ in 0..rounds / 2 {
        // In turn, so that a busy computer is so for both; each goes there and back.
        for _ in 0..2 {
            moves.ours.push(once(&client, &name).await?);
        }
        moves.bare.extend(pair.there_and_back(Wire::Plain).await?);
        moves.encrypted.extend(pair.there_and_back(Wire::Encrypted).await?);
    }
    watch.delete(&client, &name).await?;
    Ok(moves)
}

/// What QEMU's own TLS costs, which the relay of the runners takes the place of.
fn encryption(what: &str, moves: &Moves) -> Row {
    let column = |moves: &[Move], of: fn(&Move) -> f64| both(&moves.iter().map(of).collect::<Vec<f64>>()).0;
    let [ours, plain, encrypted] =
        [&moves.ours, &moves.bare, &moves.encrypted].map(|moves| column(moves, |one| one.processor));
    let downtimes = [&moves.ours, &moves.encrypted].map(|moves| column(moves, |one| one.downtime));
    let [our_downtime, downtime] = downtimes;
    Row::plain(NAME, what, encrypted / plain.max(0.001), "×").note(format!(
        "median {encrypted:.0} beside {plain:.0} ms, ours {ours:.0} ms; downtime {downtime:.0}, ours {our_downtime:.0} ms"
    ))
}

/// A machine whose memory is in use: what is the same for every move, however large, counts less.
fn full_beside(ours: &[Move], bare: &[Move]) -> Row {
    let column = |moves: &[Move], of: fn(&Move) -> f64| both(&moves.iter().map(of).collect::<Vec<f64>>()).0;
    let processor = (column(ours, |one| one.processor), column(bare, |one| one.processor));
    let total = (column(ours, |one| one.total), column(bare, |one| one.total));
    let what = format!("processor time, {FILLED} MiB in use, beside bare QEMU");
    Row::at_most(NAME, &what, processor.0 / processor.1.max(0.001), "×", 1.05).note(format!(
        "median {:.0} beside {:.0} ms, total by QEMU {:.0} beside {:.0} ms, {FULL_ROUNDS} moves each",
        processor.0, processor.1, total.0, total.1
    ))
}

/// A machine that moves with its volume: all that is waited for counts, because QEMU's own times begin after the volume is copied. Runners
/// encrypt, so the reference does, too.
fn volume_beside(moves: &Moves) -> Vec<Row> {
    let row = |what: &str, of: fn(&Move) -> f64| {
        let column = |moves: &[Move]| both(&moves.iter().map(of).collect::<Vec<f64>>());
        let [(ours, ours_p90), (bare, bare_p90), (plain, _)] =
            [&moves.ours, &moves.encrypted, &moves.bare].map(|moves| column(moves));
        let what = format!("{what}, a volume with {WRITTEN} MiB, beside bare QEMU with its own TLS");
        Row::at_most(NAME_VOLUME, &what, ours / bare.max(0.001), "×", 1.1).note(format!(
            "median {ours:.0} beside {bare:.0} ms, p90 {ours_p90:.0} beside {bare_p90:.0} ms, {VOLUME_ROUNDS} moves each; \
             bare without TLS {plain:.0} ms"
        ))
    };
    let memory = row("memory by QEMU", |one| one.total);
    vec![row("request → end", |one| one.whole), memory, row("downtime", |one| one.downtime)]
}

fn beside(ours: &[Move], bare: &[Move]) -> Vec<Row> {
    type Part = (&'static str, fn(&Move) -> f64, f64);
    let parts: [Part; 3] = [
        ("total by QEMU, beside bare QEMU", |one| one.total, 1.2),
        ("downtime, beside bare QEMU", |one| one.downtime, 1.1),
        ("processor time, start of the target included, beside bare QEMU", |one| one.processor, 1.05),
    ];
    let column = |moves: &[Move], of: fn(&Move) -> f64| moves.iter().map(of).collect::<Vec<f64>>();
    let mut rows = Vec::new();
    for (what, of, goal) in parts {
        let ((ours, ours_p90), (bare, bare_p90)) = (both(&column(ours, of)), both(&column(bare, of)));
        rows.push(Row::at_most(NAME, what, ours / bare.max(0.001), "×", goal).note(format!(
            "median {ours:.0} beside {bare:.0} ms, p90 {ours_p90:.0} beside {bare_p90:.0} ms, {ROUNDS} moves each"
        )));
    }
    let ((ours, p90), (bare, _)) =
        (both(&column(ours, |one| one.whole)), both(&column(bare, |one| one.whole)));
    rows.push(
        Row::plain(NAME, "request → Succeeded", ours, "ms")
            .note(format!("p90 {p90:.0} ms; bare: second process started → completed {bare:.0} ms")),
    );
    rows
}

fn migrations(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("vm.neon.tech", "v1", "VirtualMachineMigration");
    Api::default_namespaced_with(client.clone(), &ApiResource::from_gvk(&kind))
}

/// One move of a machine, by an object; it is deleted afterwards.
async fn once(client: &Client, name: &str) -> anyhow::Result<Move> {
    let (begun, used) = (Instant::now(), processors()?);
    let status = object(client, name).await?;
    let (whole, processor) = (begun.elapsed(), processors()?.saturating_sub(used));
    let number = |number: i64| number as f64;
    Ok(Move {
        total: number(status.info.total_time_ms),
        downtime: number(status.info.downtime_ms),
        whole: milliseconds(whole),
        processor: milliseconds(processor),
    })
}

async fn object(client: &Client, name: &str) -> anyhow::Result<VirtualMachineMigrationStatus> {
    let api = migrations(client);
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachineMigration", "metadata": {"generateName": "move-"},
        "spec": {"vmName": name}}))?;
    let made = api.create(&PostParams::default(), &object).await?;
    let (made, version) = (made.name_any(), made.metadata.resource_version.context("no version")?);
    let only = WatchParams::default().fields(&format!("metadata.name={made}")).timeout(290);
    let mut events = Box::pin(api.watch(&only, &version).await?);
    let over = async {
        while let Some(event) = events.try_next().await? {
            let WatchEvent::Modified(object) = event else { continue };
            let object: VirtualMachineMigration = serde_json::from_value(serde_json::to_value(&object)?)?;
            let Some(status) = object.status else { continue };
            match status.phase {
                Some(MigrationPhase::Succeeded) => return Ok(status),
                Some(MigrationPhase::Failed) => bail!("{made}: {} {}", status.reason, status.message),
                _ => {}
            }
        }
        bail!("the watch of {made} ended")
    };
    let status =
        tokio::time::timeout(LIMIT, over).await.with_context(|| format!("{name} does not move"))??;
    api.delete(&made, &DeleteParams::default()).await?;
    Ok(status)
}

/// Many connections to a machine that moves again and again.
async fn connections(client: &Client, watch: &mut Watch) -> anyhow::Result<Vec<Row>> {
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": {"name": "echo"},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "extraNetwork": {"enable": true},
            "guest": {"cpus": {"min": 1, "max": 1, "use": 1}, "memorySlotSize": "1Gi",
                "memorySlots": {"min": 1, "max": 1, "use": 1}, "rootDisk": {"image": "echo:1"}}}}))?;
    machines(client).create(&PostParams::default(), &object).await?;
    let mut address = String::new();
    let running = |vm: &neonvm_api::VirtualMachine| {
        let status = vm.status.clone().unwrap_or_default();
        address.clone_from(&status.extra_net_ip);
        status.phase == Some(neonvm_api::virtual_machine::Phase::Running)
    };
    watch.machine("echo", "Running", running).await?;
    let clients = Clients::open(format!("{address}:{ECHO}").parse()?, CONNECTIONS).await?;
    // They were made all at once; then, what silence there is without a move.
    tokio::time::sleep(SETTLE).await;
    clients.longest_so_far();
    tokio::time::sleep(SETTLE).await;
    let quiet = clients.longest_so_far();
    let mut downtime: f64 = 0.0;
    for _ in 0..ROUNDS {
        downtime = downtime.max(once(client, "echo").await?.downtime);
    }
    let report = clients.close().await;
    watch.delete(client, "echo").await?;
    let longest = milliseconds(report.longest);
    Ok(vec![
        Row::at_most(NAME, "connections lost", report.lost as f64, "", 0.0).note(format!(
            "of {CONNECTIONS} with traffic, {ROUNDS} moves there and back, {} answers",
            report.answers
        )),
        Row::at_most(
            NAME,
            "longest silence of a connection, beyond the longest downtime",
            longest - downtime,
            "ms",
            200.0,
        )
        .note(format!("{longest:.0} beside {downtime:.0} ms; without a move {:.0} ms", milliseconds(quiet))),
    ])
}
