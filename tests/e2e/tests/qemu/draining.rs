//! Drains of nodes with VMs.

use std::collections::BTreeMap;
use std::thread::JoinHandle;
use std::time::Duration;

use neonvm_e2e::client::{Drain, Error, Resource};
use serde_json::Value;

use crate::cluster::{Cluster, until, until_within};
use crate::observe::{is_over, node, settles, text};

/// Most VMs that leave a node at once, or arrive at one.
const AT_ONCE: usize = 2;
/// Time for a whole drain.
const DRAIN: Duration = Duration::from_secs(600);
const BOOT: &str = "cat /proc/sys/kernel/random/boot_id";

pub(crate) type Draining = JoinHandle<Result<Drain, Error>>;

pub(crate) fn create(cluster: &Cluster, name: &str, more: &[&str]) {
    let create = ["vm", "create", name, "--image", "idle:1", "--no-autoscale", "--movable", "--overlay"];
    cluster.good(&[&create[..], &["--cpu", "1", "--memory", "256Mi"], more].concat());
}

/// Starts a drain in the background.
pub(crate) fn drain(cluster: &Cluster, node: &str) -> Draining {
    let (client, node) = (cluster.client(), node.to_owned());
    std::thread::spawn(move || client.drain(&node, DRAIN))
}

pub(crate) fn is_ready(vm: &Value) -> bool {
    let all = vm.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    text(vm, "/status/phase") == "Running"
        && all.into_iter().any(|one| one["type"] == "Available" && one["status"] == "True")
}

/// Pods on a node.
pub(crate) fn pods_on(cluster: &Cluster, node: &str) -> usize {
    cluster.client().list_with_field(Resource::POD, &format!("spec.nodeName={node}")).unwrap().len()
}

pub(crate) fn boots(cluster: &Cluster, names: &[String]) -> BTreeMap<String, String> {
    names.iter().map(|name| (name.clone(), cluster.inside(name, BOOT))).collect()
}

fn restarts(vms: &[Value]) -> Vec<u64> {
    vms.iter().map(|vm| vm["status"]["restartCount"].as_u64().unwrap()).collect()
}

/// Looks at all VMs until the drain is over: none stops, and never are too many migrated at once.
fn watch(cluster: &Cluster, draining: Draining) -> Drain {
    let before = restarts(&cluster.list(Resource::VM));
    let mut most = 0;
    until_within(
        DRAIN,
        || {
            let vms = cluster.list(Resource::VM);
            for vm in &vms {
                let phase = text(vm, "/status/phase");
                assert!(["Running", "PreMigrating", "Migrating"].contains(&phase), "{}", vm["status"]);
            }
            assert_eq!(restarts(&vms), before, "{vms:?}");
            let migrated = vms.iter().filter(|vm| vm.pointer("/status/migration").is_some()).count();
            assert!(migrated <= AT_ONCE, "{migrated} VMs are migrated at once");
            most = most.max(migrated);
            draining.is_finished()
        },
        || {
            let all = [cluster.list(Resource::MIGRATION), cluster.list(Resource::VM)].concat();
            let statuses: Vec<&Value> = all.iter().map(|object| &object["status"]).collect();
            format!("{statuses:?}\n{}", cluster.logs())
        },
    );
    assert!(most > 0, "no migration was observed");
    draining.join().unwrap().unwrap()
}

/// Two nodes, and VMs on the first of them; what they remember. The second node is open.
pub(crate) fn prepare(names: &[String]) -> (Cluster, BTreeMap<String, String>) {
    let cpus = (names.len() + 4).max(8).to_string();
    let cluster = Cluster::with(&["--nodes", "2", "--cpus", &cpus, "--memory", "12Gi"]);
    cluster.idle();
    cluster.cordon("n2");
    for name in names {
        create(&cluster, name, &[]);
    }
    for name in names {
        cluster.becomes(name, "ready", is_ready);
        assert_eq!(node(&cluster, name), "n1", "a cordoned node takes no VM");
    }
    let before = boots(&cluster, names);
    cluster.uncordon("n2");
    (cluster, before)
}

/// As many VMs leave a node, two at a time; none of them is restarted.
pub(crate) fn leaves_a_node(count: usize) -> Cluster {
    let names: Vec<String> = (0..count).map(|number| format!("m{number}")).collect();
    let (cluster, before) = prepare(&names);
    let drained = watch(&cluster, drain(&cluster, "n1"));
    assert!(drained.is_empty, "{drained:?}\n{}", cluster.logs());
    assert!(drained.refusals.iter().any(|why| why.contains("moves the VM of pod")), "{drained:?}");
    assert_eq!(pods_on(&cluster, "n1"), 0, "{drained:?}");
    // A drain ends with the last pod, and a migration with what is written about it then.
    let migrations = || cluster.list(Resource::MIGRATION);
    until(|| migrations().iter().all(is_over), || format!("{:?}", migrations()));
    assert_eq!(migrations().len(), count);
    for made in migrations() {
        assert_eq!(text(&made, "/status/phase"), "Succeeded", "{made}");
        assert_eq!(text(&made, "/metadata/labels/vm.neon.tech~1created-by-eviction"), "true", "{made}");
    }
    are_on_the_second_node(&cluster, &before);
    cluster
}

/// The VMs run on the second node as they did before.
pub(crate) fn are_on_the_second_node(cluster: &Cluster, before: &BTreeMap<String, String>) {
    let names: Vec<String> = before.keys().cloned().collect();
    for name in &names {
        settles(cluster, name);
        assert_eq!(node(cluster, name), "n2");
    }
    assert_eq!(boots(cluster, &names), *before);
}
