//! The order in which objects are applied.

use serde_json::Value;

/// The place of an object: what it needs has a lower one. What names nothing else comes first, what runs comes last.
#[must_use]
pub fn rank(object: &Value) -> u8 {
    match object.get("kind").and_then(Value::as_str).unwrap_or_default() {
        "CustomResourceDefinition" => 0,
        "Namespace" => 1,
        "PriorityClass" | "ServiceAccount" | "ClusterRole" | "Role" => 2,
        "ClusterRoleBinding" | "RoleBinding" | "ConfigMap" | "Secret" => 3,
        // Of kinds that are added by others, too.
        "Service" | "PodDisruptionBudget" => 5,
        "Deployment" | "DaemonSet" | "StatefulSet" | "Job" => 7,
        // A policy needs to be there before what binds it.
        kind if kind.ends_with("Binding") => 6,
        _ => 4,
    }
}
