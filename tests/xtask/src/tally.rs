//! Counting what test runners report in their closing lines.

/// Tests or steps by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }

    /// The counts in the closing lines of our runners, added up.
    pub(crate) fn read(lines: &[String]) -> Self {
        lines.iter().filter_map(|line| closing(line)).fold(Self::default(), Self::plus)
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// The counts of a closing line, which has nothing else.
fn closing(line: &str) -> Option<Tally> {
    let own = Tally {
        passed: before(line, " passed")?,
        failed: before(line, " failed")?,
        skipped: before(line, " skipped")?,
    };
    (own.to_string() == line.trim()).then_some(own)
}

/// The number right before `word`.
fn before(line: &str, word: &str) -> Option<u64> {
    let (head, _) = line.split_once(word)?;
    let digits = head.rsplit(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_added_up() {
        let lines = [
            "12 passed, 2 failed, 3 skipped",
            "they passed, 2 failed, 3 skipped",
            " 1 passed, 0 failed, 0 skipped",
        ];
        let sum = Tally { passed: 13, failed: 2, skipped: 3 };
        assert_eq!(Tally::read(&lines.map(str::to_owned)), sum);
    }
}
