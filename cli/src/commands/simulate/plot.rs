//! Plots: the use of nodes, and what VMs need, want, may and have, over time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use neonvm_builder::out;
use neonvm_sim::{NodeSeries, Series, VmSeries};
use plotters::style::{BLUE, RED, RGBColor};

use crate::error::{Code, Error, Result};
use crate::live::size::gib;
use crate::plot::{self, Failed, Line, Look, Panel, Sheet};

/// Of one panel, in pixels.
const PANEL: (u32, u32) = (560, 240);
/// Panels beside one another.
const COLUMNS: usize = 2;
/// Nodes that are drawn; those beyond would be too small to see.
const NODES: usize = 24;

/// A named colour and its values.
pub(super) type Values<'a> = (&'a str, RGBColor, Look, Vec<f64>);

/// Values of one panel, over the same times.
pub(super) struct Drawing<'a> {
    pub(super) title: String,
    pub(super) unit: &'static str,
    pub(super) lines: Vec<Values<'a>>,
}

/// Writes the plots and reports their paths.
pub(super) fn write(
    directory: &Path,
    scenario: &str,
    seed: u64,
    series: Option<&Series>,
) -> Result<Vec<PathBuf>> {
    let Some(series) = series.filter(|series| !series.times.is_empty()) else {
        return Err(Error::new(
            Code::Failed,
            "there is nothing to plot: the run ended within its first minute",
        ));
    };
    std::fs::create_dir_all(directory).map_err(|error| Error::file("create", directory, &error))?;
    let nodes: Vec<Drawing<'_>> = series.nodes.iter().take(NODES).flat_map(node).collect();
    let vms: Vec<Drawing<'_>> = series.vms.iter().map(vm).collect();
    let mut written = Vec::new();
    for (what, panels) in [("nodes", nodes), ("vms", vms)] {
        if panels.is_empty() {
            continue;
        }
        let text = draw(&format!("{what} of {scenario}, seed {seed}"), &series.times, &panels)
            .map_err(|error| Error::new(Code::Failed, "cannot draw the plot").cause(error.to_string()))?;
        let path = directory.join(format!("{scenario}-{seed}-{what}.svg"));
        out::text(&path, &text).map_err(|error| Error::file("write", &path, &error))?;
        written.push(path);
    }
    Ok(written)
}

fn node(node: &NodeSeries) -> [Drawing<'_>; 2] {
    let cpu = |of: &[neonvm_types::Resources]| of.iter().map(|r| r.vcpus.as_f64()).collect::<Vec<_>>();
    let memory = |of: &[neonvm_types::Resources]| of.iter().map(|r| gib(r.mem.get())).collect::<Vec<_>>();
    let points = node.used.len();
    let panel = |what, unit, used, reserved, capacity| Drawing {
        title: format!("{} – {what}", node.name),
        unit,
        lines: vec![
            ("capacity", RED, Look::Dashed(2), vec![capacity; points]),
            ("reserved", RGBColor(230, 140, 0), Look::Dashed(6), reserved),
            ("used", BLUE, Look::Solid(1), used),
        ],
    };
    [
        panel("CPU", "CPUs", cpu(&node.used), cpu(&node.reserved), node.capacity.vcpus.as_f64()),
        panel("memory", "GiB", memory(&node.used), memory(&node.reserved), gib(node.capacity.mem.get())),
    ]
}

fn vm(vm: &VmSeries) -> Drawing<'_> {
    Drawing {
        title: vm.name.clone(),
        unit: "compute units",
        lines: vec![
            ("demand", RGBColor(150, 150, 150), Look::Solid(1), vm.demand.clone()),
            ("goal", RGBColor(230, 140, 0), Look::Dashed(6), vm.goal.clone()),
            ("permit", RGBColor(0, 140, 70), Look::Dashed(2), vm.permit.clone()),
            ("size", BLUE, Look::Solid(1), vm.size.clone()),
        ],
    }
}

/// Draws panels over the same times.
pub(super) fn draw(
    title: &str,
    times: &[Duration],
    drawings: &[Drawing<'_>],
) -> std::result::Result<String, Failed> {
    let minutes: Vec<f64> = times.iter().map(|time| time.as_secs_f64() / 60.0).collect();
    let last = minutes.last().copied().unwrap_or(0.0);
    let panels: Vec<Panel<'_>> = drawings.iter().map(|drawing| panel(&minutes, last, drawing)).collect();
    let sheet = Sheet {
        panel: PANEL,
        columns: COLUMNS,
        range: (0.0, last),
        axis: "minutes",
        label: &|at| at.to_string(),
        marks: &[],
        title,
    };
    plot::draw(&sheet, &panels)
}

fn panel<'a>(minutes: &[f64], last: f64, drawing: &Drawing<'a>) -> Panel<'a> {
    let lines = drawing.lines.iter().map(|values| line(minutes, last, values)).collect();
    Panel { title: drawing.title.clone(), unit: drawing.unit, lines }
}

fn line<'a>(minutes: &[f64], last: f64, (name, colour, look, values): &Values<'a>) -> Line<'a> {
    Line { name, colour: *colour, look: *look, points: plot::steps(minutes, values, last) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_is_a_drawing_with_its_lines() {
        let times = [0, 60, 120].map(Duration::from_secs);
        let line = |value: f64| vec![value, value * 2.0, f64::NAN];
        let series = VmSeries {
            name: "pg <1>".into(),
            demand: line(1.0),
            goal: line(2.0),
            size: line(1.0),
            permit: line(2.0),
        };
        let text = draw("a run", &times, &[vm(&series)]).unwrap();
        assert!(text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"));
        for word in ["demand", "goal", "permit", "size", "compute units", "pg &lt;1&gt;"] {
            assert!(text.contains(word), "{word}");
        }
        assert!(!text.contains("NaN"));
    }
}
