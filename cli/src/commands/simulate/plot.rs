//! Plots: the use of nodes, and what VMs need, want, may and have, over time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use neonvm_sim::{NodeSeries, Series, VmSeries};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::error::{Code, Error, Result};

/// Of one panel, in pixels.
const PANEL: (u32, u32) = (560, 240);
/// Panels beside one another.
const COLUMNS: usize = 2;
/// Nodes that are drawn; those beyond would be too small to see.
const NODES: usize = 24;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Line<'a> = (&'a str, RGBColor, Vec<f64>);
type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// What is drawn into one panel: lines over the same times.
struct Panel<'a> {
    title: String,
    unit: &'static str,
    lines: Vec<Line<'a>>,
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
    let nodes: Vec<Panel<'_>> = series.nodes.iter().take(NODES).flat_map(node).collect();
    let vms: Vec<Panel<'_>> = series.vms.iter().map(vm).collect();
    let mut written = Vec::new();
    for (what, panels) in [("nodes", nodes), ("vms", vms)] {
        if panels.is_empty() {
            continue;
        }
        let text = draw(&series.times, &panels)
            .map_err(|error| Error::new(Code::Failed, "cannot draw the plot").cause(error.to_string()))?;
        let path = directory.join(format!("{scenario}-{seed}-{what}.svg"));
        std::fs::write(&path, text).map_err(|error| Error::file("write", &path, &error))?;
        written.push(path);
    }
    Ok(written)
}

fn node(node: &NodeSeries) -> [Panel<'_>; 2] {
    let cpu = |of: &[neonvm_types::Resources]| of.iter().map(|r| r.vcpus.as_f64()).collect::<Vec<_>>();
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let memory = |of: &[neonvm_types::Resources]| of.iter().map(|r| gib(r.mem.get())).collect::<Vec<_>>();
    let points = node.used.len();
    let panel = |what, unit, used, reserved, capacity| Panel {
        title: format!("{} – {what}", node.name),
        unit,
        lines: vec![
            ("capacity", RED, vec![capacity; points]),
            ("reserved", RGBColor(230, 140, 0), reserved),
            ("used", BLUE, used),
        ],
    };
    [
        panel("CPU", "CPUs", cpu(&node.used), cpu(&node.reserved), node.capacity.vcpus.as_f64()),
        panel("memory", "GiB", memory(&node.used), memory(&node.reserved), gib(node.capacity.mem.get())),
    ]
}

fn vm(vm: &VmSeries) -> Panel<'_> {
    Panel {
        title: vm.name.clone(),
        unit: "compute units",
        lines: vec![
            ("demand", RGBColor(150, 150, 150), vm.demand.clone()),
            ("goal", RGBColor(230, 140, 0), vm.goal.clone()),
            ("permit", RGBColor(0, 140, 70), vm.permit.clone()),
            ("size", BLUE, vm.size.clone()),
        ],
    }
}

fn draw(times: &[Duration], panels: &[Panel<'_>]) -> std::result::Result<String, Box<dyn std::error::Error>> {
    let rows = panels.len().div_ceil(COLUMNS);
    let (columns, rows) = (u32::try_from(COLUMNS.min(panels.len()))?, u32::try_from(rows)?);
    let mut text = String::new();
    {
        let root =
            SVGBackend::with_string(&mut text, (PANEL.0 * columns, PANEL.1 * rows)).into_drawing_area();
        root.fill(&WHITE)?;
        let areas = root.split_evenly((rows as usize, columns as usize));
        for (area, panel) in areas.iter().zip(panels) {
            draw_panel(area, times, panel)?;
        }
        root.present()?;
    }
    Ok(text)
}

fn draw_panel(area: &Area<'_>, times: &[Duration], panel: &Panel<'_>) -> Drawn {
    let minutes: Vec<f64> = times.iter().map(|time| time.as_secs_f64() / 60.0).collect();
    let last = minutes.last().copied().unwrap_or(0.0).max(f64::MIN_POSITIVE);
    let all = panel.lines.iter().flat_map(|(_, _, values)| values.iter().copied());
    let highest = all.filter(|value| value.is_finite()).fold(0.0, f64::max).max(0.1);
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 14))
        .margin(8)
        .x_label_area_size(30)
        .y_label_area_size(44)
        .build_cartesian_2d(0.0..last, 0.0..highest * 1.1)?;
    chart
        .configure_mesh()
        .x_desc("minutes")
        .y_desc(panel.unit)
        .light_line_style(WHITE)
        .label_style(("sans-serif", 10))
        .draw()?;
    for (name, colour, values) in &panel.lines {
        let colour = *colour;
        let line = LineSeries::new(steps(&minutes, values), colour);
        chart
            .draw_series(line)?
            .label(*name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 14, y)], colour));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(200, 200, 200))
        .label_font(("sans-serif", 10))
        .draw()?;
    Ok(())
}

/// A value holds until the next one.
fn steps<'a>(minutes: &'a [f64], values: &'a [f64]) -> impl Iterator<Item = (f64, f64)> + 'a {
    let ends = minutes.iter().copied().skip(1).chain(minutes.last().copied());
    let points = minutes.iter().copied().zip(ends).zip(values.iter().copied());
    points.filter(|(_, value)| value.is_finite()).flat_map(|((from, to), value)| [(from, value), (to, value)])
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
        let text = draw(&times, &[vm(&series)]).unwrap();
        assert!(text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"));
        for word in ["demand", "goal", "permit", "size", "compute units", "pg &lt;1&gt;"] {
            assert!(text.contains(word), "{word}");
        }
        assert!(!text.contains("NaN"));
    }
}
