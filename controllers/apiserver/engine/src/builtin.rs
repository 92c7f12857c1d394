//! Built-in kinds: what the server fills in, and what it refuses, in the words of a real API server.
//!
//! Objects are expected as [`crate::schema::decode`] leaves them: right types, no nulls, no unknown fields.

mod address;
mod autoscaling;
pub(crate) mod certificate;
mod config;
mod container;
mod defaults;
mod diff;
mod endpoints;
mod env;
mod event;
mod internal;
pub(crate) mod job;
pub mod meta;
mod name;
mod network;
mod node;
mod part;
pub(crate) mod placement;
mod pod;
mod policy;
mod probe;
mod quota;
mod rbac;
pub(crate) mod resize;
pub(crate) mod resources;
mod security;
mod service;
mod storage;
mod volume;
pub(crate) mod webhook;
mod windows;
mod workload;

use serde_json::{Map, Value};

use crate::field::FieldError;
use crate::object;
use crate::schema::builtin::named;

/// Fills in the defaults of a built-in kind. Doing it twice changes nothing more.
pub fn default(group: &str, version: &str, kind: &str, object: &mut Value) {
    let package = match group {
        "" => "core",
        group => group.split('.').next().unwrap_or(group),
    };
    if let Some(schema) = named(&format!("io.k8s.api.{package}.{version}.{kind}")) {
        defaults::fill(object, &schema);
    }
    if group == "apiregistration.k8s.io" {
        service::default_api_service(object);
    }
}

/// Adds to an object without content what an encoder of its type shows of it.
pub(crate) fn show_empty(object: &mut Value, schema: &crate::schema::Schema) {
    defaults::show(object, schema, 0);
}

/// What is wrong with a new object, besides its metadata.
pub fn validate_create(group: &str, kind: &str, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let found = &mut errors;
    match (group, kind) {
        ("", "Pod") => pod::validate_create(object, found),
        ("", "Namespace") => meta::validate_namespace_finalizers(object, found),
        ("", "ConfigMap") => config::validate_config_map(object, found),
        ("", "Secret") => config::validate_secret(object, found),
        ("", "Service") => service::validate(object, found),
        ("", "Node") => node::validate(object, found),
        ("", "Event") => event::validate_core(object, found),
        ("events.k8s.io", "Event") => event::validate_new(object, found),
        ("", "PersistentVolumeClaim") => volume::validate_claim(object, found),
        ("", "PersistentVolume") => storage::validate_volume(object, found),
        ("", "ResourceQuota") => quota::validate(object, found),
        ("", "LimitRange") => quota::validate_limits(object, found),
        ("storage.k8s.io", "StorageClass") => storage::validate_topologies(object, found),
        ("networking.k8s.io", "NetworkPolicy") => policy::validate(object, found),
        ("discovery.k8s.io", "EndpointSlice") => endpoints::validate(object, found),
        ("policy", "PodDisruptionBudget") => service::validate_budget(object, found),
        ("coordination.k8s.io", "Lease") => event::validate_lease(object, found),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::validate(object, found),
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet") => {
            workload::validate(kind, object, found);
        }
        ("batch", "Job") => job::validate_job(object, found),
        ("batch", "CronJob") => job::cron::validate(object, None, found),
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => {
            webhook::validate(kind, object, found);
        }
        (crate::access::GROUP, _) => rbac::validate(kind, object, found),
        (crate::builtin::certificate::GROUP, _) => certificate::validate(object, found),
        ("scheduling.k8s.io", "PriorityClass") => config::validate_priority_class(object, found),
        ("apiregistration.k8s.io", "APIService") => service::validate_api_service(object, found),
        _ => {}
    }
    errors
}

/// What is wrong with a change from `live` to `object` through `subresource` (empty: the object itself).
pub fn validate_update(
    group: &str,
    kind: &str,
    subresource: &str,
    object: &Value,
    live: &Value,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let found = &mut errors;
    if group == crate::builtin::certificate::GROUP {
        certificate::validate_update(subresource, object, live, found);
        return errors;
    }
    if subresource == "status" {
        match (group, kind) {
            ("", "Pod") => pod::validate_status(object, live, found),
            ("", "Node") => node::validate_status(object, found),
            ("apps" | "batch" | "", _) => workload::validate_status(kind, object, found),
            _ => {}
        }
        return errors;
    }
    match (group, kind) {
        ("", "Pod") => return pod::validate_update(subresource, object, live),
        ("events.k8s.io" | "", "Event") => {
            event::validate_update(object, live, !group.is_empty(), &mut errors);
        }
        ("batch", "Job") => job::validate_job_update(object, live, &mut errors),
        ("batch", "CronJob") => job::cron::validate(object, Some(live), &mut errors),
        _ => errors = validate_create(group, kind, object),
    }
    let found = &mut errors;
    match (group, kind) {
        ("", "ConfigMap") => config::validate_immutable(object, live, &["data", "binaryData"], found),
        ("", "Secret") => {
            config::validate_immutable(object, live, &["data"], found);
            unchanged("type", object, live, found);
        }
        ("", "Service") => service::validate_update(object, live, found),
        ("", "Node") => node::validate_update(object, live, found),
        ("", "PersistentVolumeClaim") => volume::validate_claim_update(object, live, found),
        ("apps", "Deployment" | "ReplicaSet" | "DaemonSet") => {
            unchanged("spec.selector", object, live, found);
        }
        ("apps", "StatefulSet") => workload::validate_stateful_set_update(object, live, found),
        ("scheduling.k8s.io", "PriorityClass") if object.get("value") != live.get("value") => {
            found.push(FieldError::forbidden("value", "may not be changed in an update."));
        }
        (crate::access::GROUP, _) => rbac::validate_update(object, live, found),
        _ => {}
    }
    errors
}

/// `field is immutable`, if the value at `path` differs.
fn unchanged(path: &str, object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    let (new, old) = (object::at(object, path), object::at(live, path));
    if new != old {
        errors.push(FieldError::invalid(path, new.unwrap_or(&Value::Null), IMMUTABLE));
    }
}

const IMMUTABLE: &str = "field is immutable";
const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
const POSITIVE: &str = "must be greater than 0";

/// The items of the list at a dotted path; empty if there is none.
fn items<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    object::at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The whole number at a dotted path.
fn number(object: &Value, path: &str) -> Option<i64> {
    object::at(object, path).and_then(Value::as_i64)
}

/// Refuses a negative number at `path` of `object`, which itself stands at `prefix`.
fn not_negative(object: &Value, prefix: &str, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(value) = number(object, path).filter(|value| *value < 0) {
        errors.push(FieldError::invalid(format!("{prefix}{path}"), &Value::from(value), NOT_NEGATIVE));
    }
}

/// Refuses a missing or empty text.
fn required(object: &Value, prefix: &str, path: &str, errors: &mut Vec<FieldError>) {
    if object::text_at(object, path).is_empty() {
        errors.push(FieldError::required(format!("{prefix}{path}"), ""));
    }
}

/// Refuses a text that is not one of `supported`.
fn one_of(object: &Value, prefix: &str, path: &str, supported: &[&str], errors: &mut Vec<FieldError>) {
    if let Some(text) = object::at(object, path).and_then(Value::as_str)
        && !supported.contains(&text)
    {
        errors.push(FieldError::not_supported(format!("{prefix}{path}"), &Value::from(text), supported));
    }
}

#[cfg(test)]
mod tests;

/// Sets what is not there.
fn set(map: &mut Map<String, Value>, key: &str, value: Value) {
    if !map.contains_key(key) {
        map.insert(key.to_owned(), value);
    }
}
