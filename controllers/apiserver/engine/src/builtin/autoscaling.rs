//! HorizontalPodAutoscalers.

use neonvm_types::Quantity;
use serde_json::{Map, Value, json};

use super::name::{self, Rule};
use super::{items, number, one_of, set};
use crate::field::FieldError;
use crate::object::{at, text_at};

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

const AT_LEAST_ONE: &str = "must be greater than or equal to 1";

pub(super) fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let least = number(object, "spec.minReplicas");
    let most = number(object, "spec.maxReplicas").unwrap_or(0);
    if let Some(least) = least.filter(|least| *least < 1) {
        errors.push(FieldError::invalid("spec.minReplicas", &json!(least), AT_LEAST_ONE));
    }
    if most == 0 {
        errors.push(FieldError::required("spec.maxReplicas", "must be set and greater than 0"));
    } else if most < 0 {
        errors.push(FieldError::invalid("spec.maxReplicas", &json!(most), AT_LEAST_ONE));
    }
    if least.is_some_and(|least| most < least) {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid("spec.maxReplicas", &json!(most), detail));
    }
    validate_reference(object, "spec.scaleTargetRef", "spec.scaleTargetRef", errors);
    for (index, metric) in items(object, "spec.metrics").iter().enumerate() {
        validate_metric(metric, &format!("spec.metrics[{index}]"), errors);
    }
    let outside = |metric: &Value| matches!(text_at(metric, "type"), "Object" | "External");
    if least == Some(0) && !items(object, "spec.metrics").iter().any(outside) {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(FieldError::forbidden("spec.metrics", why));
    }
    for direction in ["scaleUp", "scaleDown"] {
        let path = format!("spec.behavior.{direction}");
        if let Some(rules) = at(object, &path) {
            validate_rules(rules, &path, errors);
        }
    }
}

/// Another object, which is found at `key` and shown at `path`.
fn validate_reference(holder: &Value, path: &str, key: &str, errors: &mut Vec<FieldError>) {
    let text = |field: &str| text_at(holder, &format!("{key}.{field}"));
    for field in ["kind", "name"] {
        let field_path = format!("{path}.{field}");
        match text(field) {
            "" => errors.push(FieldError::required(field_path, "")),
            own => {
                name::check(own, &field_path, name::path_segment, errors);
            }
        }
    }
    let version = text("apiVersion");
    let has_group = version.contains('/') || (version == "v1" && text("kind") == "ReplicationController");
    if !has_group {
        let detail = "apiVersion must specify API group";
        errors.push(FieldError::invalid(format!("{path}.apiVersion"), &json!(version), detail));
    }
}

/// Sources of metrics: the field of one, its type.
const SOURCES: [(&str, &str); 5] = [
    ("object", "Object"),
    ("external", "External"),
    ("pods", "Pods"),
    ("resource", "Resource"),
    ("containerResource", "ContainerResource"),
];

fn validate_metric(metric: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
    let (kind, field) = (text_at(metric, "type"), format!("{path}.type"));
    if kind.is_empty() {
        errors.push(FieldError::required(field.clone(), "must specify a metric source type"));
    }
    let unknown = || FieldError::not_supported(field.clone(), &json!(kind), &TYPES);
    let known = TYPES.contains(&kind);
    if !known {
        errors.push(unknown());
    }
    let present: Vec<&(&str, &str)> = SOURCES.iter().filter(|(key, _)| metric.get(*key).is_some()).collect();
    if let Some((key, _)) = present.first() {
        validate_source(key, metric.get(*key).unwrap_or(&Value::Null), &format!("{path}.{key}"), errors);
    }
    if !known {
        errors.push(unknown());
    }
    for (key, _) in SOURCES.iter().filter(|(key, own)| *own == kind && metric.get(*key).is_none()) {
        let detail = "must populate information for the given metric source";
        errors.push(FieldError::required(format!("{path}.{key}"), detail));
    }
    for (key, _) in present.iter().filter(|(_, own)| present.len() > 1 && *own != kind) {
        let why = "must populate the given metric source only";
        errors.push(FieldError::forbidden(format!("{path}.{key}"), why));
    }
}

/// What a metric is, and the amount of it that is wanted.
fn validate_source(key: &str, source: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let named = |path: String, text: &str, detail: &str, rule: Option<Rule>, errors: &mut Vec<FieldError>| {
        if text.is_empty() {
            errors.push(FieldError::required(path, detail));
        } else if let Some(rule) = rule {
            name::check(text, &path, rule, errors);
        }
    };
    match key {
        "resource" | "containerResource" => {
            let own = text_at(source, "name");
            named(format!("{path}.name"), own, "must specify a resource name", None, errors);
        }
        _ => {
            if key == "object" {
                validate_reference(source, &format!("{path}.describedObject"), "describedObject", errors);
            }
            let rule: Option<Rule> = Some(name::path_segment);
            let own = text_at(source, "metric.name");
            named(format!("{path}.metric.name"), own, "must specify a metric name", rule, errors);
        }
    }
    if key == "containerResource" {
        let (own, rule): (_, Option<Rule>) = (text_at(source, "container"), Some(name::label));
        named(format!("{path}.container"), own, "must specify a container", rule, errors);
    }
    let nothing = Value::Null;
    let (target, path) = (source.get("target").unwrap_or(&nothing), format!("{path}.target"));
    validate_target(target, &path, errors);
    validate_choice(key, target, &path, errors);
}

/// Which of the amounts of a target are needed, and which exclude each other.
fn validate_choice(key: &str, target: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let has = |amount: &str| target.get(amount).is_some();
    let of_resource = matches!(key, "resource" | "containerResource");
    let (other, field, detail) = match key {
        "object" => ("value", "averageValue", "must set either a target value or averageValue"),
        "external" => {
            ("value", "averageValue", "must set either a target value for metric or a per-pod target")
        }
        "pods" => ("averageValue", "averageValue", "must specify a positive target averageValue"),
        _ => (
            "averageUtilization",
            "averageUtilization",
            "must set either a target raw value or a target utilization",
        ),
    };
    if !has(other) && !has("averageValue") {
        errors.push(FieldError::required(format!("{path}.{field}"), detail));
    }
    let both = has(other) && has("averageValue");
    if both && of_resource {
        let why = "may not set both a target raw value and a target utilization";
        errors.push(FieldError::forbidden(format!("{path}.averageValue"), why));
    } else if both && key == "external" {
        let why = "may not set both a target value for metric and a per-pod target";
        errors.push(FieldError::forbidden(format!("{path}.value"), why));
    }
}

fn validate_target(target: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (kind, field) = (text_at(target, "type"), format!("{path}.type"));
    if kind.is_empty() {
        errors.push(FieldError::required(field.clone(), "must specify a metric target type"));
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind) {
        let detail = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid(field, &json!(kind), detail));
    }
    for key in ["value", "averageValue"] {
        let Some(amount) = target.get(key).and_then(Value::as_str) else { continue };
        if amount.parse::<Quantity>().is_ok_and(|amount| amount <= Quantity::default()) {
            errors.push(FieldError::invalid(format!("{path}.{key}"), &json!(amount), "must be positive"));
        }
    }
    if let Some(share) = number(target, "averageUtilization").filter(|share| *share < 1) {
        let field = format!("{path}.averageUtilization");
        errors.push(FieldError::invalid(field, &json!(share), super::POSITIVE));
    }
}

/// How fast replicas are added, or removed.
fn validate_rules(rules: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const LONGEST_WINDOW: i64 = 3600;
    const LONGEST_PERIOD: i64 = 1800;
    if let Some(seconds) = number(rules, "stabilizationWindowSeconds") {
        let field = format!("{path}.stabilizationWindowSeconds");
        if seconds < 0 {
            let detail = "must be greater than or equal to zero";
            errors.push(FieldError::invalid(field, &json!(seconds), detail));
        } else if seconds > LONGEST_WINDOW {
            let detail = format!("must be less than or equal to {LONGEST_WINDOW}");
            errors.push(FieldError::invalid(field, &json!(seconds), &detail));
        }
    }
    one_of(rules, &format!("{path}."), "selectPolicy", &["Disabled", "Max", "Min"], errors);
    let policies = items(rules, "policies");
    if policies.is_empty() {
        errors.push(FieldError::required(format!("{path}.policies"), "must specify at least one Policy"));
    }
    for (index, policy) in policies.iter().enumerate() {
        let path = format!("{path}.policies[{index}]");
        let kind = text_at(policy, "type");
        if !["Percent", "Pods"].contains(&kind) {
            let field = format!("{path}.type");
            errors.push(FieldError::not_supported(field, &json!(kind), &["Percent", "Pods"]));
        }
        for key in ["value", "periodSeconds"] {
            let amount = number(policy, key).unwrap_or(0);
            let field = format!("{path}.{key}");
            if amount <= 0 {
                errors.push(FieldError::invalid(field, &json!(amount), "must be greater than zero"));
            } else if key == "periodSeconds" && amount > LONGEST_PERIOD {
                let detail = format!("must be less than or equal to {LONGEST_PERIOD}");
                errors.push(FieldError::invalid(field, &json!(amount), &detail));
            }
        }
    }
    let tolerance = text_at(rules, "tolerance");
    if tolerance.parse::<Quantity>().is_ok_and(|amount| amount < Quantity::default()) {
        let field = format!("{path}.tolerance");
        errors.push(FieldError::invalid(field, &json!(tolerance), super::NOT_NEGATIVE));
    }
}
