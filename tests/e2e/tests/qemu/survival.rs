//! Services die, VMs live.

use std::time::Duration;

use neonvm_e2e::is_alive;
use neonvm_test_support::need;
use rustix::process::Signal;

use crate::cluster::{Cluster, kill, possible, until};

#[test]
fn vms_outlive_every_service_and_are_found_again() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    cluster.run("s", &[]);
    let uid = cluster.vm("s")["metadata"]["uid"].as_str().unwrap().to_owned();
    let before = Cluster::qemus(&uid);
    assert_eq!(before.len(), 1);
    cluster.inside("s", "touch /tmp/mark");
    for service in ["node-n1", "vm-controller", "scheduler", "apiserver"] {
        let pid = cluster.service(service).unwrap();
        kill(pid, Signal::KILL);
        until(
            || cluster.service(service).is_some_and(|now| now != pid),
            || format!("{service}\n{}", cluster.logs()),
        );
    }
    cluster.succeeds(|| cluster.neonctl(&["vm", "scale", "s", "--cpu", "2", "--wait", "--timeout", "170s"]));
    // The supervisor too, and with it all of them. An API server that is still ending has the port and the state.
    let runners = cluster.processes(" runner");
    let services: Vec<i32> =
        cluster.processes("neond").into_iter().filter(|pid| !runners.contains(pid)).collect();
    for pid in cluster.processes("neond local") {
        kill(pid, Signal::KILL);
    }
    until(|| !services.iter().any(|&pid| is_alive(pid)), || "services outlive their supervisor".into());
    assert_eq!(Cluster::qemus(&uid), before, "the VM runs without any service");
    cluster.up();
    cluster.succeeds(|| cluster.neonctl(&["vm", "ssh", "s", "--", "ls /tmp/mark"]));
    cluster.good(&["vm", "scale", "s", "--cpu", "1", "--wait", "--timeout", "170s"]);
    assert_eq!(Cluster::qemus(&uid), before);
    assert_eq!(cluster.vm("s")["status"]["restartCount"], 0);
    cluster.good(&["vm", "delete", "s", "--timeout", "100s"]);
    until(|| Cluster::qemus(&uid).is_empty(), || "QEMU is left".into());
    cluster.down();
}

/// Two nodes: VMs on both, a node that takes no more, one that is drained.
#[test]
fn nodes_are_separate_and_can_be_cordoned() {
    need!(possible());
    let cluster = Cluster::with(&["--nodes", "2", "--cpus", "3", "--memory", "2Gi"]);
    cluster.idle();
    cluster.cordon("n1");
    cluster.run("a", &[]);
    assert_eq!(cluster.vm("a")["status"]["node"], "n2");
    cluster.uncordon("n1");
    cluster.cordon("n2");
    cluster.run("b", &[]);
    assert_eq!(cluster.vm("b")["status"]["node"], "n1");
    // From one guest to the other, across the nodes.
    let address = cluster.vm("b")["status"]["podIP"].as_str().unwrap().to_owned();
    let ping = format!("ping -c 1 -W 20 {address}");
    let output = cluster.succeeds(|| cluster.neonctl(&["vm", "ssh", "a", "--", &ping]));
    assert!(output.contains("1 packets received"), "{output}");
    // Neither node has room for this one.
    cluster.uncordon("n2");
    cluster.good(&[
        "vm",
        "create",
        "big",
        "--image",
        "idle:1",
        "--cpu",
        "1..8",
        "--start-cpu",
        "8",
        "--no-autoscale",
        "--memory",
        "256Mi",
    ]);
    let words = || cluster.good(&["vm", "describe", "big"]);
    until(|| words().to_lowercase().contains("insufficient"), words);
    cluster.good(&["vm", "delete", "big"]);
    // The VM of a node that is drained runs on the other one.
    let drained = cluster.client().drain("n1", Duration::from_secs(300)).unwrap();
    assert!(drained.is_empty, "{drained:?}\n{}", cluster.logs());
    cluster
        .becomes("b", "runs on n2", |vm| vm["status"]["phase"] == "Running" && vm["status"]["node"] == "n2");
    cluster.down();
}
