//! Points in time as Kubernetes writes them: UTC, whole seconds, RFC 3339.
//!
//! The calendar is computed here (proleptic Gregorian, days counted in 400-year cycles) so that the crate needs no
//! clock and no date library.

use std::{fmt, str::FromStr};

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
const DAY: i64 = 86_400;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;
/// Days in 400 years.
const ERA_DAYS: i64 = 146_097;

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

fn days_before(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is a year's last day.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * ERA_DAYS + day_of_era - EPOCH_DAYS
}

/// Year, month and day of a day counted from 1970-01-01.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_DAYS;
    let era = days.div_euclid(ERA_DAYS);
    let day_of_era = days.rem_euclid(ERA_DAYS);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date(self.0.div_euclid(DAY));
        let second = self.0.rem_euclid(DAY);
        let (hour, minute) = (second / 3600, second / 60 % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
    }
}

/// Reads fixed-width parts off the front of a text.
struct Parts<'a>(&'a str);

impl Parts<'_> {
    fn number(&mut self, width: usize, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
        let (head, tail) = self.0.split_at_checked(width)?;
        self.0 = tail;
        let value = if head.bytes().all(|b| b.is_ascii_digit()) { head.parse().ok()? } else { return None };
        range.contains(&value).then_some(value)
    }

    fn one_of(&mut self, allowed: &str) -> Option<char> {
        let first = self.0.chars().next().filter(|c| allowed.contains(*c))?;
        self.0 = self.0.get(first.len_utf8()..)?;
        Some(first)
    }

    fn date(&mut self) -> Option<i64> {
        let year = self.number(4, 0..=9999)?;
        self.one_of("-")?;
        let month = self.number(2, 1..=12)?;
        self.one_of("-")?;
        let day = self.number(2, 1..=31)?;
        let days = days_before(year, month, day);
        (date(days) == (year, month, day)).then_some(days)
    }

    fn time(&mut self) -> Option<i64> {
        self.one_of("Tt")?;
        let hour = self.number(2, 0..=23)?;
        self.one_of(":")?;
        let minute = self.number(2, 0..=59)?;
        self.one_of(":")?;
        let second = self.number(2, 0..=59)?;
        if self.one_of(".").is_some() {
            // Fractions of a second are dropped, as Kubernetes does.
            self.number(1, 0..=9)?;
            while self.one_of("0123456789").is_some() {}
        }
        Some(hour * 3600 + minute * 60 + second)
    }

    /// Seconds east of UTC.
    fn offset(&mut self) -> Option<i64> {
        let sign = match self.one_of("Zz+-")? {
            '+' => 1,
            '-' => -1,
            _ => return Some(0),
        };
        let hour = self.number(2, 0..=23)?;
        self.one_of(":")?;
        Some(sign * (hour * 3600 + self.number(2, 0..=59)? * 60))
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        let mut parts = Parts(text);
        let parsed = (|| {
            let seconds = parts.date()? * DAY + parts.time()? - parts.offset()?;
            if parts.0.is_empty() { Self::from_unix(seconds) } else { None }
        })();
        parsed.ok_or_else(|| TimestampError(text.chars().take(40).collect()))
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
