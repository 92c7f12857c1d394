//! The link between pod and guest: its tap device, addresses, forwarding, rules and sockets; and the guest's end of the overlay.

use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;

use neonvm_hypervisor::tap::Tap;
use neonvm_types::node_protocol::{GATEWAY, GUEST, Link, LinkFile, OVERLAY_TAP, PREFIX, TAP, TAP_HARDWARE};

use super::forwarding::{self, Kind};
use super::program::run;
use super::resolver::Resolver;
use super::{Addresses, Error, Interfaces, Paths, interfaces, nft, overlay, sockets};
use crate::decision::{OnOverlay, Order};

/// Prefix of the link's own IPv6 addresses (RFC 4193); seen by pod and guest only.
const V6_PREFIX: [u16; 4] = [0xfd6e, 0x656f, 0x6e00, 0];
/// Largest packet of Ethernet, if that of the pod is unknown.
const ETHERNET: u16 = 1500;

/// What was made so far.
#[derive(Default)]
struct Files(Vec<(LinkFile, OwnedFd)>);

impl Files {
    fn add(&mut self, kind: LinkFile, file: impl Into<OwnedFd>) {
        self.0.push((kind, file.into()));
    }
}

/// Makes it in the network namespace of this thread.
pub(super) fn make(order: &Order, names: Resolver, paths: &Paths) -> Result<(Link, Vec<OwnedFd>), Error> {
    let there = interfaces()?;
    let uplink = uplink(&read("/proc/thread-self/net/route"), &read("/proc/thread-self/net/dev"))
        .ok_or(Error::NoInterface)?;
    let mtu = there.get(&uplink).copied().unwrap_or(ETHERNET);
    let mut notes = Vec::new();
    let mut guest_v6 =
        has_v6(&read("/proc/thread-self/net/if_inet6"), &uplink).then(|| v6_of(order.hardware));
    if guest_v6.is_some() && !forwarding::v6(&paths.parameters) {
        // A guest without forwarding would have addresses that lead nowhere; it gets none.
        guest_v6 = None;
        notes.push(
            "the guest gets no IPv6: net.ipv6.conf.all.forwarding is 0 in the pod and cannot be set"
                .to_owned(),
        );
    }
    let mut files = Files::default();
    let tap = Tap::open_by(&paths.tun, TAP).map_err(Error::Tap)?;
    for (interface, kind) in [(uplink.as_str(), Kind::Forward), (TAP, Kind::ForwardAndLoopback)] {
        let what = format!("cannot forward packets at {interface}");
        forwarding::set(interface, kind).map_err(Error::system(&what))?;
    }
    run("ip", &["-batch", "-"], &addresses(order.hardware, mtu, guest_v6.is_some()))?;
    let closed = (!order.open).then_some(&names);
    run("nft", &["-f", "-"], &nft::rules(&uplink, &order.forwards, guest_v6, closed, order.counted))?;
    files.add(LinkFile::Tap, tap.0);
    files.add(LinkFile::Dhcp, sockets::dhcp()?);
    if guest_v6.is_some() {
        files.add(LinkFile::Advertisements, sockets::advertisements()?);
    }
    let overlay =
        order.overlay.as_ref().map(|on| join(on, &there, paths, &mut files, &mut notes)).transpose()?;
    let (kinds, files) = files.0.into_iter().unzip();
    let link = Link {
        files: kinds,
        mtu,
        name_servers: names.v4,
        name_servers_v6: names.v6,
        search: names.search,
        gateway_v6: guest_v6.map(|_| v6_gateway()),
        overlay_mtu: overlay,
        notes,
    };
    Ok((link, files))
}

/// Greatest packet of the overlay.
fn join(
    on: &OnOverlay,
    there: &Interfaces,
    paths: &Paths,
    files: &mut Files,
    notes: &mut Vec<String>,
) -> Result<u16, Error> {
    let guest = Addresses { hardware: on.hardware, ip: on.ip };
    let made = overlay::join(&on.interface, there, guest, &paths.tun)?;
    files.add(LinkFile::OverlayTap, made.tap.0);
    match sockets::copies(OVERLAY_TAP) {
        Ok(socket) => files.add(LinkFile::OverlayCopies, socket),
        Err(error) => {
            notes.push(format!("a migration may cost the guest frames: they cannot be copied: {error}"));
        }
    }
    Ok(made.mtu)
}

/// Lines for `ip` that set up the pod's end.
fn addresses(hardware: [u8; 6], mtu: u16, v6: bool) -> String {
    let text = |bytes: [u8; 6]| bytes.map(|byte| format!("{byte:02x}")).join(":");
    let mut lines = format!(
        "link set dev {TAP} address {} mtu {mtu} up\naddress add {GATEWAY}/{PREFIX} dev {TAP}\n",
        text(TAP_HARDWARE)
    );
    // The guest's hardware address is ours to choose, so the kernel need not resolve it: a request before the guest has a network
    // would make its address unknown for a second.
    lines.push_str(&format!("neighbour replace {GUEST} lladdr {} nud permanent dev {TAP}\n", text(hardware)));
    if v6 {
        lines.push_str(&format!("address add {}/64 dev {TAP} nodad\n", v6_gateway()));
    }
    lines
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The interface with the default route, or else the first one besides loopback.
fn uplink(routes: &str, devices: &str) -> Option<String> {
    let default = routes.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        (words.next()? == "00000000").then(|| name.to_owned())
    });
    default.or_else(|| {
        let names = devices.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
        names.filter(|name| *name != "lo" && *name != TAP).map(str::to_owned).next()
    })
}

/// Whether an interface has an IPv6 address of global scope (`00` in the fourth column of `/proc/net/if_inet6`).
fn has_v6(addresses: &str, interface: &str) -> bool {
    addresses.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(3) == Some(&"00") && words.last() == Some(&interface)
    })
}

fn v6(host: u64) -> Ipv6Addr {
    let [a, b, c, d] = V6_PREFIX;
    let prefix = u128::from(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0));
    Ipv6Addr::from(prefix | u128::from(host))
}

fn v6_gateway() -> Ipv6Addr {
    v6(1)
}

/// The address that the guest gives itself: modified EUI-64 of its hardware address (RFC 4291, appendix A).
fn v6_of(hardware: [u8; 6]) -> Ipv6Addr {
    let [a, b, c, d, e, f] = hardware;
    v6(u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_of_the_pod_is_found_whatever_its_name() {
        let routes = "Iface\tDestination\tGateway\nens5\t0A000000\t0\nens3\t00000000\t0102A8C0\n";
        assert_eq!(uplink(routes, "").as_deref(), Some("ens3"));
        let devices = "Inter-| Receive\n face |bytes\n    lo: 1 2\ntap-def: 0\n  net7: 3\n";
        assert_eq!(uplink("Iface\n", devices).as_deref(), Some("net7"));
        assert_eq!(uplink("", " lo: 1\n"), None);
    }

    #[test]
    fn global_addresses_of_the_interface_count() {
        let text = "00000000000000000000000000000001 01 80 10 80       lo\n\
                    fe800000000000000000000000000001 02 40 20 80     eth0\n\
                    20010db8000000000000000000000001 03 40 00 80     eth1\n";
        assert!(has_v6(text, "eth1") && !has_v6(text, "eth0") && !has_v6("", "eth0"));
    }

    #[test]
    fn the_guests_own_address_is_known() {
        let address = v6_of([0x02, 0x12, 0x34, 0x56, 0x78, 0x9a]);
        assert_eq!(address, "fd6e:656f:6e00:0:12:34ff:fe56:789a".parse::<Ipv6Addr>().unwrap());
    }
}
