//! The labels by which a Job knows its pods, and the selector for them.

use serde_json::{Map, Value, json};

use crate::builtin::set;
use crate::field::FieldError;
use crate::kinds::Kind;
use crate::object::{at, child_mut, name, uid};
use crate::selector::LabelSelector;

/// By which label the pods of a Job are selected.
const SELECTED: &str = "batch.kubernetes.io/controller-uid";
/// The labels, in the order in which they are checked; whether they hold the uid of the Job, or its name.
const LABELS: [(&str, bool); 4] = [
    ("controller-uid", true),
    ("job-name", false),
    (SELECTED, true),
    ("batch.kubernetes.io/job-name", false),
];

/// Gives the pods of a new Job the labels of their Job, and the Job a selector of them, unless it has one of its own.
pub(crate) fn select(kind: &Kind, job: &mut Value) {
    let is_job = kind.is_builtin() && kind.group == "batch" && kind.kind == "Job";
    if !is_job || at(job, "spec.manualSelector") == Some(&json!(true)) {
        return;
    }
    let (own_name, own_uid) = (name(job).to_owned(), uid(job).to_owned());
    let Some(spec) = job.get_mut("spec") else { return };
    let template = spec.as_object_mut().map(|spec| spec.entry("template").or_insert_with(|| json!({})));
    let Some(metadata) = template.map(|template| child_mut(template, "metadata")) else { return };
    if let Some(labels) = metadata.entry("labels").or_insert_with(|| json!({})).as_object_mut() {
        for (key, of_uid) in LABELS {
            set(labels, key, json!(if of_uid { &own_uid } else { &own_name }));
        }
    }
    let selector = child_mut(spec, "selector").entry("matchLabels").or_insert_with(|| json!({}));
    if let Some(labels) = selector.as_object_mut() {
        set(labels, SELECTED, json!(own_uid));
    }
}

/// Whether a selector takes an object with those labels; a missing one takes nothing.
pub(super) fn selects(selector: Option<&Value>, labels: Option<&Value>) -> bool {
    let labelled = json!({ "metadata": { "labels": labels.unwrap_or(&json!({})) } });
    selector.is_some_and(|selector| LabelSelector::from_object(selector).matches(&labelled))
}

/// The labels and the selector of a new Job, if it has none of its own.
pub(super) fn validate(job: &Value, errors: &mut Vec<FieldError>) {
    let selector = at(job, "spec.selector");
    let Some(selector) = selector.filter(|_| at(job, "spec.manualSelector") != Some(&json!(true))) else {
        return;
    };
    if uid(job).is_empty() {
        errors.push(FieldError::required("metadata.uid", ""));
    }
    let nothing = Map::new();
    let labels = at(job, "spec.template.metadata.labels").and_then(Value::as_object).unwrap_or(&nothing);
    let mut wanted = Map::new();
    for (key, of_uid) in LABELS {
        let value = if of_uid { uid(job) } else { name(job) };
        wanted.insert(key.to_owned(), json!(value));
        let field = format!("spec.template.metadata.labels[{key}]");
        let detail = format!("must be '{value}'");
        match labels.get(key) {
            None => errors.push(FieldError::required(field, &detail)),
            Some(own) if own != value => {
                errors.push(FieldError::invalid(field, &Value::Object(labels.clone()), &detail));
            }
            Some(_) => {}
        }
    }
    let mut faults = Vec::new();
    crate::builtin::placement::validate_selector(Some(selector), "", &mut faults);
    if faults.is_empty() && !selects(Some(selector), Some(&Value::Object(wanted))) {
        let shown = crate::builtin::part::shown_selector(selector);
        errors.push(FieldError::invalid_shown("spec.selector", &shown, "`selector` not auto-generated"));
    }
}
