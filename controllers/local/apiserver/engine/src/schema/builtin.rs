//! Schemas of built-in kinds, read at run time from the types of `k8s-openapi`.
//!
//! `k8s-openapi` generates them from the OpenAPI document that Kubernetes publishes; what it leaves out (how lists
//! and maps merge) is in [`super::merge_table`].

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema as JsonSchemaDocument};
use serde_json::{Map, Value};

use super::merge_table::{self, Merge};
use super::{Constraints, JsonType, MAX_DEPTH, Schema, SchemaRef};

/// `type_name` of quantities, which are decoded from numbers and strings and kept in canonical form.
pub const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
/// `type_name` of times with microseconds.
pub const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";

/// Every named type met so far. Types are shared between kinds, so that a Pod template is read once.
struct Registry {
    generator: SchemaGenerator,
    types: BTreeMap<String, SchemaRef>,
}

fn registry() -> MutexGuard<'static, Registry> {
    static REGISTRY: OnceLock<Mutex<Registry>> = OnceLock::new();
    let registry = REGISTRY.get_or_init(|| {
        Mutex::new(Registry { generator: SchemaGenerator::default(), types: BTreeMap::new() })
    });
    registry.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The schema of a built-in kind, or of any type with a schema. Later calls for types already met are cheap.
pub fn builtin<T: JsonSchema>() -> SchemaRef {
    registry().read::<T>()
}

/// A named type (`io.k8s.api.core.v1.Container`), if a kind that uses it was requested before.
pub fn named(type_name: &str) -> Option<SchemaRef> {
    registry().types.get(type_name).cloned()
}

pub fn object_meta() -> SchemaRef {
    static META: OnceLock<SchemaRef> = OnceLock::new();
    META.get_or_init(builtin::<ObjectMeta>).clone()
}

impl Registry {
    fn read<T: JsonSchema>(&mut self) -> SchemaRef {
        let document = self.generator.subschema_for::<T>();
        let definitions = std::mem::take(self.generator.definitions_mut());
        // The generator only needs the names: it then leaves these types alone.
        *self.generator.definitions_mut() =
            definitions.keys().map(|name| (name.clone(), Value::Bool(false))).collect();
        let mut reader = Reader { types: &mut self.types, definitions };
        reader.node(&JsonSchemaDocument::to_value(document), None, 0)
    }
}

struct Reader<'a> {
    types: &'a mut BTreeMap<String, SchemaRef>,
    definitions: Map<String, Value>,
}

impl Reader<'_> {
    fn named(&mut self, name: &str, depth: usize) -> SchemaRef {
        if let Some(known) = self.types.get(name) {
            return known.clone();
        }
        let handle = SchemaRef::default();
        self.types.insert(name.to_owned(), handle.clone());
        let document = self.definitions.remove(name).unwrap_or_default();
        let mut schema = match document.as_object() {
            Some(fields) => self.fields(fields, Some(name), depth + 1),
            None => Schema::any(),
        };
        schema.type_name = Some(name.to_owned());
        schema.map_atomic = merge_table::is_atomic_type(name);
        handle.bind(schema);
        handle
    }

    /// Reads a node; `merge` is the table's entry for its field.
    fn node(&mut self, document: &Value, merge: Option<&Merge>, depth: usize) -> SchemaRef {
        let Some(fields) = document.as_object().filter(|_| depth < MAX_DEPTH) else {
            return SchemaRef::new(Schema::any());
        };
        let reference = fields.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
        let Some(name) = reference else {
            let mut schema = self.fields(fields, None, depth);
            overlay(&mut schema, merge);
            return SchemaRef::new(schema);
        };
        let shared = self.named(name, depth);
        let described = fields.get("description").and_then(Value::as_str);
        if !shared.is_bound() || (described.is_none() && merge.is_none()) {
            return shared;
        }
        let mut own = Schema::clone(&shared);
        if let Some(text) = described {
            text.clone_into(&mut own.description);
        }
        overlay(&mut own, merge);
        SchemaRef::new(own)
    }

    fn fields(&mut self, fields: &Map<String, Value>, owner: Option<&str>, depth: usize) -> Schema {
        let mut schema = Schema::typed(json_type(fields));
        let text = |key: &str| fields.get(key).and_then(Value::as_str);
        text("description").unwrap_or_default().clone_into(&mut schema.description);
        schema.int_or_string =
            fields.get("x-kubernetes-int-or-string").and_then(Value::as_bool).unwrap_or_default();
        if let Some(format) = text("format") {
            schema.constraints =
                Some(Box::new(Constraints { format: Some(format.to_owned()), ..Constraints::default() }));
        }
        if let Some(required) = fields.get("required").and_then(Value::as_array) {
            schema.required = required.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        }
        if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
            for (name, document) in properties {
                let merge = owner.and_then(|owner| merge_table::lookup(owner, name));
                schema.properties.insert(name.clone(), self.node(document, merge, depth + 1));
            }
        }
        schema.items = fields.get("items").map(|items| self.node(items, None, depth + 1));
        schema.additional =
            fields.get("additionalProperties").map(|values| self.node(values, None, depth + 1));
        // `RawExtension`, `JSON` and `FieldsV1` are published as objects without fields, and hold anything.
        let opaque = matches!(schema.json_type, JsonType::Any | JsonType::Object)
            && schema.properties.is_empty()
            && schema.additional.is_none();
        if opaque && !schema.int_or_string {
            schema.json_type = JsonType::Any;
            schema.preserve_unknown = true;
            schema.nullable = true;
        }
        schema
    }
}

fn overlay(schema: &mut Schema, merge: Option<&Merge>) {
    let Some(merge) = merge else { return };
    if let Some(list) = &merge.list {
        schema.list_type = list.clone();
    }
    schema.map_atomic |= merge.map_atomic;
    schema.patch = merge.patch.clone();
}

fn json_type(fields: &Map<String, Value>) -> JsonType {
    fields.get("type").and_then(Value::as_str).map_or(JsonType::Any, super::json_type)
}
