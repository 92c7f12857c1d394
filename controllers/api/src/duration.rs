//! Durations as Kubernetes objects write them: `24h0m0s`, `300s`, `1.5h`.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// A signed length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(i64);

/// A text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration; write numbers with units, such as 24h, 5m30s or 250ms")]
pub struct DurationError(String);

const SECOND: i64 = 1_000_000_000;

/// Units, longer names before those they begin with.
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3600 * SECOND),
];

impl GoDuration {
    /// A number of seconds; saturates at about 292 years.
    #[must_use]
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(SECOND))
    }

    /// The length in nanoseconds.
    #[must_use]
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// The length as a standard duration; `None` if negative.
    #[must_use]
    pub fn to_std(self) -> Option<std::time::Duration> {
        u64::try_from(self.0).ok().map(std::time::Duration::from_nanos)
    }
}

/// One number with its unit off the front of `text`: the nanoseconds and the rest.
fn term(text: &str) -> Option<(i64, &str)> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, rest) = text.split_at_checked(number_end)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (name, unit) = UNITS.iter().find(|(name, _)| {
        rest.strip_prefix(name).is_some_and(|after| !after.starts_with(char::is_alphabetic))
    })?;
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanos = whole.checked_mul(*unit)?;
    let mut scale = *unit;
    for digit in fraction.bytes() {
        scale /= 10;
        nanos = nanos.checked_add(i64::from(digit - b'0').checked_mul(scale)?)?;
    }
    Some((nanos, rest.strip_prefix(name)?))
}

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let error = || DurationError(text.chars().take(40).collect());
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        if unsigned == "0" {
            return Ok(Self(0));
        }
        let mut rest = unsigned;
        let mut total: i64 = 0;
        loop {
            let (nanos, after) = term(rest).ok_or_else(error)?;
            total = total.checked_add(nanos).ok_or_else(error)?;
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        Ok(Self(if text.starts_with('-') { -total } else { total }))
    }
}

/// A fraction without trailing zeros.
fn write_fraction(f: &mut fmt::Formatter<'_>, whole: u64, rest: u64, width: usize) -> fmt::Result {
    write!(f, "{whole}")?;
    if rest > 0 {
        let digits = format!("{rest:0width$}");
        write!(f, ".{}", digits.trim_end_matches('0'))?;
    }
    Ok(())
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        match nanos {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{nanos}ns"),
            1_000..1_000_000 => {
                write_fraction(f, nanos / 1_000, nanos % 1_000, 3)?;
                f.write_str("µs")
            }
            1_000_000..1_000_000_000 => {
                write_fraction(f, nanos / 1_000_000, nanos % 1_000_000, 6)?;
                f.write_str("ms")
            }
            _ => {
                let seconds = nanos / 1_000_000_000;
                if seconds >= 3600 {
                    write!(f, "{}h", seconds / 3600)?;
                }
                if seconds >= 60 {
                    write!(f, "{}m", seconds / 60 % 60)?;
                }
                write_fraction(f, seconds % 60, nanos % 1_000_000_000, 9)?;
                f.write_str("s")
            }
        }
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prints_the_canonical_form() {
        for (text, canonical) in [
            ("0", "0s"),
            ("0s", "0s"),
            ("24h", "24h0m0s"),
            ("300s", "5m0s"),
            ("1.5h", "1h30m0s"),
            ("1h30m", "1h30m0s"),
            ("90m1s", "1h30m1s"),
            (".5s", "500ms"),
            ("1500us", "1.5ms"),
            ("1.5µs", "1.5µs"),
            ("7ns", "7ns"),
            ("-1m", "-1m0s"),
            ("1.000000001s", "1.000000001s"),
        ] {
            assert_eq!(text.parse::<GoDuration>().unwrap().to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn rejects_what_is_no_duration() {
        for text in ["", "300", "1d", "s", ".s", "1h ", "1..5s", "1mss", "--1s", "9223372036854775807s", "é"]
        {
            assert!(text.parse::<GoDuration>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn parsing_undoes_printing(nanos in -i64::MAX..=i64::MAX) {
            let duration = GoDuration(nanos);
            prop_assert_eq!(duration.to_string().parse::<GoDuration>().unwrap(), duration);
        }

        #[test]
        fn any_text_is_parsed_or_rejected(text in "\\PC{0,20}|[-+]?[0-9.]{0,22}[nuµms]{0,3}[0-9.]{0,5}h?") {
            let _ = text.parse::<GoDuration>();
        }
    }
}
