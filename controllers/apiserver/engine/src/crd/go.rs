//! Parts of a definition as a real server holds them inside, for the messages that show them: by the names of their
//! fields in Go, in the order of the types, with nothing left out.

use serde_json::{Value, json};

use super::{at, columns::places, list};

/// How a keyword of a schema is held.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Flag,
    /// Anything that may be missing.
    Optional,
    /// A schema that may be missing.
    Schema,
    Schemas,
    SchemaMap,
    /// A schema, or a list of them.
    Items,
    /// A schema, or a flag.
    OrFlag,
}

const SCHEMA: [(&str, &str, Kind); 43] = [
    ("ID", "id", Kind::Text),
    ("Schema", "$schema", Kind::Text),
    ("Ref", "$ref", Kind::Optional),
    ("Description", "description", Kind::Text),
    ("Type", "type", Kind::Text),
    ("Nullable", "nullable", Kind::Flag),
    ("Format", "format", Kind::Text),
    ("Title", "title", Kind::Text),
    ("Default", "default", Kind::Optional),
    ("Maximum", "maximum", Kind::Optional),
    ("ExclusiveMaximum", "exclusiveMaximum", Kind::Flag),
    ("Minimum", "minimum", Kind::Optional),
    ("ExclusiveMinimum", "exclusiveMinimum", Kind::Flag),
    ("MaxLength", "maxLength", Kind::Optional),
    ("MinLength", "minLength", Kind::Optional),
    ("Pattern", "pattern", Kind::Text),
    ("MaxItems", "maxItems", Kind::Optional),
    ("MinItems", "minItems", Kind::Optional),
    ("UniqueItems", "uniqueItems", Kind::Flag),
    ("MultipleOf", "multipleOf", Kind::Optional),
    ("Enum", "enum", Kind::Optional),
    ("MaxProperties", "maxProperties", Kind::Optional),
    ("MinProperties", "minProperties", Kind::Optional),
    ("Required", "required", Kind::Optional),
    ("Items", "items", Kind::Items),
    ("AllOf", "allOf", Kind::Schemas),
    ("OneOf", "oneOf", Kind::Schemas),
    ("AnyOf", "anyOf", Kind::Schemas),
    ("Not", "not", Kind::Schema),
    ("Properties", "properties", Kind::SchemaMap),
    ("AdditionalProperties", "additionalProperties", Kind::OrFlag),
    ("PatternProperties", "patternProperties", Kind::SchemaMap),
    ("Dependencies", "dependencies", Kind::Optional),
    ("AdditionalItems", "additionalItems", Kind::OrFlag),
    ("Definitions", "definitions", Kind::SchemaMap),
    ("ExternalDocs", "externalDocs", Kind::Optional),
    ("Example", "example", Kind::Optional),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", Kind::Optional),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", Kind::Flag),
    ("XIntOrString", "x-kubernetes-int-or-string", Kind::Flag),
    ("XListMapKeys", "x-kubernetes-list-map-keys", Kind::Optional),
    ("XListType", "x-kubernetes-list-type", Kind::Optional),
    ("XMapType", "x-kubernetes-map-type", Kind::Optional),
];

/// A schema; its callers have seen to it that it is not nested too deeply.
pub(super) fn schema(document: &Value) -> String {
    let mut fields: Vec<String> = SCHEMA
        .iter()
        .map(|(go, key, kind)| format!("{go:?}:{}", keyword(at(document, &[key]), *kind)))
        .collect();
    let rules: Vec<String> = list(document, "x-kubernetes-validations").iter().map(rule).collect();
    let rules = if rules.is_empty() { "null".to_owned() } else { format!("[{}]", rules.join(",")) };
    fields.push(format!("\"XValidations\":{rules}"));
    format!("{{{}}}", fields.join(","))
}

fn keyword(value: &Value, kind: Kind) -> String {
    match (kind, value) {
        (Kind::Text, Value::Null) => "\"\"".to_owned(),
        (Kind::Flag, Value::Null) => "false".to_owned(),
        (Kind::Schema, Value::Object(_)) => schema(value),
        (Kind::Schemas, Value::Array(all)) => {
            format!("[{}]", all.iter().map(schema).collect::<Vec<_>>().join(","))
        }
        (Kind::SchemaMap, Value::Object(all)) => {
            let all: Vec<String> =
                all.iter().map(|(name, one)| format!("{}:{}", json!(name), schema(one))).collect();
            format!("{{{}}}", all.join(","))
        }
        (Kind::Items, Value::Object(_)) => format!("{{\"Schema\":{},\"JSONSchemas\":null}}", schema(value)),
        (Kind::Items, Value::Array(_)) => {
            format!("{{\"Schema\":null,\"JSONSchemas\":{}}}", keyword(value, Kind::Schemas))
        }
        (Kind::OrFlag, Value::Object(_)) => format!("{{\"Allows\":true,\"Schema\":{}}}", schema(value)),
        (Kind::OrFlag, Value::Bool(flag)) => format!("{{\"Allows\":{flag},\"Schema\":null}}"),
        _ => value.to_string(),
    }
}

/// A rule.
pub(super) fn rule(rule: &Value) -> String {
    let of = |key: &str| json!(super::text(rule, key));
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        of("rule"),
        of("message"),
        of("messageExpression"),
        at(rule, &["reason"]),
        of("fieldPath"),
        at(rule, &["optionalOldSelf"])
    )
}

/// `spec.versions`, without what all versions have in common.
pub(super) fn versions(spec: &Value) -> String {
    let own = |key: &str| places(spec, key).first().is_some_and(|(place, _)| place != "spec");
    let (schemas, subresources) = (own("schema"), own("subresources"));
    let (columns, selectable) = (own("additionalPrinterColumns"), own("selectableFields"));
    let flag = |version: &Value, key: &str| at(version, &[key]) == true;
    let all: Vec<String> = list(spec, "versions")
        .iter()
        .map(|version| {
            let document = at(version, &["schema", "openAPIV3Schema"]);
            let shown = |own: bool, value: String| if own { value } else { "null".to_owned() };
            format!(
                "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":{},\
                 \"Subresources\":{},\"AdditionalPrinterColumns\":{},\"SelectableFields\":{}}}",
                json!(super::text(version, "name")),
                flag(version, "served"),
                flag(version, "storage"),
                flag(version, "deprecated"),
                at(version, &["deprecationWarning"]),
                shown(schemas && at(version, &["schema"]).is_object(), format!(
                    "{{\"OpenAPIV3Schema\":{}}}",
                    keyword(document, Kind::Schema)
                )),
                shown(subresources, subresources_of(version)),
                shown(columns, listed(version, "additionalPrinterColumns", column)),
                shown(selectable, listed(version, "selectableFields", selectable_field)),
            )
        })
        .collect();
    format!("[{}]", all.join(","))
}

fn subresources_of(version: &Value) -> String {
    let own = at(version, &["subresources"]);
    if !own.is_object() {
        return "null".to_owned();
    }
    let status = if at(own, &["status"]).is_object() { "{}" } else { "null" };
    let scale = at(own, &["scale"]);
    let scale = if scale.is_object() {
        format!(
            "{{\"SpecReplicasPath\":{},\"StatusReplicasPath\":{},\"LabelSelectorPath\":{}}}",
            json!(super::text(scale, "specReplicasPath")),
            json!(super::text(scale, "statusReplicasPath")),
            at(scale, &["labelSelectorPath"])
        )
    } else {
        "null".to_owned()
    };
    format!("{{\"Status\":{status},\"Scale\":{scale}}}")
}

fn listed(version: &Value, key: &str, one: fn(&Value) -> String) -> String {
    match list(version, key) {
        [] => "null".to_owned(),
        all => format!("[{}]", all.iter().map(one).collect::<Vec<_>>().join(",")),
    }
}

fn column(column: &Value) -> String {
    let of = |key: &str| json!(super::text(column, key));
    format!(
        "{{\"Name\":{},\"Type\":{},\"Format\":{},\"Description\":{},\"Priority\":{},\"JSONPath\":{}}}",
        of("name"),
        of("type"),
        of("format"),
        of("description"),
        at(column, &["priority"]).as_i64().unwrap_or(0),
        of("jsonPath")
    )
}

fn selectable_field(field: &Value) -> String {
    format!("{{\"JSONPath\":{}}}", json!(super::text(field, "jsonPath")))
}
