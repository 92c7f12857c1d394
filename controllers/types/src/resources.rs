//! CPU and memory together.
//!
//! Two generations exist on the wire: memory in bytes ([`Resources`], scheduler protocol v4.0 and later) and memory in
//! slots ([`SlotResources`], before). Arithmetic saturates or is checked; upstream wraps.

use serde::{Deserialize, Serialize};

use crate::{Bytes, MilliCpu, Quantity, decode::field};

/// Why an amount is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResourcesError {
    /// The CPU field is zero.
    #[error("vCPUs must not be 0")]
    ZeroCpu,
    /// The memory field is zero.
    #[error("mem must not be 0")]
    ZeroMemory,
    /// Slots times slot size need more than 64 bits.
    #[error("mem of {slots} slots of {slot_size} is out of range")]
    MemoryOverflow {
        /// Number of slots.
        slots: u16,
        /// Size of one slot.
        slot_size: Bytes,
    },
}

/// CPU and memory in bytes; JSON `{"vCPUs":"250m","mem":"1Gi"}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resources {
    /// CPU.
    #[serde(rename = "vCPUs", default, deserialize_with = "field::vcpus")]
    pub vcpus: MilliCpu,
    /// Memory.
    #[serde(default, deserialize_with = "field::mem")]
    pub mem: Bytes,
}

impl Resources {
    /// Puts the two parts together.
    #[must_use]
    pub const fn new(vcpus: MilliCpu, mem: Bytes) -> Self {
        Self { vcpus, mem }
    }

    /// Checks that neither field is zero.
    ///
    /// # Errors
    /// Names the field that is zero.
    pub fn validate_non_zero(self) -> Result<(), ResourcesError> {
        if self.vcpus == MilliCpu::ZERO {
            Err(ResourcesError::ZeroCpu)
        } else if self.mem == Bytes::ZERO {
            Err(ResourcesError::ZeroMemory)
        } else {
            Ok(())
        }
    }

    /// Whether any field is greater than the other's.
    #[must_use]
    pub fn any_greater(self, other: Self) -> bool {
        self.vcpus > other.vcpus || self.mem > other.mem
    }

    /// Whether any field is less than the other's; both this and [`Resources::any_greater`] can hold at once.
    #[must_use]
    pub fn any_less(self, other: Self) -> bool {
        other.any_greater(self)
    }

    /// The smaller of each field.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self { vcpus: self.vcpus.min(other.vcpus), mem: self.mem.min(other.mem) }
    }

    /// The larger of each field.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { vcpus: self.vcpus.max(other.vcpus), mem: self.mem.max(other.mem) }
    }

    /// Field by field sum, or `None` if a field overflows.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        Some(Self { vcpus: self.vcpus.checked_add(other.vcpus)?, mem: self.mem.checked_add(other.mem)? })
    }

    /// Field by field sum, at most the largest value.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Self { vcpus: self.vcpus.saturating_add(other.vcpus), mem: self.mem.saturating_add(other.mem) }
    }

    /// Field by field difference, at least zero.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self { vcpus: self.vcpus.saturating_sub(other.vcpus), mem: self.mem.saturating_sub(other.mem) }
    }

    /// Field by field distance.
    #[must_use]
    pub fn abs_diff(self, other: Self) -> Self {
        self.max(other).saturating_sub(self.min(other))
    }

    /// Each field times `factor`, or `None` if a field overflows.
    #[must_use]
    pub fn checked_mul(self, factor: u16) -> Option<Self> {
        Some(Self { vcpus: self.vcpus.checked_mul(factor)?, mem: self.mem.checked_mul(u32::from(factor))? })
    }

    /// Each field times `factor`, at most the largest value.
    #[must_use]
    pub fn saturating_mul(self, factor: u16) -> Self {
        Self { vcpus: self.vcpus.saturating_mul(factor), mem: self.mem.saturating_mul(u32::from(factor)) }
    }

    /// Which fields grew since `old`.
    #[must_use]
    pub fn increase_from(self, old: Self) -> MoreResources {
        MoreResources { cpu: self.vcpus > old.vcpus, memory: self.mem > old.mem }
    }

    /// How many `unit`s this is, if both fields are exact multiples with one quotient that fits 16 bits.
    #[must_use]
    pub fn exact_quotient(self, unit: Self) -> Option<u16> {
        let cpu = u64::from(self.vcpus.milli());
        let cpu_unit = u64::from(unit.vcpus.milli());
        let quotient = cpu.checked_div(cpu_unit)?;
        let same = self.mem.get().checked_div(unit.mem.get())? == quotient;
        let exact = cpu.is_multiple_of(cpu_unit) && self.mem.is_multiple_of(unit.mem);
        if same && exact { u16::try_from(quotient).ok() } else { None }
    }

    /// The JSON text, compact and with keys in order: what annotations hold and what is compared byte by byte.
    #[must_use]
    pub fn to_annotation(self) -> String {
        let cpu = if self.vcpus.is_whole() { self.vcpus.to_string() } else { format!("\"{}\"", self.vcpus) };
        let mem = if self.mem.get() < 1024 { self.mem.to_string() } else { format!("\"{}\"", self.mem) };
        format!("{{\"vCPUs\":{cpu},\"mem\":{mem}}}")
    }
}

/// CPU and memory in slots; JSON `{"vCPUs":"250m","mem":1}`. Protocol versions before v4.0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SlotResources {
    /// CPU.
    #[serde(rename = "vCPUs", default, deserialize_with = "field::vcpus")]
    pub vcpus: MilliCpu,
    /// Number of memory slots.
    #[serde(default, deserialize_with = "field::mem")]
    pub mem: u16,
}

impl SlotResources {
    /// Puts the two parts together.
    #[must_use]
    pub const fn new(vcpus: MilliCpu, mem: u16) -> Self {
        Self { vcpus, mem }
    }

    /// The same amount with memory in bytes.
    ///
    /// # Errors
    /// [`ResourcesError::MemoryOverflow`] if the product needs more than 64 bits.
    pub fn to_bytes(self, slot_size: Bytes) -> Result<Resources, ResourcesError> {
        let overflow = ResourcesError::MemoryOverflow { slots: self.mem, slot_size };
        let mem = slot_size.checked_mul(u32::from(self.mem)).ok_or(overflow)?;
        Ok(Resources { vcpus: self.vcpus, mem })
    }

    /// The same amount in slots, memory rounded down; `None` if `slot_size` is zero or there are too many slots.
    #[must_use]
    pub fn from_bytes(resources: Resources, slot_size: Bytes) -> Option<Self> {
        let mem = u16::try_from(resources.mem.slots(slot_size)?).ok()?;
        Some(Self { vcpus: resources.vcpus, mem })
    }

    /// CPU and memory as Kubernetes quantities.
    ///
    /// # Errors
    /// As [`SlotResources::to_bytes`].
    pub fn to_quantities(self, slot_size: Bytes) -> Result<(Quantity, Quantity), ResourcesError> {
        let bytes = self.to_bytes(slot_size)?;
        Ok((bytes.vcpus.to_quantity(), bytes.mem.to_quantity()))
    }
}

/// Which resources more is wanted of; JSON `{"cpu":false,"memory":true}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoreResources {
    /// More CPU.
    #[serde(default, deserialize_with = "field::cpu")]
    pub cpu: bool,
    /// More memory.
    #[serde(default, deserialize_with = "field::memory")]
    pub memory: bool,
}

impl MoreResources {
    /// Each flag inverted.
    #[must_use]
    #[allow(clippy::should_implement_trait, reason = "named after the operation of the specification")]
    pub const fn not(self) -> Self {
        Self { cpu: !self.cpu, memory: !self.memory }
    }

    /// Each flag of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { cpu: self.cpu && other.cpu, memory: self.memory && other.memory }
    }
}

#[cfg(test)]
mod tests;
