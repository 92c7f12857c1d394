use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use neonvm_core_overlay::encryption::{Change, Key, Mesh, Own, PORT, Peer, address, plan};
use proptest::prelude::*;

const VNI: u32 = 100;

fn key(number: u8) -> Key {
    Key::new([number + 1; 32]).unwrap()
}

fn at(number: u8) -> IpAddr {
    IpAddr::from([10, 90, 0, number])
}

fn name(number: u8) -> String {
    format!("n{number}")
}

fn mesh(nodes: &BTreeMap<String, IpAddr>, keys: &BTreeMap<String, Key>) -> Mesh {
    Mesh::from_own(Own { node: "n0", address: at(0), key: key(0) }, nodes, keys, VNI, PORT)
}

/// What the kernel keeps of peers: an address belongs to one of them, the last that got it.
#[derive(Clone, Debug, Default)]
struct Kernel(BTreeMap<Key, Peer>);

impl Kernel {
    fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Remove(key) => assert!(self.0.remove(key).is_some(), "{key} is no peer"),
                Change::Set(key, wanted) => {
                    for peer in self.0.values_mut() {
                        peer.allowed.retain(|address| !wanted.allowed.contains(address));
                    }
                    let peer = self.0.entry(*key).or_default();
                    peer.allowed.clone_from(&wanted.allowed);
                    peer.endpoint = wanted.endpoint.or(peer.endpoint);
                }
            }
        }
    }

    fn key_of(&self, address: Ipv6Addr) -> Vec<Key> {
        self.0.iter().filter(|(_, peer)| peer.allowed.contains(&address)).map(|(key, _)| *key).collect()
    }
}

#[test]
fn keys_are_read_as_they_are_written() {
    let text = key(7).to_string();
    assert_eq!(text.len(), 44);
    assert_eq!(Key::parse(&text), Some(key(7)));
    let zero = format!("{}=", "A".repeat(43));
    for bad in ["", "x", &zero, &text[1..], &format!("{text}\n"), &format!(" {text}"), &text.repeat(2)] {
        assert_eq!(Key::parse(bad), None, "{bad:?}");
    }
}

#[test]
fn addresses_differ_by_node_and_by_network_and_stay() {
    assert_eq!(address("n1", VNI).to_string(), "fd6e:656f:6e00:64:676b:8bb8:4ce7:267d");
    let all: BTreeSet<Ipv6Addr> = (0..10_000).map(|n| address(&format!("node-{n}"), n % 7)).collect();
    assert_eq!(all.len(), 10_000);
}

#[test]
fn a_node_without_a_key_is_not_reached() {
    let nodes = (0..3).map(|n| (name(n), at(n))).collect();
    let mesh = mesh(&nodes, &BTreeMap::from([(name(1), key(1))]));
    assert_eq!(mesh.keyless, BTreeSet::from([name(2)]));
    assert_eq!(mesh.nodes.keys().cloned().collect::<Vec<_>>(), ["n0", "n1"]);
    assert_eq!(mesh.peers.keys().copied().collect::<Vec<_>>(), [key(1)]);
}

#[test]
fn a_learned_endpoint_stays_until_the_address_of_the_peer_changes() {
    let nodes: BTreeMap<String, IpAddr> = (0..2).map(|n| (name(n), at(n))).collect();
    let keys = BTreeMap::from([(name(1), key(1))]);
    let first = mesh(&nodes, &keys);
    let mut kernel = Kernel::default();
    kernel.apply(&plan(&first.peers, &BTreeMap::new(), &kernel.0));
    kernel.0.get_mut(&key(1)).unwrap().endpoint = Some("10.90.0.9:7".parse().unwrap());
    assert_eq!(plan(&first.peers, &first.peers, &kernel.0), []);
    let moved = mesh(&BTreeMap::from([(name(1), at(5))]), &keys);
    kernel.apply(&plan(&moved.peers, &first.peers, &kernel.0));
    assert_eq!(kernel.0[&key(1)].endpoint.unwrap().ip(), at(5));
}

fn some_cluster() -> impl Strategy<Value = (BTreeMap<String, IpAddr>, BTreeMap<String, Key>)> {
    let node = (1_u8..8, 0_u8..6, prop::option::of(0_u8..6));
    prop::collection::vec(node, 0..8).prop_map(|all| {
        let nodes = all.iter().map(|(number, at_, _)| (name(*number), at(*at_))).collect();
        let keys = all.iter().filter_map(|(number, _, published)| Some((name(*number), key((*published)?))));
        (nodes, keys.collect())
    })
}

proptest! {
    /// Whatever the kernel had, after the changes an address of a node leads to the key that this node has published and to no other,
    /// whatever others publish or claim; nodes without a key have no address at all; and nothing is left to do.
    #[test]
    fn an_address_leads_to_the_key_of_its_node(before in some_cluster(), now in some_cluster()) {
        let (was, is) = (mesh(&before.0, &before.1), mesh(&now.0, &now.1));
        let mut kernel = Kernel::default();
        kernel.apply(&plan(&was.peers, &BTreeMap::new(), &kernel.0));
        kernel.apply(&plan(&is.peers, &was.peers, &kernel.0));
        prop_assert_eq!(plan(&is.peers, &is.peers, &kernel.0), []);
        for (node, inner) in &is.nodes {
            let IpAddr::V6(inner) = inner else { panic!("{inner}") };
            prop_assert_eq!(*inner, address(node, VNI));
            let wanted = if node == "n0" { vec![] } else { vec![now.1[node]] };
            prop_assert_eq!(kernel.key_of(*inner), wanted);
        }
        for node in &is.keyless {
            prop_assert_eq!(kernel.key_of(address(node, VNI)), vec![]);
            prop_assert!(!is.nodes.contains_key(node));
        }
        prop_assert!(!kernel.0.contains_key(&key(0)));
        prop_assert!(kernel.0.values().all(|peer| !peer.allowed.is_empty()));
    }

    /// A node that publishes the key of another or claims its address does not redirect traffic of others.
    #[test]
    fn a_thief_gets_nothing(cluster in some_cluster(), steals_key in any::<bool>(), steals_address in any::<bool>()) {
        let (mut nodes, mut keys) = cluster;
        nodes.insert("honest".into(), at(9));
        keys.insert("honest".into(), key(9));
        nodes.insert("thief".into(), if steals_address { at(9) } else { at(10) });
        keys.insert("thief".into(), if steals_key { key(9) } else { key(10) });
        let mesh = mesh(&nodes, &keys);
        let peer = &mesh.peers[&key(9)];
        prop_assert!(peer.allowed.contains(&address("honest", VNI)));
        prop_assert!(peer.endpoint.is_none_or(|endpoint| endpoint.ip() == at(9)));
        if !steals_key {
            prop_assert_eq!(peer.endpoint.map(|endpoint| endpoint.ip()), Some(at(9)));
        }
    }

    #[test]
    fn no_text_is_too_strange_for_a_key(text in ".{0,60}") {
        if let Some(key) = Key::parse(&text) {
            prop_assert_eq!(key.to_string(), text);
        }
    }
}
