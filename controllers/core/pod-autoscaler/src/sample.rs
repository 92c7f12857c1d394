//! The readings of a metric, and their combination over all pods.
//!
//! A value that is missing stays missing, with its reason. It never becomes zero: a failing scrape must not look like an
//! idle workload.

use std::fmt;

use neonvm_api::pod_autoscaler::PodAggregation;
use serde::{Deserialize, Serialize};

use crate::{
    histogram::Histogram,
    number::{Finite, count},
};

/// Why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MissingReason {
    /// No pod is ready.
    NoReadyPods,
    /// The pod has no address yet.
    NoAddress,
    /// No connection.
    Unreachable,
    /// No answer in time.
    TimedOut,
    /// The answer is not success.
    BadStatus,
    /// The caller may not read it.
    Forbidden,
    /// The answer is larger than is read.
    TooLarge,
    /// The answer cannot be read.
    Unreadable,
    /// The answer has no such metric.
    NoSuchMetric,
    /// The value is infinite or no number.
    NotFinite,
    /// A rate needs two readings and there is one.
    FirstReading,
    /// Utilization needs a request and the pod has none.
    NoRequest,
    /// Too few of the ready pods gave a value.
    NoQuorum,
    /// The caller did not look.
    NotRead,
}

/// No value, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    pub reason: MissingReason,
    /// The reason for people.
    pub message: String,
}

impl Missing {
    /// No value, and why.
    #[must_use]
    pub fn new(reason: MissingReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.reason, self.message)
    }
}

/// A value, or the histogram that a value is yet to be made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Measure {
    /// A single value.
    Value(Finite),
    /// What was counted since the last reading; of several pods they are added before anything is computed.
    Histogram(Histogram),
}

/// What was read of one pod. Every pod has one, with a value or with the reason why not; pods that are going away are
/// left out by the caller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSample {
    /// The pod's unique id.
    pub uid: String,
    /// The pod's name; empty in recordings of older versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Whether it is ready; what others give is not counted.
    pub ready: bool,
    /// The measured value, or why it is missing.
    pub measure: Result<Measure, Missing>,
    /// What its containers request of the resource, in the unit of the value; for a target of type `Utilization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Finite>,
}

/// What was read of one metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Observed {
    /// One value of each pod.
    Pods(Vec<PodSample>),
    /// One value for the whole workload.
    Whole(Measure),
    /// Nothing.
    Missing(Missing),
}

impl Observed {
    /// The ready pods that have no value, by name, with the reason.
    #[must_use]
    pub fn without_value(&self) -> Vec<(String, Missing)> {
        let Self::Pods(samples) = self else { return Vec::new() };
        let named = |sample: &PodSample| {
            let name = if sample.name.is_empty() { &sample.uid } else { &sample.name };
            sample.measure.as_ref().err().map(|missing| (name.clone(), missing.clone()))
        };
        samples.iter().filter(|sample| sample.ready).filter_map(named).collect()
    }

    /// One value for the whole workload; [`Self::Missing`] if it is not finite.
    #[must_use]
    pub fn total(value: f64) -> Self {
        match Finite::new(value) {
            Some(value) => Self::Whole(Measure::Value(value)),
            None => Self::Missing(Missing::new(MissingReason::NotFinite, format!("{value} is not a number"))),
        }
    }

    /// One value of each ready pod.
    #[must_use]
    pub fn pods(values: &[f64]) -> Self {
        let sample = |(index, value): (usize, &f64)| PodSample {
            uid: format!("pod-{index}"),
            name: String::new(),
            ready: true,
            measure: Finite::new(*value)
                .map(Measure::Value)
                .ok_or_else(|| Missing::new(MissingReason::NotFinite, format!("{value} is not a number"))),
            request: None,
        };
        Self::Pods(values.iter().enumerate().map(sample).collect())
    }
}

/// How a histogram becomes a value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Statistic {
    Mean,
    /// One of its quantiles, from 0 to 1.
    Quantile(f64),
}

/// The reading of a metric over all pods.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reading {
    /// The value of one pod as aggregated, or the whole value where it is not read from pods.
    pub value: Finite,
    /// Percent of the request, if a utilization target requires it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<Finite>,
    /// Ready pods and those of them that gave a value; `None` where it is not read from pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<Sampled>,
}

/// How many pods a reading is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sampled {
    pub ready: i32,
    /// Those of them that gave a value.
    pub sampled: i32,
}

/// Share of the ready pods that must give a value.
pub const QUORUM: f64 = 0.5;

impl Reading {
    /// What is read of pods and of the whole, as one reading. `statistic` is for histograms, `utilization` reads
    /// percent of the request.
    ///
    /// A scrape that worked and counted nothing since the last one is zero: there was no request to be slow.
    ///
    /// # Errors
    /// Why there is no value: nothing read, no ready pod, too few of them with a value, no request.
    pub fn from_observed(
        observed: &Observed,
        aggregation: PodAggregation,
        statistic: Statistic,
        utilization: bool,
    ) -> Result<Self, Missing> {
        match observed {
            Observed::Missing(missing) => Err(missing.clone()),
            Observed::Whole(measure) => {
                Ok(Self { value: value_of(measure, statistic), utilization: None, pods: None })
            }
            Observed::Pods(pods) => Self::of_pods(pods, aggregation, statistic, utilization),
        }
    }

    fn of_pods(
        pods: &[PodSample],
        aggregation: PodAggregation,
        statistic: Statistic,
        utilization: bool,
    ) -> Result<Self, Missing> {
        let ready: Vec<&PodSample> = pods.iter().filter(|pod| pod.ready).collect();
        if ready.is_empty() {
            let text = format!("none of {} pods is ready", pods.len());
            return Err(Missing::new(MissingReason::NoReadyPods, text));
        }
        let good: Vec<(&PodSample, &Measure)> = ready
            .iter()
            .filter_map(|pod| Some((*pod, pod.measure.as_ref().ok()?)))
            .filter(|(pod, _)| !utilization || pod.request.is_some_and(|request| request > Finite::ZERO))
            .collect();
        let sampled = Sampled { ready: count(ready.len()), sampled: count(good.len()) };
        if f64::from(sampled.sampled) < (f64::from(sampled.ready) * QUORUM).max(1.0) {
            return Err(too_few(&ready, sampled));
        }
        let value = match aggregation {
            PodAggregation::Average if good.iter().any(|(_, m)| matches!(m, Measure::Histogram(_))) => {
                let mut all = Histogram::default();
                for (_, measure) in &good {
                    if let Measure::Histogram(histogram) = measure {
                        all.merge(histogram);
                    }
                }
                value_of(&Measure::Histogram(all), statistic)
            }
            _ => {
                aggregate(good.iter().map(|(_, measure)| value_of(measure, statistic)).collect(), aggregation)
            }
        };
        let percent = || {
            let used: f64 = good.iter().map(|(_, measure)| value_of(measure, statistic).get()).sum();
            let requested: f64 = good.iter().filter_map(|(pod, _)| pod.request).map(Finite::get).sum();
            Finite::saturating(100.0 * used / requested)
        };
        Ok(Self { value, utilization: utilization.then(percent), pods: Some(sampled) })
    }

    /// Share of the ready pods that gave a value, above 0 and at most 1.
    #[must_use]
    pub fn coverage(&self) -> f64 {
        self.pods.map_or(1.0, |pods| (f64::from(pods.sampled) / f64::from(pods.ready.max(1))).min(1.0))
    }
}

/// Too few values: the reason that most of the pods without one have.
fn too_few(ready: &[&PodSample], sampled: Sampled) -> Missing {
    let reasons = ready.iter().filter_map(|pod| Some((&pod.uid, pod.measure.as_ref().err()?)));
    let mut first: Option<(&String, &Missing)> = None;
    let mut most = 0usize;
    for (uid, missing) in reasons.clone() {
        let same = reasons.clone().filter(|(_, other)| other.reason == missing.reason).count();
        if same > most {
            (first, most) = (Some((uid, missing)), same);
        }
    }
    let counts = format!("{} of {} ready pods gave a value", sampled.sampled, sampled.ready);
    match first {
        Some((uid, missing)) if sampled.sampled == 0 => {
            Missing::new(missing.reason, format!("{counts}; pod {uid}: {}", missing.message))
        }
        Some((uid, missing)) => {
            Missing::new(MissingReason::NoQuorum, format!("{counts}; pod {uid}: {missing}"))
        }
        None => Missing::new(MissingReason::NoRequest, format!("{counts} and request the resource")),
    }
}

fn value_of(measure: &Measure, statistic: Statistic) -> Finite {
    match (measure, statistic) {
        (Measure::Value(value), _) => *value,
        (Measure::Histogram(histogram), Statistic::Mean) => histogram.mean().unwrap_or(Finite::ZERO),
        (Measure::Histogram(histogram), Statistic::Quantile(q)) => {
            histogram.quantile(q).unwrap_or(Finite::ZERO)
        }
    }
}

fn aggregate(mut values: Vec<Finite>, aggregation: PodAggregation) -> Finite {
    let many = f64::from(count(values.len()).max(1));
    match aggregation {
        // Divided first, so that large values do not leave the range of a float.
        PodAggregation::Average => Finite::saturating(values.iter().map(|value| value.get() / many).sum()),
        PodAggregation::Maximum => values.into_iter().max().unwrap_or_default(),
        PodAggregation::P90 => {
            values.sort_unstable();
            let rank = values.len().saturating_mul(9).div_ceil(10).saturating_sub(1);
            values.get(rank).copied().unwrap_or_default()
        }
    }
}
