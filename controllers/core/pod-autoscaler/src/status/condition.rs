//! Conditions as new values: a condition keeps its time while its status stays.

use jiff::Timestamp;
use k8s_openapi::{
    api::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition},
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};

use super::copied::undecided;
use super::{Applied, Pass, failure, invalid_reason};
use crate::{
    decide::{Decision, Limit, Reason},
    explain::{limit_text, reason_text},
    sample::MissingReason,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    ValidSpec,
    /// *False* while another autoscaler has the target; absent otherwise.
    MultiPodAutoscalerConflict,
    /// A change is under way.
    ScalingActive,
    /// The target can be read and written, and may be.
    AbleToScale,
    /// Able to scale, and nothing is under way.
    Ready,
    /// The recommendation was limited below or above what the metrics require.
    ScalingLimited,
    /// All metrics can be read.
    MetricsAvailable,
}

impl Kind {
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::ValidSpec => "ValidSpec",
            Self::MultiPodAutoscalerConflict => "MultiPodAutoscalerConflict",
            Self::ScalingActive => "ScalingActive",
            Self::AbleToScale => "AbleToScale",
            Self::Ready => "Ready",
            Self::ScalingLimited => "ScalingLimited",
            Self::MetricsAvailable => "MetricsAvailable",
        }
    }
}

/// What every condition of a pass has in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub generation: Option<i64>,
    pub now: Timestamp,
}

struct Next<'a> {
    old: &'a [Condition],
    new: Vec<Condition>,
    stamp: Stamp,
}

impl Next<'_> {
    fn set(&mut self, kind: Kind, status: &str, reason: &str, message: impl Into<String>) {
        let same = self.old.iter().find(|have| have.type_ == kind.word() && have.status == status);
        let message: String = message.into();
        self.new.push(Condition {
            type_: kind.word().to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.chars().take(2048).collect(),
            observed_generation: self.stamp.generation,
            last_transition_time: same.map_or(Time(self.stamp.now), |have| have.last_transition_time.clone()),
        });
    }

    /// Keeps a condition that the pass does not determine.
    fn keep(&mut self, kind: Kind) {
        self.new.extend(self.old.iter().find(|have| have.type_ == kind.word()).cloned());
    }
}

/// All conditions after a pass, always in the same order.
pub(super) fn after(old: &[Condition], pass: &Pass<'_>, scale: (i32, i32), stamp: Stamp) -> Vec<Condition> {
    let mut next = Next { old, new: Vec::new(), stamp };
    if let Pass::Invalid(faults) = pass {
        let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
        next.set(Kind::ValidSpec, "False", invalid_reason(faults), texts.join("; "));
    } else {
        next.set(Kind::ValidSpec, "True", "AsExpected", "");
    }
    if let Pass::Conflict(message) = pass {
        next.set(Kind::MultiPodAutoscalerConflict, "False", "MultiPodAutoscalerConflict", *message);
    }
    let (desired, actual) = scale;
    let open = match pass {
        Pass::Wrapped { hpa, bounds, .. } => undecided(*hpa, bounds),
        _ => None,
    };
    let stays = open.is_some() || matches!(pass, Pass::Invalid(_) | Pass::Conflict(_));
    let active = desired != actual && !stays;
    let counts = format!("{desired} replicas wanted, {actual} there");
    let disabled = disabled(pass);
    match (&disabled, open) {
        (Some(message), _) => next.set(Kind::ScalingActive, "False", DISABLED, message),
        (None, Some(message)) => next.set(Kind::ScalingActive, "False", "NotDecided", message),
        (None, None) if active => next.set(Kind::ScalingActive, "True", "ReconcilingScaleDiff", counts),
        (None, None) => next.set(Kind::ScalingActive, "False", "Stable", counts),
    }
    let able = able(pass);
    let status = if able.0 { "True" } else { "False" };
    next.set(Kind::AbleToScale, status, able.1, able.2.clone());
    match (able.0, active) {
        (true, false) => next.set(Kind::Ready, "True", "AsExpected", ""),
        (true, true) => next.set(Kind::Ready, "False", "ReconcilingScaleDiff", ""),
        (false, _) => next.set(Kind::Ready, "False", able.1, able.2),
    }
    match pass {
        Pass::Decided { decision, .. } => {
            limited(&mut next, decision);
            match disabled {
                // Without pods there is nothing to read.
                Some(message) => next.set(Kind::MetricsAvailable, "Unknown", DISABLED, message),
                None => metrics(&mut next, decision),
            }
        }
        Pass::Wrapped { hpa, .. } => copied(&mut next, theirs(*hpa)),
        Pass::Invalid(_) | Pass::Conflict(_) | Pass::Failed { .. } => {
            next.keep(Kind::ScalingLimited);
            next.keep(Kind::MetricsAvailable);
        }
    }
    next.new
}

/// Reason of a target that was set to zero by hand, the word of Kubernetes' own controller.
const DISABLED: &str = "ScalingDisabled";

/// Why nothing is scaled, if the target was set to zero by hand.
fn disabled(pass: &Pass<'_>) -> Option<String> {
    match pass {
        Pass::Decided { decision, .. } => (decision.reason == Reason::DisabledAtZero)
            .then(|| format!("the target has 0 replicas: {}", reason_text(decision.reason))),
        Pass::Wrapped { hpa, .. } => {
            let mut all = theirs(*hpa)?.iter();
            let found =
                all.find(|one| one.type_ == "ScalingActive" && one.reason.as_deref() == Some(DISABLED))?;
            Some(found.message.clone().unwrap_or_default())
        }
        Pass::Invalid(_) | Pass::Conflict(_) | Pass::Failed { .. } => None,
    }
}

/// Whether the target can be scaled, the reason, and the message.
fn able<'a>(pass: &'a Pass<'_>) -> (bool, &'a str, String) {
    match pass {
        Pass::Invalid(_) => (false, "InvalidSpec", "the object is not valid; see ValidSpec".to_owned()),
        Pass::Conflict(message) => (false, "InvalidSpec", (*message).to_owned()),
        Pass::Failed { reason, message } => (false, reason, (*message).to_owned()),
        Pass::Decided { applied: Applied::Failed(error), .. } => {
            (false, failure::UPDATE_SCALE, error.clone())
        }
        Pass::Decided { decision, .. } if decision.paused => {
            (false, "Paused", "spec.paused is true; nothing is scaled".to_owned())
        }
        Pass::Decided { decision, .. } if decision.recommend => {
            (true, "RecommendOnly", "spec.mode is Recommend; nothing is written".to_owned())
        }
        Pass::Decided { .. } => (true, "SucceededGetScale", String::new()),
        Pass::Wrapped { passive: true, .. } => {
            (false, "Paused", "paused, or a recommendation only; nothing is scaled".to_owned())
        }
        Pass::Wrapped { hpa, .. } => {
            let found = theirs(*hpa).and_then(|all| all.iter().find(|one| one.type_ == "AbleToScale"));
            found.filter(|one| one.status != "True").map_or((true, "Configured", String::new()), |one| {
                let message = one.message.clone().unwrap_or_default();
                (false, one.reason.as_deref().unwrap_or("Unknown"), message)
            })
        }
    }
}

fn limited(next: &mut Next<'_>, decision: &Decision) {
    match decision.limit {
        None => next.set(
            Kind::ScalingLimited,
            "False",
            "DesiredWithinRange",
            "the recommendation is what the metrics ask for",
        ),
        Some(limit) => {
            let reason = match limit {
                Limit::TooManyReplicas => "TooManyReplicas",
                Limit::TooFewReplicas => "TooFewReplicas",
                Limit::ScaleUpRate => "ScaleUpLimit",
                Limit::ScaleDownRate => "ScaleDownLimit",
                Limit::ScaleUpStabilized => "ScaleUpStabilized",
                Limit::ScaleDownStabilized => "ScaleDownStabilized",
                Limit::ActivationScale => "ActivationScale",
                Limit::MetricMissing => "MetricMissing",
                Limit::Panic => "Panic",
                Limit::WarmingUp => "WarmingUp",
                Limit::NotIdle => "NotIdle",
            };
            next.set(Kind::ScalingLimited, "True", reason, limit_text(limit));
        }
    }
}

fn metrics(next: &mut Next<'_>, decision: &Decision) {
    let texts: Vec<String> =
        decision.missing().map(|(metric, missing)| format!("{}: {missing}", metric.name)).collect();
    let first = decision
        .missing()
        .map(|(_, missing)| missing.reason)
        .find(|reason| *reason != MissingReason::FirstReading);
    match first {
        Some(reason) => next.set(Kind::MetricsAvailable, "False", &format!("{reason:?}"), texts.join("; ")),
        None if texts.is_empty() => next.set(Kind::MetricsAvailable, "True", "AsExpected", ""),
        // A rate needs two readings: not known yet.
        None => next.set(Kind::MetricsAvailable, "Unknown", "FirstReading", texts.join("; ")),
    }
}

/// The conditions that Kubernetes' own controller has set.
fn theirs(hpa: Option<&HorizontalPodAutoscaler>) -> Option<&Vec<HorizontalPodAutoscalerCondition>> {
    hpa?.status.as_ref()?.conditions.as_ref()
}

/// Translates the conditions of Kubernetes' own controller.
fn copied(next: &mut Next<'_>, theirs: Option<&Vec<HorizontalPodAutoscalerCondition>>) {
    for (word, kind) in [("ScalingLimited", Kind::ScalingLimited), ("ScalingActive", Kind::MetricsAvailable)]
    {
        if let Some(found) = theirs.and_then(|all| all.iter().find(|one| one.type_ == word)) {
            let reason = found.reason.as_deref().filter(|reason| !reason.is_empty()).unwrap_or("Unknown");
            let status = if reason == DISABLED { "Unknown" } else { &found.status };
            next.set(kind, status, reason, found.message.clone().unwrap_or_default());
        }
    }
}
