#![allow(clippy::needless_pass_by_value, reason = "`json!` literals are passed as they are")]

use serde_json::{Value, json};

use crate::kinds::Kinds;
use crate::object::at;

/// An object with its defaults.
fn filled(api_version: &str, kind: &str, object: Value) -> Value {
    let kinds = Kinds::builtin();
    let kind = kinds.by_kind(api_version, kind).unwrap();
    let mut object = object;
    crate::schema::decode::decode_builtin(&mut object, kind.schema()).unwrap();
    crate::builtin::default(&kind.group, &kind.version, &kind.kind, &mut object);
    object
}

/// A container and a volume of a pod, with their defaults.
fn pod(container: Value, volume: Value) -> (Value, Value) {
    let spec = json!({ "containers": [container], "volumes": [volume] });
    let mut pod = filled("v1", "Pod", json!({ "metadata": { "name": "p" }, "spec": spec }));
    (pod["spec"]["containers"][0].take(), pod["spec"]["volumes"][0].take())
}

#[test]
fn probes_get_their_defaults_for_zeros_as_well() {
    let counts =
        json!({ "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3 });
    for (probe, want) in [
        (
            json!({ "httpGet": { "port": 80, "path": "", "host": "", "scheme": "" }, "initialDelaySeconds": 0,
                "timeoutSeconds": 0, "periodSeconds": 0, "successThreshold": 0, "failureThreshold": 0 }),
            json!({ "httpGet": { "port": 80, "path": "/", "scheme": "HTTP" } }),
        ),
        (json!({ "grpc": { "port": 80 } }), json!({ "grpc": { "port": 80, "service": "" } })),
        (json!({ "tcpSocket": { "port": "web" } }), json!({ "tcpSocket": { "port": "web" } })),
        (
            json!({ "exec": { "command": ["x"] }, "terminationGracePeriodSeconds": 0 }),
            json!({ "exec": { "command": ["x"] }, "terminationGracePeriodSeconds": 0 }),
        ),
    ] {
        for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
            let (container, _) =
                pod(json!({ "name": "c", "image": "i", (kind): probe }), json!({ "name": "v" }));
            let mut want = want.clone();
            want.as_object_mut().unwrap().extend(counts.as_object().unwrap().clone());
            assert_eq!(container[kind], want, "{kind}");
        }
    }
}

#[test]
fn volumes_get_their_defaults() {
    for (volume, want) in [
        (json!({ "name": "v" }), json!({ "name": "v", "emptyDir": {} })),
        (json!({ "name": "v", "emptyDir": { "medium": "" } }), json!({ "name": "v", "emptyDir": {} })),
        (
            json!({ "name": "v", "hostPath": { "path": "/x" } }),
            json!({ "name": "v", "hostPath": { "path": "/x", "type": "" } }),
        ),
        (
            json!({ "name": "v", "secret": { "secretName": "s", "defaultMode": 0 } }),
            json!({ "name": "v", "secret": { "secretName": "s", "defaultMode": 0 } }),
        ),
        (
            json!({ "name": "v", "projected": { "sources": [{ "serviceAccountToken": { "path": "t", "audience": "" } },
                { "downwardAPI": { "items": [{ "path": "l", "fieldRef": { "fieldPath": "metadata.labels" } }] } }] } }),
            json!({ "name": "v", "projected": { "defaultMode": 420, "sources": [
                { "serviceAccountToken": { "path": "t", "expirationSeconds": 3600 } },
                { "downwardAPI": { "items": [{ "path": "l",
                    "fieldRef": { "fieldPath": "metadata.labels", "apiVersion": "v1" } }] } }] } }),
        ),
        (
            json!({ "name": "v", "ephemeral": { "volumeClaimTemplate": { "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } } } }),
            json!({ "name": "v", "ephemeral": { "volumeClaimTemplate": { "metadata": {}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
                "volumeMode": "Filesystem" } } } }),
        ),
        (
            json!({ "name": "v", "image": { "reference": "r", "pullPolicy": "" } }),
            json!({ "name": "v", "image": { "reference": "r", "pullPolicy": "Always" } }),
        ),
    ] {
        let (_, found) = pod(json!({ "name": "c", "image": "i" }), volume);
        assert_eq!(found, want);
    }
}

#[test]
fn other_kinds_get_their_defaults() {
    for (api_version, kind, object, path, want) in [
        (
            "apps/v1",
            "StatefulSet",
            json!({ "spec": {} }),
            "spec.updateStrategy",
            json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } }),
        ),
        (
            "apps/v1",
            "StatefulSet",
            json!({ "spec": { "updateStrategy": { "type": "RollingUpdate" } } }),
            "spec.updateStrategy",
            json!({ "type": "RollingUpdate" }),
        ),
        (
            "v1",
            "Service",
            json!({ "spec": { "sessionAffinity": "ClientIP", "sessionAffinityConfig": { "clientIP": {} } } }),
            "spec.sessionAffinityConfig",
            json!({ "clientIP": { "timeoutSeconds": 10800 } }),
        ),
        (
            "v1",
            "Service",
            json!({ "spec": { "externalIPs": ["1.2.3.4"] } }),
            "spec.externalTrafficPolicy",
            json!("Cluster"),
        ),
        (
            "v1",
            "Service",
            json!({ "spec": { "ports": [{ "port": 80, "targetPort": 0 }] } }),
            "spec.ports",
            json!([{ "port": 80, "targetPort": 80, "protocol": "TCP" }]),
        ),
        (
            "v1",
            "Node",
            json!({ "status": { "capacity": { "cpu": "2" } } }),
            "status.allocatable",
            json!({ "cpu": "2" }),
        ),
        (
            "discovery.k8s.io/v1",
            "EndpointSlice",
            json!({ "addressType": "IPv4", "ports": [{ "port": 1 }] }),
            "ports",
            json!([{ "name": "", "port": 1, "protocol": "TCP" }]),
        ),
    ] {
        let object = filled(api_version, kind, object);
        assert_eq!(at(&object, path), Some(&want), "{kind} {path}");
    }
}
