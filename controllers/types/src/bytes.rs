//! Amounts of memory and disk, in bytes.
//!
//! JSON: below 1024 a bare integer, otherwise the canonical binary quantity, quoted (`"1Gi"`, `"1500"`).
//! Any quantity is accepted, as string or number; a fraction of a byte rounds up.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::quantity::{Format, Quantity, QuantityError};

/// An amount of bytes, 0 to 2^64 − 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

impl Bytes {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The largest value.
    pub const MAX: Self = Self(u64::MAX);

    /// A number of bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Mebibytes.
    #[must_use]
    pub const fn mib(mebibytes: u32) -> Self {
        Self((mebibytes as u64) << 20)
    }

    /// Gibibytes.
    #[must_use]
    pub const fn gib(gibibytes: u32) -> Self {
        Self((gibibytes as u64) << 30)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether this is a whole number of `unit`s; `false` for a unit of zero.
    #[must_use]
    pub const fn is_multiple_of(self, unit: Self) -> bool {
        unit.0 != 0 && self.0.is_multiple_of(unit.0)
    }

    /// How many whole `slot`s fit, rounded down; `None` if `slot` is zero or the count needs more than 32 bits.
    #[must_use]
    pub fn slots(self, slot: Self) -> Option<u32> {
        self.0.checked_div(slot.0).and_then(|count| u32::try_from(count).ok())
    }

    /// Sum, or `None` on overflow.
    #[must_use]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// Sum, at most [`Bytes::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Difference, at least zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Product, or `None` on overflow.
    #[must_use]
    pub const fn checked_mul(self, factor: u32) -> Option<Self> {
        match self.0.checked_mul(factor as u64) {
            Some(product) => Some(Self(product)),
            None => None,
        }
    }

    /// Product, at most [`Bytes::MAX`].
    #[must_use]
    pub const fn saturating_mul(self, factor: u32) -> Self {
        Self(self.0.saturating_mul(factor as u64))
    }

    /// The value as a Kubernetes quantity in binary units.
    #[must_use]
    pub fn to_quantity(self) -> Quantity {
        Quantity::from_unsigned(self.0, Format::BinarySi)
    }
}

/// `512`, `1Gi`: the text of the JSON form, without quotes.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1024 { write!(f, "{}", self.0) } else { self.to_quantity().fmt(f) }
    }
}

impl TryFrom<Quantity> for Bytes {
    type Error = QuantityError;

    fn try_from(quantity: Quantity) -> Result<Self, QuantityError> {
        u64::try_from(quantity.units_rounded_up()).map(Self).map_err(|_| QuantityError::OutOfRange {
            value: quantity.to_string(),
            min: Self::ZERO.to_string(),
            max: Self::MAX.to_string(),
        })
    }
}

impl FromStr for Bytes {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        text.parse::<Quantity>()?.try_into()
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 < 1024 { serializer.serialize_u64(self.0) } else { serializer.collect_str(self) }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(Quantity::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn encodes_as_in_the_table() {
        for (bytes, json) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "\"1Ki\""),
            (1500, "\"1500\""),
            (1536, "\"1536\""),
            (1 << 30, "\"1Gi\""),
            (3 << 29, "\"1536Mi\""),
            (150_589_570, "\"150589570\""),
            (1_000_000_000, "\"1000000000\""),
            (4_000_000_000, "\"3906250Ki\""),
            (1 << 40, "\"1Ti\""),
        ] {
            assert_eq!(serde_json::to_string(&Bytes::new(bytes)).unwrap(), json);
        }
    }

    #[test]
    fn decodes_as_in_the_table() {
        for (json, bytes) in [
            ("\"1Gi\"", 1 << 30),
            ("1073741824", 1 << 30),
            ("\"1G\"", 1_000_000_000),
            ("\"1.5Gi\"", 3 << 29),
            ("\"100m\"", 1),
            ("0.5", 1),
            ("null", 0),
            ("18446744073709551615", u64::MAX),
            ("\"15Ei\"", 15 << 60),
        ] {
            assert_eq!(serde_json::from_str::<Bytes>(json).unwrap().get(), bytes, "{json}");
        }
        assert!(serde_json::from_str::<Bytes>("\"\"").is_err());
    }

    #[test]
    fn negative_and_oversized_values_are_errors() {
        for json in ["-1", "\"-1Gi\"", "\"16Ei\"", "18446744073709551616"] {
            let error = serde_json::from_str::<Bytes>(json).unwrap_err().to_string();
            assert!(error.contains("out of range"), "{json}: {error}");
        }
    }

    #[test]
    fn slots_round_down_and_are_never_truncated() {
        assert_eq!(Bytes::gib(4).slots(Bytes::gib(1)), Some(4));
        assert_eq!(Bytes::mib(1535).slots(Bytes::gib(1)), Some(1));
        assert_eq!(Bytes::gib(70_000).slots(Bytes::gib(1)), Some(70_000));
        assert_eq!(Bytes::gib(1).slots(Bytes::ZERO), None);
        assert_eq!(Bytes::MAX.slots(Bytes::new(1)), None);
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(bytes: u64) {
            let json = serde_json::to_string(&Bytes::new(bytes)).unwrap();
            prop_assert_eq!(serde_json::from_str::<Bytes>(&json).unwrap().get(), bytes);
        }

        #[test]
        fn decoding_undoes_encoding_of_round_values(count in 0u64..1 << 12, shift in 0u32..50) {
            let bytes = Bytes::new(count << shift);
            let json = serde_json::to_string(&bytes).unwrap();
            prop_assert_eq!(serde_json::from_str::<Bytes>(&json).unwrap(), bytes);
        }

        #[test]
        fn any_bytes_are_decoded_or_rejected(body: Vec<u8>) {
            let _ = serde_json::from_slice::<Bytes>(&body);
        }
    }
}
