//! Limits of disks: those of the spec go to the runner, those in force to the status, and whether one binds to a condition.

use neonvm_api::virtual_machine::DiskLimit;
use neonvm_types::runner_protocol::{DiskLimitStatus, LimitsByDisk, RunnerState, RunnerStatus};

use super::{Pass, suspend};
use crate::condition::{self, DISK_LIMITED, Finding};
use crate::outcome::{Action, NoteReason};

/// While no runner is connected, what is recorded holds.
pub(super) fn step(pass: &mut Pass<'_>) {
    let Some(runner) = pass.observed.runner.current() else { return };
    if runner.state != RunnerState::Running || runner.exit.is_some() {
        return;
    }
    observe(pass, runner);
    if !pass.is_moving() && !suspend::is_held(runner) {
        follow(pass, runner);
    }
}

/// The VM does not run.
pub(super) fn forget(pass: &mut Pass<'_>) {
    pass.status.disk_limits.clear();
    condition::remove(&mut pass.status, DISK_LIMITED);
}

fn observe(pass: &mut Pass<'_>, runner: &RunnerStatus) {
    let limits = runner.disk_limits.iter().map(|(disk, status)| DiskLimit::new(disk, &status.limits));
    pass.status.disk_limits = limits.collect();
    if runner.disk_limits.is_empty() {
        return condition::remove(&mut pass.status, DISK_LIMITED);
    }
    let bound: Vec<String> =
        runner.disk_limits.iter().filter_map(|(disk, status)| bound(disk, status)).collect();
    let before = condition::find(&pass.before, DISK_LIMITED).filter(|before| before.status == "True");
    let before = before.map(|before| before.message.clone()).unwrap_or_default();
    let now = bound.join("; ");
    if now.is_empty() {
        if !before.is_empty() {
            pass.note(NoteReason::DiskNotLimited, "no limit of a disk binds any more");
        }
        return pass.set(DISK_LIMITED, &Finding::no("WithinLimits", ""));
    }
    if now != before {
        pass.note(NoteReason::DiskLimited, now.clone());
    }
    pass.set(DISK_LIMITED, &Finding::yes("LimitBinds", now));
}

/// What holds a disk back. Without measured numbers: each change of the text is a write to the API server.
fn bound(disk: &str, status: &DiskLimitStatus) -> Option<String> {
    let DiskLimitStatus { limits, iops_bind, bandwidth_binds } = status;
    let iops = limits.iops.filter(|_| *iops_bind).map(|iops| format!("{iops} IOPS"));
    let bandwidth = limits.bandwidth.filter(|_| *bandwidth_binds).map(|bytes| format!("{bytes}/s"));
    let rates: Vec<String> = iops.into_iter().chain(bandwidth).collect();
    (!rates.is_empty()).then(|| format!("disk {disk} is held to its limit of {}", rates.join(" and ")))
}

/// The runner gets a request once; again if it had no effect for a while.
fn follow(pass: &mut Pass<'_>, runner: &RunnerStatus) {
    let wanted = pass.vm.spec.limits_by_disk();
    let in_force: LimitsByDisk =
        runner.disk_limits.iter().map(|(disk, status)| (disk.clone(), status.limits)).collect();
    if wanted == in_force {
        return;
    }
    let asked = pass.observed.limits_requested.as_ref();
    let same = asked.filter(|asked| asked.pod == pass.before.pod_name && asked.limits == wanted);
    let at = same.map(|asked| asked.at);
    if pass.is_due(at) {
        pass.actions.push(Action::LimitDisks(wanted));
    }
}
