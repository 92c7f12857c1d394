//! Lives of pods: starts, ends, restarts, probes, deletion.

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{EvictParams, ListParams};
use serde_json::json;

use crate::support::{Cluster, condition, content, eventually, is_alive, kill, with};

/// Runs until it is requested to end, then writes a line.
const PATIENT: &str = "trap 'echo bye >> $NEONVM_ROOT/out/bye; exit 0' TERM; echo hello; \
                       while :; do sleep 0.05; done";

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_runs_ends_and_is_removed() {
    let cluster = Cluster::with_node().await;
    let script =
        r#"echo out; echo '{"reason":"PoweredOff","message":"done"}' > $NEONVM_TERMINATION_LOG; exit 0"#;
    let init = json!({ "spec": { "initContainers": [
        { "name": "i", "image": "i", "command": ["neond", "runner", "echo init > $NEONVM_ROOT/out/init"] }] } });
    let pod = cluster.create("n1", "ends", script, &init).await;
    let ended = cluster.phase("ends", "Succeeded").await;
    let state = &ended["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&state["exitCode"], &state["reason"]), (&json!(0), &json!("Completed")), "{ended:#}");
    assert!(state["message"].as_str().unwrap().contains("PoweredOff"));
    assert_eq!(ended["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    assert!(ended["status"]["podIP"].as_str().unwrap().starts_with("127."));
    let place = cluster.place("n1", &pod);
    eventually("the clean-up", || async { (!place.join("root").exists()).then_some(()) }).await;
    cluster.delete("ends").await;
    eventually("the removal", || async { (!place.exists()).then_some(()) }).await;

    cluster.create("n1", "fails", "exit 7", &json!({})).await;
    let failed = cluster.phase("fails", "Failed").await;
    assert_eq!(failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 7);
    let pod = cluster.create("n1", "killed", PATIENT, &json!({})).await;
    cluster.ready("killed").await;
    kill(&cluster.pid("n1", &pod).await);
    let killed = cluster.phase("killed", "Failed").await;
    let state = &killed["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(
        (&state["exitCode"], &state["signal"], &state["reason"]),
        (&json!(137), &json!(9), &json!("RunnerKilled"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_containers_are_refused() {
    let cluster = Cluster::with_node().await;
    let other = with(&json!({ "command": ["nginx"], "args": null }));
    cluster.create("n1", "foreign", "", &other).await;
    let failed = cluster.phase("foreign", "Failed").await;
    let message = failed["status"]["message"].as_str().unwrap();
    assert!(message.contains("no container runtime"), "{message}");
    cluster.delete("foreign").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_policies_are_kept() {
    let cluster = Cluster::with_node().await;
    let always = json!({ "spec": { "restartPolicy": "Always" } });
    cluster.create("n1", "always", "exit 0", &always).await;
    let count =
        |pod: &serde_json::Value| pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or(0);
    let again = cluster.wait("always", "two restarts", |pod| count(pod) >= 2).await;
    assert_eq!(again["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 0);
    let on_failure = json!({ "spec": { "restartPolicy": "OnFailure" } });
    let script = "[ -e $NEONVM_ROOT/out/again ] && exit 0; touch $NEONVM_ROOT/out/again; exit 1";
    cluster.create("n1", "failure", script, &on_failure).await;
    assert_eq!(count(&cluster.phase("failure", "Succeeded").await), 1);
    cluster.delete("always").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_gives_grace_and_then_kills() {
    let cluster = Cluster::with_node().await;
    let pod = cluster.create("n1", "patient", PATIENT, &json!({})).await;
    let place = cluster.place("n1", &pod);
    cluster.ready("patient").await;
    let pid = cluster.pid("n1", &pod).await;
    let log = place.join("logs/c/0.log");
    content(&log, |text| text == "hello\n").await;
    // Evicting is deleting.
    cluster.pods().evict("patient", &EvictParams::default()).await.unwrap();
    let pods = cluster.pods();
    eventually("the end", || async { pods.get_opt("patient").await.unwrap().is_none().then_some(()) }).await;
    assert!(!is_alive(&pid));

    let stubborn = "trap '' TERM; echo up > $NEONVM_ROOT/out/up; while :; do sleep 0.05; done";
    let short = json!({ "spec": { "terminationGracePeriodSeconds": 1 } });
    let pod = cluster.create("n1", "stubborn", stubborn, &short).await;
    content(&cluster.out("n1", &pod).join("up"), |text| text.ends_with('\n')).await;
    let pid = cluster.pid("n1", &pod).await;
    cluster.delete("stubborn").await;
    assert!(!is_alive(&pid));
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    eventually("the events", || async {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let has = |reason: &str| all.iter().any(|event| event.reason.as_deref() == Some(reason));
        (has("Started") && has("Killing")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_decide_on_readiness_and_life() {
    let cluster = Cluster::with_node().await;
    // A probe command that is slow to start proves nothing about the container.
    let probe = |test: &str| {
        json!({ "exec": { "command": ["sh", "-c", format!("test {test}")] }, "periodSeconds": 1, "failureThreshold": 1,
            "timeoutSeconds": 60 })
    };
    let (readiness, liveness) = (probe("-e $NEONVM_ROOT/out/ready"), probe("! -e $NEONVM_ROOT/out/dead"));
    let probes = with(&json!({ "readinessProbe": readiness, "livenessProbe": liveness }));
    let mut more = json!({ "spec": { "restartPolicy": "Always", "terminationGracePeriodSeconds": 60 } });
    crate::support::merge(&mut more, &probes);
    // With it goes the reason for its end: the next run is not to end as well.
    let script = PATIENT.replace("trap '", "trap 'rm $NEONVM_ROOT/out/dead; ");
    let pod = cluster.create("n1", "probed", &script, &more).await;
    let root = cluster.out("n1", &pod);
    let running = cluster.phase("probed", "Running").await;
    assert_eq!(condition(&running, "Ready"), "False");
    std::fs::write(root.join("ready"), "").unwrap();
    let ready = cluster.ready("probed").await;
    let conditions = ready["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().all(|condition| condition.get("reason").is_none()), "{conditions:#?}");
    std::fs::remove_file(root.join("ready")).unwrap();
    cluster.wait("probed", "no readiness", |pod| condition(pod, "Ready") == "False").await;
    std::fs::write(root.join("dead"), "").unwrap();
    content(&root.join("bye"), |text| text == "bye\n").await;
    cluster
        .wait("probed", "the restart", |pod| pod["status"]["containerStatuses"][0]["restartCount"] == 1)
        .await;
    cluster.delete("probed").await;
}
