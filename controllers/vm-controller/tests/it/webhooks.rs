//! Webhooks: called by the API server, and called by hand.

use neonvm_test_support::eventually;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use neonvm_kit::ca::Identity;
use neonvm_kit::port::Reserved;
use neonvm_types::NamespacedName;
use neonvm_vm_controller::{Config, Registration, WebhookConfig, WebhookScope};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::cluster::Cluster;

/// And where it listens.
pub(crate) fn config(cluster: &Cluster) -> (Config, Reserved) {
    let listen = Reserved::loopback().unwrap();
    let mut config = cluster.config.clone();
    config.skip_update_validation = vec![NamespacedName::new("default", "free")];
    config.webhook = Some(WebhookConfig {
        listen: listen.address(),
        names: Vec::new(),
        register: Some(Registration::Url(format!("https://{}", listen.address()))),
        scope: WebhookScope::All,
        autoscaler: false,
        client: Some(cluster.caller()),
    });
    (config, listen)
}

pub(crate) async fn post(
    cluster: &Cluster,
    address: SocketAddr,
    path: &str,
    body: &str,
) -> (StatusCode, String) {
    let caller = cluster.identity_of(neonvm_test_cluster::CALLER);
    post_as(cluster, Some(&caller), address, path, body).await
}

/// Sends it with this client certificate, or with none.
pub(crate) async fn post_as(
    cluster: &Cluster,
    caller: Option<&Identity>,
    address: SocketAddr,
    path: &str,
    body: &str,
) -> (StatusCode, String) {
    let api: Api<k8s_openapi::api::core::v1::Secret> =
        Api::namespaced(cluster.client.clone(), "neonvm-system");
    let ca = api.get("neonvm-internal-ca").await.unwrap().data.unwrap()["tls.crt"].0.clone();
    let tls = neonvm_kit::tls::client(caller, &ca).unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(name, stream).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request =
        Request::post(path).header("host", "h").body(Full::new(Bytes::from(body.to_owned()))).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    let status = answer.status();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

pub(crate) async fn until_registered(cluster: &Cluster) {
    for (kind, name) in [
        ("MutatingWebhookConfiguration", "neonvm-mutating-webhook-configuration"),
        ("ValidatingWebhookConfiguration", "neonvm-validating-webhook-configuration"),
    ] {
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let api: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &ApiResource::from_gvk(&gvk));
        eventually(&format!("registration of {name}"), async || api.get_opt(name).await.unwrap()).await;
    }
}

const VM: &str = "virtualmachine";

fn review(operation: &str, name: &str, object: &Value, old: &Value) -> String {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u-1",
        "operation": operation, "namespace": "default", "name": name, "object": object, "oldObject": old}})
    .to_string()
}

fn machine(name: &str) -> Value {
    json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": {"name": name}, "spec": {"guest": {
        "cpus": {"min": 0.25, "max": 1, "use": 0.25}, "memorySlots": {"min": 1, "max": 4, "use": 1},
        "rootDisk": {"image": "i", "execute": ["x"]}}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_calls_webhooks_and_refuses_without_an_answer() {
    let cluster = Cluster::start().await;
    let (config, _listen) = config(&cluster);
    let controller = cluster.controller_with(config);
    until_registered(&cluster).await;
    let vm = cluster.create("db", json!({})).await;
    assert_eq!(serde_json::to_value(vm.spec.guest.cpus).unwrap()["use"], "250m");
    cluster.until_settled("db").await;
    // A damaged registration is repaired.
    let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration");
    let api: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &ApiResource::from_gvk(&gvk));
    api.delete("neonvm-mutating-webhook-configuration", &Default::default()).await.unwrap();
    until_registered(&cluster).await;
    cluster.server.until_quiet().await;
    let version =
        async || api.get("neonvm-mutating-webhook-configuration").await.unwrap().metadata.resource_version;
    let before = version().await;
    // A change of another registration causes the controller to check all of them.
    let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration");
    let other: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &ApiResource::from_gvk(&gvk));
    other.delete("neonvm-validating-webhook-configuration", &Default::default()).await.unwrap();
    until_registered(&cluster).await;
    cluster.server.until_quiet().await;
    assert_eq!(version().await, before, "a registration that is right is left alone");
    drop(controller);
    let object = serde_json::from_value(machine("late")).unwrap();
    let refused = cluster.vms().create(&Default::default(), &object).await.unwrap_err();
    assert!(refused.to_string().contains("webhook"), "{refused}");
}

/// Deletion of an installation by its manifests deletes the registrations as well: nothing is left that refuses writes
/// of VMs.
#[tokio::test(flavor = "multi_thread")]
async fn the_registration_goes_with_the_cluster_role() {
    let cluster = Cluster::start().await;
    let (config, _listen) = config(&cluster);
    let _controller = cluster.controller_with(config);
    until_registered(&cluster).await;
    let roles: Api<k8s_openapi::api::rbac::v1::ClusterRole> = Api::all(cluster.client.clone());
    let role = roles.get("neonvm-vm-controller").await.unwrap().metadata.uid.unwrap();
    for side in ["Mutating", "Validating"] {
        let kind = format!("{side}WebhookConfiguration");
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", &kind);
        let api: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &ApiResource::from_gvk(&gvk));
        let name = format!("neonvm-{}-webhook-configuration", side.to_lowercase());
        let owners = api.get(&name).await.unwrap().metadata.owner_references.unwrap();
        assert_eq!((owners.len(), owners[0].uid.as_str()), (1, role.as_str()), "{side}");
    }
    cluster.server.nothing_forbidden().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reviews_are_answered_as_specified() {
    let cluster = Cluster::start().await;
    let (config, listen) = config(&cluster);
    let _controller = cluster.controller_with(config);
    until_registered(&cluster).await;
    let path = |verb: &str| format!("/{verb}-vm-neon-tech-v1-{VM}");
    let (mutate, validate) = (path("mutate"), path("validate"));
    let response = |body: &str| serde_json::from_str::<Value>(body).unwrap()["response"].clone();

    let new = machine("a");
    let (status, body) =
        post(&cluster, listen.address(), &mutate, &review("CREATE", "a", &new, &Value::Null)).await;
    assert_eq!(status, StatusCode::OK);
    let answer = response(&body);
    assert_eq!(
        (&answer["uid"], &answer["allowed"], &answer["patchType"]),
        (&json!("u-1"), &json!(true), &json!("JSONPatch"))
    );
    use base64::Engine as _;
    let patch = base64::engine::general_purpose::STANDARD.decode(answer["patch"].as_str().unwrap()).unwrap();
    let mut patched = new.clone();
    json_patch::patch(&mut patched, &serde_json::from_slice::<json_patch::Patch>(&patch).unwrap()).unwrap();
    assert_eq!(patched["spec"]["guest"]["cpus"], json!({"min": "250m", "max": 1, "use": "250m"}));
    assert_eq!(patched["spec"]["guest"]["rootDisk"]["size"], "0");
    // What is in order needs no patch.
    let (_, body) =
        post(&cluster, listen.address(), &mutate, &review("CREATE", "a", &patched, &Value::Null)).await;
    assert_eq!(response(&body)["patch"], Value::Null);

    let (_, body) =
        post(&cluster, listen.address(), &validate, &review("CREATE", "a", &patched, &Value::Null)).await;
    assert_eq!(response(&body)["allowed"], true);
    assert!(response(&body)["warnings"][0].as_str().unwrap().contains("execute"));
    // It has a pod, so its maximum stays.
    patched["status"] = json!({"podName": "a-1"});
    let mut bad = patched.clone();
    bad["spec"]["guest"]["cpus"]["max"] = json!(2);
    let (_, body) = post(&cluster, listen.address(), &validate, &review("UPDATE", "a", &bad, &patched)).await;
    assert_eq!(response(&body)["allowed"], false);
    assert!(response(&body)["status"]["message"].as_str().unwrap().starts_with("spec.guest.cpus.max: "));
    let (_, body) =
        post(&cluster, listen.address(), &validate, &review("UPDATE", "free", &bad, &patched)).await;
    assert_eq!(response(&body)["allowed"], true);
    cluster.server.until_events("free", &["SkippedValidation"]).await;
    assert_eq!(cluster.server.event_reasons("free").await, ["SkippedValidation"]);
    let (_, body) =
        post(&cluster, listen.address(), &validate, &review("DELETE", "a", &Value::Null, &patched)).await;
    assert_eq!(response(&body)["allowed"], true);

    for bad in [
        "",
        "{",
        "[]",
        "null",
        "{}",
        r#"{"apiVersion":"admission.k8s.io/v1"}"#,
        r#"{"apiVersion":"admission.k8s.io/v1","request":{}}"#,
        r#"{"apiVersion":"admission.k8s.io/v1","request":{"uid":"1","operation":"CREATE","object":[]}}"#,
    ] {
        assert_eq!(post(&cluster, listen.address(), &mutate, bad).await.0, StatusCode::BAD_REQUEST, "{bad}");
    }
    assert_eq!(post(&cluster, listen.address(), "/convert", "{}").await.0, StatusCode::NOT_FOUND);
}
