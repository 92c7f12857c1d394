//! The lowest free address of a range, without a scan of all that are taken.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::net::number;
use crate::settings::Range;

/// Everything below `fresh` was given once; what of it may be free again is in `freed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    /// None: the end was reached.
    fresh: Option<u128>,
    freed: BTreeSet<u128>,
}

impl Cursor {
    pub(super) fn new(range: &Range) -> Self {
        Self { fresh: Some(range.first()), freed: BTreeSet::new() }
    }

    /// The lowest address that is not taken. It counts as given.
    pub(super) fn lowest(&mut self, range: &Range, taken: &dyn Fn(IpAddr) -> bool) -> Option<IpAddr> {
        let family = range.net().family();
        while let Some(number) = self.freed.pop_first() {
            let address = family.address(number);
            if !taken(address) {
                return Some(address);
            }
        }
        while let Some(number) = range.next(self.fresh?) {
            self.fresh = number.checked_add(1);
            let address = family.address(number);
            if !taken(address) {
                return Some(address);
            }
        }
        self.fresh = None;
        None
    }

    /// The address may be given again.
    pub(super) fn free(&mut self, address: IpAddr) {
        let number = number(address);
        if self.fresh.is_none_or(|fresh| number < fresh) {
            self.freed.insert(number);
        }
    }
}
