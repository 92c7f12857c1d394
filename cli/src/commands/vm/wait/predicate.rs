//! What can be waited for. Pure.

use neonvm_api::VirtualMachine;
use neonvm_types::{Bytes, MilliCpu};

use crate::commands::resource::predicate::{self, Comparison, Selection};
use crate::commands::vm::size;
use crate::commands::vm::table::observed;
use crate::error::{Code, Error, Result};

/// A condition on a VM.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Predicate {
    Phase(String),
    Condition(String, String),
    Address,
    Deleted,
    Cpu(Comparison, MilliCpu),
    Memory(Comparison, Bytes),
    Units(Comparison, u32),
    Path(Selection),
}

impl Predicate {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let bad = || {
            Error::new(Code::Usage, format!("--for: {text:?} is not a valid condition"))
                .hint("use phase=P, condition=C, ip, deleted, cpu>=N, memory>=SIZE, cu>=N or jsonpath=EXPR")
        };
        match text {
            "ip" => return Ok(Self::Address),
            "deleted" | "delete" => return Ok(Self::Deleted),
            _ => {}
        }
        let (key, comparison, value) = predicate::split(text).ok_or_else(bad)?;
        Ok(match key {
            "cpu" => Self::Cpu(comparison, size::cpu("for", value)?),
            "memory" => Self::Memory(comparison, size::memory("for", value)?),
            "cu" => Self::Units(comparison, value.parse().map_err(|_| bad())?),
            _ if comparison != Comparison::Equal => return Err(bad()),
            "phase" => Self::Phase(value.to_owned()),
            "condition" => {
                let (name, status) = predicate::condition(value);
                Self::Condition(name, status)
            }
            "jsonpath" => Self::Path(Selection::parse(value)?),
            _ => return Err(bad()),
        })
    }

    pub(super) fn holds(&self, machine: &VirtualMachine) -> bool {
        let status = machine.status.clone().unwrap_or_default();
        let (cpu, memory) = observed(machine);
        match self {
            Self::Phase(phase) => status.phase.is_some_and(|now| now.as_str().eq_ignore_ascii_case(phase)),
            Self::Condition(name, wanted) => {
                let mut conditions = status.conditions.iter();
                conditions.any(|found| {
                    found.type_.eq_ignore_ascii_case(name) && found.status.eq_ignore_ascii_case(wanted)
                })
            }
            Self::Address => !status.pod_ip.is_empty() || !status.extra_net_ip.is_empty(),
            Self::Deleted => false,
            Self::Cpu(comparison, wanted) => cpu > MilliCpu::ZERO && comparison.holds(&cpu, wanted),
            Self::Memory(comparison, wanted) => memory > Bytes::ZERO && comparison.holds(&memory, wanted),
            Self::Units(comparison, wanted) => {
                let units = cpu.milli() / size::UNIT_CPU.milli();
                let by_memory = memory.get() / size::UNIT_MEMORY.get();
                units > 0 && comparison.holds(&u64::from(units).min(by_memory), &u64::from(*wanted))
            }
            Self::Path(selection) => selection.holds(machine),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine() -> VirtualMachine {
        serde_json::from_value(json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
            "metadata": { "name": "x" }, "spec": { "guest": { "cpus": { "min": 1, "max": 2, "use": 1 },
                "memorySlots": { "min": 1, "max": 4, "use": 1 }, "rootDisk": { "image": "i" } } },
            "status": { "phase": "Running", "cpus": 1, "memorySize": "4Gi", "podIP": "10.0.0.1", "node": "n1",
                "conditions": [{ "type": "Available", "status": "True", "reason": "Ready", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z" }] } }))
        .unwrap()
    }

    #[test]
    fn what_is_and_what_is_not() {
        for (text, expected) in [
            ("phase=Running", true),
            ("phase=pending", false),
            ("condition=Available", true),
            ("condition=Available=False", false),
            ("ip", true),
            ("deleted", false),
            ("cpu>=1", true),
            ("cpu>=1.5", false),
            ("cpu<=2", true),
            ("memory=4Gi", true),
            ("cu>=4", true),
            ("cu>=5", false),
            ("jsonpath={.status.node}", true),
            ("jsonpath=.status.node", true),
            ("jsonpath=.status.node=n1", true),
            ("jsonpath=.status.node=n2", false),
            ("jsonpath={.status.node}=n1", true),
            ("jsonpath={.status.node}=n2", false),
            ("jsonpath={.status.tlsSecretName}", false),
        ] {
            assert_eq!(Predicate::parse(text).unwrap().holds(&machine()), expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_waited_for_is_refused() {
        for text in ["", "up", "phase", "phase=", "phase>=Running", "cpu=fast", "cu>=x", "colour=red", "ü>"]
        {
            assert_eq!(Predicate::parse(text).unwrap_err().code, Code::Usage, "{text}");
        }
    }
}
