//! Plots (SVG): panels of lines over the minutes of a run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

/// Size of a panel, in pixels.
const PANEL: (u32, u32) = (560, 240);
const COLUMNS: usize = 2;

pub(crate) const GREY: RGBColor = RGBColor(150, 150, 150);
pub(crate) const GREEN: RGBColor = RGBColor(0, 140, 70);
pub(crate) const ORANGE: RGBColor = RGBColor(230, 140, 0);

/// A line; each value holds until the next time.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) colour: RGBColor,
    /// Length of its dashes in pixels; 0 is a continuous line.
    pub(crate) dashes: u32,
    pub(crate) values: Vec<f64>,
}

/// Lines over the same times.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    pub(crate) lines: Vec<Line>,
}

/// Draws panels into the file `name` of a directory, which it creates, and returns the path.
pub(crate) fn write(
    directory: &Path,
    name: &str,
    times: &[Duration],
    panels: &[Panel],
) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let text = draw(times, panels).map_err(|error| anyhow!("cannot draw {name}: {error}"))?;
    let path = directory.join(name);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

type Drawn<T> = Result<T, Box<dyn std::error::Error>>;

fn draw(times: &[Duration], panels: &[Panel]) -> Drawn<String> {
    let minutes: Vec<f64> = times.iter().map(|time| time.as_secs_f64() / 60.0).collect();
    let columns = COLUMNS.min(panels.len()).max(1);
    let rows = panels.len().div_ceil(columns);
    let size = (PANEL.0 * u32::try_from(columns)?, PANEL.1 * u32::try_from(rows)?);
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        root.fill(&WHITE)?;
        for (area, panel) in root.split_evenly((rows, columns)).iter().zip(panels) {
            draw_panel(area, &minutes, panel)?;
        }
        root.present()?;
    }
    Ok(text)
}

fn draw_panel(area: &DrawingArea<SVGBackend<'_>, Shift>, minutes: &[f64], panel: &Panel) -> Drawn<()> {
    let end = minutes.last().copied().unwrap_or(0.0).max(f64::from(f32::MIN_POSITIVE));
    let values = panel.lines.iter().flat_map(|line| &line.values);
    let highest = values.copied().filter(|value| value.is_finite()).fold(0.1, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 14))
        .margin(8)
        .x_label_area_size(30)
        .y_label_area_size(44)
        .build_cartesian_2d(0.0..end, 0.0..highest * 1.1)?;
    chart
        .configure_mesh()
        .x_desc("minutes")
        .y_desc(panel.unit)
        .light_line_style(WHITE)
        .label_style(("sans-serif", 10))
        .draw()?;
    for line in &panel.lines {
        let sample = ShapeStyle::from(line.colour).stroke_width(2);
        let points = steps(minutes, &line.values, end);
        let drawn = if line.dashes == 0 {
            chart.draw_series(LineSeries::new(points, line.colour))?
        } else {
            chart.draw_series(DashedLineSeries::new(
                points,
                line.dashes,
                line.dashes.div_ceil(2),
                line.colour.stroke_width(2),
            ))?
        };
        drawn.label(line.name).legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], sample));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(200, 200, 200))
        .label_font(("sans-serif", 10))
        .draw()?;
    Ok(())
}

/// The corners of a line whose values hold until the next time; values that are not finite are left out.
fn steps(times: &[f64], values: &[f64], end: f64) -> Vec<(f64, f64)> {
    let ends = times.iter().copied().skip(1).chain(std::iter::once(end));
    let spans = times.iter().copied().zip(ends).zip(values.iter().copied());
    let finite = spans.filter(|(_, value)| value.is_finite());
    finite.flat_map(|((from, to), value)| [(from, value), (to, value)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_its_lines() {
        let line = |name, dashes| Line { name, colour: BLUE, dashes, values: vec![1.0, 2.0, f64::NAN] };
        let panel =
            Panel { title: "pg <1>".into(), unit: "units", lines: vec![line("demand", 0), line("goal", 6)] };
        let text = draw(&[0, 60, 120].map(Duration::from_secs), &[panel]).unwrap();
        assert!(text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"));
        for word in ["demand", "goal", "units", "pg &lt;1&gt;", "minutes"] {
            assert!(text.contains(word), "{word}");
        }
        assert!(!text.contains("NaN"));
    }
}
