//! Plots as SVG: panels of lines over one axis. Pure.

use plotters::coord::Shift;
use plotters::prelude::*;

/// Why a plot cannot be drawn.
pub(crate) type Failed = Box<dyn std::error::Error>;

/// Where names of marks are, in parts of the highest value, and the distance of their rows.
const HEADROOM: f64 = 1.3;
const ROW: f64 = 0.09;
/// Names that are closer than this part of the axis stand in different rows.
const APART: f64 = 0.15;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Failed>;

/// How a line looks, so that not only its colour distinguishes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// A line of this width in pixels.
    Solid(u32),
    /// Dashes of this length in pixels.
    Dashed(u32),
    /// A filled area down to the axis.
    Filled,
}

/// A line of a panel. Values that are not finite are gaps.
#[derive(Clone, Debug)]
pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    pub(crate) colour: RGBColor,
    pub(crate) look: Look,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A moment that is marked in every panel.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) at: f64,
    pub(crate) name: String,
}

/// What is drawn into one panel.
#[derive(Clone, Debug)]
pub(crate) struct Panel<'a> {
    pub(crate) title: String,
    pub(crate) unit: &'a str,
    pub(crate) lines: Vec<Line<'a>>,
}

/// What all panels share.
pub(crate) struct Sheet<'a> {
    /// Size of one panel, in pixels.
    pub(crate) panel: (u32, u32),
    pub(crate) columns: usize,
    /// The axis: from, to.
    pub(crate) range: (f64, f64),
    /// What it counts.
    pub(crate) axis: &'a str,
    pub(crate) label: &'a dyn Fn(f64) -> String,
    pub(crate) marks: &'a [Mark],
    /// For those who do not see it.
    pub(crate) title: &'a str,
}

/// Draws panels, row by row.
///
/// # Errors
/// If there is no panel or one is too small.
pub(crate) fn draw(sheet: &Sheet<'_>, panels: &[Panel<'_>]) -> Result<String, Failed> {
    let columns = sheet.columns.min(panels.len());
    let rows = panels.len().div_ceil(columns.max(1));
    let size = (sheet.panel.0 * u32::try_from(columns)?, sheet.panel.1 * u32::try_from(rows)?);
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        root.fill(&WHITE)?;
        for (area, panel) in root.split_evenly((rows, columns)).iter().zip(panels) {
            draw_panel(area, sheet, panel)?;
        }
        root.present()?;
    }
    Ok(named(text, sheet.title))
}

fn named(text: String, title: &str) -> String {
    let Some((head, rest)) = text.split_once('>') else { return text };
    let mut named = format!("{head} role=\"img\"><title>");
    escape(title, &mut named);
    named + "</title>" + rest
}

pub(crate) fn escape(text: &str, into: &mut String) {
    // XML has no form for control characters.
    for c in crate::render::one_line(text).chars() {
        match c {
            '&' => into.push_str("&amp;"),
            '<' => into.push_str("&lt;"),
            '>' => into.push_str("&gt;"),
            '"' => into.push_str("&quot;"),
            '\'' => into.push_str("&#39;"),
            _ => into.push(c),
        }
    }
}

fn draw_panel(area: &Area<'_>, sheet: &Sheet<'_>, panel: &Panel<'_>) -> Drawn {
    let (from, to) = (sheet.range.0, sheet.range.1.max(sheet.range.0 + f64::from(f32::MIN_POSITIVE)));
    let values = panel.lines.iter().flat_map(|line| line.points.iter().map(|(_, value)| *value));
    let highest = values.filter(|value| value.is_finite()).fold(0.0, f64::max).max(0.1);
    let mut chart = ChartBuilder::on(area)
        .caption(crate::render::one_line(&panel.title), ("sans-serif", 14))
        .margin(8)
        .x_label_area_size(30)
        .y_label_area_size(44)
        .build_cartesian_2d(
            from..to,
            0.0..highest * if sheet.marks.is_empty() { 1.1 } else { HEADROOM + ROW / 2.0 },
        )?;
    chart
        .configure_mesh()
        .x_desc(sheet.axis)
        .y_desc(panel.unit)
        .x_label_formatter(&|at| (sheet.label)(*at))
        .light_line_style(WHITE)
        .label_style(("sans-serif", 10))
        .draw()?;
    for line in &panel.lines {
        draw_line(&mut chart, line)?;
    }
    let shown: Vec<&Mark> = sheet.marks.iter().filter(|mark| (from..=to).contains(&mark.at)).collect();
    for (mark, row) in shown.iter().zip(rows(&shown, to - from)) {
        let top = highest * (HEADROOM - ROW * f64::from(row));
        chart.draw_series(DashedLineSeries::new(
            [(mark.at, 0.0), (mark.at, top)],
            2,
            3,
            BLACK.mix(0.6).into(),
        ))?;
        let style = ("sans-serif", 10).into_font();
        chart.draw_series([Text::new(crate::render::one_line(&mark.name), (mark.at, top), style)])?;
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

/// A row for the name of each mark, so that neighbours do not cover each other: 0 is the highest of three.
fn rows(marks: &[&Mark], range: f64) -> Vec<u8> {
    let mut free = [f64::NEG_INFINITY; 3];
    let row = |mark: &&Mark| {
        let found = free.iter().position(|until| *until <= mark.at).unwrap_or(2);
        if let Some(until) = free.get_mut(found) {
            *until = mark.at + range * APART;
        }
        u8::try_from(found).unwrap_or(0)
    };
    marks.iter().map(row).collect()
}

type Chart<'a> = ChartContext<
    'a,
    SVGBackend<'a>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

fn draw_line<'a>(chart: &mut Chart<'a>, line: &Line<'_>) -> Drawn {
    let colour = line.colour;
    let mut sample = ShapeStyle::from(colour).stroke_width(2);
    for part in line.points.split(|(_, value)| !value.is_finite()).filter(|part| !part.is_empty()) {
        let points = part.iter().copied();
        match line.look {
            Look::Solid(width) => {
                chart.draw_series(LineSeries::new(points, colour.stroke_width(width)))?;
            }
            Look::Dashed(length) => {
                chart.draw_series(DashedLineSeries::new(
                    points,
                    length,
                    length.div_ceil(2),
                    colour.stroke_width(2),
                ))?;
            }
            Look::Filled => {
                let ends = part.last().into_iter().chain(part.first()).map(|(at, _)| (*at, 0.0));
                let outline: Vec<(f64, f64)> = points.chain(ends).collect();
                chart.draw_series([Polygon::new(outline, colour.mix(0.5).filled())])?;
            }
        }
    }
    if line.look == Look::Filled {
        sample = ShapeStyle::from(colour.mix(0.5)).stroke_width(8);
    }
    let dashed = matches!(line.look, Look::Dashed(_));
    // An empty series carries the legend: with gaps a line is drawn in several.
    chart.draw_series(std::iter::empty::<PathElement<(f64, f64)>>())?.label(line.name).legend(
        move |(x, y)| {
            let to = if dashed { 5 } else { 14 };
            let rest = if dashed { vec![(x + 9, y), (x + 14, y)] } else { Vec::new() };
            EmptyElement::at((0, 0))
                + PathElement::new(vec![(x, y), (x + to, y)], sample)
                + PathElement::new(rest, sample)
        },
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_marks_that_are_close_stand_in_different_rows() {
        let marks = [0.0, 1.0, 2.0, 3.0, 50.0].map(|at| Mark { at, name: String::new() });
        assert_eq!(rows(&marks.iter().collect::<Vec<_>>(), 100.0), [0, 1, 2, 2, 0]);
    }
}
