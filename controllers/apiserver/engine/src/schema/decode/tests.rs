use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::SchemaRef;
use super::super::builtin::builtin;
use super::super::json::{in_document_order, parse_json};
use super::super::tests::arbitrary_json;
use super::{cannot_be_handled, complaints, decode_builtin, decode_metadata, strict_error};

fn decoded(schema: &SchemaRef, mut value: Value) -> Result<(Value, Vec<String>), String> {
    decode_builtin(&mut value, schema, &[]).map(|unknown| (value, unknown))
}

fn strict(schema: &SchemaRef, kind: &str, body: &str) -> Option<String> {
    let (mut value, duplicates) = parse_json(body.as_bytes()).unwrap();
    let mut unknown = decode_builtin(&mut value, schema, &[]).unwrap();
    in_document_order(body.as_bytes(), &mut unknown);
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
fn wrong_types_are_refused_like_go_does() {
    let maps = builtin::<ConfigMap>();
    let error = |value: Value| decoded(&maps, value).unwrap_err();
    assert_eq!(
        error(json!({"metadata": "x"})),
        "json: cannot unmarshal string into Go struct field ConfigMap.metadata of type v1.ObjectMeta"
    );
    assert_eq!(
        error(json!({"metadata": {"labels": {"a": 1}}})),
        "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"
    );
    assert_eq!(
        error(json!({"metadata": {"finalizers": "x"}})),
        "json: cannot unmarshal string into Go struct field ObjectMeta.metadata.finalizers of type []string"
    );
    assert_eq!(error(json!([])), "json: cannot unmarshal array into Go value of type v1.ConfigMap");
    let pods = builtin::<Pod>();
    assert_eq!(
        decoded(&pods, json!({"spec": {"containers": [{"ports": [{"containerPort": "x"}]}]}})).unwrap_err(),
        "json: cannot unmarshal string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32"
    );
    assert_eq!(
        decoded(&pods, json!({"spec": {"priority": 3_000_000_000_i64}})).unwrap_err(),
        "json: cannot unmarshal number 3000000000 into Go struct field PodSpec.spec.priority of type int32"
    );
    assert_eq!(
        decoded(&builtin::<Secret>(), json!({"data": {"a": "***"}})).unwrap_err(),
        "illegal base64 data at input byte 0"
    );
}

#[test]
fn types_have_the_names_of_go() {
    let pods = builtin::<Pod>();
    let of_containers = |field: &str, value: Value| {
        decoded(&pods, json!({"spec": {"containers": [{field: value}]}})).unwrap_err()
    };
    for (field, value, text) in [
        (
            "restartPolicy",
            json!(1),
            "number into Go struct field Container.spec.containers.restartPolicy of type v1.ContainerRestartPolicy",
        ),
        (
            "livenessProbe",
            json!({"exec": "x"}),
            "string into Go struct field Probe.spec.containers.livenessProbe.ProbeHandler.exec of type v1.ExecAction",
        ),
        (
            "resources",
            json!({"limits": "x"}),
            "string into Go struct field ResourceRequirements.spec.containers.resources.limits of type v1.ResourceList",
        ),
        (
            "securityContext",
            json!({"capabilities": {"add": true}}),
            "bool into Go struct field Capabilities.spec.containers.securityContext.capabilities.add of type []v1.Capability",
        ),
    ] {
        assert_eq!(of_containers(field, value), format!("json: cannot unmarshal {text}"));
    }
}

#[test]
fn the_first_mistake_of_the_document_is_named() {
    let body = br#"{"spec":{"volumes":"x","containers":[{"name":1}]},"metadata":{"name":2}}"#;
    let (mut value, _) = parse_json(body).unwrap();
    let error = decode_builtin(&mut value, &builtin::<Pod>(), body).unwrap_err();
    assert_eq!(
        error,
        "json: cannot unmarshal string into Go struct field PodSpec.spec.volumes of type []v1.Volume"
    );
    let (mut value, _) = parse_json(body).unwrap();
    let error = decode_builtin(&mut value, &builtin::<Pod>(), &[]).unwrap_err();
    assert!(error.contains("ObjectMeta.metadata.name"), "{error}");
}

#[test]
fn metadata_of_any_kind_is_decoded_with_full_paths() {
    let mut object = json!({"metadata": {"name": "x", "colour": "red"}, "spec": {"anything": 1}});
    assert_eq!(decode_metadata(&mut object), Ok(vec!["metadata.colour".to_owned()]));
    assert_eq!(object, json!({"metadata": {"name": "x"}, "spec": {"anything": 1}}));
    assert_eq!(
        decode_metadata(&mut json!({"metadata": {"labels": {"a": 1}}})).unwrap_err(),
        "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"
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
