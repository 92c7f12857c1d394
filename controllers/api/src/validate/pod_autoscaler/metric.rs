//! One metric: where it comes from, its target, how it is read.

use crate::{
    field_error::Faults,
    pod_autoscaler::{MetricSource, MetricSourceType, ScalingStrategy, TargetType},
};

pub(super) fn metric(source: &MetricSource, strategy: ScalingStrategy, index: usize, faults: &mut Faults) {
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
    reading(source, index, faults);
    if strategy == ScalingStrategy::Hpa {
        through_hpa(source, index, faults);
    }
}

/// How a value is made of what is read.
fn reading(source: &MetricSource, index: usize, faults: &mut Faults) {
    let field = |name: &str| format!("spec.metricsSources[{index}].{name}");
    let kind = source.metric_source_type;
    let scraped = kind == MetricSourceType::Pod || source.has_endpoint();
    let per_pod =
        matches!(kind, MetricSourceType::Pod | MetricSourceType::Custom | MetricSourceType::Resource);
    faults.require(
        source.target_type != Some(TargetType::Utilization) || kind == MetricSourceType::Resource,
        field("targetType"),
        "Utilization is for a metric of type resource; use AverageValue or Value",
    );
    faults.require(
        source.aggregation.is_none() || per_pod,
        field("aggregation"),
        "is about pods; leave it out for a metric that is not read from pods",
    );
    faults.require(
        source.series_aggregation.is_none() || kind != MetricSourceType::Resource,
        field("seriesAggregation"),
        "must be left out for a metric of type resource",
    );
    faults.require(
        source.selector.is_none() || kind != MetricSourceType::Resource,
        field("selector"),
        "must be left out for a metric of type resource",
    );
    faults.require(
        source.function.is_none() || scraped,
        field("function"),
        "is for metrics read from pods or from an endpoint; leave it out",
    );
    let Some(quantile) = &source.quantile else { return };
    faults.require(
        source.quantile_value().is_some(),
        field("quantile"),
        format!("{quantile:?} must be a number from 0 to 1, such as \"0.99\""),
    );
    faults.require(
        scraped,
        field("quantile"),
        "is for metrics read from pods or from an endpoint; leave it out",
    );
    faults.require(
        source.function.is_none(),
        field("function"),
        "must be left out with a quantile, which is a function itself",
    );
    faults.require(
        source.series_aggregation.is_none(),
        field("seriesAggregation"),
        "must be left out with a quantile: histograms are added before the quantile is taken",
    );
}

/// What a `HorizontalPodAutoscaler` cannot do.
fn through_hpa(source: &MetricSource, index: usize, faults: &mut Faults) {
    let present = [
        ("endpoint", source.has_endpoint()),
        ("aggregation", source.aggregation.is_some()),
        ("seriesAggregation", source.series_aggregation.is_some()),
        ("function", source.function.is_some()),
        ("quantile", source.quantile.is_some()),
    ];
    for (name, present) in present {
        faults.require(
            !present,
            format!("spec.metricsSources[{index}].{name}"),
            "cannot be used with strategy HPA; choose KPA or APA, or leave it out",
        );
    }
    let per_pod = matches!(source.metric_source_type, MetricSourceType::Pod | MetricSourceType::Custom);
    faults.require(
        source.target_type != Some(TargetType::Value)
            || !(per_pod || source.metric_source_type == MetricSourceType::Resource),
        format!("spec.metricsSources[{index}].targetType"),
        "Value can be used with strategy HPA for a metric of type external alone; use AverageValue",
    );
}
