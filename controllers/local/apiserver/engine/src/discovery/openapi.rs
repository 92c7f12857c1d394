//! OpenAPI documents, of version 3, written from the schemas: one per group version.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::engine::Engine;
use crate::kinds::{Kind, Kinds, Verbs};
use crate::object;
use crate::render::to_bytes;
use crate::schema::builtin::QUANTITY;
use crate::schema::{JsonType, ListType, Schema};

const MAX_DEPTH: usize = 64;

const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

/// Type, field, and the field's permitted values, which the types of `k8s-openapi` do not contain.
const ENUMERATIONS: [(&str, &str, &[&str]); 1] =
    [("io.k8s.api.core.v1.ImageVolumeSource", "pullPolicy", &["Always", "IfNotPresent", "Never"])];

/// The `/openapi/v3` index: one entry per document, with a hash that changes when it does.
pub(super) fn index(engine: &Engine) -> Value {
    let mut paths = Map::new();
    for (group, versions) in engine.kinds.groups() {
        for version in versions {
            let name = document_name(group, version);
            paths.insert(name.clone(), entry(engine, &name));
        }
    }
    paths.insert("version".into(), entry(engine, "version"));
    json!({ "paths": paths })
}

fn entry(engine: &Engine, name: &str) -> Value {
    // The epoch stands for the content, because documents are made only when a client requests them.
    let seed = format!("{name} {}", engine.kinds.fingerprint(name));
    let hash = seed.bytes().fold(0xcbf2_9ce4_8422_2325_u128, |sum, byte| {
        (sum ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    json!({ "serverRelativeURL": format!("/openapi/v3/{name}?hash={hash:032X}{hash:032X}") })
}

fn document_name(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// One document of version 3.
pub(super) fn v3(kinds: &Kinds, name: &str) -> Option<Bytes> {
    if name == "version" {
        return Some(to_bytes(&json!({ "openapi": "3.0.0", "info": info(), "paths": {
            "/version/": { "get": { "description": "get the version", "operationId": "getCodeVersion" } } } })));
    }
    let found: Vec<&Kind> = kinds
        .all()
        .map(AsRef::as_ref)
        .filter(|kind| document_name(&kind.group, &kind.version) == name)
        .collect();
    if found.is_empty() {
        return None;
    }
    let mut writer = Writer::default();
    let mut paths = Map::new();
    for kind in found {
        writer.kind(kind);
        kind_paths(kind, &mut paths);
    }
    let text = "A change to an object, in the form that the media type of the request names.";
    writer.schemas.insert(PATCH.to_owned(), json!({ "type": "object", "description": text }));
    let schemas: Map<String, Value> = writer.schemas.into_iter().collect();
    // `to_bytes` puts kind and apiVersion first; this document has neither.
    let document =
        json!({ "openapi": "3.0.0", "info": info(), "paths": paths, "components": { "schemas": schemas } });
    serde_json::to_vec(&document).ok().map(Bytes::from)
}

fn info() -> Value {
    json!({ "title": "Kubernetes", "version": super::VERSION.2 })
}

const ROOT: &str = "#/components/schemas/";

#[derive(Default)]
struct Writer {
    schemas: BTreeMap<String, Value>,
}

fn reversed(group: &str) -> String {
    group.split('.').rev().collect::<Vec<_>>().join(".")
}

fn type_name(kind: &Kind) -> String {
    match (&kind.custom, &kind.schema().type_name) {
        (None, Some(name)) => name.clone(),
        _ => format!("{}.{}.{}", reversed(&kind.group), kind.version, kind.kind),
    }
}

fn gvk(kind: &Kind, name: &str) -> Value {
    json!({ "group": kind.group, "version": kind.version, "kind": name })
}

impl Writer {
    fn kind(&mut self, kind: &Kind) {
        let name = type_name(kind);
        let mut body = self.body(kind.schema(), 0);
        object::set(&mut body, "x-kubernetes-group-version-kind", json!([gvk(kind, &kind.kind)]));
        if kind.custom.is_some() {
            self.with_header(&mut body);
        }
        self.schemas.insert(name.clone(), body);
        if kind.verbs != Verbs::Create {
            let list = json!({ "type": "object", "required": ["items"],
                "properties": { "apiVersion": { "type": "string" }, "kind": { "type": "string" },
                    "metadata": { "type": "object" },
                    "items": { "type": "array", "items": { "$ref": format!("{ROOT}{name}") } } },
                "x-kubernetes-group-version-kind": [gvk(kind, &kind.list_kind)] });
            self.schemas.insert(format!("{name}List"), list);
        }
    }

    /// `apiVersion`, `kind` and `metadata` of a custom kind, as every object has them.
    fn with_header(&mut self, body: &mut Value) {
        let meta = crate::schema::builtin::object_meta();
        let reference = self.node(&meta, 0);
        let properties = crate::object::child_mut(body, "properties");
        for (key, text) in [
            ("apiVersion", "Version of the schema that this object follows, as group/version."),
            ("kind", "The kind of this object."),
        ] {
            properties.insert(key.into(), json!({ "type": "string", "description": text }));
        }
        properties.insert("metadata".into(), reference);
    }

    /// A reference to a named type, or the node itself.
    fn node(&mut self, schema: &Schema, depth: usize) -> Value {
        let Some(name) = schema.type_name.clone() else { return self.body(schema, depth) };
        if !self.schemas.contains_key(&name) {
            // Marked before it is written: a type may contain itself.
            self.schemas.insert(name.clone(), Value::Null);
            // The node may carry the description of the field it stands at; the type has its own.
            let own = crate::schema::builtin::named(&name);
            let body = self.body(own.as_deref().unwrap_or(schema), 0);
            self.schemas.insert(name.clone(), body);
        }
        let reference = json!({ "$ref": format!("{ROOT}{name}") });
        let own = crate::schema::builtin::named(&name);
        if schema.description.is_empty() || own.is_some_and(|own| own.description == schema.description) {
            return reference;
        }
        json!({ "description": schema.description, "allOf": [reference] })
    }

    fn either(schema: &Schema, map: &mut Map<String, Value>) {
        let number = match schema.type_name.as_deref() {
            Some(QUANTITY) => "number",
            Some(_) if schema.int_or_string => {
                map.insert("format".into(), json!("int-or-string"));
                "integer"
            }
            _ => return,
        };
        map.insert("oneOf".into(), json!([{ "type": number }, { "type": "string" }]));
    }

    fn body(&mut self, schema: &Schema, depth: usize) -> Value {
        let mut map = Map::new();
        if depth > MAX_DEPTH {
            return Value::Object(map);
        }
        match schema.json_type.name() {
            "" => Self::either(schema, &mut map),
            name => drop(map.insert("type".into(), json!(name))),
        }
        if !schema.description.is_empty() {
            map.insert("description".into(), json!(schema.description));
        }
        if !schema.properties.is_empty() {
            let mut properties: Map<String, Value> = schema
                .properties
                .iter()
                .map(|(key, child)| (key.clone(), self.node(child, depth + 1)))
                .collect();
            let owner = schema.type_name.as_deref().unwrap_or_default();
            for (_, field, values) in ENUMERATIONS.iter().filter(|(name, ..)| *name == owner) {
                if let Some(property) = properties.get_mut(*field) {
                    object::set(property, "enum", json!(values));
                }
            }
            map.insert("properties".into(), Value::Object(properties));
        }
        if !schema.required.is_empty() {
            map.insert("required".into(), json!(schema.required));
        }
        if let Some(child) = &schema.additional {
            let child = self.node(child, depth + 1);
            map.insert("additionalProperties".into(), child);
        }
        if let Some(child) = &schema.items {
            let child = self.node(child, depth + 1);
            map.insert("items".into(), child);
        }
        if let Some(default) = &schema.default {
            map.insert("default".into(), default.clone());
        }
        if let Some(constraints) = &schema.constraints {
            if let Some(format) = &constraints.format {
                map.insert("format".into(), json!(format));
            }
            if let Some(values) = &constraints.enumeration {
                map.insert("enum".into(), json!(values));
            }
        }
        extensions(schema, &mut map);
        Value::Object(map)
    }
}

fn extensions(schema: &Schema, map: &mut Map<String, Value>) {
    match &schema.list_type {
        ListType::Map(keys) => {
            map.insert("x-kubernetes-list-type".into(), json!("map"));
            map.insert("x-kubernetes-list-map-keys".into(), json!(keys));
        }
        ListType::Set => drop(map.insert("x-kubernetes-list-type".into(), json!("set"))),
        ListType::Atomic if schema.json_type == JsonType::Array => {
            map.insert("x-kubernetes-list-type".into(), json!("atomic"));
        }
        ListType::Atomic => {}
    }
    if schema.map_atomic {
        map.insert("x-kubernetes-map-type".into(), json!("atomic"));
    }
    if let Some(key) = &schema.patch.merge_key {
        map.insert("x-kubernetes-patch-merge-key".into(), json!(key));
    }
    let strategy = match (schema.patch.merge, schema.patch.retain_keys) {
        (true, true) => "merge,retainKeys",
        (true, false) => "merge",
        (false, true) => "retainKeys",
        (false, false) => "",
    };
    if !strategy.is_empty() {
        map.insert("x-kubernetes-patch-strategy".into(), json!(strategy));
    }
    if schema.preserve_unknown && schema.json_type == JsonType::Object {
        map.insert("x-kubernetes-preserve-unknown-fields".into(), json!(true));
    }
    if schema.int_or_string && schema.type_name.is_none() {
        map.insert("x-kubernetes-int-or-string".into(), json!(true));
    }
}

fn kind_paths(kind: &Kind, paths: &mut Map<String, Value>) {
    let base = document_name(&kind.group, &kind.version);
    let place = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
    let collection = format!("/{base}{place}/{}", kind.plural);
    let body = json!({ "$ref": format!("{ROOT}{}", type_name(kind)) });
    let all: &[(&str, &str)] = match kind.verbs {
        Verbs::All => &[("get", "list"), ("post", "post"), ("delete", "deletecollection")],
        Verbs::Create => &[("post", "post")],
    };
    let of = |list: &[(&str, &str)], sub: &str| -> Value {
        let operation = |action: &str| operation(kind, action, sub, &body);
        let mut item: Map<String, Value> =
            list.iter().map(|(method, action)| ((*method).to_owned(), operation(action))).collect();
        let names: Vec<&str> = if kind.namespaced { vec!["namespace"] } else { Vec::new() };
        item.insert("parameters".into(), parameters(&names));
        Value::Object(item)
    };
    paths.insert(collection.clone(), of(all, ""));
    if kind.verbs == Verbs::Create {
        return;
    }
    let one: &[(&str, &str)] = match kind.verbs {
        Verbs::All => &[("get", "get"), ("put", "put"), ("patch", "patch"), ("delete", "delete")],
        Verbs::Create => &[],
    };
    paths.insert(format!("{collection}/{{name}}"), of(one, ""));
    let described = |name: &str| matches!(name, "resize" | "scale" | "status");
    for sub in kind.subresources.iter().filter(|sub| described(&sub.name)) {
        let list = [("get", "get"), ("put", "put"), ("patch", "patch")];
        paths.insert(format!("{collection}/{{name}}/{}", sub.name), of(&list, &sub.name));
    }
    if kind.namespaced {
        paths.insert(format!("/{base}/{}", kind.plural), of(&[("get", "list")], ""));
    }
}

fn parameters(names: &[&str]) -> Value {
    let one =
        |name: &&str| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } });
    names.iter().map(one).collect()
}

fn query_options(action: &str) -> Value {
    let names: &[&str] = match action {
        "post" | "put" => &["dryRun", "fieldManager", "fieldValidation"],
        "patch" => &["dryRun", "fieldManager", "fieldValidation", "force"],
        "list" => &["labelSelector", "fieldSelector", "limit", "continue", "watch"],
        "delete" => &["dryRun", "gracePeriodSeconds", "propagationPolicy"],
        _ => &[],
    };
    let one = |name: &&str| json!({ "name": name, "in": "query", "schema": { "type": "string", "uniqueItems": true } });
    names.iter().map(one).collect()
}

/// `readCoreV1NamespacedPodResize`: what is done, to which kind, through which subresource.
fn operation_id(kind: &Kind, action: &str, sub: &str) -> String {
    let verb = match action {
        "get" => "read",
        "post" => "create",
        "put" => "replace",
        "deletecollection" => "deleteCollection",
        other => other,
    };
    let group = if kind.group.is_empty() { "core" } else { kind.group.trim_end_matches(".k8s.io") };
    let place = if kind.namespaced { "namespaced" } else { "" };
    let parts = group.split('.').chain([kind.version.as_str(), place, kind.kind.as_str(), sub]);
    let capital = |part: &str| {
        let mut letters = part.chars();
        letters
            .next()
            .map(|first| first.to_uppercase().chain(letters).collect::<String>())
            .unwrap_or_default()
    };
    parts.fold(verb.to_owned(), |name, part| name + &capital(part))
}

fn operation(kind: &Kind, action: &str, sub: &str, body: &Value) -> Value {
    let mut operation = json!({
        "operationId": operation_id(kind, action, sub),
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk(kind, &kind.kind),
        "responses": { "200": { "description": "OK" } },
    });
    let options = query_options(action);
    if options.as_array().is_some_and(|options| !options.is_empty()) {
        object::set(&mut operation, "parameters", options);
    }
    if action == "patch" {
        let types = [
            "application/apply-patch+yaml",
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
        ];
        let types = types.iter().filter(|t| kind.is_builtin() || !t.contains("strategic"));
        let schema = json!({ "$ref": format!("{ROOT}{PATCH}") });
        let content: Map<String, Value> =
            types.map(|t| ((*t).to_owned(), json!({ "schema": schema }))).collect();
        object::set(&mut operation, "requestBody", json!({ "content": content, "required": true }));
    } else if matches!(action, "post" | "put") {
        object::set(
            &mut operation,
            "requestBody",
            json!({ "content": { "*/*": { "schema": body } }, "required": true }),
        );
    }
    operation
}
