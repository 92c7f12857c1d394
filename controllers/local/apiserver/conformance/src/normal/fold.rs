//! Volatile parts of a text: identifiers, tokens, times near now, resource versions.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use regex::{Captures, Regex};

/// How far a time may be from now to count as volatile, in seconds: two days.
const NEAR: i64 = 2 * 24 * 3600;

/// The compiled expressions.
#[derive(Debug)]
pub(crate) struct Patterns {
    uid: Regex,
    token: Regex,
    hash: Regex,
    /// Expression, format and length of the part of a match that is a time, and its placeholder.
    times: Vec<(Regex, &'static str, usize, &'static str)>,
    mentions_revision: Regex,
    number: Regex,
}

impl Patterns {
    pub(crate) fn new() -> Result<Self, regex::Error> {
        let iso = "%Y-%m-%dT%H:%M:%S";
        Ok(Self {
            uid: Regex::new(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b")?,
            token: Regex::new(r"\beyJ[\w-]+\.[\w-]+\.[\w-]+")?,
            hash: Regex::new("hash=[0-9A-F]{32,}")?,
            times: vec![
                (Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d)")?, iso, 19, "<time>"),
                (Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")?, iso, 19, "<microtime>"),
                (
                    Regex::new(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4} \w+")?,
                    "%Y-%m-%d %H:%M:%S",
                    19,
                    "<time>",
                ),
                (
                    Regex::new(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}")?,
                    "%a, %d %b %Y %H:%M:%S",
                    25,
                    "<time>",
                ),
            ],
            mentions_revision: Regex::new("(?i)resource ?version")?,
            number: Regex::new(r"[\w.]+")?,
        })
    }

    /// The text with placeholders; `name` gives what stands for a resource version.
    pub(crate) fn fold(&self, text: &str, name: impl Fn(&str) -> String) -> String {
        let text = self.uid.replace_all(text, "<uid>");
        let text = self.token.replace_all(&text, "<jwt>");
        let mut text = self.hash.replace_all(&text, "hash=<hash>").into_owned();
        for (pattern, form, size, mark) in &self.times {
            text = pattern
                .replace_all(&text, |found: &Captures<'_>| {
                    let found = found.get(0).map_or("", |m| m.as_str());
                    if near_now(found.get(..*size).unwrap_or_default(), form) {
                        (*mark).to_owned()
                    } else {
                        found.to_owned()
                    }
                })
                .into_owned();
        }
        if !self.mentions_revision.is_match(&text) {
            return text;
        }
        // A number of its own: dots may follow it, but no word.
        let replaced = self.number.replace_all(&text, |found: &Captures<'_>| {
            let word = found.get(0).map_or("", |m| m.as_str());
            let digits = word.trim_end_matches('.');
            if digits.len() >= 2 && digits.chars().all(|c| c.is_ascii_digit()) {
                name(digits) + word.get(digits.len()..).unwrap_or_default()
            } else {
                word.to_owned()
            }
        });
        replaced.into_owned()
    }
}

fn near_now(text: &str, form: &str) -> bool {
    let then = DateTime::strptime(form, text).ok().and_then(|then| then.to_zoned(TimeZone::UTC).ok());
    then.is_some_and(|then| (then.timestamp().as_second() - Timestamp::now().as_second()).abs() < NEAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_times_near_now_are_volatile() {
        let patterns = Patterns::new().unwrap();
        let fold = |text: &str| patterns.fold(text, |_| "<rv>".into());
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        assert_eq!(fold(&format!("at {now}.")), "at <time>.");
        let micro = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.123456Z").to_string();
        assert_eq!(fold(&micro), "<microtime>");
        let mail = Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S +0000").to_string();
        assert_eq!(fold(&mail), "<time>");
        assert_eq!(fold("2001-01-01T00:00:00Z"), "2001-01-01T00:00:00Z");
    }

    #[test]
    fn resource_versions_in_texts() {
        let patterns = Patterns::new().unwrap();
        let fold = |text: &str| patterns.fold(text, |_| "<rv>".into());
        assert_eq!(
            fold("Too large resource version: 12345, current: 77."),
            "Too large resource version: <rv>, current: <rv>."
        );
        assert_eq!(fold("resourceVersion 12ab 1.25 7"), "resourceVersion 12ab 1.25 7");
        assert_eq!(fold("port 8080"), "port 8080");
    }
}
