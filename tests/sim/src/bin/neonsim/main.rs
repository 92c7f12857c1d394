//! `neonsim`: runs the decision logic of a cluster in simulated worlds.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

mod args;
mod chart;
mod compare;
mod replicas;
mod report;
mod scenarios;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Args, Other};

/// Exit code if `--check` found something.
const BROKEN: u8 = 7;

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let report = match &args.other {
        Some(Other::Replicas(args)) => replicas::run(args)?,
        Some(Other::Compare(args)) => compare::run(args)?,
        None => scenarios::run(&args)?,
    };
    report.print(args.output());
    Ok(if report.broken { ExitCode::from(BROKEN) } else { ExitCode::SUCCESS })
}
