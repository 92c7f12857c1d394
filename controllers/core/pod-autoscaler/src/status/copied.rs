//! The status of Kubernetes' own controller, in the form of the other strategies: metric, target, and the replicas that they
//! call for.

use k8s_openapi::{
    api::autoscaling::v2::{
        HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, MetricSpec, MetricStatus, MetricTarget,
        MetricValueStatus,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use neonvm_api::pod_autoscaler::{CurrentMetric, ExplanationStep, MetricValue};

use super::source_word;
use crate::{
    hpa,
    number::render,
    schedule::Bounds,
    settings::{MetricSettings, Settings},
};

/// Before the first decision.
const UNDECIDED: &str = "Kubernetes has decided nothing yet";

/// A metric or its target in the forms that it has, in the units of the other strategies: thousandths of a core, bytes, or
/// what the metric has.
#[derive(Clone, Copy, Debug, Default)]
struct Forms {
    value: Option<f64>,
    average: Option<f64>,
    utilization: Option<i32>,
}

impl Forms {
    fn from_value(
        value: Option<&Quantity>,
        average: Option<&Quantity>,
        utilization: Option<i32>,
        unit: f64,
    ) -> Self {
        let number = |quantity: &Quantity| Some(amount(quantity)? * unit);
        Self { value: value.and_then(number), average: average.and_then(number), utilization }
    }

    fn of_target(target: &MetricTarget, unit: f64) -> Self {
        Self::from_value(
            target.value.as_ref(),
            target.average_value.as_ref(),
            target.average_utilization,
            unit,
        )
    }

    fn of_current(current: &MetricValueStatus, unit: f64) -> Self {
        Self::from_value(
            current.value.as_ref(),
            current.average_value.as_ref(),
            current.average_utilization,
            unit,
        )
    }

    fn shown(self) -> MetricValue {
        MetricValue {
            value: self.value.map(render),
            average_value: self.average.map(render),
            average_utilization: self.utilization,
        }
    }

    /// The metric as a multiple of its target, in the form that the target has.
    fn ratio(self, target: Self) -> Option<f64> {
        let ratio = |value: Option<f64>, target: Option<f64>| {
            let target = target.filter(|target| *target > 0.0)?;
            Some(value? / target)
        };
        ratio(self.utilization.map(f64::from), target.utilization.map(f64::from))
            .or_else(|| ratio(self.average, target.average))
            .or_else(|| ratio(self.value, target.value))
    }

    /// In words, beside a target.
    fn text(self, target: Self) -> String {
        match (target.utilization, target.average) {
            (Some(_), _) => self.utilization.map(|share| format!("{share} percent of the request")),
            (None, Some(_)) => self.average.map(|value| format!("{} for each pod", render(value))),
            (None, None) => self.value.map(render),
        }
        .unwrap_or_else(|| "unknown".to_owned())
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with four digits")]
fn amount(quantity: &Quantity) -> Option<f64> {
    let nanos = quantity.0.parse::<neonvm_types::Quantity>().ok()?.nanos();
    Some(nanos as f64 / 1e9)
}

fn asked(spec: &MetricSpec) -> Option<(&str, &MetricTarget)> {
    let of_resource = spec.resource.as_ref().map(|source| (source.name.as_str(), &source.target));
    let of_pods = spec.pods.as_ref().map(|source| (source.metric.name.as_str(), &source.target));
    let of_external = spec.external.as_ref().map(|source| (source.metric.name.as_str(), &source.target));
    of_resource.or(of_pods).or(of_external)
}

fn measured(status: &MetricStatus) -> Option<(&str, &MetricValueStatus)> {
    let of_resource = status.resource.as_ref().map(|source| (source.name.as_str(), &source.current));
    let of_pods = status.pods.as_ref().map(|source| (source.metric.name.as_str(), &source.current));
    let of_external = status.external.as_ref().map(|source| (source.metric.name.as_str(), &source.current));
    of_resource.or(of_pods).or(of_external)
}

/// The controller's value of a metric: at the same index of its list, or anywhere if the controller left out metrics.
fn found<'a>(
    status: &'a HorizontalPodAutoscalerStatus,
    spec: &MetricSpec,
    index: usize,
) -> Option<&'a MetricValueStatus> {
    let all = status.current_metrics.as_deref().unwrap_or_default();
    let (name, _) = asked(spec)?;
    let value = |one: &'a MetricStatus| {
        let (measured, value) = measured(one)?;
        (one.type_ == spec.type_ && measured == name).then_some(value)
    };
    all.get(index).and_then(value).or_else(|| all.iter().find_map(value))
}

/// Every metric of an object, with an explanation of the replicas that it calls for.
pub(super) fn metrics(
    settings: &Settings,
    hpa: &HorizontalPodAutoscaler,
) -> Vec<(CurrentMetric, ExplanationStep)> {
    let specs = hpa.spec.metrics.as_deref().unwrap_or_default();
    let metrics = settings.metrics.iter().zip(specs).enumerate();
    metrics.map(|(index, (metric, spec))| one(settings, hpa, (index, metric, spec))).collect()
}

fn one(
    settings: &Settings,
    hpa: &HorizontalPodAutoscaler,
    (index, metric, spec): (usize, &MetricSettings, &MetricSpec),
) -> (CurrentMetric, ExplanationStep) {
    let status = hpa.status.as_ref();
    let unit = match asked(spec) {
        Some(("cpu", _)) if spec.resource.is_some() => 1000.0,
        _ => 1.0,
    };
    let target = asked(spec).map(|(_, target)| Forms::of_target(target, unit)).unwrap_or_default();
    let current = status.and_then(|status| found(status, spec, index));
    let current = current.map(|current| Forms::of_current(current, unit));
    let replicas = status.and_then(|status| status.current_replicas).unwrap_or(0);
    let ratio = current.and_then(|current| current.ratio(target));
    let desired = ratio.map(|ratio| hpa::by_ratio(replicas, ratio, settings.tolerance()));
    let error = if current.is_some() { String::new() } else { why(status) };
    let message = match (current, desired) {
        (Some(current), Some(desired)) => {
            let (value, target) = (current.text(target), target.text(target));
            format!("value {value}, target {target}; asks for {desired} by the ratio of the two")
        }
        _ => format!("no value: {error}"),
    };
    let step = ExplanationStep {
        step: "Metric".to_owned(),
        metric: metric.name.clone(),
        replicas: desired.unwrap_or(replicas),
        message,
    };
    let shown = CurrentMetric {
        kind: source_word(metric.kind).to_owned(),
        name: metric.name.clone(),
        target: target.shown(),
        current: current.map(Forms::shown),
        desired_replicas: desired,
        error,
        ..CurrentMetric::default()
    };
    (shown, step)
}

/// Why there is no value of a metric.
fn why(status: Option<&HorizontalPodAutoscalerStatus>) -> String {
    let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let mut inactive = conditions.filter(|one| one.type_ == "ScalingActive" && one.status == "False");
    let message = inactive.next().and_then(|one| one.message.clone()).unwrap_or_default();
    message.chars().take(512).collect()
}

/// The number of replicas that was decided on; none before the first decision, until which the status has zero: fewer than are
/// permitted, or with no metric that was found.
pub(super) fn decided(status: &HorizontalPodAutoscalerStatus, bounds: &Bounds) -> Option<i32> {
    let mut conditions = status.conditions.iter().flatten();
    let is_active = conditions.any(|one| one.type_ == "ScalingActive" && one.status == "True");
    (status.desired_replicas > 0 || (bounds.min == 0 && is_active)).then_some(status.desired_replicas)
}

/// The text shown before the first decision in place of a number of replicas; none after it.
pub(super) fn undecided(hpa: Option<&HorizontalPodAutoscaler>, bounds: &Bounds) -> Option<String> {
    let status = hpa.and_then(|hpa| hpa.status.as_ref());
    if status.is_some_and(|status| decided(status, bounds).is_some()) {
        return None;
    }
    let there = status.and_then(|status| status.current_replicas);
    let there = there.map_or_else(String::new, |count| format!(", {count} replicas there"));
    Some(format!("{UNDECIDED}{there}"))
}

/// All steps: the current replicas, what each metric requires, the decision.
pub(super) fn explanation(
    hpa: &HorizontalPodAutoscaler,
    bounds: &Bounds,
    metrics: Vec<ExplanationStep>,
) -> Vec<ExplanationStep> {
    let Some(status) = hpa.status.as_ref() else { return Vec::new() };
    let step = |name: &str, replicas: i32, message: String| ExplanationStep {
        step: name.to_owned(),
        metric: String::new(),
        replicas,
        message,
    };
    let from = bounds.schedule.as_ref().map_or_else(String::new, |name| format!(" by schedule {name}"));
    let current = status.current_replicas.unwrap_or(0);
    let mut all = vec![step("Observed", current, format!("bounds {} to {}{from}", bounds.min, bounds.max))];
    all.extend(metrics);
    let conditions = status.conditions.as_ref().into_iter().flatten();
    let mut limited = conditions.filter(|one| one.type_ == "ScalingLimited");
    let limit = limited.next().and_then(|one| one.message.clone()).filter(|text| !text.is_empty());
    let text =
        limit.map_or_else(String::new, |text| format!(": {}", text.chars().take(512).collect::<String>()));
    all.push(match decided(status, bounds) {
        Some(replicas) => step("Result", replicas, format!("decided by Kubernetes{text}")),
        None => step("Result", current, format!("{UNDECIDED}{text}")),
    });
    all
}
