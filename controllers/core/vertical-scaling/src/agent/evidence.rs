//! What calls for a size: evidence for each resource, and how the two go together.
//!
//! A guest whose monitor sends amounts (protocol v2.0) shows what each resource needs, so that no resource grows without evidence.
//! What lets a VM keep its size never makes it grow: a size that follows from evidence stays under the same evidence. Metrics of
//! older guests call for compute units, as upstream's agent counts them.

use neonvm_types::{Bytes, MilliCpu, Resources};
use serde::Serialize;

use crate::agent::units;

/// What metrics, requests and pressure call for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// What the VM grows to. Zero in a field: nothing calls for more than the lower bound.
    pub grow: Resources,
    /// What the VM does not shrink below. It never makes a VM grow.
    pub keep: Resources,
    /// How CPU and memory go together.
    pub coupling: Coupling,
}

/// How CPU and memory go together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Coupling {
    /// As upstream: a size is a number of compute units, the larger one of what CPU and memory call for, before the bounds are
    /// applied.
    #[default]
    Units,
    /// For each whole compute unit that one resource grows beyond its lower bound, the other one grows by one unit beyond its own.
    /// A resource at its upper bound takes the other one no further. If both lower bounds are the same number of compute units,
    /// sizes are those of [`Coupling::Units`].
    Bounds,
}

/// The bounds of a VM, and the compute unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// A compute unit; no field is zero.
    pub unit: Resources,
    /// Lower bound.
    pub min: Resources,
    /// Upper bound.
    pub max: Resources,
}

impl Coupling {
    /// The size for what each resource needs. The bounds are not applied.
    #[must_use]
    pub fn size(self, need: Resources, range: &Range) -> Resources {
        let Range { unit, min, max } = *range;
        match self {
            Self::Units => units::times(unit, units::ceil(need, unit)),
            Self::Bounds => {
                let (cpu, mem) = units::floor_each(need.min(max).saturating_sub(min), unit);
                let (least_cpu, least_mem) = units::floor_each(min, unit);
                let beside = |least: u32, more: u32| if more == 0 { 0 } else { least.saturating_add(more) };
                let vcpus = units::times(unit, beside(least_cpu, mem)).vcpus;
                let mem = units::times(unit, beside(least_mem, cpu)).mem;
                need.max(Resources::new(vcpus, mem))
            }
        }
    }
}

impl Evidence {
    /// Compute units of both resources, which justify growth and prevent shrinking.
    #[must_use]
    pub fn of_units(unit: Resources, count: u32) -> Self {
        let size = units::times(unit, count);
        Self { grow: size, keep: size, coupling: Coupling::Units }
    }

    /// The same with more reason to grow.
    #[must_use]
    pub fn with(self, need: Resources) -> Self {
        Self { grow: self.grow.max(need), keep: self.keep.max(need), ..self }
    }

    /// The same as far as `permitted` allows it: what one resource does not get takes nothing of the other one.
    #[must_use]
    pub fn within(self, permitted: Resources) -> Self {
        Self { grow: self.grow.min(permitted), ..self }
    }

    /// The size for a VM of which `asked` is requested, within its bounds.
    #[must_use]
    pub fn size(&self, asked: Resources, range: &Range) -> Resources {
        let grown = self.coupling.size(self.grow, range);
        let kept = self.coupling.size(self.keep.max(self.grow), range).min(asked);
        grown.max(kept)
    }
}

/// A requested amount as a size: whole compute units, but no more than the VM has if it has that amount.
#[must_use]
pub fn requested_cpu(amount: MilliCpu, asked: Resources, range: &Range) -> MilliCpu {
    let fit = units::fit(Resources::new(amount, Bytes::ZERO), range.unit, range.min).vcpus;
    if amount <= asked.vcpus { fit.min(asked.vcpus) } else { fit }
}

#[must_use]
pub fn requested_mem(amount: Bytes, asked: Resources, range: &Range) -> Bytes {
    let fit = units::fit(Resources::new(MilliCpu::ZERO, amount), range.unit, range.min).mem;
    if amount <= asked.mem { fit.min(asked.mem) } else { fit }
}
