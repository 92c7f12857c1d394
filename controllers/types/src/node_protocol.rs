//! What a runner requests from the node service of its node, over a Unix socket in its pod: its own format.
//!
//! A request is one line of JSON, at most [`LONGEST_REQUEST`] bytes. So is the answer; the open files that belong to it travel with its
//! first byte (`SCM_RIGHTS`), in the order of [`Link::files`] or [`CpuGroup::files`]. A connection carries one request. The service determines the pod
//! from the process at the other end, and the VM from the API: a request names neither.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// The newest version of the protocol, and the only one. What was added to it since: [`Wants::Cpu`]; a service that has not got it
/// refuses the request, and its VM runs without.
pub const VERSION: u32 = 1;
/// Where the socket's directory is mounted in a pod.
pub const SOCKET_DIRECTORY: &str = "/run/neonvm-node";
/// Name of the socket in its directory.
pub const SOCKET: &str = "node.sock";
/// Resource of nodes whose pods get the socket, as pods request it.
pub const RESOURCE: &str = "neonvm/node";
/// Bytes of the longest request.
pub const LONGEST_REQUEST: usize = 4 << 10;
/// Bytes of the longest answer.
pub const LONGEST_ANSWER: usize = 64 << 10;

/// Address of the guest on the link between it and its pod.
pub const GUEST: Ipv4Addr = Ipv4Addr::new(169, 254, 254, 254);
/// Address of the pod on that link: gateway and DHCP server of the guest.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 254, 253);
/// Length of the prefix of both.
pub const PREFIX: u8 = 30;
/// Name of the pod's end of the link.
pub const TAP: &str = "tap-def";
/// Hardware address of the pod's end: the same in every pod, so that the guest's neighbour table stays right after a migration.
pub const TAP_HARDWARE: [u8; 6] = [0x02, 0x6e, 0x65, 0x6f, 0x6e, 0x01];
/// Name of the device that connects the guest to the overlay, in its pod.
pub const OVERLAY_TAP: &str = "tap-overlay";
/// Frames that are queued at that device for a guest that is paused, such as one that is just arriving. About 10 MB.
pub const WAITING_FRAMES: u32 = 4096;

/// Hardware address of the guest on the link: locally administered, made of the UID of the VM, so that it stays the same across
/// migrations.
#[must_use]
pub fn guest_hardware(uid: &str) -> [u8; 6] {
    // FNV-1a: any spread will do, it only has to be the same everywhere.
    let hash = uid.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let [_, _, _, a, b, c, d, e] = hash.to_be_bytes();
    [0x02, a, b, c, d, e]
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Version of the protocol; another one than [`VERSION`] is refused.
    pub version: u32,
    /// What is requested.
    pub wants: Wants,
}

/// What can be requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Wants {
    /// The guest's network: its devices, with all that is around them in the pod. Once for each pod.
    Network,
    /// The counters of the guest's traffic, if the VM has its traffic counted.
    Traffic,
    /// The cgroup that holds the threads of the vCPUs to a part of a CPU.
    Cpu,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// The network; its files come with it.
    Network(Link),
    /// The counters.
    Traffic(Traffic),
    /// The cgroup; its files come with it.
    Cpu(CpuGroup),
    /// Nothing is given.
    Refused(Refusal),
}

/// Why a runner gets nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// For people.
    pub reason: String,
    /// Whether the same request can succeed later.
    #[serde(default)]
    pub later: bool,
}

/// The link between guest and pod, and the guest's end of the overlay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// The files that come with the answer, in their order.
    pub files: Vec<LinkFile>,
    /// Greatest packet of the pod's network, in bytes.
    pub mtu: u16,
    /// Servers for names, in this order.
    pub name_servers: Vec<Ipv4Addr>,
    /// The same in IPv6.
    pub name_servers_v6: Vec<Ipv6Addr>,
    /// Domains in which names without a dot are looked up.
    pub search: Vec<String>,
    /// The pod's address on the link in IPv6, whose first 64 bits are the prefix of the link; absent: the guest gets no IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_v6: Option<Ipv6Addr>,
    /// Greatest packet of the overlay, in bytes, if the guest is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlay_mtu: Option<u16>,
    /// What could not be made and can be done without, for the log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// An open file of a [`Link`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LinkFile {
    /// The tap device of the link.
    Tap,
    /// A UDP socket, bound to DHCP's port at the link.
    Dhcp,
    /// A raw socket of ICMPv6 at the link, for router advertisements.
    Advertisements,
    /// The tap device of the overlay.
    OverlayTap,
    /// A packet socket that is not bound yet, for copies of the frames for the guest on the overlay.
    OverlayCopies,
}

/// A cgroup for threads, as its open files. The kernel checks a write with the rights of who opened the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuGroup {
    /// Version of cgroups, whose files have other names and values.
    pub version: CgroupVersion,
    /// The files that come with the answer, in their order.
    pub files: Vec<CpuFile>,
}

/// Version of cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CgroupVersion {
    /// A hierarchy for each controller.
    V1,
    /// One hierarchy.
    V2,
}

/// An open file of a [`CpuGroup`]: its name in version 2, then in version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CpuFile {
    /// `cgroup.threads`, `tasks`: a thread whose number is written joins.
    Threads,
    /// `cpu.max`, `cpu.cfs_quota_us`.
    Quota,
    /// `cpu.cfs_period_us` of version 1.
    Period,
    /// `cpu.weight`, `cpu.shares`.
    Weight,
    /// `cpu.stat`, for reading.
    Statistics,
}

/// Bytes of TCP that the guest exchanged with addresses that are neither private nor loopback, since its link was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Traffic {
    /// To the guest.
    pub ingress: u64,
    /// From the guest.
    pub egress: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses_are_stable_and_local() {
        let one = guest_hardware("5f0c2f3a-7d3e-4f0e-9b1c-5f3d2a1b0c9d");
        assert_eq!(one, guest_hardware("5f0c2f3a-7d3e-4f0e-9b1c-5f3d2a1b0c9d"));
        assert_ne!(one, guest_hardware("5f0c2f3a-7d3e-4f0e-9b1c-5f3d2a1b0c9e"));
        assert_eq!(one[0] & 3, 2);
    }

    #[test]
    fn messages_have_their_form_on_the_wire() {
        let request = Request { version: VERSION, wants: Wants::Network };
        assert_eq!(serde_json::to_string(&request).unwrap(), r#"{"version":1,"wants":"network"}"#);
        let answer = Answer::Refused(Refusal { reason: "the pod is being deleted".into(), later: false });
        assert_eq!(
            serde_json::to_string(&answer).unwrap(),
            r#"{"refused":{"reason":"the pod is being deleted","later":false}}"#
        );
        let request = Request { version: VERSION, wants: Wants::Cpu };
        assert_eq!(serde_json::to_string(&request).unwrap(), r#"{"version":1,"wants":"cpu"}"#);
        let files = vec![CpuFile::Threads, CpuFile::Statistics];
        let answer = Answer::Cpu(CpuGroup { version: CgroupVersion::V2, files });
        let text = r#"{"cpu":{"version":"v2","files":["threads","statistics"]}}"#;
        assert_eq!(serde_json::to_string(&answer).unwrap(), text);
        let link = r#"{"network":{"files":["tap","dhcp"],"mtu":1450,"nameServers":["10.0.0.10"],"nameServersV6":[],"search":[]}}"#;
        let Answer::Network(link) = serde_json::from_str(link).unwrap() else { panic!("a network") };
        assert_eq!((link.files, link.gateway_v6), (vec![LinkFile::Tap, LinkFile::Dhcp], None));
    }
}
