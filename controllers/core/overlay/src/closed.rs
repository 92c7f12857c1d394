//! Addresses and ports that nothing of a tenant reaches unless an administrator allows it: guests, by the rules of their pods, and
//! endpoints that the pod-autoscaler reads for the author of a `PodAutoscaler`.
//!
//! An IPv6 address that a gateway or a host translates to an IPv4 address is that address in another spelling ([`SPELLINGS`]).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Net;

/// TCP ports of kubelets, at any address, since a kubelet listens on all of its node: its interface, and the old one without
/// authentication.
pub const KUBELET_PORTS: [u16; 2] = [10250, 10255];

/// Networks in `ADDRESS/PREFIX` form.
pub const NETWORKS: &[&str] = &[
    // This host, loopback, link-local (with the metadata services of most clouds), multicast, reserved and broadcast.
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/4",
    "240.0.0.0/4",
    // Metadata and host services elsewhere: Alibaba, Oracle, Azure.
    "100.100.100.200/32",
    "192.0.0.192/32",
    "168.63.129.16/32",
    // Unspecified, loopback, link-local, site-local, multicast.
    "::/128",
    "::1/128",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
    // Metadata: AWS with containers and pods, Google, Oracle, Scaleway, Akamai.
    "fd00:ec2::/32",
    "fd20:ce::254/128",
    "fd00:c1::a9fe:a9fe/128",
    "fd00:42::42/128",
    "fd00:a9fe:a9fe::1/128",
];

/// A form of IPv6 addresses that stand for IPv4 addresses.
#[derive(Clone, Copy, Debug)]
struct Spelling {
    /// What all of them begin with, and how many bits of it.
    prefix: Ipv6Addr,
    length: u32,
    /// Bits behind the IPv4 address.
    behind: u32,
    inverted: bool,
}

const fn spelling(prefix: [u16; 6], length: u32, behind: u32) -> Spelling {
    let [a, b, c, d, e, f] = prefix;
    Spelling { prefix: Ipv6Addr::new(a, b, c, d, e, f, 0, 0), length, behind, inverted: false }
}

/// IPv4-compatible and IPv4-mapped (RFC 4291), IPv4-translated (RFC 2765), NAT64 (RFC 6052, RFC 8215), 6to4 (RFC 3056), Teredo (RFC 4380).
const SPELLINGS: [Spelling; 7] = [
    spelling([0; 6], 96, 0),
    spelling([0, 0, 0, 0, 0, 0xffff], 96, 0),
    spelling([0, 0, 0, 0, 0xffff, 0], 96, 0),
    spelling([0x64, 0xff9b, 0, 0, 0, 0], 96, 0),
    spelling([0x64, 0xff9b, 1, 0, 0, 0], 48, 0),
    spelling([0x2002, 0, 0, 0, 0, 0], 16, 80),
    Spelling { inverted: true, ..spelling([0x2001, 0, 0, 0, 0, 0], 32, 0) },
];

impl Spelling {
    const fn mask(&self) -> u128 {
        !(u128::MAX >> self.length)
    }

    /// The IPv4 address that an address of this form stands for.
    fn read(&self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        let is_of = (address.to_bits() ^ self.prefix.to_bits()) & self.mask() == 0;
        let bits = u32::try_from((address.to_bits() >> self.behind) & u128::from(u32::MAX)).ok()?;
        is_of.then(|| Ipv4Addr::from_bits(if self.inverted { !bits } else { bits }))
    }

    /// The addresses that stand for those of a network.
    fn write(&self, net: Net) -> Option<Pattern> {
        let (IpAddr::V4(first), IpAddr::V4(mask)) = (net.at(0)?, net.mask()) else { return None };
        let bits = if self.inverted { !first.to_bits() & mask.to_bits() } else { first.to_bits() };
        Some(Pattern {
            value: Ipv6Addr::from_bits(self.prefix.to_bits() | u128::from(bits) << self.behind),
            mask: Ipv6Addr::from_bits(self.mask() | u128::from(mask.to_bits()) << self.behind),
        })
    }
}

/// Addresses that are equal to a value where a mask has ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Zero where the mask is.
    pub value: Ipv6Addr,
    /// Not all of its ones are at the beginning.
    pub mask: Ipv6Addr,
}

pub fn networks() -> impl Iterator<Item = Net> {
    // A test parses them all.
    NETWORKS.iter().filter_map(|text| text.parse().ok())
}

/// All closed addresses of IPv6: its own networks, and those of IPv4 in every spelling.
pub fn patterns() -> impl Iterator<Item = Pattern> {
    networks().flat_map(|net| match (net.at(0), net.mask()) {
        (Some(IpAddr::V6(value)), IpAddr::V6(mask)) => vec![Pattern { value, mask }],
        _ => SPELLINGS.iter().filter_map(|spelling| spelling.write(net)).collect(),
    })
}

/// Where a connection to the address may end: there, and at the IPv4 addresses that it is a spelling of.
#[must_use]
pub fn forms(address: IpAddr) -> Vec<IpAddr> {
    let mut all = vec![address];
    // The unspecified address and loopback of IPv6 stand for no others.
    if let IpAddr::V6(six) = address
        && !six.is_unspecified()
        && !six.is_loopback()
    {
        all.extend(SPELLINGS.iter().filter_map(|spelling| Some(IpAddr::V4(spelling.read(six)?))));
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_closed(address: &str) -> bool {
        let address: IpAddr = address.parse().unwrap();
        let by_form = forms(address).iter().any(|form| networks().any(|net| net.contains(*form)));
        if let IpAddr::V6(six) = address {
            assert_eq!(by_form, matches(six), "{address}");
        }
        by_form
    }

    fn matches(address: Ipv6Addr) -> bool {
        patterns().any(|one| address.to_bits() & one.mask.to_bits() == one.value.to_bits())
    }

    #[test]
    fn every_network_can_be_read() {
        assert_eq!(networks().count(), NETWORKS.len());
        let v4 = NETWORKS.iter().filter(|text| text.contains('.')).count();
        assert_eq!(patterns().count(), NETWORKS.len() - v4 + v4 * SPELLINGS.len());
    }

    /// The first and the last address of each network, in each spelling.
    #[test]
    fn each_entry_is_closed_in_every_spelling() {
        for net in networks() {
            let last = (1_u128 << (net.family().bits() - net.length())) - 1;
            for address in [net.at(0).unwrap(), net.at(last).unwrap()] {
                assert!(is_closed(&address.to_string()), "{address}");
                let IpAddr::V4(four) = address else { continue };
                let [a, b, c, d] = four.octets();
                let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
                for text in [
                    format!("::{four}"),
                    format!("::{high:x}:{low:x}"),
                    format!("::ffff:{four}"),
                    format!("::ffff:0:{four}"),
                    format!("64:ff9b::{four}"),
                    format!("64:ff9b:1::{four}"),
                    format!("64:ff9b:1:2:3:4:{high:x}:{low:x}"),
                    format!("2002:{high:x}:{low:x}::"),
                    format!("2002:{high:x}:{low:x}:1:2:3:4:5"),
                    format!("2001:0:808:808:8000:1:{:x}:{:x}", !high, !low),
                ] {
                    // Some are no spellings, but addresses of IPv6 that are closed themselves.
                    assert!(is_closed(&text), "{text}");
                }
            }
        }
    }

    #[test]
    fn metadata_services_are_closed_and_the_rest_of_the_world_is_not() {
        for address in [
            "169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "169.254.42.42",
            "169.254.0.23",
            "100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
            "fe80::a9fe:a9fe",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "fd00:42::42",
            "fd00:a9fe:a9fe::1",
        ] {
            assert!(is_closed(address), "{address}");
        }
        for address in [
            "10.0.0.1",
            "10.244.1.7",
            "100.100.100.201",
            "172.16.0.1",
            "192.168.1.1",
            "192.0.0.191",
            "168.63.129.17",
            "8.8.8.8",
            "::ffff:10.244.1.7",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
            "2001:db8::1",
            "2600::1",
            "fd00::1",
            "fd20:ce::253",
        ] {
            assert!(!is_closed(address), "{address}");
        }
    }

    proptest! {
        /// The two ways to ask agree: patterns for rules, forms for a comparison.
        #[test]
        fn patterns_and_forms_agree(bits in any::<u128>(), net in 0..NETWORKS.len(), spelling in 0..SPELLINGS.len()) {
            // An address near a pattern, with some bits changed.
            let near = SPELLINGS[spelling].write(networks().nth(net).unwrap());
            let near = near.map_or(bits, |one| one.value.to_bits() | (bits & !one.mask.to_bits()));
            for address in [bits, near, near ^ (1 << (bits % 128))].map(Ipv6Addr::from_bits) {
                is_closed(&address.to_string());
            }
        }
    }
}
