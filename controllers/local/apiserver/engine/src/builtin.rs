//! Built-in kinds: what the server fills in, and what it refuses. Most fields are checked by the published schema only
//! (`crate::schema::builtin`); what is here has a user in this project.
//!
//! Objects are expected as [`crate::schema::decode`] leaves them: right types, no nulls, no unknown fields.

pub(crate) mod certificate;
mod checks;
mod config;
mod defaults;
mod event;
pub mod meta;
mod name;
mod node;
pub(crate) mod pod;
mod rbac;
pub(crate) mod resize;
pub(crate) mod resources;
pub(crate) mod selector;
pub(crate) mod service;
mod storage;
mod unchanged;
mod update;
pub(crate) mod webhook;
mod workload;

use serde_json::{Map, Value};

use crate::field::FieldError;
use crate::object;
use crate::schema::SchemaRef;
use crate::schema::builtin::named;

pub use update::validate_update;

/// Fills in the defaults of a built-in kind. Doing it twice changes nothing more.
pub fn default(group: &str, version: &str, kind: &str, object: &mut Value) {
    if let Some(schema) = schema_of(group, version, kind) {
        defaults::fill(object, &schema);
    }
}

fn schema_of(group: &str, version: &str, kind: &str) -> Option<SchemaRef> {
    named(&type_name(group, version, kind))
}

pub(crate) fn type_name(group: &str, version: &str, kind: &str) -> String {
    let package = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or(group) };
    format!("io.k8s.api.{package}.{version}.{kind}")
}

/// What the table of checks finds in an object: in its status, or in all else.
fn check(group: &str, kind: &str, object: &Value, is_status: bool, errors: &mut Vec<FieldError>) {
    let version = if group == "autoscaling" { "v2" } else { "v1" };
    if let Some(schema) = schema_of(group, version, kind) {
        checks::check(object, &schema, is_status, errors);
    }
}

pub(crate) use name::{label_1035, subdomain};

/// What is taken, and is likely a mistake, in a new object.
pub(crate) fn warnings(kind: &str, object: &Value) -> Vec<String> {
    let prefix = match kind {
        "Pod" => "spec.",
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" => "spec.template.spec.",
        _ => return Vec::new(),
    };
    let spec = object::at(object, prefix.trim_end_matches('.'));
    spec.map_or_else(Vec::new, |spec| pod::warnings(spec, prefix))
}

pub fn validate_create(group: &str, kind: &str, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let found = &mut errors;
    match (group, kind) {
        ("", "Pod") => pod::validate_new(object, found),
        ("", "Namespace") => meta::validate_namespace_finalizers(object, found),
        ("", "ConfigMap") => config::validate_config_map(object, found),
        ("", "Secret") => config::validate_secret(object, found),
        ("", "Service") => service::validate(object, found),
        ("", "Node") => node::validate(object, found),
        ("", "Event") => event::validate_core(object, found),
        ("events.k8s.io", "Event") => event::validate_new(object, found),
        ("", "PersistentVolumeClaim") => storage::validate_claim(object, found),
        ("", "PersistentVolume") => storage::validate_volume(object, found),
        ("policy", "PodDisruptionBudget") => service::validate_budget(object, found),
        ("autoscaling", _) => workload::validate_autoscaler(object, found),
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet") => {
            workload::validate(kind, object, found);
        }
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => {
            webhook::validate(object, found);
        }
        ("scheduling.k8s.io", "PriorityClass") => config::validate_priority_class(object, found),
        (crate::access::GROUP, _) => rbac::validate(kind, object, found),
        (crate::builtin::certificate::GROUP, _) => certificate::validate(object, found),
        _ => {}
    }
    check(group, kind, object, false, found);
    errors
}

const IMMUTABLE: &str = "field is immutable";
const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// The items of the list at a dotted path; empty if there is none.
fn items<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    object::at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn number(object: &Value, path: &str) -> Option<i64> {
    object::at(object, path).and_then(Value::as_i64)
}

fn required(object: &Value, prefix: &str, path: &str, errors: &mut Vec<FieldError>) {
    if object::text_at(object, path).is_empty() {
        errors.push(FieldError::required(format!("{prefix}{path}"), ""));
    }
}

fn one_of(object: &Value, prefix: &str, path: &str, supported: &[&str], errors: &mut Vec<FieldError>) {
    if let Some(text) = object::at(object, path).and_then(Value::as_str)
        && !supported.contains(&text)
    {
        errors.push(FieldError::not_supported(format!("{prefix}{path}"), &Value::from(text), supported));
    }
}

#[cfg(test)]
mod tests;

fn set(map: &mut Map<String, Value>, key: &str, value: Value) {
    if !map.contains_key(key) {
        map.insert(key.to_owned(), value);
    }
}
