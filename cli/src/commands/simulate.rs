//! `simulate`

mod compare;
mod library;
mod plot;
mod replicas;
mod runs;
mod view;

use std::path::Path;
use std::time::Instant;

use neonvm_builder::out;
use neonvm_sim::{FaultSet, Options, Outcome, Record, Scenario, minimise};
use serde_json::json;

use crate::args::simulate::{Other, Simulate as Args};
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::report::{API_VERSION, Document, Report, left};
use crate::settings;

pub(crate) use library::NAMED;

/// What was asked for.
struct Question {
    scenario: Scenario,
    /// As it was written, for the line that repeats a run.
    written: String,
    faults: Option<FaultSet>,
    options: Options,
}

/// A smaller world that breaks the same.
struct Smallest {
    scenario: Scenario,
    outcome: Outcome,
}

/// Runs a scenario under one seed or many.
pub(super) fn run(env: &Env, args: &Args, quiet: bool) -> Result<Report> {
    match &args.other {
        Some(Other::Replicas(args)) => return replicas::run(args),
        Some(Other::Compare(args)) => return compare::run(args),
        None => {}
    }
    let Some(written) = &args.scenario else { return list() };
    let question = ask(written, args)?;
    let show = env.stderr_terminal && !quiet;
    let begun = Instant::now();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let parallel = args.parallel.map_or(processors, usize::from);
    let seeds = args.seed..args.seed.saturating_add(args.seeds);
    let mut outcomes = runs::all(&question.scenario, &question.options, &seeds, parallel, show);
    let plots = match &args.plot {
        Some(directory) => {
            let first = outcomes.first_mut().and_then(|outcome| outcome.series.take());
            plot::write(directory, &question.scenario.name, args.seed, first.as_ref())?
        }
        None => Vec::new(),
    };
    let broken = outcomes.iter().find(|outcome| outcome.broken.is_some());
    let smallest = match broken.filter(|_| args.minimise) {
        Some(outcome) => smallest(&question, outcome, args.save.as_deref())?,
        None => None,
    };
    let seen = view::SimulationReport {
        question: &question,
        outcomes: &outcomes,
        smallest: smallest.as_ref(),
        wall: begun.elapsed(),
        plots: &plots,
        saved: args.save.as_deref().filter(|_| smallest.is_some()),
    };
    let mut report = view::report(&seen);
    if args.check && broken.is_some() {
        report.code = Code::Unhealthy.number();
    }
    Ok(report)
}

fn ask(written: &str, args: &Args) -> Result<Question> {
    let scenario = library::open(written)?;
    let usage = |error: &dyn std::fmt::Display| Error::new(Code::Usage, format!("--faults: {error}"));
    let faults = args.faults.as_deref().map(str::parse::<FaultSet>).transpose().map_err(|e| usage(&e))?;
    let until = match args.until.as_deref() {
        Some(text) => Some(settings::duration(text).filter(|time| !time.is_zero()).ok_or_else(|| {
            Error::new(Code::Usage, format!("--until: {text:?} is not valid"))
                .hint("use a duration such as 90s, 10m or 2h")
        })?),
        None => None,
    };
    let record = if args.plot.is_some() { Record::NodesAndVms(usize::from(args.vms)) } else { Record::None };
    let options = Options { seed: args.seed, faults, bug: None, record, until };
    Ok(Question { scenario, written: written.to_owned(), faults, options })
}

fn smallest(question: &Question, outcome: &Outcome, save: Option<&Path>) -> Result<Option<Smallest>> {
    let options = Options { seed: outcome.seed, record: Record::None, ..question.options.clone() };
    let Some((mut scenario, options, outcome)) = minimise(&question.scenario, &options) else {
        return Ok(None);
    };
    // The file holds all: no flag but the seed is needed to repeat it.
    scenario.faults = options.faults.unwrap_or(scenario.faults);
    if let Some(file) = save {
        out::text(file, &library::text(&scenario)?).map_err(|error| Error::file("write", file, &error))?;
    }
    Ok(Some(Smallest { scenario, outcome }))
}

fn list() -> Result<Report> {
    let mut items = Vec::new();
    let mut document = Document { columns: vec![left("NAME"), left("SHOWS")], ..Document::default() };
    for (name, text) in NAMED {
        let scenario = library::parse(name, text)?;
        items.push(json!({ "apiVersion": API_VERSION, "kind": "Scenario", "metadata": { "name": name },
            "description": scenario.description }));
        document.names.push(format!("scenario/{name}"));
        document.rows.push(vec![(*name).to_owned(), scenario.description.trim().to_owned()]);
    }
    document.value = json!({ "apiVersion": API_VERSION, "kind": "ScenarioList", "items": items });
    Ok(Report::document(document))
}
