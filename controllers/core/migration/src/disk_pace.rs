//! How fast a guest may write its disks while they are copied.
//!
//! A copy never catches up with a guest that writes as fast as the copy runs, so the guest is slowed down, and only
//! then. Once the copy has caught up, the amount that the guest writes in a moment determines the downtime at the end,
//! so it must not write much more in a moment than is copied in one.

use std::time::Duration;

use neonvm_types::Bytes;

/// The copy has caught up when the remainder is no more than this, or than what is copied in [`CAUGHT_UP_TIME`]: the
/// downtime at the end is as long.
const CAUGHT_UP: Bytes = Bytes::mib(1);
const CAUGHT_UP_TIME: Duration = Duration::from_millis(100);
/// Never slower than so many bytes in a second: a database that cannot write at all does not answer either.
const SLOWEST: Bytes = Bytes::new(64 << 10);
/// Shortest time in which a copy that is always behind shows how much the link carries.
const MEASURED: Duration = Duration::from_millis(500);

/// Watches the copies of all disks of a migration together.
#[derive(Clone, Debug, Default)]
pub struct DiskPace {
    /// Bytes copied and to copy, as last measured.
    last: Option<(Bytes, Bytes)>,
    /// Most that was copied in a second while there was more to copy: what the link carries.
    link: Option<Bytes>,
    limit: Option<Bytes>,
}

impl DiskPace {
    /// Most bytes in a second that the guest may write; none: as many as it likes.
    #[must_use]
    pub fn limit(&self) -> Option<Bytes> {
        self.limit
    }

    /// Processes QEMU's progress of the copies (`offset` and `len` of its jobs): `done` of `all` bytes, where `all` grows with
    /// the guest's writes; `elapsed` since the last call. Returns a limit to set.
    ///
    /// The guest may write half of what is copied: then the copy takes at most twice as long as that of a guest that writes
    /// nothing. QEMU copies whole chunks of 64 KiB, so small writes count for many times their size; the limit, which counts what
    /// the guest writes, is halved for as long as it is not enough.
    pub fn next(&mut self, elapsed: Duration, done: Bytes, all: Bytes) -> Option<Bytes> {
        let (last_done, last_all) = self.last.replace((done, all))?;
        let milliseconds = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
        let rate = |from: Bytes, to: Bytes| {
            let bytes = to.get().saturating_sub(from.get());
            u64::try_from(u128::from(bytes) * 1000 / u128::from(milliseconds)).unwrap_or(u64::MAX)
        };
        let (copied, written) = (rate(last_done, done), rate(last_all, all));
        let behind = all.get().saturating_sub(done.get());
        if elapsed >= MEASURED && behind > CAUGHT_UP.get() {
            self.link = self.link.max(Some(Bytes::new(copied)));
        }
        let at_once = u128::from(copied) * CAUGHT_UP_TIME.as_millis() / 1000;
        if behind <= CAUGHT_UP.get() || u128::from(behind) <= at_once || written <= copied / 2 {
            return None;
        }
        let limit = self.limit.map_or(copied / 2, |limit| (copied / 2).min(limit.get() / 2));
        self.lower(Bytes::new(limit))
    }

    /// All copies have caught up, and memory is copied next, over the same link. Returns a limit that is to be set: a quarter of
    /// what the link was seen to carry, since memory takes at most half of it. None for disks that were copied too fast to see.
    pub fn caught_up(&mut self) -> Option<Bytes> {
        let limit = Bytes::new(self.link?.get() / 4);
        if self.limit.is_some_and(|now| now <= limit) { None } else { self.lower(limit) }
    }

    fn lower(&mut self, limit: Bytes) -> Option<Bytes> {
        let limit = limit.max(SLOWEST);
        (self.limit != Some(limit)).then(|| *self.limit.insert(limit))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Copies a disk of `disk` bytes at `link` bytes per second while the guest tries to write `rate` bytes per second, each of
    /// which adds `times` bytes to copy. Returns how much was left to copy after each second.
    fn copy(pace: &mut DiskPace, disk: u64, link: u64, rate: u64, times: u64, seconds: u64) -> Vec<u64> {
        let (mut done, mut all) = (0, disk);
        let second = |_| {
            let may = pace.limit().map_or(rate, |limit| rate.min(limit.get()));
            all += may * times;
            done += link.min(all - done);
            pace.next(SECOND, Bytes::new(done), Bytes::new(all));
            all - done
        };
        (0..seconds).map(second).collect()
    }

    proptest! {
        /// However much the guest writes, the copy catches up, if the link carries twice what the slowest guest writes.
        #[test]
        fn the_copy_catches_up(
            disk in 0_u64..1 << 33, link in (2_u64 << 20)..1 << 30, rate in 0_u64..1 << 32, times in 1_u64..=16,
        ) {
            let mut pace = DiskPace::default();
            // Until the limit is found, at most the guest's rate is added; then half of the link is left over.
            let seconds = 64 + 4 * (disk + 20 * rate * times) / link;
            let behind = copy(&mut pace, disk, link, rate, times, seconds.min(200_000));
            let last = behind.last().copied().unwrap_or_default();
            prop_assert!(last <= CAUGHT_UP.get().max(link / 10), "{last} behind, {:?}", pace.limit());
        }

        /// A guest that has written nothing so far and then writes as fast as it can, while memory has half of the
        /// link: its downtime at the end is always short.
        #[test]
        fn no_burst_makes_the_guest_stand_still_for_long(
            seconds in 3_u64..100, link in (2_u64 << 20)..1 << 30, rate in 0_u64..1 << 34, moment in 1_u64..100,
        ) {
            let mut pace = DiskPace::default();
            copy(&mut pace, seconds * link, link, 0, 1, seconds);
            let limit = pace.caught_up();
            prop_assert_eq!(limit, Some(Bytes::new(link / 4)));
            let behind = copy(&mut pace, 0, link / 2, rate, 1, moment);
            prop_assert!(behind.iter().all(|behind| *behind == 0), "{behind:?}");
            prop_assert_eq!(pace.limit(), limit, "that is enough");
        }

        /// A guest that writes less than half of what the link carries is left alone.
        #[test]
        fn who_writes_little_is_left_alone(
            disk in 0_u64..1 << 33, link in 0_u64..1 << 30, share in 0_u64..50, seconds in 0_u64..200,
        ) {
            let mut pace = DiskPace::default();
            copy(&mut pace, disk, link, link * share / 100, 1, seconds);
            prop_assert_eq!(pace.limit(), None);
        }

        /// Any numbers are taken in; a limit only ever gets smaller, and not below the slowest.
        #[test]
        fn limits_only_fall(samples in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 0..50)) {
            let mut pace = DiskPace::default();
            let mut last = u64::MAX;
            for (elapsed, done, all) in samples {
                if let Some(limit) = pace.next(Duration::from_millis(elapsed), Bytes::new(done), Bytes::new(all)) {
                    prop_assert!(limit >= SLOWEST && limit.get() <= last);
                    prop_assert_eq!(pace.limit(), Some(limit));
                    last = limit.get();
                }
            }
        }
    }
}
