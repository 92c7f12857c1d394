//! Request to create a machine → status Running, beside a process of QEMU → the guest answers; and where the time goes.

use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use kube::ResourceExt as _;
use neonvm_api::virtual_machine::Phase;

use super::bare::{Recipe, Times};
use super::cluster::{self, Cluster, machines};
use super::quota::Quota;
use super::watch::Watch;
use super::{NAME, beyond, both, log, milliseconds};
use crate::report::Row;

const GOAL: f64 = 300.0;
const ROUNDS: usize = 7;

/// A moment of a bare start.
type Part = fn(&Times) -> f64;

/// The hops of a start, in the order in which they come; milliseconds from the sending of the request.
const HOPS: [(&str, &str); 12] = [
    ("answered", "request answered"),
    ("secret", "secret seen"),
    ("pod", "pod seen"),
    ("bound", "pod bound"),
    ("process", "runner's process started, ± 10 ms"),
    ("qemu", "QEMU's process started, ± 10 ms"),
    ("boots", "runner lets the guest go"),
    ("serial", "kernel's first line"),
    ("booted", "guest's init runs"),
    ("workload", "workload started"),
    ("ready", "guest's daemon listens"),
    ("running", "status Running seen"),
];

/// One machine, thrown away: files are in memory afterwards, and its command line is the reference's.
pub(super) async fn warm_up(cluster: &Cluster) -> anyhow::Result<Recipe> {
    let client = cluster.client().await?;
    let mut watch = Watch::open(&client).await?;
    cluster::create(&machines(&client), "first").await?;
    watch.machine("first", "Running", is_running).await?;
    let runner = runner(cluster)?;
    let recipe = Recipe::from_process(log::child(runner)?, &cluster.home().join("bare"))?;
    watch.delete(&client, "first").await?;
    recipe.start(false).await?.0.end()?;
    Ok(recipe)
}

fn is_running(machine: &neonvm_api::VirtualMachine) -> bool {
    machine.status.as_ref().and_then(|status| status.phase) == Some(Phase::Running)
}

pub(super) fn runner(cluster: &Cluster) -> anyhow::Result<u32> {
    let runners = log::processes(&cluster.directory(), &["neonvm-runner", "runner"])?;
    runners.first().copied().context("no runner runs")
}

/// In turn: ours, bare, bare with the quota that ours has.
pub(super) async fn run(cluster: &Cluster, reference: &Recipe) -> anyhow::Result<Vec<Row>> {
    let client = cluster.client().await?;
    let mut ours: Vec<[Option<f64>; HOPS.len()]> = Vec::new();
    let (mut bare, mut held, mut throttled) = (vec![], vec![], vec![]);
    for round in 0..ROUNDS {
        let mut watch = Watch::open(&client).await?;
        let name = format!("start-{round}");
        ours.push(start(cluster, &client, &mut watch, &name).await?);
        watch.delete(&client, &name).await?;
        let (machine, times) = reference.start(false).await?;
        machine.end()?;
        bare.push(times);
        if Quota::is_possible() {
            let (machine, times) = reference.start(true).await?;
            throttled.push(milliseconds(machine.throttled()));
            machine.end()?;
            held.push(times);
        }
    }
    Ok(rows(&ours, &bare, &held, &throttled))
}

fn rows(ours: &[[Option<f64>; HOPS.len()]], bare: &[Times], held: &[Times], throttled: &[f64]) -> Vec<Row> {
    let hop =
        |at: usize| -> Vec<f64> { ours.iter().filter_map(|hops| hops.get(at).copied().flatten()).collect() };
    let column = |times: &[Times], of: Part| -> Vec<f64> { times.iter().map(of).collect() };
    let answered = column(bare, |times| times.answered);
    let mut rows = vec![
        beyond("created → Running, beyond bare QEMU", &hop(HOPS.len() - 1), &answered, GOAL)
            .note_more(format!("{ROUNDS} rounds, in turn")),
    ];
    for (at, (_, what)) in HOPS.iter().enumerate() {
        let samples = hop(at);
        let (median, p90) = both(&samples);
        rows.push(
            Row::plain(NAME, &format!("  ours: {what}"), median, "ms")
                .note(format!("from the request; p90 {p90:.0} ms, {} rounds", samples.len())),
        );
    }
    let parts: [(&str, Part); 4] = [
        ("init runs", |times| times.booted),
        ("workload started", |times| times.workload),
        ("daemon listens", |times| times.ready),
        ("daemon answered", |times| times.answered),
    ];
    for (what, of) in parts {
        let ((median, p90), (held, _)) = (both(&column(bare, of)), both(&column(held, of)));
        rows.push(
            Row::plain(NAME, &format!("  bare: {what}"), median, "ms")
                .note(format!("from its process; p90 {p90:.0} ms; with a quota of one CPU {held:.0} ms")),
        );
    }
    rows.push(
        Row::plain(NAME, "  bare, quota of one CPU: held back", both(throttled).0, "ms")
            .note("until the guest answered"),
    );
    rows
}

async fn start(
    cluster: &Cluster,
    client: &kube::Client,
    watch: &mut Watch,
    name: &str,
) -> anyhow::Result<[Option<f64>; HOPS.len()]> {
    let mut hops = [None; HOPS.len()];
    let mut set = |key: &str, value: f64| {
        let place = HOPS.iter().position(|(name, _)| *name == key).and_then(|at| hops.get_mut(at));
        if let Some(place) = place {
            place.get_or_insert(value);
        }
    };
    let api = machines(client);
    let (begun, wall) = (Instant::now(), SystemTime::now());
    let request = async {
        cluster::create(&api, name).await?;
        anyhow::Ok(Instant::now())
    };
    let since = |at: Instant| milliseconds(at.saturating_duration_since(begun));
    let mut pod = String::new();
    let changes = async {
        loop {
            let seen = watch.next().await.with_context(|| format!("{name}: start"))?;
            if seen.gone || !seen.object.name_any().starts_with(name) {
                continue;
            }
            match seen.kind {
                "vm" if is_running(&cluster::typed(&seen.object)?) => {
                    set("running", since(seen.at));
                    return anyhow::Ok(());
                }
                "secret" => set("secret", since(seen.at)),
                "pod" => {
                    set("pod", since(seen.at));
                    if seen.object.data.pointer("/spec/nodeName").is_some() {
                        set("bound", since(seen.at));
                    }
                    pod = seen.object.uid().unwrap_or_default();
                }
                _ => {}
            }
        }
    };
    let (answered, changed) = tokio::join!(request, changes);
    changed?;
    set("answered", since(answered?));
    let runner = runner(cluster)?;
    set("process", log::started(runner, wall)?);
    set("qemu", log::started(log::child(runner)?, wall)?);
    // The log is written by a thread of its own.
    tokio::time::sleep(Duration::from_millis(100)).await;
    for (at, line) in log::lines(&cluster.directory(), &pod, wall)? {
        if line.starts_with("serial|") {
            set("serial", at);
        }
        for (key, words) in [
            ("boots", "the guest boots"),
            ("booted", "event=Booted"),
            ("ready", "event=Ready"),
            ("workload", "event=WorkloadStarted"),
        ] {
            if line.starts_with("runner|") && line.contains(words) {
                set(key, at);
            }
        }
    }
    Ok(hops)
}
