//! `kubectl drain`: machines move, nobody is stopped, and who cannot move stays.

use std::collections::BTreeMap;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::cluster::{Cluster, kill, possible, until, until_within};
use crate::migration::{node, settles, text};

/// Machines of the large drain; `NEONVM_DRAIN_MACHINES` asks for another number.
const MACHINES: usize = 10;
/// Most machines that leave a node at once, or come to one.
const AT_ONCE: usize = 2;
/// Time for a whole drain.
const DRAIN: Duration = Duration::from_secs(600);
const BOOT: &str = "cat /proc/sys/kernel/random/boot_id";

fn machines() -> usize {
    std::env::var("NEONVM_DRAIN_MACHINES").ok().and_then(|text| text.parse().ok()).unwrap_or(MACHINES)
}

fn create(cluster: &Cluster, name: &str, more: &[&str]) {
    let create = ["vm", "create", name, "--image", "idle:1", "--no-autoscale", "--movable", "--overlay"];
    cluster.good(&[&create[..], &["--cpu", "1", "--memory", "256Mi"], more].concat());
}

/// Begins a drain in the background.
fn drain(cluster: &Cluster, node: &str) -> Child {
    drain_within(cluster, node, DRAIN)
}

fn drain_within(cluster: &Cluster, node: &str, limit: Duration) -> Child {
    let limit = format!("--timeout={}s", limit.as_secs());
    let mut command =
        cluster.kubectl(&["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", &limit]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn items(cluster: &Cluster, what: &[&str]) -> Vec<Value> {
    cluster.json(what)["items"].as_array().unwrap().clone()
}

fn is_ready(vm: &Value) -> bool {
    let all = vm.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    text(vm, "/status/phase") == "Running"
        && all.into_iter().any(|one| one["type"] == "Available" && one["status"] == "True")
}

/// Pods of machines on a node.
fn pods_on(cluster: &Cluster, node: &str) -> usize {
    let field = format!("spec.nodeName={node}");
    items(cluster, &["pods", "--field-selector", &field]).len()
}

fn restarts(vms: &[Value]) -> Vec<u64> {
    vms.iter().map(|vm| vm["status"]["restartCount"].as_u64().unwrap()).collect()
}

/// Looks at all machines until the drain is over: none stops, and never do too many move.
fn watch(cluster: &Cluster, mut drain: Child) -> Output {
    let before = restarts(&items(cluster, &["neonvm"]));
    let most = std::cell::Cell::new(0);
    until_within(
        DRAIN,
        || {
            let vms = items(cluster, &["neonvm"]);
            for vm in &vms {
                let phase = text(vm, "/status/phase");
                assert!(["Running", "PreMigrating", "Migrating"].contains(&phase), "{}", vm["status"]);
            }
            assert_eq!(restarts(&vms), before, "{vms:?}");
            let moving = vms.iter().filter(|vm| vm.pointer("/status/migration").is_some()).count();
            assert!(moving <= AT_ONCE, "{moving} machines move at once");
            most.set(most.get().max(moving));
            drain.try_wait().unwrap().is_some()
        },
        || format!("{}\n{}", cluster.kube(&["get", "vmm,neonvm,pods", "-o", "wide"]), cluster.logs()),
    );
    assert!(most.get() > 0, "nobody was seen to move");
    drain.wait_with_output().unwrap()
}

/// Ten machines leave a node, two at a time; then it is empty, and takes machines again only when it is told to.
#[test]
fn a_node_is_drained_and_no_machine_notices() {
    if !possible("drain of a node") {
        return;
    }
    let count = machines();
    let cpus = (count + 4).max(8).to_string();
    let cluster = Cluster::with(&["--nodes", "2", "--cpus", &cpus, "--memory", "12Gi"]);
    cluster.idle();
    cluster.cordon("n2");
    let names: Vec<String> = (0..count).map(|number| format!("m{number}")).collect();
    for name in &names {
        create(&cluster, name, &[]);
    }
    for name in &names {
        cluster.becomes(name, "ready", is_ready);
        assert_eq!(node(&cluster, name), "n1", "a node that is closed takes nobody");
    }
    let boots = |cluster: &Cluster| -> BTreeMap<String, String> {
        names.iter().map(|name| (name.clone(), cluster.inside(name, BOOT))).collect()
    };
    let before = boots(&cluster);
    cluster.kube(&["uncordon", "n2"]);

    let output = watch(&cluster, drain(&cluster, "n1"));
    let words = said(&output);
    assert!(output.status.success(), "{words}\n{}", cluster.logs());
    assert!(words.contains("will retry") && words.contains("moves the machine of pod"), "{words}");
    assert_eq!(pods_on(&cluster, "n1"), 0, "{words}");
    // A drain ends with the last pod, and a move with what is written about it then.
    let over = |made: &Value| ["Succeeded", "Failed"].contains(&text(made, "/status/phase"));
    until(|| items(&cluster, &["vmm"]).iter().all(over), || cluster.kube(&["get", "vmm", "-o", "yaml"]));
    let moves = items(&cluster, &["vmm"]);
    assert_eq!(moves.len(), count);
    for made in &moves {
        assert_eq!(text(made, "/status/phase"), "Succeeded", "{made}");
        assert_eq!(text(made, "/metadata/labels/vm.neon.tech~1created-by-eviction"), "true", "{made}");
    }
    for name in &names {
        settles(&cluster, name);
        assert_eq!(node(&cluster, name), "n2");
    }
    assert_eq!(boots(&cluster), before);

    // It stays closed until somebody opens it.
    create(&cluster, "late", &["--node-selector", "kubernetes.io/hostname=n1"]);
    let waits = |vm: &Value| vm["status"]["conditions"].to_string().contains("n1 is cordoned");
    cluster.becomes("late", "waits", waits);
    cluster.kube(&["uncordon", "n1"]);
    cluster.becomes("late", "ready", is_ready);
    cannot_leave(&cluster);
    cluster.down();
}

/// A machine that no other node may take holds up the drain, which says why; it is not stopped.
fn cannot_leave(cluster: &Cluster) {
    let boot = cluster.inside("late", BOOT);
    let before = items(cluster, &["vmm"]).len();
    let last = std::cell::RefCell::new(String::new());
    // It ends when its time is up, with or without an answer by then.
    let is_told = || {
        let output = drain_within(cluster, "n1", Duration::from_secs(3)).wait_with_output().unwrap();
        *last.borrow_mut() = said(&output);
        assert!(!output.status.success(), "{}", last.borrow());
        last.borrow().contains("machine late cannot be moved and is not stopped by an eviction")
    };
    until(is_told, || last.borrow().clone());
    let words = last.borrow();
    assert!(words.contains("n2 does not have the label kubernetes.io/hostname=n1"), "{words}");
    assert_eq!(items(cluster, &["vmm"]).len(), before, "nothing is tried that cannot be");
    cluster.kube(&["uncordon", "n1"]);
    assert_eq!(cluster.inside("late", BOOT), boot);
}

/// The controller is killed again and again while a node is drained: nobody is stopped for it, and the drain comes to its end.
#[test]
fn a_drain_goes_on_when_the_controller_dies() {
    if !possible("drain without a controller") {
        return;
    }
    let cluster = Cluster::with(&["--nodes", "2", "--cpus", "8", "--memory", "8Gi"]);
    cluster.idle();
    cluster.cordon("n2");
    let names = ["left", "first", "second"];
    names.iter().for_each(|name| create(&cluster, name, &[]));
    for name in names {
        cluster.becomes(name, "ready", is_ready);
    }
    let before = names.map(|name| cluster.inside(name, BOOT));
    cluster.kube(&["uncordon", "n2"]);
    // Before anybody can answer.
    kill(cluster.service("vm-controller").unwrap(), Signal::KILL);
    let draining = drain(&cluster, "n1");
    for arrived in 0..2 {
        let on_second =
            || items(&cluster, &["neonvm"]).iter().filter(|vm| text(vm, "/status/node") == "n2").count();
        until(|| on_second() > arrived, || cluster.logs());
        if let Some(pid) = cluster.service("vm-controller") {
            kill(pid, Signal::KILL);
        }
    }
    let output = draining.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{}", said(&output), cluster.logs());
    assert_eq!(pods_on(&cluster, "n1"), 0);
    for name in names {
        settles(&cluster, name);
        assert_eq!(node(&cluster, name), "n2");
    }
    assert_eq!(names.map(|name| cluster.inside(name, BOOT)), before);
    cluster.down();
}
