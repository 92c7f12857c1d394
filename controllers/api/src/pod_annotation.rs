//! Annotations of a runner pod that describe its VM for the scheduler and the cluster autoscaler.

use neonvm_types::{Quantity, QuantityError};
use serde::{Deserialize, Serialize};

use crate::virtual_machine::{CpuBounds, MemorySlots, VirtualMachineSpec};

/// `vm.neon.tech/usage`: what the VM uses by its spec; JSON `{"cpu":"500m","memory":"2Gi"}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU, always a text.
    pub cpu: Quantity,
    /// Memory, always a text.
    pub memory: Quantity,
}

impl Usage {
    /// The usage that a spec requests.
    ///
    /// # Errors
    /// When the slot size does not fit; validation refuses such an object.
    pub fn from_spec(spec: &VirtualMachineSpec) -> Result<Self, QuantityError> {
        let guest = &spec.guest;
        Ok(Self { cpu: guest.cpus.r#use.to_quantity(), memory: guest.memory_use()?.to_quantity() })
    }
}

/// `vm.neon.tech/resources`: bounds and use, as the spec has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodResources {
    /// CPU.
    pub cpus: CpuBounds,
    /// Memory, in slots.
    pub memory_slots: MemorySlots,
    /// Memory of one slot.
    pub memory_slot_size: Quantity,
}

impl PodResources {
    /// The bounds and use of a spec.
    #[must_use]
    pub fn from_spec(spec: &VirtualMachineSpec) -> Self {
        let guest = &spec.guest;
        Self { cpus: guest.cpus, memory_slots: guest.memory_slots, memory_slot_size: guest.memory_slot_size }
    }
}

#[cfg(test)]
mod tests {
    use neonvm_types::MilliCpu;

    use super::*;
    use crate::virtual_machine::{Guest, Overcommit};

    #[test]
    fn annotations_of_the_example() {
        let cpus = CpuBounds { min: MilliCpu::new(250), max: MilliCpu::new(1000), r#use: MilliCpu::new(250) };
        let slots = MemorySlots { min: 1, max: 4, r#use: 1 };
        let spec = VirtualMachineSpec::new(Guest::new(cpus, slots, "img:tag"));
        let json = serde_json::to_string(&Usage::from_spec(&spec).unwrap()).unwrap();
        assert_eq!(json, r#"{"cpu":"250m","memory":"1Gi"}"#);
        let json = serde_json::to_string(&PodResources::from_spec(&spec)).unwrap();
        assert_eq!(
            json,
            concat!(
                r#"{"cpus":{"min":"250m","max":1,"use":"250m"},"#,
                r#""memorySlots":{"min":1,"max":4,"use":1},"memorySlotSize":"1Gi"}"#
            )
        );
        assert_eq!(serde_json::from_str::<PodResources>(&json).unwrap(), PodResources::from_spec(&spec));
        let overcommit: Overcommit = serde_json::from_str(r#"{"cpu":"2500m","memory":1.5}"#).unwrap();
        assert_eq!(serde_json::to_string(&overcommit).unwrap(), r#"{"cpu":"2500m","memory":"1500m"}"#);
    }
}
