use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::SchemaRef;
use super::super::builtin::builtin;
use super::super::json::parse_json;
use super::super::tests::arbitrary_json;
use super::{cannot_be_handled, complaints, decode_builtin, decode_metadata, strict_error};

fn decoded(schema: &SchemaRef, mut value: Value) -> Result<(Value, Vec<String>), String> {
    decode_builtin(&mut value, schema).map(|unknown| (value, unknown))
}

fn strict(schema: &SchemaRef, kind: &str, body: &str) -> Option<String> {
    let (mut value, duplicates) = parse_json(body.as_bytes()).unwrap();
    let unknown = decode_builtin(&mut value, schema).unwrap();
    strict_error(&complaints(&unknown, &duplicates)).map(|why| cannot_be_handled(kind, "v1", &why))
}

#[test]
fn strict_errors_as_recorded() {
    let maps = builtin::<ConfigMap>();
    assert_eq!(
        strict(&maps, "ConfigMap", r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"f1","colour":"red"},"dat":{"a":"b"}}"#).as_deref(),
        Some(r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "metadata.colour", unknown field "dat""#)
    );
    assert_eq!(
        strict(&maps, "ConfigMap", r#"{"data":{"a":"1","a":"2"},"immutable":false,"immutable":true}"#)
            .as_deref(),
        Some(
            r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: duplicate field "data.a", duplicate field "immutable""#
        )
    );
    assert_eq!(
        strict(&maps, "ConfigMap", r#"{"metadata":{"name":"f1"},"Data":{"a":"b"}}"#).as_deref(),
        Some(
            r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "Data""#
        )
    );
    let body = r#"{"metadata":{"name":"f3"},"spec":{"replica":3,"selector":{"matchLabels":{"a":"b"}},"template":{
        "metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i","imagePolicy":"x",
        "ports":[{"port":1,"containerPort":2}]}]}}}}"#;
    assert_eq!(
        strict(&builtin::<Deployment>(), "Deployment", body).as_deref(),
        Some(
            r#"Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: unknown field "spec.replica", unknown field "spec.template.spec.containers[0].imagePolicy", unknown field "spec.template.spec.containers[0].ports[0].port""#
        )
    );
}

#[test]
fn wrong_types_are_refused_with_their_path() {
    let maps = builtin::<ConfigMap>();
    let error = |value: Value| decoded(&maps, value).unwrap_err();
    let text = |got: &str, path: &str, want: &str| {
        format!("json: cannot unmarshal {got} into field \"{path}\" of type {want}")
    };
    assert_eq!(error(json!({"metadata": "x"})), text("string", "metadata", "object"));
    let labels = json!({"metadata": {"labels": {"a": 1}}});
    assert_eq!(error(labels), text("number", "metadata.labels.a", "string"));
    assert_eq!(error(json!([])), text("array", "", "object"));
    let pods = builtin::<Pod>();
    let port = json!({"spec": {"containers": [{"ports": [{"containerPort": "x"}]}]}});
    let path = "spec.containers[0].ports[0].containerPort";
    assert_eq!(decoded(&pods, port).unwrap_err(), text("string", path, "int32"));
    let priority = json!({"spec": {"priority": 3_000_000_000_i64}});
    assert_eq!(decoded(&pods, priority).unwrap_err(), text("number", "spec.priority", "int32"));
    assert_eq!(
        decoded(&builtin::<Secret>(), json!({"data": {"a": "***"}})).unwrap_err(),
        "illegal base64 data at input byte 0"
    );
}

#[test]
fn metadata_of_any_kind_is_decoded_with_full_paths() {
    let mut object = json!({"metadata": {"name": "x", "colour": "red"}, "spec": {"anything": 1}});
    assert_eq!(decode_metadata(&mut object), Ok(vec!["metadata.colour".to_owned()]));
    assert_eq!(object, json!({"metadata": {"name": "x"}, "spec": {"anything": 1}}));
    assert_eq!(
        decode_metadata(&mut json!({"metadata": {"labels": {"a": 1}}})).unwrap_err(),
        "json: cannot unmarshal number into field \"metadata.labels.a\" of type string"
    );
}

#[test]
fn values_are_put_in_canonical_form() {
    let (pod, unknown) = decoded(
        &builtin::<Pod>(),
        json!({
            "metadata": {"creationTimestamp": null, "labels": {}, "annotations": {"a": null},
                "deletionTimestamp": "2024-01-01T02:00:00+02:00"},
            "spec": {"containers": [{"name": "c", "args": [], "resources": {
                "requests": {"cpu": 0.1, "memory": "1024Mi"}, "limits": {"cpu": "1500m", "memory": "0.5Gi"}}}],
                "volumes": [{"name": "vm", "emptyDir": {}}], "nodeSelector": null},
        }),
    )
    .unwrap();
    assert!(unknown.is_empty());
    assert_eq!(
        pod,
        json!({
            "metadata": {"annotations": {"a": ""}, "deletionTimestamp": "2024-01-01T00:00:00Z"},
            "spec": {"containers": [{"name": "c", "resources": {
                "requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "1500m", "memory": "512Mi"}}}],
                "volumes": [{"name": "vm", "emptyDir": {}}]},
        })
    );
    let lease = |time: &str| decoded(&builtin::<Lease>(), json!({"spec": {"renewTime": time}}));
    let (renewed, _) = lease("2024-01-01T02:00:00.500000+02:00").unwrap();
    assert_eq!(renewed["spec"]["renewTime"], "2024-01-01T00:00:00.500000Z");
    // Recorded: a micro time has exactly six decimals.
    assert!(lease("2024-01-01T00:00:00.5Z").is_err());
    assert!(lease("2024-01-01T00:00:00.123456789Z").is_err());
}

proptest! {
    #[test]
    fn decoding_is_idempotent_and_never_panics(value in arbitrary_json()) {
        let pods = builtin::<Pod>();
        if let Ok((once, _)) = decoded(&pods, value) {
            let (twice, unknown) = decoded(&pods, once.clone()).unwrap();
            prop_assert!(unknown.is_empty());
            prop_assert_eq!(once, twice);
        }
    }
}
