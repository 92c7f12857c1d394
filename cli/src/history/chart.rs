//! A past as a plot: CPU and memory over time, with load, goal, permit and size.

use neonvm_types::Resources;
use neonvm_types::agent_history::Sample;
use plotters::style::RGBColor;

use super::Past;
use crate::live::size::gib;
use crate::plot::{self, Failed, Line, Look, Mark, Panel, Sheet};

const PANEL: (u32, u32) = (960, 260);
/// Most marks: more would hide the lines.
const MARKS: usize = 12;

const LOAD: RGBColor = RGBColor(120, 130, 140);
const GOAL: RGBColor = RGBColor(213, 94, 0);
const PERMIT: RGBColor = RGBColor(0, 120, 90);
const SIZE: RGBColor = RGBColor(0, 60, 140);

/// The axis counts minutes, so that its labels are round times of day.
fn minutes(at: i64) -> f64 {
    at as f64 / 60_000.0
}

/// Draws it as SVG.
///
/// # Errors
/// If it cannot be drawn.
pub(crate) fn svg(past: &Past) -> Result<String, Failed> {
    let begin = begin(past);
    let midnight = past.since - past.since.rem_euclid(24 * 3_600_000);
    let on_axis = |at: i64| minutes(at - midnight);
    let line = |name, colour, look, value: &dyn Fn(&Sample) -> Option<f64>| {
        let mut points = Vec::new();
        let mut end = None;
        for (from, to, sample) in past.spans() {
            // Between samples that are too far apart the line has a gap.
            if end.is_some_and(|end| end < from) {
                points.push((on_axis(from), f64::NAN));
            }
            let value = value(sample).unwrap_or(f64::NAN);
            points.extend([(on_axis(from), value), (on_axis(to), value)]);
            end = Some(to);
        }
        Line { name, colour, look, points }
    };
    let panel =
        |title: &str, unit, load: &dyn Fn(&Sample) -> Option<f64>, of: &dyn Fn(Resources) -> f64| Panel {
            title: format!("{} – {title}", past.vm),
            unit,
            lines: vec![
                line("load", LOAD, Look::Filled, load),
                line("goal", GOAL, Look::Dashed(6), &|sample| Some(of(sample.goal))),
                line("permit", PERMIT, Look::Dashed(2), &|sample| sample.permit.map(of)),
                line("size", SIZE, Look::Solid(2), &|sample| Some(of(sample.now))),
            ],
        };
    let panels = [
        panel("CPU", "CPUs", &|sample| sample.load1, &|size| size.vcpus.as_f64()),
        panel("memory", "GiB", &|sample| sample.memory_used_bytes.map(gib), &|size| gib(size.mem.get())),
    ];
    let marked = past.entries.iter().filter(|entry| !entry.mark.is_empty()).take(MARKS);
    let marks: Vec<Mark> =
        marked.map(|entry| Mark { at: on_axis(entry.at), name: entry.mark.clone() }).collect();
    let title = super::facts(past).iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>();
    let sheet = Sheet {
        panel: PANEL,
        columns: 1,
        range: (on_axis(begin), on_axis(past.until)),
        axis: "time of day, UTC",
        label: &|at| label(at, on_axis(past.until) - on_axis(begin)),
        marks: &marks,
        title: &title.join(". "),
    };
    plot::draw(&sheet, &panels)
}

/// Where the axis begins: with the window, or shortly before the first thing that is known of it.
fn begin(past: &Past) -> i64 {
    let sample = past.samples.first().map(|(at, _)| *at);
    let entry = past.entries.first().map(|entry| entry.at);
    let first = sample.into_iter().chain(entry).min().unwrap_or(past.since);
    past.since.max(first - (past.until - first) / 20)
}

/// A time of day; with seconds in a window of less than ten minutes.
fn label(minutes: f64, range: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "a cast of floats saturates")]
    let seconds = (minutes * 60.0).round() as i64;
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    if range < 10.0 { format!("{hour:02}:{minute:02}:{second:02}") } else { format!("{hour:02}:{minute:02}") }
}
