//! One metric of a `PodAutoscaler`: where it comes from, how it is read, what it is compared with.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{schema, schema::rules};

/// One metric and its target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::metric_source()))]
pub struct MetricSource {
    /// Where the metric comes from.
    pub metric_source_type: MetricSourceType,
    /// Protocol for fetching it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_type: Option<MetricProtocol>,
    /// Host for fetching it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// Path for fetching it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Port for fetching it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub port: String,
    /// Name of the metric.
    #[schemars(length(min = 1))]
    pub target_metric: String,
    /// The value it should have: a positive number, as text.
    #[schemars(
        length(min = 1, max = 64),
        regex(pattern = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$")
    )]
    #[schemars(extend("x-kubernetes-validations" = rules::target_value()))]
    pub target_value: String,
    /// What the target is compared with: `AverageValue` (the load for each pod; when absent), `Value` (the metric as it
    /// is; when absent for a quantile or a mean), `Utilization` (percent of the request, for type resource).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_type: Option<TargetType>,
    /// How the values of the pods become one: `Average` when absent. `Maximum` and `P90` follow the busiest pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregation: Option<PodAggregation>,
    /// How several series of one pod or endpoint become one value: `Sum` when absent, `Average` for metrics that are
    /// shares of a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series_aggregation: Option<SeriesAggregation>,
    /// Which series count, by their labels; also sent to the custom and the external metrics API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::foreign::<LabelSelector>")]
    pub selector: Option<LabelSelector>,
    /// How a series becomes a value; when absent, a counter gives its rate, a histogram its mean, all else its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<Function>,
    /// Quantile of a histogram between 0 and 1, as text, such as `"0.99"`: a target on a latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16), regex(pattern = r"^(0?\.[0-9]+|0|1|1\.0*|0\.)$"))]
    pub quantile: Option<String>,
}

impl MetricSource {
    /// Whether the metric comes from a separate endpoint, not from the pods and not from an API of the cluster.
    #[must_use]
    pub fn has_endpoint(&self) -> bool {
        self.is_external() && !self.endpoint.is_empty()
    }

    /// Whether the type is `external` or its old word.
    #[must_use]
    pub fn is_external(&self) -> bool {
        matches!(self.metric_source_type, MetricSourceType::External | MetricSourceType::Domain)
    }

    /// What the target is compared with, by default what the metric is: a latency has no share for each pod.
    #[must_use]
    pub fn effective_target_type(&self) -> TargetType {
        let latency = self.quantile.is_some() || self.function == Some(Function::Mean);
        self.target_type.unwrap_or(if latency { TargetType::Value } else { TargetType::AverageValue })
    }

    /// The quantile as a number from 0 to 1.
    #[must_use]
    pub fn quantile_value(&self) -> Option<f64> {
        self.quantile.as_ref()?.parse().ok().filter(|value| (0.0..=1.0).contains(value))
    }
}

/// What a target is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TargetType {
    /// The load for each pod.
    AverageValue,
    /// The metric as it is: replicas follow the ratio of metric and target.
    Value,
    /// Percent of what the pods request.
    Utilization,
}

/// How the values of the pods become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PodAggregation {
    /// Mean of the series.
    #[default]
    Average,
    /// Largest of the series.
    Maximum,
    /// The value that nine of ten do not exceed (nearest rank).
    P90,
}

/// How several series become one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SeriesAggregation {
    /// Sum of the series.
    Sum,
    /// Mean of the values.
    Average,
    /// Largest of the values.
    Maximum,
    /// Smallest of the values.
    Minimum,
}

/// How a series becomes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Function {
    /// As it is.
    Value,
    /// The increase of a counter, for each second.
    Rate,
    /// The mean of what a histogram or a summary has counted since the last reading.
    Mean,
}

/// Where a metric comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MetricSourceType {
    /// Each pod's own endpoint.
    Pod,
    /// CPU or memory.
    Resource,
    /// The custom metrics API.
    Custom,
    /// An endpoint, or the external metrics API.
    External,
    /// Old word for `external`.
    Domain,
}

/// Protocol for fetching a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MetricProtocol {
    /// Plain.
    Http,
    /// With TLS.
    Https,
}
