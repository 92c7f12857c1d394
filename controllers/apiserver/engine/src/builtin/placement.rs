//! Where a pod may run: affinity, spread, tolerations, gates.

use serde_json::{Map, Value, json};

use super::{items, meta, name, number, one_of};
use crate::field::FieldError;
use crate::object::{at, text_at};

const NOT_ZERO: &str = "must be greater than zero";
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// `schedulingGates` and `readinessGates` of the pod spec at `prefix`.
pub(super) fn validate_gates(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    for (index, gate) in items(spec, "readinessGates").iter().enumerate() {
        let path = format!("{prefix}readinessGates[{index}].conditionType");
        check_key(text_at(gate, "conditionType"), &path, errors);
    }
    let mut gates = Vec::new();
    for (index, gate) in items(spec, "schedulingGates").iter().enumerate() {
        let (path, gate) = (format!("{prefix}schedulingGates[{index}]"), text_at(gate, "name"));
        check_key(gate, &path, errors);
        if gates.contains(&gate) {
            errors.push(FieldError::duplicate(path, &json!(gate)));
        }
        gates.push(gate);
    }
}

/// `tolerations` of the pod spec at `prefix`.
pub(super) fn validate_tolerations(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    for (index, toleration) in items(spec, "tolerations").iter().enumerate() {
        validate_toleration(toleration, &format!("{prefix}tolerations[{index}]"), errors);
    }
}

/// Refuses the key of a label that is no qualified name.
pub(super) fn check_key(key: &str, path: &str, errors: &mut Vec<FieldError>) {
    name::check(key, path, name::qualified, errors);
}

/// Refuses an effect that no taint has.
pub(super) fn check_effect(holder: &Value, path: &str, errors: &mut Vec<FieldError>) {
    one_of(holder, &format!("{path}."), "effect", &EFFECTS, errors);
}

fn validate_toleration(toleration: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let get = |key: &str| text_at(toleration, key);
    let (key, operator, value, effect) = (get("key"), get("operator"), get("value"), get("effect"));
    let field = format!("{path}.operator");
    if !key.is_empty() {
        check_key(key, &format!("{path}.key"), errors);
    } else if operator != "Exists" {
        let detail =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.push(FieldError::invalid(field.clone(), &json!(operator), detail));
    }
    if number(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.push(FieldError::invalid(format!("{path}.effect"), &json!(effect), detail));
    }
    match operator {
        "" | "Equal" => {
            let faults = name::label_value(value);
            if !faults.is_empty() {
                errors.push(FieldError::invalid(field, &json!(value), &faults.join(";")));
            }
        }
        "Exists" if !value.is_empty() => {
            let detail = "value must be empty when `operator` is 'Exists'";
            errors.push(FieldError::invalid(field, &json!(value), detail));
        }
        "Exists" => {}
        other => {
            let known = ["Equal", "Exists", "Lt", "Gt"];
            let known = if known.contains(&other) { &known[..] } else { &known[..2] };
            errors.push(FieldError::not_supported(field, &json!(other), known));
        }
    }
    if !effect.is_empty() {
        check_effect(toleration, path, errors);
    }
}

/// A `metav1.LabelSelector` at `path`.
pub(super) fn validate_selector(selector: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    let Some(selector) = selector else { return };
    meta::validate_labels(selector.get("matchLabels"), &format!("{path}.matchLabels"), errors);
    for (index, term) in items(selector, "matchExpressions").iter().enumerate() {
        validate_requirement(term, false, true, &format!("{path}.matchExpressions[{index}]"), errors);
    }
}

/// A requirement of a selector; those of nodes compare numbers as well.
fn validate_requirement(
    term: &Value,
    of_nodes: bool,
    strict: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let (operator, values) = (text_at(term, "operator"), items(term, "values"));
    let field = format!("{path}.values");
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(field.clone(), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(field.clone(), detail));
        }
        "Gt" | "Lt" if of_nodes && values.len() != 1 => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.push(FieldError::required(field.clone(), detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        "Gt" | "Lt" if of_nodes => {}
        other => {
            let detail = "not a valid selector operator";
            errors.push(FieldError::invalid(format!("{path}.operator"), &json!(other), detail));
        }
    }
    check_key(text_at(term, "key"), &format!("{path}.key"), errors);
    for (index, value) in values.iter().enumerate().filter(|_| strict) {
        for fault in name::label_value(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(format!("{field}[{index}]"), value, &fault));
        }
    }
}

/// `affinity` of the pod spec at `prefix`.
pub(super) fn validate_affinity(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    let path = format!("{prefix}affinity");
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    if let Some(required) = at(spec, &format!("affinity.nodeAffinity.{REQUIRED}")) {
        validate_node_selector(required, &format!("{path}.nodeAffinity.{REQUIRED}"), errors);
    }
    for (index, term) in items(spec, &format!("affinity.nodeAffinity.{PREFERRED}")).iter().enumerate() {
        let path = format!("{path}.nodeAffinity.{PREFERRED}[{index}]");
        check_weight(term, &path, errors);
        let preference = term.get("preference").unwrap_or(&Value::Null);
        validate_node_term(preference, false, &format!("{path}.preference"), errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        for (index, term) in items(spec, &format!("affinity.{kind}.{REQUIRED}")).iter().enumerate() {
            validate_pod_term(term, &format!("{path}.{kind}.{REQUIRED}[{index}]"), errors);
        }
        for (index, term) in items(spec, &format!("affinity.{kind}.{PREFERRED}")).iter().enumerate() {
            let path = format!("{path}.{kind}.{PREFERRED}[{index}]");
            check_weight(term, &path, errors);
            let inner = term.get("podAffinityTerm").unwrap_or(&Value::Null);
            validate_pod_term(inner, &format!("{path}.podAffinityTerm"), errors);
        }
    }
}

/// A selector of nodes at `path`.
pub(super) fn validate_node_selector(selector: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (path, terms) = (format!("{path}.nodeSelectorTerms"), items(selector, "nodeSelectorTerms"));
    if terms.is_empty() {
        errors.push(FieldError::required(path.clone(), "must have at least one node selector term"));
    }
    for (index, term) in terms.iter().enumerate() {
        validate_node_term(term, true, &format!("{path}[{index}]"), errors);
    }
}

fn check_weight(term: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let weight = number(term, "weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        let detail = "must be in the range 1-100";
        errors.push(FieldError::invalid(format!("{path}.weight"), &json!(weight), detail));
    }
}

fn validate_node_term(term: &Value, strict: bool, path: &str, errors: &mut Vec<FieldError>) {
    for (index, one) in items(term, "matchExpressions").iter().enumerate() {
        validate_requirement(one, true, strict, &format!("{path}.matchExpressions[{index}]"), errors);
    }
    for (index, one) in items(term, "matchFields").iter().enumerate() {
        validate_field_requirement(one, &format!("{path}.matchFields[{index}]"), errors);
    }
}

/// A requirement on a field of a node, of which there is only the name.
fn validate_field_requirement(term: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (operator, values) = (text_at(term, "operator"), items(term, "values"));
    if !matches!(operator, "In" | "NotIn") {
        let detail = "not a valid selector operator";
        errors.push(FieldError::invalid(format!("{path}.operator"), &json!(operator), detail));
    } else if values.len() != 1 {
        let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
        errors.push(FieldError::required(format!("{path}.values"), detail));
    }
    let key = text_at(term, "key");
    if key != "metadata.name" {
        let detail = "not a valid field selector key";
        errors.push(FieldError::invalid(format!("{path}.key"), &json!(key), detail));
        return;
    }
    for (index, value) in values.iter().enumerate() {
        for fault in name::subdomain(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(format!("{path}.values[{index}]"), value, &fault));
        }
    }
}

fn validate_pod_term(term: &Value, path: &str, errors: &mut Vec<FieldError>) {
    validate_selector(term.get("labelSelector"), &format!("{path}.labelSelector"), errors);
    validate_selector(term.get("namespaceSelector"), &format!("{path}.namespaceSelector"), errors);
    for namespace in items(term, "namespaces") {
        for fault in name::label(namespace.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(format!("{path}.namespace"), namespace, &fault));
        }
    }
    validate_label_keys(term, path, errors);
    let key = text_at(term, "topologyKey");
    let field = format!("{path}.topologyKey");
    if key.is_empty() {
        errors.push(FieldError::required(field.clone(), "can not be empty"));
    }
    check_key(key, &field, errors);
}

/// `topologySpreadConstraints` of the pod spec at `prefix`.
pub(super) fn validate_spread(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    let all = items(spec, "topologySpreadConstraints");
    for (index, constraint) in all.iter().enumerate() {
        let path = format!("{prefix}topologySpreadConstraints[{index}]");
        let below = format!("{path}.");
        let skew = number(constraint, "maxSkew").unwrap_or(0);
        if skew <= 0 {
            errors.push(FieldError::invalid(format!("{path}.maxSkew"), &json!(skew), NOT_ZERO));
        }
        let (key, action) = (text_at(constraint, "topologyKey"), text_at(constraint, "whenUnsatisfiable"));
        if key.is_empty() {
            errors.push(FieldError::required(format!("{path}.topologyKey"), "can not be empty"));
        }
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        if !actions.contains(&action) {
            let field = format!("{path}.whenUnsatisfiable");
            errors.push(FieldError::not_supported(field, &json!(action), &actions));
        }
        let same = |other: &Value| {
            text_at(other, "topologyKey") == key && text_at(other, "whenUnsatisfiable") == action
        };
        if all.iter().skip(index + 1).any(same) {
            let field = format!("{path}.{{topologyKey, whenUnsatisfiable}}");
            errors.push(FieldError::duplicate(field, &json!(format!("{{{key}, {action}}}"))));
        }
        validate_domains(constraint, action, &path, errors);
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            one_of(constraint, &below, policy, &["Honor", "Ignore"], errors);
        }
        validate_label_keys(constraint, &path, errors);
        validate_selector(constraint.get("labelSelector"), &format!("{path}.labelSelector"), errors);
    }
}

/// The labels whose values a term takes from the pod itself; a selector of the term has the values already.
fn validate_label_keys(term: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let selector = term.get("labelSelector");
    for list in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys = items(term, list);
        if selector.is_none() && !keys.is_empty() {
            let why = "must not be specified when labelSelector is not set";
            errors.push(FieldError::forbidden(format!("{path}.{list}"), why));
            continue;
        }
        for (index, key) in keys.iter().enumerate() {
            check_key(key.as_str().unwrap_or_default(), &format!("{path}.{list}[{index}]"), errors);
        }
    }
    let keys = items(term, "matchLabelKeys");
    if let Some(selector) = selector {
        let labels = selector.get("matchLabels").and_then(Value::as_object);
        let mut known: Vec<&str> = labels.into_iter().flat_map(Map::keys).map(String::as_str).collect();
        for requirement in items(selector, "matchExpressions") {
            let key = text_at(requirement, "key");
            if let Some(index) = keys.iter().rposition(|own| own == key).filter(|_| known.contains(&key)) {
                let detail = "exists in both matchLabelKeys and labelSelector";
                errors.push(FieldError::invalid(format!("{path}[{index}]"), &json!(key), detail));
            }
            known.push(key);
        }
    }
    for (index, key) in keys.iter().enumerate() {
        if items(term, "mismatchLabelKeys").contains(key) {
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.push(FieldError::invalid(format!("{path}.matchLabelKeys[{index}]"), key, detail));
        }
    }
}

/// Puts the values of the pod's own labels into the selectors that name them.
pub(crate) fn take_own_labels(pod: &mut Value) {
    let labels = at(pod, "metadata.labels").and_then(Value::as_object).cloned().unwrap_or_default();
    let Some(spec) = pod.get_mut("spec") else { return };
    for path in ["/affinity/podAffinity", "/affinity/podAntiAffinity"] {
        let Some(affinity) = spec.pointer_mut(path) else { continue };
        for term in list_mut(affinity, "preferredDuringSchedulingIgnoredDuringExecution") {
            term.get_mut("podAffinityTerm").into_iter().for_each(|term| select_own(term, &labels));
        }
        for term in list_mut(affinity, "requiredDuringSchedulingIgnoredDuringExecution") {
            select_own(term, &labels);
        }
    }
    for constraint in list_mut(spec, "topologySpreadConstraints") {
        select_own(constraint, &labels);
    }
}

fn list_mut<'a>(holder: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    holder.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

fn select_own(term: &mut Value, labels: &Map<String, Value>) {
    let mut added = Vec::new();
    for (list, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in items(term, list).iter().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                added.push(json!({ "key": key, "operator": operator, "values": [value] }));
            }
        }
    }
    let Some(selector) = term.get_mut("labelSelector").and_then(Value::as_object_mut) else { return };
    if added.is_empty() {
        return;
    }
    let held = selector.entry("matchExpressions").or_insert_with(|| json!([]));
    if let Some(held) = held.as_array_mut() {
        held.extend(added);
    }
}

fn validate_domains(constraint: &Value, action: &str, path: &str, errors: &mut Vec<FieldError>) {
    let Some(least) = number(constraint, "minDomains") else { return };
    let field = format!("{path}.minDomains");
    if least <= 0 {
        errors.push(FieldError::invalid(field.clone(), &json!(least), NOT_ZERO));
    }
    if action != "DoNotSchedule" {
        let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
        errors.push(FieldError::invalid(field, &json!(least), &detail));
    }
}

/// Whether an object is there and has no entries.
pub(super) fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
}
