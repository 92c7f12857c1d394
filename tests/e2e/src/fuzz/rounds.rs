//! Which rounds a fuzzer runs: those of the file, and, if there is time for more, fresh ones.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Environment variable with the time in seconds for fresh rounds of each role; without it only the rounds of the file run.
pub const SECONDS: &str = "NEONVM_FUZZ_SECONDS";
/// Cases of a fresh round.
const CASES: usize = 300;

/// One run of a fuzzer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// Everything follows from it.
    pub seed: u64,
    /// How many times something is sent.
    pub cases: usize,
}

/// The rounds of a role: first those that `tests/e2e/fuzz-seeds.txt` holds, then fresh ones for [`SECONDS`].
pub fn rounds(role: &str) -> impl Iterator<Item = Round> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz-seeds.txt");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let kept: Vec<Round> = text.lines().filter_map(|line| of_line(line, role)).collect();
    let seconds = std::env::var(SECONDS).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let until = Instant::now() + Duration::from_secs(seconds);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // A number that a person can type.
    let first = u64::from(since.subsec_micros()) * 1_000 + since.as_secs() % 1_000;
    let fresh =
        (first..).map(|seed| Round { seed, cases: CASES }).take_while(move |_| Instant::now() < until);
    kept.into_iter().chain(fresh)
}

/// `role seed cases # why`
fn of_line(line: &str, role: &str) -> Option<Round> {
    let (line, _) = line.split_once('#').unwrap_or((line, ""));
    let mut words = line.split_whitespace();
    let is_of = words.next() == Some(role);
    let round = Round { seed: words.next()?.parse().ok()?, cases: words.next()?.parse().ok()? };
    is_of.then_some(round)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_of_one_role() {
        assert_eq!(of_line("anonymous 7 20 # it hung", "anonymous"), Some(Round { seed: 7, cases: 20 }));
        assert_eq!(of_line("anonymous 7 20", "tenant"), None);
        assert_eq!(of_line("# anonymous 7 20", "anonymous"), None);
    }

    #[test]
    fn each_role_has_rounds_in_the_gate() {
        for role in ["anonymous", "tenant", "guest"] {
            assert!(rounds(role).take(1).count() == 1, "{role}");
        }
    }
}
