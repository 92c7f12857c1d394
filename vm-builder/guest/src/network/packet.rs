//! DHCP messages (RFC 2131, options of RFC 2132, 3396, 3397 and 3442).

use std::net::Ipv4Addr;

const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Bytes before the options.
const HEAD: usize = 236;
/// Servers and relays may drop shorter ones (RFC 1542 §2.1).
const SHORTEST: usize = 300;
/// Most names or routes that are taken from one message.
const MOST: usize = 64;

/// Kinds of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Searches for servers.
    Discover = 1,
    /// A server offers.
    Offer = 2,
    /// That one, please.
    Request = 3,
    /// It is yours.
    Ack = 5,
    /// It is not.
    Nak = 6,
}

/// What we send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// [`Kind::Discover`] or [`Kind::Request`].
    pub kind: Kind,
    /// Number of the exchange.
    pub exchange: u32,
    /// Seconds since it began.
    pub seconds: u16,
    /// Our hardware address.
    pub hardware: [u8; 6],
    /// The address we have, when renewing.
    pub current: Option<Ipv4Addr>,
    /// The requested address.
    pub requested: Option<Ipv4Addr>,
    /// The server we mean.
    pub server: Option<Ipv4Addr>,
}

/// A reply of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Offer, acknowledgement or refusal.
    pub kind: Kind,
    /// Number of the exchange.
    pub exchange: u32,
    /// Hardware address it is meant for.
    pub hardware: [u8; 6],
    /// The server that sent it.
    pub server: Option<Ipv4Addr>,
    /// What is offered.
    pub offer: Offer,
}

/// Settings for an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Address.
    pub address: Ipv4Addr,
    /// Length of the prefix, 0–32.
    pub prefix: u8,
    /// Destination, prefix and router; a router of 0.0.0.0 means the link itself.
    pub routes: Vec<(Ipv4Addr, u8, Ipv4Addr)>,
    /// Name servers.
    pub name_servers: Vec<Ipv4Addr>,
    /// Search list.
    pub search: Vec<String>,
    /// Name for this host.
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
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![1, 1, 6, 0];
        bytes.extend(self.exchange.to_be_bytes());
        bytes.extend(self.seconds.to_be_bytes());
        // Without an address we can only receive broadcasts.
        bytes.extend(if self.current.is_none() { [0x80, 0] } else { [0, 0] });
        bytes.extend(self.current.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
        bytes.resize(28, 0);
        bytes.extend(self.hardware);
        bytes.resize(HEAD, 0);
        bytes.extend(COOKIE);
        bytes.extend([53, 1, self.kind as u8]);
        bytes.extend([61, 7, 1]);
        bytes.extend(self.hardware);
        for (code, address) in [(50, self.requested), (54, self.server)] {
            if let Some(address) = address {
                bytes.extend([code, 4]);
                bytes.extend(address.octets());
            }
        }
        bytes.extend([57, 2, 5, 220]);
        bytes.extend([55, 11, 1, 3, 6, 12, 15, 26, 51, 58, 59, 119, 121]);
        bytes.push(255);
        bytes.resize(bytes.len().max(SHORTEST), 0);
        bytes
    }
}

impl Reply {
    /// Reads a message of a server. None if it is none, or holds no usable address.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (head, options) = bytes.split_at_checked(HEAD)?;
        let [2, 1, 6, _, rest @ ..] = head else { return None };
        let exchange = u32::from_be_bytes(*rest.first_chunk()?);
        let address = Ipv4Addr::from(*head.get(16..)?.first_chunk::<4>()?);
        let hardware = *head.get(28..)?.first_chunk()?;
        let options = Options::collect(options.strip_prefix(&COOKIE)?, head)?;
        let kind = match options.get(53)?.first()? {
            2 => Kind::Offer,
            5 => Kind::Ack,
            6 => Kind::Nak,
            _ => return None,
        };
        let offer = options.offer(address);
        if kind != Kind::Nak && (address.is_unspecified() || address.is_multicast() || address.is_loopback())
        {
            return None;
        }
        Some(Self { kind, exchange, hardware, server: options.address(54), offer })
    }
}

/// Contents by code; parts of one option are joined (RFC 3396).
struct Options(std::collections::BTreeMap<u8, Vec<u8>>);

impl Options {
    fn collect(options: &[u8], head: &[u8]) -> Option<Self> {
        let mut all = Self(std::collections::BTreeMap::new());
        all.read(options)?;
        // Option 52: the fields for a file name (1) and a server name (2) hold options, too.
        let overload = all.get(52).and_then(|value| value.first()).copied().unwrap_or_default();
        for (bit, range) in [(1, 108..236), (2, 44..108)] {
            if overload & bit != 0 {
                all.read(head.get(range)?)?;
            }
        }
        Some(all)
    }

    fn read(&mut self, mut rest: &[u8]) -> Option<()> {
        loop {
            match rest {
                [] | [255, ..] => return Some(()),
                [0, after @ ..] => rest = after,
                [code, length, after @ ..] => {
                    let (value, after) = after.split_at_checked(usize::from(*length))?;
                    self.0.entry(*code).or_default().extend_from_slice(value);
                    rest = after;
                }
                [_] => return None,
            }
        }
    }

    fn get(&self, code: u8) -> Option<&[u8]> {
        self.0.get(&code).map(Vec::as_slice)
    }

    fn number(&self, code: u8) -> Option<u32> {
        self.get(code)?.first_chunk().copied().map(u32::from_be_bytes)
    }

    fn address(&self, code: u8) -> Option<Ipv4Addr> {
        self.number(code).map(Ipv4Addr::from)
    }

    fn addresses(&self, code: u8) -> Vec<Ipv4Addr> {
        let value = self.get(code).unwrap_or_default();
        value
            .chunks_exact(4)
            .filter_map(|part| part.first_chunk::<4>())
            .map(|part| (*part).into())
            .take(MOST)
            .collect()
    }

    fn name(&self, code: u8) -> Option<String> {
        let text = std::str::from_utf8(self.get(code)?).ok()?.trim_end_matches('\0').trim_end_matches('.');
        is_domain(text).then(|| text.to_owned())
    }

    fn offer(&self, address: Ipv4Addr) -> Offer {
        let class = match address.octets() {
            [0..=127, ..] => 8,
            [128..=191, ..] => 16,
            _ => 24,
        };
        let prefix = self.number(1).map_or(class, |mask| mask.leading_ones() as u8);
        let mut routes = self.get(121).map(classless_routes).unwrap_or_default();
        // With classless routes the router option is ignored (RFC 3442).
        if routes.is_empty() {
            routes.extend(self.address(3).map(|router| (Ipv4Addr::UNSPECIFIED, 0, router)));
        }
        let mut search = self.get(119).map(domain_list).unwrap_or_default();
        if search.is_empty() {
            search.extend(self.name(15));
        }
        let mtu = self.get(26).and_then(|value| value.first_chunk()).copied().map(u16::from_be_bytes);
        Offer {
            address,
            prefix,
            routes,
            name_servers: self.addresses(6),
            search,
            hostname: self.name(12),
            mtu: mtu.map(u32::from).filter(|mtu| *mtu >= 576),
            lease: self.number(51).filter(|seconds| *seconds != u32::MAX),
            renewal: self.number(58),
            rebinding: self.number(59),
        }
    }
}

/// RFC 3442: length of the prefix, its significant bytes, router.
fn classless_routes(mut rest: &[u8]) -> Vec<(Ipv4Addr, u8, Ipv4Addr)> {
    let mut routes = Vec::new();
    while let Some((prefix, after)) = rest.split_first().filter(|(prefix, _)| **prefix <= 32) {
        let Some((significant, after)) = after.split_at_checked(usize::from(prefix.div_ceil(8))) else {
            break;
        };
        let Some((router, after)) = after.split_first_chunk::<4>() else { break };
        let mut destination = [0; 4];
        for (to, from) in destination.iter_mut().zip(significant) {
            *to = *from;
        }
        // Bits beyond the prefix would have the kernel refuse the route.
        let mask = u32::MAX.checked_shl(32_u32.saturating_sub(u32::from(*prefix))).unwrap_or(0);
        let destination = Ipv4Addr::from(u32::from_be_bytes(destination) & mask);
        routes.push((destination, *prefix, Ipv4Addr::from(*router)));
        rest = after;
        if routes.len() >= MOST {
            break;
        }
    }
    routes
}

/// RFC 3397: names in DNS form, compressed within the option. Pointers must lead backwards, so this ends.
fn domain_list(bytes: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    let mut start = 0;
    while start < bytes.len() && names.len() < MOST {
        let Some((name, end)) = domain(bytes, start) else { break };
        if is_domain(&name) {
            names.push(name);
        }
        start = end;
    }
    names
}

fn domain(bytes: &[u8], start: usize) -> Option<(String, usize)> {
    let mut name = String::new();
    let mut end = None;
    let (mut at, mut lowest) = (start, start);
    loop {
        let length = *bytes.get(at)?;
        let next = at.checked_add(1)?;
        match length {
            0 => return Some((name, end.unwrap_or(next))),
            1..=63 => {
                let after = next.checked_add(usize::from(length))?;
                let label = std::str::from_utf8(bytes.get(next..after)?).ok()?;
                if !name.is_empty() {
                    name.push('.');
                }
                name.push_str(label);
                if name.len() > 253 {
                    return None;
                }
                at = after;
            }
            192..=255 => {
                let target = usize::from(length & 63) << 8 | usize::from(*bytes.get(next)?);
                if target >= lowest {
                    return None;
                }
                end = end.or(next.checked_add(1));
                (at, lowest) = (target, target);
            }
            64..=191 => return None,
        }
    }
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
