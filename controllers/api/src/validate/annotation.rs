//! Annotations that tune a pod autoscaler. Upstream reads them in random order and gives up at the first bad one;
//! here a bad one is refused.

use std::collections::BTreeMap;

use crate::{GoDuration, field_error::Faults, pod_autoscaler::annotation as key};

/// Numbers: key, smallest value, what the value means.
const NUMBERS: [(&str, f64); 5] = [
    (key::MAX_SCALE_UP_RATE, 1.0),
    (key::MAX_SCALE_DOWN_RATE, 1.0),
    (key::SCALE_UP_TOLERANCE, 0.0),
    (key::SCALE_DOWN_TOLERANCE, 0.0),
    (key::PANIC_THRESHOLD, 1.0),
];

/// Spellings of truth values.
const BOOLEANS: [&str; 12] =
    ["1", "t", "T", "true", "TRUE", "True", "0", "f", "F", "false", "FALSE", "False"];

pub(super) fn annotations(annotations: &BTreeMap<String, String>, faults: &mut Faults) {
    let field = |key: &str| format!("metadata.annotations[{key}]");
    for (key, least) in NUMBERS {
        if let Some(text) = annotations.get(key) {
            let good = text.parse::<f64>().is_ok_and(|value| value.is_finite() && value >= least);
            faults.require(good, field(key), format!("{text:?} must be a number of at least {least}"));
        }
    }
    for key in [key::SCALE_UP_COOLDOWN, key::SCALE_DOWN_COOLDOWN] {
        if let Some(text) = annotations.get(key) {
            let good = text.parse::<GoDuration>().is_ok_and(|duration| duration.nanos() >= 0);
            faults.require(
                good,
                field(key),
                format!("{text:?} must be a duration that is not negative, such as 300s or 5m"),
            );
        }
    }
    if let Some(text) = annotations.get(key::SCALE_TO_ZERO) {
        faults.require(
            BOOLEANS.contains(&text.as_str()),
            field(key::SCALE_TO_ZERO),
            format!("{text:?} must be true or false"),
        );
    }
}
