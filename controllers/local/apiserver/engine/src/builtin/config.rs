//! ConfigMaps and Secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::field::{FieldError, FieldReason};

/// Bytes that the data of one object may take.
const MAX_DATA: usize = 1 << 20;

/// `stringData` goes into `data`.
pub(super) fn default_secret(secret: &mut Map<String, Value>) {
    let Some(Value::Object(plain)) = secret.remove("stringData") else { return };
    if plain.is_empty() {
        return;
    }
    if let Some(data) = secret.entry("data").or_insert_with(|| json!({})).as_object_mut() {
        for (key, value) in plain {
            data.insert(key, json!(STANDARD.encode(value.as_str().unwrap_or_default())));
        }
    }
}

fn map_of<'a>(object: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a str)> {
    let map = object.get(key).and_then(Value::as_object).into_iter().flatten();
    map.map(|(key, value)| (key, value.as_str().unwrap_or_default()))
}

fn decoded_len(text: &str) -> usize {
    let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

fn check_size(size: usize, errors: &mut Vec<FieldError>) {
    if size > MAX_DATA {
        let detail = format!("may not be more than {MAX_DATA} bytes");
        errors.push(FieldError::bare(FieldReason::TooLong, "", &detail));
    }
}

pub(super) fn validate_config_map(object: &Value, errors: &mut Vec<FieldError>) {
    let binary = object.get("binaryData").and_then(Value::as_object);
    for (key, _) in map_of(object, "data") {
        if binary.is_some_and(|binary| binary.contains_key(key)) {
            let detail = "duplicate of key present in binaryData";
            errors.push(FieldError::invalid(format!("data[{key}]"), &key, detail));
        }
    }
    let text: usize = map_of(object, "data").map(|(_, value)| value.len()).sum();
    let bytes: usize = map_of(object, "binaryData").map(|(_, value)| decoded_len(value)).sum();
    check_size(text + bytes, errors);
}

fn needed_keys(kind: &str) -> &'static [&'static str] {
    match kind {
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        _ => &[],
    }
}

pub(super) fn validate_secret(object: &Value, errors: &mut Vec<FieldError>) {
    check_size(map_of(object, "data").map(|(_, value)| decoded_len(value)).sum(), errors);
    let kind = object.get("type").and_then(Value::as_str).unwrap_or_default();
    let value =
        |key: &str| map_of(object, "data").find(|(name, _)| name.as_str() == key).map(|(_, value)| value);
    for key in needed_keys(kind) {
        let field = format!("data[{key}]");
        match value(key) {
            None => errors.push(FieldError::required(field, "")),
            Some(text) if key.starts_with(".docker") => {
                let bytes = STANDARD.decode(text).unwrap_or_default();
                if let Err(why) = serde_json::from_slice::<Value>(&bytes) {
                    let redacted = json!("<secret contents redacted>");
                    errors.push(FieldError::invalid(field, &redacted, &why.to_string()));
                }
            }
            Some(_) => {}
        }
    }
    if kind == "kubernetes.io/basic-auth" && value("username").is_none() && value("password").is_none() {
        errors.push(FieldError::required("data[username]", ""));
        errors.push(FieldError::required("data[password]", ""));
    }
    if kind == "kubernetes.io/service-account-token" {
        let annotation = "kubernetes.io/service-account.name";
        let account =
            object.get("metadata").and_then(|meta| meta.get("annotations")?.get(annotation)?.as_str());
        if account.unwrap_or_default().is_empty() {
            errors.push(FieldError::required(format!("metadata.annotations[{annotation}]"), ""));
        }
    }
}

/// Once `immutable` is set, neither it nor the data changes.
pub(super) fn validate_immutable(
    object: &Value,
    live: &Value,
    fields: &[&str],
    errors: &mut Vec<FieldError>,
) {
    let fixed = |object: &Value| object.get("immutable").and_then(Value::as_bool).unwrap_or(false);
    if !fixed(live) {
        return;
    }
    let why = "field is immutable when `immutable` is set";
    if !fixed(object) {
        errors.push(FieldError::forbidden("immutable", why));
    }
    for field in fields.iter().filter(|field| object.get(**field) != live.get(**field)) {
        errors.push(FieldError::forbidden(*field, why));
    }
}

/// Priorities above these are the system's.
const HIGHEST_PRIORITY: i64 = 1_000_000_000;

pub(super) fn validate_priority_class(object: &Value, errors: &mut Vec<FieldError>) {
    let own = crate::object::name(object).starts_with("system-");
    if super::number(object, "value").is_some_and(|value| value > HIGHEST_PRIORITY) && !own {
        let why = format!("maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}");
        errors.push(FieldError::forbidden("value", &why));
    }
}
