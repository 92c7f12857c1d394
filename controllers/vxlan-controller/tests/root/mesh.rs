//! Packets arrive, and entries come and go with nodes and machines.

use kube::api::DeleteParams;
use neonvm_test_support::need;
use serde_json::json;

use crate::lab::{Lab, network, until};

#[tokio::test(flavor = "multi_thread")]
async fn machines_of_two_nodes_reach_each_other_by_known_entries() {
    need!(network());
    let lab = Lab::start(&[1, 2]).await;
    let _controllers = [lab.controller(1), lab.controller(2)];
    let a = lab.add_machine("a", 1, "10.100.128.0").await;
    let b = lab.add_machine("b", 2, "10.100.128.1").await;
    lab.until_entries(1, &["* n2".into(), format!("{b} n2")]).await;
    lab.until_entries(2, &["* n1".into(), format!("{a} n1")]).await;
    lab.add_pod("a", 1, "10.100.128.0", Some(&a)).await;
    lab.add_pod("b", 2, "10.100.128.1", Some(&b)).await;
    lab.until_reached("a", "10.100.128.1", 64).await;
    // The largest packet of the overlay fits the underlay with all that a tunnel adds.
    lab.until_reached("a", "10.100.128.1", 1422).await;
    // Deleting a VM removes its entry, also where the kernel learned it.
    // Its pod goes first: a frame from it could make the kernel learn the entry again.
    lab.remove_pod("b");
    until("gone with its pod", || lab.try_inside("n2", "ip link show v-b").is_err()).await;
    lab.machines().delete("b", &DeleteParams::default()).await.unwrap();
    lab.until_entries(1, &["* n2".into()]).await;
    // And so does a node.
    lab.remove_node(2).await;
    lab.until_entries(1, &[]).await;
    lab.until_entries(2, &["* n1".into(), format!("{a} n1")]).await;
}

/// A VM that is being migrated is reached at its target as soon as it has announced itself there, through the node that it has left,
/// and directly once its object names the other. No table leads anywhere but where the controller wants it to.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_moves_is_found_at_once() {
    need!(network());
    let lab = Lab::start(&[1, 2, 3]).await;
    let _controllers = [lab.controller(1), lab.controller(2), lab.controller(3)];
    let client = lab.add_guest("client", 1, "10.100.128.1").await;
    let vm = lab.add_guest("vm", 2, "10.100.128.5").await;
    lab.until_reached("client", "10.100.128.5", 64).await;
    let flood = ["* n2".to_owned(), "* n3".to_owned()];
    let with = |node: u8| [flood.as_slice(), &[format!("{vm} n{node}")]].concat();
    lab.until_entries(1, &with(2)).await;
    lab.set_status("vm", json!({"phase": "Migrating"})).await;
    let returns = || lab.inside("n2", "bridge -d link show dev neon-vxlan0").contains("hairpin on");
    until("ready to be left", returns).await;
    // The switch: gone at the source, it announces itself from the target.
    lab.remove_pod("vm");
    lab.add_pod("target", 3, "10.100.128.5", Some(&vm)).await;
    lab.until_reached("target", "10.100.128.1", 64).await;
    lab.until_reached("client", "10.100.128.5", 64).await;
    assert_eq!(lab.entries(1), with(2), "no tunnel has learned it");
    // Whatever makes the controller look again, the bridge of the target keeps it.
    lab.inside("n3", "ip link add other type bridge");
    lab.add_machine("another", 1, "10.100.128.6").await;
    until("seen", || lab.entries(3).len() == 5).await;
    lab.until_reached("client", "10.100.128.5", 64).await;
    lab.set_status("vm", json!({"phase": "Running", "node": "n3"})).await;
    lab.until_entries(1, &with(3)).await;
    until("external at the source as well", || lab.entries(2).contains(&format!("{vm} n3"))).await;
    until("local at the target", || !lab.entries(3).iter().any(|entry| entry.starts_with(&vm))).await;
    lab.until_reached("client", "10.100.128.5", 64).await;
    assert!(lab.entries(2).contains(&format!("{client} n1")));
}
