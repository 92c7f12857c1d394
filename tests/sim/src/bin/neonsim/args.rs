//! The command line.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use neonvm_sim::FaultSet;
use neonvm_sim::compare::Load;

use crate::report::Format;

/// Runs the decision logic of a cluster against a simulated fleet, with faults chosen by a seed.
#[derive(Debug, clap::Parser)]
#[command(
    name = "neonsim",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  neonsim --list\n  \
                  neonsim rush-hour --seeds 200 --faults crash,delay,conflict --check\n  \
                  neonsim rush-hour --seed 117 --minimise --save small.yaml\n  \
                  neonsim my.yaml --faults none --plot plots\n  \
                  neonsim replicas --trace load.csv -f podautoscaler.yaml --check\n  \
                  neonsim compare --plot plots\n\n\
                  The decision logic is the code that runs in a cluster; the API server, guests, QEMU, messages and users are \
                  simulated. The same scenario, seed and faults always produce the same run."
)]
pub(crate) struct Args {
    /// Simulations of objects other than VMs
    #[command(subcommand)]
    pub(crate) other: Option<Other>,
    /// Name of a scenario, or a YAML file
    #[arg(required_unless_present = "list")]
    pub(crate) scenario: Option<String>,
    /// List the built-in scenarios
    #[arg(long, conflicts_with = "scenario")]
    pub(crate) list: bool,
    /// First seed of the random number generator
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Number of consecutive seeds
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) seeds: u64,
    /// Faults to inject: comma-separated names or groups (crash, network, api, watch, guest, resize, metrics, all, none)
    /// [default: a subset of the scenario's faults, chosen by the seed]
    #[arg(long, value_name = "LIST")]
    pub(crate) faults: Option<FaultSet>,
    /// End fault injection after this time, such as 10m [default: that of the scenario]
    #[arg(long, value_name = "DURATION", value_parser = positive)]
    pub(crate) until: Option<Duration>,
    /// Minimise the first run that breaks an invariant
    #[arg(long)]
    pub(crate) minimise: bool,
    /// Write the minimised scenario to this file; requires --minimise
    #[arg(long, value_name = "FILE", requires = "minimise")]
    pub(crate) save: Option<PathBuf>,
    /// Write plots (SVG) of the first seed to this directory: demand, goal, permit and size of VMs, and usage of nodes
    #[arg(long, value_name = "DIR")]
    pub(crate) plot: Option<PathBuf>,
    /// Number of VMs to plot
    #[arg(long, value_name = "N", default_value_t = 8, requires = "plot", value_parser = clap::value_parser!(u16).range(0..=64))]
    pub(crate) vms: u16,
    /// Exit with code 7 if an invariant is broken
    #[arg(long)]
    pub(crate) check: bool,
    /// Number of parallel runs [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) parallel: Option<u16>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

/// Other simulations.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Other {
    /// Replay a recorded load and show how many replicas a PodAutoscaler would have requested
    Replicas(Replicas),
    /// Compare the rules that scale one VM with those of upstream and with a perfect forecaster
    Compare(Compare),
}

impl Args {
    /// The output format of the chosen simulation.
    pub(crate) fn output(&self) -> Format {
        match &self.other {
            Some(Other::Replicas(args)) => args.output,
            Some(Other::Compare(args)) => args.output,
            None => self.output,
        }
    }
}

/// `replicas`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonsim replicas --trace examples/podautoscaler/traces/burst.csv \
                  -f examples/podautoscaler/kpa.yaml\n  \
                  neonsim replicas --trace day.csv -f pa.yaml --startup 2m --outage 8h-8h30m --check\n  \
                  neonsim replicas --trace day.csv -f pa.yaml -o json\n\n\
                  A trace is CSV or JSON lines, with comments after #. A line applies until the next; the last ends the run:\n  \
                  seconds,load               {\"seconds\": 0, \"load\": 120}\n  \
                  0,120                      {\"seconds\": 60, \"load\": null}\n  \
                  60,                        {\"seconds\": 120, \"load\": [95.5, 3]}\n  \
                  120,95.5,3\n\
                  Seconds are integers, ascending from 0. A load is the total over all pods in the unit of the metric; ready \
                  pods share it evenly (for a metric in percent: in percent of one pod's request). An object with several \
                  metrics needs one load per metric, in order. An omitted load means that the metric could not be read. The \
                  decision logic is the code that runs in a cluster.")]
pub(crate) struct Replicas {
    /// File with the recorded load
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: PathBuf,
    /// Manifest of the PodAutoscaler; - reads standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Initial number of replicas, all ready [default: the minimum of the object, at least 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..=10_000))]
    pub(crate) replicas: Option<i32>,
    /// Time until a new pod is ready
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = seconds)]
    pub(crate) startup: u32,
    /// Period without readable metrics, such as 10m-15m or 600-900 (seconds); can be repeated
    #[arg(long, value_name = "FROM-TO", value_parser = outage)]
    pub(crate) outage: Vec<Range<u32>>,
    /// Date and time of second 0, for schedules
    #[arg(long, value_name = "TIME", default_value = "2026-01-05T00:00:00Z")]
    pub(crate) start: jiff::Timestamp,
    /// Show every decision, not only those that change something
    #[arg(long)]
    pub(crate) all: bool,
    /// Exit with code 7 if a rule is broken
    #[arg(long)]
    pub(crate) check: bool,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

/// `compare`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonsim compare\n  \
                  neonsim compare idle step --seed 7 --plot plots\n  \
                  neonsim compare day --max-cu 8 -o json\n\n\
                  Each load is the work of one VM, simulated millisecond by millisecond under the quota of its size. Monitor and \
                  agent are the code that runs in a cluster; every request is permitted. \"upstream\" scales by the load average \
                  of a minute, read every 5 s. COST is the size over time relative to a perfect forecaster, which always has the \
                  smallest size whose CPU does the work at 90 %. BELOW is the time with less than that. A compute unit is a quarter \
                  of a CPU.")]
pub(crate) struct Compare {
    /// Loads to compare [default: all]
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(Load::ALL.map(|load| {
        clap::builder::PossibleValue::new(load.name()).help(load.description())
    })))]
    pub(crate) load: Vec<String>,
    /// Seed of the random number generator
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Lower bound of the VM, in compute units
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) min_cu: u32,
    /// Upper bound of the VM, in compute units
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) max_cu: u32,
    /// Length of each load, up to 24h [default: that of the load, 10 to 30 minutes]
    #[arg(long, value_name = "DURATION", value_parser = positive)]
    pub(crate) length: Option<Duration>,
    /// Write a plot (SVG) of demand and sizes to this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) plot: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

/// Seconds as a number, or a duration such as `2m`, or a sum of them such as `1h30m`.
fn seconds(text: &str) -> Result<u32, &'static str> {
    const INVALID: &str = "use a duration such as 90s, 10m or 1h30m";
    if let Ok(seconds) = text.parse() {
        return Ok(seconds);
    }
    let time: jiff::SignedDuration = text.parse().map_err(|_| INVALID)?;
    u32::try_from(time.as_secs()).map_err(|_| INVALID)
}

/// A duration of at least a second and at most a day.
fn positive(text: &str) -> Result<Duration, &'static str> {
    match seconds(text)? {
        1..=86_400 => Ok(Duration::from_secs(seconds(text)?.into())),
        _ => Err("use a duration from 1s to 24h"),
    }
}

fn outage(text: &str) -> Result<Range<u32>, &'static str> {
    const INVALID: &str = "use two times such as 10m-15m, the earlier one first";
    let (from, to) = text.split_once('-').ok_or(INVALID)?;
    let (from, to) = (seconds(from)?, seconds(to)?);
    if from < to { Ok(from..to) } else { Err(INVALID) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn times_are_seconds_or_durations() {
        let read =
            ["0", "90", "90s", "2m", "1h30m", "", "m", "1x", "-1", "1h-2h"].map(|text| seconds(text).ok());
        assert_eq!(read, [Some(0), Some(90), Some(90), Some(120), Some(5400), None, None, None, None, None]);
        let ranges = ["10m-15m", "600-900", "8h-8h30m"].map(|text| outage(text).unwrap());
        assert_eq!(ranges, [600..900, 600..900, 28800..30600]);
        assert!(["5m-5m", "5m", "a-b"].iter().all(|text| outage(text).is_err()));
        assert!(positive("0s").is_err() && positive("25h").is_err());
    }
}
