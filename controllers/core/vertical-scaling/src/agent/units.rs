//! Compute units: how many there are in an amount, and how much a number of them is. Nothing wraps, nothing divides by 0.

use std::fmt;

use neonvm_types::{Bytes, MilliCpu, Resources};
use serde::Serialize;

/// `unit` times `count`, at most the largest value of each field.
#[must_use]
pub fn times(unit: Resources, count: u32) -> Resources {
    let milli = u64::from(unit.vcpus.milli()).saturating_mul(u64::from(count));
    let vcpus = u32::try_from(milli).map_or(MilliCpu::MAX, MilliCpu::new);
    Resources::new(vcpus, unit.mem.saturating_mul(count))
}

fn saturate(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Converts to the next whole number that is not below; everything that is no number is 0.
#[must_use]
pub fn ceil_units(value: f64) -> u32 {
    let up = value.ceil();
    if up >= f64::from(u32::MAX) {
        u32::MAX
    } else if up > 0.0 {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the maximum"
        )]
        let units = up as u32;
        units
    } else {
        0
    }
}

/// So many CPUs in thousandths, rounded up; everything that is no number is 0.
#[must_use]
pub fn ceil_milli(cpus: f64) -> MilliCpu {
    // Sums of binary fractions are a little above what they stand for.
    MilliCpu::new(ceil_units(cpus * 1000.0 - 1e-6))
}

/// The least whole number of units, in each field, that is not below `amount`; what is at most `enough` stays as it is.
#[must_use]
pub fn fit(amount: Resources, unit: Resources, enough: Resources) -> Resources {
    let (cpu, mem) = ceil_each(amount, unit);
    Resources {
        vcpus: if amount.vcpus <= enough.vcpus { amount.vcpus } else { times(unit, cpu).vcpus },
        mem: if amount.mem <= enough.mem { amount.mem } else { times(unit, mem).mem },
    }
}

/// Whole units in each field: CPU, memory. A unit of zero fits no time.
#[must_use]
pub fn floor_each(amount: Resources, unit: Resources) -> (u32, u32) {
    let cpu = amount.vcpus.milli().checked_div(unit.vcpus.milli()).unwrap_or(0);
    (cpu, saturate(amount.mem.get().checked_div(unit.mem.get()).unwrap_or(0)))
}

/// Units that contain each field: CPU, memory.
#[must_use]
pub fn ceil_each(amount: Resources, unit: Resources) -> (u32, u32) {
    let cpu = u64::from(amount.vcpus.milli()).div_ceil(u64::from(unit.vcpus.milli()).max(1));
    (saturate(cpu), saturate(amount.mem.get().div_ceil(unit.mem.get().max(1))))
}

/// Whole units that both fields contain.
#[must_use]
pub fn floor(amount: Resources, unit: Resources) -> u32 {
    let (cpu, mem) = floor_each(amount, unit);
    cpu.min(mem)
}

/// Units that contain both fields.
#[must_use]
pub fn ceil(amount: Resources, unit: Resources) -> u32 {
    let (cpu, mem) = ceil_each(amount, unit);
    cpu.max(mem)
}

/// The number of units this exactly is.
#[must_use]
pub fn exact(amount: Resources, unit: Resources) -> Option<u32> {
    let count = floor(amount, unit);
    (times(unit, count) == amount).then_some(count)
}

/// The next multiple of `slot` that is not below `mem`, or the last one that is representable.
#[must_use]
pub fn round_up_to_slot(mem: Bytes, slot: Bytes) -> Bytes {
    let slot_bytes = slot.get().max(1);
    let slots = mem.get().div_ceil(slot_bytes);
    slots.checked_mul(slot_bytes).map_or_else(|| round_down_to_slot(mem, slot), Bytes::new)
}

/// The last multiple of `slot` that is not above `mem`.
#[must_use]
pub fn round_down_to_slot(mem: Bytes, slot: Bytes) -> Bytes {
    Bytes::new(mem.get() - mem.get() % slot.get().max(1))
}

/// A size as people read it: a number of compute units, or CPU and memory if it is not a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Size {
    /// So many units.
    Units(u32),
    /// Anything else.
    Odd(Resources),
}

impl Size {
    /// `amount` in terms of `unit`.
    #[must_use]
    pub fn from_amount(amount: Resources, unit: Resources) -> Self {
        exact(amount, unit).map_or(Self::Odd(amount), Self::Units)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Units(count) => write!(f, "{count}"),
            Self::Odd(amount) => write!(f, "{}/{}", amount.vcpus, amount.mem),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CU: Resources = Resources::new(MilliCpu::new(250), Bytes::gib(1));

    fn amount(milli: u32, mib: u32) -> Resources {
        Resources::new(MilliCpu::new(milli), Bytes::mib(mib))
    }

    #[test]
    fn counts_both_ways() {
        for (size, low, high) in [
            (amount(250, 1024), 1, 1),
            (amount(251, 1024), 1, 2),
            (amount(1000, 5120), 4, 5),
            (amount(0, 0), 0, 0),
        ] {
            assert_eq!((floor(size, CU), ceil(size, CU)), (low, high), "{size:?}");
        }
        assert_eq!(exact(amount(500, 2048), CU), Some(2));
        assert_eq!(exact(amount(500, 3072), CU), None);
    }

    #[test]
    fn extremes_saturate() {
        let huge = Resources::new(MilliCpu::MAX, Bytes::new(u64::MAX));
        assert_eq!(times(huge, u32::MAX), huge);
        assert_eq!(floor(huge, Resources::default()), 0);
        assert_eq!(ceil(huge, Resources::default()), u32::MAX);
        assert_eq!(round_up_to_slot(Bytes::new(u64::MAX), Bytes::gib(1)).get() % (1 << 30), 0);
        assert_eq!(round_up_to_slot(Bytes::new(7), Bytes::ZERO), Bytes::new(7));
    }

    /// Defect 15: 70,000 units were 4,464 to upstream, because the count was cut to 16 bits.
    #[test]
    fn defect_15_counts_are_not_cut_to_16_bits() {
        let unit = amount(1, 1);
        assert_eq!(times(unit, 70_000).mem, Bytes::mib(70_000));
        assert_eq!(exact(times(unit, 70_000), unit), Some(70_000));
    }

    #[test]
    fn sizes_in_words() {
        assert_eq!(Size::from_amount(amount(750, 3072), CU).to_string(), "3");
        assert_eq!(Size::from_amount(amount(250, 2048), CU).to_string(), "250m/2Gi");
    }
}
