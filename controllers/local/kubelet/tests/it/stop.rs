//! Ending the VMs of a cluster after its services have ended.

use std::time::Duration;

use neonvm_kubelet::{Network, RunningPod, running, stop_all};
use serde_json::json;

use crate::support::{Cluster, content, is_alive};

/// Succeeds when requested to end, and leaves a message.
const GOOD: &str = r#"trap 'echo "{\"reason\":\"Stopped\",\"message\":\"off\"}" > $NEONVM_TERMINATION_LOG; exit 0' TERM;
    echo up > $NEONVM_ROOT/out/up; while :; do sleep 0.05; done"#;
/// Ignores SIGTERM.
const DEAF: &str = "trap '' TERM; echo up > $NEONVM_ROOT/out/up; while :; do sleep 0.05; done";

fn names(pods: &[RunningPod]) -> Vec<&str> {
    pods.iter().map(|pod| pod.name.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_are_asked_and_waited_for_and_end_with_their_own_code() {
    let mut cluster = Cluster::with_node().await;
    cluster.create("n1", "ended", "exit 0", &json!({})).await;
    cluster.phase("ended", "Succeeded").await;
    let short = json!({ "spec": { "terminationGracePeriodSeconds": 1 } });
    let mut pids = Vec::new();
    // The deaf one has a grace period shorter than the longest time, and is not waited for beyond it.
    let long = json!({ "spec": { "terminationGracePeriodSeconds": 60 } });
    for (name, script, more) in [("deaf", DEAF, short), ("good", GOOD, long)] {
        let pod = cluster.create("n1", name, script, &more).await;
        cluster.ready(name).await;
        content(&cluster.out("n1", &pod).join("up"), |text| text.ends_with('\n')).await;
        pids.push(cluster.pid("n1", &pod).await);
    }
    cluster.kill_node("n1");
    let data = cluster.server.directory().to_path_buf();
    let before = running(&data);
    assert_eq!(names(&before), ["default/deaf", "default/good"]);
    assert_eq!(before.iter().map(|pod| pod.grace.as_secs()).collect::<Vec<_>>(), [1, 60]);
    let left = tokio::task::spawn_blocking({
        let data = data.clone();
        move || stop_all(&data, Duration::from_secs(600))
    });
    let left = left.await.unwrap();
    assert_eq!(names(&left), ["default/deaf"]);
    assert!(is_alive(&pids[0]) && !is_alive(&pids[1]));
    assert_eq!(running(&data), left);
    let killed = neonvm_kubelet::clean_up(&cluster.id, &data, Duration::ZERO).unwrap();
    assert_eq!(names(&killed), ["default/deaf"]);
    assert!(!is_alive(&pids[0]) && running(&data).is_empty());
    // The next node reports how they ended: the one with its own code, the other was killed.
    cluster.add_node(cluster.config("n1", Network::User)).await;
    let good = cluster.phase("good", "Succeeded").await;
    let state = &good["status"]["containerStatuses"][0]["state"]["terminated"];
    assert!(state["message"].as_str().unwrap().contains("Stopped"), "{state}");
    let deaf = cluster.phase("deaf", "Failed").await;
    let state = &deaf["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(state["reason"], "RunnerKilled", "{state}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_boot_or_another_process_has_the_number_of_is_left_alone() {
    let mut cluster = Cluster::with_node().await;
    let pod = cluster.create("n1", "p", GOOD, &json!({})).await;
    cluster.ready("p").await;
    let place = cluster.place("n1", &pod);
    let pid = cluster.pid("n1", &pod).await;
    cluster.kill_node("n1");
    let data = cluster.server.directory();
    let (state, record) = (place.join("state.json"), place.join("containers/c/0.pid"));
    let written = std::fs::read_to_string(&state).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    std::fs::write(&state, written.replace(boot.trim(), "0")).unwrap();
    assert_eq!(running(data), []);
    std::fs::write(&state, &written).unwrap();
    let stat = std::fs::read_to_string(&record).unwrap();
    // The same number with another start time.
    let mut fields: Vec<&str> = stat.split(' ').collect();
    let other = format!("{}1", fields[21]);
    fields[21] = &other;
    std::fs::write(&record, fields.join(" ")).unwrap();
    assert_eq!(running(data), []);
    std::fs::write(&record, &stat).unwrap();
    assert_eq!(names(&running(data)), ["default/p"]);
    assert!(is_alive(&pid), "nothing was sent to it");
}
