//! Pages of text.

use ratatui::style::Style;

use super::canvas::Canvas;

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
