//! What came of the runs, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use neonvm_sim::{Invariant, Outcome, Stats};
use serde_json::{Value, json};

use super::{Question, Smallest};
use crate::report::{API_VERSION, Document, Report, left, right};

/// How many broken runs are described one by one.
const SHOWN: usize = 5;

/// What is shown.
pub(super) struct SimulationReport<'a> {
    pub(super) question: &'a Question,
    pub(super) outcomes: &'a [Outcome],
    pub(super) smallest: Option<&'a Smallest>,
    pub(super) wall: Duration,
    pub(super) plots: &'a [PathBuf],
    pub(super) saved: Option<&'a Path>,
}

pub(super) fn report(seen: &SimulationReport<'_>) -> Report {
    let (checked, broken) = counts(seen.outcomes);
    let mut document = Document {
        columns: vec![left("INVARIANT"), right("CHECKED"), right("BROKEN")],
        value: value(seen, &checked, &broken),
        ..Document::default()
    };
    for invariant in Invariant::ALL {
        let of = |counts: &BTreeMap<Invariant, u64>| grouped(counts.get(invariant).copied().unwrap_or(0));
        document.names.push(format!("invariant/{}", invariant.id()));
        document.rows.push(vec![invariant.name().to_owned(), of(&checked), of(&broken)]);
    }
    let mut report = Report::document(document).note(headline(seen));
    report = report.note(happened(&total(seen.outcomes)));
    for outcome in seen.outcomes.iter().filter(|outcome| outcome.broken.is_some()).take(SHOWN) {
        report = report.note(describe(seen.question, outcome));
    }
    if let Some(smallest) = seen.smallest {
        report = report.note(shrunk(smallest, seen.saved));
    }
    for plot in seen.plots {
        report = report.note(format!("plot: {}", plot.display()));
    }
    report
}

fn counts(outcomes: &[Outcome]) -> (BTreeMap<Invariant, u64>, BTreeMap<Invariant, u64>) {
    let (mut checked, mut broken) = (BTreeMap::new(), BTreeMap::new());
    for outcome in outcomes {
        for (invariant, count) in &outcome.checked {
            *checked.entry(*invariant).or_default() += count;
        }
        if let Some(found) = &outcome.broken {
            *broken.entry(found.invariant).or_default() += 1;
        }
    }
    (checked, broken)
}

fn headline(seen: &SimulationReport<'_>) -> String {
    let scenario = &seen.question.scenario;
    let (nodes, vms) = sizes(scenario);
    let count = seen.outcomes.len();
    let events: u64 = seen.outcomes.iter().map(|outcome| outcome.events).sum();
    let each = if count == 1 { "" } else { " each" };
    format!(
        "{count} {}, {}, {}, {} simulated{each}, {} events, {:.1} s wall",
        if count == 1 { "seed" } else { "seeds" },
        plural(nodes, "node"),
        plural(vms, "VM"),
        clock(seen.outcomes.iter().map(|outcome| outcome.simulated).max().unwrap_or_default()),
        grouped(events),
        seen.wall.as_secs_f64(),
    )
}

fn sizes(scenario: &neonvm_sim::Scenario) -> (u64, u64) {
    let nodes = scenario.nodes.iter().map(|group| u64::from(group.count)).sum();
    (nodes, scenario.vms.iter().map(|group| u64::from(group.count)).sum())
}

fn total(outcomes: &[Outcome]) -> Stats {
    let mut sum = Stats::default();
    for stats in outcomes.iter().map(|outcome| &outcome.stats) {
        sum.upscales += stats.upscales;
        sum.downscales += stats.downscales;
        sum.requests += stats.requests;
        sum.denials += stats.denials;
        sum.guest_denials += stats.guest_denials;
        sum.guest_requests += stats.guest_requests;
        sum.conflicts += stats.conflicts;
        sum.migrations_started += stats.migrations_started;
        sum.migrations_succeeded += stats.migrations_succeeded;
        sum.migrations_failed += stats.migrations_failed;
        sum.scheduler_starts += stats.scheduler_starts;
        sum.agent_crashes += stats.agent_crashes;
        sum.faults += stats.faults;
        sum.vms_created += stats.vms_created;
        sum.vms_deleted += stats.vms_deleted;
        sum.refusals += stats.refusals;
        sum.short += stats.short;
        sum.ran += stats.ran;
    }
    sum
}

fn happened(stats: &Stats) -> String {
    let short = 100.0 * stats.short.as_secs_f64() / stats.ran.as_secs_f64().max(1.0);
    format!(
        "grown {}, shrunk {}, refused {} of {} requests, migrated {} ({} failed), {} faults; \
         VMs were below their demand for {short:.1} % of their time",
        grouped(stats.upscales),
        grouped(stats.downscales),
        grouped(stats.denials),
        grouped(stats.requests),
        grouped(stats.migrations_succeeded),
        grouped(stats.migrations_failed),
        grouped(stats.faults),
    )
}

/// The line that repeats a run.
fn replay(question: &Question, outcome: &Outcome) -> String {
    let until =
        question.options.until.map(|until| format!(" --until {}s", until.as_secs())).unwrap_or_default();
    format!(
        "neonctl simulate {} --seed {} --faults {}{until} --minimise",
        question.written, outcome.seed, outcome.faults
    )
}

fn describe(question: &Question, outcome: &Outcome) -> String {
    let Some(broken) = &outcome.broken else { return String::new() };
    format!(
        "seed {} breaks \"{}\" at {}: {}\n  replay: {}",
        outcome.seed,
        broken.invariant,
        clock(broken.at),
        broken.message,
        replay(question, outcome)
    )
}

fn shrunk(smallest: &Smallest, saved: Option<&Path>) -> String {
    let (nodes, vms) = sizes(&smallest.scenario);
    let mut text = format!(
        "smallest: {}, {}, {} of fault injection, faults {}",
        plural(nodes, "node"),
        plural(vms, "VM"),
        clock(smallest.scenario.duration),
        smallest.outcome.faults
    );
    if let Some(broken) = &smallest.outcome.broken {
        let _ = write!(text, "\n  at {}: {}", clock(broken.at), broken.message);
        for note in &broken.notes {
            let _ = write!(text, "\n  {note}");
        }
    }
    if let Some(file) = saved {
        let file = file.display();
        let _ = write!(
            text,
            "\n  written to {file}: neonctl simulate {file} --seed {} --faults {}",
            smallest.outcome.seed, smallest.outcome.faults
        );
    }
    text
}

fn value(
    seen: &SimulationReport<'_>,
    checked: &BTreeMap<Invariant, u64>,
    broken: &BTreeMap<Invariant, u64>,
) -> Value {
    let question = seen.question;
    let invariants = Invariant::ALL.iter().map(|invariant| {
        json!({ "id": invariant.id(), "name": invariant.name(), "help": invariant.help(),
            "checked": checked.get(invariant).unwrap_or(&0), "broken": broken.get(invariant).unwrap_or(&0) })
    });
    let invariants: Vec<Value> = invariants.collect();
    let runs: Vec<Value> = seen.outcomes.iter().map(|outcome| one(question, outcome)).collect();
    let smallest = seen.smallest.map(|smallest| {
        json!({ "scenario": smallest.scenario, "faults": smallest.outcome.faults.to_string(),
            "seed": smallest.outcome.seed, "broken": smallest.outcome.broken.as_ref().map(broken_value) })
    });
    let (nodes, vms) = sizes(&question.scenario);
    json!({ "apiVersion": API_VERSION, "kind": "Simulation", "scenario": question.scenario.name, "nodes": nodes,
        "vms": vms, "wallSeconds": seen.wall.as_secs_f64(), "invariants": invariants, "runs": runs,
        "faults": question.faults.map(|faults| faults.to_string()), "smallest": smallest,
        "plots": seen.plots.iter().map(|plot| plot.display().to_string()).collect::<Vec<_>>() })
}

fn one(question: &Question, outcome: &Outcome) -> Value {
    let stats = &outcome.stats;
    json!({ "seed": outcome.seed, "faults": outcome.faults.to_string(), "events": outcome.events,
        "simulatedSeconds": outcome.simulated.as_secs_f64(),
        "broken": outcome.broken.as_ref().map(broken_value),
        "replay": outcome.broken.as_ref().map(|_| replay(question, outcome)),
        "stats": { "vmsCreated": stats.vms_created, "vmsDeleted": stats.vms_deleted, "upscales": stats.upscales,
            "downscales": stats.downscales, "requests": stats.requests, "denials": stats.denials,
            "refusals": stats.refusals, "guestDenials": stats.guest_denials, "guestWishes": stats.guest_requests,
            "conflicts": stats.conflicts, "migrationsStarted": stats.migrations_started,
            "migrationsSucceeded": stats.migrations_succeeded, "migrationsFailed": stats.migrations_failed,
            "schedulerStarts": stats.scheduler_starts, "agentCrashes": stats.agent_crashes, "faults": stats.faults,
            "shortSeconds": stats.short.as_secs_f64(), "ranSeconds": stats.ran.as_secs_f64() } })
}

fn broken_value(broken: &neonvm_sim::Broken) -> Value {
    json!({ "invariant": broken.invariant.id(), "name": broken.invariant.name(), "atSeconds": broken.at.as_secs_f64(),
        "message": broken.message, "notes": broken.notes })
}

fn plural(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// With a comma after each three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
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
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1000, 4_182_220].map(grouped), ["0", "999", "1,000", "4,182,220"]);
        assert_eq!(clock(Duration::from_millis(4_327_350)), "01:12:07.350");
    }
}
