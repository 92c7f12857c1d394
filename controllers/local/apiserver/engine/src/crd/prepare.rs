//! What a server fills into a definition before it validates it.

use serde_json::{Map, Value, json};

use super::{at, list, text};

pub fn prepare_create(definition: &mut Value) {
    apply_defaults(definition);
    let stored: Vec<String> = storage_version(definition).into_iter().collect();
    if let Some(fields) = definition.as_object_mut() {
        let status = json!({
            "conditions": null, "acceptedNames": { "plural": "", "kind": "" }, "storedVersions": stored,
        });
        fields.insert("status".to_owned(), status);
    }
}

/// Fills in what a changed definition leaves out, and notes its storage version in `status.storedVersions`. The
/// status is expected to be that of the stored definition.
pub fn prepare_update(definition: &mut Value) {
    apply_defaults(definition);
    let Some(storage) = storage_version(definition) else { return };
    let Some(status) = object_in(definition, "status") else { return };
    let stored = status.entry("storedVersions").or_insert_with(|| json!([]));
    if let Some(stored) = stored.as_array_mut()
        && !stored.iter().any(|version| *version == storage)
    {
        stored.push(Value::String(storage));
    }
}

/// Defaults of `spec`: `singular`, `listKind`, `conversion`, the port of a conversion service.
pub fn apply_defaults(definition: &mut Value) {
    let kind = text(at(definition, &["spec", "names"]), "kind");
    let Some(spec) = object_in(definition, "spec") else { return };
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(false)) {
        spec.remove("preserveUnknownFields");
    }
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        fill(names, "singular", &kind.to_lowercase());
        fill(names, "listKind", &if kind.is_empty() { String::new() } else { format!("{kind}List") });
    }
    let conversion = spec.entry("conversion").or_insert_with(|| json!({ "strategy": "None" }));
    if let Some(service) =
        conversion.pointer_mut("/webhook/clientConfig/service").and_then(Value::as_object_mut)
    {
        service.entry("port").or_insert_with(|| json!(443));
    }
}

fn fill(fields: &mut Map<String, Value>, key: &str, default: &str) {
    let missing = fields.get(key).and_then(Value::as_str).unwrap_or_default().is_empty();
    if missing && !default.is_empty() {
        fields.insert(key.to_owned(), Value::String(default.to_owned()));
    }
}

fn object_in<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    value.get_mut(key).and_then(Value::as_object_mut)
}

fn storage_version(definition: &Value) -> Option<String> {
    let versions = list(at(definition, &["spec"]), "versions");
    versions.iter().find(|version| at(version, &["storage"]) == true).map(|version| text(version, "name"))
}
