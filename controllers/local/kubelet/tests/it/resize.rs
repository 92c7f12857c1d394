//! Sizes of pods that run: allocated by the room of the node, held by cgroups.

use std::path::{Path, PathBuf};

use kube::api::{Patch, PatchParams};
use neonvm_kubelet::{Network, naming};
use neonvm_test_support::{Missing, Need, need, needs};
use serde_json::{Value, json};

use crate::support::{Cluster, condition, content, eventually, with};

const PATIENT: &str = "trap 'exit 0' TERM; while :; do sleep 0.05; done";

async fn cluster() -> Cluster {
    let mut cluster = Cluster::start().await;
    let mut config = cluster.config("n1", Network::User);
    config.capacity.cpu_milli = Some(4000);
    config.capacity.memory = Some(8 << 30);
    cluster.add_node(config).await;
    cluster
}

fn sized(cpu: &str) -> Value {
    let list = json!({ "cpu": cpu, "memory": "256Mi" });
    with(&json!({ "resources": { "requests": list, "limits": list } }))
}

async fn resize(cluster: &Cluster, name: &str, cpu: &str) {
    let list = json!({ "cpu": cpu });
    let resources = json!({ "requests": list, "limits": list });
    let patch = json!({ "spec": { "containers": [{ "name": "c", "resources": resources }] } });
    let patch = Patch::Strategic(patch);
    cluster.pods().patch_subresource("resize", name, &PatchParams::default(), &patch).await.unwrap();
}

/// CPUs in force, and allocated.
fn cpus(pod: &Value) -> (&str, &str) {
    let status = &pod["status"]["containerStatuses"][0];
    (
        status["resources"]["limits"]["cpu"].as_str().unwrap_or(""),
        status["allocatedResources"]["cpu"].as_str().unwrap_or(""),
    )
}

fn pending(pod: &Value) -> Option<&Value> {
    pod["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == "PodResizePending")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_resized_when_the_node_has_room() {
    let cluster = cluster().await;
    cluster.create("n1", "a", PATIENT, &sized("1")).await;
    cluster.create("n1", "b", PATIENT, &sized("2")).await;
    cluster.wait("a", "the report of its size", |pod| cpus(pod) == ("1", "1")).await;
    cluster.ready("b").await;

    resize(&cluster, "a", "1500m").await;
    let done = |pod: &Value, cpu: &str, generation: i64| {
        cpus(pod) == (cpu, cpu)
            && pending(pod).is_none()
            && pod["status"]["observedGeneration"] == generation
            && condition(pod, "PodResizeInProgress").is_empty()
    };
    let found = cluster.wait("a", "the resize", |pod| done(pod, "1500m", 2)).await;
    assert_eq!(found["status"]["containerStatuses"][0]["restartCount"], 0);

    resize(&cluster, "a", "3").await;
    let found = cluster.wait("a", "the refusal", |pod| pending(pod).is_some()).await;
    let why = pending(&found).unwrap();
    assert_eq!((&why["reason"], &why["observedGeneration"]), (&json!("Deferred"), &json!(3)));
    let message = why["message"].as_str().unwrap();
    assert!(message.contains("cpu, requested: 3000, used: 2000, capacity: 4000"), "{message}");
    assert_eq!(cpus(&found), ("1500m", "1500m"));
    // Another pod gives back what is missing.
    resize(&cluster, "b", "500m").await;
    cluster.wait("a", "the deferred resize", |pod| done(pod, "3", 3)).await;
    cluster.wait("b", "the smaller size", |pod| done(pod, "500m", 2)).await;

    resize(&cluster, "b", "2").await;
    cluster.wait("b", "the refusal", |pod| pending(pod).is_some()).await;
    cluster.delete("a").await;
    cluster.wait("b", "the room of the pod that ended", |pod| done(pod, "2", 3)).await;
    cluster.delete("b").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_node_goes_on_with_the_size() {
    let mut cluster = cluster().await;
    cluster.create("n1", "a", PATIENT, &sized("1")).await;
    cluster.wait("a", "the report of its size", |pod| cpus(pod) == ("1", "1")).await;
    cluster.kill_node("n1");
    resize(&cluster, "a", "2").await;
    let mut config = cluster.config("n1", Network::User);
    config.capacity.cpu_milli = Some(4000);
    cluster.add_node(config).await;
    cluster.wait("a", "the resize", |pod| cpus(pod) == ("2", "2")).await;
    cluster.delete("a").await;
}

/// Root, and cgroups that it may make.
fn cgroups() -> Need {
    needs::root()?;
    let name = format!("nv-probe-{}", std::process::id());
    let made = ["cpu", ""].iter().map(|place| Path::new("/sys/fs/cgroup").join(place).join(&name));
    let made = made.into_iter().find(|path| std::fs::create_dir(path).is_ok());
    let made = made.ok_or_else(|| Missing::unavailable("cgroups cannot be made here"))?;
    std::fs::remove_dir(made).unwrap();
    Ok(())
}

/// Where a setting of a pod's cgroup is; version 1 or 2.
fn setting(group: &str, old: &str, new: &str) -> PathBuf {
    let root = Path::new("/sys/fs/cgroup");
    let places = [root.join("cpu").join(group).join(old), root.join("memory").join(group).join(old)];
    places.into_iter().find(|path| path.exists()).unwrap_or_else(|| root.join(group).join(new))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cgroup_holds_a_pod_to_its_size() {
    need!(cgroups());
    let cluster = cluster().await;
    let pod = cluster.create("n1", "a", PATIENT, &sized("250m")).await;
    let group = naming::pod_cgroup(&cluster.id, "n1", pod.metadata.uid.as_deref().unwrap());
    cluster.ready("a").await;
    let reads = async |old: &str, new: &str, wanted: &[&str]| {
        eventually(&format!("{wanted:?} in {old} or {new}"), || async {
            let text = std::fs::read_to_string(setting(&group, old, new)).ok()?;
            wanted.contains(&text.trim()).then_some(())
        })
        .await;
    };
    reads("cpu.cfs_quota_us", "cpu.max", &["25000", "25000 100000"]).await;
    reads("memory.limit_in_bytes", "memory.max", &["268435456"]).await;
    resize(&cluster, "a", "1500m").await;
    reads("cpu.cfs_quota_us", "cpu.max", &["150000", "150000 100000"]).await;
    resize(&cluster, "a", "100m").await;
    reads("cpu.cfs_quota_us", "cpu.max", &["10000", "10000 100000"]).await;
    cluster.delete("a").await;
    eventually("the removal of the cgroup", || async {
        (!setting(&group, "cpu.cfs_quota_us", "cpu.max").exists()).then_some(())
    })
    .await;
}

/// The controller of processes, of version 1 or 2.
fn counts_processes() -> Need {
    let root = Path::new("/sys/fs/cgroup");
    let unified = std::fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    let has =
        root.join("pids/cgroup.procs").exists() || unified.split_whitespace().any(|name| name == "pids");
    has.then_some(()).ok_or_else(|| Missing::unavailable("no cgroup controller for processes"))
}

/// As many threads as the kernel gives, at most 6000; then the number of them.
const THREADS: &str = r#"exec python3 -c '
import os, threading, time
threading.stack_size(65536)
count = 0
try:
    while count < 6000:
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        count += 1
except RuntimeError:
    pass
with open(os.environ["NEONVM_ROOT"] + "/out/count", "w") as file:
    file.write(str(count) + ".")
time.sleep(600)
'"#;

/// A pod cannot use up the processes of its host: neither one without limits of its own, nor one with them.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_has_a_limit_of_processes() {
    need!(cgroups());
    need!(counts_processes());
    need!(needs::program("python3").map(drop));
    let cluster = cluster().await;
    for (name, extra) in [("free", json!({})), ("sized", sized("1"))] {
        let pod = cluster.create("n1", name, THREADS, &extra).await;
        let count = content(&cluster.out("n1", &pod).join("count"), |text| text.ends_with('.')).await;
        let count: u32 = count.trim_end_matches('.').parse().unwrap();
        assert!((1000..4096).contains(&count), "{name}: {count}");
        cluster.delete(name).await;
    }
}
