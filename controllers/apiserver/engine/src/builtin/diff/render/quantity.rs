//! The fields of a quantity.

use crate::builtin::internal::Held;

/// Digits that fit into 64 bits.
const DIGITS: i32 = 18;
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// The fields of a quantity in canonical form, as they are after it was read.
pub(super) fn fields(text: &str) -> Vec<(&'static str, Held)> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '-')).unwrap_or(text.len());
    let (digits, suffix) = text.split_at_checked(end).unwrap_or((text, ""));
    let length = i32::try_from(digits.trim_start_matches('-').len()).unwrap_or(i32::MAX);
    let value: i64 = digits.parse().unwrap_or(0);
    if text == "0" {
        return held(0, 0, Some(text), "DecimalSI");
    }
    if let Some((_, exponent)) = BINARY.into_iter().find(|(known, _)| *known == suffix) {
        let size = i32::try_from(exponent * 3 / 10).unwrap_or(i32::MAX);
        return match value.checked_mul(1_i64 << exponent) {
            Some(bytes) if 15 - length - size > 0 => {
                held(bytes, 0, Some(text).filter(|_| value & 7 != 0), "BinarySI")
            }
            _ => large(i128::from(value) << exponent, "BinarySI"),
        };
    }
    let exponent = suffix.strip_prefix('e').and_then(|exponent| exponent.parse().ok());
    let known = DECIMAL.iter().find(|(known, _)| *known == suffix).map(|(_, scale)| *scale);
    let format = if exponent.is_some() { "DecimalExponent" } else { "DecimalSI" };
    let scale: i32 = exponent.or(known).unwrap_or(0);
    if length > DIGITS {
        return large(i128::from(value), format);
    }
    held(value, scale, Some(text).filter(|_| scale % 3 == 0 && !digits.ends_with("000")), format)
}

fn held(value: i64, scale: i32, text: Option<&str>, format: &str) -> Vec<(&'static str, Held)> {
    let amount = vec![("value", Held::Number(value)), ("scale", Held::Number(i64::from(scale)))];
    vec![
        ("i", Held::Struct("resource.int64Amount", amount)),
        ("s", Held::Text(text.unwrap_or_default().to_owned())),
        ("Format", Held::Text(format.to_owned())),
    ]
}

/// An amount of more digits, which prints itself.
fn large(value: i128, format: &str) -> Vec<(&'static str, Held)> {
    vec![("d", Held::Printed(value.to_string())), ("Format", Held::Text(format.to_owned()))]
}
