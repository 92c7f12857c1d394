//! `PodAutoscaler`: scales the replicas of another object.
//!
//! Fields that upstream's objects do not have are optional; without them the behaviour is the one that upstream documents.

use k8s_openapi::api::core::v1 as core;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{schema, schema::rules};

mod metric;
mod status;
pub mod tuning;
mod warning;

pub use metric::{
    Function, MetricProtocol, MetricSource, MetricSourceType, PodAggregation, SeriesAggregation, TargetType,
};
pub use status::{
    CurrentMetric, ExplanationStep, ForecastStatus, MetricValue, PodAutoscalerStatus, PodWithoutValue,
    ScalingDecision, ScalingFailure, ScheduledBounds,
};
pub use tuning::Tuning;
pub use warning::warnings;

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
    /// `replica` scales a whole `StormService`, anything else one role.
    pub const STORM_SERVICE_MODE: &str = "autoscaling.aibrix.ai/storm-service-mode";
    /// Fewest replicas while there is any load.
    pub const ACTIVATION_SCALE: &str = "autoscaling.aibrix.ai/activation-scale";
    /// `linear` or `weightedExponential`: how a window becomes one number.
    pub const AGGREGATION_ALGORITHM: &str = "autoscaling.aibrix.ai/metric-aggregation-algorithm";
}

/// Lower bound when `minReplicas` is absent.
pub const DEFAULT_MIN_REPLICAS: i32 = 1;
/// Stable window when absent, in seconds.
pub const DEFAULT_OBSERVE_WINDOW: i64 = 180;
/// Panic window when absent, in seconds, beside a stable window that is not below it.
pub const DEFAULT_PANIC_WINDOW: i64 = 60;

/// The panic window when absent, in seconds, beside a stable window of so many: 60, or a tenth of a stable window below
/// that, rounded up, as Knative has it.
#[must_use]
pub fn default_panic_window(observe: i64) -> i64 {
    if observe >= DEFAULT_PANIC_WINDOW { DEFAULT_PANIC_WINDOW } else { ((observe + 9) / 10).max(1) }
}

/// Time between two evaluations when absent, in seconds; a smaller window makes it smaller.
pub const DEFAULT_SYNC_PERIOD: i64 = 10;

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
    /// Picks one role of a `StormService`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_target_selector: Option<SubTargetSelector>,
    /// Lower bound; 1 when absent, 0 allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_replicas: Option<i32>,
    /// Upper bound.
    #[schemars(range(min = 1))]
    pub max_replicas: i32,
    /// Daily windows with separate bounds.
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
    /// Panic window in seconds; when absent 60, or a tenth of a stable window below 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub panic_window_seconds: Option<i64>,
    /// How the number of replicas is computed.
    pub scaling_strategy: ScalingStrategy,
    /// Whether the result is applied (`Auto`, when absent) or only shown in the status (`Recommend`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ScalingMode>,
    /// Stops scaling; metrics are still read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Time between two evaluations in seconds; when absent 10, or the smallest window in use if that is smaller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 300))]
    pub sync_period_seconds: Option<i64>,
    /// Scales up ahead of a rising load; off when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<Forecast>,
}

impl PodAutoscalerSpec {
    /// The stable window in seconds.
    #[must_use]
    pub fn observe_window(&self) -> i64 {
        self.observe_window_seconds.unwrap_or(DEFAULT_OBSERVE_WINDOW)
    }

    /// The panic window in seconds.
    #[must_use]
    pub fn panic_window(&self) -> i64 {
        self.panic_window_seconds.unwrap_or_else(|| default_panic_window(self.observe_window()))
    }

    /// The smallest window that the strategy reads, in seconds; the panic window counts for KPA alone.
    #[must_use]
    pub fn smallest_window(&self) -> i64 {
        match self.scaling_strategy {
            ScalingStrategy::Kpa => self.observe_window().min(self.panic_window()),
            ScalingStrategy::Apa | ScalingStrategy::Hpa => self.observe_window(),
        }
    }

    /// Time between two evaluations in seconds, at least 1.
    #[must_use]
    pub fn sync_period(&self) -> i64 {
        self.sync_period_seconds.unwrap_or_else(|| DEFAULT_SYNC_PERIOD.min(self.smallest_window())).max(1)
    }

    /// Whether nothing is written to the target: paused, or a recommendation only.
    #[must_use]
    pub fn is_passive(&self) -> bool {
        self.paused == Some(true) || self.mode == Some(ScalingMode::Recommend)
    }

    /// The role that is scaled, if it is one.
    #[must_use]
    pub fn role(&self) -> Option<&str> {
        self.sub_target_selector
            .as_ref()
            .map(|selector| selector.role_name.as_str())
            .filter(|role| !role.is_empty())
    }
}

/// Whether the result is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ScalingMode {
    /// It is applied.
    #[default]
    Auto,
    /// It is only shown in the status.
    Recommend,
}

/// Scales up ahead of a rising load. It never lowers what the metrics require.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// How far ahead the trend of the stable window is drawn, in seconds; about the time a new pod needs to be ready.
    #[schemars(range(min = 1, max = 900))]
    pub horizon_seconds: i64,
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

/// Picks one role of a `StormService`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubTargetSelector {
    /// Name of the role in the target.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub role_name: String,
}

/// A daily window with separate bounds.
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
    /// First minute after the window, `HH:MM`; before `startTime`, it is on the next day. Days are those of the start.
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

#[cfg(test)]
mod tests;
