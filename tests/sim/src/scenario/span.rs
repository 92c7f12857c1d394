//! Lengths of time in files: `30s`, `5m`, `1h30m`.

use std::time::Duration;

use neonvm_api::GoDuration;
use serde::{Deserialize, Deserializer, Serializer, de::Error};

fn text(span: Duration) -> String {
    let (whole, rest) = (span.as_secs(), span.subsec_millis());
    match (whole, rest) {
        (whole, 0) if whole > 0 && whole.is_multiple_of(3600) => format!("{}h", whole / 3600),
        (whole, 0) if whole > 0 && whole.is_multiple_of(60) => format!("{}m", whole / 60),
        (whole, 0) => format!("{whole}s"),
        _ => format!("{}ms", span.as_millis()),
    }
}

pub(super) fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text(*span))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let span = GoDuration::deserialize(deserializer)?;
    span.to_std().ok_or_else(|| D::Error::custom("a length of time cannot be negative"))
}

/// The same where it may be missing.
pub(super) mod option {
    use super::{Deserialize, Deserializer, Duration, Serializer};

    #[derive(Deserialize)]
    struct Wrapped(#[serde(with = "super")] Duration);

    pub(in super::super) fn serialize<S: Serializer>(
        span: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match span {
            Some(span) => super::serialize(span, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Wrapped>::deserialize(deserializer)?.map(|wrapped| wrapped.0))
    }
}
