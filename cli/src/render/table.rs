//! Tables: upper-case headers, two spaces between columns, numbers right-aligned, never wrapped.
//!
//! `comfy-table` aligns the cells, with a separator between them that no cell has: they are painted afterwards, since its own
//! colours need a library for terminals and are other sequences.

use comfy_table::{CellAlignment, ContentLineStyle, Table, TableStyle};

use super::clean;
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
    ("Disabled", "33"),
    ("Blind", "31"),
    ("Conflict", "31"),
    ("Failed", "31"),
    ("Invalid", "31"),
];

/// Separates aligned cells; a clean cell has no control characters.
const BETWEEN: &str = "\u{1f}";
/// Longest cell that is aligned, in bytes: a column wider than 65,535 would be wrapped, and a row must be one line.
const WIDEST: usize = u16::MAX as usize;

/// A document as a table, without the last line end.
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
    let lines: Vec<String> = if rows.iter().flatten().any(|cell| cell.len() > WIDEST) {
        rows.iter().map(|row| row.join(BETWEEN)).collect()
    } else {
        let mut table = Table::new();
        let between = ContentLineStyle { junction: BETWEEN.chars().next(), ..ContentLineStyle::none() };
        table.load_style(TableStyle::new().content_lines(between)).add_rows(&rows);
        for (index, column) in table.column_iter_mut().enumerate() {
            let is_right = rights.get(index).copied().unwrap_or(false);
            column.set_padding((0, 0));
            column.set_cell_alignment(if is_right { CellAlignment::Right } else { CellAlignment::Left });
        }
        table.lines().collect()
    };
    let line = |line: &String| {
        let cells: Vec<Shown> = line.split(BETWEEN).map(|cell| paint(cell, color)).collect();
        Shown::join(&cells, &Shown::text("  ")).trim_end()
    };
    Shown::join(&lines.iter().map(line).collect::<Vec<_>>(), &Shown::text("\n"))
}

/// A cell with the spaces that align it, which have no colour.
fn paint(cell: &str, color: bool) -> Shown {
    let word = cell.trim_matches(' ');
    let Some((_, code)) = COLORS.iter().find(|(known, _)| color && *known == word) else {
        return Shown::line(cell);
    };
    let (before, after) = cell.split_once(word).unwrap_or_default();
    Shown::join(&[Shown::line(before), Shown::line(after)], &painted(&Shown::line(word), code))
}
