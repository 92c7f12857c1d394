//! H1: a stranger requests the eviction of a pod from the eviction webhook.

use std::sync::Arc;

use http::Method;
use neonvm_kit::call::Caller;
use neonvm_kit::service::Endpoint;
use neonvm_kit::tls;
use neonvm_test_support::{need, needs};
use serde_json::json;

use crate::attacker::{client, send};
use crate::authority::{WITHIN, bound};
use crate::cluster::Cluster;
use crate::sockets::{ListenAddress, listeners};

#[tokio::test(flavor = "multi_thread")]
async fn strangers_evict_nothing() {
    need!(needs::network_namespaces());
    let cluster = Cluster::start(2);
    let admin = client(&cluster).await;
    let pod = bound(&admin, "db", "n1").await;
    let controller = cluster.process("vm-controller");
    let found = listeners(std::slice::from_ref(&controller));
    let webhook = found.into_iter().find_map(|listener| match listener.place {
        ListenAddress::Tcp(address) => Some(address),
        _ => None,
    });
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1",
        "operation": "CREATE", "namespace": "default", "name": pod, "dryRun": false,
        "kind": {"group": "policy", "version": "v1", "kind": "Eviction"},
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "subResource": "eviction",
        "userInfo": {"username": "system:admin", "groups": ["system:masters"]},
        "object": {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}}}});
    let endpoint = Endpoint { address: webhook.unwrap(), plain: false };
    let config = Arc::new(tls::unchecked().unwrap());
    for path in [
        "/validate-v1-pod-eviction",
        "/validate-v1-pod-eviction?x=y",
        "/mutate-vm-neon-tech-v1-virtualmachine",
    ] {
        let mut caller = Caller::new(endpoint, Some(Arc::clone(&config)), "localhost");
        let (status, body) =
            caller.call(Method::POST, path, review.to_string().into(), WITHIN).await.unwrap();
        let body = String::from_utf8_lossy(&body);
        assert!(matches!(status.as_u16(), 403 | 404), "{path}: {status} {body}");
        assert!(!body.contains("\"allowed\":true"), "{path}: {body}");
    }
    // What it would bring about is an object, and it would be there by the time that an honest write is answered.
    let migrations = "/apis/vm.neon.tech/v1/virtualmachinemigrations";
    let all = send(&admin, Method::GET, migrations, "", None).await.unwrap();
    assert_eq!(all["items"], json!([]));
    println!("vm-controller: at most {} KiB", controller.peak_memory());
}
