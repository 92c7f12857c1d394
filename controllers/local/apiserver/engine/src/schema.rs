//! Structural schemas: one tree type for built-in kinds (from `k8s-openapi`) and custom ones (from CRDs).

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

pub mod builtin;
pub mod decode;
pub mod default;
mod formats;
pub mod json;
mod merge_table;
pub mod parse;
mod pattern;
pub mod prune;
pub mod rules;
pub mod validate;

pub(crate) use pattern::compile as compile_pattern;

/// Deepest nesting of schemas and of values under a schema that this crate follows.
pub const MAX_DEPTH: usize = 256;

/// Shared handle on a schema node. Named types may refer to themselves (`JSONSchemaProps`), hence the late binding.
#[derive(Clone, Debug, Default)]
pub struct SchemaRef(Arc<OnceLock<Schema>>);

static ANY: Schema = Schema::any();

impl SchemaRef {
    pub fn new(schema: Schema) -> Self {
        let cell = OnceLock::new();
        let _ = cell.set(schema);
        Self(Arc::new(cell))
    }

    /// Whether the node is read already: `false` only inside a type that is being read and refers to itself.
    pub(crate) fn is_bound(&self) -> bool {
        self.0.get().is_some()
    }

    pub fn as_schema(&self) -> &Schema {
        self
    }

    /// Fills a handle made with `default()`; a second call is ignored.
    pub fn bind(&self, schema: Schema) {
        let _ = self.0.set(schema);
    }
}

impl Deref for SchemaRef {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        self.0.get().unwrap_or(&ANY)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonType {
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl JsonType {
    /// As schemas write it; nothing for any type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// How lists merge under server-side apply (`x-kubernetes-list-type`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListType {
    /// Replaced as a whole; the default.
    Atomic,
    /// Scalars, each at most once.
    Set,
    /// Objects identified by these keys.
    Map(Vec<String>),
}

/// How a list or object merges under *strategic merge patch* (`x-kubernetes-patch-strategy`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// `merge`: items are merged, by `merge_key` where they are objects.
    pub merge: bool,
    /// `retainKeys`: keys that the patch does not list are dropped.
    pub retain_keys: bool,
    pub merge_key: Option<String>,
}

/// Something worked out of a node at first use, shared by its clones and ignored by comparisons.
pub struct Cached<T>(Arc<OnceLock<T>>);

impl<T> Clone for Cached<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Cached<T> {
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        self.0.get_or_init(make)
    }
}

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> std::fmt::Debug for Cached<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.get().is_some() { "cached" } else { "not cached" })
    }
}

impl<T> PartialEq for Cached<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    pub rule: String,
    pub message: Option<String>,
    pub message_expression: Option<String>,
    /// `FieldValueInvalid` and so on.
    pub reason: Option<String>,
    pub field_path: Option<String>,
    pub optional_old_self: bool,
    pub(crate) compiled: Cached<Result<rules::program::Program, String>>,
}

/// Value constraints; `None` where not given. `validations` of a node without any is `None`, to keep nodes small.
#[derive(Clone, Debug, Default)]
pub struct Constraints {
    pub format: Option<String>,
    pub minimum: Option<f64>,
    pub maximum: Option<f64>,
    pub exclusive_minimum: bool,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    /// `minLength`, in characters
    pub min_length: Option<u64>,
    /// `maxLength`, in characters
    pub max_length: Option<u64>,
    pub pattern: Option<String>,
    /// The compiled pattern; `None` inside for what is no regular expression.
    pub(crate) pattern_cache: Cached<Option<regex::Regex>>,
    pub enumeration: Option<Vec<Value>>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub all_of: Vec<SchemaRef>,
    pub any_of: Vec<SchemaRef>,
    pub one_of: Vec<SchemaRef>,
    pub not: Option<SchemaRef>,
    pub rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
pub struct Schema {
    pub json_type: JsonType,
    pub nullable: bool,
    pub description: String,
    pub properties: BTreeMap<String, SchemaRef>,
    pub required: Vec<String>,
    /// Schema of map values (`additionalProperties`); `None` when unknown keys are not allowed.
    pub additional: Option<SchemaRef>,
    pub items: Option<SchemaRef>,
    pub default: Option<Value>,
    /// `x-kubernetes-list-type` and `x-kubernetes-list-map-keys`.
    pub list_type: ListType,
    /// `x-kubernetes-map-type: atomic`
    pub map_atomic: bool,
    pub patch: PatchStrategy,
    pub preserve_unknown: bool,
    pub embedded_resource: bool,
    pub int_or_string: bool,
    /// Name of the type it was defined under (`io.k8s.api.core.v1.Container`), for OpenAPI documents.
    pub type_name: Option<String>,
    pub constraints: Option<Box<Constraints>>,
    /// Whether this node or one below has expression rules.
    pub(crate) rules_below: OnceLock<bool>,
}

impl Schema {
    /// A node that accepts and keeps anything.
    pub const fn any() -> Self {
        Self {
            json_type: JsonType::Any,
            nullable: true,
            description: String::new(),
            properties: BTreeMap::new(),
            required: Vec::new(),
            additional: None,
            items: None,
            default: None,
            list_type: ListType::Atomic,
            map_atomic: false,
            patch: PatchStrategy { merge: false, retain_keys: false, merge_key: None },
            preserve_unknown: true,
            embedded_resource: false,
            int_or_string: false,
            type_name: None,
            constraints: None,
            rules_below: OnceLock::new(),
        }
    }

    /// A node with a type and no other constraint; unknown fields are not allowed.
    pub const fn typed(json_type: JsonType) -> Self {
        let mut schema = Self::any();
        schema.json_type = json_type;
        schema.nullable = false;
        schema.preserve_unknown = false;
        schema
    }

    pub fn child(&self, key: &str) -> Option<&SchemaRef> {
        self.properties.get(key).or(self.additional.as_ref())
    }
}

#[cfg(test)]
pub(crate) mod tests;

pub(crate) fn json_type(name: &str) -> JsonType {
    use JsonType::{Any, Array, Boolean, Integer, Number, Object, String};
    let known = [Object, Array, String, Integer, Number, Boolean];
    known.into_iter().find(|known| known.name() == name).unwrap_or(Any)
}
