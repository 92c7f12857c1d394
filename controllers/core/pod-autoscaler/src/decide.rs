//! One decision: bounds → each metric → the largest → zero or not → stabilisation → bounds again, with every number kept.

use jiff::{Timestamp, ToSpan};
use neonvm_api::pod_autoscaler::{MetricSourceType, ScalingStrategy, TargetType};
use serde::{Deserialize, Serialize};

use crate::{
    forecast::Trend,
    kpa,
    memory::Memory,
    number::Finite,
    sample::{Missing, MissingReason, Observed, Reading},
    schedule::Bounds,
    settings::Settings,
    want::Fleet,
};

mod metric;

/// What was seen of a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observation {
    /// Replicas that are ordered: `spec.replicas` of the target, or of its role.
    pub current: i32,
    /// Pods of it that are ready and not going away; `None` if the pods were not listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<i32>,
    /// What was read, in the order of the metrics of the object.
    pub metrics: Vec<Observed>,
}

impl Observation {
    fn fleet(&self) -> Fleet {
        let of_pods = |observed: &Observed| match observed {
            Observed::Pods(pods) => Some(crate::number::count(pods.iter().filter(|pod| pod.ready).count())),
            Observed::Whole(_) | Observed::Missing(_) => None,
        };
        let current = self.current.max(0);
        let ready = self.ready.or_else(|| self.metrics.iter().find_map(of_pods)).unwrap_or(current);
        Fleet { current, ready: ready.max(0) }
    }
}

/// Why replicas are what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Reason {
    /// Some metric is above its target.
    AboveTarget,
    /// Every metric is below its target.
    AllBelowTarget,
    /// The load of the panic window requires more.
    PanicAboveTarget,
    /// The load is expected to rise.
    ForecastAboveTarget,
    /// More replicas than the upper bound.
    AboveMaximum,
    /// Fewer replicas than the lower bound.
    BelowMinimum,
    /// Nothing to change.
    Stable,
    /// It was set to zero by hand and stays there until it is set to something else.
    DisabledAtZero,
    /// No metric could be read.
    MetricsMissing,
}

/// Why a recommendation differs from what the metrics require.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Limit {
    /// The upper bound.
    TooManyReplicas,
    /// The lower bound.
    TooFewReplicas,
    /// The largest factor of a step up.
    ScaleUpRate,
    /// The largest divisor of a step down.
    ScaleDownRate,
    /// Lower recommendations of the last while.
    ScaleUpStabilized,
    /// Higher recommendations of the last while.
    ScaleDownStabilized,
    /// The fewest replicas while there is any load.
    ActivationScale,
    /// A metric is missing, so nothing is taken away.
    MetricMissing,
    /// In panic nothing is taken away.
    Panic,
    /// The stable window is not filled yet, after a start or an outage.
    WarmingUp,
    /// The last replica stays: zero is not allowed, or there was load within the stable window.
    NotIdle,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricTrace {
    /// Name of the metric.
    pub name: String,
    /// Where it comes from.
    pub kind: MetricSourceType,
    /// What it should be.
    pub target: Finite,
    /// What the target is compared with.
    pub target_type: TargetType,
    /// What was read, or why nothing.
    pub reading: Result<Reading, Missing>,
    /// Ready pods without a value, by name, with the reason; [`MOST_MISSING`] of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_value: Vec<(String, Missing)>,
    /// The whole load now, in units of the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Finite>,
    /// Its average over the stable window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable: Option<Finite>,
    /// Its average over the panic window; for strategy KPA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panic: Option<Finite>,
    /// The replicas that both windows require, and whether there is panic; for strategy KPA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<kpa::KpaRecommendation>,
    /// The trend and the replicas that it requires, within the rates; with a forecast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<(Trend, i32)>,
    /// The replicas that the load requires, before the rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<i32>,
    /// The replicas that the metric requires; `None` if it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Why it differs from what the load requires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Whether it was watched for the whole stable window without any load.
    pub idle: bool,
}

/// Pods without a value that a trace names.
pub const MOST_MISSING: usize = 10;

/// Stages of a decision after the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stage {
    /// The largest number that the metrics require.
    Largest,
    /// Whether zero is allowed.
    Zero,
    /// Recommendations of the last while.
    Stabilization,
    Bounds,
    /// Paused, recommendation only, or applied.
    Mode,
}

/// A stage that was passed, and the replicas after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    pub stage: Stage,
    /// Replicas after it.
    pub replicas: i32,
    /// What it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
}

/// A decision, and all it was made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// When it was made.
    pub at: Timestamp,
    /// The workload as it was.
    pub fleet: Fleet,
    pub bounds: Bounds,
    /// Most and fewest replicas after one step by the rates.
    pub ceiling: i32,
    /// Fewest replicas after one step by the rates.
    pub floor: i32,
    /// The contribution of each metric.
    pub metrics: Vec<MetricTrace>,
    /// What became of it.
    pub steps: Vec<Step>,
    /// Replicas that should be there.
    pub recommendation: i32,
    /// Replicas to write: the recommendation, or what is there if nothing is to be written.
    pub desired: i32,
    pub reason: Reason,
    /// Why it differs from what the metrics require; the last limit that applied.
    pub limit: Option<Limit>,
    /// Whether the object is paused.
    pub paused: bool,
    /// Whether the object requests recommendations only.
    pub recommend: bool,
    /// When to look again.
    pub next: Timestamp,
}

impl Decision {
    /// Whether replicas are to be written.
    #[must_use]
    pub const fn scales(&self) -> bool {
        self.desired != self.fleet.current
    }

    /// Metrics that could not be read.
    pub fn missing(&self) -> impl Iterator<Item = (&MetricTrace, &Missing)> {
        self.metrics.iter().filter_map(|metric| Some((metric, metric.reading.as_ref().err()?)))
    }
}

/// Decides how many replicas there should be. `now` is wall-clock time that a caller derives from a clock that does not
/// jump; if it goes back, the latest time seen counts.
///
/// Laws: more load never gives fewer replicas; one step stays within the rates and the bounds; while a metric is
/// missing, and in panic, nothing is taken away but by the upper bound.
#[must_use]
pub fn decide(
    settings: &Settings,
    memory: &mut Memory,
    observation: &Observation,
    now: Timestamp,
) -> Decision {
    let fleet = observation.fleet();
    let now = memory.prepare(settings, fleet, now);
    let bounds = settings.bounds(now);
    let not_read = Observed::Missing(Missing::new(MissingReason::NotRead, "was not read"));
    let metrics: Vec<MetricTrace> = settings
        .metrics
        .iter()
        .zip(&mut memory.metrics)
        .enumerate()
        .map(|(index, (metric, remembered))| {
            let observed = observation.metrics.get(index).unwrap_or(&not_read);
            metric::judge(settings, metric, remembered, observed, fleet, now)
        })
        .collect();
    let mut run = Run { settings, fleet, bounds: &bounds, metrics: &metrics, steps: Vec::new() };
    let (recommendation, reason) = run.recommend(memory, now);
    let passive = settings.paused || settings.recommend || settings.strategy == ScalingStrategy::Hpa;
    let desired = if passive { fleet.current } else { recommendation };
    run.step(Stage::Mode, desired, None);
    let steps = run.steps;
    let limit = steps.iter().rev().find_map(|step| step.limit);
    let (ceiling, floor) = (settings.rates().ceiling(fleet), settings.rates().floor(fleet));
    let next = next(settings, now);
    Decision {
        at: now,
        fleet,
        bounds,
        ceiling,
        floor,
        metrics,
        steps,
        recommendation,
        desired,
        reason,
        limit,
        paused: settings.paused,
        recommend: settings.recommend,
        next,
    }
}

/// When to look again: after the period, or when other bounds come into force if that is earlier.
#[must_use]
pub fn next(settings: &Settings, now: Timestamp) -> Timestamp {
    let period = now.checked_add(settings.sync_period.seconds()).unwrap_or(Timestamp::MAX);
    settings.schedules.next_transition(now).map_or(period, |at| at.min(period))
}

struct Run<'a> {
    settings: &'a Settings,
    fleet: Fleet,
    bounds: &'a Bounds,
    metrics: &'a [MetricTrace],
    steps: Vec<Step>,
}

impl Run<'_> {
    fn step(&mut self, stage: Stage, replicas: i32, limit: Option<Limit>) {
        self.steps.push(Step { stage, replicas, limit });
    }

    fn recommend(&mut self, memory: &mut Memory, now: Timestamp) -> (i32, Reason) {
        let current = self.fleet.current;
        if current == 0 && self.bounds.min > 0 && !self.bounds.explicit_min {
            self.step(Stage::Bounds, 0, None);
            return (0, Reason::DisabledAtZero);
        }
        // Replicas out of bounds are brought back at once, regardless of metrics.
        if current > self.bounds.max || current < self.bounds.min {
            let replicas = self.bounds.clamp(current);
            let (limit, reason) = if replicas < current {
                (Limit::TooManyReplicas, Reason::AboveMaximum)
            } else {
                (Limit::TooFewReplicas, Reason::BelowMinimum)
            };
            self.step(Stage::Bounds, replicas, Some(limit));
            return (replicas, reason);
        }
        let Some((wanted, reason)) = self.largest() else {
            self.step(Stage::Largest, current, Some(Limit::MetricMissing));
            return (current, Reason::MetricsMissing);
        };
        let wanted = self.zero(wanted);
        let (up, down) = self.settings.cooldowns();
        let stable = memory.stabiliser.step(now, wanted, current, up, down);
        let limit = (stable != wanted).then_some(if stable < wanted {
            Limit::ScaleUpStabilized
        } else {
            Limit::ScaleDownStabilized
        });
        self.step(Stage::Stabilization, stable, limit);
        let replicas = self.bounds.clamp(stable);
        let limit = (replicas != stable).then_some(if replicas < stable {
            Limit::TooManyReplicas
        } else {
            Limit::TooFewReplicas
        });
        self.step(Stage::Bounds, replicas, limit);
        (replicas, if replicas == current { Reason::Stable } else { reason })
    }

    /// The largest number that the metrics require. While one is missing, replicas are not reduced.
    fn largest(&mut self) -> Option<(i32, Reason)> {
        let current = self.fleet.current;
        let strongest = self.metrics.iter().filter_map(|metric| Some((metric.replicas?, metric)));
        // The first of equals counts, so that the reason does not change without need.
        let (wanted, metric) = strongest.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
        let missing = self.metrics.iter().any(|metric| metric.replicas.is_none());
        if missing && wanted < current {
            self.step(Stage::Largest, current, Some(Limit::MetricMissing));
            return Some((current, Reason::Stable));
        }
        self.step(Stage::Largest, wanted, metric.limit);
        let ahead = metric.forecast.is_some_and(|(_, replicas)| replicas == wanted)
            && metric.wanted.is_some_and(|now| now < wanted);
        let surge = metric.answer.is_some_and(|answer| answer.panicking && answer.panic > answer.stable);
        let reason = match wanted.cmp(&current) {
            std::cmp::Ordering::Less => Reason::AllBelowTarget,
            std::cmp::Ordering::Equal => Reason::Stable,
            std::cmp::Ordering::Greater if ahead => Reason::ForecastAboveTarget,
            std::cmp::Ordering::Greater if surge => Reason::PanicAboveTarget,
            std::cmp::Ordering::Greater => Reason::AboveTarget,
        };
        Some((wanted, reason))
    }

    /// The last replica goes only if zero is allowed and every metric was idle for the whole stable window.
    fn zero(&mut self, wanted: i32) -> i32 {
        if wanted > 0 || self.fleet.current == 0 {
            return wanted;
        }
        let allowed = self.bounds.min == 0 && self.settings.tuning.scale_to_zero != Some(false);
        if allowed && self.metrics.iter().all(|metric| metric.idle) {
            self.step(Stage::Zero, 0, None);
            return 0;
        }
        self.step(Stage::Zero, 1, Some(Limit::NotIdle));
        1
    }
}
