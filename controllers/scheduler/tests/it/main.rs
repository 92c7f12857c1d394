//! The scheduler against the embedded API server.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

struct Cluster {
    client: Client,
    _directory: tempfile::TempDir,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

async fn cluster() -> Cluster {
    let directory = tempfile::tempdir().unwrap();
    let config = neonvm_local::Config {
        directory: directory.path().into(),
        listen: ([127, 0, 0, 1], 0).into(),
        names: Vec::new(),
        faults: false,
    };
    let server = neonvm_local::Server::start(&config).await.unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig("t").to_string()).unwrap();
    let client = neonvm_kit::client::connect(Some(&kubeconfig)).await.unwrap();
    let api = tokio::spawn(server.run(std::future::pending()));
    let config = neonvm_scheduler::Config { kubeconfig: Some(kubeconfig) };
    let scheduler = tokio::spawn(async move {
        neonvm_scheduler::run(config, std::future::pending()).await.unwrap();
    });
    Cluster { client, _directory: directory, tasks: vec![api, scheduler] }
}

async fn node(client: &Client, name: &str, memory: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    let value = json!({ "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } } });
    nodes.create(&PostParams::default(), &serde_json::from_value(value).unwrap()).await.unwrap();
    // New nodes are tainted until somebody says that they are ready.
    let untainted = json!({ "spec": { "taints": null } });
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(untainted)).await.unwrap();
    let amounts = json!({ "cpu": "4", "memory": memory, "pods": "10" });
    let status = json!({ "status": { "capacity": amounts, "allocatable": amounts } });
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

async fn pod(client: &Client, name: &str, memory: &str) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let value: Value = json!({ "metadata": { "name": name }, "spec": { "schedulerName": "autoscale-scheduler", "containers": [
        { "name": "c", "image": "i", "resources": { "requests": { "memory": memory } } } ] } });
    pods.create(&PostParams::default(), &serde_json::from_value(value).unwrap()).await.unwrap();
}

async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..1000 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what} did not happen within 20 s");
}

async fn node_of(client: &Client, name: &str) -> String {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    until(&format!("the binding of {name}"), async || pods.get(name).await.unwrap().spec.unwrap().node_name)
        .await
}

#[tokio::test]
async fn pods_are_spread_and_wait_for_room() {
    let cluster = cluster().await;
    let client = &cluster.client;
    node(client, "n1", "4Gi").await;
    node(client, "n2", "4Gi").await;
    pod(client, "a", "3Gi").await;
    assert_eq!(node_of(client, "a").await, "n1");
    pod(client, "b", "1Gi").await;
    assert_eq!(node_of(client, "b").await, "n2");
    pod(client, "c", "4Gi").await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let why = "0/2 nodes fit: n1 insufficient memory (needs 4Gi, has 1Gi); n2 insufficient memory (needs 4Gi, has 3Gi)";
    let told = async |why: &str| {
        let conditions = pods.get("c").await.unwrap().status?.conditions?;
        let found = conditions.into_iter().find(|c| c.type_ == "PodScheduled")?;
        (found.status == "False" && found.message.as_deref() == Some(why)).then_some(())
    };
    until("the condition", async || told(why).await).await;
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    until("the event", async || {
        let all = events.list(&ListParams::default()).await.unwrap();
        all.into_iter()
            .find(|e| e.reason.as_deref() == Some("FailedScheduling") && e.message.as_deref() == Some(why))
    })
    .await;
    // Room on a cordoned node is none.
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.cordon("n2").await.unwrap();
    pods.delete("b", &kube::api::DeleteParams::default().grace_period(0)).await.unwrap();
    let why = "0/2 nodes fit: n1 insufficient memory (needs 4Gi, has 1Gi); n2 is cordoned";
    until("the new condition", async || told(why).await).await;
    nodes.uncordon("n2").await.unwrap();
    assert_eq!(node_of(client, "c").await, "n2");
}
