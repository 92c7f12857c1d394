//! The past of a VM: what its agents kept, events and migrations, merged into one account. Pure.
//!
//! [`Past`] is made from what `commands/vm/history` fetched; [`text`], [`chart`] and [`html`] show it.

pub(crate) mod chart;
#[cfg(test)]
pub(crate) mod tests;

use jiff::Timestamp;
use neonvm_types::Resources;
use neonvm_types::agent_history::{AgentHistory, Sample};
use serde::Serialize;
use serde_json::{Value, json};

use crate::live::size::{cores, gib};
use crate::plot::{Failed, escape};
use crate::report::{API_VERSION, Column, left};

/// Without a sample for so long no agent observed the VM: lines have a gap. In milliseconds; an agent records an idle VM every
/// five minutes.
pub(crate) const GAP: i64 = 11 * 60 * 1000;

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum Kind {
    Agent,
    Decision,
    Event,
    Warning,
    Migration,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Entry {
    /// Milliseconds since 1970.
    #[serde(serialize_with = "written")]
    pub(crate) at: i64,
    pub(crate) kind: Kind,
    pub(crate) from: String,
    pub(crate) text: String,
    /// A few words, for a mark in a plot; empty: none.
    #[serde(skip)]
    pub(crate) mark: String,
}

fn written<S: serde::Serializer>(at: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&time(*at))
}

/// All that is known of a time window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Past {
    /// `namespace/name`.
    pub(crate) vm: String,
    /// Milliseconds since 1970.
    pub(crate) since: i64,
    pub(crate) until: i64,
    /// Oldest first.
    pub(crate) entries: Vec<Entry>,
    /// Oldest first; the first one may be from the start of the window, where an earlier one held.
    pub(crate) samples: Vec<(i64, Sample)>,
}

impl Past {
    /// Merges what agents kept with other entries, and leaves out what is beyond the window.
    pub(crate) fn new(
        vm: String,
        (since, until): (i64, i64),
        agents: Vec<AgentHistory>,
        others: Vec<Entry>,
    ) -> Self {
        let mut past = Self { vm, since, until, entries: others, samples: Vec::new() };
        for agent in agents {
            let from = format!("agent/{}", agent.node);
            for record in agent.records {
                let entry =
                    |kind, text| Entry { at: record.at, kind, from: from.clone(), text, mark: String::new() };
                if let Some(began) = record.began {
                    past.entries
                        .push(entry(Kind::Agent, format!("begins to scale the VM in pod {}", began.pod)));
                }
                if let Some(decision) = record.decision {
                    let reason = decision.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
                    past.entries.push(entry(Kind::Decision, decision.text + &reason));
                }
                past.samples.extend(record.sample.map(|sample| (record.at, sample)));
            }
        }
        past.entries.retain(|entry| (since..=until).contains(&entry.at));
        past.entries.sort_by_key(|entry| (entry.at, entry.kind));
        past.samples.sort_by_key(|(at, _)| *at);
        past.samples.retain(|(at, _)| *at <= until);
        past.begin();
        past
    }

    /// The last sample before the window holds at its start, unless it is too old.
    fn begin(&mut self) {
        let before = self.samples.iter().take_while(|(at, _)| *at < self.since).count();
        let held = before.checked_sub(1).and_then(|last| self.samples.get(last).copied());
        self.samples.drain(..before);
        if let Some((_, sample)) = held.filter(|(at, _)| self.since - at < GAP) {
            self.samples.insert(0, (self.since, sample));
        }
    }

    /// Each sample with the time until the next one, in milliseconds: what it stands for.
    pub(crate) fn spans(&self) -> impl Iterator<Item = (i64, i64, &Sample)> {
        let ends = self.samples.iter().skip(1).map(|(at, _)| *at).chain(std::iter::once(self.until));
        self.samples
            .iter()
            .zip(ends)
            .map(|((at, sample), end)| (*at, end.min(at.saturating_add(GAP)), sample))
    }

    pub(crate) fn value(&self) -> Value {
        let sample = |(at, sample): &(i64, Sample)| {
            let mut value = json!(sample);
            if let Some(object) = value.as_object_mut() {
                object.insert("at".into(), json!(time(*at)));
            }
            value
        };
        json!({
            "apiVersion": API_VERSION, "kind": "VmHistory", "vm": self.vm,
            "since": time(self.since), "until": time(self.until),
            "summary": Summary::of(self),
            "entries": self.entries,
            "samples": self.samples.iter().map(sample).collect::<Vec<_>>(),
        })
    }
}

/// Counts and sums of a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Summary {
    /// The size at the end of the window; absent without any sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<Resources>,
    pub(crate) smallest: Resources,
    pub(crate) largest: Resources,
    /// Changes of the size in which CPU or memory grew, and others.
    pub(crate) grew: u64,
    pub(crate) shrank: u64,
    /// How long the VM was observed, in seconds.
    pub(crate) observed_seconds: f64,
    /// How long its size was below its goal, in seconds.
    pub(crate) below_goal_seconds: f64,
    /// How long its permit was below its goal meanwhile, in seconds.
    pub(crate) without_permit_seconds: f64,
    /// CPU seconds and GiB seconds of its size.
    pub(crate) cpu_seconds: f64,
    pub(crate) gib_seconds: f64,
    pub(crate) migrations: usize,
    pub(crate) warnings: usize,
}

impl Summary {
    pub(crate) fn of(past: &Past) -> Self {
        let mut summary = Self::default();
        let mut last: Option<Resources> = None;
        for (from, to, sample) in past.spans() {
            let (now, goal) = (sample.now, sample.goal);
            let seconds =
                std::time::Duration::from_millis(u64::try_from(to - from).unwrap_or(0)).as_secs_f64();
            summary.observed_seconds += seconds;
            summary.cpu_seconds += now.vcpus.as_f64() * seconds;
            summary.gib_seconds += gib(now.mem.get()) * seconds;
            if goal.any_greater(now) {
                summary.below_goal_seconds += seconds;
                if sample.permit.is_some_and(|permit| goal.any_greater(permit)) {
                    summary.without_permit_seconds += seconds;
                }
            }
            let (small, large) = last.map_or((now, now), |_| (summary.smallest, summary.largest));
            summary.smallest = Resources::new(small.vcpus.min(now.vcpus), small.mem.min(now.mem));
            summary.largest = Resources::new(large.vcpus.max(now.vcpus), large.mem.max(now.mem));
            match last.filter(|last| *last != now) {
                Some(last) if now.any_greater(last) => summary.grew += 1,
                Some(_) => summary.shrank += 1,
                None => {}
            }
            last = Some(now);
        }
        summary.size = last;
        let count = |kind| past.entries.iter().filter(|entry| entry.kind == kind).count();
        summary.migrations = count(Kind::Migration);
        summary.warnings = count(Kind::Warning);
        summary
    }
}

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

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{margin:0 auto;padding:1rem;max-width:64rem;font:0.95rem/1.45 system-ui,sans-serif}\
h1{font-size:1.25rem}h2{font-size:1.05rem}\
svg{width:100%;height:auto;border:1px solid #79828c}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:0.1rem 1rem}dt{font-weight:600}dd{margin:0;overflow-wrap:anywhere}\
table{border-collapse:collapse;width:100%}\
th,td{text-align:left;vertical-align:top;padding:0.15rem 0.6rem 0.15rem 0;border-bottom:1px solid #79828c55}\
td:nth-child(-n+3){white-space:nowrap}td:last-child{overflow-wrap:anywhere}\
.Warning td{font-weight:600}\
@media print{body{max-width:none}tr{break-inside:avoid}}";

/// Writes the page.
///
/// # Errors
/// If the plot cannot be drawn.
pub(crate) fn html(past: &Past) -> Result<String, Failed> {
    let mut page = String::from("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width\">\n");
    page.push_str("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n<title>");
    escape(&format!("History of {}", past.vm), &mut page);
    page.push_str("</title>\n<style>");
    page.push_str(STYLE);
    page.push_str("</style></head><body><main>\n<h1>");
    escape(&format!("History of {}", past.vm), &mut page);
    page.push_str("</h1>\n<dl>");
    for (name, value) in facts(past) {
        page.push_str("<dt>");
        escape(name, &mut page);
        page.push_str("</dt><dd>");
        escape(&value, &mut page);
        page.push_str("</dd>");
    }
    page.push_str("</dl>\n");
    page.push_str(&chart::svg(past)?);
    page.push_str(
        "\n<p>load: one-minute load average, memory in use without page cache; goal: the size that load, requests and people \
         call for; permit: the size that the scheduler permits; size: the size of the VM.</p>\n<h2>What happened</h2>\n",
    );
    table(past, &mut page);
    page.push_str("</main></body></html>\n");
    Ok(page)
}

fn table(past: &Past, page: &mut String) {
    if past.entries.is_empty() {
        page.push_str("<p>No decision, event or migration is known in this window.</p>\n");
        return;
    }
    page.push_str("<table><thead><tr><th scope=\"col\">Time (UTC)</th><th scope=\"col\">From</th><th scope=\"col\">Kind</th>");
    page.push_str("<th scope=\"col\">What</th></tr></thead><tbody>\n");
    for entry in &past.entries {
        page.push_str(if entry.kind == Kind::Warning { "<tr class=\"Warning\">" } else { "<tr>" });
        for cell in row(past, entry) {
            page.push_str("<td>");
            escape(&cell, page);
            page.push_str("</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table>\n");
}
