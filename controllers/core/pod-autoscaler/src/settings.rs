//! The settings of an object, read once: defaults filled in, annotations applied, everything checked.

use std::{collections::BTreeMap, time::Duration};

use neonvm_api::{
    FieldError, PodAutoscaler,
    pod_autoscaler::{
        self, DEFAULT_MIN_REPLICAS, DEFAULT_SYNC_PERIOD, MetricSource, MetricSourceType, PodAggregation,
        ScalingStrategy, TargetType, Tuning,
    },
    validate,
};

use crate::{
    exposition::Query,
    kpa,
    number::Finite,
    registry,
    sample::Statistic,
    schedule::{Bounds, Schedules},
    want::{Rates, Tolerance},
};

/// One metric, ready to be judged.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSettings {
    /// Its name, as written.
    pub name: String,
    /// Where it comes from.
    pub kind: MetricSourceType,
    /// What it should be, above 0.
    pub target: Finite,
    /// What the target is compared with.
    pub target_type: TargetType,
    /// How the values of the pods become one.
    pub aggregation: PodAggregation,
    /// What becomes of a histogram.
    pub statistic: Statistic,
    /// Identifies it among the metrics of the object, independent of its place in the list.
    pub key: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How replicas are computed.
    pub strategy: ScalingStrategy,
    pub tuning: Tuning,
    /// The stable window in seconds.
    pub stable_window: i64,
    /// The panic window in seconds, not above the stable one.
    pub panic_window: i64,
    /// Time between two decisions in seconds.
    pub sync_period: i64,
    /// Lower bound outside of schedules.
    pub min: i32,
    /// Upper bound outside of schedules.
    pub max: i32,
    /// Bounds by the time of day.
    pub schedules: Schedules,
    /// The metrics, in the order of the object.
    pub metrics: Vec<MetricSettings>,
    /// Whether nothing is scaled for now.
    pub paused: bool,
    /// Whether the result is only shown.
    pub recommend: bool,
    /// How far ahead a trend is drawn, in seconds.
    pub forecast: Option<i64>,
}

fn metric(source: &MetricSource) -> MetricSettings {
    let target = source.target_value.parse::<f64>().ok().and_then(Finite::new).unwrap_or_default();
    let statistic = source.quantile_value().map_or(Statistic::Mean, Statistic::Quantile);
    let key = format!(
        "{:?}|{}|{}|{}|{}|{:?}|{:?}|{:?}|{:?}",
        source.metric_source_type,
        source.endpoint,
        source.port,
        source.path,
        source.target_metric,
        source.effective_target_type(),
        source.function,
        source.quantile,
        source.aggregation,
    );
    MetricSettings {
        name: source.target_metric.clone(),
        kind: source.metric_source_type,
        target,
        target_type: source.effective_target_type(),
        aggregation: source.aggregation.unwrap_or_default(),
        statistic,
        key,
    }
}

impl Settings {
    /// Reads an object. With the settings come warnings that its writer should see.
    ///
    /// # Errors
    /// Everything that is wrong with the object; then nothing of it holds.
    pub fn from_object(object: &PodAutoscaler) -> Result<(Self, Vec<FieldError>), Vec<FieldError>> {
        let spec = &object.spec;
        let mut faults = validate::pod_autoscaler(object);
        let none = BTreeMap::new();
        // Validation has reported its faults already.
        let (tuning, _) =
            Tuning::parse(object.metadata.annotations.as_ref().unwrap_or(&none)).unwrap_or_default();
        let schedules = Schedules::read(spec.schedules.as_deref().unwrap_or_default());
        let schedules = match schedules {
            Ok(schedules) => schedules,
            Err(found) => {
                let new = found.into_iter().filter(|fault| !faults.contains(fault)).collect::<Vec<_>>();
                faults.extend(new);
                Schedules::default()
            }
        };
        for (index, source) in spec.metrics_sources.iter().enumerate() {
            let scraped = source.metric_source_type == MetricSourceType::Pod || source.has_endpoint();
            if let (true, Err(error)) = (scraped, Query::from_source(source, registry::DEFAULT_ENGINE)) {
                let path = format!("spec.metricsSources[{index}].targetMetric");
                faults.push(FieldError { path, message: error.to_string() });
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let stable_window =
            spec.observe_window_seconds.or(tuning.legacy_stable_window).unwrap_or(spec.observe_window());
        let panic_window = spec.panic_window_seconds.or(tuning.legacy_panic_window);
        let panic_window = panic_window
            .unwrap_or_else(|| pod_autoscaler::default_panic_window(stable_window))
            .min(stable_window);
        let smallest =
            if spec.scaling_strategy == ScalingStrategy::Kpa { panic_window } else { stable_window };
        let min = match (spec.min_replicas, tuning.scale_to_zero) {
            (Some(min), _) => min,
            (None, Some(true)) => 0,
            (None, _) => DEFAULT_MIN_REPLICAS,
        };
        let settings = Self {
            strategy: spec.scaling_strategy,
            tuning,
            stable_window,
            panic_window,
            sync_period: spec.sync_period_seconds.unwrap_or(DEFAULT_SYNC_PERIOD.min(smallest)).max(1),
            min,
            max: spec.max_replicas,
            schedules,
            metrics: spec.metrics_sources.iter().map(metric).collect(),
            paused: spec.paused == Some(true),
            recommend: spec.mode == Some(pod_autoscaler::ScalingMode::Recommend),
            forecast: spec.forecast.map(|forecast| forecast.horizon_seconds),
        };
        Ok((settings, pod_autoscaler::warnings(object)))
    }

    #[must_use]
    pub fn bounds(&self, now: jiff::Timestamp) -> Bounds {
        self.schedules.bounds(now, self.min, self.max)
    }

    /// Tolerances around the target.
    #[must_use]
    pub const fn tolerance(&self) -> Tolerance {
        Tolerance { up: self.tuning.scale_up_tolerance, down: self.tuning.scale_down_tolerance }
    }

    /// The largest steps.
    #[must_use]
    pub const fn rates(&self) -> Rates {
        Rates { up: self.tuning.max_scale_up_rate, down: self.tuning.max_scale_down_rate }
    }

    /// What the state machine of panic goes by.
    #[must_use]
    pub const fn panic_rules(&self) -> kpa::Rules {
        kpa::Rules {
            rates: self.rates(),
            tolerance: self.tolerance(),
            threshold: self.tuning.panic_threshold,
            activation: self.tuning.activation_scale,
            stable_window: self.stable_window,
        }
    }

    /// How long steps up and down are held back.
    #[must_use]
    pub const fn cooldowns(&self) -> (Duration, Duration) {
        (self.tuning.scale_up_cooldown, self.tuning.scale_down_cooldown)
    }

    /// How long loads are remembered, in seconds.
    #[must_use]
    pub fn keep(&self) -> i64 {
        self.stable_window.max(self.panic_window)
    }
}
