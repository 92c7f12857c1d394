//! Cells of workloads: replicas, containers, jobs, autoscalers, budgets.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cells::{list, number, or_none, pairs};
use crate::object::{at, text_at};

pub(super) fn node_selector(set: &Value, _: Timestamp) -> Value {
    or_none(&pairs(at(set, "spec.template.spec.nodeSelector")))
}

pub(super) fn selector(object: &Value, _: Timestamp) -> Value {
    or_none(&crate::selector::text_of(at(object, "spec.selector")))
}

/// As [`selector`], but nothing is shown as nothing.
pub(super) fn deployment_selector(object: &Value, _: Timestamp) -> Value {
    json!(crate::selector::text_of(at(object, "spec.selector")))
}

fn of_containers(object: &Value, path: &str, key: &str) -> Value {
    json!(list(object, path).iter().map(|c| text_at(c, key)).collect::<Vec<_>>().join(","))
}

pub(super) fn containers(object: &Value, _: Timestamp) -> Value {
    of_containers(object, "spec.template.spec.containers", "name")
}

pub(super) fn images(object: &Value, _: Timestamp) -> Value {
    of_containers(object, "spec.template.spec.containers", "image")
}

pub(super) fn deployment_ready(object: &Value, _: Timestamp) -> Value {
    json!(format!("{}/{}", number(object, "status.readyReplicas"), number(object, "spec.replicas")))
}
