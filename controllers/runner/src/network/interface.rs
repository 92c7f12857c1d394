//! Makes the link between pod and guest: tap device, addresses, rules, DHCP and router advertisements.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use neonvm_types::guest::Network;

use super::dhcp::Lease;
use super::forwarding::{self, Kind};
use super::nft::{self, Forward};
use super::traffic::Meter;
use super::{Error, GATEWAY, GUEST, PREFIX, Reach, TAP_HARDWARE, TAP_NAME, Tap, resolver, router};

/// Prefix of the link's own IPv6 addresses (RFC 4193); seen by pod and guest only.
const V6_PREFIX: [u16; 4] = [0xfd6e, 0x656f, 0x6e00, 0];
/// Largest packet of Ethernet, if that of the pod is unknown.
const ETHERNET: u16 = 1500;
/// Time for a helper program.
const PROGRAM: Duration = Duration::from_secs(10);

/// Name of the guest in the pod.
const GUEST_NAME: &str = "guest-vm";

/// Gives the guest its name in a container's own `/etc/hosts`, for people and scripts inside it.
pub(crate) fn name_guest() {
    let path = "/etc/hosts";
    if read(path).contains(GUEST_NAME) {
        return;
    }
    let file = std::fs::OpenOptions::new().append(true).open(path);
    if let Err(error) = file.and_then(|mut file| writeln!(file, "{GUEST} {GUEST_NAME}")) {
        tracing::warn!(%error, "{GUEST_NAME} has no entry in {path}");
    }
}

/// What is to be made.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Ports of the guest that are reached at the pod.
    pub(crate) forwards: Vec<Forward>,
    /// Hardware address of the guest.
    pub(crate) hardware: [u8; 6],
    /// Name the guest gets.
    pub(crate) hostname: String,
    /// Whether kubelets and the addresses of [`neonvm_core_overlay::closed`] are open to the guest.
    pub(crate) open: bool,
    /// Whether the guest's traffic is counted.
    pub(crate) counted: bool,
}

/// The link, and the tasks that serve it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) tap: Tap,
    /// Greatest packet of the pod's network.
    pub(crate) mtu: u16,
    pub(crate) reach: Reach,
    /// What the guest gets of the link, by DHCP and beforehand.
    pub(crate) guest: Network,
    pub(crate) services: Vec<tokio::task::JoinHandle<()>>,
    /// Counters of the guest's traffic, if it is counted.
    pub(crate) meter: Option<Meter>,
}

/// The interfaces of the pod, each with its greatest packet.
pub(crate) type Interfaces = BTreeMap<String, u16>;

/// Not from `/sys`: what is mounted there may be of another network namespace.
pub(crate) fn interfaces() -> Result<Interfaces, Error> {
    Ok(run("ip", &["-o", "link", "show"], "")?.lines().filter_map(interface).collect())
}

/// `3: eth0@if4: <…> mtu 1450 …`
fn interface(line: &str) -> Option<(String, u16)> {
    let name = line.split(": ").nth(1)?.split('@').next()?.to_owned();
    let mut words = line.split_whitespace().skip_while(|word| *word != "mtu");
    // That of the loopback interface, 65536, is of no use here.
    Some((name, words.nth(1)?.parse().ok()?))
}

/// Makes the link. To be called in a runtime.
pub(crate) fn set_up(settings: &Settings, interfaces: &Interfaces) -> Result<Link, Error> {
    let uplink = uplink(&read("/proc/net/route"), &read("/proc/net/dev")).ok_or(Error::NoInterface)?;
    let mtu = interfaces.get(&uplink).copied().unwrap_or(ETHERNET);
    let names = resolver::parse(&read("/etc/resolv.conf"));
    let guest_v6 = has_v6(&read("/proc/net/if_inet6"), &uplink).then(|| v6_of(settings.hardware));
    let guest_v6 = guest_v6.filter(|_| forwards_v6());
    let tap = Tap::open(TAP_NAME)?;
    for (interface, kind) in [(uplink.as_str(), Kind::Forward), (TAP_NAME, Kind::ForwardAndLoopback)] {
        let what = || format!("cannot forward packets at {interface}");
        forwarding::set(interface, kind).map_err(|source| Error::System { what: what(), source })?;
    }
    let mut lines = format!("link set dev {TAP_NAME} address {TAP_HARDWARE} mtu {mtu} up\n");
    lines.push_str(&format!("address add {GATEWAY}/{PREFIX} dev {TAP_NAME}\n"));
    // The guest's hardware address is ours to choose, so the kernel need not resolve it: a request before the guest has a network
    // would make its address unknown for a second.
    let hardware: Vec<String> = settings.hardware.iter().map(|byte| format!("{byte:02x}")).collect();
    let hardware = hardware.join(":");
    lines.push_str(&format!("neighbour replace {GUEST} lladdr {hardware} nud permanent dev {TAP_NAME}\n"));
    if guest_v6.is_some() {
        lines.push_str(&format!("address add {}/64 dev {TAP_NAME} nodad\n", v6_gateway()));
    }
    run("ip", &["-batch", "-"], &lines)?;
    let closed = (!settings.open).then_some(&names);
    let rules = nft::rules(&uplink, &settings.forwards, guest_v6, closed, settings.counted);
    run("nft", &["-f", "-"], &rules)?;
    let meter = settings.counted.then(Meter::start).transpose();
    let meter =
        meter.map_err(|source| Error::System { what: "cannot start the network counters".into(), source })?;
    let guest = Network {
        address: GUEST,
        prefix: PREFIX,
        gateway: GATEWAY,
        name_servers: names.v4.clone(),
        search: names.search.clone(),
        mtu: Some(mtu),
    };
    let lease = Lease {
        hardware: settings.hardware,
        address: GUEST,
        mask: Ipv4Addr::from(u32::MAX << (32 - PREFIX)),
        gateway: GATEWAY,
        name_servers: names.v4,
        search: names.search.clone(),
        mtu,
        hostname: settings.hostname.clone(),
    };
    let mut services = vec![router::serve_dhcp(lease)?];
    if guest_v6.is_some() {
        services.push(router::advertise(&router::Advertisement {
            prefix: v6(1),
            mtu,
            name_servers: names.v6,
        })?);
    }
    Ok(Link { tap, mtu, guest, reach: Reach::Address(IpAddr::V4(GUEST)), services, meter })
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
        names.filter(|name| *name != "lo" && *name != TAP_NAME).map(str::to_owned).next()
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

/// A guest without forwarding would have addresses that lead nowhere; it gets none.
fn forwards_v6() -> bool {
    let does = forwarding::v6();
    if !does {
        tracing::warn!(
            "the guest gets no IPv6: net.ipv6.conf.all.forwarding is 0 in the pod, and only the node's network plugin can set it"
        );
    }
    does
}

/// Runs a program with text on its standard input; returns what it prints, which must fit into a pipe.
pub(super) fn run(program: &'static str, arguments: &[&str], input: &str) -> Result<String, Error> {
    let failed = |source| Error::System { what: format!("cannot run {program}"), source };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut pipe) = child.stdin.take() {
        pipe.write_all(input.as_bytes()).map_err(failed)?;
    }
    let start = Instant::now();
    while child.try_wait().map_err(failed)?.is_none() {
        if start.elapsed() > PROGRAM {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Error::Hangs { program });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::Program { program, output: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
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
    fn the_size_of_packets_is_that_of_the_pod() {
        let line = "2: eth0@if6: <UP> mtu 1440 qdisc noqueue\\    link/ether";
        assert_eq!(interface(line), Some(("eth0".to_owned(), 1440)));
        assert_eq!((interface("nonsense mtu"), interface("1: lo: <> mtu 65536 x")), (None, None));
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
