use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::table::{self, Count, Field, Message, Type};
use super::wire::Writer;
use super::{MAGIC, decode};
use crate::admission::Trail;
use crate::answer::Reply;
use crate::context::{Context, User};
use crate::engine::Engine;
use crate::kinds::Kinds;
use crate::request::{Method, Request};
use crate::schema::Schema;
use crate::store::Store;

const POD: &str = "io.k8s.api.core.v1.Pod";
const CRD: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition";

fn envelope(api_version: &str, kind: &str, raw: &[u8], content_type: &str) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.message(1, |meta| {
        meta.bytes(1, api_version.as_bytes());
        meta.bytes(2, kind.as_bytes());
    });
    writer.bytes(2, raw);
    writer.bytes(3, b"");
    writer.bytes(4, content_type.as_bytes());
    [MAGIC, &writer.finish()].concat()
}

/// What a Go client would send for the object.
fn encode(type_name: &str, object: &Value) -> Vec<u8> {
    let message = table::message(type_name.strip_prefix("io.k8s.").unwrap()).unwrap();
    let mut writer = Writer::default();
    put_fields(&mut writer, message, object);
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or("");
    envelope(text("apiVersion"), text("kind"), &writer.finish(), "")
}

fn put_fields(writer: &mut Writer, message: &Message, object: &Value) {
    for field in &message.fields {
        if field.name.is_empty() {
            let Type::Message(name) = &field.of else { panic!("only messages are inlined") };
            writer.message(field.number, |inner| put_fields(inner, table::message(name).unwrap(), object));
            continue;
        }
        let Some(value) = object.get(field.name) else { continue };
        match field.count {
            Count::One | Count::Optional => put(writer, field.number, field, value),
            Count::List => {
                value.as_array().unwrap().iter().for_each(|item| put(writer, field.number, field, item));
            }
            Count::Map => {
                for (key, item) in value.as_object().unwrap() {
                    writer.message(field.number, |entry| {
                        entry.bytes(1, key.as_bytes());
                        put(entry, 2, field, item);
                    });
                }
            }
        }
    }
}

fn put(writer: &mut Writer, number: u32, field: &Field, value: &Value) {
    let bytes = value.as_str().unwrap_or("").as_bytes();
    match &field.of {
        Type::Text => writer.bytes(number, bytes),
        Type::Flag => writer.varint(number, value.as_bool().unwrap().into()),
        Type::Integer => writer.varint(number, value.as_i64().unwrap().cast_unsigned()),
        Type::Double => panic!("no sample has one"),
        Type::Bytes => writer.bytes(number, &STANDARD.decode(bytes).unwrap()),
        Type::Quantity => writer.message(number, |inner| inner.bytes(1, bytes)),
        Type::Time { .. } => {
            let time: jiff::Timestamp = value.as_str().unwrap().parse().unwrap();
            writer.message(number, |inner| {
                inner.varint(1, time.as_second().cast_unsigned());
                inner.varint(2, time.subsec_nanosecond().try_into().unwrap());
            });
        }
        Type::IntOrString => writer.message(number, |inner| {
            inner.varint(1, value.is_string().into());
            inner.varint(2, value.as_i64().unwrap_or(0).cast_unsigned());
            inner.bytes(3, bytes);
        }),
        Type::Raw => writer.message(number, |inner| inner.bytes(1, value.to_string().as_bytes())),
        Type::Message(name) => {
            writer.message(number, |inner| put_fields(inner, table::message(name).unwrap(), value));
        }
        Type::Union(name) => {
            writer.message(number, |inner| put_union(inner, table::message(name).unwrap(), value));
        }
    }
}

fn put_union(writer: &mut Writer, message: &Message, value: &Value) {
    let fits = |field: &&Field| match value {
        Value::Array(_) => field.count == Count::List,
        Value::Bool(_) => field.of == Type::Flag,
        _ => matches!(field.of, Type::Message(_)),
    };
    let field = message.fields.iter().find(fits).unwrap();
    put_fields(writer, message, &json!({ field.name: value }));
}

#[track_caller]
fn comes_back(type_name: &str, object: &Value) {
    assert_eq!(&decode(&encode(type_name, object), type_name).unwrap(), object);
}

#[test]
fn objects_come_back_as_they_were() {
    comes_back(
        POD,
        &json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "p", "labels": { "a": "", "b": "ü" }, "generation": 3,
                "creationTimestamp": "2026-01-02T03:04:05Z",
                "managedFields": [{ "manager": "m", "time": "2026-01-02T03:04:05Z", "fieldsV1": { "f:x": {} } }],
                "ownerReferences": [{ "kind": "K", "name": "o", "controller": false }] },
            "spec": { "terminationGracePeriodSeconds": 0, "hostNetwork": true, "nodeSelector": { "a": "b" },
                "volumes": [{ "name": "v", "emptyDir": { "sizeLimit": "1Gi" } }],
                "containers": [{ "name": "c", "args": ["", "x"], "stdin": true,
                    "env": [{ "name": "e", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }],
                    "livenessProbe": { "httpGet": { "port": "web", "path": "/" }, "periodSeconds": 5 },
                    "readinessProbe": { "tcpSocket": { "port": 80 } },
                    "resources": { "limits": { "cpu": "250m" } },
                    "securityContext": { "runAsUser": -1, "privileged": false } }] } }),
    );
    comes_back(
        "io.k8s.api.core.v1.Secret",
        &json!({ "apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": { "k": "AP8=" }, "type": "Opaque" }),
    );
    comes_back(
        "io.k8s.api.coordination.v1.Lease",
        &json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "spec": { "holderIdentity": "", "renewTime": "2026-01-02T03:04:05.000006Z" } }),
    );
    comes_back(
        "io.k8s.api.authorization.v1.SubjectAccessReview",
        &json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": { "user": "u", "extra": { "scopes": ["a", "b"] } } }),
    );
    comes_back(
        CRD,
        &json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "spec": { "versions": [{ "name": "v1", "served": true, "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": { "a": { "type": "array", "items": { "default": { "x": [1, null] }, "enum": ["q", 2] } },
                    "b": { "additionalProperties": false }, "c": { "additionalProperties": { "minLength": 0 } } },
                "dependencies": { "a": ["b"], "c": { "required": ["b"] } } } } }] } }),
    );
}

#[test]
fn values_that_go_leaves_out_are_left_out() {
    let mut raw = Writer::default();
    raw.message(1, |meta| {
        meta.bytes(1, b"n");
        meta.bytes(3, b"");
        meta.varint(7, 0);
        meta.bytes(8, b"");
    });
    raw.message(2, |spec| {
        spec.varint(1, 0);
        spec.varint(5, 0);
    });
    let body = envelope("apps/v1", "Deployment", &raw.finish(), "");
    let object = decode(&body, "io.k8s.api.apps.v1.Deployment").unwrap();
    // `replicas` is a pointer in Go, `minReadySeconds` is not.
    let wanted = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "n" },
        "spec": { "replicas": 0 } });
    assert_eq!(object, wanted);
}

#[test]
fn numbers_may_be_packed_or_not() {
    let mut raw = Writer::default();
    raw.message(2, |spec| {
        spec.message(14, |context| {
            context.varint(4, 7);
            context.bytes(4, &[8, 0x80, 1]);
        });
    });
    let object = decode(&envelope("v1", "Pod", &raw.finish(), ""), POD).unwrap();
    assert_eq!(object["spec"]["securityContext"]["supplementalGroups"], json!([7, 8, 128]));
}

#[test]
fn the_envelope_may_hold_json_or_another_kind() {
    let body = envelope("v1", "Pod", br#"{"spec":{"nodeName":"n"}}"#, "application/json");
    let wanted = json!({ "apiVersion": "v1", "kind": "Pod", "spec": { "nodeName": "n" } });
    assert_eq!(decode(&body, POD).unwrap(), wanted);
    let other = envelope("apps/v1", "Deployment", &[0xff], "");
    assert_eq!(decode(&other, POD).unwrap(), json!({ "apiVersion": "apps/v1", "kind": "Deployment" }));
}

#[track_caller]
fn refused(raw: &[u8], why: &str) {
    let error = decode(&envelope("v1", "Pod", raw, ""), POD).unwrap_err();
    assert_eq!(error.code, 400);
    assert_eq!(error.message, format!("Pod in version \"v1\" cannot be handled as a Pod: {why}"));
}

#[test]
fn malformed_messages_are_refused() {
    refused(&[0x0a], "unexpected EOF");
    refused(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], "unexpected EOF");
    refused(&[0x80; 11], "proto: integer overflow");
    refused(&[0x08, 1], "proto: wrong wireType = 0 for field metadata");
    refused(&[0x0a, 3, 0x0a, 1, 0xff], "proto: text is no valid UTF-8");
    refused(&[0x0b], "unexpected EOF");
    refused(&[0x0c], "proto: unexpected end of group");
    refused(&[0x0f], "proto: illegal wireType 7");
    refused(&[0x00, 1], "proto: illegal tag");
    let error = decode(b"{}", POD).unwrap_err();
    assert!(
        error.message.starts_with("the object provided is unrecognized (must be of type Pod): "),
        "{}",
        error.message
    );
}

#[test]
fn nesting_is_limited() {
    // JSONSchemaProps.not, many times.
    let mut schema = Vec::new();
    for _ in 0..1000 {
        let mut outer = Writer::default();
        outer.bytes(28, &schema);
        schema = outer.finish();
    }
    let mut raw = Writer::default();
    raw.message(2, |spec| spec.message(7, |v| v.message(4, |s| s.bytes(1, &schema))));
    let error =
        decode(&envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", &raw.finish(), ""), CRD);
    assert!(error.unwrap_err().message.ends_with("proto: messages are nested too deeply"));
    refused(&[0x0b; 1000], "proto: groups are nested too deeply");
    let deep = format!("{}{}", "[".repeat(120), "]".repeat(120));
    let entry = json!({ "metadata": { "managedFields": [{ "fieldsV1": {} }] } });
    let mut entry = entry;
    entry["metadata"]["managedFields"][0]["fieldsV1"] = serde_json::from_str(&deep).unwrap();
    comes_back(POD, &entry);
    let deeper = format!("{}{}", "[".repeat(126), "]".repeat(126));
    entry["metadata"]["managedFields"][0]["fieldsV1"] = serde_json::from_str(&deeper).unwrap();
    let error = decode(&encode(POD, &entry), POD).unwrap_err();
    assert!(error.message.ends_with("exceeded max depth"), "{}", error.message);
}

#[test]
fn values_are_counted_in_messages_and_in_the_json_inside() {
    let many = json!({ "metadata": { "finalizers": vec![""; 260_000] } });
    let raw = json!({ "metadata": { "managedFields": vec![json!({ "fieldsV1": vec![1; 100_000] }); 3] } });
    for object in [many, raw] {
        let error = decode(&encode(POD, &object), POD).unwrap_err();
        assert!(error.message.contains("limit is 250000 values"), "{}", error.message);
    }
}

/// Every property of every built-in kind has a number, and nothing else has one.
#[test]
fn the_table_covers_the_schemas() {
    fn properties(message: &Message, into: &mut Map<String, Value>) {
        for field in &message.fields {
            match &field.of {
                Type::Message(name) if field.name.is_empty() => {
                    properties(table::message(name).unwrap(), into);
                }
                _ => drop(into.insert(field.name.to_owned(), Value::Null)),
            }
        }
    }
    fn check(schema: &Schema, seen: &mut Map<String, Value>) {
        let name = schema.type_name.clone().unwrap_or_default();
        if !name.is_empty() && seen.insert(name.clone(), Value::Null).is_some() {
            return;
        }
        if !schema.properties.is_empty() {
            let message = table::message(name.strip_prefix("io.k8s.").unwrap());
            let mut known = Map::new();
            properties(message.unwrap_or_else(|| panic!("no message {name}")), &mut known);
            for key in schema.properties.keys().filter(|key| !matches!(key.as_str(), "apiVersion" | "kind")) {
                assert!(known.contains_key(key), "{name} has no number for {key}");
            }
        }
        for child in schema.properties.values().chain(&schema.items).chain(&schema.additional) {
            check(child, seen);
        }
    }
    let mut seen = Map::new();
    Kinds::builtin().all().for_each(|kind| check(kind.schema(), &mut seen));
    assert!(seen.len() > 300, "only {} types", seen.len());
    for (name, message) in table::all() {
        assert!(message.fields.is_sorted_by_key(|field| field.number), "{name}");
        for field in &message.fields {
            if let Type::Message(inner) | Type::Union(inner) = &field.of {
                assert!(table::message(inner).is_some(), "{name} refers to {inner}");
            }
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(raw in prop::collection::vec(any::<u8>(), 0..300), whole in any::<bool>()) {
        let body = if whole { [MAGIC, raw.as_slice()].concat() } else { envelope("", "", &raw, "") };
        for type_name in [POD, CRD] {
            if let Err(error) = decode(&body, type_name) {
                prop_assert_eq!(error.code, 400);
            }
        }
    }

    /// Bytes that are nearly right reach deeper than random ones.
    #[test]
    fn damaged_messages_are_read_or_refused(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "labels": { "a": "b" },
            "creationTimestamp": "2026-01-02T03:04:05Z" }, "spec": { "hostNetwork": true, "containers": [{ "name": "c",
            "resources": { "limits": { "cpu": "1" } }, "livenessProbe": { "httpGet": { "port": 80 } } }] } });
        let mut body = encode(POD, &pod);
        let at = at.index(body.len());
        body[at] = byte;
        if cut {
            body.truncate(at);
        }
        if let Err(error) = decode(&body, POD) {
            prop_assert_eq!(error.code, 400);
        }
    }

    #[test]
    fn config_maps_come_back(data in prop::collection::btree_map(".{0,8}", ".{0,20}", 1..8), immutable in any::<bool>()) {
        comes_back("io.k8s.api.core.v1.ConfigMap", &json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "c" }, "data": data, "immutable": immutable }));
    }
}

/// Sends a protobuf body through the whole server.
fn send(engine: &mut Engine, method: Method, path: &str, body: &[u8]) -> (u16, Value) {
    let user = User { name: "admin".into(), groups: vec!["system:masters".into()], ..User::default() };
    let request = Request {
        method,
        path,
        query: "fieldValidation=Strict",
        accept: "application/vnd.kubernetes.protobuf,application/json",
        content_type: super::MEDIA_TYPE,
        user_agent: "test/1",
        body,
        user: &user,
    };
    let context = Context { now: jiff::Timestamp::UNIX_EPOCH, seed: 1 << 64 };
    let Reply::Answer(answer) = engine.write(&request, &context, &Trail::default()) else {
        panic!("no answer")
    };
    (answer.code, serde_json::from_slice(&answer.body).unwrap())
}

#[test]
fn objects_are_made_changed_and_deleted_with_protobuf_bodies() {
    let mut engine = Engine::new(Store::new(100));
    let namespace = encode("io.k8s.api.core.v1.Namespace", &json!({ "metadata": { "name": "ns" } }));
    let (code, made) = send(&mut engine, Method::Post, "/api/v1/namespaces", &namespace);
    assert_eq!((code, &made["kind"]), (201, &json!("Namespace")));

    let mut map =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c" }, "data": { "a": "b" } });
    let path = "/api/v1/namespaces/ns/configmaps";
    let body = encode("io.k8s.api.core.v1.ConfigMap", &map);
    let (code, made) = send(&mut engine, Method::Post, path, &body);
    assert_eq!((code, &made["data"]), (201, &json!({ "a": "b" })));
    map["data"] = json!({ "a": "c" });
    let body = encode("io.k8s.api.core.v1.ConfigMap", &map);
    let (code, made) = send(&mut engine, Method::Put, "/api/v1/namespaces/ns/configmaps/c", &body);
    assert_eq!((code, &made["data"]), (200, &json!({ "a": "c" })));
    let (code, refused) = send(&mut engine, Method::Post, "/api/v1/namespaces/ns/secrets", &body);
    assert_eq!(code, 400);
    assert_eq!(
        refused["message"],
        "the kind in the data (ConfigMap) does not match the expected kind (Secret)"
    );
    assert_eq!(send(&mut engine, Method::Patch, "/api/v1/namespaces/ns/configmaps/c", &body).0, 415);

    let options = |uid: &str| {
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": uid } });
        encode("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", &options)
    };
    let mut delete =
        |uid: &str| send(&mut engine, Method::Delete, "/api/v1/namespaces/ns/configmaps/c", &options(uid)).0;
    assert_eq!(delete("other"), 409);
    assert_eq!(delete(made["metadata"]["uid"].as_str().unwrap()), 200);
}

#[test]
fn commands_are_read_from_protobuf_bodies() {
    let mut engine = Engine::new(Store::new(100));
    let mut post = |method, path: &str, type_name: &str, body: &Value| {
        send(&mut engine, method, path, &encode(type_name, body))
    };
    let name = |name: &str| json!({ "metadata": { "name": name } });
    assert_eq!(post(Method::Post, "/api/v1/namespaces", "io.k8s.api.core.v1.Namespace", &name("ns")).0, 201);
    let accounts = "/api/v1/namespaces/ns/serviceaccounts";
    assert_eq!(post(Method::Post, accounts, "io.k8s.api.core.v1.ServiceAccount", &name("default")).0, 201);
    let pod =
        json!({ "metadata": { "name": "p" }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    assert_eq!(post(Method::Post, "/api/v1/namespaces/ns/pods", POD, &pod).0, 201);

    let binding = json!({ "metadata": { "name": "p" }, "target": { "kind": "Pod", "name": "n" } });
    let (code, refused) =
        post(Method::Post, "/api/v1/namespaces/ns/pods/p/binding", "io.k8s.api.core.v1.Binding", &binding);
    assert_eq!(code, 500, "the target is read: {refused}");
    let eviction = json!({ "kind": "Eviction", "apiVersion": "policy/v1beta1", "metadata": { "name": "q" } });
    let (code, refused) = post(
        Method::Post,
        "/api/v1/namespaces/ns/pods/p/eviction",
        "io.k8s.api.policy.v1.Eviction",
        &eviction,
    );
    assert_eq!(code, 400, "the name is read: {refused}");
    let token = json!({ "kind": "TokenRequest", "spec": { "expirationSeconds": 1 } });
    let request = "io.k8s.api.authentication.v1.TokenRequest";
    let (code, refused) =
        post(Method::Post, "/api/v1/namespaces/ns/serviceaccounts/default/token", request, &token);
    assert_eq!(code, 422, "the time is read: {refused}");

    let deployment = json!({ "metadata": { "name": "d" }, "spec": { "selector": { "matchLabels": { "a": "b" } },
        "template": { "metadata": { "labels": { "a": "b" } }, "spec": pod["spec"] } } });
    let path = "/apis/apps/v1/namespaces/ns/deployments";
    assert_eq!(post(Method::Post, path, "io.k8s.api.apps.v1.Deployment", &deployment).0, 201);
    let scale = json!({ "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": { "name": "d" }, "spec": { "replicas": 3 } });
    let (code, scaled) =
        post(Method::Put, &format!("{path}/d/scale"), "io.k8s.api.autoscaling.v1.Scale", &scale);
    assert_eq!((code, &scaled["spec"]["replicas"]), (200, &json!(3)));
}

#[test]
fn custom_kinds_have_no_protobuf_form() {
    let mut engine = Engine::new(Store::new(100));
    let definition = json!({ "metadata": { "name": "boats.x.dev" }, "spec": { "group": "x.dev", "scope": "Cluster",
        "names": { "plural": "boats", "kind": "Boat" }, "versions": [{ "name": "v1", "served": true, "storage": true,
        "schema": { "openAPIV3Schema": { "type": "object" } } }] } });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, made) = send(&mut engine, Method::Post, path, &encode(CRD, &definition));
    assert_eq!(code, 201, "{made}");
    let context = Context { now: jiff::Timestamp::UNIX_EPOCH, seed: 2 << 64 };
    while engine.run_tasks(&context, 100) {}
    let (code, refused) =
        send(&mut engine, Method::Post, "/apis/x.dev/v1/boats", &envelope("x.dev/v1", "Boat", b"", ""));
    assert_eq!(code, 415);
    assert!(refused["message"].as_str().unwrap().ends_with("include: application/json"), "{refused}");
}
