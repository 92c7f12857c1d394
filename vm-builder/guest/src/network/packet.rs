//! DHCP messages (RFC 2131, options of RFC 2132, 3396, 3397 and 3442), read and written by `dhcproto`.
//!
//! Of the library's ways to read a message the lazy one is used: only options that were requested are decoded, since those of
//! no concern may be wrong, for which it has debug assertions. It trusts a message's length of hardware addresses: see `parse`.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

pub use dhcproto::v4::MessageType as Kind;
use dhcproto::v4::borrowed::{self, DhcpOptionIterator};
use dhcproto::v4::{
    DhcpOption, EncodeResult, Flags, HType, MAGIC, MIN_PACKET_SIZE, Message, Opcode, OptionCode,
    encode_long_opt_bytes,
};
use dhcproto::{Decodable as _, Encodable as _, Encoder, Name};

/// Bytes before the cookie.
const HEAD: usize = 236;
/// Most names or routes that are taken from one message.
const MOST: usize = 64;
/// What we request, in the order in which it is sent.
const REQUESTED: [OptionCode; 11] = [
    OptionCode::SubnetMask,
    OptionCode::Router,
    OptionCode::DomainNameServer,
    OptionCode::Hostname,
    OptionCode::DomainName,
    OptionCode::InterfaceMtu,
    OptionCode::AddressLeaseTime,
    OptionCode::Renewal,
    OptionCode::Rebinding,
    OptionCode::DomainSearch,
    OptionCode::ClasslessStaticRoute,
];
/// Largest message we take, in bytes.
const LARGEST: u16 = 1500;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// [`Kind::Discover`] or [`Kind::Request`].
    pub kind: Kind,
    pub exchange: u32,
    /// Seconds since it began.
    pub seconds: u16,
    pub hardware: [u8; 6],
    /// The address we have, when renewing.
    pub current: Option<Ipv4Addr>,
    pub requested: Option<Ipv4Addr>,
    pub server: Option<Ipv4Addr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub kind: Kind,
    pub exchange: u32,
    pub hardware: [u8; 6],
    pub server: Option<Ipv4Addr>,
    pub offer: Offer,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub address: Ipv4Addr,
    /// Length of the prefix, 0–32.
    pub prefix: u8,
    /// Destination, prefix and router; a router of 0.0.0.0 means the link itself.
    pub routes: Vec<(Ipv4Addr, u8, Ipv4Addr)>,
    pub name_servers: Vec<Ipv4Addr>,
    pub search: Vec<String>,
    pub hostname: Option<String>,
    /// MTU, at least 576.
    pub mtu: Option<u32>,
    /// Seconds the lease lasts; None: for ever.
    pub lease: Option<u32>,
    /// Seconds until it is renewed.
    pub renewal: Option<u32>,
    /// Seconds until the renewal is sent to any server.
    pub rebinding: Option<u32>,
}

impl Query {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        // A buffer that grows takes every message.
        self.encoded().unwrap_or_default()
    }

    fn encoded(&self) -> EncodeResult<Vec<u8>> {
        let mut options = vec![
            DhcpOption::MessageType(self.kind),
            DhcpOption::ClientIdentifier([&[1], &self.hardware[..]].concat()),
        ];
        options.extend(self.requested.map(DhcpOption::RequestedIpAddress));
        options.extend(self.server.map(DhcpOption::ServerIdentifier));
        options.push(DhcpOption::MaxMessageSize(LARGEST));
        options.push(DhcpOption::ParameterRequestList(REQUESTED.to_vec()));
        options.push(DhcpOption::End);
        let mut bytes = Vec::with_capacity(MIN_PACKET_SIZE);
        let mut encoder = Encoder::new(&mut bytes);
        if let Some(mut message) = blank() {
            let flags = Flags::default();
            message.set_opcode(Opcode::BootRequest).set_htype(HType::Eth).set_chaddr(&self.hardware);
            message.set_xid(self.exchange).set_secs(self.seconds);
            // Without an address we can only receive broadcasts.
            message.set_flags(if self.current.is_none() { flags.set_broadcast() } else { flags });
            message.set_ciaddr(self.current.unwrap_or(Ipv4Addr::UNSPECIFIED));
            message.encode(&mut encoder)?;
        }
        options.iter().try_for_each(|option| option.encode(&mut encoder))?;
        bytes.resize(bytes.len().max(MIN_PACKET_SIZE), 0);
        Ok(bytes)
    }
}

/// A message of zeros. The library's own new messages wait for random numbers, which a VM that boots may not have.
fn blank() -> Option<Message> {
    Message::from_bytes(&[&[0; HEAD][..], &MAGIC].concat()).ok()
}

impl Reply {
    /// Reads a message of a server. None if it is none, or holds no usable address.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let message = borrowed::Message::new(bytes).ok()?;
        let is_ours =
            (message.opcode(), message.htype(), message.hlen()) == (Opcode::BootReply, HType::Eth, 6);
        if !is_ours || !bytes.get(HEAD..)?.starts_with(&MAGIC) {
            return None;
        }
        let (mut kind, mut server) = (None, None);
        let mut offer = Offer::from_address(message.yiaddr());
        let (mut router, mut name) = (None, None);
        for option in options(bytes)? {
            match option {
                DhcpOption::MessageType(value) => kind = Some(value),
                DhcpOption::ServerIdentifier(value) => server = Some(value),
                DhcpOption::Router(value) => router = value.first().copied(),
                DhcpOption::DomainName(value) => name = domain(&value),
                option => offer.take(option),
            }
        }
        // With classless routes the router option is ignored (RFC 3442).
        if offer.routes.is_empty() {
            offer.routes.extend(router.map(|router| (Ipv4Addr::UNSPECIFIED, 0, router)));
        }
        if offer.search.is_empty() {
            offer.search.extend(name);
        }
        let kind = kind.filter(|kind| matches!(kind, Kind::Offer | Kind::Ack | Kind::Nak))?;
        let address = offer.address;
        let is_usable = !address.is_unspecified() && !address.is_multicast() && !address.is_loopback();
        let hardware = *message.chaddr().first_chunk()?;
        (is_usable || kind == Kind::Nak).then(|| Self {
            kind,
            exchange: message.xid(),
            hardware,
            server,
            offer,
        })
    }
}

/// The requested options of a message, with their parts joined (RFC 3396), wherever these are: option 52 has the fields for a
/// file name (1) and a server name (2) hold options, too.
fn options(bytes: &[u8]) -> Option<impl Iterator<Item = DhcpOption>> {
    let mut all = BTreeMap::<u8, Vec<u8>>::new();
    let mut read = |bytes| {
        for option in DhcpOptionIterator::new(bytes) {
            all.entry(option.code().into()).or_default().extend_from_slice(option.data());
        }
        all.get(&OptionCode::OptionOverload.into())
            .and_then(|value| value.first())
            .copied()
            .unwrap_or_default()
    };
    let overload = read(bytes.get(HEAD + MAGIC.len()..)?);
    for (bit, range) in [(1, 108..HEAD), (2, 44..108)] {
        if overload & bit != 0 {
            read(bytes.get(range)?);
        }
    }
    let mut joined = Vec::new();
    let mut encoder = Encoder::new(&mut joined);
    for (code, value) in all {
        let code = OptionCode::from(code);
        if REQUESTED.contains(&code) || matches!(code, OptionCode::MessageType | OptionCode::ServerIdentifier)
        {
            encode_long_opt_bytes(code, &value, &mut encoder).ok()?;
        }
    }
    let options: Vec<_> =
        DhcpOptionIterator::new(&joined).filter_map(|option| option.into_option().ok()).collect();
    Some(options.into_iter())
}

impl Offer {
    /// Only an address, with the prefix of its class.
    fn from_address(address: Ipv4Addr) -> Self {
        let prefix = match address.octets() {
            [0..=127, ..] => 8,
            [128..=191, ..] => 16,
            _ => 24,
        };
        let (routes, name_servers, search) = (Vec::new(), Vec::new(), Vec::new());
        let (hostname, mtu, lease, renewal, rebinding) = (None, None, None, None, None);
        Self { address, prefix, routes, name_servers, search, hostname, mtu, lease, renewal, rebinding }
    }

    fn take(&mut self, option: DhcpOption) {
        match option {
            DhcpOption::SubnetMask(mask) => self.prefix = mask.to_bits().leading_ones() as u8,
            DhcpOption::DomainNameServer(servers) => {
                self.name_servers = servers.into_iter().take(MOST).collect();
            }
            DhcpOption::Hostname(name) => self.hostname = domain(&name),
            DhcpOption::InterfaceMtu(mtu) => self.mtu = Some(u32::from(mtu)).filter(|mtu| *mtu >= 576),
            DhcpOption::AddressLeaseTime(seconds) => self.lease = Some(seconds).filter(|n| *n != u32::MAX),
            DhcpOption::Renewal(seconds) => self.renewal = Some(seconds),
            DhcpOption::Rebinding(seconds) => self.rebinding = Some(seconds),
            DhcpOption::DomainSearch(names) => {
                self.search =
                    names.iter().map(Name::to_ascii).filter_map(|name| domain(&name)).take(MOST).collect();
            }
            // Bits beyond the prefix would have the kernel refuse the route.
            DhcpOption::ClasslessStaticRoute(routes) => {
                let routes = routes.iter().map(|(to, router)| (to.network(), to.prefix_len(), *router));
                self.routes = routes.take(MOST).collect();
            }
            _ => {}
        }
    }
}

fn domain(name: &str) -> Option<String> {
    let text = name.trim_end_matches('\0').trim_end_matches('.');
    is_domain(text).then(|| text.to_owned())
}

/// Whether it may be written into `resolv.conf` and be a host name: no white space or other surprises.
fn is_domain(text: &str) -> bool {
    let fits = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    text.len() <= 253 && !text.is_empty() && text.split('.').all(fits)
}

#[cfg(test)]
#[path = "packet/tests.rs"]
mod tests;
