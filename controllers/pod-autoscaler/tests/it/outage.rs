//! Metrics that fail in any way take nothing away.

use neonvm_api::pod_autoscaler::PodAutoscalerStatus;

use crate::cluster::{Cluster, autoscaler, condition};
use crate::fleet::{Fleet, Manner};

pub(crate) fn blind(status: &PodAutoscalerStatus) -> bool {
    condition(status, "MetricsAvailable").is_some_and(|(on, ..)| on == "False")
}

pub(crate) fn sees(status: &PodAutoscalerStatus) -> bool {
    condition(status, "MetricsAvailable").is_some_and(|(on, ..)| on == "True")
}

#[tokio::test]
async fn an_outage_of_metrics_changes_nothing() {
    let all = [Manner::Down, Manner::Garbage, Manner::Silent];
    for (strategy, manners) in [("APA", &all[..]), ("KPA", &all[..1])] {
        let cluster = Cluster::start().await;
        let fleet = Fleet::start(&cluster.client, "web", 2).await;
        let _running = cluster.autoscaler();
        cluster.create(autoscaler("web", "web", fleet.port, strategy)).await;
        fleet.set_load(50);
        fleet.until_settled(5).await;
        for &manner in manners {
            cluster.until("web", "seeing", sees).await;
            fleet.behave(manner);
            fleet.set_load(0);
            let status = cluster.until("web", "blind", blind).await;
            assert!(!status.current_metrics[0].error.is_empty());
            // Longer than every window.
            fleet.until_scrapes(20).await;
            assert_eq!(fleet.pods(), 5, "{strategy} {manner:?}");
            fleet.set_load(50);
            fleet.behave(Manner::Well);
        }
        cluster.until("web", "seeing", sees).await;
        fleet.set_load(70);
        fleet.until_pods(7).await;
    }
}

#[tokio::test]
async fn a_part_of_the_pods_is_not_the_whole() {
    let cluster = Cluster::start().await;
    let fleet = Fleet::start(&cluster.client, "web", 4).await;
    fleet.set_load(40);
    let _running = cluster.autoscaler();
    cluster.create(autoscaler("web", "web", fleet.port, "APA")).await;
    cluster.until("web", "seeing", sees).await;
    fleet.behave(Manner::OnlyFirst);
    fleet.set_load(4);
    // More endpoints may have answered in a reconcile that was under way.
    let almost =
        |status: &PodAutoscalerStatus| blind(status) && status.current_metrics[0].error.contains("1 of 4");
    cluster.until("web", "almost blind", almost).await;
    fleet.until_scrapes(20).await;
    assert_eq!(fleet.pods(), 4);
}
