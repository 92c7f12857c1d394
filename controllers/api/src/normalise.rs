//! Spellings: from what people write to what is stored.
//!
//! Existing manifests write `min: 0.25`; the API server would refuse the float by the schema. Admission rewrites it to
//! `"250m"` before the schema is checked, and all other quantities and durations to their canonical form, so that equal
//! amounts are equal texts. Where a schema wants text, a bare number is put in quotes.
//!
//! Empty values that clients leave out when they write an object back (`args: []`, `initScript: ""`) are dropped, so that
//! writing an object back unchanged does not count as a change of a field that cannot change.

use neonvm_types::{MilliCpu, Quantity};
use serde_json::Value;

use crate::{FieldError, GoDuration};

/// How a value is read and written.
#[derive(Clone, Copy)]
enum Scalar {
    /// CPU: whole numbers bare, fractions as `"250m"`.
    Cpu,
    /// A quantity: always a text.
    Quantity,
    /// A duration: `"24h0m0s"`.
    Duration,
    /// A text that people write as a number.
    Text,
}

/// Where such values are. `*` stands for every item of a list or every value of a map.
const VIRTUAL_MACHINE: [(&str, Scalar); 22] = [
    ("spec.guest.cpus.min", Scalar::Cpu),
    ("spec.guest.cpus.max", Scalar::Cpu),
    ("spec.guest.cpus.use", Scalar::Cpu),
    ("spec.guest.memorySlotSize", Scalar::Quantity),
    ("spec.guest.rootDisk.size", Scalar::Quantity),
    ("spec.guest.settings.swap", Scalar::Quantity),
    ("spec.guest.settings.swapInfo.size", Scalar::Quantity),
    ("spec.guest.env.*.value", Scalar::Text),
    ("spec.disks.*.emptyDisk.size", Scalar::Quantity),
    ("spec.disks.*.tmpfs.size", Scalar::Quantity),
    ("spec.diskLimits.*.bandwidth", Scalar::Quantity),
    ("spec.diskLimits.*.burst.bandwidth", Scalar::Quantity),
    ("spec.overcommit.cpu", Scalar::Quantity),
    ("spec.overcommit.memory", Scalar::Quantity),
    ("spec.podResources.limits.*", Scalar::Quantity),
    ("spec.podResources.requests.*", Scalar::Quantity),
    ("spec.extraInitContainers.*.resources.limits.*", Scalar::Quantity),
    ("spec.extraInitContainers.*.resources.requests.*", Scalar::Quantity),
    ("spec.tls.expireAfter", Scalar::Duration),
    ("spec.tls.renewBefore", Scalar::Duration),
    ("status.cpus", Scalar::Cpu),
    ("status.memorySize", Scalar::Quantity),
];
const MIGRATION: [(&str, Scalar); 1] = [("spec.maxBandwidth", Scalar::Quantity)];
const MIGRATION_POLICY: [(&str, Scalar); 1] = [("spec.maxBandwidth", Scalar::Quantity)];
const POD_AUTOSCALER: [(&str, Scalar); 3] = [
    ("spec.metricsSources.*.targetValue", Scalar::Text),
    ("spec.metricsSources.*.quantile", Scalar::Text),
    ("spec.metricsSources.*.port", Scalar::Text),
];

/// What a value is like when it is empty, beside null. An empty value of another kind is an error, which stays.
#[derive(Clone, Copy)]
enum Empty {
    No,
    Text,
    List,
    Object,
}

/// Values that are dropped when they are empty.
const OMITTED: [(&str, &str, Empty); 27] = [
    ("VirtualMachine", "spec.nodeSelector", Empty::Object),
    ("VirtualMachine", "spec.tolerations", Empty::List),
    ("VirtualMachine", "spec.schedulerName", Empty::Text),
    ("VirtualMachine", "spec.serviceAccountName", Empty::Text),
    ("VirtualMachine", "spec.priorityClassName", Empty::Text),
    ("VirtualMachine", "spec.imagePullSecrets", Empty::List),
    ("VirtualMachine", "spec.extraInitContainers", Empty::List),
    ("VirtualMachine", "spec.initScript", Empty::Text),
    ("VirtualMachine", "spec.disks", Empty::List),
    ("VirtualMachine", "spec.diskLimits", Empty::List),
    ("VirtualMachine", "spec.disks.*.emptyDisk.discard", Empty::No),
    ("VirtualMachine", "spec.disks.*.emptyDisk.enableQuotas", Empty::No),
    ("VirtualMachine", "spec.guest.command", Empty::List),
    ("VirtualMachine", "spec.guest.args", Empty::List),
    ("VirtualMachine", "spec.guest.env", Empty::List),
    ("VirtualMachine", "spec.guest.ports", Empty::List),
    ("VirtualMachine", "spec.guest.ports.*.name", Empty::Text),
    ("VirtualMachine", "spec.guest.rootDisk.execute", Empty::List),
    ("VirtualMachine", "spec.guest.settings.sysctl", Empty::List),
    ("VirtualMachine", "spec.extraNetwork.multusNetwork", Empty::Text),
    ("VirtualMachine", "spec.tls.certificateIssuer", Empty::Text),
    ("VirtualMachine", "spec.tls.serverName", Empty::Text),
    ("VirtualMachineMigration", "spec.nodeSelector", Empty::Object),
    ("VirtualMachineMigration", "spec.cancel", Empty::No),
    ("VirtualMachineMigration", "spec.policy", Empty::Text),
    ("PodAutoscaler", "spec.subTargetSelector.roleName", Empty::Text),
    ("PodAutoscaler", "spec.schedules.*.timezone", Empty::Text),
];

/// Rewrites the values of an object of `kind` to their canonical forms, in place. What cannot be read is left as it is
/// and reported. Applying it twice is the same as once. Objects of other kinds are left alone.
pub fn normalise(kind: &str, object: &mut Value) -> Vec<FieldError> {
    let table: &[(&str, Scalar)] = match kind {
        "VirtualMachine" => &VIRTUAL_MACHINE,
        "VirtualMachineMigration" => &MIGRATION,
        "MigrationPolicy" => &MIGRATION_POLICY,
        "PodAutoscaler" => &POD_AUTOSCALER,
        _ => &[],
    };
    let mut errors = Vec::new();
    for (path, scalar) in table {
        let steps: Vec<&str> = path.split('.').collect();
        walk(object, &steps, String::new(), *scalar, &mut errors);
    }
    for (_, path, empty) in OMITTED.iter().filter(|(of, ..)| *of == kind) {
        let steps: Vec<&str> = path.split('.').collect();
        omit(object, &steps, *empty);
    }
    errors
}

/// Recursion follows the table's paths, so it is at most as deep as they are long.
fn omit(value: &mut Value, steps: &[&str], empty: Empty) {
    match (value, steps) {
        (Value::Object(fields), [last]) => {
            fields.retain(|name, field| name != last || !is_empty(field, empty));
        }
        (Value::Object(fields), [step, rest @ ..]) => {
            if let Some(field) = fields.get_mut(*step) {
                omit(field, rest, empty);
            }
        }
        (Value::Array(items), ["*", rest @ ..]) => items.iter_mut().for_each(|item| omit(item, rest, empty)),
        _ => {}
    }
}

fn is_empty(value: &Value, empty: Empty) -> bool {
    match (value, empty) {
        (Value::Null, _) | (Value::Bool(false), Empty::No) => true,
        (Value::String(text), Empty::Text) => text.is_empty(),
        (Value::Array(items), Empty::List) => items.is_empty(),
        (Value::Object(fields), Empty::Object) => fields.is_empty(),
        _ => false,
    }
}

/// Recursion follows the table's paths, so it is at most as deep as they are long.
fn walk(value: &mut Value, steps: &[&str], path: String, scalar: Scalar, errors: &mut Vec<FieldError>) {
    let Some((step, rest)) = steps.split_first() else {
        match canonical(value, scalar) {
            Ok(Some(better)) => *value = better,
            Ok(None) => {}
            Err(message) => errors.push(FieldError { path, message }),
        }
        return;
    };
    match (value, *step) {
        (Value::Array(items), "*") => {
            for (index, item) in items.iter_mut().enumerate() {
                walk(item, rest, format!("{path}[{index}]"), scalar, errors);
            }
        }
        (Value::Object(fields), "*") => {
            for (name, field) in fields.iter_mut() {
                walk(field, rest, format!("{path}[{name}]"), scalar, errors);
            }
        }
        (Value::Object(fields), step) => {
            if let Some(field) = fields.get_mut(step) {
                let path = if path.is_empty() { step.to_owned() } else { format!("{path}.{step}") };
                walk(field, rest, path, scalar, errors);
            }
        }
        // Something else than an object: the schema's business.
        _ => {}
    }
}

/// The canonical form, or `None` if there is nothing to do.
fn canonical(value: &Value, scalar: Scalar) -> Result<Option<Value>, String> {
    match (scalar, value) {
        (_, Value::Null) => Ok(None),
        (Scalar::Cpu, Value::Number(_) | Value::String(_)) => {
            let quantity = quantity(value)?;
            let cpu = MilliCpu::try_from(quantity).map_err(|error| error.to_string())?;
            let whole = cpu.is_whole().then(|| Value::from(cpu.milli() / 1000));
            Ok(Some(whole.unwrap_or_else(|| Value::from(cpu.to_string()))))
        }
        (Scalar::Quantity, Value::Number(_) | Value::String(_)) => {
            Ok(Some(quantity(value)?.to_string().into()))
        }
        (Scalar::Duration, Value::String(text)) => {
            let duration: GoDuration =
                text.parse().map_err(|error: crate::duration::DurationError| error.to_string())?;
            Ok(Some(duration.to_string().into()))
        }
        (Scalar::Text, Value::Number(number)) => Ok(Some(number.to_string().into())),
        (Scalar::Text | Scalar::Duration, _) => Ok(None),
        (Scalar::Cpu | Scalar::Quantity, _) => {
            Err("a quantity is expected; write a number or a text such as \"250m\" or \"2Gi\"".to_owned())
        }
    }
}

fn quantity(value: &Value) -> Result<Quantity, String> {
    match value {
        Value::String(text) => text.parse().map_err(|error: neonvm_types::QuantityError| error.to_string()),
        _ => serde_json::from_value(value.clone()).map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests;
