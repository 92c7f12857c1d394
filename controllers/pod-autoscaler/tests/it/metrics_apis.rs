//! Metrics from the cluster's APIs: replicas follow them, and during an outage nothing changes.

use futures_util::future::join_all;
use kube::Client;
use neonvm_api::pod_autoscaler::PodAutoscalerStatus;
use serde_json::{Value, json};

use crate::cluster::{Cluster, autoscaler, condition};
use crate::fleet::Fleet;
use crate::metrics_server::{Front, Manner};
use crate::outage::{blind, sees};

/// One workload for each of the APIs, named after it: ten of the load for each pod.
const APIS: [&str; 3] = ["resource", "custom", "external"];

fn object(api: &str) -> Value {
    let source = match api {
        "resource" => json!({"metricSourceType": "resource", "targetMetric": "cpu", "targetValue": "100"}),
        "custom" => json!({"metricSourceType": "custom", "targetMetric": "queue_length", "targetValue": "10",
            "selector": {"matchLabels": {"tier": "gold"}}}),
        _ => json!({"metricSourceType": "external", "targetMetric": "messages_ready", "targetValue": "10",
            "selector": {"matchLabels": {"queue": api}}}),
    };
    let mut object = autoscaler(api, api, 1, "APA");
    object["spec"]["metricsSources"] = json!([source]);
    object
}

async fn fleets(client: &Client, front: &Front) -> Vec<(&'static str, Fleet)> {
    let mut all = Vec::new();
    for api in APIS {
        let fleet = Fleet::start(client, api, 2).await;
        front.add(api, &fleet);
        all.push((api, fleet));
    }
    all
}

#[tokio::test]
async fn replicas_follow_each_of_the_apis() {
    let cluster = Cluster::start().await;
    let front = Front::start(cluster.account().await).await;
    let fleets = fleets(&cluster.client, &front).await;
    let _running = Cluster::autoscaler_through(front.config());
    for (api, fleet) in &fleets {
        fleet.set_load(50);
        cluster.create(object(api)).await;
    }
    for (api, fleet) in &fleets {
        fleet.until_pods(5).await;
        let status = cluster.until(api, "seeing", |status| status.actual_scale == 5 && sees(status)).await;
        let metric = &status.current_metrics[0];
        assert_eq!((metric.kind.as_str(), metric.error.as_str()), (*api, ""));
    }
    // An adapter that is old; the others have no other version.
    front.behave(Manner::Old);
    for (_, fleet) in &fleets {
        fleet.set_load(30);
        fleet.until_pods(3).await;
    }
    // Percent of what the pods request, which is 200 thousandths of a core.
    cluster
        .patch(
            "resource",
            json!({"spec": {"metricsSources": [{"metricSourceType": "resource",
            "targetMetric": "cpu", "targetType": "Utilization", "targetValue": "25"}]}}),
        )
        .await;
    fleets[0].1.until_pods(6).await;
    front.nothing_wrong();
    cluster.server.nothing_forbidden().await;
}

#[tokio::test]
async fn an_outage_of_the_apis_changes_nothing_and_is_reported() {
    let cluster = Cluster::start().await;
    let front = Front::start(cluster.account().await).await;
    let fleets = fleets(&cluster.client, &front).await;
    let _running = Cluster::autoscaler_through(front.config());
    for (api, fleet) in &fleets {
        fleet.set_load(50);
        cluster.create(object(api)).await;
    }
    for (_, fleet) in &fleets {
        fleet.until_pods(5).await;
    }
    for (manner, reason, parts) in [
        (Manner::NotInstalled, ["NoSuchMetric"; 3], ["does not serve this API"; 3]),
        (Manner::Unavailable, ["BadStatus"; 3], ["503: service unavailable"; 3]),
        (Manner::Garbage, ["Unreadable"; 3], ["apples\" is not a quantity"; 3]),
        (
            Manner::PartOfPods,
            ["NoQuorum", "NoQuorum", "NoSuchMetric"],
            ["1 of 5 ready pods", "1 of 5 ready pods", "has no value"],
        ),
        (Manner::Silent, ["TimedOut"; 3], ["no answer within"; 3]),
    ] {
        for (api, _) in &fleets {
            cluster.until(api, "seeing", sees).await;
        }
        front.behave(manner);
        for (_, fleet) in &fleets {
            fleet.set_load(0);
        }
        let checks = fleets.iter().enumerate().map(async |(index, (api, fleet))| {
            // For this reason, and not because an answer was slow once.
            let for_that = |status: &PodAutoscalerStatus| {
                let (_, why, text) = condition(status, "MetricsAvailable").unwrap_or_default();
                blind(status) && why == reason[index] && text.contains(parts[index])
            };
            let what = format!("blind for {}: {}", reason[index], parts[index]);
            cluster.until(api, &what, for_that).await;
            // Longer than every window: after a 404 for a version, each reconcile sends two queries; after a timeout
            // the wait was long enough.
            let questions = match manner {
                Manner::NotInstalled => 8,
                Manner::Silent => 0,
                _ => 4,
            };
            front.until_asked(api, questions).await;
            assert_eq!(fleet.pods(), 5, "{api} {manner:?}");
        });
        join_all(checks).await;
        for (_, fleet) in &fleets {
            fleet.set_load(50);
        }
        front.behave(Manner::Well);
    }
    // The values are there again, and count.
    for (api, fleet) in &fleets {
        cluster.until(api, "seeing", sees).await;
        fleet.set_load(70);
        fleet.until_pods(7).await;
    }
    front.nothing_wrong();
    cluster.server.nothing_forbidden().await;
}
