//! A part of the screen that texts are written to. What does not fit is left out.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

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
