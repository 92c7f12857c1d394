#![allow(clippy::needless_pass_by_value, reason = "`json!` literals are passed as they are")]

use k8s_openapi::api::{
    admissionregistration::v1 as admission, apps::v1 as apps, autoscaling::v2 as autoscaling2,
    batch::v1 as batch, core::v1 as core, rbac::v1 as rbac,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::kinds::Kinds;
use crate::patch::strategic_json;
use crate::schema::builtin::builtin;
use crate::schema::decode::decode_builtin;

/// Registers the schemas that a running server has.
fn schemas() {
    let _ = (
        builtin::<core::Pod>(),
        builtin::<core::Secret>(),
        builtin::<core::Service>(),
        builtin::<core::Node>(),
    );
    let _ = (builtin::<apps::Deployment>(), builtin::<apps::StatefulSet>(), builtin::<apps::DaemonSet>());
    let _ = (builtin::<batch::Job>(), builtin::<rbac::RoleBinding>());
    let _ = builtin::<autoscaling2::HorizontalPodAutoscaler>();
    let _ = (
        builtin::<admission::ValidatingWebhookConfiguration>(),
        builtin::<core::Event>(),
        builtin::<core::ConfigMap>(),
    );
}

fn filled(group: &str, version: &str, kind: &str, object: &Value) -> Value {
    schemas();
    let kinds = Kinds::builtin();
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let kind = kinds.by_kind(&api_version, kind).unwrap();
    let mut object = object.clone();
    decode_builtin(&mut object, kind.schema()).unwrap();
    default(group, version, &kind.kind, &mut object);
    let once = object.clone();
    default(group, version, &kind.kind, &mut object);
    assert_eq!(object, once, "defaults settle at once");
    object
}

/// The faults of a new object as `<field> <reason>`, sorted.
fn faults(group: &str, kind: &str, object: &Value) -> Vec<String> {
    let mut list: Vec<String> = validate_create(group, kind, object)
        .iter()
        .map(|error| format!("{} {}", error.field, error.reason.as_str()))
        .collect();
    list.sort();
    list
}

fn pod(spec: &Value) -> Value {
    filled("", "v1", "Pod", &json!({"metadata": {"name": "x"}, "spec": spec}))
}

fn with_container(container: Value) -> Value {
    let mut base = json!({"name": "main", "image": "registry.example/app:1"});
    base.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    pod(&json!({"containers": [base]}))
}

#[test]
fn the_table_of_checks_holds_wherever_a_type_is_used() {
    for (container, want) in [
        (json!({"ports": [{"containerPort": 0}]}), "ports[0].containerPort FieldValueRequired"),
        (json!({"ports": [{"containerPort": 70000}]}), "ports[0].containerPort FieldValueInvalid"),
        (
            json!({"ports": [{"containerPort": 1, "protocol": "X"}]}),
            "ports[0].protocol FieldValueNotSupported",
        ),
        (json!({"env": [{"name": "a=b"}]}), "env[0].name FieldValueInvalid"),
        (json!({"env": [{"name": "A", "valueFrom": {}}]}), "env[0].valueFrom FieldValueInvalid"),
        (json!({"livenessProbe": {}}), "livenessProbe FieldValueRequired"),
        (
            json!({"livenessProbe": {"tcpSocket": {"port": 1}, "exec": {"command": ["a"]}}}),
            "livenessProbe.tcpSocket FieldValueForbidden",
        ),
        (json!({"securityContext": {"runAsUser": -1}}), "securityContext.runAsUser FieldValueInvalid"),
    ] {
        let mut whole = json!({"name": "a", "image": "i"});
        whole.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        let expected = format!("spec.containers[0].{want}");
        assert_eq!(faults("", "Pod", &pod(&json!({"containers": [whole]}))), [expected], "{container}");
    }
    for (tolerations, want) in [
        (json!([{"key": "a", "operator": "Exists", "value": "b"}]), "operator FieldValueInvalid"),
        (json!([{"key": "a", "operator": "Nope"}]), "operator FieldValueNotSupported"),
        (json!([{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5}]), "effect FieldValueInvalid"),
    ] {
        let spec = json!({"containers": [{"name": "a", "image": "i"}], "tolerations": tolerations});
        assert_eq!(faults("", "Pod", &pod(&spec)), [format!("spec.tolerations[0].{want}")]);
    }
}

#[test]
fn huge_pages_and_parts_of_amounts() {
    let found = |resources: Value| {
        faults("", "Pod", &pod(&json!({"containers": [{"name": "a", "image": "i", "resources": resources}]})))
    };
    let path = "spec.containers[0].resources";
    assert_eq!(found(json!({"limits": {"hugepages-2Mi": "4Mi", "cpu": "1"}})), Vec::<String>::new());
    assert_eq!(found(json!({"limits": {"hugepages-2Mi": "4Mi"}})), [format!("{path} FieldValueForbidden")]);
    assert_eq!(
        found(json!({"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}})),
        ["limits", "requests"].map(|list| format!("{path}.{list}[hugepages-2Mi] FieldValueInvalid"))
    );
    let small = json!({"limits": {"cpu": "150500u", "memory": "0.5"}});
    let rounded = pod(&json!({"containers": [{"name": "a", "image": "i", "resources": small}]}));
    let limits = json!({"cpu": "151m", "memory": "500m"});
    assert_eq!(rounded["spec"]["containers"][0]["resources"]["limits"], limits);
    assert_eq!(warnings("Pod", &rounded).len(), 2);
}

#[test]
fn the_address_of_a_webhook_is_https_with_host_and_path_only() {
    let found = |url: &str| {
        let mut errors = Vec::new();
        webhook::validate_client(&json!({"url": url}), "c", &mut errors);
        errors.iter().map(|error| error.reason.as_str()).collect::<Vec<_>>()
    };
    for good in ["https://a.b/c", "HTTPS://a.b:80/c d", "https://[::1]/c", "https://a.b/c?"] {
        assert_eq!(found(good), Vec::<&str>::new(), "{good}");
    }
    let invalid = "FieldValueInvalid";
    for (bad, want) in [
        ("http://a.b", vec![invalid]),
        ("https:///c", vec![invalid]),
        ("a.b/c", vec![invalid, invalid]),
        ("https://u@a.b/c?d#e", vec![invalid, invalid, invalid]),
        ("https://a.b:x", vec!["FieldValueRequired"]),
        ("https://a b/c", vec!["FieldValueRequired"]),
        ("https://a.b/%zz", vec!["FieldValueRequired"]),
        ("://a", vec!["FieldValueRequired"]),
    ] {
        assert_eq!(found(bad), want, "{bad}");
    }
}

#[test]
fn pods_change_in_few_ways() {
    let live = with_container(json!({}));
    let change = |path: &str, value: Value| {
        let mut new = live.clone();
        let (parent, key) = path.rsplit_once('/').unwrap();
        let map = new.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        map.insert(key.to_owned(), value);
        let errors = validate_update("", "Pod", "", &new, &live);
        errors.iter().map(|error| format!("{} {}", error.field, error.reason.as_str())).collect::<Vec<_>>()
    };
    let none: [&str; 0] = [];
    assert_eq!(change("/spec/containers/0/image", json!("registry.example/app:2")), none);
    assert_eq!(change("/metadata/labels", json!({"a": "b"})), none);
    assert_eq!(change("/spec/containers/0/command", json!(["x"])), ["spec FieldValueForbidden"]);
    assert_eq!(change("/spec/nodeName", json!("n")), ["spec FieldValueForbidden"]);
    assert_eq!(change("/spec/tolerations", json!([{"key": "new", "operator": "Exists"}])), none);
    assert_eq!(change("/spec/activeDeadlineSeconds", json!(100)), none);
    let more = json!([live["spec"]["containers"][0], {"name": "more", "image": "x"}]);
    assert_eq!(change("/spec/containers", more), ["spec.containers FieldValueForbidden"]);
    let mut dated = live.clone();
    dated["spec"]["activeDeadlineSeconds"] = json!(100);
    let mut later = live.clone();
    later["spec"]["activeDeadlineSeconds"] = json!(200);
    assert_eq!(validate_update("", "Pod", "", &later, &dated)[0].field, "spec.activeDeadlineSeconds");
}

proptest! {
    #[test]
    fn arbitrary_objects_never_panic(spec in strategic_json(), other in strategic_json(), at in 0usize..100) {
        schemas();
        let kinds = Kinds::builtin();
        let all: Vec<_> = kinds.all().collect();
        let kind = all[at % all.len()];
        let object = |spec: &Value| json!({"metadata": spec, "spec": {"containers": spec, "template": {"spec": {"containers": [spec]}},
            "selector": spec, "metrics": spec, "ports": [spec], "volumes": spec}, "rules": [spec], "webhooks": [spec], "data": spec});
        let (mut new, live) = (object(&spec), object(&other));
        default(&kind.group, &kind.version, &kind.kind, &mut new);
        let _ = meta::validate(kind, &new, Some(&live));
        let _ = validate_create(&kind.group, &kind.kind, &new);
        let _ = validate_update(&kind.group, &kind.kind, "", &new, &live);
        let _ = validate_update(&kind.group, &kind.kind, "status", &new, &live);
    }
}
