//! Kinds of the core group that hold a template of pods, and revisions.

use serde_json::{Value, json};

use crate::builtin::{meta, not_negative, pod};
use crate::field::FieldError;
use crate::object::{at, text_at};

/// The template of pods at `path`.
fn validate_template(object: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let template = at(object, path);
    meta::validate_template(template, path, errors);
    let spec = template.and_then(|template| template.get("spec")).unwrap_or(&Value::Null);
    pod::validate_template(spec, &format!("{path}.spec."), errors);
}

pub(in crate::builtin) fn validate_pod_template(object: &Value, errors: &mut Vec<FieldError>) {
    validate_template(object, "template", errors);
}

pub(in crate::builtin) fn validate_controller(object: &Value, errors: &mut Vec<FieldError>) {
    not_negative(object, "", "spec.minReadySeconds", errors);
    let nothing = json!({});
    let selector = at(object, "spec.selector").and_then(Value::as_object).filter(|map| !map.is_empty());
    if selector.is_none() {
        errors.push(FieldError::required("spec.selector", ""));
    }
    not_negative(object, "", "spec.replicas", errors);
    let path = "spec.template";
    if at(object, path).is_none() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let labels = at(object, "spec.template.metadata.labels");
    let has = |(key, value): (&String, &Value)| labels.unwrap_or(&nothing).get(key) == Some(value);
    if selector.is_some_and(|selector| !selector.iter().all(has)) {
        let detail = "`selector` does not match template `labels`";
        let shown = labels.unwrap_or(&Value::Null);
        errors.push(FieldError::invalid("spec.template.metadata.labels", shown, detail));
    }
    validate_template(object, path, errors);
    let policy = text_at(object, "spec.template.spec.restartPolicy");
    if policy != "Always" {
        let field = format!("{path}.spec.restartPolicy");
        errors.push(FieldError::not_supported(field, &json!(policy), &["Always"]));
    }
    if at(object, "spec.template.spec.activeDeadlineSeconds").is_some() {
        let why = "activeDeadlineSeconds in ReplicationController is not Supported";
        errors.push(FieldError::forbidden(format!("{path}.spec.activeDeadlineSeconds"), why));
    }
}

/// A revision at any time.
pub(in crate::builtin) fn validate_revision(object: &Value, errors: &mut Vec<FieldError>) {
    not_negative(object, "", "revision", errors);
}

/// A new revision has data.
pub(in crate::builtin) fn validate_new_revision(object: &Value, errors: &mut Vec<FieldError>) {
    validate_revision(object, errors);
    match object.get("data") {
        Some(Value::Object(_)) => {}
        None | Some(Value::Null) => errors.push(FieldError::required("data", "data is mandatory")),
        Some(_) => errors.push(FieldError::required("data", "data must be a valid JSON object")),
    }
}
