//! A node that is started again finds its pods, and removes those that are gone.

use serde_json::json;

use crate::support::{Cluster, content, eventually, is_alive, kill};
use neonvm_kubelet::Network;

const PATIENT: &str = "trap 'exit 0' TERM; echo up >> $NEONVM_ROOT/out/up; while :; do sleep 0.05; done";

#[tokio::test(flavor = "multi_thread")]
async fn processes_are_found_again() {
    let mut cluster = Cluster::with_node().await;
    let pod = cluster.create("n1", "stays", PATIENT, &json!({})).await;
    let gone = cluster.create("n1", "goes", PATIENT, &json!({})).await;
    let ends = cluster.create("n1", "ends", PATIENT, &json!({})).await;
    for name in ["stays", "goes", "ends"] {
        cluster.ready(name).await;
    }
    let pid = async |pod| {
        content(&cluster.out("n1", pod).join("up"), |text| text.ends_with('\n')).await;
        cluster.pid("n1", pod).await
    };
    let (stays, goes, end) = (pid(&pod).await, pid(&gone).await, pid(&ends).await);
    let before = cluster.pods().get("stays").await.unwrap();
    cluster.kill_node("n1");
    assert!(is_alive(&stays));
    // While the node is away: one pod is removed by force, the process of another is killed.
    let force = kube::api::DeleteParams::default().grace_period(0);
    cluster.pods().delete("goes", &force).await.unwrap();
    kill(&end);
    cluster.add_node(cluster.config("n1", Network::User)).await;
    eventually("the end of the pod that is gone", || async { (!is_alive(&goes)).then_some(()) }).await;
    let place = cluster.place("n1", &gone);
    eventually("its removal", || async { (!place.exists()).then_some(()) }).await;
    let failed = cluster.phase("ends", "Failed").await;
    let state = &failed["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&state["exitCode"], &state["reason"]), (&json!(137), &json!("RunnerKilled")));
    let after = cluster.pods().get("stays").await.unwrap();
    assert!(is_alive(&stays));
    assert_eq!(before.status, after.status);
    assert_eq!(before.metadata.resource_version, after.metadata.resource_version, "nothing was written");
    let starts = content(&cluster.out("n1", &pod).join("up"), |_| true).await;
    assert_eq!(
        (starts.as_str(), cluster.pid("n1", &pod).await),
        ("up\n", stays.clone()),
        "not started again"
    );
    cluster.delete("stays").await;
    assert!(!is_alive(&stays));
}

/// The shells that run a script, but for those that they have just started themselves.
fn running(script: &str) -> Vec<u32> {
    let numbers = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let runs = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        // As the shell gets it.
        let script = script.replace("$$", "$");
        is_alive(&pid.to_string()) && words.split(|byte| *byte == 0).any(|word| word == script.as_bytes())
    };
    let parent = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse::<u32>().ok())
    };
    let all: Vec<u32> = numbers.filter(|pid| runs(pid)).collect();
    all.iter().filter(|pid| parent(pid).is_none_or(|parent| !all.contains(&parent))).copied().collect()
}

/// The node is killed at many moments of a pod's start and end: there is never more than one process, and nothing is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_may_be_killed_at_any_moment() {
    let mut cluster = Cluster::start().await;
    let network =
        if crate::support::is_root() { Network::Namespaces(cluster.addresses(1)) } else { Network::User };
    cluster.add_node(cluster.config("n1", network.clone())).await;
    let places = cluster.server.directory().join("nodes/n1/pods");
    for round in 0..16_u64 {
        let name = format!("p{round}");
        let script = format!(
            "trap 'exit 0' TERM; echo up >> $NEONVM_ROOT/out/up; : {} {name}; while :; do sleep 0.05; done",
            cluster.id
        );
        let pod = cluster.create("n1", &name, &script, &json!({})).await;
        // The moment of the fault, not a wait for something.
        tokio::time::sleep(std::time::Duration::from_millis(round * 3)).await;
        cluster.kill_node("n1");
        cluster.add_node(cluster.config("n1", network.clone())).await;
        cluster.ready(&name).await;
        content(&cluster.out("n1", &pod).join("up"), |text| text.ends_with('\n')).await;
        assert_eq!(running(&script).len(), 1, "round {round}");
        let pods = cluster.pods();
        pods.delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(round * 3)).await;
        cluster.kill_node("n1");
        cluster.add_node(cluster.config("n1", network.clone())).await;
        eventually("the end of the pod", || async {
            pods.get_opt(&name).await.unwrap().is_none().then_some(())
        })
        .await;
        eventually("the removal of its files", || async {
            std::fs::read_dir(&places).unwrap().next().is_none().then_some(())
        })
        .await;
        assert_eq!(running(&script), Vec::<u32>::new());
    }
    let namespaces = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let prefix = neonvm_kubelet::naming::pod_namespace_prefix(&cluster.id, "n1");
    let left: Vec<_> =
        namespaces.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)).collect();
    assert!(left.is_empty(), "{left:?}");
    let leases = std::fs::read_to_string(cluster.server.directory().join("nodes/n1/leases.json")).unwrap();
    assert!(leases.contains("\"held\":{}"), "{leases}");
}
