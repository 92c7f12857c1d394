//! Notes of the core, as Kubernetes events.

use kube::Resource as _;
use neonvm_api::{VirtualMachine, VirtualMachineMigration};
use neonvm_core_lifecycle::Note;
use neonvm_kit::event::Events;

fn kind(note: &Note) -> &'static str {
    if note.reason.is_warning() { "Warning" } else { "Normal" }
}

/// Tells a note about a machine.
pub(crate) fn tell(events: &Events, vm: &VirtualMachine, note: &Note) {
    events.tell(vm.object_ref(&()), kind(note), note.reason.as_str(), &note.message);
}

/// Tells a note about a migration and its machine.
pub(crate) fn tell_migration(
    events: &Events,
    migration: &VirtualMachineMigration,
    vm: Option<&VirtualMachine>,
    about: &Note,
) {
    events.tell(migration.object_ref(&()), kind(about), about.reason.as_str(), &about.message);
    if let Some(vm) = vm {
        tell(events, vm, about);
    }
}
