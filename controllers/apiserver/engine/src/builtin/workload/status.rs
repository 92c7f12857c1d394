//! What controllers report of the pods that they keep running.

use serde_json::{Value, json};

use crate::builtin::{not_negative, number};
use crate::field::FieldError;

/// The counts of a kind, none of which is negative, and those of them that are at most `replicas`.
fn counts(kind: &str) -> (&'static [&'static str], &'static [&'static str]) {
    match kind {
        "Deployment" => (
            &[
                "observedGeneration",
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
                "terminatingReplicas",
                "collisionCount",
            ],
            &["updatedReplicas", "readyReplicas", "availableReplicas"],
        ),
        "ReplicaSet" | "ReplicationController" => (
            &[
                "replicas",
                "fullyLabeledReplicas",
                "readyReplicas",
                "availableReplicas",
                "observedGeneration",
                "terminatingReplicas",
            ],
            &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
        ),
        "StatefulSet" => (
            &[
                "replicas",
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
                "observedGeneration",
                "collisionCount",
            ],
            &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
        ),
        "DaemonSet" => (
            &[
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "observedGeneration",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
                "collisionCount",
            ],
            &[],
        ),
        _ => (&[], &[]),
    }
}

/// A status that replaces another one, by its counts.
pub(in crate::builtin) fn validate(kind: &str, object: &Value, errors: &mut Vec<FieldError>) {
    let (all, parts) = counts(kind);
    for count in all {
        not_negative(object, "", &format!("status.{count}"), errors);
    }
    let of = |count: &str| number(object, &format!("status.{count}")).unwrap_or(0);
    let mut refuse = |count: &str, detail: &str| {
        errors.push(FieldError::invalid(format!("status.{count}"), &json!(of(count)), detail));
    };
    for count in parts.iter().filter(|count| of(count) > of("replicas")) {
        refuse(count, "cannot be greater than status.replicas");
    }
    if !parts.is_empty() && of("availableReplicas") > of("readyReplicas") {
        let status = if kind == "StatefulSet" { "status." } else { "" };
        refuse("availableReplicas", &format!("cannot be greater than {status}readyReplicas"));
    }
}
