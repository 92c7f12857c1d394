//! A node is drained: VMs are migrated, none is stopped, and one that cannot be migrated stays.

use std::time::Duration;

use neonvm_e2e::client::Resource;
use neonvm_test_support::need;
use rustix::process::Signal;

use crate::cluster::{Cluster, kill, possible, until};
use crate::draining::{are_on_the_second_node, create, drain, is_ready, leaves_a_node, pods_on, prepare};
use crate::observe::text;

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
