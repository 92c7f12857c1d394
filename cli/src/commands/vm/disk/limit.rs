//! `vm disk limit`

use std::time::Instant;

use kube::api::{Patch, PatchParams};
use neonvm_api::VirtualMachine;
use neonvm_api::runner_pod::ROOT_DISK_VOLUME;
use neonvm_api::virtual_machine::{DiskLimit, DiskLimitBurst, Phase};
use neonvm_types::Bytes;
use neonvm_types::guest::ROOT;
use neonvm_types::runner_protocol::DiskLimits;
use serde_json::json;

use crate::args::vm::DiskLimit as Args;
use crate::commands::flags::duration;
use crate::commands::resource::wait::seconds;
use crate::commands::resource::{NamespaceClient, name_of, nearest};
use crate::commands::vm::size::memory;
use crate::commands::vm::waiting::state;
use crate::commands::watching::{self, WaitProgress};
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::report::{API_VERSION, Document, Report};
use crate::settings::Settings;

/// What a disk is to have.
struct Goal {
    vm: String,
    /// Name of the disk in the spec.
    disk: String,
    limits: DiskLimits,
}

pub(super) fn run(settings: &Settings, args: &Args) -> Result<Report> {
    let disk = if args.disk == ROOT { ROOT_DISK_VOLUME } else { &args.disk };
    let limit = limit_of(args, disk)?;
    let time = duration("timeout", &args.waiting.timeout)?;
    block_on(async {
        let started = Instant::now();
        let client = NamespaceClient::open(settings).await?;
        let machine: VirtualMachine = client.find(&args.name).await?;
        check(&machine, disk)?;
        let goal = Goal { vm: args.name.clone(), disk: disk.to_owned(), limits: limit.limits() };
        let mut list = machine.spec.disk_limits.clone();
        list.retain(|one| one.disk != disk);
        list.extend((!goal.limits.is_none()).then_some(limit));
        let patch = Patch::Merge(json!({ "spec": { "diskLimits": list } }));
        let (api, parameters) = (client.api::<VirtualMachine>(), PatchParams::default());
        let request = api.patch(&args.name, &parameters, &patch);
        client.connection.within(&format!("cannot limit disk {disk} of {}", args.name), request).await?;
        if args.waiting.no_wait {
            return Ok(report(&goal, "requested"));
        }
        let late = |last: Option<&VirtualMachine>| {
            let now = last.map_or_else(|| "it does not exist".to_owned(), state);
            Error::new(Code::Timeout, format!("timed out waiting for the limits of disk {disk}: {now}")).hint(format!(
                "the request stays; see why: neonctl vm describe {0}; a runner of an earlier version limits no disks until: neonctl \
                 vm restart {0}",
                goal.vm
            ))
        };
        let detached = || {
            Error::new(Code::Interrupted, format!("stopped waiting for the limits of disk {disk}"))
                .hint(format!("the request stays; see: neonctl vm disk list {}", goal.vm))
        };
        let look = |seen: Option<&VirtualMachine>| progress(&goal, seen);
        let waited = watching::until(client.api(), (&args.name, None), time, detached, late, look).await?;
        let done = match waited.object.as_ref().and_then(later) {
            Some(later) => later.to_owned(),
            None => format!("in force ({})", seconds(started.elapsed())),
        };
        Ok(report(&goal, &done))
    })
}

/// The limits that the flags describe; none for `--none`.
fn limit_of(args: &Args, disk: &str) -> Result<DiskLimit> {
    let rate = |flag: &str, text: &Option<String>| {
        text.as_deref().map(|text| memory(flag, text)).transpose().map(|rate| rate.map(Bytes::to_quantity))
    };
    let burst = DiskLimitBurst {
        iops: args.burst_iops,
        bandwidth: rate("burst-bandwidth", &args.burst_bandwidth)?,
        seconds: args.burst_seconds.unwrap_or(1),
    };
    let burst = (burst.iops.is_some() || burst.bandwidth.is_some()).then_some(burst);
    Ok(DiskLimit {
        disk: disk.to_owned(),
        iops: args.iops,
        bandwidth: rate("bandwidth", &args.bandwidth)?,
        burst,
    })
}

fn check(machine: &VirtualMachine, disk: &str) -> Result<()> {
    let vm = name_of(machine);
    if machine.spec.can_limit(disk) {
        return Ok(());
    }
    if machine.spec.disks.iter().any(|one| one.name == disk) {
        return Err(Error::new(Code::Conflict, format!("disk {disk} of {vm} cannot be limited"))
            .cause("it is not a disk of its own: files and memory of the guest have no limits")
            .hint(format!("list its disks: neonctl vm disk list {vm}")));
    }
    let names: Vec<String> = machine.spec.disks.iter().map(|disk| disk.name.clone()).collect();
    let list = format!("list its disks: neonctl vm disk list {vm}; the root disk is /");
    let hint = nearest(disk, &names).map_or(list, |meant| format!("did you mean {meant:?}?"));
    Err(Error::new(Code::NotFound, format!("{vm} has no disk {disk:?}")).hint(hint))
}

/// The limits of a disk that are in force.
fn in_force(machine: &VirtualMachine, disk: &str) -> DiskLimits {
    let limits = machine.status.iter().flat_map(|status| &status.disk_limits);
    limits.clone().find(|one| one.disk == disk).map(DiskLimit::limits).unwrap_or_default()
}

/// The limits that a disk should have, and `false` if they are not in force in the VM that runs.
pub(crate) fn of_disk(machine: &VirtualMachine, disk: &str) -> Option<(DiskLimits, bool)> {
    let limits = machine.spec.disk_limits.iter().find(|one| one.disk == disk)?.limits();
    Some((limits, later(machine).is_some() || in_force(machine, disk) == limits))
}

/// When limits come into force that cannot do so now.
fn later(machine: &VirtualMachine) -> Option<&'static str> {
    match machine.status.as_ref().and_then(|status| status.phase) {
        Some(Phase::Suspended) => Some("in force when the VM is awake"),
        Some(phase) if phase.is_alive() && !machine.spec.is_stopped() => None,
        _ => Some("in force from its next start on"),
    }
}

fn progress(goal: &Goal, seen: Option<&VirtualMachine>) -> WaitProgress {
    match seen {
        None => WaitProgress::Never(Error::new(Code::NotFound, format!("{} was deleted", goal.vm))),
        Some(machine) if later(machine).is_some() => WaitProgress::Done,
        Some(machine) if in_force(machine, &goal.disk) == goal.limits => WaitProgress::Done,
        Some(_) => WaitProgress::NotYet,
    }
}

fn report(goal: &Goal, done: &str) -> Report {
    let Goal { vm, disk, limits } = goal;
    let what = if limits.is_none() { "no limit".to_owned() } else { format!("limit of {limits}") };
    Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "DiskLimit", "vm": vm, "name": disk, "limits": limits }),
        names: vec![format!("disk/{disk}")],
        text: Some(format!("virtualmachine/{vm} disk {disk}: {what} {done}")),
        ..Document::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn vm(status: &Value) -> VirtualMachine {
        serde_json::from_value(
            json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": { "name": "pg" },
            "status": status, "spec": {
                "disks": [{ "name": "data", "mountPath": "/data", "emptyDisk": { "size": "1Gi" } },
                    { "name": "files", "mountPath": "/files", "configMap": { "name": "c" } }],
                "diskLimits": [{ "disk": "data", "iops": 500, "bandwidth": "50Mi" }],
                "guest": { "cpus": { "min": 1, "max": 1, "use": 1 }, "rootDisk": { "image": "i" },
                "memorySlots": { "min": 1, "max": 1, "use": 1 } } } }),
        )
        .unwrap()
    }

    #[test]
    fn it_waits_until_the_limits_are_in_force_or_cannot_be_now() {
        let limits = DiskLimits { iops: Some(500), bandwidth: Some(Bytes::mib(50)), burst: None };
        let goal = Goal { vm: "pg".into(), disk: "data".into(), limits };
        let done = |status: Value| matches!(progress(&goal, Some(&vm(&status))), WaitProgress::Done);
        let has = |iops: u32| json!({ "phase": "Running", "diskLimits": [{ "disk": "data", "iops": iops, "bandwidth": "50Mi" }] });
        assert!(done(has(500)) && !done(has(400)) && !done(json!({ "phase": "Running" })));
        assert!(done(json!({ "phase": "Succeeded" })) && done(json!({ "phase": "Suspended" })));
        assert!(matches!(progress(&goal, None), WaitProgress::Never(_)));
        assert_eq!(of_disk(&vm(&has(500)), "data"), Some((limits, true)));
        assert_eq!(
            (of_disk(&vm(&has(400)), "data"), of_disk(&vm(&has(1)), "root")),
            (Some((limits, false)), None)
        );
    }

    #[test]
    fn only_disks_of_qemu_are_limited() {
        let why = |name: &str| format!("{:?}", check(&vm(&json!({})), name).unwrap_err());
        assert!(check(&vm(&json!({})), "data").is_ok() && check(&vm(&json!({})), ROOT_DISK_VOLUME).is_ok());
        assert!(
            why("dat").contains("did you mean \\\"data\\\"?") && why("files").contains("cannot be limited")
        );
        assert!(why("nothing").contains("the root disk is /"), "{}", why("nothing"));
    }
}
