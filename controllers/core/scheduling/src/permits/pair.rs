//! The same thing for both resources.

use neonvm_types::{Bytes, MilliCpu, Resources};

/// One value for CPU, one for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Pair<T> {
    /// CPU; amounts are thousandths.
    pub cpu: T,
    /// Memory; amounts are bytes.
    pub mem: T,
}

impl<T: Copy> Pair<T> {
    /// Puts the two together.
    #[must_use]
    pub const fn new(cpu: T, mem: T) -> Self {
        Self { cpu, mem }
    }

    #[must_use]
    pub const fn both(value: T) -> Self {
        Self { cpu: value, mem: value }
    }

    /// Does something to each.
    #[must_use]
    pub fn map<U>(self, f: impl Fn(T) -> U) -> Pair<U> {
        Pair { cpu: f(self.cpu), mem: f(self.mem) }
    }

    /// Does something to each with its counterpart.
    #[must_use]
    pub fn with<U, V>(self, other: Pair<U>, f: impl Fn(T, U) -> V) -> Pair<V> {
        Pair { cpu: f(self.cpu, other.cpu), mem: f(self.mem, other.mem) }
    }
}

impl Pair<bool> {
    /// Whether one of them is true.
    #[must_use]
    pub const fn any(self) -> bool {
        self.cpu || self.mem
    }
}

impl<T: Copy + Ord> Pair<T> {
    /// The smaller of each.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        self.with(other, Ord::min)
    }

    /// The larger of each.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        self.with(other, Ord::max)
    }

    /// Whether one is greater than its counterpart.
    #[must_use]
    pub fn any_greater(self, other: Self) -> bool {
        self.with(other, |a, b| a > b).any()
    }
}

impl Pair<u64> {
    /// Differences, at least zero.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        self.with(other, u64::saturating_sub)
    }

    /// As amounts with units; CPU at most what fits.
    #[must_use]
    pub fn resources(self) -> Resources {
        let cpu = u32::try_from(self.cpu).unwrap_or(u32::MAX);
        Resources::new(MilliCpu::new(cpu), Bytes::new(self.mem))
    }
}

impl Pair<u128> {
    /// Sums. They do not overflow: each of at most 2^32 pods counts with less than 2^75.
    pub(crate) fn add(&mut self, other: Self) {
        *self = self.with(other, u128::saturating_add);
    }

    pub(crate) fn subtract(&mut self, other: Self) {
        *self = self.with(other, u128::saturating_sub);
    }

    /// At most what fits.
    pub(crate) fn narrow(self) -> Pair<u64> {
        self.map(|sum| u64::try_from(sum).unwrap_or(u64::MAX))
    }
}

impl From<Resources> for Pair<u64> {
    fn from(resources: Resources) -> Self {
        Self { cpu: u64::from(resources.vcpus.milli()), mem: resources.mem.get() }
    }
}
