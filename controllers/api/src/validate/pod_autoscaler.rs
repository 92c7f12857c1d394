//! `PodAutoscaler`: target, bounds, windows, metrics, schedules, annotations.

use super::{annotation::annotations, schedule::schedules};
use crate::{
    FieldError, PodAutoscaler, PodAutoscalerSpec,
    field_error::Faults,
    pod_autoscaler::{
        DEFAULT_MIN_REPLICAS, DEFAULT_OBSERVE_WINDOW, DEFAULT_PANIC_WINDOW, MetricSource, MetricSourceType,
        ScalingStrategy,
    },
};

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
        metric(source, index, &mut faults);
    }
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
    // Writing to another namespace than one reads from would lend the controller's rights to whoever can write here.
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
    let observe = spec.observe_window_seconds.unwrap_or(DEFAULT_OBSERVE_WINDOW);
    let panic = spec.panic_window_seconds.unwrap_or(DEFAULT_PANIC_WINDOW);
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
        format!("{panic} must not be above observeWindowSeconds {observe}; set both"),
    );
}

fn metric(source: &MetricSource, index: usize, faults: &mut Faults) {
    let field = |name: &str| format!("spec.metricsSources[{index}].{name}");
    faults.require(!source.target_metric.is_empty(), field("targetMetric"), "must be set");
    let value = source.target_value.parse::<f64>();
    faults.require(
        value.is_ok_and(|value| value.is_finite() && value > 0.0),
        field("targetValue"),
        format!("{:?} must be a number above 0, such as \"50\"", source.target_value),
    );
    let set = [
        ("protocolType", source.protocol_type.is_some()),
        ("port", !source.port.is_empty()),
        ("path", !source.path.is_empty()),
        ("endpoint", !source.endpoint.is_empty()),
    ];
    let (needed, why): (&[&str], &str) = match source.metric_source_type {
        MetricSourceType::Pod => (&["protocolType", "port", "path"], "must be set for a metric of type pod"),
        MetricSourceType::External | MetricSourceType::Domain if !source.endpoint.is_empty() => {
            (&["protocolType", "path"], "must be set for a metric with an endpoint")
        }
        _ => (&[], ""),
    };
    for (name, present) in set {
        faults.require(present || !needed.contains(&name), field(name), why);
        faults.require(
            !present || source.metric_source_type != MetricSourceType::Resource,
            field(name),
            "must be left out for a metric of type resource",
        );
    }
    faults.require(
        source.metric_source_type != MetricSourceType::Resource
            || ["cpu", "memory"].contains(&source.target_metric.as_str()),
        field("targetMetric"),
        format!("{:?} must be cpu or memory for a metric of type resource", source.target_metric),
    );
    let port = source.port.parse::<u16>().is_ok_and(|port| port > 0);
    faults.require(
        source.port.is_empty() || port,
        field("port"),
        format!("{:?} must be between 1 and 65535", source.port),
    );
}

#[cfg(test)]
mod tests;
