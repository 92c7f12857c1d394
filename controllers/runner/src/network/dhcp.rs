//! A DHCP server for one client: it always gives the same address, for ever. Pure; the socket is in `router.rs`.
//!
//! Messages are read and written by `dhcproto`. Options that do not matter are not decoded: they are the guest's, and the library
//! has debug assertions about some. The search list (RFC 3397) is written here, since the library's would be compressed, which
//! not every client reads.

use std::net::Ipv4Addr;

use dhcproto::v4::{
    DhcpOption, EncodeResult, Flags, HType, MAGIC, MIN_PACKET_SIZE, Message, MessageType, Opcode, OptionCode,
    borrowed, encode_long_opt_bytes,
};
use dhcproto::{Decodable as _, Encodable as _, Encoder};

/// Bytes before the cookie.
const HEAD: usize = 236;
/// Most name servers that are sent: more are of no use to any resolver.
const MOST_SERVERS: usize = 63;

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
    let query = borrowed::Message::new(message).ok()?;
    let is_query = (query.opcode(), query.htype(), query.hlen()) == (Opcode::BootRequest, HType::Eth, 6);
    if !is_query || query.chaddr() != lease.hardware {
        return None;
    }
    let (mut wanted, mut kind) = (Some(query.ciaddr()).filter(|address| !address.is_unspecified()), None);
    // Without a cookie there are no options, thus no kind.
    let options = query.opts().filter(|option| matters(option.code()));
    for option in options.filter_map(|option| option.into_option().ok()) {
        match option {
            DhcpOption::MessageType(value) => kind = Some(value),
            DhcpOption::RequestedIpAddress(address) => wanted = Some(address),
            DhcpOption::ServerIdentifier(server) if server != lease.gateway => return None,
            _ => {}
        }
    }
    let is_inform = kind == Some(MessageType::Inform);
    let kind = match kind? {
        MessageType::Discover => MessageType::Offer,
        MessageType::Request if wanted.is_some_and(|address| address != lease.address) => MessageType::Nak,
        // Inform: settings without an address.
        MessageType::Request | MessageType::Inform => MessageType::Ack,
        _ => return None,
    };
    let mut reply = Message::from_bytes(&[&[0; HEAD][..], &MAGIC].concat()).ok()?;
    reply
        .set_opcode(Opcode::BootReply)
        .set_htype(HType::Eth)
        .set_chaddr(&lease.hardware)
        .set_xid(query.xid());
    reply.set_flags(Flags::default().set_broadcast()).set_ciaddr(query.ciaddr()).set_siaddr(lease.gateway);
    let mut options = vec![DhcpOption::MessageType(kind), DhcpOption::ServerIdentifier(lease.gateway)];
    if kind != MessageType::Nak {
        if !is_inform {
            reply.set_yiaddr(lease.address);
            options.push(DhcpOption::AddressLeaseTime(u32::MAX));
        }
        options.extend(settings(lease));
    }
    let search = lease.search.iter().filter(|_| kind != MessageType::Nak);
    let search: Vec<u8> = search.filter_map(|name| labels(name)).flatten().collect();
    encode(&reply, &options, &search).ok()
}

fn matters(code: OptionCode) -> bool {
    matches!(code, OptionCode::MessageType | OptionCode::RequestedIpAddress | OptionCode::ServerIdentifier)
}

fn settings(lease: &Lease) -> impl Iterator<Item = DhcpOption> {
    let servers: Vec<_> = lease.name_servers.iter().copied().take(MOST_SERVERS).collect();
    [
        Some(DhcpOption::SubnetMask(lease.mask)),
        Some(DhcpOption::Router(vec![lease.gateway])),
        Some(DhcpOption::DomainNameServer(servers)).filter(|_| !lease.name_servers.is_empty()),
        Some(DhcpOption::InterfaceMtu(lease.mtu)),
        Some(DhcpOption::Hostname(lease.hostname.clone())).filter(|_| !lease.hostname.is_empty()),
    ]
    .into_iter()
    .flatten()
}

/// Options in this order: clients expect the kind first. The library would sort them by code.
fn encode(message: &Message, options: &[DhcpOption], search: &[u8]) -> EncodeResult<Vec<u8>> {
    let mut bytes = Vec::with_capacity(MIN_PACKET_SIZE);
    let mut encoder = Encoder::new(&mut bytes);
    message.encode(&mut encoder)?;
    options.iter().try_for_each(|option| option.encode(&mut encoder))?;
    encode_long_opt_bytes(OptionCode::DomainSearch, search, &mut encoder)?;
    DhcpOption::End.encode(&mut encoder)?;
    bytes.resize(bytes.len().max(MIN_PACKET_SIZE), 0);
    Ok(bytes)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lease() -> Lease {
        Lease {
            hardware: [2, 0, 0, 0, 0, 1],
            address: neonvm_types::node_protocol::GUEST,
            mask: Ipv4Addr::new(255, 255, 255, 252),
            gateway: neonvm_types::node_protocol::GATEWAY,
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
        bytes.extend(MAGIC);
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
        assert!(offer.len() >= 300);
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

    #[test]
    fn long_lists_are_whole_and_options_that_do_not_matter_may_be_wrong() {
        let search: Vec<String> = (0..30).map(|n| format!("namespace-{n}.svc.cluster.local")).collect();
        let lease = Lease { search, name_servers: vec![[1, 1, 1, 1].into(); 80], ..lease() };
        let bytes = answer(&query(1, &[80, 1, 1, 81, 0, 94, 1, 0, 12, 1, 255]), &lease).unwrap();
        let length =
            |code| options(&bytes).iter().filter(|(c, _)| *c == code).map(|(_, part)| part.len()).sum();
        assert_eq!((length(6), length(119)), (252, (0..30).map(|n| if n < 10 { 31 } else { 32 }).sum()));
        assert_eq!(options(&bytes)[0], (53, vec![2]));
        let mut other = query(1, &[]);
        other[2] = 255;
        assert_eq!(answer(&other, &lease), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..400), options in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = answer(&bytes, &lease());
            let _ = answer(&query(3, &options), &lease());
        }
    }
}
