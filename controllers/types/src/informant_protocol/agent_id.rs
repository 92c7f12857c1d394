//! The identity of an agent: a UUID, written in lower case with hyphens.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// A UUID of any version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(u128);

/// A text is not a UUID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a UUID; write it as 8-4-4-4-12 hexadecimal digits")]
pub struct AgentIdError(String);

/// Digits between the hyphens.
const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];

impl AgentId {
    /// The UUID with these 128 bits, most significant first.
    #[must_use]
    pub const fn new(bits: u128) -> Self {
        Self(bits)
    }

    /// The 128 bits, most significant first.
    #[must_use]
    pub const fn bits(self) -> u128 {
        self.0
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            bits >> 96,
            bits >> 80 & 0xffff,
            bits >> 64 & 0xffff,
            bits >> 48 & 0xffff,
            bits & 0xffff_ffff_ffff
        )
    }
}

impl FromStr for AgentId {
    type Err = AgentIdError;

    fn from_str(text: &str) -> Result<Self, AgentIdError> {
        let error = || AgentIdError(text.chars().take(40).collect());
        let widths = text.split('-').map(str::len);
        if !widths.eq(GROUPS) || !text.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit()) {
            return Err(error());
        }
        u128::from_str_radix(&text.replace('-', ""), 16).map(Self).map_err(|_| error())
    }
}

impl Serialize for AgentId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AgentId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
