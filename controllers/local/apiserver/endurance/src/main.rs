//! `neonvm-apiserver-endurance`: the kill loop by hand, with counts that are too long for every test run.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use neonvm_apiserver_endurance::{kill, serve};
use neonvm_bench::process::Program;

/// Threads of the server under test, as `neond` has them at most.
const SERVING: usize = 4;

#[derive(Debug, Parser)]
#[command(name = "neonvm-apiserver-endurance", about = "Kill the embedded API server under load")]
struct Args {
    #[command(subcommand)]
    lane: Lane,
    /// A server binary to test instead of the one built in
    #[arg(long, global = true)]
    neond: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Lane {
    /// Kill it under write load; nothing acknowledged may be lost
    KillLoop {
        /// Kills
        #[arg(long, default_value_t = 200)]
        rounds: u32,
        /// What the run is derived from
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// The server under test
    #[command(hide = true)]
    Serve(serve::Args),
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if matches!(args.lane, Lane::Serve(_)) {
        // Each thread has a heap of its own; what the server may need must not depend on how many processors there are.
        runtime.worker_threads(SERVING);
    }
    runtime.enable_all().build()?.block_on(run(&args))
}

async fn run(args: &Args) -> anyhow::Result<()> {
    let program = match &args.neond {
        Some(path) => Program::neond(Some(path))?,
        None => Program::new(std::env::current_exe()?, &["serve"]),
    };
    let summary = match &args.lane {
        Lane::Serve(args) => return serve::run(args).await,
        Lane::KillLoop { rounds, seed } => kill::run(&program, *rounds, *seed).await?.to_string(),
    };
    writeln!(std::io::stdout(), "{summary}")?;
    Ok(())
}
