//! What happened: decisions of agents, and events.

use super::canvas::{Canvas, Line, wrapped};
use super::{Theme, clock};
use crate::live::input::{Entry, Key, Kind};
use crate::live::model::Fleet;

/// Draws a heading and the newest entries, the newest first.
pub(super) fn draw(canvas: &mut Canvas<'_>, fleet: &Fleet, theme: Theme) {
    canvas.text(1, 0, "DECISIONS AND EVENTS", theme.heading());
    let room = usize::from(canvas.height().saturating_sub(1));
    for (entry, y) in fleet.stream.newest().take(room).zip(1..) {
        let line = line(entry, fleet);
        canvas.text(0, y, &line, style(entry, theme));
    }
    if fleet.stream.len() == 0 {
        canvas.text(1, 1, "none yet", theme.dim());
    }
}

fn style(entry: &Entry, theme: Theme) -> ratatui::style::Style {
    if entry.kind == Kind::Warning { theme.warning() } else { theme.plain() }
}

fn line(entry: &Entry, fleet: &Fleet) -> String {
    let Key { namespace, name } = &entry.vm;
    let vm = if fleet.namespace.is_some() { name.clone() } else { format!("{namespace}/{name}") };
    format!("{}{} {vm}: {}", entry.kind.mark(), clock(entry.at), entry.text)
}

pub(super) fn page(fleet: &Fleet, width: usize, theme: Theme) -> Vec<Line> {
    let mut lines = vec![Line::new(" DECISIONS AND EVENTS  > decision  ! warning", theme.heading())];
    for entry in fleet.stream.newest() {
        lines.extend(wrapped(&line(entry, fleet), width, 12, style(entry, theme)));
    }
    lines
}
