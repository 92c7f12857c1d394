//! A past as text.

use jiff::Timestamp;
use neonvm_types::Resources;

use super::summary::Summary;
use super::{Entry, Past};
use crate::live::size::cores;
use crate::report::{Column, left};

/// A moment as RFC 3339 in UTC with milliseconds; empty if it is beyond the years of that form.
pub(crate) fn time(at: i64) -> String {
    Timestamp::from_millisecond(at).map_or_else(|_| String::new(), |at| format!("{at:.3}"))
}

/// A moment in UTC as tables have it: with the date if the window is longer than a day.
pub(crate) fn clock(past: &Past, at: i64) -> String {
    let text = time(at);
    let short = text.split_once('T').and_then(|(date, time)| Some((date.get(5..)?, time.get(..8)?)));
    match short {
        Some((_, time)) if past.until - past.since <= 24 * 3_600_000 => time.to_owned(),
        Some((date, time)) => format!("{date} {time}"),
        None => text,
    }
}

/// A size as `0.50 CPU/2Gi`.
pub(crate) fn size(size: Resources) -> String {
    format!("{} CPU/{}", cores(size.vcpus), size.mem)
}

fn span(seconds: f64) -> String {
    if seconds < 10.0 {
        return format!("{seconds:.1}s");
    }
    crate::render::span(std::time::Duration::from_secs_f64(seconds.clamp(0.0, 1e9)).as_secs())
}

/// What the window was, and its numbers: one fact each.
pub(crate) fn facts(past: &Past) -> Vec<(&'static str, String)> {
    let summary = Summary::of(past);
    let whole = |at| time(at).replace('T', " ").get(..19).unwrap_or_default().to_owned();
    let mut facts = vec![
        ("VM", past.vm.clone()),
        ("Window", format!("{} to {} UTC", whole(past.since), whole(past.until))),
    ];
    match summary.size {
        None => facts.push(("Size", "no agent recorded one in this window".to_owned())),
        Some(last) => {
            let times = |count: u64| if count == 1 { "once".to_owned() } else { format!("{count} times") };
            facts.push((
                "Size",
                format!(
                    "{} to {}, {} at the end; grew {}, shrank {}",
                    size(summary.smallest),
                    size(summary.largest),
                    size(last),
                    times(summary.grew),
                    times(summary.shrank)
                ),
            ));
            facts.push((
                "Waited",
                format!(
                    "{} below its goal, of these {} without a permit; observed for {}",
                    span(summary.below_goal_seconds),
                    span(summary.without_permit_seconds),
                    span(summary.observed_seconds)
                ),
            ));
        }
    }
    facts
}

pub(crate) fn columns() -> Vec<Column> {
    ["TIME", "FROM", "KIND", "WHAT"].map(left).into()
}

pub(crate) fn row(past: &Past, entry: &Entry) -> Vec<String> {
    let kind = format!("{:?}", entry.kind);
    vec![clock(past, entry.at), entry.from.clone(), kind, entry.text.clone()]
}

/// The facts above the table of entries.
pub(crate) fn text(past: &Past) -> String {
    let mut text: String = facts(past).iter().map(|(name, value)| format!("{name:<8}{value}\n")).collect();
    if past.entries.is_empty() {
        return text + "\nNo decision, event or migration is known in this window.";
    }
    let rows: Vec<_> = past.entries.iter().map(|entry| row(past, entry)).collect();
    text.push('\n');
    text.push_str(&crate::render::rows(&columns(), &rows));
    text.trim_end().to_owned()
}
