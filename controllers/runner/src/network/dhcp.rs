//! A DHCP server for one client: it always gives the same address, for ever. Pure; the socket is in `router.rs`.
//!
//! Wire format: RFC 2131; options of RFC 2132 (1 mask, 3 router, 6 name servers, 12 host name, 26 MTU, 51 lease, 53 kind, 54
//! server) and RFC 3397 (119 search list, not compressed).

use std::net::Ipv4Addr;

const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Bytes before the options.
const HEAD: usize = 236;
/// Shorter messages may be dropped on the way (RFC 1542 §2.1).
const SHORTEST: usize = 300;

/// What the client gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) hardware: [u8; 6],
    pub(crate) address: Ipv4Addr,
    pub(crate) mask: Ipv4Addr,
    pub(crate) gateway: Ipv4Addr,
    pub(crate) name_servers: Vec<Ipv4Addr>,
    pub(crate) search: Vec<String>,
    pub(crate) mtu: u16,
    pub(crate) hostname: String,
}

/// The answer to a message, if it gets one.
pub(crate) fn answer(message: &[u8], lease: &Lease) -> Option<Vec<u8>> {
    let query = Query::parse(message)?;
    if query.hardware != lease.hardware || query.server.is_some_and(|server| server != lease.gateway) {
        return None;
    }
    let wanted = query.requested.or(query.current);
    let kind = match query.kind {
        1 => 2,
        3 if wanted.is_some_and(|address| address != lease.address) => 6,
        3 => 5,
        // Inform: settings without an address.
        8 => 5,
        _ => return None,
    };
    let mut bytes = vec![2, 1, 6, 0];
    bytes.extend(query.exchange);
    bytes.extend([0, 0, 0x80, 0]);
    bytes.extend(query.current.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
    let given = if kind == 6 || query.kind == 8 { Ipv4Addr::UNSPECIFIED } else { lease.address };
    bytes.extend(given.octets());
    bytes.extend(lease.gateway.octets());
    bytes.resize(28, 0);
    bytes.extend(query.hardware);
    bytes.resize(HEAD, 0);
    bytes.extend(COOKIE);
    option(&mut bytes, 53, &[kind]);
    option(&mut bytes, 54, &lease.gateway.octets());
    if kind != 6 {
        if query.kind != 8 {
            option(&mut bytes, 51, &u32::MAX.to_be_bytes());
        }
        settings(&mut bytes, lease);
    }
    bytes.push(255);
    bytes.resize(bytes.len().max(SHORTEST), 0);
    Some(bytes)
}

fn settings(bytes: &mut Vec<u8>, lease: &Lease) {
    option(bytes, 1, &lease.mask.octets());
    option(bytes, 3, &lease.gateway.octets());
    let servers: Vec<u8> = lease.name_servers.iter().flat_map(|server| server.octets()).collect();
    // An option holds 255 bytes; more servers than that are of no use to any resolver.
    option(bytes, 6, servers.get(..servers.len().min(252)).unwrap_or_default());
    option(bytes, 26, &lease.mtu.to_be_bytes());
    option(bytes, 12, lease.hostname.as_bytes());
    let search: Vec<u8> = lease.search.iter().filter_map(|name| labels(name)).flatten().collect();
    // Long options are split and joined again by the client (RFC 3396).
    for part in search.chunks(255) {
        option(bytes, 119, part);
    }
}

fn option(bytes: &mut Vec<u8>, code: u8, content: &[u8]) {
    if let (Ok(length), false) = (u8::try_from(content.len()), content.is_empty()) {
        bytes.extend([code, length]);
        bytes.extend(content);
    }
}

/// A name in DNS form. None if it is not one.
fn labels(name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for label in name.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length))?;
        bytes.push(length);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    (bytes.len() <= 255).then_some(bytes)
}

struct Query {
    kind: u8,
    exchange: [u8; 4],
    current: Option<Ipv4Addr>,
    hardware: [u8; 6],
    requested: Option<Ipv4Addr>,
    server: Option<Ipv4Addr>,
}

impl Query {
    fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.get(..3)? != [1, 1, 6] || bytes.get(HEAD..HEAD + 4)? != COOKIE {
            return None;
        }
        let current: [u8; 4] = bytes.get(12..16)?.try_into().ok()?;
        let current = Some(Ipv4Addr::from(current)).filter(|address| !address.is_unspecified());
        let mut query = Self {
            kind: 0,
            exchange: bytes.get(4..8)?.try_into().ok()?,
            current,
            hardware: bytes.get(28..34)?.try_into().ok()?,
            requested: None,
            server: None,
        };
        let mut rest = bytes.get(HEAD + 4..)?;
        while let Some((&code, after)) = rest.split_first() {
            if code == 255 {
                break;
            }
            if code == 0 {
                rest = after;
                continue;
            }
            let (&length, after) = after.split_first()?;
            let content = after.get(..usize::from(length))?;
            rest = after.get(usize::from(length)..)?;
            let address = || <[u8; 4]>::try_from(content).ok().map(Ipv4Addr::from);
            match code {
                53 => query.kind = *content.first()?,
                50 => query.requested = address(),
                54 => query.server = address(),
                _ => {}
            }
        }
        Some(query)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lease() -> Lease {
        Lease {
            hardware: [2, 0, 0, 0, 0, 1],
            address: super::super::GUEST,
            mask: Ipv4Addr::new(255, 255, 255, 252),
            gateway: super::super::GATEWAY,
            name_servers: vec![[10, 96, 0, 10].into(), [1, 1, 1, 1].into()],
            search: vec!["default.svc.cluster.local".into(), "bad..name".into()],
            mtu: 1450,
            hostname: "vm-pod".into(),
        }
    }

    fn query(kind: u8, options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![1, 1, 6, 0, 1, 2, 3, 4];
        bytes.resize(28, 0);
        bytes.extend(lease().hardware);
        bytes.resize(HEAD, 0);
        bytes.extend(COOKIE);
        bytes.extend([53, 1, kind]);
        bytes.extend(options);
        bytes.push(255);
        bytes
    }

    fn options(bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let (mut rest, mut all) = (&bytes[HEAD + 4..], Vec::new());
        while rest[0] != 255 {
            let length = usize::from(rest[1]);
            all.push((rest[0], rest[2..2 + length].to_vec()));
            rest = &rest[2 + length..];
        }
        all
    }

    #[test]
    fn discover_is_offered_everything_the_pod_knows() {
        let offer = answer(&query(1, &[]), &lease()).unwrap();
        assert_eq!(offer[..8], [2, 1, 6, 0, 1, 2, 3, 4]);
        assert_eq!(offer[16..20], [169, 254, 254, 254]);
        assert!(offer.len() >= SHORTEST);
        let options = options(&offer);
        let of = |code| options.iter().find(|(c, _)| *c == code).map(|(_, content)| content.as_slice());
        assert_eq!(of(53), Some(&[2][..]));
        assert_eq!(of(6), Some(&[10, 96, 0, 10, 1, 1, 1, 1][..]));
        assert_eq!(of(26), Some(&[5, 170][..]));
        assert_eq!(of(51), Some(&[255; 4][..]));
        assert_eq!(of(12), Some(&b"vm-pod"[..]));
        assert_eq!(of(119), Some(&b"\x07default\x03svc\x07cluster\x05local\0"[..]));
    }

    #[test]
    fn requests_for_another_address_are_refused_and_other_servers_left_alone() {
        let kind = |bytes: Vec<u8>| options(&bytes)[0].1[0];
        assert_eq!(kind(answer(&query(3, &[50, 4, 169, 254, 254, 254]), &lease()).unwrap()), 5);
        assert_eq!(kind(answer(&query(3, &[50, 4, 10, 0, 0, 1]), &lease()).unwrap()), 6);
        assert_eq!(answer(&query(3, &[54, 4, 10, 0, 0, 1]), &lease()), None);
        let mut stranger = query(1, &[]);
        stranger[33] = 9;
        assert_eq!(answer(&stranger, &lease()), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..400), options in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = answer(&bytes, &lease());
            let _ = answer(&query(3, &options), &lease());
        }
    }
}
