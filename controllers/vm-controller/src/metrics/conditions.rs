//! Conditions of VMs that are not in their good state.
//!
//! A fleet has thousands of VMs with eight conditions each, so a condition that is good has no series of its own, and neither has one
//! of a VM that is stopped as requested. What is left is bounded by [`MOST`]; the numbers by condition are complete.

use std::collections::BTreeMap;

use neonvm_api::VirtualMachine;
use neonvm_core_vm_lifecycle::condition::{
    AVAILABLE, CHANGE_PENDING, CRASH_LOOP, DEGRADED, DISK_LIMITED, POD_SIZED, SCALED, UNSTABLE,
};
use neonvm_kit::metrics::{Kind, Page, double};

/// Conditions with the status in which nothing is left to do. Others only describe the VM.
const GOOD: [(&str, &str); 8] = [
    (AVAILABLE, "True"),
    (CHANGE_PENDING, "False"),
    (CRASH_LOOP, "False"),
    (DEGRADED, "False"),
    (DISK_LIMITED, "False"),
    (POD_SIZED, "True"),
    (SCALED, "True"),
    (UNSTABLE, "False"),
];
/// Reason of [`AVAILABLE`] for VMs that were requested to stop, are being deleted or have done their work.
const STOPPED: &str = "Stopped";
/// Series of single VMs at most.
const MOST: usize = 2_000;

/// A condition that is not good.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Bad {
    namespace: String,
    name: String,
    condition: &'static str,
    reason: String,
}

/// All that are not good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions(Vec<Bad>);

impl Conditions {
    pub(crate) fn new<'a>(vms: impl IntoIterator<Item = &'a VirtualMachine>) -> Self {
        let mut all: Vec<Bad> = vms.into_iter().flat_map(bad).collect();
        all.sort();
        Self(all)
    }

    pub(super) fn write(&self, page: &mut Page) {
        let mut counts = BTreeMap::from(GOOD.map(|(condition, _)| (condition, 0_u64)));
        for bad in &self.0 {
            *counts.entry(bad.condition).or_default() += 1;
        }
        let help = "VMs with a condition that is not in its good state.";
        page.family("neonvm_vm_controller_vm_conditions", Kind::Gauge, help);
        for (condition, count) in counts {
            page.sample(&[("condition", condition)], double(count));
        }
        let help = "1 for a condition of a VM that is not in its good state; at most 2000 of them.";
        page.family("neonvm_vm_controller_vm_condition", Kind::Gauge, help);
        for Bad { namespace, name, condition, reason } in self.0.iter().take(MOST) {
            let labels = [
                ("vm_namespace", namespace.as_str()),
                ("vm_name", name.as_str()),
                ("condition", *condition),
                ("reason", reason.as_str()),
            ];
            page.sample(&labels, 1.0);
        }
    }
}

fn bad(vm: &VirtualMachine) -> Vec<Bad> {
    let conditions = vm.status.iter().flat_map(|status| &status.conditions);
    let bad = conditions.filter_map(|condition| {
        let (kind, good) = GOOD.into_iter().find(|(kind, _)| *kind == condition.type_)?;
        let is_stopped = kind == AVAILABLE && condition.reason == STOPPED;
        (condition.status != good && !is_stopped).then(|| Bad {
            namespace: vm.metadata.namespace.clone().unwrap_or_default(),
            name: vm.metadata.name.clone().unwrap_or_default(),
            condition: kind,
            reason: condition.reason.clone(),
        })
    });
    bad.collect()
}

#[cfg(test)]
pub(super) mod tests {
    use neonvm_api::VirtualMachineStatus;
    use neonvm_core_vm_lifecycle::condition::{Finding, ROOT_DISK_COPIED, set};
    use neonvm_types::Timestamp;

    use super::*;

    pub(in crate::metrics) fn vm(name: &str, conditions: &[(&str, Finding<'_>)]) -> VirtualMachine {
        let spec = serde_json::from_value(serde_json::json!({"guest": {
            "cpus": {"min": 1, "use": 1, "max": 1}, "memorySlots": {"min": 1, "use": 1, "max": 1}, "memorySlotSize": "1Gi",
            "rootDisk": {"image": "i"}}}));
        let mut vm = VirtualMachine::new(name, spec.unwrap());
        vm.metadata.namespace = Some("default".into());
        let mut status = VirtualMachineStatus::default();
        for (kind, finding) in conditions {
            set(&mut status, kind, finding, Timestamp::from_unix(0).unwrap(), None);
        }
        vm.status = Some(status);
        vm
    }

    #[test]
    fn only_conditions_that_are_not_good_have_series() {
        let vms = [
            vm(
                "b",
                &[
                    (AVAILABLE, Finding::unknown("NodeLost", "")),
                    (DEGRADED, Finding::yes("QuotaExceeded", "")),
                    (SCALED, Finding::no("Denied", "")),
                    (ROOT_DISK_COPIED, Finding::no("Copying", "")),
                ],
            ),
            vm("a", &[(AVAILABLE, Finding::yes("Ready", "")), (POD_SIZED, Finding::no("Refused", ""))]),
            vm("good", &[(AVAILABLE, Finding::yes("Ready", "")), (DEGRADED, Finding::no("Healthy", ""))]),
            vm("stopped", &[(AVAILABLE, Finding::no("Stopped", ""))]),
            vm("new", &[]),
        ];
        let mut page = Page::new();
        Conditions::new(&vms).write(&mut page);
        let text = page.finish();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let one = |vm: &str, condition: &str, reason: &str| {
            format!(
                "neonvm_vm_controller_vm_condition{{vm_namespace=\"default\",vm_name=\"{vm}\",condition=\"{condition}\",reason=\"{reason}\"}} 1"
            )
        };
        let count = |condition: &str, count: u8| {
            format!("neonvm_vm_controller_vm_conditions{{condition=\"{condition}\"}} {count}")
        };
        let expected = [
            count("Available", 1),
            count("ChangePending", 0),
            count("CrashLoop", 0),
            count("Degraded", 1),
            count("DiskLimited", 0),
            count("PodSized", 1),
            count("Scaled", 1),
            count("Unstable", 0),
            one("a", "PodSized", "Refused"),
            one("b", "Available", "NodeLost"),
            one("b", "Degraded", "QuotaExceeded"),
            one("b", "Scaled", "Denied"),
        ];
        assert_eq!(samples, expected);
    }

    #[test]
    fn series_are_bounded_and_numbers_are_complete() {
        let degraded = [(DEGRADED, Finding::yes("X", ""))];
        let vms: Vec<VirtualMachine> =
            (0..MOST + 5).map(|number| vm(&format!("vm-{number}"), &degraded)).collect();
        let mut page = Page::new();
        Conditions::new(&vms).write(&mut page);
        let text = page.finish();
        let series =
            text.lines().filter(|line| line.starts_with("neonvm_vm_controller_vm_condition{")).count();
        assert_eq!(series, MOST);
        assert!(text.contains("neonvm_vm_controller_vm_conditions{condition=\"Degraded\"} 2005\n"));
    }
}
