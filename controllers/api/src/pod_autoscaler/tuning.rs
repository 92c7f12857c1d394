//! What annotations tune, as one value: either all of them are valid, or none is used and every fault is reported.
//!
//! Older names (`kpa.autoscaling.aibrix.ai/…`, `apa.…`) are read where the newer one is absent. Upstream has stopped
//! reading them, so stored objects may hold anything there: one that cannot be read is a warning, not a fault.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::annotation as key;
use crate::{FieldError, GoDuration, field_error::Faults};

/// How a window becomes one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Averaging {
    /// Every value counts the same.
    #[default]
    Linear,
    /// Newer values count more.
    WeightedExponential,
}

/// What annotations tune, with their defaults.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tuning {
    /// Largest factor of one step up, above 1; 2 by default.
    pub max_scale_up_rate: f64,
    /// Largest divisor of one step down, above 1; 2 by default.
    pub max_scale_down_rate: f64,
    /// Relative excess over the target that is tolerated, from 0; 0.1 by default.
    pub scale_up_tolerance: f64,
    /// Relative shortfall that is tolerated, from 0 to below 1; 0.1 by default.
    pub scale_down_tolerance: f64,
    /// Pods wanted by the panic window for each ready pod from which there is panic, above 1; 2 by default.
    pub panic_threshold: f64,
    /// How long a step up is held back; nothing by default.
    pub scale_up_cooldown: Duration,
    /// How long a step down is held back; five minutes by default.
    pub scale_down_cooldown: Duration,
    /// Whether zero replicas are allowed; `None` if it is not set.
    pub scale_to_zero: Option<bool>,
    /// Fewest replicas while there is any load, from 1; 1 by default.
    pub activation_scale: i32,
    /// How a window becomes one number.
    pub averaging: Averaging,
    /// Stable window in seconds by an older annotation; the field of the spec comes first.
    pub legacy_stable_window: Option<i64>,
    /// Panic window in seconds by an older annotation; the field of the spec comes first.
    pub legacy_panic_window: Option<i64>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            max_scale_up_rate: 2.0,
            max_scale_down_rate: 2.0,
            scale_up_tolerance: 0.1,
            scale_down_tolerance: 0.1,
            panic_threshold: 2.0,
            scale_up_cooldown: Duration::ZERO,
            scale_down_cooldown: Duration::from_secs(300),
            scale_to_zero: None,
            activation_scale: 1,
            averaging: Averaging::Linear,
            legacy_stable_window: None,
            legacy_panic_window: None,
        }
    }
}

/// Longest time a step is held back, that of Kubernetes.
pub const MOST_COOLDOWN: Duration = Duration::from_secs(3600);
/// Largest rate and threshold; what is above is as good as no limit.
const MOST_RATE: f64 = 1e6;

const DURATION: &str = "must be a duration from 0s to 1h, such as 300s or 5m";

fn number(text: &str, good: impl Fn(f64) -> bool) -> Option<f64> {
    text.parse::<f64>().ok().filter(|value| value.is_finite() && good(*value))
}

fn rate(text: &str) -> Result<f64, &'static str> {
    number(text, |value| value > 1.0 && value <= MOST_RATE).ok_or("must be a number above 1, such as 2")
}

fn excess(text: &str) -> Result<f64, &'static str> {
    number(text, |value| (0.0..=100.0).contains(&value)).ok_or("must be a number of at least 0, such as 0.1")
}

fn shortfall(text: &str) -> Result<f64, &'static str> {
    number(text, |value| (0.0..1.0).contains(&value)).ok_or("must be a number from 0 to below 1, such as 0.1")
}

fn cooldown(text: &str) -> Result<Duration, &'static str> {
    let duration = text.parse::<GoDuration>().ok().and_then(GoDuration::to_std);
    duration.filter(|duration| *duration <= MOST_COOLDOWN).ok_or(DURATION)
}

fn truth(text: &str) -> Result<bool, &'static str> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("must be true or false"),
    }
}

fn scale(text: &str) -> Result<i32, &'static str> {
    text.parse()
        .ok()
        .filter(|scale| (1..=100_000).contains(scale))
        .ok_or("must be a whole number of at least 1")
}

fn averaging(text: &str) -> Result<Averaging, &'static str> {
    match text {
        "linear" => Ok(Averaging::Linear),
        "weightedExponential" => Ok(Averaging::WeightedExponential),
        _ => Err("must be linear or weightedExponential"),
    }
}

/// Whole seconds within the range of a window.
fn window(text: &str) -> Result<i64, &'static str> {
    let seconds = cooldown(text).ok().and_then(|duration| i64::try_from(duration.as_secs()).ok());
    seconds
        .filter(|seconds| (1..=3600).contains(seconds))
        .ok_or("must be a duration from 1s to 1h, such as 60s")
}

struct Reader<'a> {
    annotations: &'a BTreeMap<String, String>,
    faults: Faults,
    warnings: Faults,
}

impl Reader<'_> {
    /// Sets `field` by the first of its names that is there; all names after the first are older ones.
    fn read<T>(&mut self, field: &mut T, names: &[&str], parse: impl Fn(&str) -> Result<T, &'static str>) {
        let mut newer: Option<&str> = None;
        for (index, name) in names.iter().copied().enumerate() {
            let Some(text) = self.annotations.get(name) else { continue };
            let path = format!("metadata.annotations[{name}]");
            let shown: String = text.chars().take(64).collect();
            if let Some(newer) = newer {
                self.warnings.push(path, format!("is not read because {newer} is there; remove it"));
                continue;
            }
            match parse(text) {
                Ok(value) => {
                    *field = value;
                    newer = Some(name);
                    if index > 0 {
                        let instead = names.first().filter(|first| !first.is_empty());
                        let text = instead.map_or_else(
                            || "is an old name; use the field of the spec instead".to_owned(),
                            |instead| format!("is an old name; use {instead} instead"),
                        );
                        self.warnings.push(path, text);
                    }
                }
                Err(why) if index == 0 => self.faults.push(path, format!("{shown:?} {why}")),
                Err(why) => self.warnings.push(path, format!("{shown:?} is not read: it {why}")),
            }
        }
    }
}

const LEGACY_TOLERANCE: &str = "kpa.autoscaling.aibrix.ai/tolerance";

impl Tuning {
    /// Reads the annotations of an object. What is not about autoscaling is passed over.
    ///
    /// # Errors
    /// All faults, if there is one; then nothing holds.
    pub fn parse(annotations: &BTreeMap<String, String>) -> Result<(Self, Vec<FieldError>), Vec<FieldError>> {
        let mut all = Self::default();
        let mut reader = Reader { annotations, faults: Faults::default(), warnings: Faults::default() };
        let up =
            [key::SCALE_UP_TOLERANCE, "autoscaling.aibrix.ai/up-fluctuation-tolerance", LEGACY_TOLERANCE];
        let down =
            [key::SCALE_DOWN_TOLERANCE, "autoscaling.aibrix.ai/down-fluctuation-tolerance", LEGACY_TOLERANCE];
        let held_up = [key::SCALE_UP_COOLDOWN, "kpa.autoscaling.aibrix.ai/scale-up-cooldown"];
        let held_down = [key::SCALE_DOWN_COOLDOWN, "kpa.autoscaling.aibrix.ai/scale-down-delay"];
        let panic = [key::PANIC_THRESHOLD, "kpa.autoscaling.aibrix.ai/panic-threshold"];
        let activation = [key::ACTIVATION_SCALE, "kpa.autoscaling.aibrix.ai/activation-scale"];
        let stable = ["", "kpa.autoscaling.aibrix.ai/stable-window", "apa.autoscaling.aibrix.ai/window"];
        reader.read(&mut all.max_scale_up_rate, &[key::MAX_SCALE_UP_RATE], rate);
        reader.read(&mut all.max_scale_down_rate, &[key::MAX_SCALE_DOWN_RATE], rate);
        reader.read(&mut all.scale_up_tolerance, &up, excess);
        reader.read(&mut all.scale_down_tolerance, &down, shortfall);
        reader.read(&mut all.panic_threshold, &panic, rate);
        reader.read(&mut all.scale_up_cooldown, &held_up, cooldown);
        reader.read(&mut all.scale_down_cooldown, &held_down, cooldown);
        reader.read(&mut all.scale_to_zero, &[key::SCALE_TO_ZERO], |text| truth(text).map(Some));
        reader.read(&mut all.activation_scale, &activation, scale);
        reader.read(&mut all.averaging, &[key::AGGREGATION_ALGORITHM], averaging);
        reader.read(&mut all.legacy_stable_window, &stable, |text| window(text).map(Some));
        let panic_window = ["", "kpa.autoscaling.aibrix.ai/panic-window"];
        reader.read(&mut all.legacy_panic_window, &panic_window, |text| window(text).map(Some));
        if annotations.contains_key("kpa.autoscaling.aibrix.ai/target-burst-capacity") {
            let path = "metadata.annotations[kpa.autoscaling.aibrix.ai/target-burst-capacity]";
            reader.warnings.push(path, "has no effect; remove it");
        }
        let (faults, warnings) = (reader.faults.finish(), reader.warnings.finish());
        if faults.is_empty() { Ok((all, warnings)) } else { Err(faults) }
    }
}

#[cfg(test)]
mod tests;
