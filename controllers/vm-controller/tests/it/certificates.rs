//! Certificates of guests: from the internal authority, and from a cert-manager that is played.

use base64::Engine as _;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use neonvm_api::virtual_machine::Phase;
use neonvm_kit::ca::Authority;
use neonvm_test_cluster::eventually;
use serde_json::{Value, json};

use crate::cluster::{Cluster, condition, phase_of};

fn tls(issuer: &str) -> Value {
    json!({"tls": {"certificateIssuer": issuer, "serverName": "db.example", "expireAfter": "24h", "renewBefore": "1h"}})
}

async fn install(cluster: &Cluster) -> Api<DynamicObject> {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "certificaterequests.cert-manager.io"},
        "spec": {"group": "cert-manager.io", "scope": "Namespaced",
            "names": {"kind": "CertificateRequest", "listKind": "CertificateRequestList",
                "plural": "certificaterequests", "singular": "certificaterequest"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}]}});
    neonvm_test_cluster::define(&cluster.client, vec![crd]).await;
    let gvk = GroupVersionKind::gvk("cert-manager.io", "v1", "CertificateRequest");
    Api::default_namespaced_with(cluster.client.clone(), &ApiResource::from_gvk(&gvk))
}

async fn until_request(api: &Api<DynamicObject>, name: &str, after: Option<&str>) -> DynamicObject {
    eventually(&format!("request {name}"), async || {
        api.get_opt(name).await.unwrap().filter(|request| request.metadata.uid.as_deref() != after)
    })
    .await
}

async fn answer(api: &Api<DynamicObject>, name: &str, status: Value) {
    let change = json!({"status": status});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_cert_manager_the_internal_authority_signs() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    for (name, issuer) in [("a", "some-issuer"), ("b", "other")] {
        cluster.create(name, tls(issuer)).await;
        let vm = cluster.until_settled(name).await;
        let secret_name = format!("tls-neonvm-{name}");
        assert_eq!(vm.status.as_ref().unwrap().tls_secret_name, secret_name);
        let secret = cluster.secrets().get(&secret_name).await.unwrap();
        assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
        assert_eq!(secret.metadata.owner_references.as_ref().unwrap()[0].uid, vm.metadata.uid.unwrap());
        let data = secret.data.unwrap();
        assert!(data["tls.crt"].0.starts_with(b"-----BEGIN CERTIFICATE"));
        assert!(data["tls.key"].0.starts_with(b"-----BEGIN PRIVATE KEY"));
    }
}

/// W-17: a refused request is made again; the pod waits for the secret; names are our own.
#[tokio::test(flavor = "multi_thread")]
async fn w17_refused_requests_are_repeated_and_the_pod_waits() {
    let cluster = Cluster::start().await;
    let requests = install(&cluster).await;
    let _controller = cluster.controller();
    cluster.create("db", tls("neon-ca-issuer")).await;
    let name = "tls-neonvm-db";
    let first = until_request(&requests, name, None).await;
    let issuer = &first.data["spec"]["issuerRef"];
    assert_eq!(
        issuer,
        &json!({"name": "neon-ca-issuer", "kind": "ClusterIssuer", "group": "cert-manager.io"})
    );
    let vm = cluster.until("db", "waiting", |vm| condition(vm, "Available").2.contains("certificate")).await;
    assert_eq!(phase_of(&vm), Some(Phase::Pending));
    assert_eq!(cluster.pods_of("db").await.len(), 0);
    let now = k8s_openapi::jiff::Timestamp::now();
    let denied = json!({"type": "Denied", "status": "True", "reason": "Policy", "message": "not you",
        "lastTransitionTime": now.to_string()});
    answer(&requests, name, json!({"conditions": [denied]})).await;
    // In the status it stands only until it is asked again, which may be at once.
    cluster.server.until_events("db", &["CertificateFailed"]).await;
    let second = until_request(&requests, name, first.metadata.uid.as_deref()).await;
    assert_eq!(second.metadata.annotations.unwrap()["vm.neon.tech/tls-attempt"], "1");
    let (authority, _) = Authority::generate().unwrap();
    let issued = authority.server_for("db.example", &["db.example".into()], 86_400).unwrap().certificate;
    let encoded = base64::engine::general_purpose::STANDARD.encode(&issued);
    answer(&requests, name, json!({"certificate": encoded})).await;
    let vm = cluster.until_settled("db").await;
    assert_eq!(condition(&vm, "Degraded").0, "False");
    let secret = cluster.secrets().get("tls-neonvm-db").await.unwrap();
    assert_eq!(secret.data.unwrap()["tls.crt"].0, issued.as_bytes());
    eventually("the used request and its key are removed", async || {
        let request = requests.get_opt(name).await.unwrap();
        let key = cluster.secrets().get_opt("tls-neonvm-db-tmp").await.unwrap();
        (request.is_none() && key.is_none()).then_some(())
    })
    .await;
}
