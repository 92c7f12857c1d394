//! The end of a run as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::suite::Results;
use crate::tally::Tally;

pub(super) struct Done {
    pub(super) name: &'static str,
    pub(super) took: Duration,
    pub(super) budget: Duration,
    pub(super) results: Results,
}

impl Done {
    /// Its row in the table of lanes.
    pub(super) fn line(&self) -> String {
        let over = if self.took > self.budget { "  over its budget" } else { "" };
        format!(
            "{:<12} {} of {}   {}{over}",
            self.name,
            clock(self.took),
            clock(self.budget),
            self.results.tally
        )
    }
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs_f64().round();
    format!("{:3}:{:02}", (seconds / 60.0).floor(), seconds % 60.0)
}

#[derive(Default)]
pub(super) struct Summary(Vec<Done>);

impl Summary {
    pub(super) fn add(&mut self, done: Done) {
        self.0.push(done);
    }

    /// The sum of all lanes.
    pub(super) fn tally(&self) -> Tally {
        self.0.iter().fold(Tally::default(), |sum, done| sum.plus(done.results.tally))
    }

    /// How many tests were flaky.
    pub(super) fn flaky(&self) -> usize {
        self.lines(|results| &results.flaky).filter(|line| line.starts_with("FLAKY")).count()
    }

    fn lines<'a>(&'a self, of: impl Fn(&'a Results) -> &'a Vec<String>) -> impl Iterator<Item = &'a String> {
        self.0.iter().flat_map(move |done| of(&done.results))
    }

    /// The tables of skipped tests and of lanes, what was flaky, what failed, and the closing line.
    pub(super) fn text(&self, space: &str) -> String {
        let mut text = String::new();
        self.skips(&mut text);
        text += "\nLanes: time of its budget\n";
        let mut line = |line: &str| text += &format!("{line}\n");
        self.0.iter().for_each(|done| line(&format!("  {}", done.line())));
        let all = |of: fn(&Done) -> Duration| self.0.iter().map(of).sum::<Duration>();
        line(&format!(
            "  {:<12} {} of {}",
            "all",
            clock(all(|done| done.took)),
            clock(all(|done| done.budget))
        ));
        line(space);
        self.lines(|results| &results.flaky).for_each(|flaky| line(flaky));
        self.lines(|results| &results.failures).for_each(|failure| line(failure));
        match self.flaky() {
            0 => line(&self.tally().to_string()),
            flaky => line(&format!("flaky={flaky}: {}", self.tally())),
        }
        text
    }

    /// What was skipped, by reason.
    fn skips(&self, text: &mut String) {
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for skipped in self.0.iter().flat_map(|done| &done.results.skipped) {
            reasons.entry(&skipped.reason).or_default().push(&skipped.name);
        }
        if reasons.is_empty() {
            return;
        }
        *text += "\nSkipped\n";
        for (reason, names) in reasons {
            let _ = writeln!(text, "  {reason}");
            names.iter().for_each(|name| *text += &format!("    {name}\n"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Skipped;

    fn done(results: Results) -> Summary {
        let (took, budget) = (Duration::from_secs(75), Duration::from_secs(60));
        Summary(vec![Done { name: "guests", took, budget, results }])
    }

    #[test]
    fn the_end_lists_skips_with_their_reasons_and_lanes_with_their_times() {
        let skip = |name: &str| Skipped { name: name.into(), reason: "no kernel".into() };
        let tally = Tally { passed: 3, failed: 0, skipped: 2 };
        let results = Results { tally, skipped: vec![skip("a b"), skip("a c")], ..Results::default() };
        assert_eq!(
            done(results).text("1 GiB is free"),
            "\nSkipped\n  no kernel\n    a b\n    a c\n\nLanes: time of its budget\n  \
             guests         1:15 of   1:00   3 passed, 0 failed, 2 skipped  over its budget\n  \
             all            1:15 of   1:00\n1 GiB is free\n3 passed, 0 failed, 2 skipped\n"
        );
    }

    #[test]
    fn flaky_tests_are_counted_in_the_closing_line() {
        let flaky = vec!["FLAKY a b: failed, then passed alone".to_owned(), "  its message".to_owned()];
        let tally = Tally { passed: 1, ..Tally::default() };
        let summary = done(Results { tally, flaky, ..Results::default() });
        assert_eq!(summary.flaky(), 1);
        assert!(summary.text("").ends_with(
            "FLAKY a b: failed, then passed alone\n  its message\nflaky=1: 1 passed, 0 failed, 0 skipped\n"
        ));
    }
}
