//! `PodAutoscaler`: scales the replicas of another object.

use k8s_openapi::{
    api::core::v1 as core,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{schema, schema::rules};

/// Annotations that tune a `PodAutoscaler`.
pub mod annotation {
    /// Largest factor of one step up.
    pub const MAX_SCALE_UP_RATE: &str = "autoscaling.aibrix.ai/max-scale-up-rate";
    /// Largest divisor of one step down.
    pub const MAX_SCALE_DOWN_RATE: &str = "autoscaling.aibrix.ai/max-scale-down-rate";
    /// Relative excess over the target that is still tolerated.
    pub const SCALE_UP_TOLERANCE: &str = "autoscaling.aibrix.ai/scale-up-tolerance";
    /// Relative shortfall below the target that is still tolerated.
    pub const SCALE_DOWN_TOLERANCE: &str = "autoscaling.aibrix.ai/scale-down-tolerance";
    /// Ratio of load to capacity from which the panic window counts.
    pub const PANIC_THRESHOLD: &str = "autoscaling.aibrix.ai/panic-threshold";
    /// How long a step up is held back.
    pub const SCALE_UP_COOLDOWN: &str = "autoscaling.aibrix.ai/scale-up-cooldown-window";
    /// How long a step down is held back.
    pub const SCALE_DOWN_COOLDOWN: &str = "autoscaling.aibrix.ai/scale-down-cooldown-window";
    /// Whether zero replicas are allowed.
    pub const SCALE_TO_ZERO: &str = "autoscaling.aibrix.ai/scale-to-zero";
    /// `replica` scales a whole storm service, anything else one role.
    pub const STORM_SERVICE_MODE: &str = "autoscaling.aibrix.ai/storm-service-mode";
}

/// Lower bound when `minReplicas` is absent.
pub const DEFAULT_MIN_REPLICAS: i32 = 1;
/// Stable window when absent, in seconds.
pub const DEFAULT_OBSERVE_WINDOW: i64 = 180;
/// Panic window when absent, in seconds.
pub const DEFAULT_PANIC_WINDOW: i64 = 60;

/// What is scaled, between which bounds, and by which metrics.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "autoscaling.aibrix.ai",
    version = "v1alpha1",
    kind = "PodAutoscaler",
    plural = "podautoscalers",
    singular = "podautoscaler",
    shortname = "pa",
    category = "neon",
    namespaced,
    status = "PodAutoscalerStatus",
    derive = "PartialEq",
    doc = "Scales the replicas of another object by its metrics.",
    printcolumn = r#"{"name":"MINPODS","type":"integer","jsonPath":".spec.minReplicas"}"#,
    printcolumn = r#"{"name":"MAXPODS","type":"integer","jsonPath":".spec.maxReplicas"}"#,
    printcolumn = r#"{"name":"REPLICAS","type":"integer","jsonPath":".status.actualScale"}"#,
    printcolumn = r#"{"name":"STRATEGY","type":"string","jsonPath":".spec.scalingStrategy"}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::pod_autoscaler()))]
pub struct PodAutoscalerSpec {
    /// The object to scale.
    #[schemars(schema_with = "schema::scale_target")]
    pub scale_target_ref: core::ObjectReference,
    /// Picks one role of a storm service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_target_selector: Option<SubTargetSelector>,
    /// Lower bound; 1 when absent, 0 allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_replicas: Option<i32>,
    /// Upper bound.
    #[schemars(range(min = 1))]
    pub max_replicas: i32,
    /// Daily windows with bounds of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub schedules: Option<Vec<Schedule>>,
    /// What is measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32))]
    pub metrics_sources: Vec<MetricSource>,
    /// Stable window in seconds; 180 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub observe_window_seconds: Option<i64>,
    /// Panic window in seconds; 60 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub panic_window_seconds: Option<i64>,
    /// How the number of replicas is computed.
    pub scaling_strategy: ScalingStrategy,
}

/// How the number of replicas is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum ScalingStrategy {
    /// By a `HorizontalPodAutoscaler` of Kubernetes.
    Hpa,
    /// By a stable and a panic window.
    Kpa,
    /// By the ratio of metric and target.
    Apa,
}

/// Picks one role of a storm service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubTargetSelector {
    /// The role.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub role_name: String,
}

/// A daily window with bounds of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::schedule()))]
pub struct Schedule {
    /// Its name, once in the list.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// An IANA time zone; UTC when absent. The same for all windows.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub timezone: String,
    /// Days as three English letters; every day when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 7), inner(regex(pattern = r"^(?i:mon|tue|wed|thu|fri|sat|sun)$")))]
    pub days_of_week: Option<Vec<String>>,
    /// First minute of the window, `HH:MM`.
    #[schemars(length(max = 5), regex(pattern = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub start_time: String,
    /// First minute after the window, `HH:MM`.
    #[schemars(length(max = 5), regex(pattern = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub end_time: String,
    /// Lower bound in the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_replicas: Option<i32>,
    /// Upper bound in the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_replicas: Option<i32>,
}

/// One metric and its target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// Its name.
    #[schemars(length(min = 1))]
    pub target_metric: String,
    /// The value it should have: a positive number, as text.
    #[schemars(
        length(min = 1, max = 64),
        regex(pattern = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$")
    )]
    #[schemars(extend("x-kubernetes-validations" = rules::target_value()))]
    pub target_value: String,
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
}

/// One change of the number of replicas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalingDecision {
    /// When.
    #[schemars(schema_with = "schema::time")]
    pub timestamp: Time,
    /// Replicas before.
    pub previous_scale: i32,
    /// Replicas after.
    pub new_scale: i32,
    /// Why.
    pub reason: String,
    /// Whether it worked.
    pub success: bool,
    /// Why not.
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
