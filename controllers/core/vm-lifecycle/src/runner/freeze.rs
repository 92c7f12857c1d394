//! Freezes of file systems that no client has ended. The guest reports them, and may report more than there are: few are counted, because
//! each one is a write to the API server.

use std::time::Duration;

/// Shortest time between two that are counted.
const BETWEEN: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Freezes {
    expired: u32,
    last: Option<Duration>,
}

impl Freezes {
    pub(crate) fn expired(&mut self, now: Duration) {
        if self.last.is_none_or(|last| now >= last + BETWEEN) {
            self.expired = self.expired.saturating_add(1);
            self.last = Some(now);
        }
    }

    pub(crate) const fn count(&self) -> u32 {
        self.expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_counts_as_one() {
        let mut freezes = Freezes::default();
        (0..100).for_each(|second| freezes.expired(Duration::from_millis(second * 100)));
        assert_eq!(freezes.count(), 1);
        freezes.expired(Duration::from_secs(30));
        assert_eq!(freezes.count(), 2);
    }
}
