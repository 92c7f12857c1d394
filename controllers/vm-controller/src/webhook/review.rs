//! One admission review.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use kube::api::Api;
use neonvm_api::admission::agent::{self, Requester};
use neonvm_api::names::VM_API_VERSION;
use neonvm_api::{FieldError, Policy};
use neonvm_kit::webhook::{Review, Written, allowed, denied, patched, short, texts};
use neonvm_types::NamespacedName;
use serde_json::Value;

use super::Hooks;
use crate::request::within;

/// The answer to a review, or why the body is not one. It has no other effect unless `proved`: the API server sent it.
pub(super) async fn answer(
    hooks: &Hooks,
    proved: bool,
    mutating: bool,
    kind: &str,
    body: &[u8],
) -> Result<Value, String> {
    let review = Review::read(body)?;
    Ok(review.response(decide(hooks, proved, mutating, kind, &review).await?))
}

async fn decide(
    hooks: &Hooks,
    proved: bool,
    mutating: bool,
    kind: &str,
    review: &Review,
) -> Result<Value, String> {
    let Some(Written { object, old }) = review.written()? else { return Ok(allowed(&[])) };
    let request = review.request();
    let mut new = object.clone();
    let mut verdict = neonvm_api::admit(kind, &mut new, old);
    if mutating {
        // The validating side reports errors, for the object as it will be stored.
        return Ok(patched(object, &new));
    }
    let requester = Requester::of_review(request.get("userInfo").unwrap_or(&Value::Null));
    if let Some(why) = agent::refused(&hooks.namespace, &requester, kind, &new, old) {
        return Ok(denied(&[], &why));
    }
    verdict.errors.extend(refused(hooks, kind, &new, old, request).await?);
    let (warnings, message) = texts(&verdict);
    if verdict.errors.is_empty() {
        return Ok(allowed(&warnings));
    }
    if let Some(name) = skipped(hooks, kind, request).filter(|_| old.is_some()) {
        if proved {
            report_skipped(hooks, &name, object, &message);
        }
        let warning = short(&format!("update validation is skipped for {name}: {message}"));
        return Ok(allowed(&[warning]));
    }
    Ok(denied(&warnings, &message))
}

/// What the policy of the object's namespace refuses. The namespace is only read if the installation's policy refuses
/// something or a label could forbid what it allows.
async fn refused(
    hooks: &Hooks,
    kind: &str,
    new: &Value,
    old: Option<&Value>,
    request: &Value,
) -> Result<Vec<FieldError>, String> {
    let nothing = Policy { allowed: BTreeSet::new(), ..hooks.policy.clone() };
    if neonvm_api::admission::refused(&nothing, kind, new, old).is_empty() {
        return Ok(Vec::new());
    }
    let name = request.get("namespace").and_then(Value::as_str).unwrap_or_default();
    let namespaces: Api<Namespace> = Api::all(hooks.client.clone());
    let namespace = within(namespaces.get_metadata(name)).await;
    let namespace =
        namespace.map_err(|error| format!("the policy of namespace {name} cannot be read: {error}"))?;
    let policy = hooks.policy.in_namespace(&namespace.metadata.labels.unwrap_or_default());
    Ok(neonvm_api::admission::refused(&policy, kind, new, old))
}

fn skipped(hooks: &Hooks, kind: &str, request: &Value) -> Option<NamespacedName> {
    let text = |key: &str| request.get(key).and_then(Value::as_str).unwrap_or_default();
    let name = NamespacedName::new(text("namespace"), text("name"));
    (kind == "VirtualMachine" && hooks.skip.contains(&name)).then_some(name)
}

fn report_skipped(hooks: &Hooks, name: &NamespacedName, object: &Value, message: &str) {
    tracing::warn!(vm = %name, error = message, "update validation is skipped");
    let regarding = ObjectReference {
        api_version: Some(VM_API_VERSION.to_owned()),
        kind: Some("VirtualMachine".to_owned()),
        namespace: Some(name.namespace.clone()),
        name: Some(name.name.clone()),
        uid: object.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned),
        ..ObjectReference::default()
    };
    hooks.events.publish(regarding, "Warning", "SkippedValidation", message);
}
