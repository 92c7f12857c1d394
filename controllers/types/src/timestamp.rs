//! Points in time as Kubernetes writes them: UTC, whole seconds, RFC 3339.
//!
//! The calendar is that of [`jiff::civil`]. The value is not a [`jiff::Timestamp`], which ends two days before the year
//! 10000, and a text is held against its form first, because jiff's parser takes more than RFC 3339.

use std::{fmt, str::FromStr};

use jiff::{SignedDuration, civil::DateTime};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, Visitor},
};

/// Seconds since 1970-01-01T00:00:00Z, within the years 0000 to 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// A text is not an RFC 3339 time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a time; write it as 2024-07-01T11:00:00Z")]
pub struct TimestampError(String);

/// 0000-01-01T00:00:00Z.
const FIRST: i64 = -62_167_219_200;
/// 9999-12-31T23:59:59Z.
const LAST: i64 = 253_402_300_799;
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
/// The form of a time without fraction and offset; a zero stands for any digit.
const FORM: &[u8] = b"0000-00-00T00:00:00";

impl Timestamp {
    /// A number of seconds since 1970; `None` outside the years 0000 to 9999.
    #[must_use]
    pub const fn from_unix(seconds: i64) -> Option<Self> {
        if seconds >= FIRST && seconds <= LAST { Some(Self(seconds)) } else { None }
    }

    /// Seconds since 1970.
    #[must_use]
    pub const fn unix(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = EPOCH.checked_add(SignedDuration::from_secs(self.0)).map_err(|_| fmt::Error)?;
        write!(f, "{time}Z")
    }
}

/// Whether a text has the digits and letters of a form.
fn has_form(text: &str, form: &[u8]) -> bool {
    let fits = |(byte, form): (u8, &u8)| match form {
        b'0' => byte.is_ascii_digit(),
        form => byte.eq_ignore_ascii_case(form),
    };
    text.len() == form.len() && text.bytes().zip(form).all(fits)
}

/// Seconds east of UTC.
fn offset(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let (hour, minute) =
        text.strip_prefix(['+', '-']).filter(|rest| has_form(rest, b"00:00"))?.split_once(':')?;
    let (hour, minute): (i64, i64) = (hour.parse().ok()?, minute.parse().ok()?);
    (hour < 24 && minute < 60).then_some(sign * (hour * 3600 + minute * 60))
}

fn parse(text: &str) -> Option<Timestamp> {
    let (time, mut rest) = text.split_at_checked(FORM.len())?;
    // Jiff takes a leap second for the one before it.
    let time: DateTime = time.parse().ok().filter(|_| has_form(time, FORM) && !time.ends_with("60"))?;
    if let Some(fraction) = rest.strip_prefix('.') {
        // Fractions of a second are dropped, as Kubernetes does.
        rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
        if rest.len() == fraction.len() {
            return None;
        }
    }
    Timestamp::from_unix(time.duration_since(EPOCH).as_secs() - offset(rest)?)
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        parse(text).ok_or_else(|| TimestampError(text.chars().take(40).collect()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

struct TimestampVisitor;

impl Visitor<'_> for TimestampVisitor {
    type Value = Timestamp;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time such as \"2024-07-01T11:00:00Z\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Timestamp, E> {
        text.parse().map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TimestampVisitor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_times() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1969-12-31T23:59:59Z", -1),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2024-07-01T11:00:00Z", 1_719_831_600),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
            ("0001-01-01T00:00:00Z", -62_135_596_800),
            ("9999-12-31T23:59:59Z", LAST),
            ("0000-01-01T00:00:00Z", FIRST),
        ] {
            assert_eq!(text.parse::<Timestamp>().unwrap().unix(), seconds, "{text}");
            assert_eq!(Timestamp::from_unix(seconds).unwrap().to_string(), text);
        }
    }

    #[test]
    fn offsets_are_turned_into_utc_and_fractions_dropped() {
        for text in
            ["2024-07-01T13:00:00+02:00", "2024-07-01T05:30:00.999999-05:30", "2024-07-01t11:00:00.5z"]
        {
            assert_eq!(text.parse::<Timestamp>().unwrap().to_string(), "2024-07-01T11:00:00Z", "{text}");
        }
    }

    #[test]
    fn wrong_texts_are_rejected() {
        for text in [
            "",
            "2024-07-01",
            "2024-07-01T11:00:00",
            "2023-02-29T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-07-01T24:00:00Z",
            "2024-07-01T11:00:00Zx",
            "2024-07-01 11:00:00Z",
            "+024-07-01T11:00:00Z",
            "2024-07-01T11:00:00.Z",
            "9999-12-31T23:59:59-00:01",
            "2024-07-0é",
            "2024-07-01T11:00:60Z",
            "2024-07-01T11:00:00,5Z",
            "2024-07-01T11:00:00+02",
            "2024-07-01T11:00:00+24:00",
            "2024-07-01T11:00:00Z[UTC]",
            "20240701T110000Z",
            "1719831600",
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn parsing_undoes_printing(seconds in FIRST..=LAST) {
            let time = Timestamp::from_unix(seconds).unwrap();
            prop_assert_eq!(time.to_string().parse::<Timestamp>().unwrap(), time);
        }

        #[test]
        fn any_text_is_parsed_or_rejected(text in "\\PC{0,30}") {
            let _ = text.parse::<Timestamp>();
        }
    }
}
