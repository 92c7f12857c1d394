//! The worker against the embedded API server.

use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams, PostParams};
use neonvm_api::IPPool;
use neonvm_core_overlay::Settings;
use neonvm_kit::metrics::Registry;
use neonvm_test_cluster::ApiServer;
use serde_json::json;

use super::{AddressConfig, AddressSource, Addresses, Ipam};
use crate::cache::Cache;

async fn server() -> ApiServer {
    let server = ApiServer::with_our_kinds().await;
    let namespaces: Api<Namespace> = Api::all(server.client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": "ns"}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    server
}

/// As many requests at a time as a controller has workers; rates are printed, not judged.
#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stdout, reason = "a number for people")]
async fn thousands_of_addresses_by_few_writes() {
    const COUNT: usize = 20_000;
    const STEP: usize = 10_000;
    let server = server().await;
    let client = server.client.clone();
    let settings = Settings::parse(r#"{"network_name": "n", "range": "10.64.0.0/15"}"#).unwrap();
    let source = AddressSource::Settings(Box::new(settings));
    let config = AddressConfig { source, ..AddressConfig::default() };
    let (addresses, worker) = Addresses::new(config, "ns", Arc::new(Ipam::new(&Registry::new())));
    let cache = Arc::new(Cache::default());
    let working = tokio::spawn({
        let client = client.clone();
        async move { worker.run(client, &cache, || {}).await }
    });
    let ids: Vec<String> = (0..COUNT).map(|number| format!("ns/vm-{number}")).collect();
    for ids in ids.chunks(STEP) {
        let started = Instant::now();
        let results: Vec<Result<(), String>> = futures_util::stream::iter(ids)
            .map(|id| addresses.acquire(id, None))
            .buffer_unordered(128)
            .collect()
            .await;
        let rate = STEP as f64 / started.elapsed().as_secs_f64();
        assert!(results.iter().all(Result::is_ok), "{:?}", results.iter().find(|result| result.is_err()));
        let held = addresses.usage().map(|usage| usage.held);
        println!("{held:?} addresses given, the last {STEP} at {rate:.0}/s");
    }
    let usage = addresses.usage().unwrap();
    assert_eq!((usage.held, usage.resting), (COUNT, 0));
    let pools: Api<IPPool> = Api::namespaced(client, "ns");
    let all = pools.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(all.iter().map(|pool| pool.spec.allocations.len()).sum::<usize>(), COUNT);
    // A generation is a write that changed something.
    let writes: i64 = all.iter().filter_map(|pool| pool.metadata.generation).sum();
    assert!(writes < i64::try_from(COUNT).unwrap() / 10, "{writes} writes");
    addresses.release("ns/vm-7").await.unwrap();
    let usage = addresses.usage().unwrap();
    assert_eq!((usage.held, usage.resting), (COUNT - 1, 1));
    working.abort();
}
