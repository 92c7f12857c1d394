//! VMs on the overlay network: two nodes, real guests, real packets.

use std::process::Command;

use neonvm_e2e::client::Resource;
use neonvm_test_support::need;
use serde_json::Value;

use crate::cluster::{Cluster, possible, until};

/// The network namespace of a node of this cluster.
fn namespace(cluster: &Cluster, node: &str) -> String {
    let mine = format!("-n-{node}");
    let object = cluster.get(Resource::NODE, node);
    let address = object["status"]["addresses"][0]["address"].as_str().unwrap().to_owned();
    let all = std::fs::read_dir("/run/netns").unwrap().flatten();
    let names = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_it = |name: &String| {
        name.ends_with(&mine)
            && ip(&["-n", name, "-o", "-4", "addr", "show", "up0"]).contains(&format!(" {address}/"))
    };
    names.into_iter().find(is_it).unwrap_or_else(|| panic!("{node} has no namespace"))
}

fn ip(arguments: &[&str]) -> String {
    let output = Command::new("ip").args(arguments).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Creates a VM on the overlay; on a node, if one is named.
fn create(cluster: &Cluster, name: &str, node: &str) {
    let place = if node.is_empty() {
        String::new()
    } else {
        format!("  nodeSelector: {{ kubernetes.io/hostname: {node} }}\n")
    };
    cluster.apply(format!(
        "apiVersion: vm.neon.tech/v1\nkind: VirtualMachine\nmetadata: {{ name: {name} }}\nspec:\n{place}\
         \x20 extraNetwork: {{ enable: true }}\n  guest:\n    cpus: {{ min: 1, use: 1, max: 1 }}\n\
         \x20   memorySlotSize: 256Mi\n    memorySlots: {{ min: 1, max: 1, use: 1 }}\n    rootDisk: {{ image: idle:1 }}\n"
    ));
}

fn is_up(vm: &Value) -> bool {
    let conditions = vm.pointer("/status/conditions").and_then(Value::as_array);
    let available = |found: &&Value| found["type"] == "Available" && found["status"] == "True";
    vm["status"]["phase"] == "Running" && conditions.into_iter().flatten().find(available).is_some()
}

fn address(vm: &Value) -> String {
    vm["status"]["extraNetIP"].as_str().unwrap_or_default().to_owned()
}

/// vm-extra-network: VMs of different nodes reach each other, the tunnel knows where each is, and an address stays.
#[test]
fn vms_of_two_nodes_reach_each_other_on_the_overlay() {
    need!(possible());
    let cluster = Cluster::with(&["--nodes", "2"]);
    cluster.idle();
    create(&cluster, "a", "n1");
    create(&cluster, "b", "n2");
    let (a, b) = (cluster.becomes("a", "up", is_up), cluster.becomes("b", "up", is_up));
    assert_eq!((&a["status"]["node"], &b["status"]["node"]), (&"n1".into(), &"n2".into()));
    let (at_a, at_b) = (address(&a), address(&b));
    // VMs have the upper half of the cluster's range.
    let upper = |address: &str| address.split('.').nth(2) == Some("128");
    assert!(upper(&at_a) && upper(&at_b) && at_a != at_b, "{at_a} {at_b}");
    let shown = cluster.inside("a", "ip addr show eth1");
    assert!(shown.contains(&format!("{at_a}/16")) && shown.contains("mtu 1450"), "{shown}");
    let reach = |from: &'static str, to: &str| {
        let command = format!("ping -c 1 -W 2 -s 1400 {to}");
        cluster.succeeds(|| cluster.neonctl(&["vm", "ssh", from, "--", &command]))
    };
    reach("a", &at_b);
    reach("b", &at_a);
    // The forwarding table of n1 has the hardware address of b, which does not age.
    let hardware = cluster.inside("b", "cat /sys/class/net/eth1/address").trim().to_owned();
    let on_n1 = namespace(&cluster, "n1");
    // The tunnel's own entries; what the bridge has learned beside them goes in its own time.
    let table = || {
        let all = ip(&["netns", "exec", &on_n1, "bridge", "fdb", "show", "dev", "neon-vxlan0"]);
        all.lines().filter(|line| line.contains(" dst ")).map(|line| format!("{line}\n")).collect::<String>()
    };
    let known =
        |table: &str| table.lines().any(|line| line.starts_with(&hardware) && line.contains("extern_learn"));
    until(|| known(&table()), table);

    // Another pod: the same address, the same hardware.
    cluster.client().delete(Resource::POD, &cluster.pod("b"), None).unwrap();
    let again = cluster.becomes("b", "up again", |vm| is_up(vm) && vm["status"]["restartCount"] == 1);
    assert_eq!(address(&again), at_b);
    assert_eq!(cluster.inside("b", "cat /sys/class/net/eth1/address").trim(), hardware);
    reach("a", &at_b);

    // The entry of a VM that is gone is removed, and its address is in quarantine.
    cluster.delete(Resource::VM, "b");
    until(|| !table().contains(&hardware), table);
    create(&cluster, "c", "");
    let c = cluster.becomes("c", "up", is_up);
    assert!(address(&c) != at_b && address(&c) != at_a, "{}", address(&c));
    cluster.down();
}

/// The tunnel of a third node follows a VM that is migrated: a connection over the overlay continues.
#[test]
fn a_connection_over_the_overlay_survives_a_migration() {
    need!(possible());
    let cluster = Cluster::with(&["--nodes", "3"]);
    cluster.idle();
    create(&cluster, "a", "n1");
    // Not bound to a node: it is to be migrated.
    create(&cluster, "b", "");
    let (a, b) = (cluster.becomes("a", "up", is_up), cluster.becomes("b", "up", is_up));
    let (here, first) = (a["status"]["node"].as_str().unwrap(), b["status"]["node"].as_str().unwrap());
    let target = ["n2", "n3", "n1"].into_iter().find(|node| *node != here && *node != first).unwrap();
    cluster.inside("b", "nc -ll -p 7000 -e cat >/dev/null 2>&1 </dev/null &");
    // Runs until the file /stop exists: it continues through the migration, however long that takes.
    let talk = "rm -f /out; (i=0; while [ ! -e /stop ]; do echo $i; i=$((i+1)); echo $i > /sent; sleep 0.1; done) | nc";
    let at = address(&b);
    cluster.succeeds(|| cluster.neonctl(&["vm", "ssh", "a", "--", &format!("echo x | nc -w 2 {at} 7000")]));
    cluster.inside("a", &format!("({talk} {at} 7000 > /out) >/dev/null 2>&1 </dev/null &"));
    let received = || cluster.inside("a", "cat /out");
    until(|| received().lines().count() > 5, received);
    cluster.good(&["vm", "migrate", "b", "--to", target, "--timeout", "170s"]);
    let moved = cluster.becomes("b", "migrated", |vm| vm["status"]["node"] == target && is_up(vm));
    assert_eq!(address(&moved), at);
    assert_eq!(moved["status"]["restartCount"], 0);
    let before = received().lines().count();
    until(|| received().lines().count() > before + 5, received);
    cluster.inside("a", "touch /stop");
    // Each number came back once, in order.
    let is_whole = || {
        let sent: usize = cluster.inside("a", "cat /sent").trim().parse().unwrap_or_default();
        received().lines().eq((0..sent).map(|number| number.to_string()))
    };
    until(is_whole, received);
    cluster.down();
}
