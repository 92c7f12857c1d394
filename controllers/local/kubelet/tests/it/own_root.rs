//! Containers on a node of root: users of their own in roots of their own.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::PostParams;
use neonvm_kubelet::Network;
use neonvm_test_support::{need, needs};
use serde_json::{Value, json};

use crate::support::{Cluster, content, kill};

const IDLE: &str = "trap 'exit 0' TERM; echo up > $NEONVM_ROOT/out/up; while :; do sleep 0.05; done";

fn field(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

async fn status(cluster: &Cluster, pod: &Pod) -> String {
    let pid = cluster.pid("n1", pod).await;
    std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_container_is_a_user_of_its_own_without_any_right() {
    need!(needs::network_namespaces());
    let mut cluster = Cluster::start().await;
    let network = Network::Namespaces(cluster.addresses(1));
    cluster.add_node(cluster.config("n1", network)).await;
    let mut users = Vec::new();
    for name in ["one", "two"] {
        let pod = cluster.create("n1", name, IDLE, &json!({})).await;
        cluster.ready(name).await;
        let status = status(&cluster, &pod).await;
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(field(&status, set), "0000000000000000", "{set}");
        }
        assert_eq!(field(&status, "NoNewPrivs"), "1");
        // The first process of a namespace of processes.
        assert!(field(&status, "NSpid").ends_with(" 1"), "{status}");
        let user: u32 = field(&status, "Uid").split(' ').next().unwrap().parse().unwrap();
        assert!((2_000_000_000..2_016_777_216).contains(&user), "{user}");
        users.push(user);
        // Of the host it sees programs and what it needs, of other pods nothing.
        let seen = cluster.seen("n1", &pod).await;
        let host = cluster.server.directory().strip_prefix("/").unwrap();
        assert!(seen.join("usr/bin").is_dir() && !seen.join(host).exists() && !seen.join("root").exists());
        let record = cluster.out("n1", &pod).join("up");
        content(&record, |text| text == "up\n").await;
        assert_eq!(std::fs::metadata(record).unwrap().uid(), user);
        let log = cluster.place("n1", &pod).join("logs/c/0.log");
        assert_eq!(std::fs::metadata(log).unwrap().uid(), user);
    }
    assert_ne!(users[0], users[1]);
    // What belongs to other users is no reason not to start again.
    let state = cluster.server.directory().join("nodes");
    let left = neonvm_kit::private::LEFT;
    assert!(neonvm_kit::private::verify(&state, &left).is_ok());
    cluster.delete("one").await;
    cluster.delete("two").await;
}

fn claimed(claim: &str) -> Value {
    json!({ "spec": { "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }],
        "containers": [{ "volumeMounts": [{ "name": "data", "mountPath": "/vm/disks/data" }] }] } })
}

/// The directory of a claim's volume.
fn volume(cluster: &Cluster) -> PathBuf {
    let all = std::fs::read_dir(cluster.server.directory().join("nodes/n1/volumes")).unwrap();
    all.flatten().map(|entry| entry.path()).next().unwrap()
}

/// One after the other, and at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn pods_of_different_users_have_the_same_volume() {
    need!(needs::root());
    let cluster = Cluster::with_node().await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(cluster.client.clone(), "default");
    let claim = json!({ "metadata": { "name": "c" }, "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
        "resources": { "requests": { "storage": "1Gi" } } } });
    // A pod that is bound to its node has no scheduler that chooses one for the claim.
    claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    let script = "umask 077; echo $HOSTNAME >> $NEONVM_ROOT/vm/disks/data/disk.img; ";
    let script = format!("{script}{IDLE}");
    for (name, lines) in [("one", "one\n"), ("two", "one\ntwo\n")] {
        let pod = cluster.create("n1", name, &script, &claimed("c")).await;
        cluster.ready(name).await;
        content(&cluster.out("n1", &pod).join("up"), |text| text == "up\n").await;
        let disk = volume(&cluster).join("disk.img");
        assert_eq!(std::fs::read_to_string(&disk).unwrap(), lines);
        assert_eq!(std::fs::metadata(disk.parent().unwrap()).unwrap().mode() & 0o7777, 0o2770);
    }
    cluster.delete("one").await;
    cluster.delete("two").await;
}

/// A container may write to the directory of its log; the node follows no link from there.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_a_link_is_not_read() {
    need!(needs::root());
    let cluster = Cluster::with_node().await;
    let script = "trap 'exit 0' TERM; ln -sf /etc/shadow $NEONVM_LOG_FILE; echo up > $NEONVM_ROOT/out/up; \
                  while :; do sleep 0.05; done";
    let pod = cluster.create("n1", "links", script, &json!({})).await;
    cluster.ready("links").await;
    content(&cluster.out("n1", &pod).join("up"), |text| text == "up\n").await;
    let log = cluster.place("n1", &pod).join("logs/c/0.log");
    assert_eq!(std::fs::read_link(&log).unwrap(), Path::new("/etc/shadow"));
    let read = cluster.pods().logs("links", &kube::api::LogParams::default()).await.unwrap_or_default();
    assert!(!read.contains("root:"), "{read}");
    kill(&cluster.pid("n1", &pod).await);
    cluster.phase("links", "Failed").await;
    cluster.delete("links").await;
}
