//! Tables: upper-case headers, two spaces between columns, numbers right-aligned, never wrapped.

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
pub(super) fn render(document: &Document, wide: bool, headers: bool, color: bool) -> String {
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
        return String::new();
    }
    if headers {
        rows.push(pick(&document.columns.iter().map(|column| column.name.to_owned()).collect::<Vec<_>>()));
    }
    rows.extend(document.rows.iter().map(|row| pick(row)));
    align(&rows, &rights, color)
}

/// Rows with cells of equal width in each column.
pub(super) fn align(rows: &[Vec<String>], rights: &[bool], color: bool) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            let space = " ".repeat(width.saturating_sub(cell.chars().count()));
            let painted = paint(cell, color);
            if rights.get(column).copied().unwrap_or(false) { space + &painted } else { painted + &space }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn paint(cell: &str, color: bool) -> String {
    match COLORS.iter().find(|(word, _)| color && *word == cell) {
        Some((_, code)) => format!("\u{1b}[{code}m{cell}\u{1b}[0m"),
        None => cell.to_owned(),
    }
}
