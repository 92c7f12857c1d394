//! Objects as they are written in files.

pub use neonvm_api::merge_patch::merge;
use std::path::Path;

use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, ValidationDirective};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

use crate::eventually;

/// The documents of a file of `deploy`.
#[must_use]
pub fn documents(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_multiple(&text).unwrap()
}

/// The client of a kind, in the object's namespace if it has one.
#[must_use]
pub fn client_of(client: &Client, object: &Value) -> Api<DynamicObject> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str);
    let version = text("/apiVersion").unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("/kind").unwrap()));
    match text("/metadata/namespace") {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    }
}

/// Applies an object as `kubectl apply --server-side --validate=strict` does.
pub async fn apply(client: &Client, object: &Value) {
    let mut params = PatchParams::apply("test");
    params.field_validation = Some(ValidationDirective::Strict);
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap();
    client_of(client, object).patch(name, &params, &Patch::Apply(object)).await.unwrap();
}

/// Defines kinds and waits until they are served.
pub async fn define(client: &Client, definitions: Vec<Value>) {
    for definition in &definitions {
        apply(client, definition).await;
    }
    for definition in &definitions {
        let api = client_of(client, definition);
        let name = definition.pointer("/metadata/name").and_then(Value::as_str).unwrap();
        eventually(&format!("{name} is served"), async || {
            let seen = api.get(name).await.unwrap();
            let conditions = seen.data.pointer("/status/conditions").and_then(Value::as_array)?;
            let is =
                |condition: &Value, key: &str, value: &str| condition.get(key).is_some_and(|v| v == value);
            conditions.iter().any(|c| is(c, "type", "Established") && is(c, "status", "True")).then_some(())
        })
        .await;
    }
}
