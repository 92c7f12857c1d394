//! `neonvm-apiserver-conformance`: replays the recorded scenarios, by default against the embedded server.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser as _;
use neonvm_apiserver_conformance::{Kubectl, Options, replay, start_server};
use regex::Regex;

/// Replay recorded Kubernetes API behaviour; without --kubeconfig against the embedded server, in this process.
#[derive(Debug, clap::Parser)]
struct Args {
    /// A scenario file, or a directory of them
    #[arg(long, default_value_os_t = recorded())]
    scenarios: PathBuf,
    /// Only files whose name matches this expression
    #[arg(long, default_value = "")]
    filter: Regex,
    /// Access to another server
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// The client for the kubectl steps
    #[arg(long, default_value = "kubectl")]
    kubectl: PathBuf,
    /// Leave out scenarios that need this; repeatable
    #[arg(long)]
    without: Vec<String>,
    /// Scenarios at once
    #[arg(long, default_value_t = 8)]
    jobs: usize,
    /// Print failures and skips only
    #[arg(long)]
    quiet: bool,
}

fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let state = tempfile::tempdir()?;
    let totals = runtime.block_on(async {
        let kubeconfig = match args.kubeconfig {
            Some(path) => std::path::absolute(path)?,
            None => start_server(state.path()).await?,
        };
        replay(Options {
            scenarios: args.scenarios,
            filter: args.filter,
            jobs: args.jobs,
            quiet: args.quiet,
            kubectl: Kubectl::find(&args.kubectl),
            kubeconfig,
            without: args.without,
        })
        .await
    })?;
    // The server's own tasks end with the process.
    runtime.shutdown_background();
    #[expect(clippy::print_stdout, reason = "the closing line is the result of this program")]
    {
        println!("{totals}");
    }
    Ok(if totals.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
