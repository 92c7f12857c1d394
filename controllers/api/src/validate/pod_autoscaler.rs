//! `PodAutoscaler`: target, bounds, windows, metrics, schedules, annotations.

use super::{annotation::annotations, schedule::schedules};
use crate::{
    FieldError, PodAutoscaler, PodAutoscalerSpec,
    field_error::Faults,
    pod_autoscaler::{DEFAULT_MIN_REPLICAS, ScalingStrategy},
};

mod metric;

use metric::metric;

/// All faults of a pod autoscaler, new or changed.
#[must_use]
pub fn pod_autoscaler(object: &PodAutoscaler) -> Vec<FieldError> {
    let mut faults = Faults::default();
    let spec = &object.spec;
    target(object, &mut faults);
    bounds(spec, &mut faults);
    strategy(spec, &mut faults);
    windows(spec, &mut faults);
    schedules(spec, &mut faults);
    faults.require(!spec.metrics_sources.is_empty(), "spec.metricsSources", "must have at least one entry");
    for (index, source) in spec.metrics_sources.iter().enumerate() {
        metric(source, spec.scaling_strategy, index, &mut faults);
    }
    hpa(spec, &mut faults);
    timing(spec, &mut faults);
    if let Some(map) = &object.metadata.annotations {
        annotations(map, &mut faults);
    }
    faults.finish()
}

fn target(object: &PodAutoscaler, faults: &mut Faults) {
    let reference = &object.spec.scale_target_ref;
    for (name, value) in [("kind", &reference.kind), ("name", &reference.name)] {
        faults.require(
            value.as_ref().is_some_and(|text| !text.is_empty()),
            format!("spec.scaleTargetRef.{name}"),
            "must be set",
        );
    }
    // A target in another namespace would lend the controller's rights to the author of this object.
    let own = object.metadata.namespace.as_deref();
    let named = reference.namespace.as_deref().filter(|namespace| !namespace.is_empty());
    faults.require(
        named.is_none() || own.is_none() || named == own,
        "spec.scaleTargetRef.namespace",
        "must be the namespace of the autoscaler itself; leave it out",
    );
}

fn bounds(spec: &PodAutoscalerSpec, faults: &mut Faults) {
    let min = spec.min_replicas.unwrap_or(DEFAULT_MIN_REPLICAS);
    let max = spec.max_replicas;
    faults.require(min >= 0, "spec.minReplicas", format!("{min} must not be negative"));
    faults.require(max > 0, "spec.maxReplicas", format!("{max} must be above 0"));
    faults.require(
        max <= 0 || min <= max,
        "spec.minReplicas",
        format!("{min} is above maxReplicas {max}; lower it or raise maxReplicas"),
    );
}

fn strategy(spec: &PodAutoscalerSpec, faults: &mut Faults) {
    let role = spec.sub_target_selector.as_ref().is_some_and(|selector| !selector.role_name.is_empty());
    faults.require(
        spec.scaling_strategy != ScalingStrategy::Hpa || !role,
        "spec.subTargetSelector.roleName",
        "cannot be used with strategy HPA; choose KPA or APA, or leave it out",
    );
}

fn windows(spec: &PodAutoscalerSpec, faults: &mut Faults) {
    let (observe, panic) = (spec.observe_window(), spec.panic_window());
    for (name, value) in [("observeWindowSeconds", observe), ("panicWindowSeconds", panic)] {
        faults.require(
            (1..=3600).contains(&value),
            format!("spec.{name}"),
            format!("{value} must be between 1 and 3600"),
        );
    }
    faults.require(
        panic <= observe,
        "spec.panicWindowSeconds",
        format!("{panic} must not be above observeWindowSeconds {observe}; set both, or leave it out"),
    );
}

/// What cannot be done through a `HorizontalPodAutoscaler` is refused rather than ignored.
fn hpa(spec: &PodAutoscalerSpec, faults: &mut Faults) {
    if spec.scaling_strategy != ScalingStrategy::Hpa {
        return;
    }
    faults.require(
        spec.forecast.is_none(),
        "spec.forecast",
        "cannot be used with strategy HPA; choose KPA or APA",
    );
    faults.require(
        spec.sync_period_seconds.is_none(),
        "spec.syncPeriodSeconds",
        "cannot be used with strategy HPA, whose period is the cluster's; leave it out",
    );
}

fn timing(spec: &PodAutoscalerSpec, faults: &mut Faults) {
    if let Some(period) = spec.sync_period_seconds {
        let most = spec.smallest_window().min(300);
        faults.require(
            (1..=most).contains(&period),
            "spec.syncPeriodSeconds",
            format!("{period} must be between 1 and {most}, the smallest window in use"),
        );
    }
    if let Some(forecast) = spec.forecast {
        let horizon = forecast.horizon_seconds;
        faults.require(
            (1..=900).contains(&horizon),
            "spec.forecast.horizonSeconds",
            format!("{horizon} must be between 1 and 900"),
        );
    }
}

#[cfg(test)]
mod tests;
