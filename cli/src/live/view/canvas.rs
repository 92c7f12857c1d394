//! What is drawn with: a part of the screen that texts are written to, leaving out what does not fit; pages of text; bars and lines of values.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::Theme;
use crate::live::model::Share;
use crate::live::series::{Point, Series};
use crate::render::one_line;

/// A part of a buffer.
pub(super) struct Canvas<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
}

impl<'a> Canvas<'a> {
    pub(super) fn new(buffer: &'a mut Buffer, area: Rect) -> Self {
        Self { buffer, area }
    }

    pub(super) fn rows(&mut self, from: u16, count: u16) -> Canvas<'_> {
        let from = from.min(self.area.height);
        let height = count.min(self.area.height - from);
        let area = Rect::new(self.area.x, self.area.y + from, self.area.width, height);
        Canvas { buffer: &mut *self.buffer, area }
    }

    pub(super) fn width(&self) -> u16 {
        self.area.width
    }

    pub(super) fn height(&self) -> u16 {
        self.area.height
    }

    /// Writes a text; returns the column behind it.
    pub(super) fn text(&mut self, x: u16, y: u16, text: &str, style: Style) -> u16 {
        self.cell(x, y, self.area.width, text, style)
    }

    /// Writes a text into at most `width` columns; returns the column behind the text.
    pub(super) fn cell(&mut self, x: u16, y: u16, width: u16, text: &str, style: Style) -> u16 {
        if x >= self.area.width || y >= self.area.height {
            return x;
        }
        let width = width.min(self.area.width - x);
        let clean = one_line(text);
        let (column, row) = (self.area.x + x, self.area.y + y);
        let (end, _) = self.buffer.set_stringn(column, row, clean, usize::from(width), style);
        end - self.area.x
    }

    pub(super) fn right(&mut self, y: u16, text: &str, style: Style) {
        let width = u16::try_from(text.chars().count()).unwrap_or(u16::MAX);
        self.text(self.area.width.saturating_sub(width), y, text, style);
    }

    pub(super) fn row(&mut self, y: u16, style: Style) {
        if y < self.area.height {
            let row = Rect::new(self.area.x, self.area.y + y, self.area.width, 1);
            self.buffer.set_style(row, style);
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Line {
    text: String,
    style: Style,
}

impl Line {
    pub(super) fn new(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }
}

/// A text in lines of at most `width` characters, broken between words; lines after the first are indented.
pub(super) fn wrapped(text: &str, width: usize, indent: usize, style: Style) -> Vec<Line> {
    let clean = crate::render::one_line(text);
    let (mut lines, mut line, mut used) = (Vec::new(), String::new(), 0);
    for word in clean.split_inclusive(' ') {
        let length = word.chars().count();
        if used + word.trim_end().chars().count() > width && used > indent {
            lines.push(Line::new(std::mem::take(&mut line), style));
            line = " ".repeat(indent);
            used = indent;
        }
        line.push_str(word);
        used += length;
    }
    lines.push(Line::new(line, style));
    lines
}

/// Draws lines from a position on, which is limited so that the page stays filled.
pub(super) fn show(canvas: &mut Canvas<'_>, lines: &[Line], scroll: &mut usize) {
    let room = usize::from(canvas.height());
    *scroll = (*scroll).min(lines.len().saturating_sub(room));
    for (line, y) in lines.iter().skip(*scroll).take(room).zip(0..) {
        canvas.text(0, y, &line.text, line.style);
    }
}

/// How many of `width` cells a share fills; some if it is not zero.
pub(super) fn cells(share: f64, width: u16) -> usize {
    let filled = (share.clamp(0.0, 1.0) * f64::from(width)).round();
    (0..=width).rev().find(|cell| f64::from(*cell) <= filled).map_or(0, usize::from)
}

/// Draws a resource of a node: used, permitted, pressure and watermark.
pub(super) fn bar(canvas: &mut Canvas<'_>, (x, y): (u16, u16), width: u16, share: &Share, theme: Theme) {
    let of = |amount: f64| if share.total > 0.0 { amount / share.total } else { 0.0 };
    let used = cells(of(share.used), width);
    let permitted = cells(of(share.permitted), width).max(used);
    let missing = if share.pressure > 0.0 { cells(of(share.pressure), width).max(1) } else { 0 };
    // Pressure is what did not fit: it is drawn even if the bar is full.
    let start = permitted.min(usize::from(width).saturating_sub(missing));
    let mark = share.watermark.map(|watermark| cells(of(watermark), width));
    for column in 0..width {
        let at = usize::from(column);
        let (sign, style) = if mark == Some(at) {
            (theme.mark(), theme.warning())
        } else if (start..start + missing).contains(&at) {
            ('!', theme.bad())
        } else if at < used {
            (theme.full(), theme.used())
        } else if at < permitted {
            (theme.half(), theme.permitted())
        } else {
            (theme.free(), theme.dim())
        };
        canvas.text(x + column, y, sign.encode_utf8(&mut [0; 4]), style);
    }
}

/// The last minutes of a value in `width` characters, between 0 and `most`.
pub(super) fn spark(
    series: &Series,
    width: u16,
    most: f32,
    theme: Theme,
    value: impl Fn(&Point) -> Option<f32>,
) -> String {
    let buckets = series.buckets(usize::from(width), value);
    let sign = |value: Option<f32>| value.map_or(' ', |value| theme.spark(value / most.max(f32::EPSILON)));
    buckets.into_iter().map(sign).collect()
}
