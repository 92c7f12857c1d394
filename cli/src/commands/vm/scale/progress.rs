//! A size that was requested: reached, on the way, or not to be reached by waiting. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use neonvm_api::VirtualMachine;
use neonvm_api::names::{TRUE, label};
use neonvm_api::virtual_machine::Phase;
use neonvm_types::{Bytes, MilliCpu};

use crate::commands::vm::size::cores;
use crate::commands::vm::table::observed;
use crate::commands::vm::waiting;
use crate::commands::watching::WaitProgress;
use crate::error::{Code, Error};

/// A size that was requested.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Goal {
    pub(in crate::commands) cpu: MilliCpu,
    /// Memory, whole steps.
    pub(in crate::commands) memory: Bytes,
    /// Generation of the object with the request; a status about an older one is about another size.
    pub(in crate::commands) generation: Option<i64>,
}

impl Goal {
    /// What the VM has beyond the requested memory, if the size is reached: less than one step, which the guest keeps.
    pub(in crate::commands) fn remainder(&self, machine: &VirtualMachine) -> Option<Bytes> {
        let (cpu, memory) = observed(machine);
        let rest = memory.saturating_sub(self.memory);
        let arrived = cpu == self.cpu && memory >= self.memory;
        let step = machine.spec.guest.slot_size().unwrap_or_default();
        let settled = rest == Bytes::ZERO
            || (rest < step && scaled(machine).is_some_and(|condition| condition.status == "True"));
        (arrived && settled).then_some(rest)
    }

    /// Whether the size is reached. What the controller, the node or the guest tries again is waited for; what only another
    /// request changes is an error.
    pub(in crate::commands) fn progress(&self, name: &str, machine: Option<&VirtualMachine>) -> WaitProgress {
        let Some(machine) = machine else {
            return WaitProgress::Never(Error::new(Code::NotFound, format!("{name} was deleted")));
        };
        // A VM on the way to another size may pass this one before the controller has seen the request.
        let status = machine.status.as_ref();
        if status.is_none_or(|status| status.observed_generation < self.generation) {
            return WaitProgress::NotYet;
        }
        if self.remainder(machine).is_some() {
            return WaitProgress::Done;
        }
        match self.obstacle(name, machine) {
            Some(error) => WaitProgress::Never(error),
            None => WaitProgress::NotYet,
        }
    }

    fn obstacle(&self, name: &str, machine: &VirtualMachine) -> Option<Error> {
        let failed = || {
            let what = format!("{name} did not reach {} CPU, {}", cores(self.cpu), self.memory);
            Error::new(Code::Failed, what)
        };
        let phase = machine.status.as_ref().and_then(|status| status.phase);
        if let Some(phase @ (Phase::Succeeded | Phase::Failed)) = phase {
            let why = format!("it is {phase}; it has the size when it is started");
            return Some(failed().cause(why).hint(format!("start it: neonctl vm start {name}")));
        }
        let scaled = scaled(machine).filter(|condition| condition.status == "False")?;
        let migrates = machine.metadata.labels.as_ref().is_some_and(|labels| {
            labels.get(label::AUTO_MIGRATION_ENABLED).is_some_and(|value| value == TRUE)
        });
        let hint = match scaled.reason.as_str() {
            "Paused" => format!("resume it: neonctl vm resume {name}"),
            "ResizeInfeasible" if !migrates => {
                format!("migrate it to a larger node: neonctl vm migrate {name}")
            }
            "ResizeUnsupported" | "ResizeForbidden" | "InvalidSpec" => {
                format!("see the details: neonctl vm describe {name}")
            }
            _ => return None,
        };
        Some(failed().cause(scaled.message.clone()).hint(hint))
    }
}

fn scaled(machine: &VirtualMachine) -> Option<&Condition> {
    let status = machine.status.as_ref()?;
    status.conditions.iter().find(|condition| condition.type_ == "Scaled")
}

/// The size that the VM has, and why it has no other one.
pub(super) fn state(machine: &VirtualMachine) -> String {
    let (cpu, memory) = observed(machine);
    match scaled(machine).filter(|condition| condition.status == "False") {
        Some(condition) if cpu != MilliCpu::ZERO => {
            format!("it has {} CPU, {memory}: {}", cores(cpu), condition.message)
        }
        _ => waiting::state(machine),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A VM of 256Mi to 8Gi in steps of 256Mi, with the condition `Scaled`.
    fn vm(memory: &str, scaled: (&str, &str), phase: &str) -> VirtualMachine {
        serde_json::from_value(serde_json::json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
            "metadata": {"name": "pg", "generation": 2}, "spec": {"guest": {"cpus": {"min": 1, "max": 1, "use": 1},
                "memorySlotSize": "256Mi", "memorySlots": {"min": 1, "max": 32, "use": 1},
                "rootDisk": {"image": "pg:1"}}},
            "status": {"phase": phase, "cpus": 1, "memorySize": memory, "observedGeneration": 2, "conditions": [
                {"type": "Scaled", "status": scaled.0, "reason": scaled.1, "message": "as the controller wrote",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}))
        .unwrap()
    }

    fn words(machine: &VirtualMachine, generation: i64) -> String {
        let (cpu, memory) = (MilliCpu::new(1000), Bytes::mib(256));
        match (Goal { cpu, memory, generation: Some(generation) }).progress("pg", Some(machine)) {
            WaitProgress::Done => "done".to_owned(),
            WaitProgress::NotYet => "not yet".to_owned(),
            WaitProgress::Never(error) => error.hint.unwrap_or_default(),
        }
    }

    #[test]
    fn what_is_tried_again_is_waited_for() {
        for reason in [
            "InProgress",
            "MemoryNotReleased",
            "MemoryNotTaken",
            "CpuNotScaled",
            "Migrating",
            "ResizeDeferred",
            "ResizeUnanswered",
            "ResizeRefused",
            "ResizeDenied",
            "ResizeFailing",
            "DevicesUnavailable",
            "AReasonOfLater",
        ] {
            assert_eq!(words(&vm("568Mi", ("False", reason), "Running"), 2), "not yet", "{reason}");
        }
        let mut movable = vm("568Mi", ("False", "ResizeInfeasible"), "Running");
        assert_eq!(words(&movable, 2), "migrate it to a larger node: neonctl vm migrate pg");
        movable.metadata.labels = Some([(label::AUTO_MIGRATION_ENABLED.to_owned(), TRUE.to_owned())].into());
        assert_eq!(words(&movable, 2), "not yet", "the controller migrates it");
        let forbidden = vm("568Mi", ("False", "ResizeForbidden"), "Running");
        assert_eq!(words(&forbidden, 2), "see the details: neonctl vm describe pg");
        let paused = vm("568Mi", ("False", "Paused"), "Running");
        assert_eq!(words(&paused, 2), "resume it: neonctl vm resume pg");
        let ended = vm("568Mi", ("False", "InProgress"), "Succeeded");
        assert_eq!(words(&ended, 2), "start it: neonctl vm start pg");
    }

    #[test]
    fn a_size_is_reached_within_one_step_once_the_guest_keeps_the_rest() {
        for (memory, scaled, expected) in [
            ("256Mi", ("True", "Reached"), "done"),
            ("268Mi", ("True", "Reached"), "done"),
            ("268Mi", ("False", "InProgress"), "not yet"),
            ("512Mi", ("True", "Reached"), "not yet"),
            ("255Mi", ("True", "Reached"), "not yet"),
        ] {
            assert_eq!(words(&vm(memory, scaled, "Running"), 2), expected, "{memory} {scaled:?}");
        }
        let old = vm("256Mi", ("True", "Reached"), "Running");
        assert_eq!(words(&old, 3), "not yet", "the status is about an older request");
    }

    #[test]
    fn the_state_has_the_size_and_the_reason() {
        let limited = vm("568Mi", ("False", "MemoryNotReleased"), "Running");
        assert_eq!(state(&limited), "it has 1.00 CPU, 568Mi: as the controller wrote");
        assert_eq!(state(&vm("568Mi", ("True", "Reached"), "Running")), "it is Running");
    }
}
