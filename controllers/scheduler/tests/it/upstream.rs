//! Agents of upstream's releases: the bytes that each sends, and the pod in which they look for a scheduler.

use std::time::Duration;

use http::{Method, StatusCode};
use neonvm_kit::call::Caller;
use neonvm_kit::port::Reserved;
use neonvm_kit::service::Endpoint;
use neonvm_scheduler::{Config, Forward, Mode};

use crate::world::{Cluster, call, eventually};

/// Request and answer of a version of the protocol.
macro_rules! version {
    ($name:literal, $answer:literal) => {
        ($name, include_str!(concat!("../data/upstream-agents/", $name, ".json")), $answer)
    };
}

/// What the agents of a release send, byte for byte as Go writes it, and what they are to be answered.
const VERSIONS: [(&str, &str, &str); 7] = [
    version!("v1.0-of-0.1.3", r#"{"permit":{"vCPUs":4,"mem":4},"resourceUnit":{"vCPUs":1,"mem":4}}"#),
    version!("v1.1-of-0.1.10", r#"{"permit":{"vCPUs":4,"mem":4},"resourceUnit":{"vCPUs":1,"mem":4}}"#),
    version!(
        "v2.0-of-0.10.0",
        r#"{"permit":{"vCPUs":"2500m","mem":4},"resourceUnit":{"vCPUs":"250m","mem":1}}"#
    ),
    version!(
        "v2.1-of-0.20.0",
        r#"{"permit":{"vCPUs":"2500m","mem":4},"resourceUnit":{"vCPUs":"250m","mem":1}}"#
    ),
    version!("v3.0-of-0.22.0", r#"{"permit":{"vCPUs":"2500m","mem":4}}"#),
    version!("v4.0-of-0.25.0", r#"{"permit":{"vCPUs":"2500m","mem":"4Gi"}}"#),
    version!("v5.0-of-0.31.0", r#"{"permit":{"vCPUs":"2500m","mem":"4Gi"}}"#),
];

#[tokio::test]
async fn every_release_of_upstream_s_agent_is_answered() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "10", "10Gi").await;
    // The forwarder is there first: it is ready once a scheduler leads.
    let (place, probes) = (Reserved::loopback().unwrap(), Reserved::loopback().unwrap());
    let forward = Forward {
        kubeconfig: Some(cluster.server.kubeconfig()),
        namespace: "neonvm-system".into(),
        listen: place.address(),
        probes: Some(probes.address()),
        within: Duration::from_secs(10),
    };
    let forwarder = tokio::spawn(neonvm_scheduler::forward(forward, std::future::pending()));
    let at = |place: &Reserved| Caller::new(Endpoint { address: place.address(), plain: true }, None, "");
    let state = async |path: &str| {
        let within = Duration::from_secs(10);
        let answer = at(&probes).call(Method::GET, path, bytes::Bytes::new(), within).await.ok()?;
        Some(answer.0)
    };
    eventually("the forwarder", async || (state("/healthz").await == Some(StatusCode::OK)).then_some(()))
        .await;
    assert_eq!(state("/readyz").await, Some(StatusCode::SERVICE_UNAVAILABLE));
    let mut caller = at(&place);
    let first = VERSIONS[0].1;
    let (status, text) = call(&mut caller, Method::POST, "/", first).await;
    assert_eq!((status, text.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "no scheduler leads\n"));

    let config = Config { mode: Mode::Extender, ..cluster.config("a") };
    let scheduler = cluster.leader(config).await;
    cluster.vm("v", 1, 8, Some("n1")).await;
    eventually("the pod", async || {
        (cluster.inspect(&scheduler).await.nodes.first()?.pods.len() == 1).then_some(())
    })
    .await;
    eventually("readiness", async || (state("/readyz").await == Some(StatusCode::OK)).then_some(())).await;
    for (name, request, answer) in VERSIONS {
        for mut caller in [Caller::new(scheduler.plain, None, ""), at(&place)] {
            let (status, text) = call(&mut caller, Method::POST, "/", request).await;
            assert_eq!((status, text.as_str()), (StatusCode::OK, answer), "{name}");
        }
    }
    // What is refused, is refused with the scheduler's own words; other methods and inspection are not forwarded.
    let unknown = VERSIONS[6].1.replace("\"v\"", "\"absent\"");
    let (status, text) = call(&mut caller, Method::POST, "/", &unknown).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(text.contains("default/absent is not known"), "{text}");
    let (status, text) = call(&mut caller, Method::GET, "/v1/inspect", "").await;
    assert_eq!((status, text.as_str()), (StatusCode::BAD_REQUEST, "must be POST\n"));
    let (status, _) = call(&mut caller, Method::POST, "/v1/what-if", "{}").await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "it is taken for a request for a permit");
    forwarder.abort();
}
