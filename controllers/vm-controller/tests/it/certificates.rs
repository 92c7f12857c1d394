//! Certificates of guests: from the authority for VMs, and from a fake cert-manager.

use std::sync::Arc;

use base64::Engine as _;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use neonvm_api::virtual_machine::Phase;
use neonvm_kit::ca::{Authority, Identity};
use neonvm_test_cluster::eventually;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio_rustls::{TlsAcceptor, TlsConnector};

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
async fn without_cert_manager_the_authority_for_vms_signs() {
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

/// What a client that trusts `authority` makes of a server with this certificate.
async fn shake_hands(authority: &str, server: &Identity, name: &str) -> Result<(), std::io::Error> {
    let (near, far) = tokio::io::duplex(1 << 16);
    let server = neonvm_kit::tls::open_server(server).unwrap();
    let client = neonvm_kit::tls::client(None, authority.as_bytes()).unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let accepting = TlsAcceptor::from(Arc::new(server)).accept(far);
    let connecting = TlsConnector::from(Arc::new(client)).connect(name, near);
    let (_, connected) = tokio::join!(accepting, connecting);
    connected.map(drop)
}

async fn authority(cluster: &Cluster, secret: &str) -> String {
    let api: Api<Secret> = Api::namespaced(cluster.client.clone(), "neonvm-system");
    let data = api.get(secret).await.unwrap().data.unwrap();
    String::from_utf8(data["tls.crt"].0.clone()).unwrap()
}

/// Users who may create VMs choose the names in their certificates: services must trust none of those.
#[tokio::test(flavor = "multi_thread")]
async fn no_service_trusts_a_certificate_of_a_guest() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    cluster.create("db", tls("")).await;
    cluster.until_settled("db").await;
    let data = cluster.secrets().get("tls-neonvm-db").await.unwrap().data.unwrap();
    let text = |key: &str| String::from_utf8(data[key].0.clone()).unwrap();
    let guest = Identity { certificate: text("tls.crt"), key: text("tls.key") };
    let vms = authority(&cluster, "neonvm-vm-ca").await;
    shake_hands(&vms, &guest, "db.example").await.unwrap();
    let internal = authority(&cluster, "neonvm-internal-ca").await;
    let refused = shake_hands(&internal, &guest, "db.example").await.unwrap_err();
    assert!(refused.to_string().contains("UnknownIssuer"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_services_are_refused_at_admission() {
    let cluster = Cluster::start().await;
    for name in ["scheduler.neonvm", "uid.vm.neon.tech"] {
        let mut spec = tls("");
        spec["tls"]["serverName"] = json!(name);
        let refused = cluster.try_create("db", spec).await.unwrap_err().to_string();
        assert!(
            refused.contains("serverName") && refused.contains("choose one outside of *.neonvm"),
            "{refused}"
        );
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
    // The status contains it only until the certificate is requested again, which may be at once.
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
