//! Counting what test runners report in their closing lines.

/// Tests or steps by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    /// The sum.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }

    /// The counts in the closing lines of one of our runners, of `cargo nextest` or of `cargo test`; they are added up.
    pub(crate) fn read(lines: &[String]) -> Self {
        lines.iter().filter_map(|line| closing(line)).fold(Self::default(), Self::plus)
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

fn closing(line: &str) -> Option<Tally> {
    let line = plain(line);
    let line = line.trim();
    if let Some(rest) = line.strip_prefix("test result:") {
        return Some(Tally {
            passed: before(rest, " passed")?,
            failed: before(rest, " failed")?,
            skipped: before(rest, " ignored").unwrap_or(0),
        });
    }
    if line.starts_with("Summary [") {
        let failed =
            [" failed", " timed out", " exec failed"].iter().filter_map(|word| before(line, word)).sum();
        return Some(Tally {
            passed: before(line, " passed").unwrap_or(0),
            failed,
            skipped: before(line, " skipped").unwrap_or(0),
        });
    }
    let own = Tally {
        passed: before(line, " passed")?,
        failed: before(line, " failed")?,
        skipped: before(line, " skipped")?,
    };
    (own.to_string() == line).then_some(own)
}

/// The number right before `word`.
fn before(line: &str, word: &str) -> Option<u64> {
    let (head, _) = line.split_once(word)?;
    let digits = head.rsplit(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// Without escape sequences of colours.
fn plain(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(part.split_once('m').map_or("", |(_, rest)| rest));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Tally {
        Tally::read(&[line.to_owned()])
    }

    #[test]
    fn every_runner_is_understood() {
        let three = Tally { passed: 12, failed: 2, skipped: 3 };
        assert_eq!(read("12 passed, 2 failed, 3 skipped"), three);
        assert_eq!(
            read(
                "test result: FAILED. 12 passed; 2 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.00s"
            ),
            three
        );
        assert_eq!(
            read("     Summary [   1.5s] 14/20 tests run: 12 passed (1 slow), 2 failed, 3 skipped"),
            three
        );
        assert_eq!(
            read("\u{1b}[32m     Summary\u{1b}[0m [   1.5s] 12 tests run: 12 passed, 0 skipped").passed,
            12
        );
        assert_eq!(read("they passed, 2 failed, 3 skipped"), Tally::default());
    }
}
