//! HorizontalPodAutoscaler between `autoscaling/v1` (one CPU target) and `autoscaling/v2` (a list of metrics).

use serde_json::{Value, json};

use crate::object::{at, child_mut};

/// Where v1 keeps the metrics it has no field for.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";

fn is_cpu_utilisation(metric: &Value) -> bool {
    at(metric, "type").and_then(Value::as_str) == Some("Resource")
        && at(metric, "resource.name").and_then(Value::as_str) == Some("cpu")
        && at(metric, "resource.target.averageUtilization").is_some()
}

/// v2 → v1.
pub(crate) fn to_v1(value: &mut Value) {
    let spec = child_mut(value, "spec");
    spec.remove("behavior");
    let metrics = spec.remove("metrics").and_then(|m| m.as_array().cloned()).unwrap_or_default();
    let cpu = metrics.iter().find(|m| is_cpu_utilisation(m));
    if let Some(target) = cpu.and_then(|m| at(m, "resource.target.averageUtilization")) {
        spec.insert("targetCPUUtilizationPercentage".into(), target.clone());
    }
    let rest: Vec<&Value> = metrics.iter().filter(|m| !is_cpu_utilisation(m)).collect();
    if !rest.is_empty()
        && let Ok(text) = serde_json::to_string(&rest)
    {
        let meta = child_mut(value, "metadata");
        let notes = meta.entry("annotations").or_insert_with(|| json!({}));
        if let Some(notes) = notes.as_object_mut() {
            notes.insert(METRICS.into(), json!(text));
        }
    }
    let status = child_mut(value, "status");
    status.remove("currentMetrics");
    status.remove("conditions");
}

/// v1 → v2.
pub(crate) fn to_v2(value: &mut Value) {
    let kept = at(value, "metadata").and_then(|m| m.get("annotations")).and_then(|a| a.get(METRICS));
    let mut metrics: Vec<Value> =
        kept.and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    if let Some(notes) = child_mut(value, "metadata").get_mut("annotations").and_then(Value::as_object_mut) {
        notes.remove(METRICS);
    }
    let spec = child_mut(value, "spec");
    if let Some(percent) = spec.remove("targetCPUUtilizationPercentage") {
        metrics.push(json!({ "type": "Resource", "resource": { "name": "cpu",
            "target": { "type": "Utilization", "averageUtilization": percent } } }));
    }
    if !metrics.is_empty() {
        spec.insert("metrics".into(), Value::Array(metrics));
    }
}
