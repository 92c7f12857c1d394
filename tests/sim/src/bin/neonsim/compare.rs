//! `neonsim compare`

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::ensure;
use neonvm_sim::compare::{Load, Point, Rules, Setup, Trial, trial};
use plotters::style::{BLUE, RED};
use serde_json::{Value, json};

use crate::args::Compare as Args;
use crate::chart::{self, GREEN, GREY, Line, Panel};
use crate::report::{API_VERSION, Column, Report};

/// Simulates the loads under all rules.
pub(crate) fn run(args: &Args) -> anyhow::Result<Report> {
    ensure!(args.min_cu <= args.max_cu, "--min-cu {} is above --max-cu {}", args.min_cu, args.max_cu);
    let setup = Setup { seed: args.seed, min: args.min_cu, max: args.max_cu, length: args.length };
    // The parser of arguments refuses names of no load.
    let is_chosen = |load: &Load| args.load.is_empty() || args.load.iter().any(|name| name == load.name());
    let loads = Load::ALL.into_iter().filter(is_chosen);
    let trials: Vec<Trial> =
        loads.flat_map(|load| Rules::ALL.map(|rules| trial(load, rules, &setup))).collect();
    let mut report = report(&trials, &setup);
    if let Some(directory) = &args.plot {
        let paths = plots(directory, &trials, setup.seed)?;
        report.notes.extend(paths.iter().map(|path| format!("plot: {}", path.display())));
    }
    Ok(report)
}

fn report(trials: &[Trial], setup: &Setup) -> Report {
    Report {
        columns: vec![
            Column::Left("LOAD"),
            Column::Left("RULES"),
            Column::Right("GROWN"),
            Column::Right("SHRUNK"),
            Column::Right("COST"),
            Column::Right("BELOW"),
            Column::Right("LATENCY"),
            Column::Right("P99"),
            Column::Right("SLOWEST GROWTH"),
        ],
        rows: trials.iter().map(cells).collect(),
        value: json!({ "apiVersion": API_VERSION, "kind": "ScalingComparison", "seed": setup.seed,
            "minUnits": setup.min, "maxUnits": setup.max, "items": trials.iter().map(value).collect::<Vec<_>>() }),
        notes: Rules::ALL.map(|rules| total(trials, rules)).to_vec(),
        broken: false,
    }
}

/// The sum over all loads in a line.
fn total(trials: &[Trial], rules: Rules) -> String {
    let mine = || trials.iter().filter(|trial| trial.rules == rules);
    let units: f64 = mine().map(|trial| trial.unit_seconds).sum();
    let perfect: f64 = mine().map(|trial| trial.perfect_unit_seconds).sum();
    let below: f64 = mine().map(|trial| trial.below.as_secs_f64()).sum();
    let grown: u32 = mine().map(|trial| trial.grown).sum();
    format!(
        "{}: {units:.0} unit-seconds, {:.2} × the perfect forecaster's; {below:.0} s below need; grown {grown} times",
        rules.name(),
        units / perfect.max(f64::MIN_POSITIVE)
    )
}

fn cells(trial: &Trial) -> Vec<String> {
    vec![
        trial.load.name().to_owned(),
        trial.rules.name().to_owned(),
        trial.grown.to_string(),
        trial.shrunk.to_string(),
        format!("{:.2}", trial.cost()),
        format!("{:.1}s", trial.below.as_secs_f64()),
        milliseconds(trial.latency),
        milliseconds(trial.latency_p99),
        milliseconds(trial.slowest_growth),
    ]
}

/// `-` where nothing was measured.
fn milliseconds(time: Duration) -> String {
    if time.is_zero() { "-".to_owned() } else { format!("{}ms", time.as_millis()) }
}

fn value(trial: &Trial) -> Value {
    json!({
        "load": trial.load.name(), "description": trial.load.description(), "rules": trial.rules.name(),
        "grown": trial.grown, "changedAfterFirstMinute": trial.changed_later, "shrunk": trial.shrunk,
        "unitSeconds": trial.unit_seconds, "perfectUnitSeconds": trial.perfect_unit_seconds,
        "belowSeconds": trial.below.as_secs_f64(), "latencySeconds": trial.latency.as_secs_f64(),
        "latencyP99Seconds": trial.latency_p99.as_secs_f64(),
        "slowestGrowthSeconds": trial.slowest_growth.as_secs_f64(),
    })
}

/// Draws a file for each load.
fn plots(directory: &Path, trials: &[Trial], seed: u64) -> anyhow::Result<Vec<PathBuf>> {
    let pairs = trials.chunk_by(|a, b| a.load == b.load);
    let pairs = pairs.filter_map(|pair| pair.first().map(|first| (first, pair)));
    let write = |(first, pair): (&Trial, &[Trial])| {
        let times: Vec<Duration> = first.points.iter().map(|point| point.at).collect();
        chart::write(
            directory,
            &format!("compare-{}-{seed}.svg", first.load.name()),
            &times,
            &[panel(first, pair, seed)],
        )
    };
    pairs.map(write).collect()
}

fn panel(first: &Trial, pair: &[Trial], seed: u64) -> Panel {
    let values = |trial: &Trial, of: fn(&Point) -> f64| trial.points.iter().map(of).collect();
    let demand = values(first, |point| point.demand);
    let perfect = values(first, |point| f64::from(point.perfect));
    let mut lines = vec![
        Line { name: "demand", colour: GREY, dashes: 0, values: demand },
        Line { name: "perfect forecaster", colour: GREEN, dashes: 2, values: perfect },
    ];
    lines.extend(pair.iter().map(|trial| {
        let (colour, dashes) = match trial.rules {
            Rules::Ours => (BLUE, 0),
            Rules::Upstream => (RED, 6),
        };
        let sizes = values(trial, |point| f64::from(point.size));
        Line { name: trial.rules.name(), colour, dashes, values: sizes }
    }));
    let title = format!("{}, seed {seed}: {}", first.load.name(), first.load.description());
    Panel { title, unit: "compute units", lines }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short() -> Setup {
        Setup { length: Some(Duration::from_secs(90)), ..Setup::default() }
    }

    #[test]
    fn a_row_for_each_load_and_rules() {
        let trials = [Load::Idle, Load::Step].map(|load| trial(load, Rules::Ours, &short()));
        let report = report(&trials, &short());
        assert!(report.rows.len() == 2 && report.rows.iter().all(|row| row.len() == report.columns.len()));
        // 30 s of a task that never waits, in units of 90 % of a quarter CPU, within the upper bound of 4.
        assert_eq!(report.value["items"][1]["perfectUnitSeconds"], 60.0 + 30.0 * 4.0);
        assert_eq!(report.notes.len(), 2);
    }

    #[test]
    fn a_plot_has_every_line() {
        let directory = tempfile::tempdir().unwrap();
        let trials = Rules::ALL.map(|rules| trial(Load::Step, rules, &short()));
        let paths = plots(directory.path(), &trials, 1).unwrap();
        let text = std::fs::read_to_string(&paths[0]).unwrap();
        for word in ["demand", "perfect forecaster", "ours", "upstream", "compute units"] {
            assert!(text.contains(word), "{word}");
        }
    }
}
