//! The internal authority is handed over to another one while all components keep running.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use neonvm_api::runner_pod::identity_secret;
use neonvm_kit::ca::{Authority, Purpose};
use neonvm_kit::certificate::{CertificateFor, Validity, request};
use neonvm_test_cluster::{NAMESPACE, apply, eventually};
use neonvm_types::MilliCpu;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::webhooks::{self, until_registered};

const SECRET: &str = "neonvm-internal-ca";
const DAY: i64 = 86_400;

fn bytes(text: &str) -> Value {
    json!(ByteString(text.as_bytes().to_vec()))
}

/// An authority that was made so many days ago and ends in so many.
fn made(before: i64, ends: i64) -> (String, String) {
    let now = Validity::now();
    let (authority, key) =
        Authority::generate_between("neonvm-ca", now - before * DAY, now + ends * DAY).unwrap();
    (authority.certificate().to_owned(), key)
}

async fn put(cluster: &Cluster, data: Value) {
    let api: Api<Secret> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    api.patch(SECRET, &PatchParams::default(), &Patch::Merge(json!({"data": data}))).await.unwrap();
}

/// What the secret holds.
async fn held(cluster: &Cluster) -> BTreeMap<String, String> {
    let api: Api<Secret> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let data = api.get(SECRET).await.unwrap().data.unwrap();
    data.into_iter().map(|(key, value)| (key, String::from_utf8(value.0).unwrap())).collect()
}

/// Waits until all configurations have this bundle.
async fn trusted(cluster: &Cluster, bundle: &str) {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    eventually("the published bundle", async || {
        let data = maps.get(SECRET).await.unwrap().data.unwrap();
        if data["ca.crt"] == bundle { Ok(()) } else { Err(data["ca.crt"].clone()) }
    })
    .await;
    for (kind, name) in [
        ("MutatingWebhookConfiguration", "neonvm-mutating-webhook-configuration"),
        ("ValidatingWebhookConfiguration", "neonvm-validating-webhook-configuration"),
    ] {
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let api: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &ApiResource::from_gvk(&gvk));
        eventually("what the API server trusts of webhooks", async || {
            let hooks = api.get(name).await.unwrap().data["webhooks"].as_array().cloned().unwrap();
            let wanted = base64::engine::general_purpose::STANDARD.encode(bundle);
            hooks.iter().all(|hook| hook["clientConfig"]["caBundle"] == wanted.as_str()).then_some(())
        })
        .await;
    }
}

/// The authorities that the runner of a VM trusts.
async fn of_runner(cluster: &Cluster, vm: &str) -> String {
    let pod = cluster.pods_of(vm).await.remove(0).metadata.name.unwrap();
    let data = cluster.secrets().get(&identity_secret(&pod)).await.unwrap().data.unwrap();
    String::from_utf8(data["ca.crt"].0.clone()).unwrap()
}

async fn resized(cluster: &Cluster, vm: &str, cpus: MilliCpu) {
    cluster.patch(vm, json!({"spec": {"guest": {"cpus": {"use": cpus}}}})).await;
    cluster
        .until(vm, "another size", |vm| vm.status.as_ref().is_some_and(|now| now.cpus == Some(cpus)))
        .await;
}

/// Without it the next controller would make another authority, which no runner trusts.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_is_deleted_is_written_back() {
    let cluster = Cluster::start().await;
    // No periodic look within the test's time.
    let (config, _listener) = webhooks::config(&cluster);
    let _controller = cluster.controller_with(config);
    until_registered(&cluster).await;
    let api: Api<Secret> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    for name in [SECRET, "neonvm-vm-ca", SECRET] {
        let before = api.get(name).await.unwrap();
        api.delete(name, &DeleteParams::default()).await.unwrap();
        let after = eventually("the secret", async || api.get_opt(name).await.unwrap()).await;
        assert_eq!((&after.data, &after.type_), (&before.data, &before.type_), "{name}");
        assert_ne!(after.metadata.uid, before.metadata.uid);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_authority_is_handed_over_without_a_restart() {
    let cluster = Cluster::start().await;
    // Seven of its ten years are over.
    let (old, key) = made(2555, 1095);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": SECRET, "namespace": NAMESPACE},
        "data": {"tls.crt": bytes(&old), "tls.key": bytes(&key)}});
    apply(&cluster.client, &secret).await;
    let (mut config, _listener) = webhooks::config(&cluster);
    config.authority_look = Some(Duration::from_millis(100));
    let _controller = cluster.controller_with(config);
    until_registered(&cluster).await;
    cluster.server.kubeconfig_of_service("agent").await;
    let agent = cluster.server.kubeconfig_of_pod("neonvm-agent", "n1").await;
    let agent = neonvm_kit::client::connect(Some(&agent)).await.unwrap();

    // The next one is there, and signs nothing yet.
    let next = eventually("the next authority", async || held(&cluster).await.remove("next.crt")).await;
    assert_eq!(held(&cluster).await["tls.crt"], old);
    trusted(&cluster, &format!("{old}{next}")).await;
    cluster.create("a", json!({})).await;
    cluster.until_settled("a").await;
    assert_eq!(of_runner(&cluster, "a").await, format!("{old}{next}"));
    let before = request(&agent, &CertificateFor::agent("n1", Purpose::Client)).await.unwrap();

    // It has been trusted for three days.
    let (next, key) = made(3, 3650);
    put(&cluster, json!({"next.crt": bytes(&next), "next.key": bytes(&key)})).await;
    eventually("the next authority to sign", async || {
        (held(&cluster).await["tls.crt"] == next).then_some(())
    })
    .await;
    let now = held(&cluster).await;
    assert_eq!((now["tls.key"].as_str(), now["previous.crt"].as_str()), (key.as_str(), old.as_str()));
    assert!(!now.contains_key("next.crt") && !now.contains_key("next.key"));
    trusted(&cluster, &format!("{next}{old}")).await;
    // Certificates of before and of now: the runner of one machine, that of another, the webhooks that both went through, a service.
    cluster.create("b", json!({})).await;
    cluster.until_settled("b").await;
    assert_eq!(of_runner(&cluster, "b").await, format!("{next}{old}"));
    resized(&cluster, "a", MilliCpu::new(1000)).await;
    let after = request(&agent, &CertificateFor::agent("n1", Purpose::Client)).await.unwrap();
    assert_ne!(before.certificate, after.certificate);

    // The first one has ended.
    let (ended, _) = made(4000, -1);
    put(&cluster, json!({"previous.crt": bytes(&ended)})).await;
    trusted(&cluster, &next).await;
    assert!(!held(&cluster).await.contains_key("previous.crt"));
    cluster.server.nothing_forbidden().await;
}
