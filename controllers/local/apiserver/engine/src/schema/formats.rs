//! The string formats that custom resource schemas check (OpenAPI `format`), and duration parsing.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Whether `text` has the format; `true` for formats that no definition of this project has.
pub(crate) fn matches(format: &str, text: &str) -> bool {
    match format {
        "date-time" => super::decode::canonical_time(text, false).is_some(),
        "duration" => parse_duration(text).is_some(),
        "byte" => STANDARD.decode(text).is_ok(),
        _ => true,
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
        fn never_panics(text in "\\PC{0,30}", n in 0_usize..3) {
            let _ = matches(["date-time", "duration", "byte"][n], &text);
        }
    }
}
