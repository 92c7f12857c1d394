//! What is observed of a `PodAutoscaler`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// What is observed of a pod autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodAutoscalerStatus {
    /// When the number of replicas last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_scale_time: Option<Time>,
    /// Replicas wanted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub desired_scale: i32,
    /// Replicas there.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub actual_scale: i32,
    /// How it stands, with reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::plain_conditions")]
    pub conditions: Vec<Condition>,
    /// The last changes, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub scaling_history: Vec<ScalingDecision>,
    /// The bounds in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_bounds: Option<ScheduledBounds>,
    /// The generation of the object that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The replicas that the metrics require, within bounds, rates and windows; what is applied in mode `Auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recommendation: Option<i32>,
    /// What was read of each metric, in the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub current_metrics: Vec<CurrentMetric>,
    /// How the recommendation came about, step by step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub explanation: Vec<ExplanationStep>,
    /// What is expected; only with `spec.forecast`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<ForecastStatus>,
    /// The last thing that went wrong, and how often in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<ScalingFailure>,
}

/// What was read of one metric. Numbers are text, rounded to four digits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CurrentMetric {
    /// Type of the source.
    #[serde(rename = "type")]
    pub kind: String,
    /// Name of the metric.
    pub name: String,
    /// What it should be.
    #[serde(default)]
    pub target: MetricValue,
    /// What was read last; absent when nothing could be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<MetricValue>,
    /// The whole load, averaged over the stable window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable: Option<String>,
    /// The whole load, averaged over the panic window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panic: Option<String>,
    /// Pods that gave a value, of those that are ready; such as `3/4`. Absent for a metric that is not read from pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<String>,
    /// Replicas that this metric alone requires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i32>,
    /// Why there is no value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// Ready pods that gave no value, ten at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub pods_without_value: Vec<PodWithoutValue>,
}

/// A ready pod that gave no value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodWithoutValue {
    /// Name of the pod.
    pub pod: String,
    /// Why it gave none, such as `Unreachable: status 404`.
    pub reason: String,
}

/// A metric, or its target, in the forms that it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricValue {
    /// As it is: of several pods the sum, of a latency the latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// For each pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_value: Option<String>,
    /// Percent of what the pods request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_utilization: Option<i32>,
}

/// One step on the way to a recommendation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplanationStep {
    /// What was considered, such as `Metric` or `Stabilization`.
    pub step: String,
    /// The metric, where it is about one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub metric: String,
    /// Replicas after this step.
    pub replicas: i32,
    /// Why, with numbers.
    pub message: String,
}

/// What is expected of the load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForecastStatus {
    /// How far ahead, in seconds.
    pub horizon_seconds: i64,
    /// Replicas that the expected load requires; absent while the window is too short for a trend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i32>,
    /// How it was made, with numbers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalingFailure {
    /// When it was last seen.
    #[schemars(schema_with = "schema::time")]
    pub time: Time,
    /// Its name, such as `FailedGetScale`.
    pub reason: String,
    /// Message of the failure.
    pub message: String,
    /// How often in a row.
    pub count: i32,
}

/// One change of the number of replicas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalingDecision {
    /// Time of the change.
    #[schemars(schema_with = "schema::time")]
    pub timestamp: Time,
    /// Replicas before.
    pub previous_scale: i32,
    /// Replicas after.
    pub new_scale: i32,
    /// Reason of the change.
    pub reason: String,
    /// Whether it worked.
    pub success: bool,
    /// Why the change failed; empty if it succeeded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
}

/// The bounds in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledBounds {
    /// The window they come from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub active_schedule: String,
    /// Lower bound.
    pub effective_min_replicas: i32,
    /// Upper bound.
    pub effective_max_replicas: i32,
}

fn is_zero(value: &i32) -> bool {
    *value == 0
}
