//! Tables: upper-case headers, two spaces between columns, numbers right-aligned, never wrapped.

use unicode_width::UnicodeWidthStr as _;

use super::clean;
use super::out::{Shown, painted};
use crate::report::Document;

const COLORS: &[(&str, &str)] = &[
    ("ok", "32"),
    ("running", "32"),
    ("warn", "33"),
    ("ended", "31"),
    ("fail", "31"),
    // States of pod autoscalers.
    ("Ready", "32"),
    ("Limited", "33"),
    ("Paused", "33"),
    ("Disabled", "33"),
    ("Blind", "31"),
    ("Conflict", "31"),
    ("Failed", "31"),
    ("Invalid", "31"),
];

/// Widest cell to which others of its column are aligned.
const WIDEST: usize = 1000;

pub(super) fn render(document: &Document, wide: bool, headers: bool, color: bool) -> Shown {
    if document.rows.is_empty() {
        return Shown::default();
    }
    let columns = document.columns.iter().enumerate();
    let columns: Vec<_> = columns.filter(|(_, column)| wide || !column.wide).collect();
    let names = columns.iter().map(|(_, column)| column.name.to_owned()).collect();
    let cell = |row: &Vec<String>, index: usize| row.get(index).cloned().unwrap_or_default();
    let cells = |row: &Vec<String>| columns.iter().map(|(index, _)| cell(row, *index)).collect();
    let rows: Vec<Vec<String>> =
        headers.then_some(names).into_iter().chain(document.rows.iter().map(cells)).collect();
    let rights: Vec<bool> = columns.iter().map(|(_, column)| column.right).collect();
    align(&rows, &rights, color)
}

/// Rows with cells of equal width in each column, each of them one line.
pub(super) fn align(rows: &[Vec<String>], rights: &[bool], color: bool) -> Shown {
    let clean = |row: &Vec<String>| row.iter().map(|cell| clean::line(cell).into_owned()).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = rows.iter().map(clean).collect();
    let mut widths: Vec<usize> = Vec::new();
    for row in &rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(Some(cell.width()).filter(|own| *own <= WIDEST).unwrap_or(0));
        }
    }
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(index, (cell, width))| {
            let spaces = Shown::line(&" ".repeat(width.saturating_sub(cell.width())));
            let cell = paint(cell, color);
            let is_right = rights.get(index).copied().unwrap_or(false);
            Shown::join(&if is_right { [spaces, cell] } else { [cell, spaces] }, &Shown::default())
        });
        Shown::join(&cells.collect::<Vec<_>>(), &Shown::text("  ")).trim_end()
    };
    Shown::join(&rows.iter().map(line).collect::<Vec<_>>(), &Shown::text("\n"))
}

/// A cell, painted if it is a word that has a colour.
fn paint(cell: &str, color: bool) -> Shown {
    match COLORS.iter().find(|(known, _)| color && *known == cell) {
        Some((_, code)) => painted(&Shown::line(cell), code),
        None => Shown::line(cell),
    }
}
