//! How fast the time stamp counter runs that QEMU's translator shows to a guest: as fast as the host's own
//! (`cpu_get_host_ticks` in QEMU's `include/qemu/timer.h`).
//!
//! A guest that measures it against an emulated timer, while QEMU waits for a processor, is wrong by any factor: its clock
//! then runs up to tens of times too fast, and whatever has a deadline in it fails.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the counter is read by an instruction"))]

use std::sync::OnceLock;

/// Frequency of that counter, in kHz, measured once per process; `None` where it cannot be measured. The first call takes 10 ms.
#[must_use]
pub fn emulated_tsc_khz() -> Option<u32> {
    static KHZ: OnceLock<Option<u32>> = OnceLock::new();
    *KHZ.get_or_init(measured::khz)
}

#[cfg(target_arch = "x86_64")]
mod measured {
    use std::time::{Duration, Instant};

    /// Length of the measurement. The guest refines the frequency that it is given if that is right to 1 %.
    const SPAN: Duration = Duration::from_millis(10);
    /// Readings at each end, of which the one that was disturbed least counts.
    const READINGS: usize = 32;

    pub(super) fn khz() -> Option<u32> {
        let (first, from) = reading()?;
        std::thread::sleep(SPAN);
        let (last, to) = reading()?;
        frequency(last.checked_sub(first)?, to - from)
    }

    fn reading() -> Option<(u64, Instant)> {
        let readings = (0..READINGS).map(|_| {
            let before = Instant::now();
            // SAFETY: every processor of this architecture has the instruction, which changes nothing.
            let counter = unsafe { core::arch::x86_64::_rdtsc() };
            (before.elapsed(), counter, before)
        });
        readings.min_by_key(|(took, ..)| *took).map(|(took, counter, before)| (counter, before + took / 2))
    }

    /// Of no processor that exists: none below 100 MHz, none above 10 GHz.
    fn frequency(ticks: u64, time: Duration) -> Option<u32> {
        let khz = u128::from(ticks) * 1_000_000 / time.as_nanos().max(1);
        u32::try_from(khz).ok().filter(|khz| (100_000..=10_000_000).contains(khz))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn ticks_over_time() {
            assert_eq!(frequency(52_000_000, Duration::from_millis(20)), Some(2_600_000));
            assert_eq!(frequency(0, Duration::from_millis(20)), None);
            assert_eq!(frequency(u64::MAX, Duration::ZERO), None);
        }

        #[test]
        fn two_measurements_agree() {
            let (one, other) = (khz().unwrap(), khz().unwrap());
            // To what the guest's kernel needs to refine it.
            assert!(one.abs_diff(other) < one / 100, "{one} {other}");
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod measured {
    pub(super) fn khz() -> Option<u32> {
        None
    }
}
