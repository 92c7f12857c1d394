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
use super::{NAME_IDLE, NAME_STEADINESS as NAME, missing};
use crate::report::{Row, quantile};

/// After its start a database works for a while: caches are empty, statistics are collected for the first time.
const STARTING: Duration = Duration::from_secs(180);
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

/// An idle database on a quiet host, and on one whose cores are all busy.
pub(in super::super) async fn idle(setup: &Setup) -> anyhow::Result<Vec<Row>> {
    if let Some(missing) = missing()? {
        return Ok(vec![Row::plain(NAME_IDLE, "skipped", 0.0, "").note(missing)]);
    }
    let trial = Trial::start(setup).await?;
    let rows = idle_phases(setup.idle, &trial).await;
    trial.end(rows)
}

/// Small steady loads, loads that vary, and a query that saturates the VM.
pub(in super::super) async fn loads(setup: &Setup) -> anyhow::Result<Vec<Row>> {
    if let Some(missing) = missing()? {
        return Ok(vec![Row::plain(NAME, "skipped", 0.0, "").note(missing)]);
    }
    let trial = Trial::start(setup).await?;
    let rows = load_phases(setup.load, &trial).await;
    trial.end(rows)
}

/// A cluster of its own with the VM.
struct Trial {
    cluster: Cluster,
    database: Database,
    sizes: Sizes,
}

impl Trial {
    async fn start(setup: &Setup) -> anyhow::Result<Self> {
        let cluster = Cluster::start(setup, &["--nodes", "1", "--cpus", "4", "--memory", "8Gi"])?;
        let database = Database::start(&cluster)?;
        let sizes = Sizes::follow(&cluster.client().await?, database::NAME);
        Ok(Self { cluster, database, sizes })
    }

    /// Ends it. Prints what the agent recorded if a phase failed or missed its goal.
    fn end(self, rows: anyhow::Result<Vec<Row>>) -> anyhow::Result<Vec<Row>> {
        if rows.as_ref().map_or(true, |rows| rows.iter().any(Row::is_missed)) {
            let history = self.cluster.neonctl(&["vm", "history", database::NAME, "--since", "3h"]);
            eprint(&history.unwrap_or_default());
        }
        drop(self.database);
        self.cluster.down()?;
        rows
    }
}

/// Prints to standard error.
fn eprint(text: &str) {
    use std::io::Write as _;
    // Without standard error there is no reader.
    writeln!(std::io::stderr(), "{text}").ok();
}

async fn idle_phases(length: Duration, trial: &Trial) -> anyhow::Result<Vec<Row>> {
    let Trial { database, sizes, .. } = trial;
    let mut rows = Vec::new();
    let monitoring = database.monitoring()?;
    let first = watch(STARTING, sizes).await;
    let what = format!("first {} min after the start: growths", STARTING.as_secs() / 60);
    rows.push(Row::plain(NAME_IDLE, &what, f64::from(first.grown), ""));
    settle(sizes, QUIET).await.context("after the start")?;
    rows.push(idle_phase("quiet host", 0.0, length, sizes).await);
    let burners = Burners::start()?;
    settle(sizes, QUIET).await.context("on a busy host")?;
    rows.push(idle_phase("all cores busy", 1.0, length, sizes).await);
    drop((burners, monitoring));
    Ok(rows)
}

async fn load_phases(length: Duration, trial: &Trial) -> anyhow::Result<Vec<Row>> {
    let Trial { cluster, database, sizes } = trial;
    let mut rows = Vec::new();
    let monitoring = database.monitoring()?;
    settle(sizes, QUIET).await.context("after the start")?;
    let work = database.calibrate(cluster)?;
    for percent in STEADY {
        settle(sizes, QUIET).await.context("before a steady load")?;
        let load = database.steady(work, percent, length)?;
        rows.push(steady(percent, length, sizes).await);
        rows.push(Row::plain(
            NAME,
            &format!("steady {percent} %: latency of a query of {} ms", work.cost.as_millis()),
            load.latency()?,
            "ms",
        ));
    }
    for load in Load::ALL {
        settle(sizes, QUIET).await.context("before a load that varies")?;
        rows.extend(varying(load, work, length, (database, sizes)).await?);
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

async fn idle_phase(host: &str, goal: f64, length: Duration, sizes: &Sizes) -> Row {
    let window = watch(length, sizes).await;
    let minutes = length.as_secs() / 60;
    let what = format!("idle for {minutes} min, {host}: growths");
    let note = format!("{:.2} × the smallest size over time", window.mean());
    Row::at_most(NAME_IDLE, &what, f64::from(window.grown), "", goal).note(note)
}

async fn steady(percent: u32, length: Duration, sizes: &Sizes) -> Row {
    let settling = Duration::from_secs(60).min(length / 4);
    let first = watch(settling, sizes).await;
    let rest = watch(length - settling, sizes).await;
    let perfect = (f64::from(percent) / 100.0 / TARGET / sizes::UNIT).ceil().max(1.0);
    let cost = rest.mean() / perfect;
    let note = format!("{} in the first minute; {cost:.2} × a perfect forecaster's size", first.changes());
    let what = format!("steady {percent} % of a CPU: changes after the first minute");
    Row::at_most(NAME, &what, f64::from(rest.changes()), "", 1.0).note(note)
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
