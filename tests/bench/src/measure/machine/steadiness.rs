//! How often a VM with a real PostgreSQL changes its size: idle on a quiet and on a busy host, under small steady loads, and how
//! fast it grows when a query saturates it.

mod database;
mod load;
mod sizes;
mod varying;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use k8s_openapi::jiff;

use self::database::{Database, Work};
use self::load::Load;
use self::sizes::{Sizes, Window};
use self::varying::Varying;
use super::super::Setup;
use super::cluster::Cluster;
use super::{NAME_STEADINESS as NAME, missing};
use crate::report::{Row, quantile};

/// How long the size must be the smallest before a phase begins, and before a step.
const QUIET: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_secs(5);
/// Longest wait for that.
const SETTLED: Duration = Duration::from_secs(600);
/// Share of a CPU that the steady loads need, in percent.
const STEADY: [u32; 3] = [5, 20, 60];
/// Saturating queries.
const STEPS: usize = 20;
/// How long each lasts.
const STEP: Duration = Duration::from_secs(6);
/// Time from such a query to the next size, beyond a hot-plug of some 80 ms, in milliseconds.
const STEP_GOAL: f64 = 580.0;
/// Size over time relative to a perfect forecaster's.
const COST_GOAL: f64 = 1.15;
/// Share of a size that a perfect forecaster uses.
const TARGET: f64 = 0.9;

/// All of it, in a cluster of its own.
pub(in super::super) async fn run(setup: &Setup) -> anyhow::Result<Vec<Row>> {
    if let Some(missing) = missing()? {
        return Ok(vec![Row::plain(NAME, "skipped", 0.0, "").note(missing)]);
    }
    let cluster = Cluster::start(setup, &["--nodes", "1", "--cpus", "4", "--memory", "8Gi"])?;
    let database = Database::start(&cluster)?;
    let client = cluster.client().await?;
    let sizes = Sizes::follow(&client, database::NAME);
    let rows = phases(setup, &cluster, &database, &sizes).await;
    if rows.as_ref().map_or(true, |rows| rows.iter().any(Row::is_missed)) {
        eprint(&cluster.neonctl(&["vm", "history", database::NAME, "--since", "3h"]).unwrap_or_default());
    }
    drop(database);
    cluster.down()?;
    rows
}

/// Prints what the agent recorded, with which the cause of a failed phase or a missed goal is found.
fn eprint(text: &str) {
    use std::io::Write as _;
    // Without standard error there is no reader.
    writeln!(std::io::stderr(), "{text}").ok();
}

async fn phases(
    setup: &Setup,
    cluster: &Cluster,
    database: &Database,
    sizes: &Sizes,
) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let monitoring = database.monitoring()?;
    settle(sizes, QUIET).await.context("after the start")?;
    rows.extend(idle("quiet host", 0.0, setup.idle, sizes).await);
    let burners = Burners::start()?;
    settle(sizes, QUIET).await.context("on a busy host")?;
    rows.extend(idle("all cores busy", 1.0, setup.idle, sizes).await);
    drop(burners);
    let work = database.calibrate(cluster)?;
    for percent in STEADY {
        settle(sizes, QUIET).await.context("before a steady load")?;
        let load = database.steady(work, percent, setup.idle / 3)?;
        rows.extend(steady(percent, setup.idle / 3, sizes).await);
        rows.push(Row::plain(
            NAME,
            &format!("steady {percent} %: latency of a query of {} ms", work.cost.as_millis()),
            load.latency()?,
            "ms",
        ));
    }
    for load in Load::ALL {
        settle(sizes, QUIET).await.context("before a load that varies")?;
        rows.extend(varying(load, work, setup.idle / 2, (database, sizes)).await?);
    }
    rows.push(steps(database, sizes).await?);
    drop(monitoring);
    Ok(rows)
}

/// Waits until the VM has had its smallest size for a while.
async fn settle(sizes: &Sizes, quiet: Duration) -> anyhow::Result<()> {
    let begun = Instant::now();
    while sizes.since_smallest().is_none_or(|since| since < quiet) {
        ensure!(begun.elapsed() < SETTLED, "the VM does not come back to its smallest size");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

async fn watch(length: Duration, sizes: &Sizes) -> Window {
    let since = Instant::now();
    tokio::time::sleep(length).await;
    sizes.window(since, Instant::now())
}

async fn idle(host: &str, goal: f64, length: Duration, sizes: &Sizes) -> Vec<Row> {
    let window = watch(length, sizes).await;
    let minutes = length.as_secs() / 60;
    let what = format!("idle for {minutes} min, {host}: growths");
    let note = format!("{:.2} × the smallest size over time", window.mean());
    vec![Row::at_most(NAME, &what, f64::from(window.grown), "", goal).note(note)]
}

async fn steady(percent: u32, length: Duration, sizes: &Sizes) -> Vec<Row> {
    let settling = Duration::from_secs(60).min(length / 4);
    let first = watch(settling, sizes).await;
    let rest = watch(length - settling, sizes).await;
    let perfect = (f64::from(percent) / 100.0 / TARGET / sizes::UNIT).ceil().max(1.0);
    let cost = rest.mean() / perfect;
    let note = format!("{} in the first minute; {cost:.2} × a perfect forecaster's size", first.changes());
    let what = format!("steady {percent} % of a CPU: changes after the first minute");
    vec![Row::at_most(NAME, &what, f64::from(rest.changes()), "", 1.0).note(note)]
}

async fn varying(
    load: Load,
    work: Work,
    length: Duration,
    (database, sizes): (&Database, &Sizes),
) -> anyhow::Result<Vec<Row>> {
    let arrivals = load.arrivals(length, work.cost);
    let begun = Instant::now();
    let queries = Varying::start(database, work, &arrivals, begun)?;
    let (median, slow) = tokio::task::spawn_blocking(move || queries.latencies()).await??;
    let changes = sizes.window(begun, begun + length).changes();
    let (cost, below) = sizes.against(begun, length, |at| load.need(at, length));
    let what = |what: &str| format!("{}: {what}", load.name());
    Ok(vec![
        Row::at_most(NAME, &what("size over time, relative to a perfect forecaster's"), cost, "×", COST_GOAL)
            .note(format!("{changes} changes in {} s", length.as_secs())),
        Row::plain(NAME, &what("time below need"), below, "s"),
        Row::plain(NAME, &what("99th percentile of the latency of a query"), slow, "ms")
            .note(format!("median {median:.0} ms, of which {} ms are CPU time", work.cost.as_millis())),
    ])
}

/// Queries that saturate the smallest size.
async fn steps(database: &Database, sizes: &Sizes) -> anyhow::Result<Row> {
    let mut times = Vec::new();
    let mut session = database.saturating()?;
    for _ in 0..STEPS {
        settle(sizes, PAUSE).await.context("before a step")?;
        let (begun, clock) = (Instant::now(), jiff::Timestamp::now());
        session.query(STEP)?;
        let grown = loop {
            if let Some(at) = sizes.grown_since(begun) {
                break at;
            }
            ensure!(begun.elapsed() < STEP * 2, "the VM does not grow");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let time = grown.saturating_duration_since(begun).as_secs_f64() * 1e3;
        if time > STEP_GOAL {
            // To be found in the history.
            eprint(&format!("the query of {clock:.3} saw the next size after {time:.0} ms"));
        }
        times.push(time);
    }
    let (median, slowest) = (quantile(&mut times, 0.5), quantile(&mut times, 1.0));
    Ok(Row::at_most(
        NAME,
        "a query that saturates the smallest size → next size shown",
        slowest,
        "ms",
        STEP_GOAL,
    )
    .note(format!("slowest of {STEPS}, median {median:.0} ms")))
}

/// A thread for each core that never waits.
struct Burners {
    ended: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Burners {
    fn start() -> anyhow::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let burn = |_| {
            let ended = Arc::clone(&ended);
            std::thread::spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..std::thread::available_parallelism()?.get()).map(burn).collect();
        Ok(Self { ended, threads })
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended as well.
            thread.join().ok();
        }
    }
}
