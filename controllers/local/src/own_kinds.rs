//! Admission of our own kinds inside the embedded server, so that a cluster is complete from its first moment: spellings
//! are normalised (a float such as `min: 0.25` is taken), defaults filled in, faults refused. On a cluster of its own the
//! vm-controller's webhooks do the same; doing it twice changes nothing.

use neonvm_core_apistore::field::{FieldError, FieldReason};
use neonvm_core_apistore::plugins::PluginVerdict;
use serde_json::Value;

const GROUPS: &[&str] = &["vm.neon.tech", "autoscaling.aibrix.ai"];

/// The plug-in.
pub(crate) fn admit(group: &str, kind: &str, new: &mut Value, old: Option<&Value>) -> PluginVerdict {
    if !GROUPS.contains(&group) {
        return PluginVerdict::default();
    }
    let verdict = neonvm_api::admit(kind, new, old);
    let errors = verdict.errors.iter().map(|error| FieldError {
        reason: FieldReason::Invalid,
        field: error.path.clone(),
        message: format!("Invalid value: {}", error.message),
    });
    PluginVerdict {
        errors: errors.collect(),
        warnings: verdict.warnings.iter().map(|w| format!("{}: {}", w.path, w.message)).collect(),
    }
}
