//! Reading the objects of VMs.

use serde_json::Value;

use super::shape::{Size, read_cpu, read_memory};

/// The object of a VM.
pub(super) fn find<'a>(objects: &'a [Value], name: &str) -> Option<&'a Value> {
    objects.iter().find(|object| object.pointer("/metadata/name").is_some_and(|own| own == name))
}

/// A text; empty if it is absent.
pub(super) fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A whole number.
pub(super) fn number(object: &Value, pointer: &str) -> Option<u32> {
    u32::try_from(object.pointer(pointer)?.as_u64()?).ok()
}

/// The size that the guest has.
pub(super) fn observed(object: &Value) -> Option<Size> {
    let memory = read_memory(object.pointer("/status/memorySize")?)?;
    Some(Size { cpu: read_cpu(object.pointer("/status/cpus")?)?, memory })
}

/// The requested size.
pub(super) fn requested(object: &Value) -> Option<Size> {
    let step = read_memory(object.pointer("/spec/guest/memorySlotSize")?)?;
    let memory = number(object, "/spec/guest/memorySlots/use")?.checked_mul(step)?;
    Some(Size { cpu: read_cpu(object.pointer("/spec/guest/cpus/use")?)?, memory })
}
