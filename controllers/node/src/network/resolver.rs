//! Name servers and search list of the pod, from its `resolv.conf`. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What the guest gets for name resolution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Resolver {
    pub(super) v4: Vec<Ipv4Addr>,
    pub(super) v6: Vec<Ipv6Addr>,
    pub(super) search: Vec<String>,
}

/// Parses it. Servers on loopback are left out: the guest is another host and cannot reach them.
pub(super) fn parse(text: &str) -> Resolver {
    let mut resolver = Resolver::default();
    for line in text.lines() {
        let line = line.split(['#', ';']).next().unwrap_or_default();
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => match words.next().and_then(|word| word.split('%').next()?.parse().ok()) {
                Some(IpAddr::V4(server)) if !server.is_loopback() => resolver.v4.push(server),
                Some(IpAddr::V6(server)) if !server.is_loopback() => resolver.v6.push(server),
                _ => {}
            },
            // The last one counts.
            Some("search" | "domain") => resolver.search = words.map(str::to_owned).collect(),
            _ => {}
        }
    }
    resolver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_servers_of_both_families_are_taken() {
        let text = "# x\nsearch a.b c\nnameserver 10.0.0.10\nnameserver fe80::1%eth0\nnameserver 127.0.0.53\n\
                    nameserver nonsense\nnameserver\nnameserver 8.8.8.8 ; y\n";
        let resolver = parse(text);
        assert_eq!(resolver.v4, [Ipv4Addr::new(10, 0, 0, 10), Ipv4Addr::new(8, 8, 8, 8)]);
        assert_eq!(resolver.v6.len(), 1);
        assert_eq!(resolver.search, ["a.b", "c"]);
        assert_eq!(parse(""), Resolver::default());
    }
}
