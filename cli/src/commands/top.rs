//! `top`: the live view, or a table of VMs or nodes.

mod live;
mod nodes;
mod vms;

use std::cmp::Ordering;

use crate::args::Args;
use crate::args::top::{Command, Top};
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::report::{Column, Report};
use crate::settings::Settings;

/// The live view, or one of the tables.
pub(super) fn run(env: &Env, settings: &Settings, args: &Args, top: &Top) -> Result<Report> {
    match &top.command {
        None => live::run(env, settings, args, &top.live),
        Some(Command::Vms(args)) => vms::run(settings, args),
        Some(Command::Nodes(args)) => nodes::run(settings, args),
    }
}

/// What a cell is sorted by.
#[derive(Clone, Debug, PartialEq)]
enum Key {
    /// From the largest to the smallest; what is not known comes last.
    Number(Option<f64>),
    /// From A to Z.
    Text(String),
}

impl Key {
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(Some(one)), Self::Number(Some(other))) => other.total_cmp(one),
            (Self::Number(one), Self::Number(other)) => one.is_none().cmp(&other.is_none()),
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            (Self::Number(_), Self::Text(_)) => Ordering::Less,
            (Self::Text(_), Self::Number(_)) => Ordering::Greater,
        }
    }
}

/// Which column a name means.
fn column(columns: &[Column], field: &str) -> Result<usize> {
    columns.iter().position(|column| column.name.eq_ignore_ascii_case(field)).ok_or_else(|| {
        let names: Vec<String> = columns.iter().map(|column| column.name.to_lowercase()).collect();
        Error::new(Code::Usage, format!("cannot sort by {field:?}")).hint(format!("use {}", names.join(", ")))
    })
}

/// The rows, sorted by a column; equal ones by all columns from the first on.
fn sorted<T>(mut rows: Vec<T>, column: usize, keys: impl Fn(&T) -> Vec<Key>) -> Vec<T> {
    rows.sort_by_cached_key(|row| Sorted { keys: keys(row), column });
    rows
}

struct Sorted {
    keys: Vec<Key>,
    column: usize,
}

impl Ord for Sorted {
    fn cmp(&self, other: &Self) -> Ordering {
        let first = match (self.keys.get(self.column), other.keys.get(self.column)) {
            (Some(one), Some(other)) => one.compare(other),
            _ => Ordering::Equal,
        };
        let rest = || self.keys.iter().zip(&other.keys).map(|(one, other)| one.compare(other));
        first.then_with(|| rest().find(|order| order.is_ne()).unwrap_or(Ordering::Equal))
    }
}

impl PartialOrd for Sorted {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Sorted {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Sorted {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{left, right};

    #[test]
    fn large_numbers_first_unknown_last_names_among_equals() {
        let rows = vec![("c", Some(1.0)), ("b", None), ("a", Some(1.0)), ("d", Some(10.5)), ("e", None)];
        let keys = |row: &(&str, Option<f64>)| vec![Key::Text(row.0.into()), Key::Number(row.1)];
        let names = |column| sorted(rows.clone(), column, keys).iter().map(|row| row.0).collect::<String>();
        assert_eq!(names(1), "dacbe");
        assert_eq!(names(0), "abcde");
    }

    #[test]
    fn columns_are_found_whatever_the_case() {
        let columns = [left("VM"), right("CPU%")];
        assert_eq!(column(&columns, "cpu%").unwrap(), 1);
        let error = column(&columns, "colour").unwrap_err();
        assert_eq!((error.code, error.hint.as_deref()), (Code::Usage, Some("use vm, cpu%")));
    }
}
