//! Built-in kinds: what the server fills in, and what it refuses, in the words of a real API server.
//!
//! Objects are expected as [`crate::schema::decode`] leaves them: right types, no nulls, no unknown fields.

mod address;
mod autoscaling;
pub(crate) mod certificate;
mod config;
mod container;
mod csi;
mod defaults;
mod diff;
mod endpoints;
mod env;
mod event;
mod ingress;
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
pub(crate) mod service;
mod storage;
mod unchanged;
mod update;
mod volume;
pub(crate) mod webhook;
mod windows;
mod workload;

use serde_json::{Map, Value};

use crate::field::FieldError;
use crate::object;
use crate::schema::builtin::named;

pub use update::validate_update;

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
        ("", "Endpoints") => endpoints::validate_subsets(object, found),
        ("", "PodTemplate") => workload::older::validate_pod_template(object, found),
        ("", "ReplicationController") => workload::older::validate_controller(object, found),
        ("apps", "ControllerRevision") => workload::older::validate_new_revision(object, found),
        ("storage.k8s.io", "StorageClass") => storage::validate_class(object, found),
        ("storage.k8s.io", "CSIDriver") => csi::validate_driver(object, found),
        ("storage.k8s.io", "CSINode") => csi::validate_node(object, found),
        ("networking.k8s.io", "Ingress") => {
            ingress::validate(object, found);
            ingress::validate_class_note(object, found);
        }
        ("networking.k8s.io", "IngressClass") => ingress::validate_class(object, found),
        ("node.k8s.io", "RuntimeClass") => node::validate_runtime_class(object, found),
        ("networking.k8s.io", "NetworkPolicy") => policy::validate(object, found),
        ("discovery.k8s.io", "EndpointSlice") => endpoints::validate(object, found),
        ("policy", "PodDisruptionBudget") => service::validate_budget(object, found),
        ("coordination.k8s.io", "Lease") => event::validate_lease(object, found),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::validate(object, found),
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet") => {
            workload::validate(kind, object, false, found);
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
