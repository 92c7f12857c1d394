//! Deployments, ReplicaSets, StatefulSets and DaemonSets.

use serde_json::{Map, Value, json};

use super::{items, number, pod, selector, set};
use crate::field::FieldError;
use crate::object::{at, is_word, text_at};
use crate::selector::LabelSelector;

/// Claims of a StatefulSet are shown as whole objects.
pub(super) fn default_claim_templates(spec: &mut Map<String, Value>) {
    for claim in spec.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(claim) = claim.as_object_mut() {
            claim.insert("apiVersion".to_owned(), json!("v1"));
            claim.insert("kind".to_owned(), json!("PersistentVolumeClaim"));
        }
    }
}

/// The template's generation of a DaemonSet lives on in an annotation.
pub(super) fn default_template_generation(object: &mut Map<String, Value>) {
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    let annotations =
        metadata.as_object_mut().map(|map| map.entry("annotations").or_insert_with(|| json!({})));
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        set(annotations, "deprecated.daemonset.template.generation", json!("1"));
    }
}

/// One of the kinds that keep pods running: its selector takes the pods of its template, which run until they are
/// deleted.
pub(super) fn validate(kind: &str, object: &Value, errors: &mut Vec<FieldError>) {
    let path = "spec.selector";
    let given = at(object, path);
    let before = errors.len();
    selector::validate(given, path, errors);
    let is_valid = errors.len() == before;
    if !is_valid {
        let value = given.unwrap_or(&Value::Null);
        errors.push(FieldError::invalid(path, value, "invalid label selector"));
    }
    if given.is_some_and(|given| given == &json!({})) {
        let detail = format!("empty selector is invalid for {}", kind.to_lowercase());
        errors.push(FieldError::invalid(path, &json!({}), &detail));
    }
    if text_at(object, "spec.strategy.type") == "Recreate"
        && at(object, "spec.strategy.rollingUpdate").is_some()
    {
        let detail = "may not be specified when strategy `type` is 'Recreate'";
        errors.push(FieldError::forbidden("spec.strategy.rollingUpdate", detail));
    }
    for strategy in ["spec.strategy", "spec.updateStrategy"] {
        for key in ["maxUnavailable", "maxSurge"] {
            check_share(object, &format!("{strategy}.rollingUpdate.{key}"), errors);
        }
    }
    if given.is_none() {
        errors.push(FieldError::required(path, ""));
    }
    let labels = at(object, "spec.template.metadata.labels");
    let labelled = json!({"metadata": {"labels": labels.unwrap_or(&json!({}))}});
    if is_valid && !given.is_some_and(|given| LabelSelector::from_object(given).matches(&labelled)) {
        let detail = "`selector` does not match template `labels`";
        let value = labels.unwrap_or(&Value::Null);
        errors.push(FieldError::invalid("spec.template.metadata.labels", value, detail));
    }
    let spec = "spec.template.spec";
    pod::validate_spec(&with_claims(kind, object), &format!("{spec}."), errors);
    let policy = text_at(object, &format!("{spec}.restartPolicy"));
    if policy != "Always" {
        errors.push(FieldError::not_supported(format!("{spec}.restartPolicy"), &policy, &["Always"]));
    }
}

fn check_share(object: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let detail = match at(object, path) {
        Some(Value::String(text)) => {
            let digits = text.strip_suffix('%').filter(|digits| !digits.is_empty());
            let is_percent = digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
            (!is_percent)
                .then_some("a valid percent string must be a numeric string followed by an ending '%'")
        }
        Some(number) => number.as_i64().filter(|number| *number < 0).map(|_| super::NOT_NEGATIVE),
        None => None,
    };
    if let (Some(detail), Some(value)) = (detail, at(object, path)) {
        errors.push(FieldError::invalid(path, value, detail));
    }
}

/// The pod spec of the template; that of a StatefulSet has the volumes of its claims.
fn with_claims(kind: &str, object: &Value) -> Value {
    let mut spec = at(object, "spec.template.spec").cloned().unwrap_or_default();
    let claims = items(object, "spec.volumeClaimTemplates");
    if kind != "StatefulSet" || claims.is_empty() {
        return spec;
    }
    let names: Vec<&str> = claims.iter().map(crate::object::name).collect();
    let of_claim = |name: &&str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    let mut volumes: Vec<Value> = names.iter().map(of_claim).collect();
    let own = items(&spec, "volumes").iter().filter(|volume| !names.contains(&text_at(volume, "name")));
    volumes.extend(own.cloned());
    crate::object::set(&mut spec, "volumes", Value::Array(volumes));
    spec
}

pub(super) fn validate_stateful_set_update(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    const FREE: &str = "replicas ordinals template updateStrategy revisionHistoryLimit \
        persistentVolumeClaimRetentionPolicy minReadySeconds";
    let fixed = |object: &Value| {
        let spec = object.get("spec").and_then(Value::as_object).into_iter().flatten();
        let rest = spec.filter(|(key, _)| !is_word(FREE, key));
        rest.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>()
    };
    if fixed(object) != fixed(live) {
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                   'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                   'minReadySeconds' are forbidden";
        errors.push(FieldError::forbidden("spec", why));
    }
}

pub(super) fn validate_autoscaler(object: &Value, errors: &mut Vec<FieldError>) {
    let path = "spec.scaleTargetRef.";
    let target = at(object, "spec.scaleTargetRef").unwrap_or(&Value::Null);
    if text_at(target, "apiVersion").is_empty() {
        let detail = "apiVersion must specify API group";
        errors.push(FieldError::invalid(format!("{path}apiVersion"), "", detail));
    }
    let number = |path: &str| number(object, path);
    let (least, most) = (number("spec.minReplicas").unwrap_or(1), number("spec.maxReplicas").unwrap_or(0));
    if most < 1 {
        errors.push(FieldError::required("spec.maxReplicas", "must be set and greater than 0"));
    }
    if most < least {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid("spec.maxReplicas", &most, detail));
    }
}
