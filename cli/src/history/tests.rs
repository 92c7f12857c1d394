//! A past of an hour, with all that can be in it.

use neonvm_types::agent_history::{AgentHistory, Began, Decided, Record, Sample};
use neonvm_types::{Bytes, MilliCpu, Resources};
use proptest::prelude::*;

use super::{Summary, *};

const MINUTE: i64 = 60_000;
/// 2026-11-26 09:00:00 UTC.
const NINE: i64 = 1_795_683_600_000;

fn units(count: u16) -> Resources {
    Resources::new(MilliCpu::new(250), Bytes::gib(1)).saturating_mul(count)
}

fn sample(at: i64, now: u16, goal: u16, permit: u16) -> Record {
    let sample = Sample {
        now: units(now),
        goal: units(goal),
        permit: Some(units(permit)),
        load1: Some(0.5),
        memory_used_bytes: Some(1 << 29),
    };
    Record { at, sample: Some(sample), ..Record::default() }
}

fn decision(at: i64, text: &str) -> Record {
    let decision = Decided { text: text.to_owned(), reason: Some("bounded by <max>".to_owned()) };
    Record { at, decision: Some(decision), ..Record::default() }
}

/// Grows at 9:10 (wanted since 9:09, without a permit), moves at 9:20, shrinks at 9:21 on the other node.
pub(crate) fn past() -> Past {
    let began = Began { uid: "u".into(), pod: "pg-abcde".into() };
    let first = AgentHistory {
        node: "n1".into(),
        kept: true,
        records: vec![
            sample(NINE - MINUTE, 1, 1, 1),
            Record { at: NINE + MINUTE, began: Some(began), ..Record::default() },
            sample(NINE + 9 * MINUTE, 1, 4, 1),
            decision(NINE + 9 * MINUTE, "ask scheduler 1 -> 4"),
            sample(NINE + 10 * MINUTE, 4, 4, 4),
        ],
    };
    let second = AgentHistory {
        node: "n2".into(),
        kept: true,
        records: vec![sample(NINE + 21 * MINUTE, 1, 1, 4), sample(NINE + 70 * MINUTE, 2, 2, 2)],
    };
    let other = |at, kind, text: &str, mark: &str| Entry {
        at,
        kind,
        from: "vm-controller".into(),
        text: text.into(),
        mark: mark.into(),
    };
    let others = vec![
        other(NINE + 20 * MINUTE, Kind::Migration, "pg-1 succeeded: pg runs on n2", "moved to n2"),
        other(NINE - 5 * MINUTE, Kind::Event, "before the window", ""),
        other(NINE + 15 * MINUTE, Kind::Warning, "out of memory \u{1b}[2J", "out of memory"),
    ];
    Past::new("default/pg".into(), (NINE, NINE + 60 * MINUTE), vec![first, second], others)
}

#[test]
fn what_is_beyond_the_window_is_left_out_and_what_held_at_its_start_is_kept() {
    let past = past();
    let kinds: Vec<Kind> = past.entries.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [Kind::Agent, Kind::Decision, Kind::Warning, Kind::Migration]);
    let times: Vec<i64> = past.samples.iter().map(|(at, _)| (at - NINE) / MINUTE).collect();
    assert_eq!(times, [0, 9, 10, 21]);
}

#[test]
fn the_numbers_are_those_of_the_window() {
    let summary = Summary::of(&past());
    assert_eq!((summary.grew, summary.shrank), (1, 1));
    assert_eq!((summary.smallest, summary.largest, summary.size), (units(1), units(4), Some(units(1))));
    // 9 minutes at 1, 1 minute at 1 below the goal, 11 at 4; the last sample stands for no more than a gap.
    let observed = f64::from(9 + 1 + 11 + 11) * 60.0;
    assert!((summary.observed_seconds - observed).abs() < 1e-6, "{summary:?}");
    assert!(
        (summary.below_goal_seconds - 60.0).abs() < 1e-6
            && (summary.without_permit_seconds - 60.0).abs() < 1e-6
    );
    assert!((summary.cpu_seconds - f64::from(9 + 1 + 44 + 11) * 15.0).abs() < 1e-6);
    assert_eq!((summary.migrations, summary.warnings), (1, 1));
}

#[test]
fn the_text_is_for_people() {
    let text = super::text(&past());
    let expected = "\
VM      default/pg
Window  2026-11-26 09:00:00 to 2026-11-26 10:00:00 UTC
Size    0.25 CPU/1Gi to 1.00 CPU/4Gi, 0.25 CPU/1Gi at the end; grew once, shrank once
Waited  1m below its goal, of these 1m without a permit; observed for 32m
";
    assert!(text.starts_with(expected), "{text}");
    assert!(
        text.contains("09:09:00  agent/n1       Decision   ask scheduler 1 -> 4 (bounded by <max>)"),
        "{text}"
    );
    let empty = Past { until: 2 * 86_400_000, vm: "a/b".into(), ..Past::default() };
    assert!(super::text(&empty).ends_with("No decision, event or migration is known in this window."));
    assert_eq!(clock(&empty, MINUTE), "01-01 00:01:00");
}

#[test]
fn the_json_has_times_that_programs_read() {
    let value = past().value();
    assert_eq!(value["kind"], "VmHistory");
    assert_eq!(value["since"], "2026-11-26T09:00:00.000Z");
    assert_eq!(value["entries"][1]["at"], "2026-11-26T09:09:00.000Z");
    assert_eq!(value["samples"][2]["now"], serde_json::json!({ "vCPUs": 1, "mem": "4Gi" }));
    assert_eq!(value["summary"]["grew"], 1);
}

#[test]
fn the_plot_has_all_lines_and_marks_and_the_page_needs_nothing_else() {
    let past = past();
    let svg = chart::svg(&past).unwrap();
    for word in ["load", "goal", "permit", "size", "GiB", "moved to n2", "09:30", "<title>VM: default/pg"] {
        assert!(svg.contains(word), "{word}");
    }
    assert!(!svg.contains("NaN") && !svg.contains('\u{1b}'));
    let page = html(&past).unwrap();
    assert!(page.contains("bounded by &lt;max&gt;") && page.contains("out of memory \\x1b[2J"));
    assert!(
        !page.contains("http://")
            || page.matches("http://").count() == page.matches("http://www.w3.org/").count()
    );
    assert!(!page.contains("https://") && !page.contains("<script"));
}

#[test]
fn a_plot_begins_with_what_is_known() {
    let whole = past();
    let late = Past { since: NINE - 600 * MINUTE, ..whole.clone() };
    let labels = |past: &Past| chart::svg(past).unwrap().matches("09:30").count();
    assert_eq!((labels(&whole), labels(&late)), (2, 2));
}

#[test]
fn an_empty_window_is_drawn() {
    let past = Past { vm: "a/b".into(), since: NINE, until: NINE, ..Past::default() };
    assert!(chart::svg(&past).unwrap().contains("<svg"));
    assert!(html(&past).unwrap().contains("No decision"));
}

proptest! {
    /// Whatever agents answer, nothing panics, spans are within the window and in order.
    #[test]
    fn any_records_make_a_past(
        times in prop::collection::vec(any::<i64>(), 0..20),
        sizes in prop::collection::vec(0_u16..9, 20),
        window in (0_i64..1 << 42, 0_i64..1 << 36),
    ) {
        let records = times.iter().zip(&sizes).map(|(at, size)| sample(*at, *size, 8 - size, *size)).collect();
        let agent = AgentHistory { node: "n".into(), kept: true, records };
        let past = Past::new("a/b".into(), (window.0, window.0 + window.1), vec![agent], Vec::new());
        let mut last = window.0;
        for (from, to, _) in past.spans() {
            prop_assert!(last <= from && from <= to && to <= window.0 + window.1);
            last = from;
        }
        chart::svg(&past).unwrap();
        super::text(&past);
        past.value();
    }
}
