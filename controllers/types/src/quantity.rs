//! Kubernetes quantities: exact parsing and canonical printing.
//!
//! A quantity is `[+-]digits[.digits]` followed by a binary suffix (`Ki`…`Ei`), a decimal suffix (`n`…`E`) or a
//! decimal exponent (`e3`, `E-2`). Values are held as a count of billionths; anything finer is rounded away from zero,
//! as Kubernetes does. Unlike Kubernetes, a value too large is an error and is not capped without a word, except where
//! the API server's answers are reproduced: [`Quantity::parse_capped`], [`Quantity::plus`] and [`Quantity::minus`].

use std::{cmp::Ordering, fmt, str::FromStr};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, Visitor},
};

/// Billionths in one.
const NANO: i128 = 1_000_000_000;
/// Decimal digits in [`NANO`].
const NANO_DIGITS: i64 = 9;
/// The decimal exponent beyond which any non-zero value is out of range.
const EXPONENT_LIMIT: i64 = 64;
/// The magnitude to which the API server caps, in billionths.
const CAP: i128 = i64::MAX as i128 * NANO;
/// How much of a rejected text an error repeats.
const SHOWN: usize = 40;

/// Why a text is not a quantity, or does not fit where it is meant to go.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text is empty.
    #[error("a quantity is expected, such as 250m, 1 or 2Gi, but the text is empty")]
    Empty,
    /// The text does not follow the grammar.
    #[error("{0:?} is not a quantity; write a number with an optional suffix, such as 250m, 0.5 or 2Gi")]
    Malformed(String),
    /// The value does not fit.
    #[error("{value} is out of range; it must be between {min} and {max}")]
    OutOfRange {
        /// The value as given.
        value: String,
        /// Smallest value allowed.
        min: String,
        /// Largest value allowed.
        max: String,
    },
}

/// How a quantity was written, which decides how it is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `1k`, `250m`.
    #[default]
    DecimalSi,
    /// `1Ki`, `2Gi`; falls back to [`Format::DecimalSi`] below 1024 and for fractions.
    BinarySi,
    /// `1e3`.
    DecimalExponent,
}

/// A Kubernetes quantity, in billionths. Equality and order compare the value only, not the spelling.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

impl Quantity {
    /// Parses as the API server does: a magnitude above 2^63 - 1 is that number. `None` for what is no quantity, and for an
    /// exponent beyond 16 bits.
    #[must_use]
    pub fn parse_capped(text: &str) -> Option<Self> {
        let (magnitude, suffix) = read(text)?;
        i16::try_from(suffix.decimal).ok()?;
        let magnitude = magnitude.map_or(CAP, |nanos| nanos.min(CAP));
        Some(Self::signed(text, magnitude, suffix.format))
    }

    /// `magnitude` with the sign that `text` begins with.
    fn signed(text: &str, magnitude: i128, format: Format) -> Self {
        Self { nanos: if text.starts_with('-') { -magnitude } else { magnitude }, format }
    }

    /// A whole number.
    #[must_use]
    pub fn from_units(units: i64, format: Format) -> Self {
        Self { nanos: i128::from(units) * NANO, format }
    }

    /// A whole non-negative number.
    #[must_use]
    pub fn from_unsigned(units: u64, format: Format) -> Self {
        Self { nanos: i128::from(units) * NANO, format }
    }

    /// A number of thousandths.
    #[must_use]
    pub fn from_milli(milli: i64, format: Format) -> Self {
        Self { nanos: i128::from(milli) * (NANO / 1000), format }
    }

    /// The value in billionths, exactly.
    #[must_use]
    pub fn nanos(self) -> i128 {
        self.nanos
    }

    /// How the value is printed.
    #[must_use]
    pub fn format(self) -> Format {
        self.format
    }

    /// The value in thousandths, rounded up (away from zero).
    #[must_use]
    pub fn milli_rounded_up(self) -> i128 {
        div_away_from_zero(self.nanos, NANO / 1000)
    }

    /// The value in whole units, rounded up (away from zero).
    #[must_use]
    pub fn units_rounded_up(self) -> i128 {
        div_away_from_zero(self.nanos, NANO)
    }

    /// The value in whole units, if it is a whole number that fits.
    #[must_use]
    pub fn as_int(self) -> Option<i64> {
        if self.nanos % NANO == 0 { i64::try_from(self.nanos / NANO).ok() } else { None }
    }

    /// -1, 0 or 1.
    #[must_use]
    pub fn sign(self) -> i64 {
        i64::try_from(self.nanos.signum()).unwrap_or_default()
    }

    /// The value in units, as the nearest floating point number.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "the nearest number is what is asked for")]
    pub fn as_float(self) -> f64 {
        self.nanos as f64 / NANO as f64
    }

    /// The sum, capped at 2^63 - 1 either way; printed like `self`.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_add(other.nanos).clamp(-CAP, CAP), format: self.format }
    }

    /// The difference, capped at 2^63 - 1 either way; printed like `self`.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_sub(other.nanos).clamp(-CAP, CAP), format: self.format }
    }

    /// Parses a JSON number. Integers are exact; floats are read by their shortest decimal text.
    ///
    /// # Errors
    /// [`QuantityError::OutOfRange`] when the value is too large to hold.
    pub fn from_f64(value: f64) -> Result<Self, QuantityError> {
        format!("{value}").parse()
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
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
        self.nanos.cmp(&other.nanos)
    }
}

/// `divisor` must be positive.
fn div_away_from_zero(value: i128, divisor: i128) -> i128 {
    let quotient = value / divisor;
    if value % divisor == 0 { quotient } else { quotient + value.signum() }
}

/// What the suffix multiplies by: 1024^`binary` · 10^`decimal`.
struct Suffix {
    binary: u32,
    decimal: i64,
    format: Format,
}

fn parse_suffix(text: &str) -> Option<Suffix> {
    let binary = |power| Some(Suffix { binary: power, decimal: 0, format: Format::BinarySi });
    let decimal = |power| Some(Suffix { binary: 0, decimal: power, format: Format::DecimalSi });
    match text {
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
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
        _ => {
            let exponent = text.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            // An exponent too long for i64 is out of range or rounds to the smallest step; saturation keeps either.
            let saturated = if exponent.starts_with('-') { i64::MIN / 4 } else { i64::MAX / 4 };
            let decimal = exponent.parse().unwrap_or(saturated).clamp(i64::MIN / 4, i64::MAX / 4);
            Some(Suffix { binary: 0, decimal, format: Format::DecimalExponent })
        }
    }
}

/// Decimal digits, most significant first, without a limit on length, so that rounding is exact.
struct Digits(Vec<u8>);

impl Digits {
    fn multiply_by_1024(&mut self) {
        let mut carry: u32 = 0;
        for digit in self.0.iter_mut().rev() {
            let product = u32::from(*digit) * 1024 + carry;
            *digit = u8::try_from(product % 10).unwrap_or_default();
            carry = product / 10;
        }
        let mut high = Vec::new();
        while carry > 0 {
            high.push(u8::try_from(carry % 10).unwrap_or_default());
            carry /= 10;
        }
        high.reverse();
        self.0.splice(0..0, high);
    }

    /// This number · 10^`shift`, rounded up; `None` if it does not fit.
    fn shifted(&self, shift: i64) -> Option<i128> {
        let significant: Vec<u8> = self.0.iter().copied().skip_while(|d| *d == 0).collect();
        if significant.is_empty() {
            return Some(0);
        }
        if shift > EXPONENT_LIMIT {
            return None;
        }
        let length = i64::try_from(significant.len()).ok()?;
        let whole = usize::try_from(length.saturating_add(shift.min(0)).max(0)).ok()?;
        let mut value: i128 = 0;
        for digit in significant.iter().take(whole) {
            value = value.checked_mul(10)?.checked_add(i128::from(*digit))?;
        }
        for _ in 0..shift.max(0) {
            value = value.checked_mul(10)?;
        }
        let inexact = significant.iter().skip(whole).any(|d| *d != 0);
        value.checked_add(i128::from(inexact))
    }
}

fn shorten(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Empty);
        }
        let (magnitude, suffix) = read(text).ok_or_else(|| QuantityError::Malformed(shorten(text)))?;
        let magnitude = magnitude.ok_or_else(|| QuantityError::OutOfRange {
            value: shorten(text),
            min: "-1e29".to_owned(),
            max: "1e29".to_owned(),
        })?;
        Ok(Self::signed(text, magnitude, suffix.format))
    }
}

/// The magnitude of a text in billionths, `None` when it is too large to hold, and its suffix.
fn read(text: &str) -> Option<(Option<i128>, Suffix)> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let number_end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let suffix = parse_suffix(suffix)?;
    let mut digits = Digits(whole.bytes().chain(fraction.bytes()).map(|b| b.saturating_sub(b'0')).collect());
    for _ in 0..suffix.binary {
        digits.multiply_by_1024();
    }
    let fraction_digits = i64::try_from(fraction.len()).unwrap_or(i64::MAX / 4);
    let shift = suffix.decimal.saturating_sub(fraction_digits).saturating_add(NANO_DIGITS);
    Some((digits.shifted(shift), suffix))
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        match self.format {
            Format::BinarySi if self.nanos % NANO == 0 && self.nanos.abs() >= 1024 * NANO => {
                self.write_binary(f)
            }
            Format::DecimalExponent => self.write_decimal(f, &EXPONENTS),
            Format::BinarySi | Format::DecimalSi => self.write_decimal(f, &DECIMALS),
        }
    }
}

/// Suffixes for 10^-9, 10^-6 and so on.
const DECIMALS: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const EXPONENTS: [&str; 10] = ["e-9", "e-6", "e-3", "", "e3", "e6", "e9", "e12", "e15", "e18"];

impl Quantity {
    fn write_binary(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.nanos / NANO;
        let mut suffix = "";
        for larger in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
            if value % 1024 != 0 {
                break;
            }
            value /= 1024;
            suffix = larger;
        }
        write!(f, "{value}{suffix}")
    }

    fn write_decimal(self, f: &mut fmt::Formatter<'_>, suffixes: &[&str]) -> fmt::Result {
        let mut value = self.nanos;
        let mut suffix = "";
        for (step, larger) in suffixes.iter().enumerate() {
            if step > 0 {
                if value % 1000 != 0 {
                    break;
                }
                value /= 1000;
            }
            suffix = larger;
        }
        write!(f, "{value}{suffix}")
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

struct QuantityVisitor;

impl Visitor<'_> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity such as \"250m\", 0.5, 1 or \"2Gi\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Quantity, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Quantity, E> {
        Ok(Quantity::from_unsigned(value, Format::DecimalSi))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Quantity, E> {
        Ok(Quantity::from_units(value, Format::DecimalSi))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Quantity, E> {
        Quantity::from_f64(value).map_err(E::custom)
    }

    fn visit_unit<E: Error>(self) -> Result<Quantity, E> {
        Ok(Quantity::default())
    }
}

/// Accepts a string or a number; `null` is zero.
impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuantityVisitor)
    }
}

#[cfg(test)]
mod tests;
