//! A background task that ends ends the scheduler.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use neonvm_api::names::SCHEDULER_LEASE;
use neonvm_scheduler::start_with;
use neonvm_test_cluster::{NAMESPACE, PATIENCE, healthz, intercepted, is_release, is_watch};

use crate::world::Cluster;

#[tokio::test]
async fn a_watch_that_panics_ends_the_leader_which_gives_its_lease_back() {
    let cluster = Cluster::start().await;
    let (leads, health) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
    let address = Arc::new(OnceLock::new());
    let (seen, served) = (Arc::clone(&health), Arc::clone(&address));
    let client = intercepted(cluster.client.clone(), move |method, uri, body| {
        let (leads, seen, served) = (Arc::clone(&leads), Arc::clone(&seen), Arc::clone(&served));
        async move {
            // A candidate creates the lease, a leader replaces it.
            if method == Method::PUT && uri.path().contains("/leases/") {
                leads.store(true, Ordering::Relaxed);
            }
            assert!(!(leads.load(Ordering::Relaxed) && is_watch(&uri, "pods")), "planted");
            if is_release(&method, &uri, &body) {
                let health = healthz(*served.get().unwrap()).await;
                *seen.lock().unwrap() = Some(health);
            }
        }
    });
    let running = start_with(client, cluster.config("first")).await.unwrap();
    address.set(running.metrics().unwrap()).unwrap();
    let leading = running.lead(std::future::pending());
    let ended = tokio::time::timeout(PATIENCE, leading)
        .await
        .unwrap_or_else(|_| panic!("it leads with a watch that is dead"));
    let error = ended.unwrap_err();
    assert_eq!(error.to_string(), "the background task \"watches\" panicked: planted");
    assert_eq!(health.lock().unwrap().take(), Some((500, format!("{error}\n"))));
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let lease = leases.get(SCHEDULER_LEASE).await.unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some(""));
}
