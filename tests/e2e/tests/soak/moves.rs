//! A VM that moves back and forth a hundred times: nothing grows, and its guest is never restarted.

use std::collections::BTreeMap;
use std::path::Path;

use neonvm_e2e::client::Resource;
use neonvm_test_support::need;
use serde_json::json;

use crate::cluster::{Cluster, possible, read, until};
use crate::observe::{is_over, migration, node, recall, remember, settles, text};

/// Moves of a run; `NEONVM_MOVES` asks for another number.
const MOVES: usize = 100;
/// Moves after which caches and pools have their size.
const WARM: usize = 20;
/// Memory in KiB by which a service may grow for each move after that.
const GROWTH: u64 = 64;
/// The same of the API server: it keeps the last changes of all objects, at most 192 MiB, of which a move takes some 300 KiB.
const HISTORY: u64 = 512;
/// Descriptors by which it may differ: connections that are just opened or closed.
const DESCRIPTORS: u64 = 8;

/// Memory in KiB and open descriptors of each service, and of the VM's QEMU.
fn usage(cluster: &Cluster) -> BTreeMap<String, (u64, u64)> {
    let services = ["apiserver", "vm-controller", "scheduler", "node-n1", "node-n2", "agent-n1", "agent-n2"];
    let mut found: BTreeMap<String, (u64, u64)> = services
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), of_process(cluster.service(name)?))))
        .collect();
    let uid = text(&cluster.vm("m"), "/metadata/uid").to_owned();
    found.extend(Cluster::qemus(&uid).first().map(|&pid| ("qemu".to_owned(), of_process(pid))));
    found
}

fn of_process(pid: i32) -> (u64, u64) {
    let directory = format!("/proc/{pid}");
    let status = read(Path::new(&directory), "status");
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = memory.unwrap().trim().trim_end_matches(" kB").parse().unwrap();
    let open = std::fs::read_dir(format!("{directory}/fd")).unwrap().count();
    (kilobytes, u64::try_from(open).unwrap())
}

/// How many objects of a kind there are.
fn objects(cluster: &Cluster) -> BTreeMap<&'static str, usize> {
    let kinds = [
        ("pods", Resource::POD),
        ("VMs", Resource::VM),
        ("migrations", Resource::MIGRATION),
        ("secrets", Resource::SECRET),
    ];
    kinds.into_iter().map(|(name, kind)| (name, cluster.list(kind).len())).collect()
}

/// Moves the VM to the other node, and removes the migration.
fn moves(cluster: &Cluster, number: usize) {
    let before = node(cluster, "m");
    let object = json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachineMigration",
        "metadata": { "name": "move" }, "spec": { "vmName": "m" } });
    cluster.apply(object.to_string());
    until(|| is_over(&migration(cluster, "move")), || cluster.logs());
    settles(cluster, "m");
    assert_ne!(node(cluster, "m"), before, "move {number}: {}", migration(cluster, "move")["status"]);
    cluster.delete(Resource::MIGRATION, "move");
    cluster.is_gone(Resource::MIGRATION, "move");
}

#[test]
fn a_hundred_moves_leave_nothing_behind() {
    need!(possible());
    let cluster = Cluster::with(&["--nodes", "2"]);
    cluster.idle();
    cluster.run("m", &["--disk", "data=64Mi:/data"]);
    let memory = remember(&cluster, "m");
    let asked = std::env::var("NEONVM_MOVES").ok().and_then(|text| text.parse().ok());
    let all: usize = asked.unwrap_or(MOVES);
    for number in 0..WARM.min(all) {
        moves(&cluster, number);
    }
    let (before, kept) = (usage(&cluster), objects(&cluster));
    for number in WARM..all {
        moves(&cluster, number);
    }
    let rest = u64::try_from(all.saturating_sub(WARM)).unwrap();
    until(|| objects(&cluster) == kept, || format!("{:?}, before {kept:?}", objects(&cluster)));
    let after = usage(&cluster);
    println!("before {before:?}\nafter  {after:?}");
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    for (name, (kilobytes, open)) in &before {
        let (now, descriptors) = after[name];
        let growth = if name == "apiserver" { HISTORY } else { GROWTH };
        assert!(now <= kilobytes + rest * growth, "{name} grew from {kilobytes} to {now} KiB");
        assert!(descriptors <= open + DESCRIPTORS, "{name} had {open} open files, now {descriptors}");
    }
    assert_eq!(recall(&cluster, "m"), memory, "the guest was never restarted");
    cluster.down();
}
