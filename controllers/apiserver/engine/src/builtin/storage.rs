//! Persistent volumes and storage classes.

use std::collections::{BTreeMap, BTreeSet};

use neonvm_types::Quantity;
use serde_json::{Value, json};

use super::volume::{check_class, check_modes};
use super::{diff, internal, items, name, one_of, placement, resources, unchanged};
use crate::field::FieldError;
use crate::object::{at, text_at};
use crate::schema::decode::OF_VOLUMES;

pub(super) fn validate_volume(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = at(object, "spec").unwrap_or(&Value::Null);
    check_modes(object, "", "", errors);
    validate_capacity(spec, errors);
    one_of(spec, "spec.", "persistentVolumeReclaimPolicy", &["Delete", "Recycle", "Retain"], errors);
    validate_affinity(spec, errors);
    if let Some(local) = spec.get("local") {
        let path = text_at(local, "path");
        if path.is_empty() {
            errors.push(FieldError::required("spec.local.path", ""));
        }
        super::part::check_steps(path, "spec.local.path", errors);
        if at(spec, "nodeAffinity").is_none() {
            errors.push(FieldError::required("spec.nodeAffinity", "Local volume requires node affinity"));
        }
    }
    let beside = spec.as_object().into_iter().flatten().all(|(key, _)| OF_VOLUMES.contains(&key.as_str()));
    if beside {
        errors.push(FieldError::required("spec", "must specify a volume type"));
    }
    check_class(spec, errors);
    one_of(spec, "spec.", "volumeMode", &["Block", "Filesystem"], errors);
}

fn validate_capacity(spec: &Value, errors: &mut Vec<FieldError>) {
    let capacity = resources::amounts(spec, "capacity");
    if capacity.is_empty() {
        errors.push(FieldError::required("spec.capacity", ""));
    }
    if capacity.len() > 1 || !capacity.contains_key("storage") {
        let value = spec.get("capacity").unwrap_or(&Value::Null);
        errors.push(FieldError::not_supported("spec.capacity", value, &["storage"]));
    }
    for (resource, amount) in &capacity {
        let field = format!("spec.capacity[{resource}]");
        if amount.sign() < 0 {
            let units = json!(i64::try_from(amount.units_rounded_up()).unwrap_or(i64::MIN));
            errors.push(FieldError::invalid(field.clone(), &units, "must be a valid resource quantity"));
        }
        if *amount <= Quantity::from_units(0, amount.format()) {
            errors.push(FieldError::invalid(field, &json!(amount.to_string()), "must be greater than zero"));
        }
    }
}

fn validate_affinity(spec: &Value, errors: &mut Vec<FieldError>) {
    let Some(affinity) = spec.get("nodeAffinity") else { return };
    match affinity.get("required") {
        Some(required) => {
            placement::validate_node_selector(required, "spec.nodeAffinity.required", errors);
        }
        None => errors.push(FieldError::required(
            "spec.nodeAffinity.required",
            "must specify required node constraints",
        )),
    }
}

/// A volume that replaces `live`: where it lies stays.
pub(super) fn validate_volume_update(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    let mut spec = at(object, "spec").cloned().unwrap_or_default();
    const LATER: &str = "controllerExpandSecretRef";
    // This secret may be named later.
    if let (Some(new), Some(old)) = (spec.get_mut("csi"), at(live, "spec.csi"))
        && old.get(LATER).is_none()
    {
        crate::object::drop_key(new, LATER);
    }
    let source = |spec: Option<&Value>| internal::held("PersistentVolumeSource", spec);
    let (new, old) = (source(Some(&spec)), source(at(live, "spec")));
    if new != old {
        let changed = diff::between(&old, &new);
        let why = format!("spec.persistentvolumesource is immutable after creation\n{changed}");
        errors.push(FieldError::forbidden("spec.persistentvolumesource", &why));
    }
    unchanged::unchanged_as("spec.volumeMode", "volumeMode", object, live, errors);
    let affinity = |volume: &Value| {
        at(volume, "spec.nodeAffinity").map(|own| internal::held("VolumeNodeAffinity", Some(own)))
    };
    if at(live, "spec.nodeAffinity").is_some() && affinity(object) != affinity(live) {
        let shown = affinity(object).map_or_else(|| "null".to_owned(), |own| own.shown());
        let detail = "field is immutable, except for updating from beta label to GA";
        errors.push(FieldError::invalid_shown("nodeAffinity", &shown, detail));
    }
    let class = "spec.volumeAttributesClassName";
    if at(live, class).is_some() && at(object, class).is_none() {
        errors.push(FieldError::forbidden(class, "update from non-nil value to nil is forbidden"));
    }
}

/// Bytes that all parameters of a class together may take.
const MAX_PARAMETERS: usize = 256 << 10;

pub(super) fn validate_class(object: &Value, errors: &mut Vec<FieldError>) {
    let provisioner = text_at(object, "provisioner");
    if provisioner.is_empty() {
        errors.push(FieldError::required("provisioner", ""));
    } else {
        let lower = provisioner.to_lowercase();
        name::check(&lower, "provisioner", name::qualified, errors);
    }
    let parameters = object.get("parameters").and_then(Value::as_object).into_iter().flatten();
    let mut size = 0;
    for (key, value) in parameters {
        if key.is_empty() {
            errors.push(FieldError::invalid("parameters", &json!(""), "field can not be empty."));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > MAX_PARAMETERS {
        errors.push(FieldError::too_long("parameters", MAX_PARAMETERS as u64));
    }
    if !text_at(object, "reclaimPolicy").is_empty() {
        one_of(object, "", "reclaimPolicy", &["Delete", "Retain"], errors);
    }
    one_of(object, "", "volumeBindingMode", &["Immediate", "WaitForFirstConsumer"], errors);
    validate_topologies(object, errors);
}

pub(super) fn validate_class_update(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    unchanged::unchanged("parameters", object, live, errors);
    unchanged::unchanged_text("provisioner", object, live, errors);
    unchanged::unchanged("reclaimPolicy", object, live, errors);
    unchanged::unchanged("volumeBindingMode", object, live, errors);
}

/// `allowedTopologies` of a storage class.
fn validate_topologies(object: &Value, errors: &mut Vec<FieldError>) {
    let all = items(object, "allowedTopologies");
    // As the real server has it: an empty term is equal to each term that it has not looked at.
    let mut before = vec![BTreeMap::new(); all.len()];
    for (index, term) in all.iter().enumerate() {
        let path = format!("allowedTopologies[{index}].matchLabelExpressions");
        let mut own: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (index, one) in items(term, "matchLabelExpressions").iter().enumerate() {
            let (path, key) = (format!("{path}[{index}]"), text_at(one, "key"));
            let values = topology_values(one, &path, errors);
            placement::check_key(key, &format!("{path}.key"), errors);
            if own.insert(key.to_owned(), values).is_some() {
                errors.push(FieldError::duplicate(format!("{path}.key"), &json!(key)));
            }
        }
        for _ in before.iter().filter(|other| **other == own) {
            errors.push(FieldError::duplicate(path.clone(), &json!("")));
        }
        before.push(own);
    }
}

fn topology_values(one: &Value, path: &str, errors: &mut Vec<FieldError>) -> BTreeSet<String> {
    let (mut seen, values) = (BTreeSet::new(), items(one, "values"));
    if values.is_empty() {
        errors.push(FieldError::required(format!("{path}.values"), ""));
    }
    for (index, value) in values.iter().enumerate() {
        if !seen.insert(value.as_str().unwrap_or_default().to_owned()) {
            errors.push(FieldError::duplicate(format!("{path}.values[{index}]"), value));
        }
    }
    seen
}
