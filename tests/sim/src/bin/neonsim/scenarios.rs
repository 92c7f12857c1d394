//! A fleet under one seed or many.

mod view;

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use neonvm_sim::{Options, Outcome, Record, Scenario, minimise};
use serde_json::json;

use crate::args::Args;
use crate::report::{API_VERSION, Column, Report};

macro_rules! named {
    ($($name:literal,)*) => {
        &[$(($name, include_str!(concat!("../../../../../examples/scenarios/", $name, ".yaml"))),)*]
    };
}

/// Name and text of each built-in scenario.
const NAMED: &[(&str, &str)] = named![
    "rush-hour",
    "noisy-neighbours",
    "scheduler-restarts",
    "stubborn-guests",
    "moving-day",
    "quiet-fleet",
    "big-day",
];

/// Longest file that is read, in bytes.
const LONGEST: u64 = 1 << 20;

struct Setup<'a> {
    scenario: Scenario,
    /// The name or file on the command line, for the line that repeats a run.
    written: &'a str,
    options: Options,
}

/// A smaller world that breaks the same invariant.
struct Smallest {
    scenario: Scenario,
    outcome: Outcome,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Report> {
    let Some(written) = &args.scenario else { return list() };
    let record = if args.plot.is_some() { Record::NodesAndVms(usize::from(args.vms)) } else { Record::None };
    let options = Options { seed: args.seed, faults: args.faults, bug: None, record, until: args.until };
    let setup = Setup { scenario: open(written)?, written, options };
    let started = Instant::now();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let parallel = args.parallel.map_or(processors, usize::from);
    let mut outcomes = run_all(&setup, args.seed..args.seed.saturating_add(args.seeds), parallel);
    let series = outcomes.first_mut().and_then(|outcome| outcome.series.take());
    let plots = match &args.plot {
        Some(directory) => view::plots(directory, &setup, series.as_ref())?,
        None => Vec::new(),
    };
    let broken = outcomes.iter().find(|outcome| outcome.broken.is_some());
    let smallest = match broken.filter(|_| args.minimise) {
        Some(outcome) => smallest(&setup, outcome, args.save.as_deref())?,
        None => None,
    };
    let is_broken = broken.is_some();
    let mut report = view::report(&setup, &outcomes, started.elapsed());
    if let Some(smallest) = &smallest {
        report.notes.push(view::shrunk(smallest, args.save.as_deref()));
        if let Some(fields) = report.value.as_object_mut() {
            fields.insert("smallest".to_owned(), view::smallest_value(smallest));
        }
    }
    report.notes.extend(plots.iter().map(|plot| format!("plot: {}", plot.display())));
    report.broken = args.check && is_broken;
    Ok(report)
}

/// The scenario of this name, else that of this file.
fn open(written: &str) -> anyhow::Result<Scenario> {
    if let Some((name, text)) = NAMED.iter().find(|(name, _)| *name == written) {
        return parse(name, text);
    }
    let names: Vec<&str> = NAMED.iter().map(|(name, _)| *name).collect();
    let path = Path::new(written);
    let about = path.metadata().map_err(|error| {
        let names = names.join(", ");
        anyhow!("there is no scenario {written:?} (built-in: {names}), and no such file: {error}")
    })?;
    ensure!(about.len() <= LONGEST, "{written} is longer than 1 MiB: not a scenario");
    parse(written, &std::fs::read_to_string(path).with_context(|| format!("cannot read {written}"))?)
}

fn parse(name: &str, text: &str) -> anyhow::Result<Scenario> {
    Scenario::parse(text)
        .with_context(|| format!("scenario {name} is not valid; there are examples in examples/scenarios"))
}

/// All runs, in the order of their seeds. The first is recorded as requested, the others are not.
fn run_all(setup: &Setup<'_>, seeds: Range<u64>, parallel: usize) -> Vec<Outcome> {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mut done = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return done;
            }
            let record = if seed == seeds.start { setup.options.record } else { Record::None };
            done.push(neonvm_sim::run(&setup.scenario, &Options { seed, record, ..setup.options.clone() }));
        }
    };
    let mut outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..parallel).map(|_| scope.spawn(work)).collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, _>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().flat_map(join).collect()
    });
    outcomes.sort_by_key(|outcome| outcome.seed);
    outcomes
}

fn smallest(setup: &Setup<'_>, outcome: &Outcome, save: Option<&Path>) -> anyhow::Result<Option<Smallest>> {
    let options = Options { seed: outcome.seed, record: Record::None, ..setup.options.clone() };
    let Some((mut scenario, options, outcome)) = minimise(&setup.scenario, &options) else {
        return Ok(None);
    };
    // The file holds everything but the seed.
    scenario.faults = options.faults.unwrap_or(scenario.faults);
    if let Some(file) = save {
        let text = serde_saphyr::to_string(&scenario).context("cannot write the scenario as YAML")?;
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(Some(Smallest { scenario, outcome }))
}

fn list() -> anyhow::Result<Report> {
    let mut report =
        Report { columns: vec![Column::Left("NAME"), Column::Left("SHOWS")], ..Report::default() };
    let mut items = Vec::new();
    for (name, text) in NAMED {
        let scenario = parse(name, text)?;
        items.push(json!({ "name": name, "description": scenario.description }));
        report.rows.push(vec![(*name).to_owned(), scenario.description.trim().to_owned()]);
    }
    report.value = json!({ "apiVersion": API_VERSION, "kind": "ScenarioList", "items": items });
    Ok(report)
}

/// `01:12:07.350`
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{:02}:{:02}:{:02}.{:03}", seconds / 3600, seconds / 60 % 60, seconds % 60, time.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_of_the_examples_has_its_name() {
        for (name, given) in NAMED {
            let scenario = parse(name, given).unwrap();
            assert_eq!(scenario.name, *name);
            let written = serde_saphyr::to_string(&scenario).unwrap();
            assert_eq!(parse(name, &written).unwrap(), scenario, "{name} reads back");
        }
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scenarios");
        assert_eq!(std::fs::read_dir(directory).unwrap().count(), NAMED.len());
    }

    #[test]
    fn mistakes_are_named() {
        let error = open("rush-our").unwrap_err().to_string();
        assert!(error.contains("rush-our") && error.contains("rush-hour"), "{error}");
        let error = parse("x", "name: x\nduration: 1h\nnodes: []\nvms: []\n").unwrap_err();
        assert!(error.chain().count() > 1, "{error:?}");
    }

    #[test]
    fn times_are_readable() {
        assert_eq!(clock(Duration::from_millis(4_327_350)), "01:12:07.350");
    }
}
