//! The encrypted overlay. Where the kernel has no WireGuard all but the first test are skipped; `tests/in-guest.sh` runs them on one
//! that has it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use neonvm_core_overlay::encryption::address;
use neonvm_test_support::needs::Missing;
use neonvm_test_support::{Need, need};
use neonvm_vxlan_controller::{Config, Encryption};
use serde_json::json;

use crate::lab::{Controller, Lab, network, sh, until};

/// Largest payload of UDP: 1500 bytes without WireGuard 60, the tunnel in it 70, IP and UDP 28.
const LARGEST: usize = 1500 - 60 - 70 - 28;

fn has_wireguard() -> bool {
    let name = format!("nvw{}", std::process::id());
    let made = sh(&format!("ip link add {name} type wireguard")).is_ok();
    made && sh(&format!("ip link del {name}")).is_ok()
}

fn wireguard() -> Need {
    network()?;
    if has_wireguard() { Ok(()) } else { Err(Missing::unavailable("the kernel has no WireGuard")) }
}

fn no_wireguard() -> Need {
    network()?;
    if has_wireguard() { Err(Missing::unavailable("the kernel has WireGuard")) } else { Ok(()) }
}

/// A lab with the namespace that keys are published in.
async fn start(nodes: &[u8]) -> Lab {
    let lab = Lab::start(nodes).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "neonvm-system"}});
    neonvm_test_cluster::apply(&lab.client, &namespace).await;
    lab
}

fn config(lab: &Lab, number: u8) -> Config {
    Config { encryption: Encryption::Wireguard, ..lab.config(number) }
}

fn controller(lab: &Lab, number: u8) -> Controller {
    Lab::run(config(lab, number))
}

fn inner(number: u8) -> Ipv6Addr {
    address(&format!("n{number}"), neonvm_api::overlay::VNI)
}

/// Counts the packets between nodes: of a tunnel, of WireGuard, and all others except ARP and IPv6 neighbour discovery.
fn capture(lab: &Lab) {
    for line in [
        "add table bridge seen",
        "add chain bridge seen between { type filter hook forward priority 0 ; }",
        "add rule bridge seen between ether type arp accept",
        "add rule bridge seen between meta l4proto icmpv6 accept",
        "add rule bridge seen between udp dport 4789 counter accept",
        "add rule bridge seen between udp dport 51872 counter accept",
        "add rule bridge seen between counter accept",
    ] {
        lab.inside("underlay", &format!("nft {line}"));
    }
}

/// The three counters.
fn captured(lab: &Lab) -> Vec<u64> {
    let text = lab.inside("underlay", "nft list table bridge seen");
    let words: Vec<&str> = text.split_whitespace().collect();
    let counts = words.windows(2).filter(|pair| pair[0] == "packets");
    counts.map(|pair| pair[1].parse().unwrap()).collect()
}

/// Two nodes with a pod each; on both pods the network's largest packet is that of the encrypted overlay.
async fn two_pods(lab: &Lab) {
    for (pod, node, own) in [("a", 1, "10.100.1.1"), ("b", 2, "10.100.1.2")] {
        lab.add_guest(pod, node, own).await;
        lab.inside(pod, "ip link set net1 mtu 1370");
    }
}

/// On a kernel without WireGuard the error names the module and the remedy, and nothing stays behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_kernel_without_wireguard_ends_the_controller() {
    need!(no_wireguard());
    let lab = Lab::start(&[1]).await;
    let error = neonvm_vxlan_controller::run(config(&lab, 1), std::future::pending()).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("modprobe wireguard") && text.contains("--encryption none"), "{text}");
    assert!(lab.try_inside("n1", "ip link show neon-vxlan0").is_err());
}

/// Packets of all sizes arrive, and between the nodes there is nothing but WireGuard.
#[tokio::test(flavor = "multi_thread")]
async fn between_nodes_there_is_only_wireguard() {
    need!(wireguard());
    let lab = start(&[1, 2]).await;
    capture(&lab);
    let _controllers = [controller(&lab, 1), controller(&lab, 2)];
    two_pods(&lab).await;
    lab.until_reached("a", "10.100.1.2", 64).await;
    lab.until_reached("b", "10.100.1.1", LARGEST).await;
    let [tunnel, wireguard, other] = captured(&lab)[..] else { panic!("three counters") };
    println!("tunnel {tunnel}, WireGuard {wireguard}, other {other}");
    assert_eq!((tunnel, other), (0, 0));
    assert!(wireguard >= 4, "{wireguard}");
    let mtu = lab.inside("n1", "ip -o link show neon-br0");
    assert!(mtu.contains(" mtu 1370 "), "{mtu}");
}

/// A forged frame in a packet of the tunnel, as an attacker on the path would send it: UDP from and to pods, port 9.
fn forged(hardware: [u8; 6], sender: [u8; 6], payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap();
    let mut all = vec![8, 0, 0, 0, 0, 0, 100, 0];
    all.extend(hardware);
    all.extend(sender);
    all.extend([8, 0]);
    let mut ip = vec![0x45, 0];
    ip.extend((length + 28).to_be_bytes());
    ip.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 100, 1, 66, 10, 100, 1, 1]);
    let sum: u32 = ip.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    all.extend(ip);
    all.extend([0, 9, 0, 9]);
    all.extend((length + 8).to_be_bytes());
    all.extend([0, 0]);
    all.extend(payload);
    all
}

fn hardware(lab: &Lab, namespace: &str, link: &str) -> [u8; 6] {
    let text = lab.inside(namespace, &format!("cat /sys/class/net/{link}/address"));
    let bytes: Vec<u8> = text.trim().split(':').map(|part| u8::from_str_radix(part, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

/// What pod `a` gets of a forged packet that is sent to `to` from node 3, which has no controller, before a packet
/// of pod `b` that is sent after it.
fn arrives(lab: &Lab, to: IpAddr) -> bool {
    let socket = lab.enter("a", || UdpSocket::bind("10.100.1.1:9").unwrap());
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let packet = forged(hardware(lab, "a", "net1"), hardware(lab, "b", "net1"), b"forged");
    lab.enter("n3", move || {
        let any: SocketAddr =
            if to.is_ipv4() { "0.0.0.0:0".parse().unwrap() } else { "[::]:0".parse().unwrap() };
        UdpSocket::bind(any).unwrap().send_to(&packet, (to, 4789)).unwrap();
    });
    lab.enter("b", || {
        let own: IpAddr = Ipv4Addr::new(10, 100, 1, 2).into();
        UdpSocket::bind((own, 0)).unwrap().send_to(b"true", "10.100.1.1:9").unwrap();
    });
    let mut buffer = [0; 16];
    let length = socket.recv(&mut buffer).unwrap();
    &buffer[..length] == b"forged"
}

/// With it none does, to whatever address of the node it is sent, and the table that sees to it is made again if others remove it.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_packet_does_not_arrive() {
    need!(wireguard());
    let lab = start(&[1, 2, 3]).await;
    let _controllers = [controller(&lab, 1), controller(&lab, 2)];
    two_pods(&lab).await;
    lab.until_reached("b", "10.100.1.1", 64).await;
    assert!(!arrives(&lab, [10, 90, 0, 1].into()));
    // By IPv6, on the interface between the nodes: to an address there, which the socket of the tunnel listens on as well.
    for (node, own) in [("n1", "fd00::1"), ("n3", "fd00::3")] {
        lab.enter(node, || std::fs::write("/proc/sys/net/ipv6/conf/up0/disable_ipv6", "0").unwrap());
        lab.inside(node, &format!("ip addr add {own}/64 dev up0 nodad"));
    }
    let to: IpAddr = "fd00::1".parse().unwrap();
    assert!(!arrives(&lab, to));
    // It is the table that drops it, and the table comes back.
    until("let through without the table", || {
        let _ = lab.try_inside("n1", "nft delete table inet neonvm_overlay");
        arrives(&lab, to)
    })
    .await;
    until("dropped again", || !arrives(&lab, to)).await;
}

/// A node that has published no key is not reached, in plaintext neither.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_key_is_not_reached() {
    need!(wireguard());
    let lab = start(&[1, 2, 3]).await;
    capture(&lab);
    // One that does not encrypt, as during a rollout.
    let _controllers = [controller(&lab, 1), lab.controller(2), controller(&lab, 3)];
    two_pods(&lab).await;
    lab.add_guest("c", 3, "10.100.1.3").await;
    lab.until_reached("a", "10.100.1.3", 64).await;
    let table = lab.inside("n1", "bridge fdb show dev neon-vxlan0");
    assert!(table.contains(&inner(3).to_string()) && !table.contains("10.90.0.2"), "{table}");
    let before = captured(&lab)[0];
    lab.enter("a", || {
        let socket = UdpSocket::bind("10.100.1.1:0").unwrap();
        socket.set_broadcast(true).unwrap();
        socket.send_to(b"to all", "10.100.255.255:9").unwrap();
    });
    lab.until_reached("a", "10.100.1.3", 64).await;
    // Node 2 is configured to flood frames of its pods in plaintext. No frame of another node appears.
    assert_eq!(captured(&lab)[0], before);
}

/// The key is the node's, in a lease; a removed lease comes back, a new interface has a new key, and all others take it up.
#[tokio::test(flavor = "multi_thread")]
async fn keys_are_published_and_replaced() {
    need!(wireguard());
    let lab = start(&[1, 2]).await;
    let first = controller(&lab, 1);
    let _second = controller(&lab, 2);
    two_pods(&lab).await;
    lab.until_reached("a", "10.100.1.2", 64).await;
    let leases: Api<Lease> = Api::namespaced(lab.client.clone(), "neonvm-system");
    let key = async |node: &str| {
        let lease = leases.get_opt(&format!("neonvm-overlay-key-{node}")).await.unwrap()?;
        lease.metadata.annotations?.remove("vm.neon.tech/wireguard-public-key")
    };
    let old = key("n1").await.unwrap();
    leases.delete("neonvm-overlay-key-n1", &DeleteParams::default()).await.unwrap();
    neonvm_test_support::eventually("published again", async || key("n1").await == Some(old.clone())).await;
    let nonsense = json!({"metadata": {"annotations": {"vm.neon.tech/wireguard-public-key": "nonsense"}}});
    let patch = Patch::Merge(&nonsense);
    leases.patch("neonvm-overlay-key-n1", &PatchParams::default(), &patch).await.unwrap();
    neonvm_test_support::eventually("corrected", async || key("n1").await == Some(old.clone())).await;
    // A restart keeps the key; a new interface has another.
    drop(first);
    let _first = controller(&lab, 1);
    lab.until_reached("a", "10.100.1.2", 64).await;
    assert_eq!(key("n1").await, Some(old.clone()));
    lab.inside("n1", "ip link del neon-wg0");
    neonvm_test_support::eventually("another", async || key("n1").await.is_some_and(|new| new != old)).await;
    lab.until_reached("a", "10.100.1.2", 64).await;
    lab.until_reached("b", "10.100.1.1", LARGEST).await;
}

/// What was made goes, and a controller that does not encrypt removes what one that did has left.
#[tokio::test(flavor = "multi_thread")]
async fn delete_removes_the_encryption() {
    need!(wireguard());
    let lab = start(&[1, 2]).await;
    {
        let _controller = controller(&lab, 1);
        until("made", || lab.try_inside("n1", "ip link show neon-vxlan0").is_ok()).await;
    }
    let is_there = |lab: &Lab| {
        lab.try_inside("n1", "ip link show neon-wg0").is_ok()
            || lab.inside("n1", "nft list ruleset").contains("neon-wg0")
            || lab.inside("n1", "ip -6 route show type unreachable").contains("fd6e:")
    };
    assert!(is_there(&lab));
    let all = config(&lab, 1);
    until("gone", || {
        neonvm_vxlan_controller::delete(&all).unwrap();
        !is_there(&lab) && lab.inside("n1", "nft list ruleset").trim().is_empty()
    })
    .await;
    {
        let _controller = controller(&lab, 1);
        until("made again", || lab.try_inside("n1", "ip link show neon-vxlan0").is_ok()).await;
    }
    let _plain = [lab.controller(1), lab.controller(2)];
    until("removed by who does not encrypt", || !is_there(&lab)).await;
    lab.add_guest("a", 1, "10.100.1.1").await;
    lab.add_guest("b", 2, "10.100.1.2").await;
    lab.until_reached("a", "10.100.1.2", 1422).await;
}
