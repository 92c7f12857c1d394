//! HorizontalPodAutoscalers.

use serde_json::{Map, Value, json};

use super::{items, number, required, set};
use crate::field::FieldError;
use crate::object::text_at;

pub(super) fn default_spec(spec: &mut Map<String, Value>) {
    if spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        spec.insert("metrics".to_owned(), json!([metric]));
    }
    let Some(behavior) = spec.get_mut("behavior").and_then(Value::as_object_mut) else { return };
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    if let Some(up) = behavior.entry("scaleUp").or_insert_with(|| json!({})).as_object_mut() {
        set(up, "stabilizationWindowSeconds", json!(0));
        set(up, "selectPolicy", json!("Max"));
        set(up, "policies", json!([pods, percent]));
    }
    if let Some(down) = behavior.entry("scaleDown").or_insert_with(|| json!({})).as_object_mut() {
        set(down, "selectPolicy", json!("Max"));
        set(down, "policies", json!([percent]));
    }
}

fn validate_target(target: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let kind = text_at(target, "type");
    if kind.is_empty() {
        errors.push(FieldError::required(field, "must specify a metric target type"));
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind) {
        let detail = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid(field, &json!(kind), detail));
    }
}

pub(super) fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let least = number(object, "spec.minReplicas");
    let most = number(object, "spec.maxReplicas").unwrap_or(0);
    if let Some(least) = least.filter(|least| *least < 1) {
        errors.push(FieldError::invalid(
            "spec.minReplicas",
            &json!(least),
            "must be greater than or equal to 1",
        ));
    }
    if most < 1 {
        errors.push(FieldError::required("spec.maxReplicas", "must be set and greater than 0"));
    }
    if least.is_some_and(|least| most < least) {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid("spec.maxReplicas", &json!(most), detail));
    }
    let prefix = "spec.scaleTargetRef.";
    required(object, "", &format!("{prefix}kind"), errors);
    required(object, "", &format!("{prefix}name"), errors);
    let version = text_at(object, &format!("{prefix}apiVersion"));
    let core_kind = text_at(object, &format!("{prefix}kind")) == "ReplicationController";
    let has_group = version.contains('/') || (version == "v1" && core_kind);
    if !has_group {
        let detail = "apiVersion must specify API group";
        errors.push(FieldError::invalid(format!("{prefix}apiVersion"), &json!(version), detail));
    }
    for (index, metric) in items(object, "spec.metrics").iter().enumerate() {
        let path = format!("spec.metrics[{index}].");
        required(metric, &path, "type", errors);
        let supported = ["ContainerResource", "External", "Object", "Pods", "Resource"];
        if !text_at(metric, "type").is_empty() {
            super::one_of(metric, &path, "type", &supported, errors);
        }
        for source in ["object", "pods", "resource", "containerResource", "external"] {
            if let Some(target) = metric.get(source).and_then(|source| source.get("target")) {
                validate_target(target, &format!("{path}{source}.target.type"), errors);
            }
        }
    }
    for direction in ["scaleUp", "scaleDown"] {
        let policies = ["Disabled", "Max", "Min"];
        super::one_of(object, "", &format!("spec.behavior.{direction}.selectPolicy"), &policies, errors);
    }
}
