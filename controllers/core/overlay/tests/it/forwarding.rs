use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use neonvm_core_overlay::forwarding::{
    ALL, Change, DesiredForwarding, Entry, Hardware, Member, PeerAddress, plan,
};
use proptest::prelude::*;

fn node(number: u8) -> IpAddr {
    IpAddr::from([10, 90, 0, number])
}

fn mac(number: u8) -> Hardware {
    [2, 0, 0, 0, 0, number]
}

fn wanted(peers: &[u8], machines: &[(u8, u8, bool)]) -> DesiredForwarding {
    let place = |(machine, at, is_moving): &(u8, u8, bool)| {
        (mac(*machine), PeerAddress { to: node(*at), is_moving: *is_moving })
    };
    DesiredForwarding {
        peers: peers.iter().map(|peer| node(*peer)).collect(),
        machines: machines.iter().map(place).collect(),
    }
}

/// The kernel's table: frames to all go to several places, others to one.
#[derive(Clone, Debug, Default)]
struct Kernel(BTreeSet<Entry>);

impl Kernel {
    fn learn(&mut self, hardware: Hardware, to: IpAddr) {
        let old = self.0.iter().find(|entry| entry.hardware == hardware).copied();
        self.0.retain(|entry| entry.hardware != hardware);
        let is_external = old.is_some_and(|entry| entry.is_external);
        self.0.insert(Entry { hardware, to, is_external });
    }

    fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            match *change {
                Change::AddPeer(to) => {
                    self.0.insert(Entry { hardware: ALL, to, is_external: false });
                }
                Change::RemovePeer(to) => self.0.retain(|entry| entry.hardware != ALL || entry.to != to),
                Change::Set(hardware, to) => {
                    self.0.retain(|entry| entry.hardware != hardware);
                    self.0.insert(Entry { hardware, to, is_external: true });
                }
                Change::Remove(hardware, to) => {
                    assert!(self.0.iter().any(|entry| entry.hardware == hardware && entry.to == to));
                    self.0.retain(|entry| entry.hardware != hardware || entry.to != to);
                }
            }
        }
    }

    fn entries(&self) -> Vec<Entry> {
        self.0.iter().copied().collect()
    }

    fn lookup(&self, hardware: Hardware) -> Option<IpAddr> {
        self.0.iter().find(|entry| entry.hardware == hardware).map(|entry| entry.to)
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
    let member =
        |number: u8, node: &str| Member { hardware: mac(number), node: node.into(), is_moving: false };
    let members = [member(1, "n1"), member(2, "n2"), member(3, "six"), member(4, "gone"), member(5, "")];
    assert_eq!(DesiredForwarding::from_own("n1", &nodes, &members), wanted(&[2], &[(2, 2, false)]));
    assert_eq!(DesiredForwarding::from_own("n3", &nodes, &members), DesiredForwarding::default());
}

/// W-25: upstream never removed anything.
#[test]
fn w25_entries_go_with_their_node_and_their_machine() {
    let mut kernel = Kernel::default();
    let before = wanted(&[2, 3], &[(1, 2, false), (2, 3, false)]);
    kernel.apply(&plan(&before, &DesiredForwarding::default(), &kernel.entries()));
    kernel.learn(mac(9), node(3));
    kernel.learn(mac(8), node(2));
    let now = wanted(&[2], &[]);
    kernel.apply(&plan(&now, &before, &kernel.entries()));
    let learned = Entry { hardware: mac(8), to: node(2), is_external: false };
    let peer = Entry { hardware: ALL, to: node(2), is_external: false };
    assert_eq!(kernel.entries(), [peer, learned]);
}

#[test]
fn during_a_move_what_the_kernel_learned_wins() {
    let mut kernel = Kernel::default();
    let before = wanted(&[2, 3], &[(1, 2, false)]);
    kernel.apply(&plan(&before, &DesiredForwarding::default(), &kernel.entries()));
    let moving = wanted(&[2, 3], &[(1, 2, true)]);
    assert_eq!(plan(&moving, &before, &kernel.entries()), []);
    kernel.learn(mac(1), node(3));
    assert_eq!(plan(&moving, &moving, &kernel.entries()), []);
    // Also for a controller that was just started.
    assert_eq!(plan(&moving, &DesiredForwarding::default(), &kernel.entries()), []);
    // And when the end of the migration is seen before the new node, or the other way round.
    assert_eq!(plan(&before, &moving, &kernel.entries()), []);
    assert_eq!(plan(&wanted(&[2, 3], &[(1, 3, false)]), &moving, &kernel.entries()), []);
    // To this very node.
    assert_eq!(plan(&wanted(&[2, 3], &[]), &moving, &kernel.entries()), [Change::Remove(mac(1), node(3))]);
    // The node at which it was observed is gone.
    let left = wanted(&[2], &[(1, 2, true)]);
    let changes = plan(&left, &moving, &kernel.entries());
    assert_eq!(changes, [Change::RemovePeer(node(3)), Change::Set(mac(1), node(2))]);
}

#[test]
fn a_fresh_start_corrects_what_is_wrong() {
    let mut kernel = Kernel::default();
    kernel.learn(mac(1), node(3));
    let now = wanted(&[2, 3], &[(1, 2, false)]);
    kernel.apply(&plan(&now, &DesiredForwarding::default(), &kernel.entries()));
    assert_eq!(kernel.lookup(mac(1)), Some(node(2)));
}

fn some_wanted() -> impl Strategy<Value = DesiredForwarding> {
    (
        prop::collection::btree_set(1_u8..5, 0..4),
        prop::collection::vec((0_u8..6, 1_u8..5, any::<bool>()), 0..6),
    )
        .prop_map(|(peers, machines)| {
            let peers: Vec<u8> = peers.into_iter().collect();
            let machines: Vec<_> = machines.into_iter().filter(|(_, at, _)| peers.contains(at)).collect();
            wanted(&peers, &machines)
        })
}

proptest! {
    /// Whatever the kernel had, after the changes no action remains, broadcasts go to the peers alone, no entry leads
    /// to a removed node, and every VM that is not being migrated is reached, unless the kernel has a newer entry.
    #[test]
    fn changes_lead_to_what_is_wanted(
        before in some_wanted(),
        now in some_wanted(),
        learned in prop::collection::vec((0_u8..9, 1_u8..6), 0..8),
    ) {
        let mut kernel = Kernel::default();
        kernel.apply(&plan(&before, &DesiredForwarding::default(), &kernel.entries()));
        for (machine, at) in learned {
            kernel.learn(mac(machine), node(at));
        }
        let changes = plan(&now, &before, &kernel.entries());
        kernel.apply(&changes);
        prop_assert_eq!(plan(&now, &now, &kernel.entries()), []);
        let flood: BTreeSet<IpAddr> =
            kernel.0.iter().filter(|entry| entry.hardware == ALL).map(|entry| entry.to).collect();
        prop_assert_eq!(&flood, &now.peers);
        for entry in kernel.0.iter().filter(|entry| entry.hardware != ALL) {
            prop_assert!(now.peers.contains(&entry.to), "{:?}", entry);
            prop_assert!(!entry.is_external || now.machines.contains_key(&entry.hardware));
        }
        for (hardware, place) in &now.machines {
            let found = kernel.lookup(*hardware);
            prop_assert!(found.is_some());
            let changed = before.machines.get(hardware).is_none_or(|was| was.to != place.to);
            if changed && !place.is_moving {
                prop_assert_eq!(found, Some(place.to));
            }
        }
    }
}
