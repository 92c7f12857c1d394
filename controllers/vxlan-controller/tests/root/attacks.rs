//! Packets of the tunnel by others than nodes, each beside two VMs whose packets must all arrive.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use neonvm_core_overlay::forwarding::bridge_address;
use neonvm_test_support::need;
use neonvm_vxlan_controller::Config;
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};

use crate::lab::{Controller, Lab, network, until};

const A: Ipv4Addr = Ipv4Addr::new(10, 100, 128, 0);
const B: Ipv4Addr = Ipv4Addr::new(10, 100, 128, 1);
/// Where VM `a` receives what must not arrive.
const PORT: u16 = 9;

/// Two nodes with a VM each, `a` and `b`; a pod of each node that is no VM, `p1` and `p2`, which its node hides behind its own address
/// as many plugins do; and a host that is no node, `n3`.
struct Neighbours {
    lab: Lab,
    /// Hardware addresses of the VMs.
    a: [u8; 6],
    b: [u8; 6],
    _controllers: [Controller; 2],
}

fn bytes(text: &str) -> [u8; 6] {
    let bytes: Vec<u8> = text.split(':').map(|part| u8::from_str_radix(part, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

/// A packet of IPv4 with UDP, or with a fragment of it.
fn packet(from: Ipv4Addr, to: Ipv4Addr, fragment: u16, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(20 + content.len()).unwrap();
    let mut ip =
        [&[0x45, 0][..], &length.to_be_bytes(), &[7, 7], &fragment.to_be_bytes(), &[64, 17, 0, 0]].concat();
    ip.extend(from.octets());
    ip.extend(to.octets());
    let sum: u32 = ip.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [&ip, content].concat()
}

/// A frame in a datagram of the tunnel, without a checksum.
fn tunnelled(frame: &[u8]) -> Vec<u8> {
    let length = u16::try_from(16 + frame.len()).unwrap().to_be_bytes();
    [&[0xc0, 0, 0x12, 0xb5], &length[..], &[0, 0, 8, 0, 0, 0, 0, 0, 100, 0], frame].concat()
}

impl Neighbours {
    async fn start() -> Self {
        let lab = Lab::start(&[1, 2, 3]).await;
        lab.remove_node(3).await;
        let controllers = [lab.controller(1), lab.controller(2)];
        let a = lab.add_machine("a", 1, &A.to_string()).await;
        let b = lab.add_machine("b", 2, &B.to_string()).await;
        lab.until_entries(1, &["* n2".into(), format!("{b} n2")]).await;
        lab.until_entries(2, &["* n1".into(), format!("{a} n1")]).await;
        lab.add_pod("a", 1, &A.to_string(), Some(&a)).await;
        lab.add_pod("b", 2, &B.to_string(), Some(&b)).await;
        for node in [1, 2] {
            lab.add_plain_pod(node);
        }
        lab.until_reached("a", &B.to_string(), 64).await;
        lab.until_reached("b", &A.to_string(), 1422).await;
        Self { a: bytes(&a), b: bytes(&b), lab, _controllers: controllers }
    }

    /// Sends a frame in a packet of the tunnel from a namespace to a node, with any sender.
    fn inject(&self, namespace: &str, from: &str, node: u8, frame: &[u8]) {
        self.inject_parts(namespace, from, node, &tunnelled(frame), usize::MAX);
    }

    /// The same in fragments whose first one has so many bytes of UDP.
    fn inject_parts(&self, namespace: &str, from: &str, node: u8, udp: &[u8], first: usize) {
        let (from, to): (Ipv4Addr, _) = (from.parse().unwrap(), Ipv4Addr::new(10, 90, 0, node));
        let (head, tail) = udp.split_at(first.min(udp.len()));
        let mut packets = vec![packet(from, to, if tail.is_empty() { 0 } else { 0x2000 }, head)];
        if !tail.is_empty() {
            packets.push(packet(from, to, u16::try_from(first / 8).unwrap(), tail));
        }
        self.lab.enter(namespace, move || {
            let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW)).unwrap();
            for packet in packets {
                // What is dropped at the sender's own node may be reported to it.
                let _ = sendto(&raw, &packet, SendFlags::empty(), &SocketAddrV4::new(to, 0));
            }
        });
    }

    /// A datagram as if VM `b` sent it to VM `a`.
    fn forged(&self) -> Vec<u8> {
        let udp = [&[0, 9, 0, 9, 0, 14, 0, 0], &b"forged"[..]].concat();
        [&self.a[..], &self.b, &[8, 0], &packet(B, A, 0, &udp)].concat()
    }

    /// An ARP reply to all: `address` is at `hardware`.
    fn announcement(hardware: [u8; 6], address: Ipv4Addr) -> Vec<u8> {
        let own = [&hardware[..], &address.octets()].concat();
        [&[0xff; 6][..], &hardware, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &own, &own].concat()
    }

    /// What the injected datagram and the one of VM `b` that follows it become at VM `a`: whether the first arrives.
    fn arrives(&self, attack: impl Fn()) -> bool {
        let socket = self.lab.enter("a", || UdpSocket::bind((A, PORT)).unwrap());
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        attack();
        self.lab.enter("b", || UdpSocket::bind((B, 0)).unwrap().send_to(b"true", (A, PORT)).unwrap());
        let mut buffer = [0; 16];
        let length = socket.recv(&mut buffer).unwrap();
        &buffer[..length] == b"forged"
    }
}

/// Packets from VM `b` to VM `a` and back, one after the other, until it is stopped; fails at the first that is missing.
struct Bystander {
    ends: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Bystander {
    fn start(lab: &Lab) -> Self {
        let socket = lab.enter("b", || UdpSocket::bind((B, 0)).unwrap());
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.connect((A, 7)).unwrap();
        let (ends, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let thread = std::thread::spawn({
            let (ends, answers) = (Arc::clone(&ends), Arc::clone(&answers));
            move || {
                while !ends.load(Ordering::Relaxed) {
                    let number = answers.load(Ordering::Relaxed).to_be_bytes();
                    socket.send(&number).unwrap();
                    let mut buffer = [0; 64];
                    let length = socket.recv(&mut buffer).expect("each packet is answered");
                    assert_eq!(buffer[..length], number);
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Self { ends, answers, thread }
    }

    /// Waits for so many more answers.
    async fn meanwhile(&self, more: u64) {
        let before = self.answers.load(Ordering::Relaxed);
        until("answers", || {
            self.answers.load(Ordering::Relaxed) >= before + more || self.thread.is_finished()
        })
        .await;
    }

    fn stop(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().expect("no packet is missing");
        println!("{} packets, none missing", self.answers.load(Ordering::Relaxed));
    }
}

/// Finding 1: pods of the other node and of the same, with their own address, with that of a node, and behind that of their node; a host.
#[tokio::test(flavor = "multi_thread")]
async fn only_nodes_send_to_a_tunnel() {
    need!(network());
    let all = Neighbours::start().await;
    let bystander = Bystander::start(&all.lab);
    let forged = all.forged();
    let hijack = [
        Neighbours::announcement([2, 0, 0, 0, 0, 66], A),
        Neighbours::announcement([2, 0, 0, 0, 0, 66], B),
        Neighbours::announcement(all.b, B),
        Neighbours::announcement(all.a, A),
    ];
    for (namespace, from) in [
        ("p2", "10.152.2.12"),
        ("p2", "10.90.0.2"),
        ("p2", "10.90.0.1"),
        ("p1", "10.152.1.12"),
        ("p1", "10.90.0.2"),
        ("p1", "10.90.0.1"),
        ("n3", "10.90.0.3"),
    ] {
        for node in [1, 2] {
            for frame in &hijack {
                all.inject(namespace, from, node, frame);
            }
        }
        bystander.meanwhile(50).await;
        assert!(!all.arrives(|| all.inject(namespace, from, 1, &forged)), "{namespace} as {from}");
    }
    bystander.stop();
    // It is the tables that drop it, and they come back.
    until("let through without the tables", || {
        for table in ["inet neonvm_overlay", "bridge neonvm_vxlan"] {
            let _ = all.lab.try_inside("n1", &format!("nft delete table {table}"));
        }
        all.arrives(|| all.inject("n3", "10.90.0.3", 1, &forged))
    })
    .await;
    until("dropped again", || !all.arrives(|| all.inject("n3", "10.90.0.3", 1, &forged))).await;
}

/// What a node sends has a sender that is on another node: not a VM that is here, nor one that is unknown.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_speaks_for_what_is_elsewhere_only() {
    need!(network());
    let all = Neighbours::start().await;
    let bystander = Bystander::start(&all.lab);
    let as_b = all.forged();
    assert!(all.arrives(|| all.inject("n2", "10.90.0.2", 1, &as_b)), "the packet is good");
    for sender in [all.a, [2, 0, 0, 0, 0, 66]] {
        let mut frame = as_b.clone();
        frame[6..12].copy_from_slice(&sender);
        assert!(!all.arrives(|| all.inject("n2", "10.90.0.2", 1, &frame)), "{sender:x?}");
        bystander.meanwhile(50).await;
    }
    bystander.stop();
}

/// A packet whose number of the virtual network is in its second fragment is not forwarded either, by a node that assembles none.
#[tokio::test(flavor = "multi_thread")]
async fn fragments_do_not_hide_a_packet() {
    need!(network());
    let all = Neighbours::start().await;
    // A node whose address can be forged beyond the node of the pod.
    all.lab.add_node(4).await;
    until("known", || all.lab.entries(1).contains(&"* n4".to_owned())).await;
    all.lab.inside("n2", "nft delete table ip plugin");
    let forged = tunnelled(&all.forged());
    for (namespace, from) in
        [("p2", "10.90.0.4"), ("p2", "10.152.2.12"), ("p1", "10.90.0.2"), ("n3", "10.90.0.3")]
    {
        for first in [8, 16, 24] {
            let attack = || all.inject_parts(namespace, from, 1, &forged, first);
            assert!(!all.arrives(attack), "{namespace} as {from}, {first} bytes");
        }
    }
    // A node's own may come in fragments.
    assert!(all.arrives(|| all.inject_parts("n2", "10.90.0.2", 1, &forged, 8)));
}

/// What an earlier version has made is changed in place: the tunnel learns no more, and the node's own address on the overlay is
/// announced with the hardware address by which the other nodes know it.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_version_made_is_changed_in_place() {
    need!(network());
    let lab = Lab::start(&[1, 2]).await;
    lab.inside("n1", "ip link add neon-vxlan0 type vxlan id 100 local 10.90.0.1 dstport 4789 learning");
    let number = |text: String| text.split(':').next().unwrap().to_owned();
    let before = number(lab.inside("n1", "ip -o link show neon-vxlan0"));
    let _controller = lab.controller(1);
    lab.until_entries(1, &["* n2".into()]).await;
    let shown = lab.inside("n1", "ip -o -d link show neon-vxlan0");
    assert!(shown.contains("nolearning"), "{shown}");
    assert_eq!(number(shown), before);
    for line in ["ip link add neon-br0 type bridge forward_delay 0", "ip link set neon-br0 up"] {
        lab.inside("n2", line);
    }
    let gateway = Some("10.100.0.1".parse().unwrap());
    lab.inside("n2", "ip addr add 10.100.0.1/16 dev neon-br0");
    lab.add_port("pod", 2, "10.100.128.7", None);
    lab.inside("pod", "ip neigh add 10.100.0.1 lladdr 02:00:00:00:00:99 dev net1 nud reachable");
    let _other = Lab::run(Config { gateway, ..lab.config(2) });
    let known = bridge_address("n2").map(|byte| format!("{byte:02x}")).join(":");
    until("announced", || lab.inside("pod", "ip neigh show 10.100.0.1").contains(&known)).await;
}
