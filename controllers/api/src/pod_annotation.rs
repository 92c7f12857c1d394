//! Annotations of a runner pod that describe its VM for the scheduler and the cluster autoscaler.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, PodSpec, Toleration};
use neonvm_types::Quantity;
use serde::{Deserialize, Serialize};

use crate::virtual_machine::{CpuBounds, MemorySlots, VirtualMachineSpec};

/// `vm.neon.tech/usage`: what the VM takes of its node; JSON `{"cpu":"500m","memory":"2Gi"}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU, always a text.
    pub cpu: Quantity,
    /// Memory, always a text.
    pub memory: Quantity,
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

/// `vm.neon.tech/placement`: the nodes that a VM may be on, by its spec alone. The pod of a VM that was migrated also has the rules of
/// that migration, which do not hold for the next one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Placement {
    /// Labels that the node has.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Rules about nodes, and about other pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Taints that are tolerated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
}

impl Placement {
    /// Replaces the rules in the spec of a pod.
    pub fn put(self, spec: &mut PodSpec) {
        spec.node_selector = (!self.node_selector.is_empty()).then_some(self.node_selector);
        spec.affinity = self.affinity;
        spec.tolerations = (!self.tolerations.is_empty()).then_some(self.tolerations);
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
        let usage = Usage { cpu: "250m".parse().unwrap(), memory: "1Gi".parse().unwrap() };
        let json = serde_json::to_string(&usage).unwrap();
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
