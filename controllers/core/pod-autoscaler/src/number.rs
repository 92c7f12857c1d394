//! Numbers that are numbers, and their way to a count of replicas.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

/// A float that is neither infinite nor "not a number". One such value would poison every average it gets into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Finite(f64);

/// A number is infinite or none at all.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} is not a finite number")]
pub struct NotFinite(f64);

impl Finite {
    /// Nothing.
    pub const ZERO: Self = Self(0.0);

    /// The value, if it is finite.
    #[must_use]
    pub fn new(value: f64) -> Option<Self> {
        value.is_finite().then_some(Self(value))
    }

    /// The value, pushed back into the range of a float if it left it; 0 if it is no number.
    #[must_use]
    pub fn saturating(value: f64) -> Self {
        if value.is_nan() { Self::ZERO } else { Self(value.clamp(f64::MIN, f64::MAX)) }
    }

    /// Value as a float.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl Eq for Finite {}

impl PartialOrd for Finite {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Finite {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal)
    }
}

impl TryFrom<f64> for Finite {
    type Error = NotFinite;

    fn try_from(value: f64) -> Result<Self, NotFinite> {
        Self::new(value).ok_or(NotFinite(value))
    }
}

impl From<Finite> for f64 {
    fn from(value: Finite) -> Self {
        value.0
    }
}

/// Sums of floats are off by a few units in the last place; what is above a whole number by no more than this share is
/// that number. Without it ten pods with a load of exactly their target would require an eleventh.
const NOISE: f64 = 1e-9;

fn saturating_replicas(whole: f64) -> i32 {
    if whole >= f64::from(i32::MAX) {
        i32::MAX
    } else if whole > 0.0 {
        #[allow(clippy::cast_possible_truncation, reason = "between 0 and the maximum")]
        let replicas = whole as i32;
        replicas
    } else {
        0
    }
}

/// The next whole number that is not below; saturates at both ends of the range of replicas.
#[must_use]
pub fn ceil_replicas(value: f64) -> i32 {
    saturating_replicas((value * (1.0 - NOISE)).ceil())
}

/// The next whole number that is not above; saturates at both ends of the range of replicas.
#[must_use]
pub fn floor_replicas(value: f64) -> i32 {
    saturating_replicas((value * (1.0 + NOISE)).floor())
}

/// A number for people: four significant digits, no exponent between a thousandth and a billion.
#[must_use]
pub fn render(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || !value.is_finite() {
        return "0".to_owned();
    }
    if !(1e-3..1e9).contains(&size) {
        return format!("{value:.3e}");
    }
    // At most nine digits before the point, by the range above.
    let digits = if size >= 1000.0 {
        0
    } else if size >= 100.0 {
        1
    } else if size >= 10.0 {
        2
    } else if size >= 1.0 {
        3
    } else {
        6
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// How many there are, as a count of replicas.
#[must_use]
pub(crate) fn count(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_are_numbers() {
        assert_eq!(Finite::new(f64::NAN), None);
        assert_eq!(Finite::new(f64::INFINITY), None);
        assert_eq!(Finite::saturating(f64::INFINITY).get().to_bits(), f64::MAX.to_bits());
        assert_eq!(Finite::new(2.5).map(Finite::get), Some(2.5));
    }

    #[test]
    fn whole_numbers_saturate_and_ignore_noise() {
        assert_eq!(ceil_replicas(10.000_000_000_000_002), 10);
        assert_eq!((ceil_replicas(3.6), ceil_replicas(0.0), ceil_replicas(1e-300)), (4, 0, 1));
        assert_eq!((ceil_replicas(1e300), ceil_replicas(-3.0), ceil_replicas(f64::NAN)), (i32::MAX, 0, 0));
        assert_eq!((floor_replicas(2.999_999_999_999), floor_replicas(2.9)), (3, 2));
    }

    #[test]
    fn numbers_for_people() {
        let shown = [0.0, 12.5, 0.123_456_7, 99.999, 1234.5, 2.0, 1e12, -3.25].map(render);
        assert_eq!(shown, ["0", "12.5", "0.123457", "100", "1234", "2", "1.000e12", "-3.25"]);
    }
}
