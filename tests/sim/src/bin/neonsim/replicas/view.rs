//! A replay as a table over time and as JSON.

use neonvm_core_pod_autoscaler::explain::{limit_text, reason_text};
use neonvm_core_pod_autoscaler::number::render;
use neonvm_sim::replay::{Outcome, Row, Rule};
use serde_json::{Value, json};

use crate::report::{API_VERSION, Column, Report};

/// How many broken rules are described one by one.
const SHOWN: usize = 5;

/// What came of it. Unless `all` are asked for, the table has the decisions with which something changes.
pub(super) fn report(name: &str, outcome: &Outcome, all: bool) -> Report {
    let mut report = Report {
        columns: vec![
            Column::Right("TIME"),
            Column::Right("LOAD"),
            Column::Right("REPLICAS"),
            Column::Right("READY"),
            Column::Right("WANTED"),
            Column::Right("ORDERED"),
            Column::Left("REASON"),
            Column::Left("HELD"),
        ],
        value: value(name, outcome),
        notes: vec![describe(outcome)],
        ..Report::default()
    };
    let mut before: Option<&Row> = None;
    for (index, row) in outcome.rows.iter().enumerate() {
        let is_last = index + 1 == outcome.rows.len();
        if all || is_last || before.is_none_or(|before| differs(before, row)) {
            report.rows.push(cells(row));
        }
        before = Some(row);
    }
    let broken = outcome.broken.iter().take(SHOWN);
    report.notes.extend(broken.map(|broken| {
        format!("\"{}\" is broken at {}: {}", broken.rule.name(), clock(broken.second), broken.message)
    }));
    if outcome.broken.is_empty() {
        let checks: u64 = outcome.checked.values().sum();
        report.notes.push(format!("{} rules checked {checks} times, none broken", Rule::ALL.len()));
    }
    report
}

/// Reasons and limits alone come and go at the border of a tolerance.
fn differs(before: &Row, row: &Row) -> bool {
    let of = |row: &Row| (row.replicas, row.ready, row.wanted, row.desired, row.missing, row.panicking);
    of(before) != of(row)
}

fn cells(row: &Row) -> Vec<String> {
    let load = |load: &Option<_>| {
        load.map_or_else(|| "?".to_owned(), |load: neonvm_core_pod_autoscaler::Finite| render(load.get()))
    };
    let panic = if row.panicking { "in panic" } else { "" };
    let loads: Vec<String> = row.loads.iter().map(load).collect();
    vec![
        clock(row.second),
        loads.join(" "),
        row.replicas.to_string(),
        row.ready.to_string(),
        row.wanted.to_string(),
        row.desired.to_string(),
        reason_text(row.reason).to_owned(),
        row.limit.map_or(panic, limit_text).to_owned(),
    ]
}

fn describe(outcome: &Outcome) -> String {
    let summary = &outcome.summary;
    let share = 100.0 * summary.above_target_seconds as f64 / f64::from(summary.seconds.max(1));
    let mean = summary.pod_seconds as f64 / f64::from(summary.seconds.max(1));
    format!(
        "{} of load, {} decisions ({} without all metrics): {} pod-seconds ({mean:.1} pods on average, {} to {}), above target for {} s ({share:.1} %), {} changes, {} flaps",
        clock(summary.seconds),
        summary.decisions,
        summary.blind_decisions,
        summary.pod_seconds,
        summary.fewest,
        summary.most,
        summary.above_target_seconds,
        summary.changes,
        summary.flaps,
    )
}

fn value(name: &str, outcome: &Outcome) -> Value {
    let rules = Rule::ALL.iter().map(|rule| {
        let broken = outcome.broken.iter().filter(|broken| broken.rule == *rule).count();
        json!({ "id": rule.id(), "name": rule.name(), "checked": outcome.checked.get(rule).unwrap_or(&0), "broken": broken })
    });
    json!({ "apiVersion": API_VERSION, "kind": "Replay", "metadata": { "name": name }, "summary": outcome.summary,
        "rules": rules.collect::<Vec<_>>(), "broken": outcome.broken, "decisions": outcome.rows })
}

/// `01:12:07`; hours go on beyond a day.
fn clock(second: u32) -> String {
    format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}
