//! Errors of an object are all reported, and no part of it has an effect.

use kube::Error;
use kube::api::PostParams;
use serde_json::json;

use crate::cluster::{Cluster, autoscaler};
use crate::fleet::Fleet;

#[tokio::test]
async fn annotations_hold_together_or_not_at_all() {
    let cluster = Cluster::start().await;
    let fleet = Fleet::start(&cluster.client, "web", 2).await;
    fleet.set_load(60);
    let _running = cluster.autoscaler();
    let good = autoscaler("web", "web", fleet.port, "APA");
    let mut bad = good.clone();
    bad["metadata"]["annotations"]["autoscaling.aibrix.ai/max-scale-down-rate"] = json!("0.5");
    bad["metadata"]["annotations"]["autoscaling.aibrix.ai/scale-up-cooldown-window"] = json!("300");
    let object = serde_json::from_value(bad).unwrap();
    let Err(Error::Api(refused)) = cluster.api().create(&PostParams::default(), &object).await else {
        panic!("taken");
    };
    for wrong in ["max-scale-down-rate", "scale-up-cooldown-window"] {
        assert!(refused.message.contains(wrong), "{}", refused.message);
    }
    assert_eq!(fleet.pods(), 2);
    cluster.create(good).await;
    fleet.until_pods(6).await;
}
