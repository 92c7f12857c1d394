//! Of two controllers one acts.

use neonvm_test_support::eventually;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use neonvm_kit::lease::Times;
use neonvm_vm_controller::{Config, run};
use serde_json::json;
use tokio::sync::oneshot;

use crate::cluster::Cluster;

const LEASE: &str = "a3b22509.neon.tech";

fn config(cluster: &Cluster, identity: &str) -> Config {
    let mut config = cluster.config.clone();
    let mut lease = config.lease(identity);
    let (duration, renew_deadline) = (Duration::from_secs(60), Duration::from_secs(50));
    lease.times = Times { duration, renew_deadline, retry: Duration::from_millis(100) };
    config.leader_election = Some(lease);
    config
}

async fn until_led_by(cluster: &Cluster, identity: &str) {
    let api: Api<Lease> = Api::namespaced(cluster.client.clone(), "neonvm-system");
    eventually(&format!("the lease of {identity}"), async || {
        let lease = api.get_opt(LEASE).await.unwrap();
        let holder = lease.and_then(|lease| lease.spec?.holder_identity);
        if holder.as_deref() == Some(identity) { Ok(()) } else { Err(format!("{holder:?} leads")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_and_another_takes_over() {
    let cluster = Cluster::start().await;
    let first = cluster.controller_with(config(&cluster, "first"));
    until_led_by(&cluster, "first").await;
    let (stop, stopped) = oneshot::channel::<()>();
    let second = {
        let config = Config { kubeconfig: Some(cluster.account.clone()), ..config(&cluster, "second") };
        tokio::spawn(run(config, async { drop(stopped.await) }))
    };
    cluster.create("a", json!({})).await;
    cluster.until_settled("a").await;
    until_led_by(&cluster, "first").await;
    // Killed: the lease has to run out.
    drop(first);
    cluster.server.end_lease(LEASE).await;
    until_led_by(&cluster, "second").await;
    cluster.create("b", json!({})).await;
    cluster.until_settled("b").await;
    // Stopped: the lease is given back.
    stop.send(()).unwrap();
    second.await.unwrap().unwrap();
    until_led_by(&cluster, "").await;
    let _third = cluster.controller_with(config(&cluster, "third"));
    until_led_by(&cluster, "third").await;
    cluster.create("c", json!({})).await;
    cluster.until_settled("c").await;
    assert_eq!(["a", "b", "c"].map(|vm| cluster.node.most(vm)), [1, 1, 1]);
}
