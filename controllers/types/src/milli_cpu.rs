//! CPU in thousandths.
//!
//! JSON: a whole number of CPUs is a bare integer (`1`), anything else the count with an `m` (`"250m"`).
//! Any quantity is accepted, as string or number; a fraction of a thousandth rounds up. A bare `250` is 250 CPUs.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::quantity::{Format, Quantity, QuantityError};

/// CPU in thousandths, 0 to 4 294 967 295.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MilliCpu(u32);

impl MilliCpu {
    /// No CPU.
    pub const ZERO: Self = Self(0);
    /// The largest value.
    pub const MAX: Self = Self(u32::MAX);

    /// A number of thousandths.
    #[must_use]
    pub const fn new(milli: u32) -> Self {
        Self(milli)
    }

    /// Whole CPUs.
    #[must_use]
    pub const fn from_cpus(cpus: u16) -> Self {
        // 65 535 · 1000 is far below the limit of 32 bits.
        Self(cpus as u32 * 1000)
    }

    /// The number of thousandths.
    #[must_use]
    pub const fn milli(self) -> u32 {
        self.0
    }

    /// The value in CPUs.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1000.0
    }

    /// Whole CPUs needed to hold this much: `ceil(milli / 1000)`.
    #[must_use]
    pub const fn cpus_rounded_up(self) -> u32 {
        self.0.div_ceil(1000)
    }

    /// Whether this is a whole number of CPUs.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        self.0.is_multiple_of(1000)
    }

    /// Sum, or `None` on overflow.
    #[must_use]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// Sum, at most [`MilliCpu::MAX`].
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
    pub const fn checked_mul(self, factor: u16) -> Option<Self> {
        match self.0.checked_mul(factor as u32) {
            Some(product) => Some(Self(product)),
            None => None,
        }
    }

    /// Product, at most [`MilliCpu::MAX`].
    #[must_use]
    pub const fn saturating_mul(self, factor: u16) -> Self {
        Self(self.0.saturating_mul(factor as u32))
    }

    /// The value as a Kubernetes quantity, in the spelling other components expect (`"250m"`, `"1"`; 1024 CPUs are
    /// `"1Ki"`, because the upstream conversion requires binary units).
    #[must_use]
    pub fn to_quantity(self) -> Quantity {
        Quantity::from_milli(i64::from(self.0), Format::BinarySi)
    }
}

/// `1` or `250m`: the text of the JSON form, without quotes.
impl fmt::Display for MilliCpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_whole() { write!(f, "{}", self.0 / 1000) } else { write!(f, "{}m", self.0) }
    }
}

impl TryFrom<Quantity> for MilliCpu {
    type Error = QuantityError;

    fn try_from(quantity: Quantity) -> Result<Self, QuantityError> {
        u32::try_from(quantity.milli_rounded_up()).map(Self).map_err(|_| QuantityError::OutOfRange {
            value: quantity.to_string(),
            min: Self::ZERO.to_string(),
            max: Self::MAX.to_string(),
        })
    }
}

impl FromStr for MilliCpu {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        text.parse::<Quantity>()?.try_into()
    }
}

impl Serialize for MilliCpu {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_whole() { serializer.serialize_u32(self.0 / 1000) } else { serializer.collect_str(self) }
    }
}

impl<'de> Deserialize<'de> for MilliCpu {
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
        for (milli, json, quantity) in [
            (0, "0", "0"),
            (250, "\"250m\"", "250m"),
            (1000, "1", "1"),
            (1250, "\"1250m\"", "1250m"),
            (1500, "\"1500m\"", "1500m"),
            (100_001, "\"100001m\"", "100001m"),
            (1_024_000, "1024", "1Ki"),
        ] {
            let cpu = MilliCpu::new(milli);
            assert_eq!(serde_json::to_string(&cpu).unwrap(), json);
            assert_eq!(cpu.to_quantity().to_string(), quantity);
        }
    }

    #[test]
    fn decodes_as_in_the_table() {
        for (json, milli) in [
            ("\"250m\"", 250),
            ("0.25", 250),
            ("\"0.25\"", 250),
            ("1", 1000),
            ("\"1\"", 1000),
            ("250", 250_000),
            ("\"0.2501\"", 251),
            ("0.2501", 251),
            ("\"100u\"", 1),
            ("null", 0),
        ] {
            assert_eq!(serde_json::from_str::<MilliCpu>(json).unwrap().milli(), milli, "{json}");
        }
        for json in ["\"\"", "true", "{}"] {
            assert!(serde_json::from_str::<MilliCpu>(json).is_err(), "{json}");
        }
    }

    /// Upstream wraps these to 4294966296 and 704.
    #[test]
    fn negative_and_oversized_values_are_errors_that_name_the_range() {
        for json in ["\"-1\"", "-1", "-0.001", "\"4294968\"", "4294967.296"] {
            let error = serde_json::from_str::<MilliCpu>(json).unwrap_err().to_string();
            assert!(error.contains("must be between 0 and 4294967295m"), "{json}: {error}");
        }
        assert_eq!("4294967295m".parse(), Ok(MilliCpu::MAX));
    }

    #[test]
    fn whole_cpus_round_up() {
        for (milli, cpus) in [(0, 0), (1, 1), (999, 1), (1000, 1), (1001, 2), (u32::MAX, 4_294_968)] {
            assert_eq!(MilliCpu::new(milli).cpus_rounded_up(), cpus);
        }
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(milli: u32) {
            let json = serde_json::to_string(&MilliCpu::new(milli)).unwrap();
            prop_assert_eq!(serde_json::from_str::<MilliCpu>(&json).unwrap().milli(), milli);
            prop_assert_eq!(MilliCpu::try_from(MilliCpu::new(milli).to_quantity()).unwrap().milli(), milli);
        }

        #[test]
        fn a_float_of_thousandths_is_exact(milli in 0u32..10_000_000) {
            let json = format!("{}", f64::from(milli) / 1000.0);
            prop_assert_eq!(serde_json::from_str::<MilliCpu>(&json).unwrap().milli(), milli);
        }

        #[test]
        fn any_bytes_are_decoded_or_rejected(body: Vec<u8>) {
            let _ = serde_json::from_slice::<MilliCpu>(&body);
        }
    }
}
