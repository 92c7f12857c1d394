//! Networks of both families. Addresses are numbers here, so that one arithmetic serves both.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// 32 bits.
    V4,
    /// 128 bits.
    V6,
}

impl Family {
    #[must_use]
    pub const fn from_address(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Bits of an address.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// The address with a number; bits beyond the family's are dropped.
    #[must_use]
    pub fn address(self, number: u128) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(number & 0xffff_ffff).unwrap_or(0))),
            Self::V6 => IpAddr::V6(Ipv6Addr::from_bits(number)),
        }
    }
}

#[must_use]
pub(crate) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// A network: `10.100.0.0/16`. Its address has no bits beyond its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Net(IpNet);

impl Net {
    /// The network of an address; bits beyond `length` are dropped, a length beyond the family's is taken as that.
    #[must_use]
    pub fn new(address: IpAddr, length: u8) -> Self {
        let length = length.min(Family::from_address(address).bits());
        Self(IpNet::new_assert(address, length).trunc())
    }

    #[must_use]
    pub const fn family(self) -> Family {
        match self.0 {
            IpNet::V4(_) => Family::V4,
            IpNet::V6(_) => Family::V6,
        }
    }

    /// Bits of the prefix.
    #[must_use]
    pub fn length(self) -> u8 {
        self.0.prefix_len()
    }

    /// The mask of its prefix, as an address.
    #[must_use]
    pub fn mask(self) -> IpAddr {
        self.0.netmask()
    }

    /// Number of the first address.
    pub(crate) fn first(self) -> u128 {
        number(self.0.network())
    }

    /// Number of the last address.
    pub(crate) fn last(self) -> u128 {
        number(self.0.broadcast())
    }

    /// The address `offset` after the first; none beyond the end.
    #[must_use]
    pub fn at(self, offset: u128) -> Option<IpAddr> {
        let number = self.first().checked_add(offset).filter(|number| *number <= self.last())?;
        Some(self.family().address(number))
    }

    /// How far an address is from the first; none if it lies elsewhere.
    #[must_use]
    pub fn offset(self, address: IpAddr) -> Option<u128> {
        self.contains(address).then(|| number(address) - self.first())
    }

    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A text that is no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a network such as 10.100.0.0/16")]
pub struct NotANet;

impl FromStr for Net {
    type Err = NotANet;

    fn from_str(text: &str) -> Result<Self, NotANet> {
        text.parse().map(|net: IpNet| Self(net.trunc())).map_err(|_| NotANet)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_address() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            any::<u32>().prop_map(|bits| IpAddr::V4(bits.into())),
            any::<u128>().prop_map(|bits| IpAddr::V6(bits.into()))
        ]
    }

    #[test]
    fn masks_and_ends() {
        let net: Net = "10.100.7.9/16".parse().unwrap();
        assert_eq!((net.to_string(), net.mask().to_string()), ("10.100.0.0/16".into(), "255.255.0.0".into()));
        assert_eq!(net.at(32768), Some("10.100.128.0".parse().unwrap()));
        assert_eq!((net.at(65535).unwrap().to_string(), net.at(65536)), ("10.100.255.255".into(), None));
        let all: Net = "::/0".parse().unwrap();
        assert_eq!((all.at(u128::MAX).is_some(), all.mask()), (true, "::".parse().unwrap()));
        for wrong in ["", "10.0.0.0", "10.0.0.0/33", "::/129", "x/1", "10.0.0.0/-1"] {
            assert_eq!(wrong.parse::<Net>(), Err(NotANet), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn offsets_lead_back(address in any_address(), length in 0_u8..=128) {
            let net = Net::new(address, length);
            let offset = net.offset(address).unwrap();
            prop_assert_eq!(net.at(offset), Some(address));
            prop_assert_eq!(net.to_string().parse::<Net>(), Ok(net));
            prop_assert!(net.first() <= number(address) && number(address) <= net.last());
        }
    }
}
