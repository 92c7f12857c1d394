//! `neonvm-runner`: the process in the pod of a virtual machine, a separate program because it takes little memory.

mod log;
mod runner;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "neonvm-runner", version, about = "One virtual machine, in the pod that runs it")]
struct Args {
    #[command(subcommand)]
    service: Service,
}

#[derive(Debug, Subcommand)]
enum Service {
    /// Run one VM, in its pod
    Runner(Box<runner::Args>),
    /// Probe whether KVM runs guest code; prints a line of JSON
    #[command(hide = true)]
    KvmProbe,
}

fn main() -> ExitCode {
    log::outcome(run())
}

fn run() -> anyhow::Result<()> {
    neonvm_kit::descriptors::close_inherited()?;
    match Args::parse().service {
        Service::Runner(args) => runner::run(&args),
        Service::KvmProbe => runner::probe(),
    }
}
