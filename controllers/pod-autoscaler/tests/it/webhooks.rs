//! Webhooks as the API server calls them, and what becomes of a number where the definition has text.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use kube::Error;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use neonvm_kit::authority::trusted;
use neonvm_kit::ca::{Authority, Identity};
use neonvm_kit::call::Caller;
use neonvm_kit::port::Reserved;
use neonvm_kit::service::Endpoint;
use neonvm_kit::webhook;
use neonvm_pod_autoscaler::WebhookConfig;
use neonvm_test_cluster::{CALLER, NAMESPACE, PATIENCE, Signer, eventually};
use serde_json::{Value, json};

use crate::cluster::{Cluster, autoscaler};

/// As the API server names the service.
const NAME: &str = "neonvm-pod-autoscaler.neonvm-system.svc";
const MUTATE: &str = "/mutate-autoscaling-aibrix-ai-v1alpha1-podautoscaler";
const VALIDATE: &str = "/validate-autoscaling-aibrix-ai-v1alpha1-podautoscaler";

async fn post(
    cluster: &Cluster,
    caller: Option<&Identity>,
    (listen, path): (&Reserved, &str),
    review: &Value,
) -> Option<(StatusCode, String)> {
    let authority = trusted(&cluster.client, NAMESPACE).await.unwrap();
    let tls = neonvm_kit::tls::client(caller, authority.as_bytes()).unwrap();
    let endpoint = Endpoint { address: listen.address(), plain: false };
    let mut caller = Caller::new(endpoint, Some(Arc::new(tls)), NAME);
    let body = Bytes::from(review.to_string());
    let (status, body) = caller.call(Method::POST, path, body, PATIENCE).await.ok()?;
    Some((status, String::from_utf8(body.to_vec()).unwrap()))
}

fn review(object: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u-1", "operation": "CREATE", "namespace": "default", "object": object}})
}

fn with_target(target: &Value) -> Value {
    let mut object = autoscaler("web", "web", 80, "APA");
    object["spec"]["metricsSources"][0]["targetValue"] = target.clone();
    object
}

/// With the rights of its account it gets a certificate, with the names that the API server expects, and serves clients
/// that identify themselves.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_is_served_with_a_certificate_of_the_authority() {
    let cluster = Cluster::start().await;
    let listen = Reserved::loopback().unwrap();
    let client =
        webhook::Client { authority: cluster.server.directory().join("ca.crt"), names: vec![CALLER.into()] };
    let webhooks = WebhookConfig { listen: listen.address(), client: Some(client) };
    let _running = cluster.autoscaler_with(webhooks);
    let _signer = Signer::start(&cluster.client).await;
    let server = Authority::open(cluster.server.directory()).unwrap().client(CALLER, &[]).unwrap();
    let number = review(&with_target(&json!(12.5)));
    let (status, body) =
        eventually("the webhooks", async || post(&cluster, Some(&server), (&listen, MUTATE), &number).await)
            .await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&answer["response"]["uid"], &answer["response"]["patchType"]),
        (&json!("u-1"), &json!("JSONPatch"))
    );
    let bad = review(&with_target(&json!("abc")));
    let (_, body) = post(&cluster, Some(&server), (&listen, VALIDATE), &bad).await.unwrap();
    assert!(body.contains("\"allowed\":false") && body.contains("metricsSources[0].targetValue"), "{body}");
    let (status, _) = post(&cluster, None, (&listen, MUTATE), &number).await.unwrap();
    assert_eq!(status, StatusCode::FORBIDDEN);
    let (status, _) = post(&cluster, Some(&server), (&listen, "/other"), &number).await.unwrap();
    assert_eq!(status, StatusCode::NOT_FOUND);
    cluster.server.nothing_forbidden().await;
}

/// R10: a number is admitted as text where admission sees it before the definition does: when an object is created, updated or patched.
/// Server-side apply compares with the definition first, on every server.
#[tokio::test(flavor = "multi_thread")]
async fn a_number_is_admitted_as_text() {
    let cluster = Cluster::start().await;
    let kind = GroupVersionKind::gvk("autoscaling.aibrix.ai", "v1alpha1", "PodAutoscaler");
    let api: Api<DynamicObject> =
        Api::namespaced_with(cluster.client.clone(), "default", &ApiResource::from_gvk(&kind));
    let object: DynamicObject = serde_json::from_value(with_target(&json!(12.5))).unwrap();
    let made = api.create(&PostParams::default(), &object).await.unwrap();
    let target = |object: &DynamicObject| object.data["spec"]["metricsSources"][0]["targetValue"].clone();
    assert_eq!(target(&made), "12.5");
    let mut change = with_target(&json!(3));
    change.as_object_mut().unwrap().retain(|key, _| key == "spec");
    let patched = api.patch("web", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    assert_eq!(target(&patched), "3");
    let apply = PatchParams::apply("test").force();
    let refused = api.patch("web", &apply, &Patch::Apply(&with_target(&json!(12.5)))).await.unwrap_err();
    let Error::Api(status) = refused else { panic!("{refused}") };
    let wanted =
        ".spec.metricsSources[0].targetValue: expected string, got &value.valueUnstructured{Value:12.5}";
    assert!(status.message.contains(wanted), "{}", status.message);
    api.patch("web", &apply, &Patch::Apply(&with_target(&json!("12.5")))).await.unwrap();
}
