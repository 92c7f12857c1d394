//! Schemas of the fields, in the shape the API server demands.
//!
//! **CPU and quantities are `x-kubernetes-int-or-string`.** The API server refuses a float such as `min: 0.25` there,
//! yet existing manifests write it. It is let in all the same, because mutating admission runs *before* the schema is
//! checked: [`crate::normalise`] turns `0.25` into `"250m"` on the way. The looser choice, a node without a type
//! (`x-kubernetes-preserve-unknown-fields`), would accept the float by itself but hide the field from CEL, and with
//! it every rule about `min`, `use` and `max`; it would also store what no other client can read.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;

pub(crate) mod rules;
mod structural;

pub(crate) use structural::make_structural;

/// What a CPU looks like after normalisation: whole, or in thousandths; decimals come from clients without admission.
const MILLI_CPU_PATTERN: &str = r"^[0-9]+(m|\.[0-9]*)?$";
/// What a quantity looks like.
const QUANTITY_PATTERN: &str = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$";

/// Whether a count that is 0 by default is left out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
pub(crate) const fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// Whether a field that is off by default is left out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
pub(crate) fn is_false(value: &bool) -> bool {
    !value
}

pub(crate) fn milli_cpu(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-int-or-string": true, "pattern": MILLI_CPU_PATTERN })
}

pub(crate) fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-int-or-string": true, "pattern": QUANTITY_PATTERN })
}

/// In a list: without a length the API server takes each text of a rule to be as long as a request, and refuses the definition. That of
/// int-or-string is read by newer servers only (1.35 does, 1.31 does not). Admission turns a number into a text.
pub(crate) fn quantity_of_item(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": QUANTITY_PATTERN, "maxLength": 32 })
}

pub(crate) fn memory_slot_size(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "pattern": QUANTITY_PATTERN,
        "x-kubernetes-validations": rules::memory_slot_size(),
    })
}

pub(crate) fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": r"^[+-]?(0|([0-9]*(\.[0-9]*)?(ns|us|µs|μs|ms|s|m|h))+)$" })
}

pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

pub(crate) fn revision_with_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "required": ["revision", "updatedAt"],
        "properties": {
            "revision": {
                "type": "object",
                "required": ["flags", "value"],
                "properties": {
                    "value": { "type": "integer", "format": "int64" },
                    // Bits; Kubernetes has no unsigned 64-bit integers.
                    "flags": { "type": "integer", "format": "int64" },
                },
            },
            "updatedAt": { "type": "string", "format": "date-time" },
        },
    })
}

/// A choice of words.
fn words(words: &[&str]) -> Schema {
    json_schema!({ "type": "string", "enum": words })
}

pub(crate) fn compression(_: &mut SchemaGenerator) -> Schema {
    words(&["none", "zstd"])
}

pub(crate) fn post_copy(_: &mut SchemaGenerator) -> Schema {
    words(&["never", "on-timeout", "after-first-pass"])
}

pub(crate) fn on_timeout(_: &mut SchemaGenerator) -> Schema {
    words(&["abort", "post-copy", "continue"])
}

/// The schema of a type that Kubernetes defines, without its descriptions, which would make up most of the file.
pub(crate) fn foreign<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = T::json_schema(generator).to_value();
    strip_descriptions(&mut schema);
    Schema::try_from(schema).unwrap_or_default()
}

fn strip_descriptions(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // A *property* called "description" holds a schema, not a text.
            if fields.get("description").is_some_and(Value::is_string) {
                fields.remove("description");
            }
            fields.values_mut().for_each(strip_descriptions);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_descriptions),
        _ => {}
    }
}

type Conditions = Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>;

/// Conditions that are merged by type.
pub(crate) fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = plain_conditions(generator);
    schema.insert("x-kubernetes-list-type".to_owned(), "map".into());
    schema.insert("x-kubernetes-list-map-keys".to_owned(), ["type"].as_slice().into());
    schema
}

/// Conditions as one value.
pub(crate) fn plain_conditions(generator: &mut SchemaGenerator) -> Schema {
    foreign::<Conditions>(generator)
}

/// A reference that is replaced as a whole.
pub(crate) fn scale_target(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = foreign::<k8s_openapi::api::core::v1::ObjectReference>(generator);
    schema.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
    schema.insert("x-kubernetes-validations".to_owned(), rules::scale_target());
    schema
}

/// Reads a phase; clients in other languages may write the absent one as an empty text.
pub(crate) fn empty_is_none<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: serde::de::DeserializeOwned,
{
    match Option::<String>::deserialize(deserializer)? {
        Some(text) if !text.is_empty() => {
            serde_json::from_value(Value::String(text)).map(Some).map_err(D::Error::custom)
        }
        _ => Ok(None),
    }
}
