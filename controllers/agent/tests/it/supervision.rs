//! A background task that ends ends the agent; a request that panics has failed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use neonvm_agent::{Error, run_with};
use neonvm_api::names::agent_lease;
use neonvm_kit::port::Reserved;
use neonvm_test_cluster::{healthz, intercepted, is_release, is_watch};

use crate::cluster::{NAMESPACE, NODE, PATIENCE};
use crate::world::World;

/// An agent whose client panics when a watch of these objects begins: its error, and what `/healthz` returned while
/// the lease was released.
async fn with_dead_watch(world: &World, plural: &'static str) -> (Error, (u16, String)) {
    let metrics = Reserved::loopback().unwrap();
    let address = metrics.address();
    let mut config = world.config("a", &world.settings());
    config.metrics = Some(address);
    let health = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&health);
    let client = intercepted(world.cluster.server.client.clone(), move |method, uri, body| {
        let seen = Arc::clone(&seen);
        async move {
            assert!(!is_watch(&uri, plural), "planted");
            if is_release(&method, &uri, &body) {
                let health = healthz(address).await;
                *seen.lock().unwrap() = Some(health);
            }
        }
    });
    let running = run_with(client, config, std::future::pending());
    let ended = tokio::time::timeout(PATIENCE, running).await.unwrap();
    let leases: Api<Lease> = Api::namespaced(world.cluster.server.client.clone(), NAMESPACE);
    let holder = leases.get_opt(&agent_lease(NODE)).await.unwrap();
    let holder = holder.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
    assert_eq!(holder, "", "the lease was given back");
    let health = health.lock().unwrap().take();
    (ended.unwrap_err(), health.unwrap_or_default())
}

/// One that only the leader runs, and one that runs always.
#[tokio::test]
async fn a_watch_that_panics_ends_the_agent_which_gives_its_lease_back() {
    let world = World::start(1).await;
    let (error, health) = with_dead_watch(&world, "virtualmachines").await;
    assert_eq!(error.to_string(), "the background task \"watch of VMs\" panicked: planted");
    assert_eq!(health, (500, format!("{error}\n")));
    let (error, _) = with_dead_watch(&world, "pods").await;
    assert_eq!(error.to_string(), "the background task \"watch of scheduler pods\" panicked: planted");
}

#[tokio::test]
async fn a_patch_that_panics_has_failed_and_is_tried_again() {
    let world = World::start(1).await;
    let patches = Arc::new(AtomicUsize::new(0));
    let sent = Arc::clone(&patches);
    let client = intercepted(world.cluster.server.client.clone(), move |method, uri, _| {
        let is_patch = method == Method::PATCH && uri.path().contains("/virtualmachines/");
        let panics = is_patch && sent.fetch_add(1, Ordering::Relaxed) == 0;
        async move { assert!(!panics, "planted") }
    });
    let agent = World::run_with(client, world.config("a", &world.settings()));
    world.guests[0].load(3);
    world.settles("v0", 3).await;
    assert!(patches.load(Ordering::Relaxed) >= 2);
    // It counts as a request that failed.
    let failed = "autoscaling_agent_neonvm_outbound_requests_total{result=\"error\"} 1";
    let metrics = agent.metrics().await;
    assert!(metrics.contains(failed), "{metrics}");
    assert!(agent.is_alive());
}
