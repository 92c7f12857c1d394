//! `neonvm-bench`: prints what the system does, beside what it should do.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use neonvm_bench::measure::{self, Setup};
use neonvm_bench::process::Program;
use neonvm_bench::report::{Form, Rows};
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
    /// Print a JSON object for each row
    #[arg(long)]
    json: bool,
    /// Fail if a goal is missed
    #[arg(long)]
    strict: bool,
    /// VMs of the fleet measurement
    #[arg(long, default_value_t = 5_000)]
    vms: usize,
    /// Directory for state, on a disk [default: the directory for temporary files]
    #[arg(long)]
    directory: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let (mut interrupted, mut ended) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        // What a measurement has started ends with it, because it is dropped; rows were printed as they were measured.
        tokio::select! {
            done = run(&args) => done,
            _ = interrupted.recv() => Ok(ExitCode::from(130)),
            _ = ended.recv() => Ok(ExitCode::from(143)),
        }
    })
}

async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let setup = Setup {
        program: Program::neond(args.neond.as_deref())?,
        vms: args.vms,
        directory: args.directory.clone().unwrap_or_else(std::env::temp_dir),
    };
    let mut rows = Rows::new(if args.json { Form::Json } else { Form::Text });
    for name in measure::NAMES {
        if args.only.is_empty() || args.only.iter().any(|only| only == name) {
            writeln!(std::io::stderr(), "measuring {name} …")?;
            measure::run(name, &setup, &mut rows).await?;
        }
    }
    Ok(if args.strict && rows.has_missed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
