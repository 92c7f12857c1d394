use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use neonvm_core_overlay::forwarding::{
    ALL, BridgeEntry, Change, DesiredForwarding, Entry, Hardware, Member, Remote, bridge_address, plan,
    plan_bridge,
};
use proptest::prelude::*;

fn node(number: u8) -> IpAddr {
    IpAddr::from([10, 90, 0, number])
}

fn mac(number: u8) -> Hardware {
    [2, 0, 0, 0, 0, number]
}

fn wanted(peers: &[u8], remotes: &[(u8, u8, bool)], leaving: &[u8]) -> DesiredForwarding {
    let remote = |(machine, at, is_moving): &(u8, u8, bool)| {
        (mac(*machine), Remote { to: node(*at), is_moving: *is_moving })
    };
    DesiredForwarding {
        peers: peers.iter().map(|peer| node(*peer)).collect(),
        remotes: remotes.iter().map(remote).collect(),
        leaving: leaving.iter().map(|machine| mac(*machine)).collect(),
    }
}

/// The kernel's tables. In that of the tunnel frames to all go to several places, others to one.
#[derive(Clone, Debug, Default)]
struct Kernel {
    tunnel: BTreeSet<Entry>,
    /// Whether an address is behind the tunnel, and whether that is external.
    bridge: BTreeMap<Hardware, (bool, bool)>,
}

impl Kernel {
    /// As a tunnel of an earlier version does, or another program.
    fn learn(&mut self, hardware: Hardware, to: IpAddr, is_external: bool) {
        self.tunnel.retain(|entry| entry.hardware != hardware);
        self.tunnel.insert(Entry { hardware, to, is_external });
    }

    fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            match *change {
                Change::AddPeer(to) => {
                    self.tunnel.insert(Entry { hardware: ALL, to, is_external: false });
                }
                Change::RemovePeer(to) => self.tunnel.retain(|entry| entry.hardware != ALL || entry.to != to),
                Change::Set(hardware, to) => self.learn(hardware, to, true),
                Change::Remove(hardware, to) => {
                    assert!(self.tunnel.iter().any(|entry| entry.hardware == hardware && entry.to == to));
                    self.tunnel.retain(|entry| entry.hardware != hardware || entry.to != to);
                }
                Change::Lead(hardware) => {
                    self.bridge.insert(hardware, (true, true));
                }
                Change::Forget(hardware) => {
                    assert_eq!(self.bridge.remove(&hardware).map(|(is_tunnel, _)| is_tunnel), Some(true));
                }
            }
        }
    }

    fn entries(&self) -> Vec<Entry> {
        self.tunnel.iter().copied().collect()
    }

    fn bridge_entries(&self) -> Vec<BridgeEntry> {
        let entry = |(hardware, (is_tunnel, is_external)): (&Hardware, &(bool, bool))| BridgeEntry {
            hardware: *hardware,
            is_tunnel: *is_tunnel,
            is_external: *is_external,
        };
        self.bridge.iter().map(entry).collect()
    }

    fn settle(&mut self, wanted: &DesiredForwarding) {
        self.apply(&plan(wanted, &self.entries()));
        self.apply(&plan_bridge(wanted, &self.bridge_entries()));
    }
}

#[test]
fn what_a_node_should_know() {
    let nodes: BTreeMap<String, IpAddr> = [
        ("n1".to_owned(), node(1)),
        ("n2".to_owned(), node(2)),
        ("six".to_owned(), "fd00::1".parse().unwrap()),
    ]
    .into();
    let member = |number: u8, node: &str, is_moving: bool| Member {
        hardware: mac(number),
        node: node.into(),
        is_moving,
    };
    let members = [
        member(1, "n1", false),
        member(2, "n2", true),
        member(3, "six", false),
        member(4, "gone", true),
        member(5, "", false),
        member(6, "n1", true),
    ];
    let mut expected = wanted(&[2], &[(2, 2, true)], &[6]);
    expected.remotes.insert(bridge_address("n2"), Remote { to: node(2), is_moving: false });
    assert_eq!(DesiredForwarding::from_own("n1", &nodes, &members), expected);
    let senders: BTreeSet<Hardware> = expected.senders().collect();
    assert_eq!(senders, [mac(2), mac(6), bridge_address("n2")].into());
    assert_eq!(DesiredForwarding::from_own("n3", &nodes, &members), DesiredForwarding::default());
}

#[test]
fn bridges_have_addresses_that_are_local_and_differ() {
    let all: BTreeSet<Hardware> = (0..10_000).map(|number| bridge_address(&format!("n{number}"))).collect();
    assert_eq!(all.len(), 10_000);
    assert!(all.iter().all(|address| address[0] & 3 == 2));
}

/// W-25: upstream never removed anything.
#[test]
fn w25_entries_go_with_their_node_and_their_machine() {
    let mut kernel = Kernel::default();
    kernel.settle(&wanted(&[2, 3], &[(1, 2, false), (2, 3, false)], &[]));
    kernel.settle(&wanted(&[2], &[], &[]));
    assert_eq!(kernel.entries(), [Entry { hardware: ALL, to: node(2), is_external: false }]);
    assert_eq!(kernel.bridge_entries(), []);
}

/// A VM arrives before its object names this node: the bridge keeps the pod that it spoke from, until the object does.
#[test]
fn a_machine_that_arrives_is_found_at_once_and_one_that_does_not_is_not() {
    let mut kernel = Kernel::default();
    let moving = wanted(&[2], &[(1, 2, true)], &[]);
    kernel.settle(&moving);
    kernel.bridge.insert(mac(1), (false, false));
    kernel.settle(&moving);
    assert_eq!(kernel.bridge[&mac(1)], (false, false));
    // It did not arrive after all.
    kernel.settle(&wanted(&[2], &[(1, 2, false)], &[]));
    assert_eq!(kernel.bridge[&mac(1)], (true, true));
    // Or it did.
    kernel.settle(&moving);
    kernel.bridge.insert(mac(1), (false, false));
    kernel.settle(&wanted(&[2], &[], &[]));
    assert_eq!((kernel.bridge[&mac(1)], kernel.tunnel.len()), ((false, false), 1));
}

/// The other side: while it leaves, the bridge may have learned where it is; afterwards that is the controller's.
#[test]
fn a_machine_that_leaves_is_followed() {
    let mut kernel = Kernel::default();
    kernel.bridge.insert(mac(1), (true, false));
    kernel.settle(&wanted(&[2], &[], &[1]));
    assert_eq!(kernel.bridge[&mac(1)], (true, false));
    kernel.settle(&wanted(&[2], &[(1, 2, false)], &[]));
    assert_eq!(kernel.bridge[&mac(1)], (true, true));
    // It came back: nothing leads to the tunnel.
    kernel.bridge.insert(mac(1), (true, false));
    kernel.settle(&wanted(&[2], &[], &[]));
    assert_eq!(kernel.bridge.get(&mac(1)), None);
}

fn some_wanted() -> impl Strategy<Value = DesiredForwarding> {
    (
        prop::collection::btree_set(1_u8..5, 0..4),
        prop::collection::vec((0_u8..6, 1_u8..5, any::<bool>()), 0..6),
        prop::collection::btree_set(6_u8..9, 0..3),
    )
        .prop_map(|(peers, machines, leaving)| {
            let peers: Vec<u8> = peers.into_iter().collect();
            let machines: Vec<_> = machines.into_iter().filter(|(_, at, _)| peers.contains(at)).collect();
            wanted(&peers, &machines, &leaving.into_iter().collect::<Vec<_>>())
        })
}

proptest! {
    /// Whatever the kernel had, or others wrote, after the changes nothing is left to do, frames go where the controller wants
    /// and nowhere else.
    #[test]
    fn changes_lead_to_what_is_wanted(
        before in some_wanted(),
        now in some_wanted(),
        learned in prop::collection::vec((0_u8..9, 1_u8..6, any::<bool>()), 0..8),
        bridged in prop::collection::vec((0_u8..12, any::<bool>(), any::<bool>()), 0..8),
    ) {
        let mut kernel = Kernel::default();
        kernel.settle(&before);
        for (machine, at, is_external) in learned {
            kernel.learn(mac(machine), node(at), is_external);
        }
        for (machine, is_tunnel, is_external) in bridged {
            kernel.bridge.insert(mac(machine), (is_tunnel, is_external));
        }
        kernel.settle(&now);
        prop_assert_eq!(plan(&now, &kernel.entries()), []);
        prop_assert_eq!(plan_bridge(&now, &kernel.bridge_entries()), []);
        let (flood, single): (Vec<Entry>, Vec<Entry>) =
            kernel.tunnel.iter().partition(|entry| entry.hardware == ALL);
        prop_assert_eq!(flood.iter().map(|entry| entry.to).collect::<BTreeSet<_>>(), now.peers);
        let single: BTreeMap<Hardware, IpAddr> = single.iter().map(|entry| (entry.hardware, entry.to)).collect();
        let remotes: BTreeMap<Hardware, IpAddr> =
            now.remotes.iter().map(|(hardware, remote)| (*hardware, remote.to)).collect();
        prop_assert_eq!(single, remotes);
        for (hardware, (is_tunnel, is_external)) in &kernel.bridge {
            let remote = now.remotes.get(hardware);
            let fits = match remote {
                Some(remote) => (*is_tunnel && *is_external) || (!is_tunnel && remote.is_moving),
                None => !is_tunnel || now.leaving.contains(hardware),
            };
            prop_assert!(fits, "{:?} {} {}", hardware, is_tunnel, is_external);
        }
    }
}
