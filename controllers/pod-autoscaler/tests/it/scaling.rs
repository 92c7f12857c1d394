//! Load changes replicas, the status explains it, and without a change nothing is written.

use neonvm_api::pod_autoscaler::PodAutoscalerStatus;
use neonvm_test_support::eventually;
use serde_json::json;

use crate::cluster::{Cluster, autoscaler, condition};
use crate::fleet::{Fleet, deployments};

#[tokio::test]
async fn replicas_follow_the_load_and_the_status_has_the_reason() {
    for strategy in ["APA", "KPA"] {
        let cluster = Cluster::start().await;
        let fleet = Fleet::start(&cluster.client, "web", 2).await;
        fleet.set_load(20);
        let _running = cluster.autoscaler();
        cluster.create(autoscaler("web", "web", fleet.port, strategy)).await;
        let status = cluster.until("web", "seen", |status| status.actual_scale == 2).await;
        assert_eq!(status.observed_generation, Some(1));
        fleet.set_load(60);
        fleet.until_pods(6).await;
        let at_six = |status: &PodAutoscalerStatus| {
            let last = status.scaling_history.last();
            status.actual_scale == 6 && last.is_some_and(|last| last.success && last.new_scale == 6)
        };
        let status = cluster.until("web", "at six", at_six).await;
        assert!(status.last_scale_time.is_some());
        assert!(!status.explanation.is_empty() && status.current_metrics[0].name == "queue_length");
        // More than the bound allows.
        fleet.set_load(500);
        fleet.until_pods(8).await;
        let limited = |status: &PodAutoscalerStatus| {
            condition(status, "ScalingLimited")
                .is_some_and(|(on, reason, _)| on == "True" && reason.contains("TooMany"))
        };
        cluster.until("web", "limited", limited).await;
        fleet.set_load(15);
        fleet.until_pods(2).await;
        cluster.server.until_events("web", &["SuccessfulRescale"]).await;
        cluster.server.nothing_forbidden().await;
    }
}

#[tokio::test]
async fn what_does_not_change_is_not_written() {
    let cluster = Cluster::start().await;
    let fleet = Fleet::start(&cluster.client, "web", 3).await;
    fleet.set_load(30);
    let _running = cluster.autoscaler();
    cluster.create(autoscaler("web", "web", fleet.port, "APA")).await;
    let settled = |status: &PodAutoscalerStatus| {
        condition(status, "Ready").is_some_and(|(on, ..)| on == "True")
            && status.current_metrics[0].stable.is_some()
    };
    cluster.until("web", "ready", settled).await;
    // Windows fill, and a pod that is slow to answer is reported; then four periods without a change.
    eventually("four periods without a write", async || {
        let before = cluster.server.revision();
        fleet.until_scrapes(4 * 3).await;
        cluster.server.revision() == before
    })
    .await;
}

#[tokio::test]
async fn a_recommendation_and_a_pause_write_nothing_to_the_target() {
    let cluster = Cluster::start().await;
    let fleet = Fleet::start(&cluster.client, "web", 2).await;
    fleet.set_load(60);
    let _running = cluster.autoscaler();
    let mut object = autoscaler("web", "web", fleet.port, "APA");
    object["spec"]["mode"] = json!("Recommend");
    cluster.create(object).await;
    let status = cluster.until("web", "recommended", |status| status.recommendation == Some(6)).await;
    assert_eq!((status.actual_scale, fleet.pods()), (2, 2));
    cluster.patch("web", json!({"spec": {"mode": "Auto", "paused": true}})).await;
    cluster.until("web", "paused", |status| status.observed_generation == Some(2)).await;
    assert_eq!(fleet.pods(), 2);
    cluster.patch("web", json!({"spec": {"paused": false}})).await;
    fleet.until_pods(6).await;
}

#[tokio::test]
async fn a_target_that_is_gone_is_waited_for() {
    let cluster = Cluster::start().await;
    let _running = cluster.autoscaler();
    cluster.create(autoscaler("web", "web", 1, "APA")).await;
    let failing = |status: &PodAutoscalerStatus| {
        condition(status, "AbleToScale")
            .is_some_and(|(on, reason, _)| on == "False" && reason == "FailedGetScale")
    };
    let status = cluster.until("web", "failing", failing).await;
    assert!(status.last_failure.unwrap().message.contains("web"));
    cluster.server.until_events("web", &["FailedGetScale"]).await;
    let fleet = Fleet::start(&cluster.client, "web", 2).await;
    let port = fleet.port.to_string();
    cluster
        .patch(
            "web",
            json!({"spec": {"metricsSources": [{"metricSourceType": "pod", "protocolType": "http",
            "path": "/stats", "port": port, "targetMetric": "queue_length", "targetValue": "10"}]}}),
        )
        .await;
    fleet.set_load(40);
    fleet.until_pods(4).await;
    deployments(&cluster.client).delete("web", &kube::api::DeleteParams::default()).await.unwrap();
    cluster.until("web", "failing again", failing).await;
}

#[tokio::test]
async fn a_restart_removes_no_replicas() {
    let cluster = Cluster::start().await;
    let fleet = Fleet::start(&cluster.client, "web", 6).await;
    fleet.set_load(60);
    let mut object = autoscaler("web", "web", fleet.port, "KPA");
    // Long enough that no window is full when one begins.
    object["spec"]["observeWindowSeconds"] = json!(600);
    let running = cluster.autoscaler();
    cluster.create(object).await;
    cluster.until("web", "seen", |status| status.actual_scale == 6).await;
    fleet.set_load(0);
    for _ in 0..2 {
        drop(cluster.autoscaler());
        let _next = cluster.autoscaler();
        fleet.until_scrapes(18).await;
        assert_eq!(fleet.pods(), 6);
    }
    drop(running);
}
