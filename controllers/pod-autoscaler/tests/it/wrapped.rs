//! Strategy HPA: one `HorizontalPodAutoscaler`, as the object requests, and none when the strategy changes.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use neonvm_api::pod_autoscaler::PodAutoscalerStatus;
use neonvm_test_support::eventually;
use serde_json::json;

use crate::cluster::{Cluster, autoscaler};
use crate::fleet::Fleet;

async fn until(
    api: &Api<HorizontalPodAutoscaler>,
    what: &str,
    is: impl Fn(Option<&HorizontalPodAutoscaler>) -> bool,
) -> Option<HorizontalPodAutoscaler> {
    eventually(what, async || {
        let now = api.get_opt("web-hpa").await.unwrap();
        if is(now.as_ref()) { Ok(now) } else { Err(format!("{now:?}")) }
    })
    .await
}

#[tokio::test]
async fn a_wrapper_is_kept_as_the_object_requests_and_goes_with_the_strategy() {
    let cluster = Cluster::start().await;
    let fleet = Fleet::start(&cluster.client, "web", 2).await;
    let hpas: Api<HorizontalPodAutoscaler> = Api::namespaced(cluster.client.clone(), "default");
    let _running = cluster.autoscaler();
    let mut object = autoscaler("web", "web", fleet.port, "HPA");
    object["spec"].as_object_mut().unwrap().remove("syncPeriodSeconds");
    let made = cluster.create(object).await;
    let hpa = until(&hpas, "made", |hpa| hpa.is_some()).await.unwrap();
    assert_eq!(hpa.owner_references()[0].uid, made.metadata.uid.unwrap());
    assert_eq!((hpa.spec.min_replicas, hpa.spec.max_replicas), (Some(1), 8));
    // The status of Kubernetes' controller becomes ours.
    let metrics = json!([{"type": "Pods", "pods": {"metric": {"name": "queue_length"}, "current": {"averageValue": "13"}}}]);
    let status = json!({"status": {"currentReplicas": 3, "desiredReplicas": 4, "conditions": [], "currentMetrics": metrics}});
    hpas.patch_status("web-hpa", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let copied = |status: &PodAutoscalerStatus| (status.actual_scale, status.desired_scale) == (3, 4);
    let status = cluster.until("web", "copied", copied).await;
    let metric = &status.current_metrics[0];
    assert_eq!((metric.name.as_str(), metric.desired_replicas), ("queue_length", Some(4)));
    assert!(status.explanation.iter().any(|step| step.message.contains("value 13 for each pod, target 10")));
    // Changes by other clients are reverted.
    let change = json!({"spec": {"maxReplicas": 99}});
    hpas.patch("web-hpa", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    until(&hpas, "corrected", |hpa| hpa.is_some_and(|hpa| hpa.spec.max_replicas == 8)).await;
    cluster.patch("web", json!({"spec": {"maxReplicas": 12}})).await;
    until(&hpas, "changed", |hpa| hpa.is_some_and(|hpa| hpa.spec.max_replicas == 12)).await;
    fleet.set_load(40);
    cluster.patch("web", json!({"spec": {"scalingStrategy": "APA", "syncPeriodSeconds": 1}})).await;
    until(&hpas, "gone", |hpa| hpa.is_none()).await;
    fleet.until_pods(4).await;
    cluster.server.nothing_forbidden().await;
}
