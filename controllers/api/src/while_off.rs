//! What may change only while a VM has no pod: one table, from which the CEL rules of the definition, the checks of the webhook and
//! the parting of a change into now and next start are made.

use crate::VirtualMachineSpec;

/// A field that may change only while the VM has no pod.
pub(crate) struct Field {
    /// Below `spec`.
    pub(crate) path: &'static str,
    /// How CEL compares its old and new value.
    pub(crate) same: Same,
    /// Whether two specs have the same value.
    pub(crate) is_same: fn(&VirtualMachineSpec, &VirtualMachineSpec) -> bool,
}

/// How an old and a new value are compared.
#[derive(Clone, Copy)]
pub(crate) enum Same {
    /// A field that is always there, by default if need be.
    Plain,
    /// A quantity that is always there.
    Quantity,
    /// A list or text that may be absent. Clients leave out what is empty, so the two are the same.
    OrEmpty,
    /// An object that may be absent.
    OrAbsent,
}

/// A row: the path, the comparison in CEL, and the field of [`VirtualMachineSpec`].
macro_rules! field {
    ($path:literal, $same:ident, $($field:ident).+) => {
        Field { path: $path, same: Same::$same, is_same: |old, new| old.$($field).+ == new.$($field).+ }
    };
}

pub(crate) const FIELDS: [Field; 18] = [
    field!("guest.cpus.max", Quantity, guest.cpus.max),
    field!("guest.memorySlots.min", Plain, guest.memory_slots.min),
    field!("guest.memorySlots.max", Plain, guest.memory_slots.max),
    field!("guest.memorySlotSize", Quantity, guest.memory_slot_size),
    field!("guest.rootDisk", Plain, guest.root_disk),
    field!("guest.command", OrEmpty, guest.command),
    field!("guest.args", OrEmpty, guest.args),
    field!("guest.env", OrEmpty, guest.env),
    field!("guest.ports", OrEmpty, guest.ports),
    field!("guest.settings", OrAbsent, guest.settings),
    field!("disks", OrEmpty, disks),
    field!("volumeClaimTemplates", OrEmpty, volume_claim_templates),
    field!("podResources", Plain, pod_resources),
    field!("enableAcceleration", Plain, enable_acceleration),
    field!("enableSSH", Plain, enable_ssh),
    field!("initScript", OrEmpty, init_script),
    field!("enableNetworkMonitoring", Plain, enable_network_monitoring),
    field!("cpuModel", OrEmpty, cpu_model),
];

/// Whether the field at this path below `spec` is in the table.
#[must_use]
pub(crate) fn has(path: &str) -> bool {
    FIELDS.iter().any(|field| field.path == path)
}
