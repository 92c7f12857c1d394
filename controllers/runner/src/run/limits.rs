//! Limits of disks: set in QEMU before the guest runs, on request, and after each wake; and QEMU's counters, which show whether they bind.

use std::collections::BTreeMap;

use neonvm_core_vm_lifecycle::runner::DiskCounters;
use neonvm_hypervisor::machine::Machine;
use neonvm_types::runner_protocol::{LimitRequest, LimitsByDisk};

use super::{Event, Loop, Refusal};

impl Loop {
    /// The limits of the VM's spec, before the guest runs.
    pub(super) async fn limit_from_start(&mut self) {
        let limits = self.pod.config.spec.limits_by_disk();
        if !limits.is_empty() {
            let set = set(&self.machine, limits).await;
            self.take(Event::DisksLimited(set));
        }
    }

    /// While the VM is suspended there is no QEMU; its limits are set again when it is woken, and can change then.
    pub(super) fn accept_limits(&mut self, request: LimitRequest) -> Result<(), Refusal> {
        let disks = &self.machine.plan().disks;
        let unknown = request.limits.keys().find(|name| !disks.iter().any(|disk| disk.name == **name));
        if let Some(name) = unknown {
            return Err(Refusal::Wrong(format!("the VM has no disk {name:?} that can be limited")));
        }
        if self.core.is_suspended() {
            return Err(Refusal::Conflict(
                "the VM is suspended: its disks can be limited when it is awake".to_owned(),
            ));
        }
        tracing::info!(limits = ?request.limits, "disks are to have these limits");
        self.take(Event::LimitDisks(request.limits));
        Ok(())
    }

    pub(super) fn limit_disks(&self, limits: LimitsByDisk) {
        self.spawn(|machine, _| async move { Some(Event::DisksLimited(set(&machine, limits).await)) });
    }

    pub(super) fn look_at_disks(&self) {
        self.spawn(|machine, _| async move {
            let work = machine.disk_work().await.ok()?;
            let seen: BTreeMap<String, DiskCounters> = work
                .into_iter()
                .filter_map(|(index, work)| {
                    let name = machine.plan().disks.get(index)?.name.clone();
                    Some((name, DiskCounters { requests: work.requests, bytes: work.bytes }))
                })
                .collect();
            Some(Event::DisksSeen(seen))
        });
    }
}

/// Sets the limits of every disk; the reason if QEMU does not take one.
async fn set(machine: &Machine, limits: LimitsByDisk) -> Result<LimitsByDisk, String> {
    for (index, disk) in machine.plan().disks.iter().enumerate() {
        let wanted = limits.get(&disk.name).copied().unwrap_or_default();
        if let Err(error) = machine.limit_disk(index, wanted).await {
            tracing::warn!(disk = disk.name, %error, "the disk is not limited");
            return Err(format!("disk {}: {error}", disk.name));
        }
    }
    Ok(limits)
}
