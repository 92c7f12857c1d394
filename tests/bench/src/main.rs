//! `neonvm-bench`: prints what the system does, beside what it should do.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use neonvm_bench::measure::{self, Setup};
use neonvm_bench::process::Program;
use neonvm_bench::report;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Debug, Parser)]
#[command(name = "neonvm-bench", about = "Measure the service level objectives of SPEC.md")]
struct Args {
    /// Measure only this; may be repeated
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(measure::NAMES))]
    only: Vec<String>,
    /// The server's binary, release build [default: `neond` beside this one]
    #[arg(long)]
    neond: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Fail if a goal is missed
    #[arg(long)]
    strict: bool,
    /// Seconds that each rate is taken over
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Objects of the volume measurement
    #[arg(long, default_value_t = 100_000)]
    objects: usize,
    /// Watchers of the watch measurement
    #[arg(long, default_value_t = 1_000)]
    watchers: usize,
    /// Machines of the fleet measurement
    #[arg(long, default_value_t = 5_000)]
    machines: usize,
    /// VMs of the cluster measurement; at most as many as a process may open files
    #[arg(long, default_value_t = 20_000)]
    vms: usize,
    /// Nodes of the cluster measurement
    #[arg(long, default_value_t = 500)]
    nodes: usize,
    /// Minutes that the idle-database measurement watches, on a quiet host and on a busy one
    #[arg(long, default_value_t = 30)]
    idle_minutes: u64,
    /// Minutes that each load of the steadiness measurement lasts
    #[arg(long, default_value_t = 5)]
    load_minutes: u64,
    /// Directory for state, on a disk [default: the directory for temporary files]
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Serve simulated runners, as a child of the cluster measurement: kubeconfig of its API server
    #[arg(long, hide = true, value_name = "FILE")]
    serve_runners: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let (mut interrupted, mut ended) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        // What a measurement has started ends with it, because it is dropped.
        tokio::select! {
            done = run(&args) => done,
            _ = interrupted.recv() => Ok(ExitCode::from(130)),
            _ = ended.recv() => Ok(ExitCode::from(143)),
        }
    })
}

async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(kubeconfig) = &args.serve_runners {
        measure::serve_runners(kubeconfig).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let setup = Setup {
        program: Program::neond(args.neond.as_deref())?,
        duration: Duration::from_secs(args.seconds.max(1)),
        objects: args.objects,
        watchers: args.watchers,
        machines: args.machines,
        vms: args.vms,
        nodes: args.nodes,
        idle: Duration::from_secs(60 * args.idle_minutes.max(1)),
        load: Duration::from_secs(60 * args.load_minutes.max(1)),
        directory: args.directory.clone().unwrap_or_else(std::env::temp_dir),
    };
    let mut rows = Vec::new();
    for name in measure::NAMES {
        if args.only.is_empty() || args.only.iter().any(|only| only == name) {
            if !args.json {
                writeln!(std::io::stderr(), "measuring {name} …")?;
            }
            rows.extend(measure::run(name, &setup).await?);
        }
    }
    let mut out = std::io::stdout();
    if args.json {
        writeln!(out, "{}", report::json(&rows)?)?;
    } else {
        writeln!(out, "{}", report::table(&rows))?;
        writeln!(out, "\nThe API server has no reference beside it: there is no other one on this machine.")?;
    }
    let missed = rows.iter().any(|row| row.verdict() == "miss");
    Ok(if args.strict && missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
