//! Pods are placed and bound by us.

use std::sync::Arc;

use http::Method;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use neonvm_scheduler::start_with;
use neonvm_test_cluster::intercepted;
use tokio::sync::Barrier;

use neonvm_types::scheduler_inspect::NodeView;

use crate::world::{Cluster, eventually};

#[tokio::test]
async fn pods_are_spread_and_wait_for_room() {
    let cluster = Cluster::start().await;
    let client = &cluster.client;
    let scheduler = cluster.scheduler(cluster.config("a")).await;
    cluster.node("n1", "4", "4Gi").await;
    cluster.node("n2", "4", "4Gi").await;
    // Nodes and pods have separate watches, so their events may arrive in any order.
    let n2 = async |is: &dyn Fn(&NodeView) -> bool| {
        let nodes = cluster.inspect(&scheduler).await.nodes;
        nodes.iter().any(|node| node.name == "n2" && is(node)).then_some(())
    };
    eventually("that n2 is known", async || n2(&|node| node.cpu.total > 0 && node.mem.total > 0).await).await;
    cluster.pod("a", "3Gi").await;
    assert_eq!(cluster.node_of("a").await, "n1");
    cluster.pod("b", "1Gi").await;
    assert_eq!(cluster.node_of("b").await, "n2");
    cluster.pod("c", "4Gi").await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let why = "0/2 nodes fit: n1 insufficient memory (needs 4Gi, has 1Gi); n2 insufficient memory (needs 4Gi, has 3Gi)";
    let reported = async |why: &str| {
        let conditions = pods.get("c").await.unwrap().status?.conditions?;
        let found = conditions.into_iter().find(|c| c.type_ == "PodScheduled")?;
        (found.status == "False" && found.message.as_deref() == Some(why)).then_some(())
    };
    eventually("the condition", async || reported(why).await).await;
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    eventually("the event", async || {
        let all = events.list(&ListParams::default()).await.unwrap();
        all.into_iter()
            .find(|e| e.reason.as_deref() == Some("FailedScheduling") && e.message.as_deref() == Some(why))
    })
    .await;
    let dump = cluster.inspect(&scheduler).await;
    assert_eq!((dump.waiting[0].pod.name.as_str(), dump.waiting[0].why.as_str()), ("c", why));
    // Room on a cordoned node is none.
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.cordon("n2").await.unwrap();
    let why = "0/2 nodes fit: n1 insufficient memory (needs 4Gi, has 1Gi); n2 is cordoned";
    eventually("the new condition", async || reported(why).await).await;
    pods.delete("b", &DeleteParams::default().grace_period(0)).await.unwrap();
    eventually("that n2 is empty", async || n2(&|node| node.pods.is_empty()).await).await;
    reported(why).await.unwrap();
    nodes.uncordon("n2").await.unwrap();
    assert_eq!(cluster.node_of("c").await, "n2");
    scheduler.stop().await;
}

#[tokio::test]
async fn a_burst_of_pods_never_overfills_a_node() {
    let cluster = Cluster::start().await;
    let _scheduler = cluster.leader(cluster.config("a")).await;
    cluster.node("n1", "4", "5Gi").await;
    cluster.node("n2", "4", "5Gi").await;
    for index in 0..12 {
        cluster.pod(&format!("p{index}"), "1Gi").await;
    }
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "default");
    let bound = async || {
        let all = pods.list(&ListParams::default()).await.unwrap();
        let nodes: Vec<String> = all.into_iter().filter_map(|pod| pod.spec.unwrap().node_name).collect();
        (nodes.iter().filter(|name| *name == "n1").count(), nodes.iter().filter(|name| *name == "n2").count())
    };
    eventually("that both nodes are full", async || {
        let (n1, n2) = bound().await;
        assert!(n1 <= 5 && n2 <= 5);
        (n1 + n2 == 10).then_some(())
    })
    .await;
}

/// With a slow API server the last of many pods does not wait for the sum of all bindings: here none of four is answered before
/// the last is sent.
#[tokio::test]
async fn bindings_are_sent_together() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "4", "8Gi").await;
    for index in 0..4 {
        cluster.pod(&format!("p{index}"), "1Gi").await;
    }
    let together = Arc::new(Barrier::new(4));
    let client = intercepted(cluster.client.clone(), move |method, uri, _| {
        let together = Arc::clone(&together);
        async move {
            if method == Method::POST && uri.path().ends_with("/binding") {
                together.wait().await;
            }
        }
    });
    let running = start_with(client, cluster.config("a")).await.unwrap();
    let leading = tokio::spawn(running.lead(std::future::pending()));
    for index in 0..4 {
        assert_eq!(cluster.node_of(&format!("p{index}")).await, "n1");
    }
    leading.abort();
}
