//! The outcome of runs: how often each invariant was checked and broken, as a table, as JSON and as plots.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use neonvm_sim::{Invariant, NodeSeries, Outcome, Scenario, Series, Stats, VmSeries};
use neonvm_types::Resources;
use plotters::style::{BLUE, RED};
use serde_json::{Value, json};

use super::{Setup, Smallest, clock};
use crate::chart::{self, GREEN, GREY, Line, ORANGE, Panel};
use crate::report::{API_VERSION, Column, Report, grouped};

/// Broken runs that are described one by one.
const SHOWN: usize = 5;
const NODES: usize = 24;

pub(super) fn report(setup: &Setup<'_>, outcomes: &[Outcome], wall: Duration) -> Report {
    let (checked, broken) = counts(outcomes);
    let of = |counts: &BTreeMap<Invariant, u64>, invariant: &Invariant| {
        counts.get(invariant).copied().unwrap_or(0)
    };
    let row = |invariant: &Invariant| {
        vec![invariant.name().to_owned(), grouped(of(&checked, invariant)), grouped(of(&broken, invariant))]
    };
    let mut notes = vec![headline(setup, outcomes, wall), happened(&total(outcomes))];
    let broken_runs = outcomes.iter().filter(|outcome| outcome.broken.is_some());
    notes.extend(broken_runs.take(SHOWN).map(|outcome| describe(setup, outcome)));
    Report {
        columns: vec![Column::Left("INVARIANT"), Column::Right("CHECKED"), Column::Right("BROKEN")],
        rows: Invariant::ALL.iter().map(row).collect(),
        value: value(setup, outcomes, (&checked, &broken), wall),
        notes,
        broken: false,
    }
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

fn headline(setup: &Setup<'_>, outcomes: &[Outcome], wall: Duration) -> String {
    let count = outcomes.len();
    let events: u64 = outcomes.iter().map(|outcome| outcome.events).sum();
    format!(
        "{count} {}, {}, {} simulated{}, {} events, {:.1} s wall",
        if count == 1 { "seed" } else { "seeds" },
        size(&setup.scenario),
        clock(outcomes.iter().map(|outcome| outcome.simulated).max().unwrap_or_default()),
        if count == 1 { "" } else { " each" },
        grouped(events),
        wall.as_secs_f64(),
    )
}

fn size(scenario: &Scenario) -> String {
    let plural =
        |count: u64, noun: &str| format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" });
    format!("{}, {}", plural(scenario.node_count(), "node"), plural(scenario.vm_count(), "VM"))
}

/// The sums of what [`happened`] shows.
fn total(outcomes: &[Outcome]) -> Stats {
    let mut sum = Stats::default();
    for stats in outcomes.iter().map(|outcome| &outcome.stats) {
        sum.upscales += stats.upscales;
        sum.downscales += stats.downscales;
        sum.requests += stats.requests;
        sum.denials += stats.denials;
        sum.migrations_succeeded += stats.migrations_succeeded;
        sum.migrations_failed += stats.migrations_failed;
        sum.faults += stats.faults;
        sum.short += stats.short;
        sum.ran += stats.ran;
    }
    sum
}

fn happened(stats: &Stats) -> String {
    let short = 100.0 * stats.short.as_secs_f64() / stats.ran.as_secs_f64().max(1.0);
    format!(
        "grown {}, shrunk {}, denied {} of {} requests, migrated {} ({} failed), {} faults; \
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

/// The command that repeats a run.
fn replay(setup: &Setup<'_>, outcome: &Outcome) -> String {
    let until = setup.options.until.map(|until| format!(" --until {}s", until.as_secs()));
    format!(
        "neonsim {} --seed {} --faults {}{} --minimise",
        setup.written,
        outcome.seed,
        outcome.faults,
        until.unwrap_or_default()
    )
}

fn describe(setup: &Setup<'_>, outcome: &Outcome) -> String {
    let Some(broken) = &outcome.broken else { return String::new() };
    format!(
        "seed {} breaks \"{}\" at {}: {}\n  replay: {}",
        outcome.seed,
        broken.invariant,
        clock(broken.at),
        broken.message,
        replay(setup, outcome)
    )
}

/// The minimised world, and where it was written.
pub(super) fn shrunk(smallest: &Smallest, saved: Option<&Path>) -> String {
    let mut text = format!(
        "smallest: {}, {} of fault injection, faults {}",
        size(&smallest.scenario),
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
        let seed = smallest.outcome.seed;
        let faults = smallest.outcome.faults;
        let _ = write!(text, "\n  written to {file}: neonsim {file} --seed {seed} --faults {faults}");
    }
    text
}

fn value(
    setup: &Setup<'_>,
    outcomes: &[Outcome],
    (checked, broken): (&BTreeMap<Invariant, u64>, &BTreeMap<Invariant, u64>),
    wall: Duration,
) -> Value {
    let invariant = |invariant: &Invariant| {
        json!({ "id": invariant.id(), "name": invariant.name(), "help": invariant.help(),
            "checked": checked.get(invariant).unwrap_or(&0), "broken": broken.get(invariant).unwrap_or(&0) })
    };
    json!({ "apiVersion": API_VERSION, "kind": "Simulation", "scenario": setup.scenario.name,
        "nodes": setup.scenario.node_count(), "vms": setup.scenario.vm_count(), "wallSeconds": wall.as_secs_f64(),
        "invariants": Invariant::ALL.iter().map(invariant).collect::<Vec<_>>(),
        "runs": outcomes.iter().map(|outcome| one(setup, outcome)).collect::<Vec<_>>() })
}

fn one(setup: &Setup<'_>, outcome: &Outcome) -> Value {
    let stats = &outcome.stats;
    json!({ "seed": outcome.seed, "faults": outcome.faults.to_string(), "events": outcome.events,
        "simulatedSeconds": outcome.simulated.as_secs_f64(),
        "broken": outcome.broken.as_ref().map(broken_value),
        "replay": outcome.broken.as_ref().map(|_| replay(setup, outcome)),
        "stats": { "vmsCreated": stats.vms_created, "vmsDeleted": stats.vms_deleted, "upscales": stats.upscales,
            "downscales": stats.downscales, "requests": stats.requests, "denials": stats.denials,
            "refusals": stats.refusals, "guestDenials": stats.guest_denials, "guestRequests": stats.guest_requests,
            "conflicts": stats.conflicts, "migrationsStarted": stats.migrations_started,
            "migrationsSucceeded": stats.migrations_succeeded, "migrationsFailed": stats.migrations_failed,
            "schedulerStarts": stats.scheduler_starts, "agentCrashes": stats.agent_crashes, "faults": stats.faults,
            "shortSeconds": stats.short.as_secs_f64(), "ranSeconds": stats.ran.as_secs_f64() } })
}

pub(super) fn smallest_value(smallest: &Smallest) -> Value {
    json!({ "scenario": smallest.scenario, "faults": smallest.outcome.faults.to_string(),
        "seed": smallest.outcome.seed, "broken": smallest.outcome.broken.as_ref().map(broken_value) })
}

fn broken_value(broken: &neonvm_sim::Broken) -> Value {
    json!({ "invariant": broken.invariant.id(), "name": broken.invariant.name(), "atSeconds": broken.at.as_secs_f64(),
        "message": broken.message, "notes": broken.notes })
}

/// Draws the recorded nodes and VMs, a file for each, and returns their paths.
pub(super) fn plots(
    directory: &Path,
    setup: &Setup<'_>,
    series: Option<&Series>,
) -> anyhow::Result<Vec<PathBuf>> {
    let series = series.filter(|series| !series.times.is_empty());
    let series = series.context("there is nothing to plot: the run ended within its first minute")?;
    let nodes: Vec<Panel> = series.nodes.iter().take(NODES).flat_map(node).collect();
    let vms: Vec<Panel> = series.vms.iter().map(vm).collect();
    let files = [("nodes", nodes), ("vms", vms)].into_iter().filter(|(_, panels)| !panels.is_empty());
    let write = |(what, panels): (&str, Vec<Panel>)| {
        let name = format!("{}-{}-{what}.svg", setup.scenario.name, setup.options.seed);
        chart::write(directory, &name, &series.times, &panels)
    };
    files.map(write).collect()
}

fn node(node: &NodeSeries) -> [Panel; 2] {
    let cpu = |size: &Resources| size.vcpus.as_f64();
    let memory = |size: &Resources| size.mem.get() as f64 / f64::from(1 << 30);
    let panel = |what: &str, unit, of: fn(&Resources) -> f64| {
        let values = |sizes: &[Resources]| sizes.iter().map(of).collect();
        Panel {
            title: format!("{} – {what}", node.name),
            unit,
            lines: vec![
                Line {
                    name: "capacity",
                    colour: RED,
                    dashes: 2,
                    values: vec![of(&node.capacity); node.used.len()],
                },
                Line { name: "reserved", colour: ORANGE, dashes: 6, values: values(&node.reserved) },
                Line { name: "used", colour: BLUE, dashes: 0, values: values(&node.used) },
            ],
        }
    };
    [panel("CPU", "CPUs", cpu), panel("memory", "GiB", memory)]
}

fn vm(vm: &VmSeries) -> Panel {
    Panel {
        title: vm.name.clone(),
        unit: "compute units",
        lines: vec![
            Line { name: "demand", colour: GREY, dashes: 0, values: vm.demand.clone() },
            Line { name: "goal", colour: ORANGE, dashes: 6, values: vm.goal.clone() },
            Line { name: "permit", colour: GREEN, dashes: 2, values: vm.permit.clone() },
            Line { name: "size", colour: BLUE, dashes: 0, values: vm.size.clone() },
        ],
    }
}
