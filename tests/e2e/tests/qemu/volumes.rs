//! Disks on persistent volumes: their content outlives restarts, kills, VMs and clusters, and is never formatted again.

use neonvm_e2e::client::Resource;
use neonvm_test_support::need;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cluster::{Cluster, kill, possible, until};

/// The directories of the volumes of a cluster.
fn directories(cluster: &Cluster) -> Vec<std::path::PathBuf> {
    let below = |path: std::path::PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
    let nodes = below(cluster.directory().join("nodes"));
    nodes.flat_map(|node| below(node.path().join("volumes"))).map(|entry| entry.path()).collect()
}

fn create(cluster: &Cluster, more: &[&str]) {
    cluster.run("pg", &[&["--volume", "data=256Mi:/data"], more].concat());
}

#[test]
fn data_outlives_restart_kill_vm_and_cluster() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    create(&cluster, &[]);
    cluster.inside("pg", "mkdir -m 700 /data/db && echo first > /data/db/rows && sync");
    let claim = cluster.get(Resource::CLAIM, "data-pg");
    assert_eq!(claim.pointer("/status/phase"), Some(&json!("Bound")), "{claim}");
    let rows = || cluster.inside("pg", "cat /data/db/rows; stat -c %a /data/db");

    cluster.good(&["vm", "restart", "pg", "--wait", "--timeout", "170s"]);
    assert_eq!(rows(), "first\n700\n");

    // A QEMU that is killed under load: what the guest has written and synchronised is there, and the journal is replayed.
    cluster.inside("pg", "echo second >> /data/db/rows && sync");
    let before = cluster.pod("pg");
    let uid = cluster.vm("pg")["metadata"]["uid"].as_str().unwrap().to_owned();
    for pid in Cluster::qemus(&uid) {
        kill(pid, Signal::KILL);
    }
    cluster.becomes("pg", "runs again", |vm| vm["status"]["podName"] != json!(before) && ready(vm));
    assert_eq!(rows(), "first\nsecond\n700\n");

    cluster.good(&["vm", "delete", "pg", "--wait", "--timeout", "170s"]);
    assert_eq!(directories(&cluster).len(), 1, "the claim stays");
    cluster.good(&["local", "down"]);
    cluster.up();
    create(&cluster, &[]);
    assert_eq!(rows(), "first\nsecond\n700\n");

    cluster.good(&["vm", "delete", "pg", "--wait", "--timeout", "170s"]);
    cluster.delete(Resource::CLAIM, "data-pg");
    until(|| directories(&cluster).is_empty(), || format!("{:?}\n{}", directories(&cluster), cluster.logs()));
    until(|| cluster.list(Resource::VOLUME).is_empty(), || format!("{:?}", cluster.list(Resource::VOLUME)));
    cluster.down();
}

/// A claim is expanded while the guest writes: the file system grows, and nothing is restarted.
#[test]
fn a_disk_grows_with_its_claim_in_the_running_guest() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    create(&cluster, &[]);
    let disk = || cluster.vm("pg")["status"]["volumes"][0]["size"].clone();
    cluster.becomes("pg", "reports its disk", |vm| vm["status"]["volumes"][0]["size"] == "256Mi");
    cluster.inside(
        "pg",
        "(i=0; while :; do i=$((i+1)); echo row $i >> /data/rows; sync; sleep 0.2; done) >/dev/null 2>&1 &",
    );
    let size = || -> u64 {
        cluster.inside("pg", "df -k /data | tail -1 | awk '{print $2}'").trim().parse().unwrap()
    };
    let rows = || -> u64 { cluster.inside("pg", "wc -l < /data/rows").trim().parse().unwrap() };
    let boot = || cluster.inside("pg", "cat /proc/sys/kernel/random/boot_id");
    let (pod, kernel, before, written) = (cluster.pod("pg"), boot(), size(), rows());
    let larger = json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}}});
    cluster.client().merge(Resource::CLAIM, "data-pg", &larger).unwrap();
    until(|| size() > 2 * before, || format!("{before} KiB before, {} after\n{}", size(), cluster.logs()));
    cluster.becomes("pg", "reports the larger disk", |vm| vm["status"]["volumes"][0]["size"] == "1Gi");
    assert_eq!((cluster.pod("pg"), boot()), (pod.clone(), kernel.clone()), "nothing was restarted");
    assert!(rows() > written, "the guest writes on");

    // The room can be used, and the next growth is one command.
    cluster.inside(
        "pg",
        "dd if=/dev/urandom of=/data/blob bs=1M count=400 && sync && md5sum /data/blob > /data/sum",
    );
    let before = size();
    cluster.good(&["vm", "disk", "grow", "pg", "data", "1536Mi", "--timeout", "170s"]);
    assert!(size() > before, "{before} KiB before, {} after", size());
    assert_eq!((cluster.pod("pg"), boot(), disk()), (pod, kernel, json!("1536Mi")));
    let list = cluster.good(&["vm", "disk", "list", "pg"]);
    assert!(list.contains("1536Mi") && list.contains("copied"), "{list}");

    // What was written since is there after a restart of QEMU without any notice.
    let pod = cluster.pod("pg");
    for pid in Cluster::qemus(cluster.vm("pg")["metadata"]["uid"].as_str().unwrap()) {
        kill(pid, Signal::KILL);
    }
    cluster.becomes("pg", "runs again", |vm| vm["status"]["podName"] != json!(pod) && ready(vm));
    cluster.inside("pg", "md5sum -c /data/sum");
    cluster.down();
}

/// A disk that has grown in the running guest moves as it is: the other runner makes a copy of its present size.
#[test]
fn a_disk_that_has_grown_moves_with_its_vm() {
    need!(possible());
    let cluster = Cluster::with(&["--nodes", "2"]);
    cluster.idle();
    create(&cluster, &[]);
    cluster.good(&["vm", "disk", "grow", "pg", "data", "512Mi", "--timeout", "170s"]);
    cluster.inside(
        "pg",
        "dd if=/dev/urandom of=/data/blob bs=1M count=300 && sync && md5sum /data/blob > /data/sum",
    );
    cluster.good(&["vm", "migrate", "pg", "--timeout", "170s"]);
    cluster.inside("pg", "md5sum -c /data/sum");
    cluster.becomes("pg", "has its size", |vm| vm["status"]["volumes"][0]["size"] == "512Mi");
    cluster.good(&["vm", "disk", "grow", "pg", "data", "1Gi", "--timeout", "170s"]);
    cluster.inside("pg", "md5sum -c /data/sum");
    cluster.down();
}

fn ready(vm: &Value) -> bool {
    let conditions = vm.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == "Available" && one["status"] == "True")
}

#[test]
fn a_disk_with_other_content_is_left_alone_and_one_grows_at_a_start() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    create(&cluster, &[]);
    let size = "df -k /data | tail -1 | awk '{print $2}'";
    let before: u64 = cluster.inside("pg", size).trim().parse().unwrap();
    cluster.good(&["vm", "stop", "pg", "--wait", "--timeout", "170s"]);
    let larger = json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}}});
    cluster.client().merge(Resource::CLAIM, "data-pg", &larger).unwrap();
    let grown =
        || cluster.get(Resource::CLAIM, "data-pg").pointer("/status/capacity/storage") == Some(&json!("1Gi"));
    until(grown, || format!("{}\n{}", cluster.get(Resource::CLAIM, "data-pg"), cluster.logs()));
    cluster.good(&["vm", "start", "pg", "--wait", "--timeout", "170s"]);
    let after = || cluster.inside("pg", size).trim().parse::<u64>().unwrap();
    until(|| after() > 2 * before, || format!("{before} KiB before, {} after", after()));

    cluster.good(&["vm", "stop", "pg", "--wait", "--timeout", "170s"]);
    let [directory] = &directories(&cluster)[..] else { panic!("{:?}", directories(&cluster)) };
    let disk = directory.join("disk.img");
    let mut content = vec![0; 1 << 20];
    content[510..512].copy_from_slice(&[0x55, 0xAA]);
    std::fs::write(&disk, &content).unwrap();
    cluster.good(&["vm", "start", "pg", "--no-wait"]);
    let vm = cluster.becomes("pg", "names the content", |vm| {
        vm["status"]["lastExit"]["message"].as_str().is_some_and(|text| text.contains("claim data-pg"))
    });
    let why = vm["status"]["lastExit"]["message"].as_str().unwrap().to_owned();
    assert!(why.contains("no ext4 file system") && why.contains("nothing was written"), "{why}");
    assert_eq!(std::fs::read(&disk).unwrap(), content);
    cluster.down();
}

/// Names of the claims, in order.
fn claims(cluster: &Cluster) -> Vec<String> {
    let all = cluster.list(Resource::CLAIM).into_iter();
    let mut names: Vec<String> =
        all.map(|claim| claim["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

/// A volume of one node is copied to the other while its guest writes; the claim before goes, and later pods and VMs use the new one.
#[test]
fn a_volume_of_one_node_moves_with_its_vm() {
    need!(possible());
    let cluster = Cluster::with(&["--nodes", "2"]);
    cluster.idle();
    create(&cluster, &[]);
    cluster.inside(
        "pg",
        "dd if=/dev/urandom of=/data/blob bs=1M count=40 && sync && md5sum /data/blob > /data/sum",
    );
    cluster.inside(
        "pg",
        "(i=0; while :; do i=$((i+1)); echo row $i >> /data/rows; sync; sleep 0.2; done) >/dev/null 2>&1 &",
    );
    let plan: Value =
        serde_json::from_str(&cluster.good(&["vm", "migrate", "pg", "--dry-run", "-o", "json"])).unwrap();
    assert_eq!(
        (&plan["volumes"][0]["claim"], &plan["volumes"][0]["shared"]),
        (&json!("data-pg"), &json!(false))
    );

    let node = || cluster.vm("pg")["status"]["node"].clone();
    let volume = || cluster.vm("pg")["status"]["volumes"][0].clone();
    let rows = || cluster.inside("pg", "tail -n 1 /data/rows; wc -l < /data/rows");
    for round in 0..3 {
        let (from, before) = (node(), rows());
        cluster.good(&["vm", "migrate", "pg", "--timeout", "170s"]);
        assert_ne!(node(), from, "round {round}");
        let moved = volume();
        assert_eq!(moved["copyOf"], "data-pg", "{moved}");
        let name = moved["claimName"].as_str().unwrap().to_owned();
        until(
            || claims(&cluster) == [name.as_str()],
            || format!("{:?}\n{}", claims(&cluster), cluster.logs()),
        );
        until(|| directories(&cluster).len() == 1, || format!("{:?}", directories(&cluster)));
        assert_ne!(rows(), before, "the guest writes on");
        cluster.inside("pg", "md5sum -c /data/sum");
    }

    // What is read now comes from the volume.
    let (home, before) = (node(), rows());
    for pid in Cluster::qemus(cluster.vm("pg")["metadata"]["uid"].as_str().unwrap()) {
        kill(pid, Signal::KILL);
    }
    let pod = cluster.pod("pg");
    cluster.becomes("pg", "runs again", |vm| vm["status"]["podName"] != json!(pod) && ready(vm));
    assert_eq!(node(), home, "it starts where its volume is");
    cluster.inside("pg", "md5sum -c /data/sum");
    let number = |text: &str| text.lines().last().unwrap().trim().parse::<u64>().unwrap();
    let after = cluster.inside("pg", "wc -l < /data/rows");
    assert!(number(&after) >= number(&before), "{before} before, {after} after");

    // A VM of the same name finds the claim that has taken the place of the one in its spec.
    let kept = claims(&cluster);
    cluster.good(&["vm", "delete", "pg", "--wait", "--timeout", "170s"]);
    assert_eq!(claims(&cluster), kept);
    create(&cluster, &[]);
    assert_eq!(claims(&cluster), kept);
    cluster.inside("pg", "md5sum -c /data/sum");

    // A migration that is called off leaves the claim alone, and nothing else.
    let (code, why) = cluster.bad(&[
        "vm",
        "migrate",
        "pg",
        "--bandwidth",
        "1Mi",
        "--completion-timeout",
        "5s",
        "--timeout",
        "170s",
    ]);
    assert!(code != 0, "{why}");
    until(|| claims(&cluster) == kept, || format!("{:?}\n{}", claims(&cluster), cluster.logs()));
    until(|| directories(&cluster).len() == 1, || format!("{:?}", directories(&cluster)));
    cluster.inside("pg", "md5sum -c /data/sum && touch /data/still && sync");
    cluster.down();
}
