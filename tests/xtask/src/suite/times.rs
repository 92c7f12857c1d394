//! How long each test of a lane took when it last passed, kept beside the lane's outputs. The longest start first, so that no
//! long test runs alone at the end. Where nothing is known, as in a clean clone, tests run in their own order.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Case;
use super::outcome::{End, How};

/// Times by the names of tests.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Times(BTreeMap<String, u64>);

impl Times {
    /// What is known of the lane with these outputs; a missing or damaged file is nothing.
    pub(super) fn from_outputs(outputs: &Path) -> Self {
        Self::parse(&std::fs::read_to_string(file(outputs)).unwrap_or_default())
    }

    /// Lines of milliseconds and a name.
    fn parse(text: &str) -> Self {
        let entries = text.lines().filter_map(|line| {
            let (took, name) = line.split_once(' ')?;
            Some((name.to_owned(), took.parse().ok()?))
        });
        Self(entries.collect())
    }

    /// The indexes of tests, longest first; equal ones in their own order.
    pub(super) fn order<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<usize> {
        let took = |name: &str| self.0.get(name).copied().unwrap_or(0);
        let mut all: Vec<(u64, usize)> = names.enumerate().map(|(index, name)| (took(name), index)).collect();
        all.sort_by_key(|&(took, index)| (std::cmp::Reverse(took), index));
        all.into_iter().map(|(_, index)| index).collect()
    }

    fn set(&mut self, name: String, took: Duration) {
        self.0.insert(name, u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
    }

    fn text(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, (name, took)| {
            let _ = writeln!(text, "{took} {name}");
            text
        })
    }
}

/// Keeps the times of tests that passed. A failure to write costs only the order of the next run.
pub(super) fn keep(outputs: &Path, cases: &[Case], ends: &[End]) {
    let mut times = Times::from_outputs(outputs);
    for (case, end) in cases.iter().zip(ends).filter(|(_, end)| matches!(end.how, How::Passed)) {
        times.set(case.to_string(), end.took);
    }
    let _ = std::fs::write(file(outputs), times.text());
}

fn file(outputs: &Path) -> PathBuf {
    outputs.with_extension("times")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_start_first_and_unknown_ones_last() {
        let mut times = Times::parse("20 a::it short\n3000 a::it long one\nbroken\nx y\n");
        times.set("b::it middle".to_owned(), Duration::from_millis(500));
        let names = ["b::it new", "a::it short", "b::it middle", "a::it long one", "b::it newer"];
        assert_eq!(times.order(names.into_iter()), [3, 2, 1, 0, 4]);
        assert_eq!(Times::parse(&times.text()), times);
        assert_eq!(Times::default().order(names.into_iter()), [0, 1, 2, 3, 4]);
    }
}
