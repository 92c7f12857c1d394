//! Invariants of decisions, checked after each one from its inputs, not from its own explanation.

use neonvm_core_pod_autoscaler::{Decision, Reason, Settings};
use serde::Serialize;

/// What no decision may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    Bounds,
    /// While a metric is missing nothing is taken away.
    MissingTakesNothing,
    /// In panic nothing is taken away.
    PanicTakesNothing,
    Rates,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Broken {
    pub rule: Rule,
    /// When, since the start.
    pub second: u32,
    pub message: String,
}

impl Rule {
    pub const ALL: &[Self] = &[Self::Bounds, Self::MissingTakesNothing, Self::PanicTakesNothing, Self::Rates];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Bounds => "replicas within their bounds",
            Self::MissingTakesNothing => "nothing taken away while a metric is missing",
            Self::PanicTakesNothing => "nothing taken away in panic",
            Self::Rates => "one step within the rates",
        }
    }

    pub const fn id(self) -> &'static str {
        match self {
            Self::Bounds => "bounds",
            Self::MissingTakesNothing => "missing-takes-nothing",
            Self::PanicTakesNothing => "panic-takes-nothing",
            Self::Rates => "rates",
        }
    }

    /// Whether a decision that orders so many replicas keeps it; `None`: it does not apply.
    pub fn check(self, settings: &Settings, decision: &Decision, desired: i32) -> Option<Result<(), String>> {
        let current = decision.fleet.current;
        let (min, max) = (decision.bounds.min, decision.bounds.max);
        // Bounds win over all the others.
        let outside = current > max || current < min;
        let kept = |kept: bool, message: String| Some(if kept { Ok(()) } else { Err(message) });
        match self {
            Self::Bounds => {
                let held = decision.paused || decision.recommend || decision.reason == Reason::DisabledAtZero;
                let within = (min..=max).contains(&desired);
                (!held).then(|| kept(within, format!("{desired} replicas are not within {min} to {max}")))?
            }
            Self::MissingTakesNothing => {
                let missing = decision.missing().count();
                let message = format!("from {current} to {desired} replicas with {missing} metrics missing");
                (missing > 0 && !outside).then(|| kept(desired >= current, message))?
            }
            Self::PanicTakesNothing => {
                let message = format!("from {current} to {desired} replicas in panic");
                (panicking(decision) && !outside).then(|| kept(desired >= current, message))?
            }
            Self::Rates => {
                let rates = settings.rates();
                let (floor, ceiling) = (rates.floor(decision.fleet), rates.ceiling(decision.fleet));
                // The fewest while there is any load is reached at once.
                let ceiling = ceiling.max(settings.tuning.activation_scale);
                let message =
                    format!("from {current} to {desired} replicas; one step is {floor} to {ceiling}");
                (!outside).then(|| kept((floor..=ceiling).contains(&desired), message))?
            }
        }
    }
}

/// Whether some metric is in panic.
pub(super) fn panicking(decision: &Decision) -> bool {
    decision.metrics.iter().any(|metric| metric.answer.is_some_and(|answer| answer.panicking))
}
