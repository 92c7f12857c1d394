//! How full the ranges of addresses are.

use std::net::IpAddr;

use super::Book;
use crate::settings::Range;

/// The addresses of one range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeUsage {
    /// The range, such as `10.100.128.0 to 10.100.255.254`.
    pub range: String,
    /// Addresses that may be allocated, without excluded ones.
    pub total: u128,
    /// Addresses that VMs have.
    pub used: u128,
    /// Addresses that no VM gets yet, because one has released them lately.
    pub quarantined: u128,
}

impl Book {
    /// How full each range is at `now`, in seconds, in the order of the settings. Addresses outside of the ranges, which older
    /// settings left in pools, do not count.
    #[must_use]
    pub fn usage(&self, now: i64) -> Vec<RangeUsage> {
        let mut held: Vec<IpAddr> = self.holders.keys().map(|(address, _)| *address).collect();
        // An address in two pools is one address.
        held.dedup();
        let resting = || self.resting.iter().filter(|(_, until)| **until > now).map(|(address, _)| *address);
        let within = |range: &Range, addresses: &mut dyn Iterator<Item = IpAddr>| {
            addresses.filter(|address| range.contains(*address)).count() as u128
        };
        let ranges = self.settings.ranges.iter();
        ranges
            .map(|range| RangeUsage {
                range: range.to_string(),
                total: range.size(),
                used: within(range, &mut held.iter().copied()),
                quarantined: within(range, &mut resting()),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Book, Settings};

    #[test]
    fn each_range_counts_its_own_addresses() {
        let settings = Settings::parse(
            r#"{"ipRanges": [{"range": "10.1.0.0/30"}, {"range": "10.2.0.0/24", "exclude": ["10.2.0.0/25", "10.2.0.0/26", "10.2.0.200"]}]}"#,
        );
        let mut book = Book::new(settings.unwrap(), 60);
        for vm in ["a", "b", "c"] {
            book.acquire(0, vm, None).unwrap();
        }
        book.release(100, "b");
        let usage = |book: &Book, now| -> Vec<_> {
            let all = book.usage(now).into_iter();
            all.map(|one| (one.range, one.total, one.used, one.quarantined)).collect()
        };
        let first = "10.1.0.1 to 10.1.0.2".to_owned();
        let second = "10.2.0.1 to 10.2.0.254".to_owned();
        let expected = |quarantined| [(first.clone(), 2, 1, quarantined), (second.clone(), 126, 1, 0)];
        assert_eq!(usage(&book, 159), expected(1));
        assert_eq!(usage(&book, 160), expected(0), "a quarantine ends although no request comes");
    }

    #[test]
    fn a_range_of_ipv6_has_more_addresses_than_a_word() {
        let settings = Settings::parse(r#"{"ipRanges": [{"range": "fd00::/32"}, {"range": "10.0.0.1/32"}]}"#);
        let totals: Vec<u128> =
            Book::new(settings.unwrap(), 0).usage(0).iter().map(|one| one.total).collect();
        assert_eq!(totals, [(1 << 96) - 1, 1]);
    }
}
