//! Notes of the core, as Kubernetes events.

use kube::Resource as _;
use neonvm_api::{VirtualMachine, VirtualMachineMigration};
use neonvm_core_vm_lifecycle::Note;
use neonvm_kit::event::Events;

fn kind(note: &Note) -> &'static str {
    if note.reason.is_warning() { "Warning" } else { "Normal" }
}

pub(crate) fn publish(events: &Events, vm: &VirtualMachine, note: &Note) {
    events.publish(vm.object_ref(&()), kind(note), note.reason.as_str(), &note.message);
}

/// Publishes a note as events about a migration and its VM.
pub(crate) fn publish_migration(
    events: &Events,
    migration: &VirtualMachineMigration,
    vm: Option<&VirtualMachine>,
    about: &Note,
) {
    events.publish(migration.object_ref(&()), kind(about), about.reason.as_str(), &about.message);
    if let Some(vm) = vm {
        publish(events, vm, about);
    }
}
