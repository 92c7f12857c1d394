//! Roles of one object, each with its autoscaler: neither takes anything from the other.

use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use neonvm_test_support::eventually;
use serde_json::{Value, json};

use crate::cluster::{Cluster, autoscaler};

fn kind() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "stormservices.orchestration.aibrix.ai"},
        "spec": {"group": "orchestration.aibrix.ai", "scope": "Namespaced",
            "names": {"kind": "StormService", "plural": "stormservices", "singular": "stormservice",
                "listKind": "StormServiceList"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

#[tokio::test]
async fn roles_are_scaled_side_by_side() {
    let cluster = Cluster::start().await;
    neonvm_test_cluster::define(&cluster.client, vec![kind()]).await;
    let resource =
        ApiResource::from_gvk(&GroupVersionKind::gvk("orchestration.aibrix.ai", "v1alpha1", "StormService"));
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), "default", &resource);
    let service = json!({"apiVersion": "orchestration.aibrix.ai/v1alpha1", "kind": "StormService",
        "metadata": {"name": "llm"}, "spec": {"replicas": 1, "template": {"spec": {"roles": [
            {"name": "prefill", "replicas": 1, "note": "kept"}, {"name": "decode", "replicas": 1}]}}}});
    api.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    let _running = cluster.autoscaler();
    let object = |role: &str, min: i32| {
        let mut object = autoscaler(role, "llm", 1, "APA");
        object["spec"]["scaleTargetRef"] =
            json!({"apiVersion": "orchestration.aibrix.ai/v1alpha1", "kind": "StormService", "name": "llm"});
        object["spec"]["subTargetSelector"] = json!({"roleName": role});
        object["spec"]["minReplicas"] = json!(min);
        object
    };
    cluster.create(object("prefill", 3)).await;
    cluster.create(object("decode", 4)).await;
    let replicas = async || {
        let service = api.get("llm").await.unwrap();
        let roles = &service.data["spec"]["template"]["spec"]["roles"];
        (
            roles[0]["replicas"].as_i64().unwrap(),
            roles[1]["replicas"].as_i64().unwrap(),
            roles[0]["note"].clone(),
        )
    };
    let until = async |wanted: (i64, i64)| {
        eventually(&format!("{wanted:?} replicas"), async || {
            let now = replicas().await;
            if (now.0, now.1) == wanted { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    };
    until((3, 4)).await;
    // Both at once, again and again.
    for round in 1..=5 {
        tokio::join!(
            cluster.patch(
                "prefill",
                json!({"spec": {"minReplicas": 3 + round % 2, "maxReplicas": 3 + round % 2}})
            ),
            cluster.patch(
                "decode",
                json!({"spec": {"minReplicas": 4 + round % 3, "maxReplicas": 4 + round % 3}})
            ),
        );
        until((i64::from(3 + round % 2), i64::from(4 + round % 3))).await;
    }
    assert_eq!(replicas().await.2, "kept");
    cluster.server.nothing_forbidden().await;
}
