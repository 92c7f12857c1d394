use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::default::apply_defaults;
use super::super::tests::{arbitrary_json, doses};
use super::super::{SchemaRef, parse};
use super::{Subject, custom};

fn rules_schema() -> SchemaRef {
    parse::custom(&json!({
        "type": "object",
        "properties": {"spec": {
            "type": "object",
            "properties": {
                "str": {"type": "string", "minLength": 2, "maxLength": 5},
                "pat": {"type": "string", "pattern": "^[a-z]+$"},
                "enum": {"type": "string", "enum": ["red", "green"]},
                "num": {"type": "number", "minimum": 0, "exclusiveMinimum": true, "maximum": 10},
                "int": {"type": "integer", "minimum": 1, "maximum": 5, "multipleOf": 1},
                "i32": {"type": "integer", "format": "int32"},
                "arr": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "integer"}},
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object",
                        "properties": {"name": {"type": "string"}, "v": {"type": "integer", "maximum": 5}},
                        "required": ["name"]}},
                "dict": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 2},
                "nul": {"type": "string", "nullable": true},
                "flag": {"type": "boolean"},
                "date": {"type": "string", "format": "date-time"},
                "uri": {"type": "string", "format": "uri"},
                "ip": {"type": "string", "format": "ipv4"},
                "uuid": {"type": "string", "format": "uuid"},
                "b64": {"type": "string", "format": "byte"},
                "dur": {"type": "string", "format": "duration"},
                "either": {"x-kubernetes-int-or-string": true},
                "pct": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}],
                    "pattern": "^[0-9]+%$"},
                "one": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                    "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
                "not": {"type": "string", "not": {"enum": ["bad"]}},
                "deep": {"type": "object", "properties": {"list": {"type": "array", "items": {"type": "object",
                    "properties": {"must": {"type": "string"}}, "required": ["must"]}}}}
            },
            "required": ["str"]
        }},
        "required": ["spec"]
    }))
    .unwrap()
}

fn errors(object: Value, old: Option<&Value>) -> Vec<String> {
    let schema = rules_schema();
    let mut object = object;
    apply_defaults(&mut object, &schema);
    let found = custom(&schema, Subject { object: &object, old, status_only: false });
    found.iter().map(|e| format!("{} {}", e.reason.as_str(), e)).collect()
}

fn with(field: &str, value: Value) -> Vec<String> {
    let mut object =
        json!({"apiVersion": "x/v1", "kind": "Rule", "metadata": {"name": "r"}, "spec": {"str": "abc"}});
    object["spec"][field] = value;
    errors(object, None)
}

#[test]
#[allow(clippy::too_many_lines)]
fn messages_as_recorded() {
    let none: [&str; 0] = [];
    assert_eq!(
        errors(
            json!({"spec": {"str": "abc", "int": 3, "arr": [1], "nul": null, "either": "x", "dict": {"a": 1},
                "date": "2024-01-01T00:00:00Z", "one": {"a": "1"}}}),
            None
        ),
        none
    );
    assert_eq!(errors(json!({"metadata": {"name": "r"}}), None), ["FieldValueRequired spec: Required value"]);
    for (field, value, want) in [
        (
            "str",
            json!("a"),
            r#"FieldValueInvalid spec.str: Invalid value: "a": spec.str in body should be at least 2 chars long"#,
        ),
        (
            "pat",
            json!("A1"),
            r#"FieldValueInvalid spec.pat: Invalid value: "A1": spec.pat in body should match '^[a-z]+$'"#,
        ),
        (
            "num",
            json!(0),
            "FieldValueInvalid spec.num: Invalid value: 0: spec.num in body should be greater than 0",
        ),
        (
            "int",
            json!(0),
            "FieldValueInvalid spec.int: Invalid value: 0: spec.int in body should be greater than or equal to 1",
        ),
        (
            "int",
            json!(99),
            "FieldValueInvalid spec.int: Invalid value: 99: spec.int in body should be less than or equal to 5",
        ),
        (
            "i32",
            json!(3_000_000_000_i64),
            r#"FieldValueInvalid <nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.i32"#,
        ),
        (
            "str",
            json!(12),
            r#"FieldValueTypeInvalid spec.str: Invalid value: "integer": spec.str in body must be of type string: "integer""#,
        ),
        ("str", json!(null), "FieldValueRequired spec.str: Required value"),
        (
            "arr",
            json!([]),
            "FieldValueInvalid spec.arr: Invalid value: 0: spec.arr in body should have at least 1 items",
        ),
        (
            "arr",
            json!([1, "x"]),
            r#"FieldValueTypeInvalid spec.arr[1]: Invalid value: "string": spec.arr[1] in body must be of type integer: "string""#,
        ),
        (
            "map",
            json!([{"name": "a"}, {"name": "a"}]),
            r#"FieldValueDuplicate spec.map[1]: Duplicate value: {"name":"a"}"#,
        ),
        ("set", json!(["a", "a"]), r#"FieldValueDuplicate spec.set[1]: Duplicate value: "a""#),
        (
            "dict",
            json!({"a": 1, "b": 2, "c": 3}),
            "FieldValueTooMany spec.dict: Too many: 3: must have at most 2 items",
        ),
        (
            "b64",
            json!("***"),
            r#"FieldValueTypeInvalid spec.b64: Invalid value: "***": spec.b64 in body must be of type byte: "***""#,
        ),
        (
            "either",
            json!(1.5),
            r#"FieldValueTypeInvalid spec.either: Invalid value: "number": spec.either in body must be of type integer,string: "number""#,
        ),
        (
            "pct",
            json!("10"),
            r#"FieldValueInvalid spec.pct: Invalid value: "10": spec.pct in body should match '^[0-9]+%$'"#,
        ),
        (
            "one",
            json!({"a": "1", "b": "2"}),
            r#"FieldValueInvalid <nil>: Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
        ),
        (
            "deep",
            json!({"list": [{"must": "x"}, {}]}),
            "FieldValueRequired spec.deep.list[1].must: Required value",
        ),
        (
            "enum",
            json!("blue"),
            r#"FieldValueNotSupported spec.enum: Unsupported value: "blue": supported values: "red", "green""#,
        ),
        (
            "not",
            json!("bad"),
            r#"FieldValueInvalid <nil>: Invalid value: "": "spec.not" must not validate the schema (not)"#,
        ),
        ("str", json!("abcdef"), "FieldValueTooLong spec.str: Too long: may not be more than 5 bytes"),
    ] {
        assert_eq!(with(field, value), [want], "{field}");
    }
    assert_eq!(with("pct", json!(10)), none);
    assert_eq!(
        errors(json!({"spec": []}), None),
        [
            r#"FieldValueTypeInvalid spec: Invalid value: "array": spec in body must be of type object: "array""#
        ]
    );
}

#[test]
fn a_status_is_checked_by_itself() {
    let schema = parse::custom(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["gone"]},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}}))
    .unwrap();
    let object = json!({"spec": {}, "status": {"replicas": "two"}});
    let found = custom(&schema, Subject { object: &object, old: None, status_only: true });
    assert_eq!(
        found.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [r#"status.replicas: Invalid value: "string": replicas in body must be of type integer: "string""#]
    );
}

#[test]
fn what_did_not_change_is_not_refused() {
    let old = json!({"spec": {"str": "a", "int": 99, "map": [{"name": "x", "v": 9}]}});
    let same = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"str": "a", "int": 99, "flag": true,
        "map": [{"name": "new", "v": 1}, {"name": "x", "v": 9}]}});
    assert_eq!(errors(same, Some(&old)), Vec::<String>::new());
    let changed = json!({"spec": {"str": "b", "int": 99}});
    assert_eq!(
        errors(changed, Some(&old)),
        [
            r#"FieldValueInvalid spec.str: Invalid value: "b": spec.str in body should be at least 2 chars long"#
        ]
    );
}

#[test]
fn of_metadata_only_names_are_checked() {
    let schema = parse::custom(&json!({"type": "object", "properties": {
        "metadata": {"type": "object", "properties": {"name": {"type": "string", "pattern": "^a"}}}}}))
    .unwrap();
    let object = json!({"metadata": {"name": "b", "ownerReferences": [{"name": "incomplete"}]}});
    let found = custom(&schema, Subject { object: &object, old: None, status_only: false });
    assert_eq!(
        found.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [r#"metadata.name: Invalid value: "b": metadata.name in body should match '^a'"#]
    );
}

#[test]
fn several_faults_of_an_object_are_named_as_by_a_real_server() {
    let schema = parse::custom(&json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "properties": {
            "a": {"type": "string", "minLength": 3, "pattern": "^[a-z]+$"},
            "b": {"type": "string", "enum": ["x", "y"]},
            "c": {"type": "string", "nullable": true, "enum": ["x", null]},
            "d": {"type": "integer", "minimum": 5, "allOf": [{"minimum": 5}]},
        },
        "x-kubernetes-validations": [{"rule": "true"}]}}}))
    .unwrap();
    let object = json!({"spec": {"a": "B", "b": "z", "c": null, "d": 1}});
    let found = custom(&schema, Subject { object: &object, old: None, status_only: false });
    let mut found: Vec<String> = found.iter().map(ToString::to_string).collect();
    found.sort();
    assert_eq!(
        found,
        [
            r#"<nil>: Invalid value: "": "spec.d" must validate all the schemas (allOf). None validated"#,
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
            r#"spec.a: Invalid value: "B": spec.a in body should be at least 3 chars long"#,
            r#"spec.b: Unsupported value: "z": supported values: "x", "y""#,
            r#"spec.c: Unsupported value: null: supported values: "x", "null""#,
            "spec.d: Invalid value: 1: spec.d in body should be greater than or equal to 5",
        ]
    );
}

proptest! {
    #[test]
    fn validation_never_panics(value in arbitrary_json(), old in arbitrary_json()) {
        for schema in [rules_schema(), doses(), parse::fragment(&old)] {
            let _ = custom(&schema, Subject { object: &value, old: Some(&old), status_only: false });
            let unchanged = custom(&schema, Subject { object: &value, old: Some(&value), status_only: false });
            prop_assert!(unchanged.is_empty());
        }
    }
}
