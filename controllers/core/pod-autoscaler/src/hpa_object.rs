//! The `HorizontalPodAutoscaler` that stands for an object with strategy HPA.
//!
//! Quantities are written in thousandths, so `0.5` stays a half. An external metric becomes an external metric. Rates
//! are rounded to whole percent. CPU is percent of the request and memory is mebibytes, as upstream documents it, unless
//! the object has a `targetType`; then CPU is in thousandths of a core and memory in bytes, as with the other strategies.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::autoscaling::v2::{
        CrossVersionObjectReference, ExternalMetricSource, HPAScalingPolicy, HPAScalingRules,
        HorizontalPodAutoscaler, HorizontalPodAutoscalerBehavior, HorizontalPodAutoscalerSpec,
        MetricIdentifier, MetricSpec, MetricTarget, PodsMetricSource, ResourceMetricSource,
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{ObjectMeta, OwnerReference},
    },
};
use neonvm_api::{
    FieldError, PodAutoscaler,
    pod_autoscaler::{MetricSource, MetricSourceType, TargetType, annotation},
};

use crate::{number::ceil_replicas, settings::Settings};

/// Longest name of an object.
const MOST_NAME: usize = 253;
/// The period of the steps, in seconds.
const PERIOD: i32 = 60;
/// Annotations that speak about the one object they are on.
const NOT_COPIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The name of the `HorizontalPodAutoscaler` of an object. A name that is too long is cut and gets a checksum.
#[must_use]
pub fn name(object: &str) -> String {
    let full = format!("{object}-hpa");
    if full.len() <= MOST_NAME {
        return full;
    }
    // FNV-1a: short, stable, and no secret depends on it.
    let sum = object
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let kept: String = object.chars().take(MOST_NAME.saturating_sub(22)).collect();
    format!("{}-{sum:016x}-hpa", kept.trim_end_matches(['-', '.']))
}

/// A number as a quantity in thousandths, at least one of them; whole numbers without a suffix.
fn quantity(value: f64) -> Quantity {
    let milli = (value * 1000.0).round().clamp(1.0, 9e18);
    let whole = milli / 1000.0;
    Quantity(if whole.fract() == 0.0 { format!("{whole:.0}") } else { format!("{milli:.0}m") })
}

fn target(kind: &str) -> MetricTarget {
    MetricTarget { type_: kind.to_owned(), ..MetricTarget::default() }
}

fn average(value: Quantity) -> MetricTarget {
    MetricTarget { average_value: Some(value), ..target("AverageValue") }
}

fn resource(source: &MetricSource, value: f64) -> ResourceMetricSource {
    let name = source.target_metric.to_ascii_lowercase();
    let kind =
        source.target_type.unwrap_or(if name == "cpu" { TargetType::Utilization } else { TargetType::Value });
    let target = match (kind, name.as_str()) {
        (TargetType::Utilization, _) => {
            MetricTarget { average_utilization: Some(ceil_replicas(value).max(1)), ..target("Utilization") }
        }
        (TargetType::AverageValue, "cpu") => average(quantity(value / 1000.0)),
        (TargetType::AverageValue, _) => average(quantity(value.round().max(1.0))),
        (TargetType::Value, _) => average(Quantity(mebibytes(value))),
    };
    ResourceMetricSource { name, target }
}

/// Whole mebibytes as such, parts of them in bytes.
fn mebibytes(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}Mi")
    } else {
        format!("{:.0}", (value * 1_048_576.0).round())
    }
}

fn metric(source: &MetricSource, value: f64) -> MetricSpec {
    let named = ["cpu", "memory"].contains(&source.target_metric.to_ascii_lowercase().as_str());
    // Older objects have `pod` for CPU and memory; no metric of a pod has these names.
    let is_resource = match source.metric_source_type {
        MetricSourceType::Resource => true,
        MetricSourceType::Pod => named,
        MetricSourceType::Custom | MetricSourceType::External | MetricSourceType::Domain => false,
    };
    if is_resource {
        return MetricSpec {
            type_: "Resource".to_owned(),
            resource: Some(resource(source, value)),
            ..MetricSpec::default()
        };
    }
    let metric = MetricIdentifier { name: source.target_metric.clone(), selector: source.selector.clone() };
    if source.is_external() {
        let target = match source.effective_target_type() {
            TargetType::Value => MetricTarget { value: Some(quantity(value)), ..target("Value") },
            TargetType::AverageValue | TargetType::Utilization => average(quantity(value)),
        };
        let external = Some(ExternalMetricSource { metric, target });
        return MetricSpec { type_: "External".to_owned(), external, ..MetricSpec::default() };
    }
    let pods = Some(PodsMetricSource { metric, target: average(quantity(value)) });
    MetricSpec { type_: "Pods".to_owned(), pods, ..MetricSpec::default() }
}

/// What one step may change, in percent; at least one.
fn percent(share: f64) -> i32 {
    ceil_replicas((share * 100.0).round()).max(1)
}

fn rules(
    share: f64,
    select: &str,
    window: std::time::Duration,
    tolerance: Option<f64>,
    passive: bool,
) -> HPAScalingRules {
    let policy =
        HPAScalingPolicy { type_: "Percent".to_owned(), value: percent(share), period_seconds: PERIOD };
    // `Disabled` makes the controller of Kubernetes compute and show what it would do, and do nothing.
    let select = if passive { "Disabled" } else { select };
    HPAScalingRules {
        policies: Some(vec![policy]),
        select_policy: Some(select.to_owned()),
        stabilization_window_seconds: i32::try_from(window.as_secs()).ok(),
        tolerance: tolerance.map(quantity_from_zero),
    }
}

fn quantity_from_zero(value: f64) -> Quantity {
    if value <= 0.0 { Quantity("0".to_owned()) } else { quantity(value) }
}

fn behavior(object: &PodAutoscaler, settings: &Settings) -> HorizontalPodAutoscalerBehavior {
    let rates = settings.rates();
    let (up, down) = settings.cooldowns();
    let passive = object.spec.is_passive();
    // Only where configured: clusters without this feature warn about the field.
    let asked = |key: &str| object.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(key));
    let tolerance = settings.tolerance();
    let up_tolerance = asked(annotation::SCALE_UP_TOLERANCE).then_some(tolerance.up);
    let down_tolerance = asked(annotation::SCALE_DOWN_TOLERANCE).then_some(tolerance.down);
    HorizontalPodAutoscalerBehavior {
        scale_up: Some(rules(rates.up - 1.0, "Max", up, up_tolerance, passive)),
        scale_down: Some(rules(1.0 - 1.0 / rates.down, "Min", down, down_tolerance, passive)),
    }
}

/// The `HorizontalPodAutoscaler` of an object, with the bounds that are in force. It has no status and no resource
/// version: it is meant to be applied. It does not accept zero replicas, so a lower bound of 0 is left out.
///
/// # Errors
/// Everything that is wrong with the object.
pub fn build(object: &PodAutoscaler, now: Timestamp) -> Result<HorizontalPodAutoscaler, Vec<FieldError>> {
    let (settings, _) = Settings::from_object(object)?;
    let bounds = settings.bounds(now);
    let metadata = &object.metadata;
    let own = metadata.name.clone().unwrap_or_default();
    let kept = |all: &BTreeMap<String, String>| -> BTreeMap<String, String> {
        all.iter()
            .filter(|(key, _)| *key != NOT_COPIED)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    let reference = &object.spec.scale_target_ref;
    let owner = OwnerReference {
        api_version: "autoscaling.aibrix.ai/v1alpha1".to_owned(),
        kind: "PodAutoscaler".to_owned(),
        name: own.clone(),
        uid: metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    let metrics = object.spec.metrics_sources.iter().zip(&settings.metrics);
    Ok(HorizontalPodAutoscaler {
        metadata: ObjectMeta {
            name: Some(name(&own)),
            namespace: metadata.namespace.clone(),
            labels: metadata.labels.clone(),
            annotations: metadata.annotations.as_ref().map(kept).filter(|all| !all.is_empty()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: HorizontalPodAutoscalerSpec {
            behavior: Some(behavior(object, &settings)),
            max_replicas: bounds.max,
            metrics: Some(metrics.map(|(source, settings)| metric(source, settings.target.get())).collect()),
            min_replicas: (bounds.min > 0).then_some(bounds.min),
            scale_target_ref: CrossVersionObjectReference {
                api_version: reference.api_version.clone(),
                kind: reference.kind.clone().unwrap_or_default(),
                name: reference.name.clone().unwrap_or_default(),
            },
        },
        status: None,
    })
}
