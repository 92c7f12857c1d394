//! Two autoscalers with the same target: the older one scales it, whichever is seen first.

use neonvm_test_support::eventually;

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::{Api, DeleteParams, PostParams};
use neonvm_api::PodAutoscaler;
use neonvm_api::pod_autoscaler::PodAutoscalerStatus;
use serde_json::json;

use crate::cluster::{Cluster, autoscaler, condition};
use crate::fleet::Fleet;

fn in_conflict(status: &PodAutoscalerStatus) -> bool {
    condition(status, "MultiPodAutoscalerConflict").is_some_and(|(on, ..)| on == "False")
}

/// Creation times are in whole seconds: waits until an object that is created now is younger.
async fn another_second(than: &PodAutoscaler) {
    let made = than.metadata.creation_timestamp.as_ref().unwrap().0.as_second();
    eventually("another second", async || Timestamp::now().as_second() > made).await;
}

#[tokio::test]
async fn the_older_one_has_the_target() {
    let cluster = Cluster::start().await;
    let fleet = Fleet::start(&cluster.client, "web", 2).await;
    fleet.set_load(20);
    // Names in the order opposite to their age.
    let first = cluster.create(autoscaler("z-first", "web", fleet.port, "APA")).await;
    another_second(&first).await;
    let mut second = autoscaler("a-second", "web", fleet.port, "APA");
    second["spec"]["minReplicas"] = json!(5);
    cluster.create(second).await;
    let _running = cluster.autoscaler();
    let status = cluster.until("a-second", "in conflict", in_conflict).await;
    assert!(condition(&status, "MultiPodAutoscalerConflict").unwrap().2.contains("z-first"));
    let status = cluster.until("z-first", "seen", |status| status.actual_scale == 2).await;
    assert!(!in_conflict(&status));
    assert_eq!(fleet.pods(), 2);
    cluster.api().delete("z-first", &DeleteParams::default()).await.unwrap();
    fleet.until_pods(5).await;
    let status = cluster.until("a-second", "free", |status| status.actual_scale == 5).await;
    assert!(!in_conflict(&status));
}

#[tokio::test]
async fn targets_of_other_scalers_are_left_alone() {
    let cluster = Cluster::start().await;
    let fleet = Fleet::start(&cluster.client, "web", 2).await;
    fleet.set_load(60);
    let hpas: Api<HorizontalPodAutoscaler> = Api::namespaced(cluster.client.clone(), "default");
    let hpa = json!({"metadata": {"name": "others"}, "spec": {"maxReplicas": 3,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [{"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 50}}}]}});
    hpas.create(&PostParams::default(), &serde_json::from_value(hpa).unwrap()).await.unwrap();
    let _running = cluster.autoscaler();
    cluster.create(autoscaler("web", "web", fleet.port, "APA")).await;
    let status = cluster.until("web", "in conflict", in_conflict).await;
    assert!(condition(&status, "MultiPodAutoscalerConflict").unwrap().2.contains("others"));
    assert_eq!(fleet.pods(), 2);
    hpas.delete("others", &DeleteParams::default()).await.unwrap();
    fleet.until_pods(6).await;
}
