//! `simulate`

use clap_complete::engine::ArgValueCandidates;

use super::Output;

/// `simulate`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl simulate --list\n  neonctl simulate rush-hour --seeds 200 --faults crash,delay,conflict --check\n  \
                  neonctl simulate rush-hour --seed 117 --minimise --save small.yaml\n  neonctl simulate my.yaml --faults none --plot plots\n\n\
                  The decisions are made by the code that runs in a cluster; API server, guests, QEMU, messages and people are imitated. The same\n\
                  scenario, seed and faults always give the same run."
)]
pub struct Simulate {
    /// A scenario by its name, or a file (YAML)
    #[arg(required_unless_present = "list", add = ArgValueCandidates::new(crate::complete::scenarios))]
    pub scenario: Option<String>,
    /// Show the scenarios that have a name
    #[arg(long, conflicts_with = "scenario")]
    pub list: bool,
    /// The first seed: everything random follows from it
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// How many seeds, one after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub seeds: u64,
    /// What goes wrong: names or groups (crash, network, api, watch, guest, resize, metrics, all, none) with commas between
    /// them [default: some of the scenario's, chosen by the seed]
    #[arg(long, value_name = "LIST")]
    pub faults: Option<String>,
    /// End the storm after this instead of the scenario's time, such as 10m
    #[arg(long, value_name = "DURATION")]
    pub until: Option<String>,
    /// Make the first run that breaks something as small as it can be
    #[arg(long)]
    pub minimise: bool,
    /// Write the smallest scenario that breaks it to this file; with --minimise
    #[arg(long, value_name = "FILE", requires = "minimise")]
    pub save: Option<std::path::PathBuf>,
    /// Write plots (SVG) of the first seed to this directory: demand, goal, permit and size of VMs, and the use of nodes
    #[arg(long, value_name = "DIR")]
    pub plot: Option<std::path::PathBuf>,
    /// VMs that are plotted
    #[arg(long, value_name = "N", default_value_t = 8, requires = "plot", value_parser = clap::value_parser!(u16).range(0..=64))]
    pub vms: u16,
    /// Exit with 7 if something is broken
    #[arg(long)]
    pub check: bool,
    /// Runs beside one another [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub parallel: Option<u16>,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}
