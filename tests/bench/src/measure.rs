//! The measurements. Each starts a server of its own over a fresh directory, unless noted otherwise.

mod agents;
mod cluster;
mod command_line;
mod disk;
mod load;
mod machine;
mod objects;
mod reads;
mod replicas;
mod scheduler;
mod start;
mod volume;
mod watches;
mod writes;

use std::time::Duration;

use crate::process::{Process, Program};
use crate::report::Row;

pub use cluster::serve_runners;

/// What the measurements share.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The server.
    pub program: Program,
    /// How long a rate is taken over.
    pub duration: Duration,
    /// Objects of the volume measurement.
    pub objects: usize,
    /// Watchers of the watch measurement.
    pub watchers: usize,
    /// Machines of the fleet measurement.
    pub machines: usize,
    /// VMs of the cluster measurement.
    pub vms: usize,
    /// Nodes of the cluster measurement.
    pub nodes: usize,
    /// How long an idle database is watched, on each host.
    pub idle: Duration,
    /// How long each load of the steadiness measurement lasts.
    pub load: Duration,
    /// Where the state goes; on a disk, not in memory, or durable writes measure nothing.
    pub directory: std::path::PathBuf,
}

impl Setup {
    fn directory(&self) -> anyhow::Result<tempfile::TempDir> {
        Ok(tempfile::Builder::new().prefix("neonvm-bench-").tempdir_in(&self.directory)?)
    }
}

/// Names for `--only`, in the order in which they run.
pub const NAMES: &[&str] = &[
    "start",
    "idle",
    "reads",
    "writes",
    "watches",
    "volume",
    "command-line",
    "disk",
    "boot",
    "guest",
    "machine",
    "growth",
    "idle-database",
    "steadiness",
    "moves",
    "network",
    "fleet",
    "cluster",
    "scheduler",
    "agents",
    "replicas",
];

/// Runs one measurement.
///
/// # Errors
/// If there is none of that name, or the server fails.
pub async fn run(name: &str, setup: &Setup) -> anyhow::Result<Vec<Row>> {
    match name {
        "start" => start::empty(setup).await,
        "idle" => start::idle(setup).await,
        "reads" => reads::run(setup).await,
        "writes" => writes::run(setup).await,
        "watches" => watches::run(setup).await,
        "volume" => volume::run(setup).await,
        "command-line" => command_line::run(setup),
        "disk" => disk::build(setup),
        "boot" => disk::boot(setup),
        "guest" => disk::idle(setup),
        "machine" => machine::run(setup).await,
        "growth" => machine::growth::run(setup).await,
        "idle-database" => machine::steadiness::idle(setup).await,
        "steadiness" => machine::steadiness::loads(setup).await,
        "moves" => machine::moves::run(setup).await,
        "network" => machine::network::run(setup).await,
        "agents" => agents::run(setup).await,
        "cluster" => cluster::run(setup).await,
        "scheduler" => scheduler::run(setup).await,
        "replicas" => replicas::run(setup).await,
        "fleet" => {
            let directory = setup.directory()?;
            crate::fleet::run(setup.program.path(), directory.path(), setup.machines).await
        }
        _ => anyhow::bail!("there is no measurement {name:?}; there are {}", NAMES.join(", ")),
    }
}

/// How the processors were used meanwhile, for the note of a rate.
struct Shares {
    server: Duration,
    own: Duration,
    machine: Duration,
}

impl Shares {
    fn now(process: &Process) -> anyhow::Result<Self> {
        Ok(Self { server: process.cpu()?, own: crate::process::own_cpu()?, machine: machine()? })
    }

    /// Server and client microseconds per operation, and how busy others kept the machine.
    fn note(&self, process: &Process, operations: usize, over: Duration) -> anyhow::Result<String> {
        let now = Self::now(process)?;
        let (server, own) = (now.server.saturating_sub(self.server), now.own.saturating_sub(self.own));
        let others = now.machine.saturating_sub(self.machine).saturating_sub(server + own);
        let cores = std::thread::available_parallelism()?.get();
        let per = |time: Duration| time.as_secs_f64() * 1e6 / operations.max(1) as f64;
        let share = 100.0 * others.as_secs_f64() / (over.as_secs_f64() * cores as f64);
        let (server, own) = (per(server), per(own));
        Ok(format!(
            "server {server:.0} µs, client {own:.0} µs of processor each; {cores} cores, {share:.0} % used by others"
        ))
    }
}

/// Processor time that the whole machine has used. The kernel counts it in hundredths of a second on every Linux.
fn machine() -> anyhow::Result<Duration> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let first = text.lines().next().unwrap_or("");
    let numbers: Vec<u64> = first.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal
    let busy = [0, 1, 2, 5, 6, 7].iter().filter_map(|at: &usize| numbers.get(*at)).sum::<u64>();
    Ok(Duration::from_millis(busy * 10))
}
