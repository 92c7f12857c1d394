//! Requests of a stock kube-scheduler.

#![allow(clippy::too_many_lines, reason = "one conversation")]

use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use neonvm_kit::call::Caller;
use neonvm_scheduler::{Config, Mode};
use serde_json::{Value, json};

use crate::world::{Cluster, call, eventually};

async fn post(caller: &mut Caller, verb: &str, body: &Value) -> Value {
    let (status, text) = call(caller, Method::POST, &format!("/extender/{verb}"), body).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn filter_prioritize_preempt_and_bind() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "4", "4Gi").await;
    cluster.node("n2", "8", "8Gi").await;
    let mut config = Config { mode: Mode::Extender, ..cluster.config("a") };
    config.settings.scoring.randomise = false;
    let scheduler = cluster.leader(config).await;
    let a = cluster.pod("a", "3Gi").await;
    let b = cluster.pod("b", "3Gi").await;
    let big = cluster.pod("big", "6Gi").await;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "default");
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    eventually("that the pods are known", async || {
        (cluster.inspect(&scheduler).await.waiting.len() == 3).then_some(())
    })
    .await;
    // Beside us on this machine, over plain HTTP; elsewhere with a certificate.
    let mut kube = Caller::new(scheduler.plain, None, "");
    let mut far = cluster.caller(scheduler.endpoint, &["neonvm:schedulers"]).await;

    // With names.
    let names = json!({ "Pod": big, "Nodes": null, "NodeNames": ["n1", "n2", "ghost"] });
    let answer = post(&mut kube, "filter", &names).await;
    assert_eq!(answer["NodeNames"], json!(["n2"]));
    assert_eq!(answer["FailedNodes"]["n1"], json!("insufficient memory (needs 6Gi, has 4Gi)"));
    assert_eq!(answer["FailedNodes"]["ghost"], json!("is not known"));
    assert_eq!(post(&mut far, "filter", &names).await, answer);
    // With whole nodes.
    let all: Vec<Node> = vec![nodes.get("n1").await.unwrap(), nodes.get("n2").await.unwrap()];
    let whole = json!({ "pod": big, "nodes": { "metadata": {}, "items": all }, "nodenames": null });
    let answer = post(&mut kube, "filter", &whole).await;
    let left: Vec<&Value> =
        answer["Nodes"]["items"].as_array().unwrap().iter().map(|n| &n["metadata"]["name"]).collect();
    assert_eq!(left, [&json!("n2")]);
    assert_eq!(answer.get("NodeNames"), None);

    // 3 of 4 GiB is near the peak, but the node is half the largest; CPU is not in use.
    let scores =
        post(&mut kube, "prioritize", &json!({ "pod": a, "nodenames": ["n1", "n2", "ghost"] })).await;
    assert_eq!(
        scores,
        json!([
        { "Host": "n1", "Score": 3 }, { "Host": "n2", "Score": 5 }, { "Host": "ghost", "Score": 0 }])
    );

    let victims =
        json!({ "pod": big, "NodeNameToVictims": { "n1": { "Pods": [a], "NumPDBViolations": 1 } } });
    assert_eq!(
        post(&mut kube, "preempt", &victims).await,
        json!({ "NodeNameToMetaVictims": { "n1": { "Pods": [{ "UID": a.metadata.uid }], "NumPDBViolations": 1 } } })
    );
    let meta = json!({ "n1": { "Pods": [{ "UID": "u" }], "NumPDBViolations": 0 } });
    let answer = post(&mut kube, "preempt", &json!({ "pod": big, "NodeNameToMetaVictims": meta })).await;
    assert_eq!(answer["NodeNameToMetaVictims"], meta);

    // Each fits when it is checked; only one is bound.
    let binding = |pod: &Pod, node: &str| json!({ "PodName": pod.metadata.name, "PodNamespace": "default", "PodUID": pod.metadata.uid, "Node": node });
    let mut other = Caller::new(scheduler.plain, None, "");
    let (first, second) = (binding(&a, "n1"), binding(&b, "n1"));
    let (first, second) = tokio::join!(post(&mut kube, "bind", &first), post(&mut other, "bind", &second));
    let errors: Vec<&Value> =
        [&first, &second].into_iter().filter_map(|answer| answer.get("Error")).collect();
    assert_eq!(errors, [&json!("node n1 insufficient memory (needs 3Gi, has 1Gi)")]);
    let on_n1 = async || {
        let all = pods.list(&kube::api::ListParams::default()).await.unwrap();
        all.into_iter().filter(|pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some("n1")).count()
    };
    assert_eq!(on_n1().await, 1);
    // Another pod of that name is not bound.
    let mut stale = binding(&big, "n2");
    stale["PodUID"] = json!("of another");
    let answer = post(&mut kube, "bind", &stale).await;
    assert!(answer["Error"].as_str().unwrap().contains("another one by now"), "{answer}");
    assert_eq!(post(&mut kube, "bind", &binding(&big, "n2")).await, json!({}));
    assert_eq!(cluster.node_of("big").await, "n2");

    for verb in ["filter", "prioritize", "preempt", "bind"] {
        let (status, _) = call(&mut kube, Method::POST, &format!("/extender/{verb}"), "garbage").await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{verb}");
    }
    assert_eq!(call(&mut kube, Method::POST, "/extender/what", "{}").await.0, StatusCode::NOT_FOUND);
    let mut metrics = Caller::new(scheduler.metrics, None, "");
    let (_, text) = call(&mut metrics, Method::GET, "/metrics", "").await;
    let denied = "autoscaling_plugin_reserve_should_deny_total{node=\"n1\",ignored_namespace=\"false\"} 1";
    assert!(text.contains(denied), "{text}");
}
