//! The string formats that custom resource schemas check (OpenAPI `format`), and duration parsing.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regex::Regex;

/// Formats that an expression describes.
const PATTERNS: [(&str, &str); 8] = [
    ("date", r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$"),
    // What a Go duration is not: whole numbers with names of units.
    (
        "duration",
        r"(?i)\d\s*(ns|us|µs|ms|s|m|h|hr|d|w|wk|(nano|micro|milli|sec|min|hour|day|week)[a-zµ]*)([^a-zµ]|$)",
    ),
    ("email", r"^[^@\s]+@[^@\s]+$"),
    (
        "hostname",
        r"^([\pL\pS0-9](-?[\pL\pS0-9]{0,62})?|([\pL\pS0-9]([\pL\pS0-9-]{0,61}[\pL\pS0-9])?\.)+[\pL0-9-]{2,63})$",
    ),
    ("k8s-short-name", "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"),
    ("mac", r"^([0-9A-Fa-f]{2}[:-]){5}([0-9A-Fa-f]{2}|([0-9A-Fa-f]{2}[:-]){2}[0-9A-Fa-f]{2})$"),
    ("uri", r"^([A-Za-z][A-Za-z0-9+.-]*:|/)[^\x00-\x20]*$"),
    ("uuid", "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"),
];

fn is_like(format: &str, text: &str) -> bool {
    static COMPILED: OnceLock<BTreeMap<&str, Regex>> = OnceLock::new();
    let compiled = COMPILED.get_or_init(|| {
        PATTERNS.into_iter().filter_map(|(name, source)| Some((name, Regex::new(source).ok()?))).collect()
    });
    compiled.get(format).is_none_or(|regex| regex.is_match(text))
}

/// Whether `text` has the format; `true` for formats that are not known.
pub(crate) fn matches(format: &str, text: &str) -> bool {
    match format {
        "date-time" => super::decode::canonical_time(&text.to_uppercase(), false).is_some(),
        "duration" => parse_duration(text).is_some() || is_like(format, text),
        "byte" => STANDARD.decode(text).is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => text.split_once('/').is_some_and(|(address, length)| {
            let most = address.parse().map(|address: IpAddr| if address.is_ipv4() { 32 } else { 128 });
            most.is_ok_and(|most| length.parse::<u8>().is_ok_and(|length| length <= most))
        }),
        "k8s-long-name" => text.len() <= 253 && text.split('.').all(|label| is_like("k8s-short-name", label)),
        _ => is_like(format, text),
    }
}

/// A duration as Go writes it (`1h30m`, `-1.5s`, `0`), in nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (figure, tail) = rest.split_at_checked(end)?;
        let end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(end)?;
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        total = total.checked_add(scaled(figure, unit)?)?;
        rest = tail;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// `figure × unit`, truncated.
fn scaled(figure: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = figure.split_once('.').unwrap_or((figure, ""));
    if whole.len() + fraction.len() == 0 || fraction.contains('.') || whole.len() > 19 {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction = fraction.get(..fraction.len().min(18))?;
    let below: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let base = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    whole.checked_mul(unit)?.checked_add(below.checked_mul(unit)?.checked_div(base)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{matches, parse_duration};

    #[test]
    fn good_and_bad_examples() {
        for (format, good, bad) in [
            ("date-time", "2024-01-01T00:00:00Z", "2024-01-01"),
            ("date-time", "2024-02-29T23:59:59.123+02:00", "2023-02-29T00:00:00Z"),
            ("duration", "1h30m", "1 fortnight"),
            ("byte", "aGVsbG8=", "***"),
            ("duration", "5 minutes", "x"),
            ("date", "2024-01-31", "2024-13-01"),
            ("ipv4", "1.2.3.4", "1.2.3"),
            ("ipv6", "::1", "1.2.3.4"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "x"),
            ("hostname", "a.example", "a.b"),
            ("mac", "00:00:5e:00:53:01", "x"),
            ("uri", "https://a.b", "x"),
            ("k8s-long-name", "a.b", "A"),
        ] {
            assert!(matches(format, good), "{format} {good}");
            assert!(!matches(format, bad), "{format} {bad}");
        }
        assert!(matches("anything-else", "x"));
        assert_eq!(parse_duration("-1.5s"), Some(-1_500_000_000));
        assert_eq!(parse_duration("1h1m1s"), Some(3_661_000_000_000));
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,30}", n in 0_usize..6) {
            let _ = matches(["date-time", "duration", "byte", "cidr", "hostname", "uri"][n], &text);
        }
    }
}
