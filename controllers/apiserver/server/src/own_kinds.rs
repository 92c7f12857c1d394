//! Admission of our own kinds inside the embedded server, so that a cluster is complete from its first moment: spellings
//! are normalised (a float such as `min: 0.25` is taken), defaults filled in, faults refused. On a cluster of its own the
//! vm-controller's webhooks do the same; doing it twice changes nothing.

use neonvm_api::Policy;
use neonvm_api::admission::agent::{self, Requester};
use neonvm_api::names::SYSTEM_NAMESPACE;
use neonvm_apiserver_engine::field::{FieldError, FieldReason};
use neonvm_apiserver_engine::plugins::{PluginVerdict, Written};
use serde_json::Value;

const GROUPS: &[&str] = &["vm.neon.tech", "autoscaling.aibrix.ai"];

/// What authors of VMs may request in a namespace without labels about it.
fn installation() -> Policy {
    let attachment = format!("{SYSTEM_NAMESPACE}/{}", neonvm_api::overlay::ATTACHMENT);
    Policy { attachments: [attachment].into(), ..Policy::default() }
}

/// The plug-in.
pub(crate) fn admit(written: Written<'_>, new: &mut Value) -> PluginVerdict {
    let Written { group, kind, namespace_labels, old, user } = written;
    if !GROUPS.contains(&group) {
        return PluginVerdict::default();
    }
    let extra = user.extra.iter().map(|(key, values)| (key.as_str(), values.as_slice()));
    let requester = Requester::new(&user.name, extra);
    let forbidden = agent::refused(SYSTEM_NAMESPACE, &requester, kind, new, old);
    let mut verdict = neonvm_api::admit(kind, new, old);
    let labels = serde_json::from_value(namespace_labels.clone()).unwrap_or_default();
    let policy = installation().in_namespace(&labels);
    verdict.errors.extend(neonvm_api::admission::refused(&policy, kind, new, old));
    let errors = verdict.errors.iter().map(|error| FieldError {
        reason: FieldReason::Invalid,
        field: error.path.clone(),
        message: format!("Invalid value: {}", error.message),
    });
    PluginVerdict {
        forbidden,
        errors: errors.collect(),
        warnings: verdict.warnings.iter().map(|w| format!("{}: {}", w.path, w.message)).collect(),
    }
}
