//! A background task that ends ends the service.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use neonvm_pod_autoscaler::{Config, run_with};
use neonvm_test_cluster::{NAMESPACE, intercepted, is_watch};

use crate::cluster::{Cluster, PATIENCE};

#[tokio::test]
async fn a_watch_that_panics_ends_the_service_which_gives_its_lease_back() {
    let cluster = Cluster::start().await;
    let lease = Config::default().lease("first".into());
    let name = lease.name.clone();
    let config = Config { leader_election: Some(lease), ..Config::default() };
    let metrics = cluster.account().await;
    let client = intercepted(metrics.clone(), |_, uri, _| async move {
        assert!(!is_watch(&uri, "podautoscalers"), "planted");
    });
    let running = run_with(client, metrics, config, std::future::pending());
    let ended = tokio::time::timeout(PATIENCE, running).await.expect("it leads with a watch that is dead");
    let error = ended.unwrap_err().to_string();
    assert_eq!(error, "the background task \"watch of autoscalers\" panicked: planted");
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let holder = leases.get(&name).await.unwrap().spec.unwrap().holder_identity;
    assert_eq!(holder.as_deref(), Some(""));
}
