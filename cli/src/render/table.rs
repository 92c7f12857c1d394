//! Tables: upper-case headers, two spaces between columns, numbers right-aligned, never wrapped.

use super::out::{Shown, painted};
use crate::report::Document;

/// Words that are coloured, and their colours.
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
    ("Blind", "31"),
    ("Conflict", "31"),
    ("Failed", "31"),
    ("Invalid", "31"),
];

/// A document as a table, without the last line end.
pub(super) fn render(document: &Document, wide: bool, headers: bool, color: bool) -> Shown {
    let shown: Vec<usize> = document
        .columns
        .iter()
        .enumerate()
        .filter(|(_, column)| wide || !column.wide)
        .map(|(index, _)| index)
        .collect();
    let rights: Vec<bool> =
        shown.iter().map(|&index| document.columns.get(index).is_some_and(|column| column.right)).collect();
    let pick = |row: &[String]| {
        shown.iter().map(|&index| row.get(index).cloned().unwrap_or_default()).collect::<Vec<_>>()
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    if document.rows.is_empty() {
        return Shown::default();
    }
    if headers {
        rows.push(pick(&document.columns.iter().map(|column| column.name.to_owned()).collect::<Vec<_>>()));
    }
    rows.extend(document.rows.iter().map(|row| pick(row)));
    align(&rows, &rights, color)
}

/// Rows with cells of equal width in each column, each of them one line.
pub(super) fn align(rows: &[Vec<String>], rights: &[bool], color: bool) -> Shown {
    let clean = |row: &Vec<String>| row.iter().map(|cell| Shown::line(cell)).collect::<Vec<_>>();
    let rows: Vec<Vec<Shown>> = rows.iter().map(clean).collect();
    let length = |cell: &Shown| cell.as_str().chars().count();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(length).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<Shown>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            let space = Shown::text(&" ".repeat(width.saturating_sub(length(cell))));
            let painted = paint(cell, color);
            let is_right = rights.get(column).copied().unwrap_or(false);
            let (mut first, second) = if is_right { (space, painted) } else { (painted, space) };
            first.push(&second);
            first
        });
        Shown::join(&cells.collect::<Vec<_>>(), &Shown::text("  ")).trim_end()
    };
    Shown::join(&rows.iter().map(line).collect::<Vec<_>>(), &Shown::text("\n"))
}

fn paint(cell: &Shown, color: bool) -> Shown {
    match COLORS.iter().find(|(word, _)| color && *word == cell.as_str()) {
        Some((_, code)) => painted(cell, code),
        None => cell.clone(),
    }
}
