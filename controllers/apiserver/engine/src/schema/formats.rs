//! The string formats that custom resource schemas check (OpenAPI `format`), and duration parsing.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Whether `text` has the format; `true` for formats that are not checked.
pub(crate) fn matches(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => is_date_time(text),
        "date" => is_date(text),
        "duration" => parse_duration(text).is_some() || is_worded_duration(text),
        "byte" => STANDARD.decode(text).is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some(b'3')),
        "uuid4" => is_uuid(text, Some(b'4')),
        "uuid5" => is_uuid(text, Some(b'5')),
        "uri" => is_uri(text),
        "email" => is_email(text),
        "hostname" => is_hostname(text),
        "bsonobjectid" => text.len() == 24 && all_hex(text),
        "hexcolor" => is_hex_color(text),
        "rgbcolor" => is_rgb_color(text),
        "ssn" => is_ssn(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "creditcard" => is_credit_card(text),
        "k8s-short-name" => is_dns_label(text),
        "k8s-long-name" => text.len() <= 253 && text.split('.').all(is_dns_label),
        _ => true,
    }
}

fn all_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_dns_label(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

fn number(text: &str, digits: usize) -> Option<u32> {
    if text.len() == digits && text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn is_date(text: &str) -> bool {
    let mut parts = text.split('-');
    let (Some(year), Some(month), Some(day), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let (Some(year), Some(month), Some(day)) = (number(year, 4), number(month, 2), number(day, 2)) else {
        return false;
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => 0,
    };
    (1..=days).contains(&day)
}

/// RFC 3339.
fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't']) else { return false };
    let Some(clock) = time.get(..8) else { return false };
    let mut parts = clock.split(':').map(|part| number(part, 2));
    let (Some(Some(hour)), Some(Some(minute)), Some(Some(second)), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let mut zone = time.get(8..).unwrap_or_default();
    if let Some(fraction) = zone.strip_prefix('.') {
        let rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
        if rest.len() == fraction.len() {
            return false;
        }
        zone = rest;
    }
    let offset = |zone: &str| {
        let clock = zone.strip_prefix(['+', '-']).and_then(|zone| zone.split_once(':'));
        clock.is_some_and(|(hour, minute)| {
            number(hour, 2).is_some_and(|hour| hour < 24)
                && number(minute, 2).is_some_and(|minute| minute < 60)
        })
    };
    is_date(date) && hour < 24 && minute < 60 && second < 60 && (matches!(zone, "Z" | "z") || offset(zone))
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

/// `22 ns`, `3 days`: a figure and a word.
fn is_worded_duration(text: &str) -> bool {
    const WORDS: &str = " ns nano nanos nanosecond nanoseconds us micro micros microsecond microseconds µs ms milli \
        millis millisecond milliseconds s sec secs second seconds m min mins minute minutes h hr hour hours d day \
        days w week weeks ";
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (figure, word) = text.split_at(end);
    let word = word.trim();
    !figure.is_empty() && !word.is_empty() && WORDS.contains(&format!(" {word} "))
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let limit = if address.parse::<Ipv4Addr>().is_ok() {
        32
    } else if address.parse::<Ipv6Addr>().is_ok() {
        128
    } else {
        return false;
    };
    bits.bytes().all(|b| b.is_ascii_digit()) && bits.parse::<u16>().is_ok_and(|bits| bits <= limit)
}

fn is_mac(text: &str) -> bool {
    let groups = |separator: char, width: usize, counts: &[usize]| {
        let parts: Vec<&str> = text.split(separator).collect();
        counts.contains(&parts.len()) && parts.iter().all(|part| part.len() == width && all_hex(part))
    };
    groups(':', 2, &[6, 8, 20]) || groups('-', 2, &[6, 8, 20]) || groups('.', 4, &[3, 4, 10])
}

fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let mut hex: Vec<u8> = Vec::with_capacity(32);
    for byte in text.bytes() {
        // Dashes may stand between the groups of 8-4-4-4-12, and may be left out.
        match byte {
            b'-' if matches!(hex.len(), 8 | 12 | 16 | 20) => {}
            b if b.is_ascii_hexdigit() && hex.len() < 32 => hex.push(b.to_ascii_lowercase()),
            _ => return false,
        }
    }
    let variant = |version: u8| version == b'3' || matches!(hex.get(16), Some(b'8' | b'9' | b'a' | b'b'));
    hex.len() == 32
        && !text.contains("--")
        && version.is_none_or(|version| hex.get(12) == Some(&version) && variant(version))
}

/// An absolute URI or an absolute path.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b.is_ascii_control() || b == b' ') {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let mut bytes = scheme.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic())
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
        && !rest.is_empty()
}

fn is_email(text: &str) -> bool {
    let address = match text.split_once('<') {
        Some((_, rest)) => rest.strip_suffix('>').unwrap_or_default(),
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && !part.ends_with('.')
            && !part.chars().any(|c| c.is_whitespace() || c.is_control() || "()<>[]:;@\\,\"".contains(c))
    };
    plain(local) && plain(domain)
}

fn is_hostname(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 255
        && text.trim_end_matches('.').split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.chars().all(|c| c.is_alphanumeric() || c == '-')
        })
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && all_hex(digits)
}

fn is_rgb_color(text: &str) -> bool {
    let inner = text.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')'));
    inner.is_some_and(|inner| {
        let parts: Vec<&str> = inner.split(',').map(str::trim).collect();
        parts.len() == 3 && parts.iter().all(|part| part.parse::<u8>().is_ok())
    })
}

fn is_ssn(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
    digits.len() == 9
        && ["999999999", "999-99-9999", "999 99 9999", "999-999999", "999 999999", "99999-9999", "99999 9999"]
            .contains(&shape.as_str())
}

fn bare(text: &str) -> Vec<u8> {
    text.bytes().filter(|b| !matches!(b, b'-' | b' ')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = bare(text);
    let mut sum = 0_u32;
    for (index, byte) in digits.iter().enumerate() {
        let value = match byte {
            b'0'..=b'9' => u32::from(byte - b'0'),
            b'X' | b'x' if index == 9 => 10,
            _ => return false,
        };
        sum += value * (10 - u32::try_from(index.min(9)).unwrap_or_default());
    }
    digits.len() == 10 && sum.is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let digits = bare(text);
    let weighted = digits.iter().enumerate().map(|(index, byte)| {
        let weight = if index % 2 == 0 { 1 } else { 3 };
        weight * u32::from(byte.wrapping_sub(b'0'))
    });
    digits.len() == 13 && digits.iter().all(u8::is_ascii_digit) && weighted.sum::<u32>() % 10 == 0
}

/// Luhn check over 13 to 16 digits.
fn is_credit_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    let doubled = digits.iter().rev().enumerate().map(|(index, digit)| match index % 2 {
        0 => *digit,
        _ => digit * 2 / 10 + digit * 2 % 10,
    });
    (13..=16).contains(&digits.len()) && doubled.sum::<u32>() % 10 == 0
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
            ("date", "2024-12-31", "2024-13-01"),
            ("duration", "1h30m", "1 fortnight"),
            ("duration", "22 ns", "h"),
            ("byte", "aGVsbG8=", "***"),
            ("ipv4", "1.2.3.4", "1.2.3"),
            ("ipv6", "::1", "1.2.3.4"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("mac", "00:00:5e:00:53:01", "00:00:5e"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
            ("uuid4", "9c858901-8a57-4791-81fe-4c455b099bc9", "123e4567-e89b-12d3-a456-426614174000"),
            ("uri", "https://example.com/x", "example"),
            ("email", "a@example.com", "a.example.com"),
            ("hostname", "a.example.com", "-a"),
            ("hexcolor", "#FFFFFF", "#FF"),
            ("rgbcolor", "rgb(255,255,25)", "rgb(1,2)"),
            ("ssn", "123-45-6789", "12-345"),
            ("isbn10", "0321751043", "0321751044"),
            ("isbn13", "978-0321751041", "978-0321751042"),
            ("creditcard", "4111 1111 1111 1111", "4111 1111 1111 1112"),
            ("bsonobjectid", "507f1f77bcf86cd799439011", "507f"),
            ("k8s-short-name", "a-b", "A"),
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
        fn never_panics(text in "\\PC{0,30}", n in 0_usize..24) {
            let format = ["date-time", "date", "duration", "byte", "cidr", "mac", "uuid", "uuid3", "uri", "email",
                "hostname", "hexcolor", "rgbcolor", "ssn", "isbn", "isbn10", "isbn13", "creditcard", "ipv4", "ipv6",
                "bsonobjectid", "k8s-long-name", "password", "k8s-short-name"][n];
            let _ = matches(format, &text);
        }
    }
}
