//! A node is drained: VMs are migrated, none is stopped, and one that cannot be migrated stays.

use std::time::Duration;

use neonvm_e2e::client::Resource;
use neonvm_test_support::{eventually_blocking_within, need};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cluster::{Cluster, LIMIT, kill, possible, until};
use crate::draining::{are_on_the_second_node, create, drain, is_ready, leaves_a_node, pods_on, prepare};
use crate::observe::{is_over, node, settles, text};

/// VMs of a drain; the soak has more.
const VMS: usize = 3;
const BOOT: &str = "cat /proc/sys/kernel/random/boot_id";

/// VMs leave a node, two at a time; then it is empty, and takes VMs again only when it is uncordoned.
#[test]
fn a_node_is_drained_and_no_vm_is_restarted() {
    need!(possible());
    let cluster = leaves_a_node(VMS);
    create(&cluster, "late", &["--node-selector", "kubernetes.io/hostname=n1"]);
    cluster.becomes("late", "waits", |vm| vm["status"]["conditions"].to_string().contains("n1 is cordoned"));
    cluster.uncordon("n1");
    cluster.becomes("late", "ready", is_ready);
    cannot_leave(&cluster);
    cluster.down();
}

/// A VM that no other node may take blocks the drain, which reports why; the VM is not stopped.
fn cannot_leave(cluster: &Cluster) {
    let boot = cluster.inside("late", BOOT);
    let before = cluster.list(Resource::MIGRATION).len();
    let last = std::cell::RefCell::new(String::new());
    let is_refused = || {
        // One round of evictions.
        let drained = cluster.client().drain("n1", Duration::ZERO).unwrap();
        assert!(!drained.is_empty, "{drained:?}");
        *last.borrow_mut() = drained.refusals.into_iter().collect::<Vec<_>>().join("\n");
        last.borrow().contains("VM late cannot be migrated and is not stopped by an eviction")
    };
    until(is_refused, || last.borrow().clone());
    let words = last.borrow();
    assert!(words.contains("n2 does not have the label kubernetes.io/hostname=n1"), "{words}");
    assert_eq!(cluster.list(Resource::MIGRATION).len(), before, "no impossible migration is tried");
    cluster.uncordon("n1");
    assert_eq!(cluster.inside("late", BOOT), boot);
}

/// The controller is killed again and again while a node is drained: no VM is stopped, and the drain completes.
#[test]
fn a_drain_continues_when_the_controller_is_killed() {
    need!(possible());
    let (cluster, before) = prepare(&["left", "first", "second"].map(str::to_owned));
    // Before it can answer.
    kill(cluster.service("vm-controller").unwrap(), Signal::KILL);
    let draining = drain(&cluster, "n1");
    for arrived in 0..2 {
        let on_second =
            || cluster.list(Resource::VM).iter().filter(|vm| text(vm, "/status/node") == "n2").count();
        until(|| on_second() > arrived, || cluster.logs());
        if let Some(pid) = cluster.service("vm-controller") {
            kill(pid, Signal::KILL);
        }
    }
    let drained = draining.join().unwrap().unwrap();
    assert!(drained.is_empty, "{drained:?}\n{}", cluster.logs());
    assert_eq!(pods_on(&cluster, "n1"), 0);
    are_on_the_second_node(&cluster, &before);
    cluster.down();
}

/// A drain without room: the VM is scaled while its migration waits for a node, and ends with what comes before it; a drain that is
/// given up leaves nothing behind.
#[test]
fn a_migration_without_room_holds_nothing() {
    need!(possible());
    let cluster = Cluster::with(&["--nodes", "2", "--cpus", "4", "--memory", "8Gi"]);
    cluster.idle();
    let on = |name: &str, node: &str, cpu: &str| {
        let selector = format!("kubernetes.io/hostname={node}");
        cluster.good(
            &[
                &[
                    "vm",
                    "create",
                    name,
                    "--image",
                    "idle:1",
                    "--no-autoscale",
                    "--overlay",
                    "--memory",
                    "256Mi",
                ][..],
                &["--cpu", cpu, "--node-selector", &selector, "--wait", "--timeout", "170s"],
            ]
            .concat(),
        );
    };
    on("filler", "n2", "3500m");
    cluster.cordon("n2");
    let create = ["vm", "create", "m", "--image", "idle:1", "--no-autoscale", "--movable", "--overlay"];
    let size = ["--cpu", "1..2", "--memory", "256Mi", "--wait", "--timeout", "170s"];
    cluster.good(&[&create[..], &size].concat());
    cluster.uncordon("n2");
    let boot = cluster.inside("m", BOOT);
    let waits = || {
        // A round of evictions.
        let _ = cluster.client().drain("n1", Duration::ZERO).unwrap();
        let of_the_vm = |made: &&Value| text(made, "/spec/vmName") == "m" && !is_over(made);
        let last = cluster.list(Resource::MIGRATION);
        last.iter().find(of_the_vm).map(|made| text(made, "/metadata/name").to_owned())
    };
    let migration = || eventually_blocking_within(LIMIT, || cluster.logs(), waits);
    let ends = |name: &str, why: &str| {
        let made = || cluster.get(Resource::MIGRATION, name);
        until(|| is_over(&made()), || format!("{}\n{}", made(), cluster.logs()));
        assert!(made()["status"].to_string().contains(why), "{}", made());
    };

    let first = migration();
    cluster.good(&["vm", "scale", "m", "--cpu", "1500m", "--wait", "--timeout", "60s"]);
    cluster.good(&["vm", "scale", "m", "--cpu", "2", "--wait", "--timeout", "60s"]);
    let vm = cluster.vm("m");
    assert_eq!((&vm["status"]["cpus"], text(&vm, "/status/phase")), (&json!(2), "Running"), "{vm}");
    assert!(!is_over(&cluster.get(Resource::MIGRATION, &first)), "a growth ends no migration");
    cluster.uncordon("n1");
    ends(&first, "accepts pods again");

    let second = migration();
    cluster.good(&["vm", "pause", "m", "--timeout", "60s"]);
    ends(&second, "paus");
    cluster.uncordon("n1");
    cluster.good(&["vm", "resume", "m", "--timeout", "60s"]);
    settles(&cluster, "m");
    assert_eq!((cluster.inside("m", BOOT), node(&cluster, "m")), (boot, "n1".to_owned()));
    cluster.down();
}
