//! Decoding helpers: errors that name the wrong field, and Go's rule that `null` means "zero value".

use serde::{Deserialize, Deserializer, de::Error};

pub(crate) mod go_float;

/// A message that could not be decoded. The text names the message and, where one is at fault, the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot decode {what}: {reason}")]
pub struct DecodeError {
    /// The kind of message, such as `scheduler request`.
    pub what: &'static str,
    /// What is wrong, beginning with the field's path where there is one.
    pub reason: String,
}

impl DecodeError {
    pub(crate) fn new(what: &'static str, reason: impl std::fmt::Display) -> Self {
        Self { what, reason: reason.to_string() }
    }
}

/// Decodes one JSON document; trailing bytes other than white space are an error.
pub(crate) fn from_slice<'de, T: Deserialize<'de>>(
    what: &'static str,
    body: &'de [u8],
) -> Result<T, DecodeError> {
    crate::objects::from_slice(body).map_err(|error| DecodeError::new(what, error))
}

/// Decodes a field, treating `null` as the zero value, and puts the field's name in front of any error.
pub(crate) fn named<'de, D, T>(name: &'static str, deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    match Option::<T>::deserialize(deserializer) {
        Ok(value) => Ok(value.unwrap_or_default()),
        Err(error) => Err(D::Error::custom(format_args!("{name}: {error}"))),
    }
}

/// A whole number that is not negative, also written as a float (`2.0`, `2e0`): readers in Go take any number for a float
/// first.
pub(crate) fn whole_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    struct Whole;

    impl serde::de::Visitor<'_> for Whole {
        type Value = u64;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a whole number that is not negative")
        }

        fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
            Ok(value)
        }

        fn visit_i64<E: Error>(self, value: i64) -> Result<u64, E> {
            u64::try_from(value).map_err(|_| E::invalid_value(serde::de::Unexpected::Signed(value), &self))
        }

        fn visit_f64<E: Error>(self, value: f64) -> Result<u64, E> {
            // The largest float below which every whole number is one.
            let exact = value.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&value);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked before")]
            let whole = exact.then_some(value as u64);
            whole.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Float(value), &self))
        }
    }

    deserializer.deserialize_any(Whole)
}

/// One `deserialize_with` function per JSON field name.
macro_rules! field_decoders {
    ($($function:ident => $name:literal),* $(,)?) => {
        /// `deserialize_with` functions, one per JSON field name.
        pub(crate) mod field {
            use serde::{Deserialize, Deserializer};
            $(
                pub(crate) fn $function<'de, D, T>(deserializer: D) -> Result<T, D::Error>
                where
                    D: Deserializer<'de>,
                    T: Deserialize<'de> + Default,
                {
                    super::named($name, deserializer)
                }
            )*
        }
    };
}

field_decoders! {
    agent_id => "agentID",
    agent_serve_addr => "agentServeAddr",
    compute_unit => "computeUnit",
    content => "content",
    cpu => "cpu",
    data => "data",
    expected_id => "expectedID",
    flags => "flags",
    granted => "granted",
    id => "id",
    last_permit => "lastPermit",
    load_avg_1m => "loadAvg1M",
    load_avg_5m => "loadAvg5M",
    max_proto_version => "maxProtoVersion",
    mem => "mem",
    memory => "memory",
    memory_usage_bytes => "memoryUsageBytes",
    metrics => "metrics",
    metrics_method => "metricsMethod",
    min_proto_version => "minProtoVersion",
    permit => "permit",
    pod => "pod",
    port => "port",
    prometheus => "prometheus",
    proto_version => "protoVersion",
    resource_unit => "resourceUnit",
    resources => "resources",
    revision => "revision",
    sequence_number => "sequenceNumber",
    target => "target",
    updated_at => "updatedAt",
    value => "value",
    vcpus => "vCPUs",
    vcpus_upper => "VCPUs",
}
