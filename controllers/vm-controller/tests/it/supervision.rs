//! A background task that ends ends the controller.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use neonvm_kit::port::Reserved;
use neonvm_test_cluster::{NAMESPACE, healthz, intercepted, is_release, is_watch};
use neonvm_vm_controller::{Config, Error, run_with};

use crate::cluster::{Cluster, PATIENCE};

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_panics_ends_the_controller_which_gives_its_lease_back() {
    let cluster = Cluster::start().await;
    let metrics = Reserved::loopback().unwrap();
    let address = metrics.address();
    let config = Config { metrics: Some(address), ..cluster.config.clone() };
    let lease = config.lease("first");
    let name = lease.name.clone();
    let config = Config { leader_election: Some(lease), ..config };
    let health = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&health);
    let client = neonvm_kit::client::connect(Some(&cluster.account)).await.unwrap();
    let client = intercepted(client, move |method, uri, body| {
        let seen = Arc::clone(&seen);
        async move {
            assert!(!is_watch(&uri, "pods"), "planted");
            if is_release(&method, &uri, &body) {
                let health = healthz(address).await;
                *seen.lock().unwrap() = Some(health);
            }
        }
    });
    let running = run_with(client, config, std::future::pending());
    let ended = tokio::time::timeout(PATIENCE, running).await.expect("it leads with a watch that is dead");
    let error = ended.unwrap_err();
    assert!(matches!(error, Error::Task(_)), "{error}");
    assert_eq!(error.to_string(), "the background task \"watch of pods\" panicked: planted");
    assert_eq!(health.lock().unwrap().take(), Some((500, format!("{error}\n"))));
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let holder = leases.get(&name).await.unwrap().spec.unwrap().holder_identity;
    assert_eq!(holder.as_deref(), Some(""));
}
