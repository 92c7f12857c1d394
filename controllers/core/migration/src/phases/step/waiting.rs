//! The migration waits for admission. It has created nothing yet, so there is nothing to clean up.

use neonvm_api::migration::{MigrationPhase, MigrationReason};
use neonvm_api::virtual_machine::{ActiveMigration, Phase};
use neonvm_api::{VirtualMachine, VirtualMachineStatus};

use super::{Pass, eviction, over};
use crate::phases::parameters::resolve;
use crate::phases::queue::Admission;
use crate::phases::{MigrationAction, ready};
use neonvm_core_vm_lifecycle::NoteReason;
use neonvm_core_vm_lifecycle::claims::ClaimView;
use neonvm_types::Bytes;

pub(super) fn step(pass: &mut Pass<'_>, vm: &VirtualMachine) {
    if pass.is_cancelled() {
        over::fail(pass, MigrationReason::Cancelled, "cancelled before its turn");
        return;
    }
    if let Some(why) = eviction::is_undone(pass) {
        over::fail(pass, MigrationReason::Cancelled, why);
        return;
    }
    if let Some((reason, why)) = impossible(pass, vm) {
        over::fail(pass, reason, why);
        return;
    }
    pass.status.phase = Some(MigrationPhase::Pending);
    let waits = ready(vm, &pass.observed.source_runner).err().or_else(|| match &pass.observed.admission {
        Admission::Go => None,
        Admission::Wait(why) => Some(why.clone()),
    });
    if let Some(why) = waits {
        if pass.before.reason != MigrationReason::Queued.as_str() {
            pass.note(NoteReason::Queued, why.clone());
        }
        pass.set_reason(MigrationReason::Queued, why);
        return;
    }
    // Only the API server has the current answer to whether the migration still wants the VM.
    if !pass.observed.fresh {
        pass.refresh();
        return;
    }
    let mut status = vm.status.clone().unwrap_or_default();
    status.migration = Some(ActiveMigration {
        name: pass.migration.metadata.name.clone().unwrap_or_default(),
        uid: pass.uid().to_owned(),
        target_pod_name: format!("{}-{}", pass.migration.spec.vm_name, pass.observed.suffix),
        target_node: String::new(),
        retain_volumes: resolve(pass.migration, vm, &pass.observed.policies)
            .is_ok_and(|resolved| resolved.retain_volumes),
        content: None,
    });
    pass.actions.push(MigrationAction::Lock(Box::new(status)));
}

/// Why it can never be.
fn impossible(pass: &mut Pass<'_>, vm: &VirtualMachine) -> Option<(MigrationReason, String)> {
    if vm.metadata.deletion_timestamp.is_some() {
        return Some((MigrationReason::MachineEnded, "the VM is being deleted".to_owned()));
    }
    let status = vm.status.as_ref();
    if let Some(phase @ (Phase::Succeeded | Phase::Failed)) = status.and_then(|status| status.phase) {
        return Some((MigrationReason::MachineEnded, format!("the VM does not run: it is {phase}")));
    }
    if vm.spec.is_paused() {
        let name = vm.metadata.name.as_deref().unwrap_or_default();
        let why = format!("the VM is paused; resume it first: neonctl vm resume {name}");
        return Some((MigrationReason::Refused, why));
    }
    if let Some(why) = status.and_then(VirtualMachineStatus::pinned_by) {
        return Some((MigrationReason::Refused, why));
    }
    match resolve(pass.migration, vm, &pass.observed.policies) {
        Ok(resolved) => {
            pass.status.policy = resolved.policy;
            pass.status.dropped = resolved.dropped;
            let why = too_large(vm, &pass.observed.claims, resolved.max_volume_copy, &pass.status.policy);
            why.map(|why| (MigrationReason::Refused, why))
        }
        Err(error) => Some((MigrationReason::Refused, error.to_string())),
    }
}

/// Why the volumes of a VM are not copied, if one is larger than what may be copied.
fn too_large(vm: &VirtualMachine, claims: &[ClaimView], most: Option<Bytes>, policy: &str) -> Option<String> {
    let most = most?;
    let copied = vm.status.iter().flat_map(|status| &status.volumes).filter(|volume| volume.is_copied());
    let sizes = copied.filter_map(|volume| {
        let claim = claims.iter().find(|claim| claim.name == volume.claim_name)?;
        Some((volume, claim.size))
    });
    let (volume, size) = sizes.into_iter().find(|(_, size)| *size > most)?;
    let by =
        if policy.is_empty() { "the migration".to_owned() } else { format!("migration policy {policy}") };
    Some(format!(
        "disk {}: the volume of claim {} has {size}, and {by} has maxVolumeCopy {most}",
        volume.name, volume.claim_name
    ))
}
