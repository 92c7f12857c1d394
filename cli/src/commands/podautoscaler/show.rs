//! A pod autoscaler in words and numbers. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use neonvm_api::PodAutoscaler;
use neonvm_api::pod_autoscaler::{
    CurrentMetric, MetricValue, PodAutoscalerStatus, ScalingMode, ScalingStrategy,
};
use neonvm_core_pod_autoscaler::number::render;

/// Shown for what there is not.
pub(super) const NONE: &str = "-";
/// The text about an object without a status.
const UNSEEN: &str = "not reconciled yet; is pod-autoscaler running?";

pub(super) fn status(object: &PodAutoscaler) -> PodAutoscalerStatus {
    object.status.clone().unwrap_or_default()
}

pub(super) fn condition<'a>(object: &'a PodAutoscaler, kind: &str) -> Option<&'a Condition> {
    object.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == kind)
}

fn find<'a>(object: &'a PodAutoscaler, kind: &str, status: &str) -> Option<&'a Condition> {
    condition(object, kind).filter(|condition| condition.status == status)
}

/// How it stands, in one word: of all that is true, what a person should know first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Deleting,
    New,
    Invalid,
    Conflict,
    Paused,
    Failed,
    Disabled,
    Blind,
    Recommend,
    Scaling,
    Limited,
    Ready,
}

impl Word {
    pub(super) fn from_object(object: &PodAutoscaler) -> Self {
        let is = |kind: &str, status: &str| find(object, kind, status).is_some();
        if object.metadata.deletion_timestamp.is_some() {
            Self::Deleting
        } else if object.status.as_ref().is_none_or(|status| status.conditions.is_empty()) {
            Self::New
        } else if is("ValidSpec", "False") {
            Self::Invalid
        } else if is("MultiPodAutoscalerConflict", "False") {
            Self::Conflict
        } else if object.spec.paused == Some(true) {
            Self::Paused
        } else if is("AbleToScale", "False") && find(object, "AbleToScale", "False").is_some_and(unable) {
            Self::Failed
        } else if find(object, "ScalingActive", "False").is_some_and(|one| one.reason == "ScalingDisabled") {
            Self::Disabled
        } else if is("MetricsAvailable", "False") {
            Self::Blind
        } else if find(object, "ScalingActive", "False").is_some_and(|one| one.reason == "NotDecided") {
            Self::New
        } else if object.spec.mode == Some(ScalingMode::Recommend) {
            Self::Recommend
        } else if is("ScalingActive", "True") {
            Self::Scaling
        } else if is("ScalingLimited", "True") {
            Self::Limited
        } else {
            Self::Ready
        }
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Deleting => "Deleting",
            Self::New => "New",
            Self::Invalid => "Invalid",
            Self::Conflict => "Conflict",
            Self::Paused => "Paused",
            Self::Failed => "Failed",
            Self::Disabled => "Disabled",
            Self::Blind => "Blind",
            Self::Recommend => "Recommend",
            Self::Scaling => "Scaling",
            Self::Limited => "Limited",
            Self::Ready => "Ready",
        }
    }
}

/// A pause that has ended already, or a recommendation through a `HorizontalPodAutoscaler`, is no failure.
fn unable(condition: &Condition) -> bool {
    condition.reason != "Paused"
}

fn message_of(condition: Option<&Condition>) -> String {
    match condition.map(|found| (found.message.as_str(), found.reason.as_str())) {
        None => String::new(),
        Some(("", reason)) => reason.to_owned(),
        Some((message, _)) => message.to_owned(),
    }
}

/// How long a condition has been what it is, such as ` for 3m`.
pub(super) fn lasting(condition: Option<&Condition>) -> String {
    condition
        .map(|found| format!(" for {}", crate::render::age(found.last_transition_time.0)))
        .unwrap_or_default()
}

/// Why it stands as it does; empty if all is well.
pub(super) fn message(object: &PodAutoscaler) -> String {
    let status = status(object);
    let mut text = match Word::from_object(object) {
        Word::Deleting => "being deleted; the target keeps its replicas".to_owned(),
        Word::New if status.conditions.is_empty() => return UNSEEN.to_owned(),
        Word::Invalid => message_of(condition(object, "ValidSpec")),
        Word::Conflict => message_of(condition(object, "MultiPodAutoscalerConflict")),
        Word::Failed => message_of(condition(object, "AbleToScale")),
        Word::Blind => message_of(condition(object, "MetricsAvailable")),
        Word::New | Word::Scaling | Word::Disabled => message_of(condition(object, "ScalingActive")),
        Word::Limited => message_of(condition(object, "ScalingLimited")),
        Word::Paused | Word::Recommend => recommended("the target is not scaled", &status),
        Word::Ready => String::new(),
    };
    if is_stale(object) {
        let separator = if text.is_empty() { "" } else { "; " };
        text.push_str(&format!("{separator}the latest spec has not been reconciled yet"));
    }
    text
}

fn recommended(what: &str, status: &PodAutoscalerStatus) -> String {
    match status.recommendation {
        Some(count) if count != status.actual_scale => format!("{what}; {} recommended", replica(count)),
        Some(_) => format!("{what}; no change recommended"),
        None => what.to_owned(),
    }
}

pub(super) fn is_stale(object: &PodAutoscaler) -> bool {
    let observed = object.status.as_ref().and_then(|status| status.observed_generation);
    matches!((observed, object.metadata.generation), (Some(observed), Some(now)) if observed < now)
}

pub(super) fn replica(count: i32) -> String {
    format!("{count} replica{}", if count == 1 { "" } else { "s" })
}

/// `deployment/web`, or `stormservice/llm/decode` for a role.
pub(super) fn target(object: &PodAutoscaler) -> String {
    let reference = &object.spec.scale_target_ref;
    let kind = reference.kind.clone().unwrap_or_default().to_lowercase();
    let name = reference.name.clone().unwrap_or_default();
    let role = object.spec.role().map(|role| format!("/{role}")).unwrap_or_default();
    format!("{kind}/{name}{role}")
}

pub(super) fn strategy(strategy: ScalingStrategy) -> &'static str {
    match strategy {
        ScalingStrategy::Hpa => "HPA",
        ScalingStrategy::Kpa => "KPA",
        ScalingStrategy::Apa => "APA",
    }
}

/// `3`, or `3->5` on the way.
pub(super) fn replicas(object: &PodAutoscaler) -> String {
    let status = status(object);
    match Word::from_object(object) {
        // Before the first decision of Kubernetes' own controller the number may be known.
        Word::New if status.actual_scale == 0 => NONE.to_owned(),
        Word::New => status.actual_scale.to_string(),
        _ if status.desired_scale != status.actual_scale => {
            format!("{}->{}", status.actual_scale, status.desired_scale)
        }
        _ => status.actual_scale.to_string(),
    }
}

/// The bounds in force, else those of the spec.
pub(super) fn bounds(object: &PodAutoscaler) -> (i32, i32) {
    let spec = &object.spec;
    let scheduled = object.status.as_ref().and_then(|status| status.scheduled_bounds.as_ref());
    scheduled.map_or_else(
        || (spec.min_replicas.unwrap_or(neonvm_api::pod_autoscaler::DEFAULT_MIN_REPLICAS), spec.max_replicas),
        |bounds| (bounds.effective_min_replicas, bounds.effective_max_replicas),
    )
}

pub(super) fn range(object: &PodAutoscaler) -> String {
    let (min, max) = bounds(object);
    format!("{min}..{max}")
}

/// The metric that asks for most replicas; the first of equals, as in the decision.
pub(super) fn decisive(status: &PodAutoscalerStatus) -> Option<&CurrentMetric> {
    let all = status.current_metrics.iter();
    all.reduce(|best, next| if next.desired_replicas > best.desired_replicas { next } else { best })
}

/// What was read and what it should be, in the form of the target.
pub(super) fn reading(metric: &CurrentMetric, replicas: i32) -> (Option<String>, String) {
    let percent = |value: &MetricValue| value.average_utilization.map(|share| format!("{share}%"));
    let current = metric.current.as_ref();
    if let Some(target) = percent(&metric.target) {
        return (current.and_then(percent), target);
    }
    if let Some(target) = metric.target.average_value.clone() {
        let each = current.and_then(|current| {
            let shared = || {
                let whole: f64 = current.value.as_ref()?.parse().ok()?;
                Some(render(whole / f64::from(replicas.max(1))))
            };
            current.average_value.clone().or_else(shared)
        });
        return (each, target);
    }
    let target = metric.target.value.clone().unwrap_or_else(|| "?".to_owned());
    (current.and_then(|current| current.value.clone()), target)
}

/// The decisive metric, and how many there are beside it: `queue 52/40 +1`.
pub(super) fn metrics(status: &PodAutoscalerStatus) -> String {
    let Some(metric) = decisive(status) else { return NONE.to_owned() };
    let (current, target) = reading(metric, status.actual_scale);
    let more = match status.current_metrics.len() {
        0 | 1 => String::new(),
        count => format!(" +{}", count - 1),
    };
    format!("{} {}/{target}{more}", metric.name, current.unwrap_or_else(|| "?".to_owned()))
}

#[cfg(test)]
pub(super) mod tests;
