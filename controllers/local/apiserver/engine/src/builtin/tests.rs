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
fn the_smallest_pod_is_filled_in_as_recorded() {
    let container = json!({"name": "main", "image": "registry.example/app:1", "resources": {},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent"});
    let found = pod(&json!({"containers": [{"name": "main", "image": "registry.example/app:1"}]}));
    let spec = json!({"containers": [container], "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst", "securityContext": {}, "schedulerName": "default-scheduler",
        "enableServiceLinks": true});
    assert_eq!(found["spec"], spec);
    assert_eq!(found["status"], json!({"qosClass": "BestEffort"}));
}

#[test]
fn containers_ports_probes_and_volumes_get_their_defaults() {
    let found = with_container(json!({
        "image": "registry.example/kernel", "ports": [{"containerPort": 80}],
        "env": [{"name": "P", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "L", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}}],
        "readinessProbe": {"tcpSocket": {"port": "qmp"}, "periodSeconds": 3},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}},
        "resources": {"limits": {"cpu": "0.5", "memory": "1024Mi", "ephemeral-storage": "1e3"},
            "requests": {"cpu": 0.1, "memory": "128974848"}},
    }));
    let container = &found["spec"]["containers"][0];
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(container["ports"], json!([{"containerPort": 80, "protocol": "TCP"}]));
    assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], "v1");
    assert_eq!(container["env"][1]["valueFrom"]["resourceFieldRef"]["divisor"], "0");
    let probe = json!({"tcpSocket": {"port": "qmp"}, "timeoutSeconds": 1, "periodSeconds": 3, "successThreshold": 1,
        "failureThreshold": 3});
    assert_eq!(container["readinessProbe"], probe);
    assert_eq!(container["livenessProbe"]["httpGet"]["scheme"], "HTTP");
    let resources = json!({"limits": {"cpu": "500m", "ephemeral-storage": "1e3", "memory": "1Gi"},
        "requests": {"cpu": "100m", "ephemeral-storage": "1e3", "memory": "128974848"}});
    assert_eq!(container["resources"], resources);
    assert_eq!(found["status"]["qosClass"], "Burstable");

    let found = pod(&json!({
        "hostNetwork": true,
        "containers": [{"name": "m", "image": "i@sha256:aa", "ports": [{"containerPort": 80}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}],
        "volumes": [{"name": "v"}, {"name": "h", "hostPath": {"path": "/dev"}}, {"name": "s", "secret": {"secretName": "k"}},
            {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
    }));
    let spec = &found["spec"];
    assert_eq!(
        spec["containers"][0]["ports"],
        json!([{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}])
    );
    assert_eq!(spec["containers"][0]["imagePullPolicy"], "IfNotPresent");
    assert_eq!(found["status"]["qosClass"], "Guaranteed");
    assert_eq!(spec["volumes"][0], json!({"name": "v", "emptyDir": {}}));
    assert_eq!(spec["volumes"][1]["hostPath"]["type"], "");
    assert_eq!(spec["volumes"][2]["secret"]["defaultMode"], 420);
    let token = &spec["volumes"][3]["projected"]["sources"][0]["serviceAccountToken"];
    assert_eq!(token["expirationSeconds"], 3600);
}

#[test]
fn bad_pods_are_refused_as_recorded() {
    let check = |object: &Value| faults("", "Pod", object);
    let error = |object: &Value| validate_create("", "Pod", object)[0].message.clone();
    assert_eq!(check(&pod(&json!({}))), ["spec.containers FieldValueRequired"]);
    assert_eq!(check(&with_container(json!({"name": "Bad"}))), ["spec.containers[0].name FieldValueInvalid"]);
    let twice = pod(&json!({"containers": [{"name": "m", "image": "i"}, {"name": "m", "image": "i"}]}));
    assert_eq!(check(&twice), ["spec.containers[1].name FieldValueDuplicate"]);
    let greedy = with_container(json!({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}));
    assert_eq!(error(&greedy), "Invalid value: \"2\": must be less than or equal to cpu limit of 1");
    let device = "vm.example.dev/kvm";
    let uneven = with_container(json!({"resources": {"requests": {device: "2"}, "limits": {device: "1"}}}));
    assert_eq!(error(&uneven), "Invalid value: \"2\": must be equal to vm.example.dev/kvm limit of 1");
    let base = json!([{"name": "m", "image": "i"}]);
    let volumes = pod(&json!({"containers": base, "volumes": [{"name": "v"}, {"name": "v"}]}));
    assert_eq!(check(&volumes), ["spec.volumes[1].name FieldValueDuplicate"]);
    let mount = with_container(json!({"volumeMounts": [{"name": "none", "mountPath": "/x"}]}));
    assert_eq!(check(&mount), ["spec.containers[0].volumeMounts[0].name FieldValueNotFound"]);
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

fn workload(spec: &Value) -> Value {
    let mut base = json!({"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "img:1"}]}}});
    base.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"metadata": {"name": "d"}, "spec": base})
}

#[test]
fn workloads_are_filled_in_as_recorded() {
    let found = filled("apps", "v1", "Deployment", &workload(&json!({})));
    let spec = &found["spec"];
    let rolling =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}});
    assert_eq!(spec["strategy"], rolling);
    assert_eq!((&spec["replicas"], &spec["revisionHistoryLimit"]), (&json!(1), &json!(10)));
    assert_eq!(spec["progressDeadlineSeconds"], 600);
    assert_eq!(found["status"], json!({}));
    let template = json!({"containers": [{"name": "c", "image": "img:1", "resources": {},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent"}], "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst", "securityContext": {}, "schedulerName": "default-scheduler"});
    assert_eq!(spec["template"]["spec"], template);
    let recreate = filled("apps", "v1", "Deployment", &workload(&json!({"strategy": {"type": "Recreate"}})));
    assert_eq!(recreate["spec"]["strategy"], json!({"type": "Recreate"}));

    let claims = json!([{"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}}]);
    let set = filled(
        "apps",
        "v1",
        "StatefulSet",
        &workload(&json!({"serviceName": "x", "volumeClaimTemplates": claims})),
    );
    let claim = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": "v"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            "volumeMode": "Filesystem"}, "status": {"phase": "Pending"}});
    assert_eq!(set["spec"]["volumeClaimTemplates"], json!([claim]));
    assert_eq!(
        set["spec"]["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
    );
    let retention = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
    assert_eq!(set["spec"]["persistentVolumeClaimRetentionPolicy"], retention);
    assert_eq!(set["status"], json!({"replicas": 0, "availableReplicas": 0}));
    let daemon = filled("apps", "v1", "DaemonSet", &workload(&json!({})));
    let counts = json!({"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0});
    assert_eq!(daemon["status"], counts);
    let update = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}});
    assert_eq!(daemon["spec"]["updateStrategy"], update);
}

#[test]
fn bad_workloads_are_refused_as_recorded() {
    let check =
        |spec: Value| faults("apps", "Deployment", &filled("apps", "v1", "Deployment", &workload(&spec)));
    let none: [&str; 0] = [];
    assert_eq!(check(json!({})), none);
    assert_eq!(check(json!({"replicas": -1})), ["spec.replicas FieldValueInvalid"]);
    let never = json!({"template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}});
    assert_eq!(check(never), ["spec.template.spec.restartPolicy FieldValueNotSupported"]);
    let mut bare = filled("apps", "v1", "Deployment", &workload(&json!({})));
    bare["spec"].as_object_mut().unwrap().remove("selector");
    let wanted = ["spec.selector FieldValueRequired", "spec.template.metadata.labels FieldValueInvalid"];
    assert_eq!(faults("apps", "Deployment", &bare), wanted);
}

#[test]
fn services_autoscalers_and_webhooks_are_filled_in_as_recorded() {
    let ports = json!([{"port": 80, "targetPort": "http"}, {"port": 81}]);
    let service = filled("", "v1", "Service", &json!({"spec": {"selector": {"a": "b"}, "ports": ports}}));
    let wanted = json!({"ports": [{"protocol": "TCP", "port": 80, "targetPort": "http"},
        {"protocol": "TCP", "port": 81, "targetPort": 81}], "selector": {"a": "b"}, "type": "ClusterIP",
        "sessionAffinity": "None", "internalTrafficPolicy": "Cluster"});
    assert_eq!((&service["spec"], &service["status"]), (&wanted, &json!({"loadBalancer": {}})));
    let named = json!({"spec": {"type": "ExternalName", "externalName": "example.dev"}});
    let wanted = json!({"type": "ExternalName", "sessionAffinity": "None", "externalName": "example.dev"});
    assert_eq!(filled("", "v1", "Service", &named)["spec"], wanted);
    let portless = filled("", "v1", "Service", &json!({"spec": {"selector": {"a": "b"}}}));
    assert_eq!(faults("", "Service", &portless), ["spec.ports FieldValueRequired"]);

    let hpa = |spec: &Value| filled("autoscaling", "v2", "HorizontalPodAutoscaler", &json!({"spec": spec}));
    let found =
        hpa(&json!({"maxReplicas": 5, "scaleTargetRef": {"kind": "D", "name": "d", "apiVersion": "apps/v1"},
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60,
            "policies": [{"type": "Percent", "value": 50, "periodSeconds": 15}]}}}));
    assert_eq!(found["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
    assert_eq!(found["status"], json!({"desiredReplicas": 0, "currentMetrics": null}));
    assert_eq!(found["spec"]["behavior"]["scaleUp"]["policies"].as_array().unwrap().len(), 2);
    assert_eq!(found["spec"]["behavior"]["scaleDown"]["selectPolicy"], "Max");
    let hook = |change: Value| {
        let mut hook = json!({"name": "a.example.dev", "clientConfig": {"service": {"namespace": "x", "name": "y"}},
            "rules": [{"apiGroups": ["example.dev"], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["widgets"]}], "admissionReviewVersions": ["v1"], "sideEffects": "None"});
        hook.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let group = "admissionregistration.k8s.io";
        filled(group, "v1", "ValidatingWebhookConfiguration", &json!({"webhooks": [hook]}))
    };
    let check = |change: Value| {
        faults("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", &hook(change))
    };
    let plain = hook(json!({}));
    assert_eq!(plain["webhooks"][0]["clientConfig"]["service"]["port"], 443);
    assert_eq!(plain["webhooks"][0]["rules"][0]["scope"], "*");
    let none: [&str; 0] = [];
    assert_eq!(check(json!({})), none);
    assert_eq!(check(json!({"name": "short"})), ["webhooks[0].name FieldValueInvalid"]);
    assert_eq!(check(json!({"sideEffects": "Some"})), ["webhooks[0].sideEffects FieldValueNotSupported"]);
    assert_eq!(check(json!({"timeoutSeconds": 31})), ["webhooks[0].timeoutSeconds FieldValueInvalid"]);
    assert_eq!(check(json!({"clientConfig": {}})), ["webhooks[0].clientConfig FieldValueRequired"]);
    let odd = json!({"matchConditions": [{"name": "m", "expression": "object. =="}]});
    assert_eq!(check(odd), ["webhooks[0].matchConditions[0].expression FieldValueInvalid"]);
}

#[test]
fn secrets_and_config_maps_keep_their_rules() {
    let secret = |object: Value| filled("", "v1", "Secret", &object);
    let made = secret(json!({"data": {"a": "YQ==", "b": "Yg=="}, "stringData": {"b": "BB", "c": "CC"}}));
    assert_eq!(made, json!({"data": {"a": "YQ==", "b": "QkI=", "c": "Q0M="}, "type": "Opaque"}));
    let check = |object: Value| faults("", "Secret", &secret(object));
    let docker = "kubernetes.io/dockerconfigjson";
    assert_eq!(check(json!({"type": docker})), ["data[.dockerconfigjson] FieldValueRequired"]);
    let nope = json!({"type": docker, "stringData": {".dockerconfigjson": "nope"}});
    assert_eq!(check(nope), ["data[.dockerconfigjson] FieldValueInvalid"]);
    let half = json!({"type": "kubernetes.io/tls", "stringData": {"tls.crt": "x"}});
    assert_eq!(check(half), ["data[tls.key] FieldValueRequired"]);
    let bare = check(json!({"type": "kubernetes.io/basic-auth"}));
    assert_eq!(bare, ["data[password] FieldValueRequired", "data[username] FieldValueRequired"]);
    let (live, new) = (json!({"immutable": true, "data": {"k": "v"}}), json!({"data": {"k": "w"}}));
    let fields: Vec<String> =
        validate_update("", "ConfigMap", "", &new, &live).into_iter().map(|e| e.field).collect();
    assert_eq!(fields, ["immutable", "data"]);
    let odd = json!({"data": {"no spaces": "x", "k": "v"}, "binaryData": {"k": "AAEC"}});
    assert_eq!(
        faults("", "ConfigMap", &odd),
        ["data[k] FieldValueInvalid", "data[no spaces] FieldValueInvalid"]
    );
}

#[test]
fn metadata_is_refused_in_the_recorded_words() {
    let kinds = Kinds::builtin();
    let check = |kind: &str, metadata: Value| -> Vec<String> {
        let group = if kind == "Role" { "rbac.authorization.k8s.io/v1" } else { "v1" };
        let kind = kinds.by_kind(group, kind).unwrap();
        meta::validate(kind, &json!({"metadata": metadata}), None).iter().map(ToString::to_string).collect()
    };
    let none: [&str; 0] = [];
    assert_eq!(check("ConfigMap", json!({"name": "a.b.c"})), none);
    assert_eq!(check("Role", json!({"name": "system:x"})), none);
    assert_eq!(
        check("Role", json!({"name": "a/b"})),
        ["metadata.name: Invalid value: \"a/b\": may not contain '/'"]
    );
    assert_eq!(check("Service", json!({"name": "a.b"})).len(), 1);
    let long = "n".repeat(254);
    let text = format!("metadata.name: Invalid value: \"{long}\": must be no more than 253 characters");
    assert_eq!(check("ConfigMap", json!({"name": long})), [text]);
    let value = "v".repeat(64);
    let text = format!("metadata.labels: Invalid value: \"{value}\": must be no more than 63 bytes");
    assert_eq!(check("ConfigMap", json!({"name": "x", "labels": {"a": value}})), [text]);
    let text = "metadata.finalizers[0]: Invalid value: \"bare\": name is neither a standard finalizer name nor is it \
                fully qualified";
    assert_eq!(check("ConfigMap", json!({"name": "x", "finalizers": ["bare"]})), [text]);
    let owner = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name, "controller": true});
    let twice = check("ConfigMap", json!({"name": "x", "ownerReferences": [owner("a"), owner("b")]}));
    assert!(twice[0].ends_with("references for ConfigMap/a and ConfigMap/b"), "{twice:?}");
    let event = json!([{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "e"}]);
    let text = "metadata.ownerReferences: Invalid value: {\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"e\",\
        \"uid\":\"e\"}: /v1, Kind=Event is disallowed from being an owner";
    assert_eq!(check("ConfigMap", json!({"name": "x", "ownerReferences": event})), [text]);
    let prefixed = check("ConfigMap", json!({"generateName": "Bad_", "name": "Bad_abcde"}));
    assert_eq!(prefixed.len(), 2);

    let live =
        json!({"metadata": {"name": "f", "deletionTimestamp": "t", "finalizers": ["example.dev/one"]}});
    let new = json!({"metadata": {"name": "f", "deletionTimestamp": "t",
        "finalizers": ["example.dev/one", "example.dev/three"]}});
    let kind = kinds.by_kind("v1", "ConfigMap").unwrap();
    let errors = meta::validate(kind, &new, Some(&live));
    assert_eq!(
        errors[0].to_string(),
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new \
         finalizers []string{\"example.dev/three\"}"
    );
}

#[test]
fn roles_nodes_events_and_leases_are_checked_as_recorded() {
    let group = "rbac.authorization.k8s.io";
    let no_verbs = json!({"rules": [{"apiGroups": [""], "resources": ["pods"]}]});
    assert_eq!(faults(group, "Role", &no_verbs), ["rules[0].verbs FieldValueRequired"]);
    let paths = json!({"rules": [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]});
    assert_eq!(faults(group, "Role", &paths), ["rules[0].nonResourceURLs FieldValueInvalid"]);
    let binding = |subject: Value| {
        let role = json!({"kind": "ClusterRole", "name": "r"});
        filled(group, "v1", "ClusterRoleBinding", &json!({"roleRef": role, "subjects": [subject]}))
    };
    let robot = binding(json!({"kind": "Robot", "name": "x"}));
    assert_eq!(faults(group, "ClusterRoleBinding", &robot), ["subjects[0].kind FieldValueNotSupported"]);
    let homeless = binding(json!({"kind": "ServiceAccount", "name": "bot"}));
    assert_eq!(faults(group, "ClusterRoleBinding", &homeless), ["subjects[0].namespace FieldValueRequired"]);
    let ann = binding(json!({"kind": "User", "name": "ann"}));
    assert_eq!(ann["subjects"][0]["apiGroup"], group);
    let mut other = ann.clone();
    other["roleRef"]["name"] = json!("none");
    let error = &validate_update(group, "ClusterRoleBinding", "", &other, &ann)[0];
    assert_eq!(error.field, "roleRef");
    assert!(error.message.ends_with("cannot change roleRef"));

    let node = |spec: Value| filled("", "v1", "Node", &json!({"spec": spec}));
    let first = node(json!({"podCIDR": "10.8.1.0/24", "providerID": "local://1", "unschedulable": false}));
    assert_eq!(
        first["spec"],
        json!({"podCIDR": "10.8.1.0/24", "podCIDRs": ["10.8.1.0/24"], "providerID": "local://1"})
    );
    let second = node(json!({"podCIDR": "10.8.2.0/24", "providerID": "local://2"}));
    let fields: Vec<String> =
        validate_update("", "Node", "", &second, &first).into_iter().map(|e| e.field).collect();
    assert_eq!(fields, ["spec.podCIDRs", "spec.providerID"]);
    let taint = json!({"spec": {"taints": [{"key": "vm", "effect": "Maybe"}]}});
    assert_eq!(faults("", "Node", &taint), ["metadata.taints[0].effect FieldValueNotSupported"]);

    let elsewhere = json!({"metadata": {"namespace": "ns"}, "involvedObject": {"namespace": "elsewhere"}});
    assert_eq!(faults("", "Event", &elsewhere), ["involvedObject.namespace FieldValueInvalid"]);
    let empty = json!({"metadata": {"namespace": "ns"}, "eventTime": "t", "regarding": {"namespace": "ns"}});
    let wanted = [
        "action FieldValueRequired",
        "reason FieldValueRequired",
        "reportingController FieldValueInvalid",
        "reportingController FieldValueInvalid",
        "reportingController FieldValueRequired",
        "reportingInstance FieldValueRequired",
        "type FieldValueInvalid",
    ];
    assert_eq!(faults("events.k8s.io", "Event", &empty), wanted);
    let lease = json!({"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}});
    let wanted = ["spec.leaseDurationSeconds FieldValueInvalid", "spec.leaseTransitions FieldValueInvalid"];
    assert_eq!(faults("coordination.k8s.io", "Lease", &lease), wanted);
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
