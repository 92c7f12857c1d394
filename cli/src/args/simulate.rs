//! `simulate`

use crate::args::names::Names;

use super::Output;

/// `simulate`
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  neonctl simulate --list\n  \
                  neonctl simulate rush-hour --seeds 200 --faults crash,delay,conflict --check\n  \
                  neonctl simulate rush-hour --seed 117 --minimise --save small.yaml\n  \
                  neonctl simulate my.yaml --faults none --plot plots\n  \
                  neonctl simulate replicas --trace load.csv -f podautoscaler.yaml --check\n  \
                  neonctl simulate compare --plot plots\n\n\
                  The decision logic is the code that runs in a cluster; the API server, guests, QEMU, messages and users are \
                  simulated. The same scenario, seed and faults always produce the same run."
)]
pub struct Simulate {
    /// Simulations of objects other than VMs
    #[command(subcommand)]
    pub other: Option<Other>,
    /// Name of a scenario, or a YAML file
    #[arg(required_unless_present = "list", add = Names::Scenarios)]
    pub scenario: Option<String>,
    /// List the built-in scenarios
    #[arg(long, conflicts_with = "scenario")]
    pub list: bool,
    /// First seed of the random number generator
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Number of consecutive seeds
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub seeds: u64,
    /// Faults to inject: comma-separated names or groups (crash, network, api, watch, guest, resize, metrics, all, none)
    /// [default: a subset of the scenario's faults, chosen by the seed]
    #[arg(long, value_name = "LIST")]
    pub faults: Option<String>,
    /// End fault injection after this time, such as 10m [default: that of the scenario]
    #[arg(long, value_name = "DURATION")]
    pub until: Option<String>,
    /// Minimise the first run that breaks an invariant
    #[arg(long)]
    pub minimise: bool,
    /// Write the minimised scenario to this file; requires --minimise
    #[arg(long, value_name = "FILE", requires = "minimise")]
    pub save: Option<std::path::PathBuf>,
    /// Write plots (SVG) of the first seed to this directory: demand, goal, permit and size of VMs, and usage of nodes
    #[arg(long, value_name = "DIR")]
    pub plot: Option<std::path::PathBuf>,
    /// Number of VMs to plot
    #[arg(long, value_name = "N", default_value_t = 8, requires = "plot", value_parser = clap::value_parser!(u16).range(0..=64))]
    pub vms: u16,
    /// Exit with code 7 if an invariant is broken
    #[arg(long)]
    pub check: bool,
    /// Number of parallel runs [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub parallel: Option<u16>,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

/// Other simulations.
#[derive(Debug, clap::Subcommand)]
pub enum Other {
    /// Replay a recorded load and show how many replicas a PodAutoscaler would have requested
    Replicas(Replicas),
    /// Compare the rules that scale one VM with those of upstream and with a perfect forecaster
    Compare(Compare),
}

impl Simulate {
    /// Output format of the report.
    #[must_use]
    pub fn output(&self) -> &Output {
        match &self.other {
            Some(Other::Replicas(args)) => &args.output,
            Some(Other::Compare(args)) => &args.output,
            None => &self.output,
        }
    }
}

/// `simulate replicas`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl simulate replicas --trace examples/podautoscaler/traces/burst.csv \
                  -f examples/podautoscaler/kpa.yaml\n  \
                  neonctl simulate replicas --trace day.csv -f pa.yaml --startup 2m --outage 8h-8h30m --check\n  \
                  neonctl simulate replicas --trace day.csv -f pa.yaml -o 'jsonpath={.summary}'\n\n\
                  A trace is CSV or JSON lines, with comments after #. A line applies until the next; the last ends the run:\n  \
                  seconds,load               {\"seconds\": 0, \"load\": 120}\n  \
                  0,120                      {\"seconds\": 60, \"load\": null}\n  \
                  60,                        {\"seconds\": 120, \"load\": [95.5, 3]}\n  \
                  120,95.5,3\n\
                  Seconds are integers, ascending from 0. A load is the total over all pods in the unit of the metric; ready \
                  pods share it evenly (for a metric in percent: in percent of one pod's request). An object with several \
                  metrics needs one load per metric, in order. An omitted load means that the metric could not be read. The \
                  decision logic is the code that runs in a cluster."
)]
pub struct Replicas {
    /// File with the recorded load
    #[arg(long, value_name = "FILE")]
    pub trace: std::path::PathBuf,
    /// Manifest of the PodAutoscaler; - reads standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: String,
    /// Initial number of replicas, all ready [default: the minimum of the object, at least 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..=10_000))]
    pub replicas: Option<i32>,
    /// Time until a new pod is ready
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub startup: String,
    /// Period without readable metrics, such as 10m-15m or 600-900 (seconds); can be repeated
    #[arg(long, value_name = "FROM-TO")]
    pub outage: Vec<String>,
    /// Date and time of second 0, for schedules
    #[arg(long, value_name = "TIME", default_value = "2026-01-05T00:00:00Z")]
    pub start: String,
    /// Show every decision, not only those that change something
    #[arg(long)]
    pub all: bool,
    /// Exit with code 7 if a rule is broken
    #[arg(long)]
    pub check: bool,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

/// `simulate compare`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl simulate compare\n  \
                  neonctl simulate compare idle step --seed 7 --plot plots\n  \
                  neonctl simulate compare day --max-cu 8 -o json\n\n\
                  Each load is the work of one VM, simulated millisecond by millisecond under the quota of its size. Monitor and \
                  agent are the code that runs in a cluster; every request is permitted. \"upstream\" scales by the load average \
                  of a minute, read every 5 s. COST is the size over time relative to a perfect forecaster, which always has the \
                  smallest size whose CPU does the work at 90 %. BELOW is the time with less than that. A compute unit is a quarter \
                  of a CPU.")]
pub struct Compare {
    /// Loads to compare [default: all]
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(neonvm_sim::compare::Load::ALL.map(|load| {
        clap::builder::PossibleValue::new(load.name()).help(load.description())
    })))]
    pub load: Vec<String>,
    /// Seed of the random number generator
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Lower bound of the VM, in compute units
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub min_cu: u32,
    /// Upper bound of the VM, in compute units
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub max_cu: u32,
    /// Length of each load, up to 24h [default: that of the load, 10 to 30 minutes]
    #[arg(long, value_name = "DURATION")]
    pub length: Option<String>,
    /// Write a plot (SVG) of demand and sizes to this directory
    #[arg(long, value_name = "DIR")]
    pub plot: Option<std::path::PathBuf>,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}
