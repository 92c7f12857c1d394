//! Networks of both families. Addresses are numbers here, so that one arithmetic serves both.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// 32 bits.
    V4,
    /// 128 bits.
    V6,
}

impl Family {
    /// Of an address.
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

    fn mask(self, length: u8) -> u128 {
        let all = u128::MAX >> (128 - u32::from(self.bits()));
        let host = all.checked_shr(u32::from(length)).unwrap_or(0);
        all & !host
    }
}

/// An address as a number.
#[must_use]
pub(crate) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// A network: `10.100.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Net {
    family: Family,
    base: u128,
    length: u8,
}

impl Net {
    /// The network of an address; bits beyond `length` are dropped, a length beyond the family's is taken as that.
    #[must_use]
    pub fn new(address: IpAddr, length: u8) -> Self {
        let family = Family::from_address(address);
        let length = length.min(family.bits());
        Self { family, base: number(address) & family.mask(length), length }
    }

    /// Address family of the network.
    #[must_use]
    pub const fn family(self) -> Family {
        self.family
    }

    /// Bits of the prefix.
    #[must_use]
    pub const fn length(self) -> u8 {
        self.length
    }

    /// The mask of its prefix, as an address.
    #[must_use]
    pub fn mask(self) -> IpAddr {
        self.family.address(self.family.mask(self.length))
    }

    /// Number of the first address.
    pub(crate) const fn first(self) -> u128 {
        self.base
    }

    /// Number of the last address.
    pub(crate) fn last(self) -> u128 {
        self.base | (self.family.mask(self.family.bits()) & !self.family.mask(self.length))
    }

    /// The address `offset` after the first; none beyond the end.
    #[must_use]
    pub fn at(self, offset: u128) -> Option<IpAddr> {
        let number = self.base.checked_add(offset).filter(|number| *number <= self.last())?;
        Some(self.family.address(number))
    }

    /// How far an address is from the first; none if it lies elsewhere.
    #[must_use]
    pub fn offset(self, address: IpAddr) -> Option<u128> {
        self.contains(address).then(|| number(address) - self.base)
    }

    /// Whether an address lies within.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        Family::from_address(address) == self.family
            && number(address) & self.family.mask(self.length) == self.base
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.family.address(self.base), self.length)
    }
}

/// A text that is no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a network such as 10.100.0.0/16")]
pub struct NotANet;

impl FromStr for Net {
    type Err = NotANet;

    fn from_str(text: &str) -> Result<Self, NotANet> {
        let (address, length) = text.split_once('/').ok_or(NotANet)?;
        let address: IpAddr = address.parse().map_err(|_| NotANet)?;
        let length: u8 = length.parse().map_err(|_| NotANet)?;
        if length > Family::from_address(address).bits() {
            Err(NotANet)
        } else {
            Ok(Self::new(address, length))
        }
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
