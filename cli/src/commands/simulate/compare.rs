//! `simulate compare`

use std::path::{Path, PathBuf};
use std::time::Duration;

use neonvm_builder::out;
use neonvm_sim::compare::{Load, Rules, Setup, Trial, trial};
use plotters::style::{BLUE, RED, RGBColor};
use serde_json::{Value, json};

use super::plot::{self, Drawing};
use crate::args::simulate::Compare as Args;
use crate::error::{Code, Error, Result};
use crate::plot::Look;
use crate::report::{API_VERSION, Document, Report, left, right};
use crate::settings;

/// Longest load.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Simulates the loads under all rules.
pub(super) fn run(args: &Args) -> Result<Report> {
    let loads = loads(&args.load);
    let setup = setup(args)?;
    let trials: Vec<Trial> =
        loads.iter().flat_map(|load| Rules::ALL.map(|rules| trial(*load, rules, &setup))).collect();
    let mut report = report(&trials, &setup);
    if let Some(directory) = &args.plot {
        for path in plots(directory, &trials, setup.seed)? {
            report = report.note(format!("plot: {}", path.display()));
        }
    }
    Ok(report)
}

/// Those with these names; the arguments' parser knows no others.
fn loads(names: &[String]) -> Vec<Load> {
    let is_named = |load: &Load| names.is_empty() || names.iter().any(|name| name == load.name());
    Load::ALL.into_iter().filter(is_named).collect()
}

fn setup(args: &Args) -> Result<Setup> {
    if args.min_cu > args.max_cu {
        let text = format!("--min-cu {} is above --max-cu {}", args.min_cu, args.max_cu);
        return Err(Error::new(Code::Usage, text));
    }
    let length = match args.length.as_deref() {
        Some(text) => {
            let fits = |length: &Duration| !length.is_zero() && *length <= LONGEST;
            Some(settings::duration(text).filter(fits).ok_or_else(|| {
                Error::new(Code::Usage, format!("--length: {text:?} is not valid"))
                    .hint("use a duration up to 24h, such as 90s, 10m or 2h")
            })?)
        }
        None => None,
    };
    Ok(Setup { seed: args.seed, min: args.min_cu, max: args.max_cu, length })
}

fn report(trials: &[Trial], setup: &Setup) -> Report {
    let columns = vec![
        left("LOAD"),
        left("RULES"),
        right("GROWN"),
        right("SHRUNK"),
        right("COST"),
        right("BELOW"),
        right("LATENCY"),
        right("P99"),
        right("SLOWEST GROWTH"),
    ];
    let names = trials.iter().map(|trial| format!("trial/{}-{}", trial.load.name(), trial.rules.name()));
    let document = Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "ScalingComparison", "seed": setup.seed,
            "minUnits": setup.min, "maxUnits": setup.max, "items": trials.iter().map(value).collect::<Vec<_>>() }),
        names: names.collect(),
        columns,
        rows: trials.iter().map(cells).collect(),
        ..Document::default()
    };
    let mut report = Report::document(document);
    for rules in Rules::ALL {
        report = report.note(total(trials, rules));
    }
    report
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

/// One file with a panel for each load.
fn plots(directory: &Path, trials: &[Trial], seed: u64) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(directory).map_err(|error| Error::file("create", directory, &error))?;
    let mut written = Vec::new();
    for pair in trials.chunk_by(|a, b| a.load == b.load) {
        let Some(first) = pair.first() else { continue };
        let times: Vec<Duration> = first.points.iter().map(|point| point.at).collect();
        let title = format!("{}, seed {seed}: {}", first.load.name(), first.load.description());
        let text = plot::draw(&title, &times, &[drawing(title.clone(), pair)])
            .map_err(|error| Error::new(Code::Failed, "cannot draw the plot").cause(error.to_string()))?;
        let path = directory.join(format!("compare-{}-{seed}.svg", first.load.name()));
        out::text(&path, &text).map_err(|error| Error::file("write", &path, &error))?;
        written.push(path);
    }
    Ok(written)
}

fn drawing(title: String, pair: &[Trial]) -> Drawing<'static> {
    let mut lines = Vec::new();
    if let Some(first) = pair.first() {
        let of = |value: fn(&neonvm_sim::compare::Point) -> f64| first.points.iter().map(value).collect();
        let grey = RGBColor(150, 150, 150);
        lines.push(("demand", grey, Look::Filled, of(|point| point.demand)));
        let green = RGBColor(0, 140, 70);
        lines.push(("perfect forecaster", green, Look::Dashed(2), of(|point| f64::from(point.perfect))));
    }
    for trial in pair {
        let look = match trial.rules {
            Rules::Ours => (BLUE, Look::Solid(2)),
            Rules::Upstream => (RED, Look::Dashed(6)),
        };
        let sizes = trial.points.iter().map(|point| f64::from(point.size)).collect();
        lines.push((trial.rules.name(), look.0, look.1, sizes));
    }
    Drawing { title, unit: "compute units", lines }
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
        let crate::report::Body::Document(document) = report.body else { panic!("no document") };
        assert_eq!(document.names, ["trial/idle-ours", "trial/step-ours"]);
        assert!(document.rows.iter().all(|row| row.len() == document.columns.len()));
        // 30 s of a task that never waits, in units of 90 % of a quarter CPU, within the upper bound of 4.
        assert_eq!(document.value["items"][1]["perfectUnitSeconds"], 60.0 + 30.0 * 4.0);
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
