//! `simulate`

use clap_complete::engine::ArgValueCandidates;

use super::Output;

/// `simulate`
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  neonctl simulate --list\n  neonctl simulate rush-hour --seeds 200 --faults crash,delay,conflict --check\n  \
                  neonctl simulate rush-hour --seed 117 --minimise --save small.yaml\n  neonctl simulate my.yaml --faults none --plot plots\n  \
                  neonctl simulate replicas --trace load.csv -f podautoscaler.yaml --check\n\n\
                  The decisions are made by the code that runs in a cluster; API server, guests, QEMU, messages and people are imitated. The same\n\
                  scenario, seed and faults always give the same run."
)]
pub struct Simulate {
    /// Something else than virtual machines
    #[command(subcommand)]
    pub other: Option<Other>,
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
    /// End fault injection after this instead of the scenario's time, such as 10m
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

/// What else is simulated.
#[derive(Debug, clap::Subcommand)]
pub enum Other {
    /// Replay a recorded load and show how many replicas a PodAutoscaler would have ordered
    Replicas(Replicas),
}

impl Simulate {
    /// Form of what is reported.
    #[must_use]
    pub fn output(&self) -> &Output {
        match &self.other {
            Some(Other::Replicas(args)) => &args.output,
            None => &self.output,
        }
    }
}

/// `simulate replicas`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl simulate replicas --trace examples/podautoscaler/traces/burst.csv -f examples/podautoscaler/kpa.yaml\n  \
                  neonctl simulate replicas --trace day.csv -f pa.yaml --startup 2m --outage 8h-8h30m --check\n  \
                  neonctl simulate replicas --trace day.csv -f pa.yaml -o 'jsonpath={.summary}'\n\n\
                  A trace is CSV or JSON lines, with remarks after #. A line holds until the next; the last one ends the run:\n  \
                  seconds,load               {\"seconds\": 0, \"load\": 120}\n  \
                  0,120                      {\"seconds\": 60, \"load\": null}\n  \
                  60,                        {\"seconds\": 120, \"load\": [95.5, 3]}\n  \
                  120,95.5,3\n\
                  Seconds are whole and ascend from 0. A load is the total over all pods in the unit of the metric, which ready pods share evenly\n\
                  (of a metric in percent: in percent of one pod's request). An object with several metrics needs a load for each, in its order.\n\
                  A load that is left out was not recorded: the metric cannot be read then. The decisions are made by the code that runs in a cluster."
)]
pub struct Replicas {
    /// The recorded load
    #[arg(long, value_name = "FILE")]
    pub trace: std::path::PathBuf,
    /// Manifest with the PodAutoscaler; - reads standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: String,
    /// Replicas at the start, all ready [default: the smallest that the object allows, at least 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..=10_000))]
    pub replicas: Option<i32>,
    /// Time until a new pod is ready
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub startup: String,
    /// From when to when no metric can be read, such as 10m-15m or 600-900 (seconds); may be repeated
    #[arg(long, value_name = "FROM-TO")]
    pub outage: Vec<String>,
    /// Time of day at second 0, for schedules
    #[arg(long, value_name = "TIME", default_value = "2026-01-05T00:00:00Z")]
    pub start: String,
    /// Show every decision, not only those with which something changes
    #[arg(long)]
    pub all: bool,
    /// Exit with 7 if a rule is broken
    #[arg(long)]
    pub check: bool,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}
