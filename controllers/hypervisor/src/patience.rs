//! Deadlines on a slow host. Those of this crate and of the runner hold on any real host. An emulated one, on which VMs are tested with
//! nested virtualisation, is slower by an order of magnitude; there one factor makes all of them longer.

use std::sync::OnceLock;
use std::time::Duration;

use neonvm_types::runner_protocol::DEADLINE_FACTOR;

/// Largest factor; the smallest is 1. Anything else than a whole number of this range counts as 1.
const MOST: u32 = 60;

fn factor(text: Option<&str>) -> u32 {
    text.and_then(|text| text.parse().ok()).filter(|factor| (1..=MOST).contains(factor)).unwrap_or(1)
}

/// A deadline, longer by the factor of this host.
#[must_use]
pub fn scaled(deadline: Duration) -> Duration {
    static KNOWN: OnceLock<u32> = OnceLock::new();
    deadline.saturating_mul(*KNOWN.get_or_init(|| factor(std::env::var(DEADLINE_FACTOR).ok().as_deref())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_factor_within_its_range_counts() {
        let read = [None, Some("10"), Some("60"), Some("61"), Some("0"), Some("-1"), Some("x")].map(factor);
        assert_eq!(read, [1, 10, 60, 1, 1, 1, 1]);
    }
}
