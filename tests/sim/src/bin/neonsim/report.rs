//! The result of a simulation, as a table or as JSON.

use clap::ValueEnum;
use serde_json::Value;

/// `apiVersion` of the JSON forms.
pub(crate) const API_VERSION: &str = "sim.neonvm/v1";

/// Forms of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table on standard output, notes on standard error
    Table,
    /// One JSON object on standard output
    Json,
}

/// How the cells of a column are aligned.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Column {
    Left(&'static str),
    Right(&'static str),
}

/// A result in all its forms.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) value: Value,
    pub(crate) notes: Vec<String>,
    /// Whether `--check` found a broken rule.
    pub(crate) broken: bool,
}

impl Report {
    pub(crate) fn print(&self, format: Format) {
        match format {
            Format::Json => println!("{:#}", self.value),
            Format::Table => {
                print!("{}", table(&self.columns, &self.rows));
                for note in &self.notes {
                    eprintln!("{note}");
                }
            }
        }
    }
}

/// Columns of equal width, two spaces between them.
fn table(columns: &[Column], rows: &[Vec<String>]) -> String {
    let name = |column: &Column| match column {
        Column::Left(name) | Column::Right(name) => (*name).to_owned(),
    };
    let head: Vec<String> = columns.iter().map(name).collect();
    let lines = || std::iter::once(&head).chain(rows);
    let width = |index: usize| {
        lines().filter_map(|cells| cells.get(index)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |cells: &Vec<String>| {
        let aligned = cells.iter().zip(columns).zip(&widths).map(|((cell, column), width)| match column {
            Column::Left(_) => format!("{cell:width$}"),
            Column::Right(_) => format!("{cell:>width$}"),
        });
        aligned.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    lines().map(line).collect()
}

/// A number with a comma after each three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let columns = [Column::Left("NAME"), Column::Right("N")];
        let rows = [["a", "10"], ["longer", "5"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&columns, &rows), "NAME     N\na       10\nlonger   5\n");
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1000, 4_182_220].map(grouped), ["0", "999", "1,000", "4,182,220"]);
    }
}
