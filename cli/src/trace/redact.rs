//! JSON of the API without data of secrets, tokens, passwords and private keys. Pure.

use serde_json::{Map, Value};

/// Takes out what is secret. `target`: path and query of the request, which decide about bodies that do not name their kind.
pub(super) fn redact(target: &str, value: &mut Value) {
    let path = target.split('?').next().unwrap_or_default();
    let of_secrets = path.split('/').any(|word| word == "secrets");
    walk(value, of_secrets);
}

fn walk(value: &mut Value, is_secret: bool) {
    match value {
        Value::Object(fields) => object(fields, is_secret),
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, is_secret)),
        Value::String(text) if text.contains("PRIVATE KEY-----") => hide(value),
        _ => {}
    }
}

fn object(fields: &mut Map<String, Value>, is_secret: bool) {
    let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default();
    let is_secret = is_secret || matches!(kind, "Secret" | "SecretList");
    // A variable of a workload, and an operation of a JSON patch of a secret.
    let names_secret = fields.get("name").and_then(Value::as_str).is_some_and(is_secret_name);
    let patches = is_secret && fields.contains_key("op");
    for (key, value) in fields {
        match key.as_str() {
            "data" | "stringData" if is_secret => hide_all(value),
            "value" if names_secret || patches => hide_all(value),
            "kubectl.kubernetes.io/last-applied-configuration" => hide(value),
            key if value.is_string() && is_secret_name(key) => hide(value),
            _ => walk(value, is_secret),
        }
    }
}

/// Whether what has this name must not be shown.
fn is_secret_name(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let ends = ["token", "password", "passwd", "passphrase", "secretkey", "privatekey", "keydata", "apikey"];
    ends.iter().any(|end| plain.ends_with(end))
}

/// Hides each value of an object, or one value.
fn hide_all(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(hide),
        Value::Null => {}
        value => hide(value),
    }
}

fn hide(value: &mut Value) {
    let length = value.as_str().map_or_else(|| value.to_string().len(), str::len);
    *value = Value::String(format!("REDACTED ({length} bytes)"));
}
