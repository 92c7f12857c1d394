//! How full disks are, and copies of them at one moment: freezes that always end, and snapshots by a simulated driver.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use neonvm_e2e::client::Resource;
use neonvm_test_support::{need, needs};
use serde_json::{Value, json};

use crate::cluster::{Cluster, possible, until};

fn create(cluster: &Cluster) {
    cluster.run("pg", &["--volume", "data=256Mi:/data"]);
}

/// Begins to make a file on the volume, and returns whether it is there a second later.
fn is_written(cluster: &Cluster, file: &str) -> bool {
    let text = format!(
        "(touch /data/{file} >/dev/null 2>&1 &); sleep 1; test -e /data/{file} && echo there || echo not"
    );
    cluster.inside("pg", &text).trim() == "there"
}

fn appears(cluster: &Cluster, file: &str) {
    let there =
        || cluster.inside("pg", &format!("test -e /data/{file} && echo there || true")).trim() == "there";
    until(there, || format!("/data/{file} does not appear\n{}", cluster.logs()));
}

fn has_event(cluster: &Cluster, reason: &str) -> bool {
    cluster.list(Resource::EVENT).iter().any(|event| event["reason"] == reason)
}

#[test]
fn a_freeze_is_ended_by_its_client_or_by_the_guest() {
    need!(possible());
    let cluster = Cluster::with(&["--nodes", "2"]);
    cluster.idle();
    create(&cluster);
    assert!(is_written(&cluster, "before"));

    let out = cluster.good(&["vm", "freeze", "pg", "--for", "4m"]);
    assert!(out.starts_with("virtualmachine/pg frozen: data, for "), "{out}");
    assert!(!is_written(&cluster, "waits"), "the volume is frozen");
    let (_, why) = cluster.bad(&["vm", "freeze", "pg"]);
    assert!(why.contains("a freeze is in force") && why.contains("thaw first"), "{why}");
    // The bound is kept in the guest, which moves with its freeze.
    cluster.good(&["vm", "migrate", "pg", "--timeout", "170s"]);
    let list: Value =
        serde_json::from_str(&cluster.good(&["vm", "disk", "list", "pg", "-o", "json"])).unwrap();
    assert_eq!(list["items"][1]["name"], "data", "{list}");
    assert!(!is_written(&cluster, "after"), "it is frozen on the other node as well");
    let out = cluster.good(&["vm", "thaw", "pg"]);
    assert!(out.starts_with("virtualmachine/pg thawed: data, after "), "{out}");
    appears(&cluster, "waits");
    appears(&cluster, "after");
    assert_eq!(cluster.good(&["vm", "thaw", "pg"]).trim(), "virtualmachine/pg: nothing is frozen");

    // No client thaws.
    cluster.good(&["vm", "freeze", "pg", "--for", "3s"]);
    cluster.becomes("pg", "counts the freeze", |vm| vm["status"]["freezesExpired"] == 1);
    until(|| has_event(&cluster, "FreezeExpired"), || cluster.logs());
    assert!(is_written(&cluster, "expired"));
    let (_, why) = cluster.bad(&["vm", "thaw", "pg"]);
    assert!(why.contains("was over before"), "{why}");
    cluster.good(&["vm", "thaw", "pg"]);

    // The one who would have thawed is killed.
    cluster.good(&["vm", "freeze", "pg", "--for", "5m"]);
    assert!(!is_written(&cluster, "killed"));
    cluster.inside("pg", "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null | grep -q 'neonvm-gues[t] daemon' && kill -9 ${p#/proc/}; done; true");
    appears(&cluster, "killed");

    // A VM that is shut down does not wait for its freeze, and its data is whole.
    cluster.good(&["vm", "freeze", "pg", "--for", "5m", "--root-disk"]);
    cluster.good(&["vm", "restart", "pg", "--wait", "--timeout", "170s"]);
    appears(&cluster, "before");
    assert!(is_written(&cluster, "again"));
    cluster.down();
}

#[test]
fn the_use_of_disks_is_shown() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    create(&cluster);
    cluster.inside("pg", "dd if=/dev/urandom of=/data/blob bs=1M count=100 && sync");
    let disks = || -> Value {
        serde_json::from_str(&cluster.good(&["vm", "disk", "list", "pg", "-o", "json"])).unwrap()
    };
    let list = disks();
    let of = |name: &str| {
        let items = list["items"].as_array().unwrap().iter();
        let row = items.clone().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name}: {list}"));
        let number = |field: &str| row["use"][field].as_u64().unwrap();
        (number("total"), number("used"), number("available"), number("inodes"), number("inodesUsed"))
    };
    let (total, used, available, inodes, inodes_used) = of("data");
    assert!(used > 100 << 20 && used < 130 << 20 && used + available <= total && total < 256 << 20, "{list}");
    assert!(inodes > 1000 && inodes_used > 10 && inodes_used < 100, "{list}");
    assert!(of("/").0 > 0, "{list}");
    let text = cluster.good(&["vm", "describe", "pg"]);
    assert!(text.contains("data at /data (claim data-pg): ") && text.contains("% of inodes"), "{text}");
    // A VM that does not answer is shown without, and with the reason.
    cluster.good(&["vm", "pause", "pg"]);
    let text = cluster.good(&["vm", "describe", "pg"]);
    assert!(text.contains("unknown: the VM is paused"), "{text}");
    cluster.down();
}

/// Kinds of the Kubernetes project, as far as a client and a driver need them.
fn define(cluster: &Cluster) {
    for (kind, plural, scope) in [
        ("VolumeSnapshot", "volumesnapshots", "Namespaced"),
        ("VolumeSnapshotClass", "volumesnapshotclasses", "Cluster"),
    ] {
        let schema =
            json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.snapshot.storage.k8s.io"),
                "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-csi/external-snapshotter/pull/814"}},
            "spec": {"group": "snapshot.storage.k8s.io", "scope": scope,
                "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
        cluster.apply(definition.to_string());
    }
    let class = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": {"name": "copies"},
        "driver": "test", "deletionPolicy": "Delete"});
    until(
        || cluster.client().apply(&class.to_string()).is_ok(),
        || "the definition is not served".to_owned(),
    );
}

/// The directory of the volume of a claim.
fn directory(cluster: &Cluster, claim: &str) -> PathBuf {
    let volume = cluster.get(Resource::CLAIM, claim)["spec"]["volumeName"].as_str().unwrap().to_owned();
    let volume = cluster.get(Resource::VOLUME, &volume);
    volume["spec"]["local"]["path"].as_str().unwrap().into()
}

/// A driver that copies: each VolumeSnapshot is the disk of its claim at the moment of the copy.
fn cut_all(cluster: &Cluster, copies: &Path, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        for snapshot in cluster.client().list(Resource::VOLUME_SNAPSHOT).unwrap_or_default() {
            if snapshot.pointer("/status/creationTime").is_some() {
                continue;
            }
            let name = snapshot["metadata"]["name"].as_str().unwrap();
            let claim = snapshot["spec"]["source"]["persistentVolumeClaimName"].as_str().unwrap();
            std::fs::copy(directory(cluster, claim).join("disk.img"), copies.join(name)).unwrap();
            let status = json!({"status": {"creationTime": "2026-01-01T00:00:00Z", "readyToUse": true, "restoreSize": "256Mi"}});
            cluster.client().merge(Resource::VOLUME_SNAPSHOT, name, &status).unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// The volume that the driver makes for a claim from a snapshot.
fn restore(cluster: &Cluster, copies: &Path, claim: &str, like: &str) {
    let object = cluster.get(Resource::CLAIM, claim);
    let snapshot = object["spec"]["dataSource"]["name"].as_str().unwrap();
    let place = directory(cluster, like).with_file_name("restored");
    std::fs::create_dir(&place).unwrap();
    std::fs::copy(copies.join(snapshot), place.join("disk.img")).unwrap();
    let status = Command::new("chmod").arg("-R").arg("a+rwX").arg(&place).status().unwrap();
    assert!(status.success());
    let mut volume = cluster
        .get(Resource::VOLUME, cluster.get(Resource::CLAIM, like)["spec"]["volumeName"].as_str().unwrap());
    let spec = volume["spec"].take();
    let mut spec = spec;
    spec["local"]["path"] = json!(place);
    spec["claimRef"] = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": claim,
        "uid": object["metadata"]["uid"]});
    let made = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "restored"}, "spec": spec});
    cluster.client().create(&made).unwrap();
    let bound = json!({"spec": {"volumeName": "restored"}});
    cluster.client().merge(Resource::CLAIM, claim, &bound).unwrap();
}

#[test]
fn a_snapshot_is_whole_and_a_vm_is_made_from_it() {
    need!(possible());
    need!(needs::program("dumpe2fs"));
    let cluster = Cluster::start();
    cluster.idle();
    create(&cluster);
    cluster.inside(
        "pg",
        "(i=0; while :; do i=$((i+1)); echo row $i >> /data/rows; sync; done) >/dev/null 2>&1 & echo kept > /data/kept; sync",
    );
    let (code, why) = cluster.bad(&["vm", "snapshot", "create", "pg"]);
    assert!(code == 3 && why.contains("no VolumeSnapshots") && why.contains("external-snapshotter"), "{why}");
    assert_eq!(cluster.good(&["vm", "thaw", "pg"]).trim(), "virtualmachine/pg: nothing is frozen");
    define(&cluster);

    // No driver answers: the VM goes on, and nothing is left.
    let (code, why) = cluster.bad(&["vm", "snapshot", "create", "pg", "--name", "late", "--for", "3s"]);
    assert!(code == 6 && why.contains("not cut within"), "{code} {why}");
    assert_eq!(cluster.list(Resource::VOLUME_SNAPSHOT), [] as [Value; 0]);
    assert!(is_written(&cluster, "goes-on"));

    let copies = cluster.path("copies");
    std::fs::create_dir(&copies).unwrap();
    let stop = AtomicBool::new(false);
    let out = std::thread::scope(|scope| {
        scope.spawn(|| cut_all(&cluster, &copies, &stop));
        let out = cluster.neonctl(&["vm", "snapshot", "create", "pg", "--name", "one"]).output().unwrap();
        stop.store(true, Ordering::Relaxed);
        out
    });
    let (text, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success() && text.contains("created: one-data; writes waited "), "{text}{errors}");
    assert!(is_written(&cluster, "thawed"));
    // The copy of a file system that was frozen needs no recovery, although it was written to all the time.
    let head = Command::new("dumpe2fs").arg("-h").arg(copies.join("one-data")).output().unwrap();
    let head = String::from_utf8_lossy(&head.stdout).into_owned();
    assert!(head.contains("Filesystem features:") && !head.contains("needs_recovery"), "{head}");
    let (code, why) = cluster.bad(&["vm", "snapshot", "create", "pg", "--name", "one"]);
    assert!(code == 5 && why.contains("already"), "{why}");
    assert!(cluster.good(&["vm", "snapshot", "list"]).contains("one"));

    cluster.good(&[
        "vm",
        "create",
        "pg2",
        "--image",
        "idle:1",
        "--no-autoscale",
        "--cpu",
        "1..2",
        "--memory",
        "256Mi..1Gi",
        "--from-snapshot",
        "one",
    ]);
    until(|| cluster.client().get(Resource::CLAIM, "data-pg2").is_ok(), || cluster.logs());
    restore(&cluster, &copies, "data-pg2", "data-pg");
    cluster.becomes("pg2", "runs", |vm| {
        let conditions = vm.pointer("/status/conditions").and_then(Value::as_array);
        conditions.into_iter().flatten().any(|one| one["type"] == "Available" && one["status"] == "True")
    });
    assert_eq!(cluster.inside("pg2", "cat /data/kept"), "kept\n");
    cluster.good(&["vm", "snapshot", "delete", "one"]);
    assert_eq!(cluster.list(Resource::VOLUME_SNAPSHOT), [] as [Value; 0]);
    cluster.down();
}
