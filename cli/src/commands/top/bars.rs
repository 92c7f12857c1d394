//! Shares as bars, for a terminal. Pure.

use crate::report::Document;

/// Characters of a bar.
const WIDTH: usize = 10;

/// The document with a bar in front of each share.
pub(super) fn with_bars(document: &Document) -> Document {
    let mut shown = document.clone();
    let shares: Vec<usize> = shown
        .columns
        .iter()
        .enumerate()
        .filter(|(_, column)| matches!(column.name, "CPU%" | "MEM%"))
        .map(|(index, _)| index)
        .collect();
    for row in &mut shown.rows {
        for index in &shares {
            if let Some(cell) = row.get_mut(*index) {
                *cell = bar(cell);
            }
        }
    }
    shown
}

/// `81%` as `[########..]  81%`; what is not a share stays.
fn bar(cell: &str) -> String {
    let Some(share) = cell.strip_suffix('%').and_then(|number| number.parse::<usize>().ok()) else {
        return cell.to_owned();
    };
    let full = (share * WIDTH).div_ceil(100).min(WIDTH);
    format!("[{}{}] {cell:>4}", "#".repeat(full), ".".repeat(WIDTH - full))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{left, right};

    #[test]
    fn only_shares_have_bars() {
        let document = Document {
            columns: vec![left("VM"), right("CPU%"), right("STEAL")],
            rows: vec![
                vec!["50%".into(), "81%".into(), "1.0%".into()],
                vec!["b".into(), "-".into(), "-".into()],
                vec!["c".into(), "250%".into(), "-".into()],
            ],
            ..Document::default()
        };
        let shown = with_bars(&document);
        assert_eq!(shown.rows[0], ["50%", "[#########.]  81%", "1.0%"]);
        assert_eq!((shown.rows[1][1].as_str(), shown.rows[2][1].as_str()), ("-", "[##########] 250%"));
    }
}
