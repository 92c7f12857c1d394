//! Kubernetes quantities: `100m`, `1.5Gi`, `2e3`. Exact to a billionth, printed in canonical form.

use std::cmp::Ordering;

/// The error text of a real server for anything that is no quantity.
pub const MALFORMED: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Billionths in one.
const NANO: i128 = 1_000_000_000;
/// Largest magnitude kept, in billionths: larger ones are capped, as the real server does.
const LIMIT: i128 = i64::MAX as i128 * NANO;

/// How a quantity was written, which its canonical form keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// `100m`, `5k`
    Decimal,
    /// `1Gi`
    Binary,
    /// `2e3`
    Exponent,
}

/// A parsed quantity; compared by value alone.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nano: i128,
    notation: Notation,
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl Quantity {
    /// Parses `<sign><digits>[.<digits>]<suffix>`; digits below a billionth round away from zero.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, text.get(1..)?),
            b'+' => (false, text.get(1..)?),
            _ => (false, text),
        };
        let end = rest.bytes().position(|b| !b.is_ascii_digit() && b != b'.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at_checked(end)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + fraction.len() == 0 || fraction.contains('.') {
            return None;
        }
        let (notation, base, power) = suffix_scale(suffix)?;
        let magnitude = scale(whole, fraction, base, power);
        Some(Self { nano: if negative { -magnitude } else { magnitude }, notation })
    }

    /// A whole number.
    pub fn from_int(value: i64) -> Self {
        Self { nano: i128::from(value).saturating_mul(NANO), notation: Notation::Decimal }
    }

    /// The value if it is a whole number that fits.
    pub fn as_int(self) -> Option<i64> {
        if self.nano % NANO == 0 { i64::try_from(self.nano / NANO).ok() } else { None }
    }

    /// The nearest floating point number.
    #[allow(clippy::cast_precision_loss, reason = "the nearest number is what is asked for")]
    pub fn as_float(self) -> f64 {
        self.nano as f64 / NANO as f64
    }

    /// -1, 0 or 1.
    pub fn sign(self) -> i64 {
        i64::try_from(self.nano.signum()).unwrap_or_default()
    }

    /// Sum, capped; the notation is that of `self`.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { nano: (self.nano + other.nano).clamp(-LIMIT, LIMIT), notation: self.notation }
    }

    /// Difference, capped; the notation is that of `self`.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self { nano: (self.nano - other.nano).clamp(-LIMIT, LIMIT), notation: self.notation }
    }
}

/// Notation, base (2 or 10) and power of a suffix.
fn suffix_scale(suffix: &str) -> Option<(Notation, u32, i32)> {
    let decimal = |power| Some((Notation::Decimal, 10, power));
    let binary = |power| Some((Notation::Binary, 2, power));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let power = suffix.strip_prefix(['e', 'E'])?;
            Some((Notation::Exponent, 10, i32::from(power.parse::<i16>().ok()?)))
        }
    }
}

/// `whole.fraction × base^power` in billionths, rounded up and capped.
fn scale(whole: &str, fraction: &str, base: u32, power: i32) -> i128 {
    let whole = whole.trim_start_matches('0');
    // 40 digits are more than any value under the cap has; the rest only decides the rounding.
    let digits = whole.len() + fraction.len();
    let mut mantissa: i128 = 0;
    let mut kept = 0;
    let mut lost = false;
    for digit in whole.bytes().chain(fraction.bytes()).map(|b| i128::from(b.wrapping_sub(b'0'))) {
        if kept < 30 || (mantissa == 0 && digit == 0) {
            mantissa = mantissa * 10 + digit;
            kept += 1;
        } else {
            lost |= digit != 0;
        }
    }
    if mantissa == 0 {
        return 0;
    }
    let dropped = i32::try_from(digits - kept.min(digits)).unwrap_or(i32::MAX);
    let places = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    let mut exponent = dropped.saturating_sub(places).saturating_add(9);
    let mut value = mantissa;
    match base {
        2 => {
            // mantissa < 10^30 < 2^100, so that shifting by up to 60 may overflow: cap first.
            let factor = 1_i128 << power.clamp(0, 60);
            match value.checked_mul(factor) {
                Some(product) => value = product,
                None => return LIMIT,
            }
        }
        _ => exponent = exponent.saturating_add(power),
    }
    let rounded = shift_ten(value, exponent, &mut lost);
    (rounded + i128::from(lost)).min(LIMIT)
}

fn shift_ten(mut value: i128, mut exponent: i32, lost: &mut bool) -> i128 {
    while exponent > 0 && value != 0 {
        match value.checked_mul(10) {
            Some(product) => value = product,
            None => return LIMIT,
        }
        exponent -= 1;
    }
    while exponent < 0 && value != 0 {
        *lost |= value % 10 != 0;
        value /= 10;
        exponent += 1;
    }
    value
}

impl std::fmt::Display for Quantity {
    /// The canonical form: no fraction, the largest suffix that loses nothing.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        let small = self.nano.abs() < 1024 * NANO;
        // A part of a byte is not lost: it is written as a decimal number, as the real server does.
        if self.notation == Notation::Binary && !small && self.nano % NANO == 0 {
            return binary(f, self.nano / NANO);
        }
        decimal(f, self.nano, self.notation == Notation::Exponent)
    }
}

fn binary(f: &mut std::fmt::Formatter<'_>, mut value: i128) -> std::fmt::Result {
    let suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut suffix = 0;
    while value % 1024 == 0 && suffix + 1 < suffixes.len() {
        value /= 1024;
        suffix += 1;
    }
    write!(f, "{value}{}", suffixes.get(suffix).copied().unwrap_or_default())
}

fn decimal(f: &mut std::fmt::Formatter<'_>, mut value: i128, exponents: bool) -> std::fmt::Result {
    let suffixes = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    let mut suffix = 0_usize;
    while value % 1000 == 0 && suffix + 1 < suffixes.len() {
        value /= 1000;
        suffix += 1;
    }
    match (exponents, suffix) {
        (true, 3) | (false, _) => write!(f, "{value}{}", suffixes.get(suffix).copied().unwrap_or_default()),
        (true, _) => write!(f, "{value}e{}", i64::try_from(suffix).unwrap_or_default() * 3 - 9),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Notation, Quantity};

    fn canonical(text: &str) -> Option<String> {
        Quantity::parse(text).map(|quantity| quantity.to_string())
    }

    #[test]
    fn canonical_forms() {
        for (text, want) in [
            ("1024Mi", "1Gi"),
            ("0.5Gi", "512Mi"),
            ("0.1", "100m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("1000", "1k"),
            ("0", "0"),
            ("-1.50", "-1500m"),
            ("2e3", "2e3"),
            ("100Ki", "100Ki"),
            ("1.5Gi", "1536Mi"),
            ("512", "512"),
            ("0.5Ki", "512"),
            ("1.953125Ki", "2000"),
            ("0.1Gi", "107374182400m"),
            ("1e2", "100"),
            ("1E", "1E"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("9999999999999999999999E", "9223372036854775807"),
            (".5", "500m"),
            ("5.", "5"),
            ("+3", "3"),
            ("1e-3", "1e-3"),
            ("007", "7"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(want), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity() {
        for text in ["", "x", "1x", "1 ", "--1", "1.2.3", "Gi", ".", "1Gii", "1e", "1e99999"] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn canonical_form_keeps_value_and_notation(text in "[+-]?[0-9]{0,25}\\.?[0-9]{0,25}(n|u|m||k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e[0-9]{1,2}|e-[0-9]{1,2})") {
            if let Some(quantity) = Quantity::parse(&text) {
                let once = quantity.to_string();
                let again = Quantity::parse(&once).unwrap();
                prop_assert_eq!(again, quantity);
                // Bytes that are no whole Ki lose their suffix, as with the real server, and are read as a decimal number.
                let bare = quantity.notation == Notation::Binary && once.ends_with(|last: char| last.is_ascii_digit());
                prop_assert!(bare || again.to_string() == once, "{once} {again}");
                prop_assert_eq!(canonical(&again.to_string()), Some(again.to_string()));
            }
        }

        #[test]
        fn never_panics(text in "\\PC*") {
            let _ = canonical(&text);
        }
    }
}
