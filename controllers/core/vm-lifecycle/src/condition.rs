//! Conditions of a VM.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff;
use neonvm_api::VirtualMachineStatus;
use neonvm_types::Timestamp;

use crate::observed::time;

/// Whether the guest is ready.
pub const AVAILABLE: &str = "Available";
/// Whether something is wrong.
pub const DEGRADED: &str = "Degraded";
/// Whether the VM has the requested size.
pub const SCALED: &str = "Scaled";
/// Present, and false, while requests and limits of the pod do not follow the size of the VM.
pub const POD_SIZED: &str = "PodSized";
/// Present while the pod has a copy of the root disk, because its node has no image volumes.
pub const ROOT_DISK_COPIED: &str = "RootDiskCopied";
/// Present while the guest's CPUs stand still on request, or are to.
pub const PAUSED: &str = "Paused";
pub const SUSPENDED: &str = "Suspended";
/// Present while disks of the VM are limited; true while a limit binds.
pub const DISK_LIMITED: &str = "DiskLimited";
/// Present while a change of the spec waits for the next start.
pub const CHANGE_PENDING: &str = "ChangePending";
/// Present while the VM has ended lately by itself; [`crate::crash_loop`] keeps its history here.
pub const CRASH_LOOP: &str = "CrashLoop";
/// Present while the size changes; true if it turns again and again. [`crate::unstable`] keeps its history here.
pub const UNSTABLE: &str = "Unstable";

/// Longest message, in characters: every change is sent to every watcher.
const MESSAGE: usize = 1024;

/// The content of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding<'a> {
    /// `True`, `False` or `Unknown`.
    pub status: &'a str,
    /// Reason, in CamelCase.
    pub reason: &'a str,
    /// For people.
    pub message: String,
}

impl<'a> Finding<'a> {
    /// It holds.
    #[must_use]
    pub fn yes(reason: &'a str, message: impl Into<String>) -> Self {
        Self { status: "True", reason, message: message.into() }
    }

    /// It does not.
    #[must_use]
    pub fn no(reason: &'a str, message: impl Into<String>) -> Self {
        Self { status: "False", reason, message: message.into() }
    }

    /// Status `Unknown`.
    #[must_use]
    pub fn unknown(reason: &'a str, message: impl Into<String>) -> Self {
        Self { status: "Unknown", reason, message: message.into() }
    }
}

/// The condition of this type.
#[must_use]
pub fn find<'a>(status: &'a VirtualMachineStatus, kind: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|condition| condition.type_ == kind)
}

/// Whether the condition has status `True`.
#[must_use]
pub fn holds(status: &VirtualMachineStatus, kind: &str) -> bool {
    find(status, kind).is_some_and(|condition| condition.status == "True")
}

/// Since when the condition has the status it has.
#[must_use]
pub fn since(status: &VirtualMachineStatus, kind: &str) -> Option<Timestamp> {
    find(status, kind).and_then(|condition| time(&condition.last_transition_time))
}

pub fn remove(status: &mut VirtualMachineStatus, kind: &str) {
    status.conditions.retain(|condition| condition.type_ != kind);
}

/// Writes a condition. Its time changes only with its status. Conditions keep a fixed order.
pub fn set(
    status: &mut VirtualMachineStatus,
    kind: &str,
    finding: &Finding<'_>,
    now: Timestamp,
    generation: Option<i64>,
) {
    put(&mut status.conditions, kind, finding, now, generation);
}

/// As [`set`], for the conditions of any object.
pub fn put(
    conditions: &mut Vec<Condition>,
    kind: &str,
    finding: &Finding<'_>,
    now: Timestamp,
    generation: Option<i64>,
) {
    let message: String = finding.message.chars().take(MESSAGE).collect();
    if let Some(condition) = conditions.iter_mut().find(|condition| condition.type_ == kind) {
        if condition.status != finding.status {
            finding.status.clone_into(&mut condition.status);
            condition.last_transition_time = stamp(now);
        }
        finding.reason.clone_into(&mut condition.reason);
        condition.message = message;
        condition.observed_generation = generation;
        return;
    }
    conditions.push(Condition {
        type_: kind.to_owned(),
        status: finding.status.to_owned(),
        reason: finding.reason.to_owned(),
        message,
        last_transition_time: stamp(now),
        observed_generation: generation,
    });
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
}

fn stamp(now: Timestamp) -> Time {
    Time(jiff::Timestamp::from_second(now.unix()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_the_change_of_status() {
        let mut status = VirtualMachineStatus::default();
        let at = |seconds| Timestamp::from_unix(seconds).unwrap();
        set(&mut status, AVAILABLE, &Finding::no("Pending", "a"), at(1), Some(1));
        set(&mut status, AVAILABLE, &Finding::no("Booting", "b"), at(2), Some(2));
        assert_eq!(since(&status, AVAILABLE), Some(at(1)));
        assert_eq!(find(&status, AVAILABLE).unwrap().observed_generation, Some(2));
        set(&mut status, AVAILABLE, &Finding::yes("Ready", ""), at(3), Some(2));
        assert_eq!(since(&status, AVAILABLE), Some(at(3)));
        set(&mut status, DEGRADED, &Finding::no("Healthy", ""), at(3), Some(2));
        remove(&mut status, AVAILABLE);
        assert_eq!(status.conditions.len(), 1);
    }
}
