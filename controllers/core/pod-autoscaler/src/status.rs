//! The status of an object after one pass, computed from the old one and from the result of the pass.
//!
//! Condition types are those of upstream: `MultiPodAutoscalerConflict` is *False* while there is a conflict and absent
//! otherwise, and `ScalingActive` means that a change is under way (not, as with Kubernetes, that metrics can be read; that
//! is `MetricsAvailable` here). `ScalingLimited` and `MetricsAvailable` are ours.

use jiff::Timestamp;
use k8s_openapi::{
    api::autoscaling::v2::HorizontalPodAutoscaler,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use neonvm_api::{
    FieldError,
    pod_autoscaler::{
        CurrentMetric, MetricSourceType, MetricValue, PodAutoscalerStatus, PodWithoutValue, ScalingDecision,
        ScalingFailure, ScheduledBounds, TargetType,
    },
};

use crate::{
    decide::{Decision, MetricTrace},
    explain,
    number::render,
    sample::Missing,
    schedule::Bounds,
    settings::Settings,
};

mod condition;
mod copied;
mod history;

pub use condition::Kind as ConditionKind;
pub use history::{MOST_HISTORY, push_history};

/// Reasons of events and of conditions that speak of something that went wrong.
pub mod failure {
    /// The target cannot be read.
    pub const GET_SCALE: &str = "FailedGetScale";
    /// The target has no number of replicas.
    pub const GET_REPLICAS: &str = "FailedGetReplicas";
    /// No decision could be made.
    pub const COMPUTE_SCALE: &str = "FailedComputeScale";
    /// The event for a number of replicas that could not be written.
    pub const RESCALE: &str = "FailedRescale";
    /// The condition for a number of replicas that could not be written.
    pub const UPDATE_SCALE: &str = "FailedUpdateScale";
    /// The `HorizontalPodAutoscaler` could not be written.
    pub const UPDATE_HPA: &str = "FailedUpdateHPA";
}

/// Reasons of events that speak of a change.
pub mod event {
    /// A decision wants another number of replicas.
    pub const ALGORITHM_RUN: &str = "AlgorithmRun";
    /// It was written.
    pub const SUCCESSFUL_RESCALE: &str = "SuccessfulRescale";
}

/// What became of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// There was nothing to write.
    NotNeeded,
    /// It was written.
    Done,
    /// It could not be written, and why.
    Failed(String),
}

#[derive(Clone, Debug)]
pub enum Pass<'a> {
    /// The object is not valid.
    Invalid(&'a [FieldError]),
    /// Another autoscaler has the target; the message of the verdict.
    Conflict(&'a str),
    /// Something failed before there was a decision; nothing was scaled.
    Failed {
        /// One of [`failure`].
        reason: &'a str,
        message: &'a str,
    },
    Decided {
        decision: &'a Decision,
        /// What it was made by.
        settings: &'a Settings,
        /// What became of it.
        applied: &'a Applied,
    },
    /// A `HorizontalPodAutoscaler` does the work.
    Wrapped {
        /// It, with its status; `None` right after it was made.
        hpa: Option<&'a HorizontalPodAutoscaler>,
        /// What it was made by.
        settings: &'a Settings,
        bounds: &'a Bounds,
        /// Whether the object is paused or requests recommendations only.
        passive: bool,
    },
}

/// The word for what is wrong with an object, the gravest first.
#[must_use]
pub fn invalid_reason(faults: &[FieldError]) -> &'static str {
    let about =
        |parts: &[&str]| faults.iter().any(|fault| parts.iter().any(|part| fault.path.starts_with(part)));
    if about(&["spec.scaleTargetRef"]) {
        "MissingScaleTargetRef"
    } else if about(&["spec.minReplicas", "spec.maxReplicas"]) {
        "InvalidBounds"
    } else if about(&["spec.scalingStrategy", "spec.subTargetSelector"]) {
        "InvalidScalingStrategy"
    } else if about(&["spec.metricsSources"]) {
        "MetricsConfigError"
    } else {
        "InvalidSpec"
    }
}

/// The status after a pass. Fields of `old` that the pass does not determine stay.
#[must_use]
pub fn after(
    old: &PodAutoscalerStatus,
    pass: &Pass<'_>,
    generation: Option<i64>,
    now: Timestamp,
) -> PodAutoscalerStatus {
    let mut new = old.clone();
    new.observed_generation = generation;
    match pass {
        Pass::Invalid(_) | Pass::Conflict(_) => {}
        Pass::Failed { reason, message } => new.last_failure = Some(failed(old, reason, message, now)),
        Pass::Decided { decision, settings, applied } => {
            decided(&mut new, old, decision, settings, applied, now);
        }
        Pass::Wrapped { hpa, settings, bounds, .. } => wrapped(&mut new, *hpa, settings, bounds),
    }
    let stamp = condition::Stamp { generation, now };
    new.conditions = condition::after(&old.conditions, pass, (new.desired_scale, new.actual_scale), stamp);
    new
}

fn failed(old: &PodAutoscalerStatus, reason: &str, message: &str, now: Timestamp) -> ScalingFailure {
    let message: String = message.chars().take(1024).collect();
    // Failures in a row: a success resets the count.
    let able = |one: &&Condition| one.type_ == ConditionKind::AbleToScale.word() && one.status == "True";
    let worked = old.conditions.iter().any(|one| able(&one));
    let same =
        old.last_failure.as_ref().filter(|last| !worked && last.reason == reason && last.message == message);
    let count = same.map_or(1, |last| last.count.saturating_add(1));
    ScalingFailure { time: Time(now), reason: reason.to_owned(), message, count }
}

fn decided(
    new: &mut PodAutoscalerStatus,
    old: &PodAutoscalerStatus,
    decision: &Decision,
    settings: &Settings,
    applied: &Applied,
    now: Timestamp,
) {
    let current = decision.fleet.current;
    new.actual_scale = current;
    new.desired_scale = decision.desired;
    new.recommendation = Some(decision.recommendation);
    new.scheduled_bounds = Some(scheduled(&decision.bounds));
    new.current_metrics = decision.metrics.iter().map(current_metric).collect();
    new.explanation = explain::explain(decision, settings);
    new.forecast = explain::forecast(decision, settings);
    let entry = |error: &str| ScalingDecision {
        timestamp: Time(now),
        previous_scale: current,
        new_scale: decision.desired,
        reason: format!("{:?}", decision.reason),
        success: error.is_empty(),
        error: error.chars().take(1024).collect(),
    };
    match applied {
        Applied::NotNeeded => {}
        Applied::Done => {
            new.last_scale_time = Some(Time(now));
            push_history(&mut new.scaling_history, entry(""));
        }
        Applied::Failed(error) => {
            new.last_failure = Some(failed(old, failure::UPDATE_SCALE, error, now));
            push_history(&mut new.scaling_history, entry(error));
        }
    }
}

fn scheduled(bounds: &Bounds) -> ScheduledBounds {
    ScheduledBounds {
        active_schedule: bounds.schedule.clone().unwrap_or_default(),
        effective_min_replicas: bounds.min,
        effective_max_replicas: bounds.max,
    }
}

fn wrapped(
    new: &mut PodAutoscalerStatus,
    hpa: Option<&HorizontalPodAutoscaler>,
    settings: &Settings,
    bounds: &Bounds,
) {
    new.scheduled_bounds = Some(scheduled(bounds));
    (new.recommendation, new.forecast) = (None, None);
    new.current_metrics.clear();
    new.explanation.clear();
    if let Some(hpa) = hpa {
        let (metrics, steps) = copied::metrics(settings, hpa).into_iter().unzip();
        new.current_metrics = metrics;
        new.explanation = copied::explanation(hpa, bounds, steps);
    }
    if let Some(status) = hpa.and_then(|hpa| hpa.status.as_ref()) {
        new.actual_scale = status.current_replicas.unwrap_or(0);
        new.desired_scale = copied::decided(status, bounds).unwrap_or(new.actual_scale);
        new.last_scale_time = status.last_scale_time.clone().or_else(|| new.last_scale_time.clone());
    }
}

#[must_use]
pub const fn source_word(kind: MetricSourceType) -> &'static str {
    match kind {
        MetricSourceType::Pod => "pod",
        MetricSourceType::Resource => "resource",
        MetricSourceType::Custom => "custom",
        MetricSourceType::External => "external",
        MetricSourceType::Domain => "domain",
    }
}

fn current_metric(trace: &MetricTrace) -> CurrentMetric {
    let target = trace.target.get();
    let as_target = |value: String| match trace.target_type {
        TargetType::AverageValue => MetricValue { average_value: Some(value), ..MetricValue::default() },
        TargetType::Value => MetricValue { value: Some(value), ..MetricValue::default() },
        TargetType::Utilization => MetricValue {
            average_utilization: Some(crate::number::ceil_replicas(target)),
            ..MetricValue::default()
        },
    };
    let reading = trace.reading.as_ref().ok();
    let current = reading.map(|reading| {
        let value = render(reading.value.get());
        let whole = trace.load.map(|load| render(load.get()));
        let average_utilization =
            reading.utilization.map(|share| crate::number::ceil_replicas(share.get().round()));
        match (trace.target_type, reading.pods) {
            (TargetType::Value, _) | (TargetType::AverageValue, None) => {
                MetricValue { value: Some(value), ..MetricValue::default() }
            }
            (TargetType::AverageValue, Some(_)) => {
                MetricValue { value: whole, average_value: Some(value), average_utilization }
            }
            (TargetType::Utilization, _) => {
                MetricValue { value: None, average_value: Some(value), average_utilization }
            }
        }
    });
    CurrentMetric {
        kind: source_word(trace.kind).to_owned(),
        name: trace.name.clone(),
        target: as_target(render(target)),
        current,
        stable: trace.stable.map(|value| render(value.get())),
        panic: trace.panic.map(|value| render(value.get())),
        pods: reading.and_then(|reading| reading.pods).map(|pods| format!("{}/{}", pods.sampled, pods.ready)),
        desired_replicas: trace.replicas,
        error: trace.reading.as_ref().err().map_or_else(String::new, short),
        pods_without_value: trace.without_value.iter().map(without_value).collect(),
    }
}

fn without_value((pod, missing): &(String, Missing)) -> PodWithoutValue {
    PodWithoutValue { pod: pod.clone(), reason: short(missing) }
}

/// A reason as a status has it: 512 characters at most.
fn short(missing: &Missing) -> String {
    missing.to_string().chars().take(512).collect()
}

/// Whether a new status should be written at once. Changes of readings, of numbers in an explanation, and of the count of the
/// same failure are written together with another change, or after a time.
#[must_use]
pub fn differs(old: &PodAutoscalerStatus, new: &PodAutoscalerStatus) -> bool {
    let steady = |status: &PodAutoscalerStatus| {
        let mut status = status.clone();
        status.explanation.clear();
        if let Some(forecast) = &mut status.forecast {
            (forecast.desired_replicas, forecast.message) = (None, String::new());
        }
        for metric in &mut status.current_metrics {
            (metric.current, metric.stable, metric.panic, metric.pods) = (None, None, None, None);
            (metric.desired_replicas, metric.error) = (None, String::new());
            metric.pods_without_value.clear();
        }
        if let Some(failure) = &mut status.last_failure {
            (failure.time, failure.count) = (Time(Timestamp::UNIX_EPOCH), 0);
        }
        for condition in &mut status.conditions {
            condition.message.clear();
        }
        status
    };
    steady(old) != steady(new)
}
