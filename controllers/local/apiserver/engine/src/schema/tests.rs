use k8s_openapi::api::admissionregistration::v1 as admission;
use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::autoscaling::v2 as autoscaling;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::schemars::JsonSchema;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::builtin::{builtin, named};
use super::default::apply_defaults;
use super::prune::prune;
use super::{JsonType, ListType, Schema, SchemaRef, parse};

fn at(schema: &SchemaRef, path: &str) -> SchemaRef {
    path.split('.').fold(schema.clone(), |node, step| match step {
        "*" => node.items.clone().unwrap(),
        key => node.child(key).unwrap_or_else(|| panic!("no {key} in {path}")).clone(),
    })
}

#[test]
fn pods_merge_as_kubernetes_declares() {
    let pod = builtin::<core::Pod>();
    let ports = at(&pod, "spec.containers.*.ports");
    assert_eq!(ports.list_type, ListType::Map(vec!["containerPort".into(), "protocol".into()]));
    assert_eq!(ports.patch.merge_key.as_deref(), Some("containerPort"));
    assert!(at(&pod, "spec.volumes").patch.retain_keys);
    assert!(at(&pod, "spec.nodeSelector").map_atomic);
    assert_eq!(at(&pod, "spec.tolerations").list_type, ListType::Atomic);
    assert_eq!(at(&pod, "metadata.finalizers").list_type, ListType::Set);
    assert!(at(&pod, "metadata.finalizers").patch.merge);
    assert!(at(&pod, "spec.containers.*.env.*.valueFrom.secretKeyRef").map_atomic);
    assert!(!at(&pod, "metadata.labels").map_atomic);
    assert_eq!(at(&pod, "metadata.labels").additional.as_ref().map(|v| v.json_type), Some(JsonType::String));
    assert!(at(&pod, "metadata.managedFields.*.fieldsV1").preserve_unknown);
    assert!(at(&builtin::<apps::Deployment>(), "spec.strategy").patch.retain_keys);
    assert!(at(&builtin::<apps::Deployment>(), "spec.selector").map_atomic);
}

#[test]
fn named_types_are_shared_and_may_be_recursive() {
    let crd = builtin::<CustomResourceDefinition>();
    let props = at(&crd, "spec.versions.*.schema.openAPIV3Schema");
    let inner = at(&props, "properties.anything.properties.more.not");
    assert_eq!(inner.json_type, JsonType::Object);
    assert!(inner.properties.contains_key("x-kubernetes-validations"));
    assert!(at(&props, "default").preserve_unknown);
}

#[test]
fn every_row_of_the_merge_table_names_a_field() {
    fn load<T: JsonSchema>() {
        let _ = builtin::<T>();
    }
    load::<admission::MutatingWebhookConfiguration>();
    load::<autoscaling::HorizontalPodAutoscaler>();
    load::<core::Pod>();
    load::<core::Node>();
    load::<core::Service>();
    load::<apps::Deployment>();
    load::<apps::StatefulSet>();
    load::<CustomResourceDefinition>();
    let mut compared = 0;
    for (owner, field) in super::merge_table::rows() {
        if let Some(schema) = named(owner) {
            assert!(schema.properties.contains_key(field), "{owner}.{field}");
            compared += 1;
        }
    }
    assert!(compared > 30, "{compared} rows compared");
}

pub(crate) fn doses() -> SchemaRef {
    parse::custom(&json!({
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {
            "size": {"type": "integer", "default": 3},
            "mode": {"type": "string", "default": "auto"},
            "opt": {"type": "object", "properties": {
                "on": {"type": "boolean", "default": true}, "level": {"type": "integer"}}},
            "opt2": {"type": "object", "properties": {"x": {"type": "string", "default": "y"}}, "default": {}},
            "list": {"type": "array", "items": {"type": "object", "properties": {
                "n": {"type": "string"}, "w": {"type": "integer", "default": 1}}}},
            "nn": {"type": "string", "nullable": true, "default": "d"},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}}},
            "emb": {"type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true}
        }}}
    }))
    .unwrap()
}

fn defaulted(mut value: Value) -> Value {
    apply_defaults(&mut value, &doses());
    value
}

#[test]
fn defaults_fill_where_the_parent_exists() {
    assert_eq!(
        defaulted(json!({"spec": {}})),
        json!({"spec": {"mode": "auto", "nn": "d", "opt2": {"x": "y"}, "size": 3}})
    );
    assert_eq!(defaulted(json!({})), json!({}));
    assert_eq!(
        defaulted(json!({"spec": {"opt": {}, "list": [{"n": "1"}, {"n": "2", "w": 5}], "size": 9}})),
        json!({"spec": {"list": [{"n": "1", "w": 1}, {"n": "2", "w": 5}], "mode": "auto", "nn": "d",
            "opt": {"on": true}, "opt2": {"x": "y"}, "size": 9}})
    );
    assert_eq!(
        defaulted(json!({"spec": {"size": null, "nn": null}})),
        json!({"spec": {"mode": "auto", "nn": null, "opt2": {"x": "y"}, "size": 3}})
    );
}

fn pruned(mut value: Value) -> (Value, Vec<String>) {
    let unknown = prune(&mut value, &doses());
    (value, unknown)
}

#[test]
fn unknown_fields_are_dropped_and_listed() {
    let (value, unknown) =
        pruned(json!({"spec": {"odd": 1, "opt": {"odd": 2}, "list": [{"odd": 3}]}, "top": 3}));
    assert_eq!(value, json!({"spec": {"opt": {}, "list": [{}]}}));
    assert_eq!(unknown, ["spec.list[0].odd", "spec.odd", "spec.opt.odd", "top"]);

    let (value, unknown) = pruned(json!({"spec": {
        "any": {"x": {"y": [1, "2", {"z": null}]}}, "raw": {"extra": 1, "known": {"a": "b", "pruned": "c"}}}}));
    assert_eq!(
        value,
        json!({"spec": {"any": {"x": {"y": [1, "2", {"z": null}]}}, "raw": {"extra": 1, "known": {"a": "b"}}}})
    );
    assert_eq!(unknown, ["spec.raw.known.pruned"]);

    let (_, unknown) = pruned(json!({"metadata": {"name": "j", "colour": "red"}, "spec": {}}));
    assert_eq!(unknown, ["metadata.colour"]);
}

#[test]
fn embedded_objects_keep_what_they_hold() {
    let (mut value, unknown) = pruned(json!({"spec": {"emb": {"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "x"}, "spec": {"a": 1}}}}));
    apply_defaults(&mut value, &doses());
    assert_eq!(unknown, Vec::<String>::new());
    assert_eq!(
        value["spec"]["emb"],
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"a": 1}})
    );
}

/// Arbitrary JSON whose keys often are those of the schema under test.
pub(crate) fn arbitrary_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z1%]{0,6}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("spec"),
        Just("size"),
        Just("mode"),
        Just("opt"),
        Just("opt2"),
        Just("list"),
        Just("nn"),
        Just("any"),
        Just("raw"),
        Just("known"),
        Just("emb"),
        Just("metadata"),
        Just("labels"),
        Just("x"),
    ];
    leaf.prop_recursive(6, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn defaulting_and_pruning_are_idempotent(value in arbitrary_json()) {
        let schema: &Schema = &doses();
        let mut once = value;
        prune(&mut once, schema);
        let mut twice = once.clone();
        prop_assert!(prune(&mut twice, schema).is_empty());
        prop_assert_eq!(&once, &twice);
        apply_defaults(&mut once, schema);
        let mut again = once.clone();
        apply_defaults(&mut again, schema);
        prop_assert_eq!(once, again);
    }

    #[test]
    fn any_document_yields_a_schema(value in arbitrary_json()) {
        let schema = parse::fragment(&value);
        let mut sample = value;
        prune(&mut sample, &schema);
        apply_defaults(&mut sample, &schema);
    }
}
