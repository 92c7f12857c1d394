//! Floats as Go writes them: a whole number has no fraction (`1`, not `1.0`), others their shortest text.
//!
//! NaN and infinities have no JSON form; they are an error, where a plain encoder would write `null`.

use serde::{Serializer, ser::Error};

/// Whole numbers below this are written without a fraction; it is far inside the exact range of `f64`.
const INTEGER_LIMIT: f64 = 1e15;

fn whole(value: f64) -> Option<i64> {
    let plain = value.abs() < INTEGER_LIMIT && value.fract() == 0.0;
    // The text of such a value is an integer, so parsing cannot fail; -0 becomes 0.
    if plain { format!("{value}").parse().ok() } else { None }
}

/// Writes one `f64`.
pub(crate) fn f64<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if !value.is_finite() {
        return Err(S::Error::custom("a number that is not finite cannot be sent"));
    }
    match whole(*value) {
        Some(whole) => serializer.serialize_i64(whole),
        None => serializer.serialize_f64(*value),
    }
}

/// Writes one `f32` with the digits of a 32-bit float (`0.3`, not `0.30000001192092896`).
pub(crate) fn f32<S: Serializer>(value: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    if !value.is_finite() {
        return Err(S::Error::custom("a number that is not finite cannot be sent"));
    }
    match whole(f64::from(*value)) {
        Some(whole) => serializer.serialize_i64(whole),
        None => serializer.serialize_f32(*value),
    }
}

/// Writes `Some` as [`f32`]; `None` should be skipped by the caller and is `null` otherwise.
pub(crate) fn optional_f32<S: Serializer>(value: &Option<f32>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => f32(value, serializer),
        None => serializer.serialize_none(),
    }
}
