//! Amounts of bytes and time for people. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Bytes for people, with one place unless it is zero: `900Mi`, `8.6Gi`, `16Gi`.
pub(crate) fn bytes(amount: u64) -> String {
    let units = ["Ti", "Gi", "Mi", "Ki"];
    for (index, unit) in units.iter().enumerate() {
        let one = 1u64 << (10 * (units.len() - index));
        if amount >= one {
            let tenths = u128::from(amount) * 10 / u128::from(one);
            return match (tenths / 10, tenths % 10) {
                (whole, 0) => format!("{whole}{unit}"),
                (whole, tenth) => format!("{whole}.{tenth}{unit}"),
            };
        }
    }
    amount.to_string()
}

/// How long ago, as `3d4h`.
pub(crate) fn age(since: Timestamp) -> String {
    let seconds = Timestamp::now().as_second() - since.as_second();
    span(u64::try_from(seconds).unwrap_or(0))
}

/// How long ago an object was made, if it holds the time.
pub(crate) fn age_of(metadata: &ObjectMeta) -> Option<String> {
    let made = metadata.creation_timestamp.as_ref()?;
    Timestamp::from_second(made.0.as_second()).ok().map(age)
}

/// A length of time, as `12s`, `3m`, `3h5m` or `3d4h`.
pub(crate) fn span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m"),
        (0, _, _) => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

/// The seconds of a text of [`span`].
pub(super) fn seconds(text: &str) -> Option<i64> {
    let mut rest = text;
    let mut total = 0_i64;
    while let Some(at) = rest.find(|c: char| !c.is_ascii_digit()) {
        let (number, unit) = rest.split_at_checked(at)?;
        let scale = match unit.as_bytes().first()? {
            b'd' => 86_400,
            b'h' => 3600,
            b'm' => 60,
            b's' => 1,
            _ => return None,
        };
        total = total.checked_add(number.parse::<i64>().ok()?.checked_mul(scale)?)?;
        rest = unit.get(1..)?;
    }
    (rest.is_empty() && !text.is_empty()).then_some(total)
}
