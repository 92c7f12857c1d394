use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{CustomKind, prepare_create, prepare_update, status};
use super::{validate_create, validate_update};
use crate::schema::tests::arbitrary_json;

fn version(schema: &Value) -> Value {
    json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}})
}

fn definition(name: &str, names: &Value, versions: &Value) -> Value {
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
        "spec": {"group": "x.example.dev", "scope": "Namespaced", "names": names, "versions": versions},
    });
    prepare_create(&mut definition);
    definition
}

fn open() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn cars() -> Value {
    let names = json!({"kind": "Car", "plural": "cars", "shortNames": ["cc"]});
    definition("cars.x.example.dev", &names, &json!([version(&open())]))
}

fn texts(definition: &Value) -> Vec<String> {
    validate_create(definition).iter().map(ToString::to_string).collect()
}

fn with_schema(schema: &Value) -> Vec<String> {
    texts(&definition("as.x.example.dev", &json!({"kind": "A", "plural": "as"}), &json!([version(schema)])))
}

fn judge(definition: &mut Value, others: &[&Value], now: &str) {
    let settled = status::settle(definition, others.iter().copied(), now);
    crate::object::set(definition, "status", settled);
}

#[test]
fn names_conversion_and_status_are_filled_in() {
    let definition =
        definition("as.x.example.dev", &json!({"kind": "A", "plural": "as"}), &json!([version(&open())]));
    assert_eq!(texts(&definition), Vec::<String>::new());
    assert_eq!(
        definition["spec"]["names"],
        json!({"plural": "as", "singular": "a", "kind": "A", "listKind": "AList"})
    );
    assert_eq!(definition["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(
        definition["status"],
        json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]})
    );
}

#[test]
fn several_faults_of_a_schema_are_all_named() {
    let path = "spec.validation.openAPIV3Schema.properties[a]";
    let fields = |property: Value| {
        let schema = json!({"type": "object", "properties": {"a": property}});
        let definition =
            definition("as.x.example.dev", &json!({"kind": "A", "plural": "as"}), &json!([version(&schema)]));
        let found = validate_create(&definition).into_iter();
        let found = found.map(|error| format!("{} {}", error.field.replace(path, ""), error.reason.as_str()));
        found.collect::<Vec<_>>()
    };
    for (property, want) in [
        (
            json!({"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": false}),
            vec![".additionalProperties FieldValueForbidden"],
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "o"],
                "items": {"type": "object", "properties": {"k": {"type": "object"}}}}),
            vec![
                ".items.properties[k].type FieldValueInvalid",
                ".x-kubernetes-list-map-keys FieldValueInvalid",
            ],
        ),
        (
            json!({"x-kubernetes-list-type": "odd"}),
            vec![".type FieldValueRequired", ".x-kubernetes-list-type FieldValueNotSupported"],
        ),
        (json!({"type": "null"}), vec![".type FieldValueNotSupported"]),
        (json!({"type": "string", "$ref": "#/x"}), vec![".$ref FieldValueForbidden"]),
        (
            json!({"type": "object", "properties": {"n": {"type": "integer"}}, "default": {"n": "x", "o": 1}}),
            vec![".default FieldValueInvalid", ".default.n FieldValueTypeInvalid"],
        ),
        (
            json!({"type": "string", "x-kubernetes-validations": [{"rule": " "}, {"rule": "self >"}]}),
            vec![
                ".x-kubernetes-validations[0].rule FieldValueRequired",
                ".x-kubernetes-validations[1].rule FieldValueInvalid",
            ],
        ),
        (
            json!({"type": "string", "anyOf": [{"properties": {"b": {"default": 1}}, "additionalProperties": true}]}),
            vec![
                ".anyOf[0].additionalProperties FieldValueForbidden",
                ".anyOf[0].properties[b].default FieldValueForbidden",
            ],
        ),
    ] {
        assert_eq!(fields(property.clone()), want, "{property}");
    }
}

#[test]
fn several_faults_of_a_version_are_all_named() {
    let mut v1 = version(&open());
    v1["name"] = json!("V1");
    v1["subresources"] =
        json!({"scale": {"specReplicasPath": "spec.n", "statusReplicasPath": "", "labelSelectorPath": ".x"}});
    v1["additionalPrinterColumns"] = json!([{"name": "", "type": "", "format": "odd", "jsonPath": "a"}]);
    v1["selectableFields"] = json!([{"jsonPath": ".spec.a"}, {"jsonPath": ".a[0]"}, {"jsonPath": ""}]);
    let found = texts(&definition("as.x.example.dev", &json!({"kind": "A", "plural": "as"}), &json!([v1])));
    let label = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
    let mut want = vec![
        format!("spec.version: Invalid value: \"V1\": {label}"),
        format!("spec.versions[0].name: Invalid value: \"V1\": {label}"),
        "spec.subresources.scale.specReplicasPath: Invalid value: \"spec.n\": must be a simple json path starting with .".to_owned(),
        "spec.subresources.scale.statusReplicasPath: Required value".to_owned(),
        "spec.subresources.scale.labelSelectorPath: Invalid value: \".x\": should be a json path under either .spec or .status".to_owned(),
        "spec.additionalPrinterColumns[0].name: Required value".to_owned(),
        "spec.additionalPrinterColumns[0].type: Required value: must be one of boolean,date,integer,number,string".to_owned(),
        "spec.additionalPrinterColumns[0].format: Invalid value: \"odd\": must be one of byte,date,date-time,double,float,int32,int64,password".to_owned(),
        "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"a\": must be a simple json path starting with .".to_owned(),
        "spec.selectableFields[0].jsonPath: Invalid value: \".spec.a\": must point to a field of type string, boolean or integer".to_owned(),
        "spec.selectableFields[1].jsonPath: Invalid value: \".a[0]\": must point to a field of type string, boolean or integer".to_owned(),
        "spec.selectableFields[2].jsonPath: Required value".to_owned(),
    ];
    want.sort();
    let mut found = found;
    found.sort();
    assert_eq!(found, want);
}

const RULES: &str = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule";

#[test]
fn schemas_are_refused_as_recorded() {
    let path = "spec.validation.openAPIV3Schema";
    for (schema, want) in [
        (
            json!({"type": "string"}),
            format!("{path}.type: Invalid value: \"string\": must be object at the root"),
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "array"}}}),
            format!("{path}.properties[a].items: Required value: must be specified"),
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string", "enum": ["x"], "default": "y"}}}),
            format!("{path}.properties[a].default: Unsupported value: \"y\": supported values: \"x\""),
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "array", "x-kubernetes-list-type": "map",
                "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}}),
            format!(
                "{path}.properties[a].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map"
            ),
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string", "anyOf": [{"type": "string"}]}}}),
            format!("{path}.properties[a].anyOf[0].type: Forbidden: must be empty to be structural"),
        ),
        (
            json!({"type": "object", "properties": {"a": {}}}),
            format!("{path}.properties[a].type: Required value: must not be empty"),
        ),
    ] {
        assert_eq!(with_schema(&schema), [want], "{schema}");
    }
    let rule = |rule: &str| {
        with_schema(&json!({"type": "object", "properties": {"spec": {"type": "object",
            "properties": {"b": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": rule}]}}}))
    };
    assert_eq!(rule("self.b > 1"), Vec::<String>::new());
    let start = format!("{RULES}: Invalid value: \"self.c > 1\": compilation failed: ");
    assert!(rule("self.c > 1")[0].starts_with(&start));
    assert!(
        with_schema(&json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}))[0]
            .starts_with(&format!(
                "{path}.properties[a].pattern: Invalid value: \"(\": must be a valid regular"
            ))
    );
}

#[test]
fn int_or_string_may_be_spelled_out() {
    let either = json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": "^[0-9]+%$"});
    assert_eq!(with_schema(&json!({"type": "object", "properties": {"a": either}})), Vec::<String>::new());
}

/// Takes the length of int-or-string away, which servers of 1.31 do not read.
fn without_length(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.contains_key("x-kubernetes-int-or-string") {
                fields.remove("maxLength");
            }
            fields.values_mut().for_each(without_length);
        }
        Value::Array(items) => items.iter_mut().for_each(without_length),
        _ => {}
    }
}

/// Each text of a rule counts as long as it may be, so a quantity without `maxLength` costs too much in a list.
#[test]
fn our_definitions_cost_no_more_than_a_server_allows() {
    let all: Vec<Value> =
        serde_json::from_str(include_str!("../../../../../../api/src/crd/definitions.json")).unwrap();
    for mut definition in all {
        prepare_create(&mut definition);
        without_length(&mut definition);
        assert_eq!(texts(&definition), Vec::<String>::new(), "{}", definition["metadata"]["name"]);
    }
    let quantity = |longest: Option<u64>| json!({"x-kubernetes-int-or-string": true, "maxLength": longest});
    let rule = "quantity(string(self)).compareTo(quantity('64Ki')) >= 0 && quantity(string(self)).compareTo(quantity('1Gi')) <= 0";
    let list = |longest| {
        let mut item = quantity(longest);
        item["x-kubernetes-validations"] = json!([{"rule": rule}]);
        with_schema(
            &json!({"type": "object", "properties": {"a": {"type": "array", "maxItems": 65, "items": item}}}),
        )
    };
    assert_eq!(list(Some(32)), Vec::<String>::new());
    assert!(list(None).concat().contains("estimated rule cost exceeds budget"), "{:?}", list(None));
}

#[test]
fn transition_rules_need_identity() {
    let items = json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]});
    let found =
        with_schema(&json!({"type": "object", "properties": {"a": {"type": "array", "items": items}}}));
    assert_eq!(
        found,
        [
            "spec.validation.openAPIV3Schema.properties[a].items.x-kubernetes-validations[0].rule: Invalid value: \"self >= oldSelf\": oldSelf cannot be used on the uncorrelatable portion of the schema within spec.validation.openAPIV3Schema.properties[a]"
        ]
    );
}

#[test]
fn updates_keep_what_is_immutable() {
    let mut old = cars();
    judge(&mut old, &[], "2024-01-01T00:00:00Z");
    let change = |pointer: &str, value: Value| {
        let mut new = old.clone();
        *new.pointer_mut(pointer).unwrap() = value;
        prepare_update(&mut new);
        validate_update(&new, &old)
            .iter()
            .map(|e| format!("{} {}", e.reason.as_str(), e.field))
            .collect::<Vec<_>>()
    };
    assert_eq!(change("/spec/group", json!("other.example.dev")), ["FieldValueInvalid spec.group"]);
    assert_eq!(change("/spec/scope", json!("Cluster")), ["FieldValueInvalid spec.scope"]);
    assert_eq!(change("/spec/names/kind", json!("Kar")), ["FieldValueInvalid spec.names.kind"]);
    assert_eq!(change("/spec/names/shortNames", json!(["kr"])), Vec::<String>::new());
    let mut v2 = version(&open());
    v2["name"] = json!("v2");
    assert_eq!(change("/spec/versions", json!([v2])), ["FieldValueInvalid status.storedVersions[0]"]);
}

#[test]
fn storage_versions_are_remembered() {
    let mut changed = cars();
    let mut v2 = version(&open());
    v2["name"] = json!("v2");
    changed["spec"]["versions"][0]["storage"] = json!(false);
    changed["spec"]["versions"].as_array_mut().unwrap().push(v2);
    prepare_update(&mut changed);
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
}

#[test]
fn names_are_accepted_first_come_first_served() {
    let now = "2024-01-01T00:00:00Z";
    let mut first = cars();
    judge(&mut first, &[], now);
    assert_eq!(
        first["status"],
        json!({
            "acceptedNames": {"plural": "cars", "singular": "car", "shortNames": ["cc"], "kind": "Car",
                "listKind": "CarList"},
            "conditions": [
                {"type": "NamesAccepted", "status": "True", "lastTransitionTime": now, "reason": "NoConflicts",
                    "message": "no conflicts found"},
                {"type": "Established", "status": "True", "lastTransitionTime": now,
                    "reason": "InitialNamesAccepted", "message": "the initial names have been accepted"}
            ],
            "storedVersions": ["v1"]
        })
    );
    let names = json!({"kind": "Car", "plural": "autos", "shortNames": ["cc"]});
    let mut second = definition("autos.x.example.dev", &names, &json!([version(&open())]));
    judge(&mut second, &[&first], now);
    assert_eq!(second["status"]["acceptedNames"], json!({"plural": "autos", "kind": ""}));
    assert_eq!(second["status"]["conditions"][0]["reason"], "ListKindConflict");
    assert_eq!(second["status"]["conditions"][0]["message"], "\"CarList\" is already in use");
    assert_eq!(second["status"]["conditions"][1]["status"], "False");
    judge(&mut second, &[], "2024-01-02T00:00:00Z");
    assert_eq!(second["status"]["acceptedNames"]["kind"], "Car");
    assert_eq!(second["status"]["conditions"][1]["status"], "True");
    assert_eq!(second["status"]["conditions"][1]["lastTransitionTime"], "2024-01-02T00:00:00Z");
}

#[test]
fn the_model_of_a_definition() {
    let mut v1 = version(&open());
    v1["deprecated"] = json!(true);
    v1["storage"] = json!(false);
    let v2 = json!({"name": "v2", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
            "properties": {"color": {"type": "string", "default": "red"}}}}}},
        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
        "selectableFields": [{"jsonPath": ".spec.color"}],
        "additionalPrinterColumns": [{"name": "Color", "type": "string", "jsonPath": ".spec.color"}]});
    let definition =
        definition("tools.x.example.dev", &json!({"kind": "Tool", "plural": "tools"}), &json!([v1, v2]));
    assert_eq!(texts(&definition), Vec::<String>::new());
    let kind = CustomKind::read(&definition).unwrap();
    let [v1, v2] = kind.versions.as_slice() else { panic!("two versions") };
    assert_eq!(
        v1.deprecation_warning.as_deref(),
        Some("x.example.dev/v1 Tool is deprecated; use x.example.dev/v2 Tool")
    );
    assert!(!v1.has_defaults && v2.has_defaults && v2.status && v2.storage);
    assert_eq!(v2.scale.as_ref().map(|scale| scale.spec_replicas.as_str()), Some(".spec.n"));
    assert_eq!(v2.selectable_fields, ["spec.color"]);
    assert_eq!(v2.columns[0].json_path, ".spec.color");
}

proptest! {
    #[test]
    fn any_definition_is_answered(value in arbitrary_json(), schema in arbitrary_json()) {
        let mut odd = json!({"metadata": value, "spec": value, "status": value});
        prepare_create(&mut odd);
        prop_assert!(!validate_create(&odd).is_empty());
        let _ = validate_update(&odd, &cars());
        judge(&mut odd, &[&cars()], "now");
        let _ = CustomKind::read(&odd);
        let _ = with_schema(&json!({"type": "object", "properties": {"spec": schema}}));
    }
}
