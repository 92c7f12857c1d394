//! Counting and printing.

use std::io::Write as _;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub passed: usize,
    pub failed: usize,
    /// Steps that could not be asked for.
    pub skipped: usize,
}

impl Totals {
    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// The output of one scenario, printed when it is done so that scenarios do not mix.
#[derive(Debug, Default)]
pub(crate) struct Report {
    label: String,
    quiet: bool,
    text: String,
    totals: Totals,
    /// Reason and how often, in the order of appearance.
    skips: Vec<(String, usize)>,
}

impl Report {
    pub(crate) fn new(label: &str, quiet: bool) -> Self {
        Self { label: label.to_owned(), quiet, ..Self::default() }
    }

    /// A step that was carried out; an empty problem is none.
    pub(crate) fn step(&mut self, name: &str, problem: &str) {
        if problem.is_empty() {
            self.totals.passed += 1;
            if !self.quiet {
                self.text.push_str(&format!("ok   {}: {name}\n", self.label));
            }
            return;
        }
        self.totals.failed += 1;
        self.text.push_str(&format!("FAIL {}: {name}\n", self.label));
        for line in problem.lines() {
            self.text.push_str(&format!("     {line}\n"));
        }
    }

    /// Steps that were left out.
    pub(crate) fn skip(&mut self, count: usize, why: &str) {
        self.totals.skipped += count;
        match self.skips.iter_mut().find(|(known, _)| known == why) {
            Some((_, steps)) => *steps += count,
            None => self.skips.push((why.to_owned(), count)),
        }
    }

    /// Prints everything and returns the count.
    pub(crate) fn finish(mut self) -> Totals {
        for (why, steps) in &self.skips {
            let noun = if *steps == 1 { "step" } else { "steps" };
            self.text.push_str(&format!("skip {}: {steps} {noun}, {why}\n", self.label));
        }
        // A reader that went away does not change the verdict.
        let _ = std::io::stdout().lock().write_all(self.text.as_bytes());
        self.totals
    }
}
