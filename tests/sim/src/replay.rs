//! An autoscaler replayed over a recorded load: the same [`decide`] as in a cluster, with pods that take a while to be
//! ready and metrics that are sometimes not there.
//!
//! The load of a trace is the whole of it; the ready pods share it evenly. A metric of the pods shows each its share, a
//! metric from elsewhere with a target for each pod shows the whole, one that is compared as it is shows one pod's share,
//! one in percent is a share of one pod's request. So each of them is above its target when the load is more than that
//! many ready pods carry at their target.

mod pods;
mod rule;
mod trace;

use std::collections::BTreeMap;
use std::ops::Range;

use jiff::{Timestamp, ToSpan as _};
use neonvm_api::pod_autoscaler::{MetricSourceType, ScalingStrategy, TargetType};
use serde::Serialize;

use neonvm_core_pod_autoscaler::{
    Decision, Finite, Limit, Measure, Memory, MetricSettings, Missing, MissingReason, Observation, Observed,
    PodSample, Reason, Settings, decide,
};

use pods::Pods;
pub use rule::{Broken, Rule};
pub use trace::{MOST_POINTS, MOST_SECONDS, Point, Trace, TraceError};

/// Most pods of a workload that is replayed.
pub const MOST_PODS: i32 = 10_000;
/// Most decisions of a run.
pub const MOST_DECISIONS: i64 = 1_000_000;
/// A change that takes back the one before within so many seconds is a flap.
pub const FLAP: u32 = 300;
/// Broken rules that are kept, each with its message; all are counted.
const MOST_BROKEN: usize = 100;
/// The last places of a sum decide nothing.
const NOISE: f64 = 1e-9;

/// The world around the load.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Time of day at second 0, for schedules.
    pub start: Timestamp,
    /// Replicas at the start, all ready; from 0 to [`MOST_PODS`].
    pub replicas: i32,
    /// Seconds until a new pod is ready.
    pub startup: u32,
    /// Seconds in which no metric can be read.
    pub outages: Vec<Range<u32>>,
}

/// Why nothing can be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the trace has {trace} loads a line, the object has {object} metrics; they must be as many")]
    Loads { trace: usize, object: usize },
    #[error("{0} replicas are more than the {MOST_PODS} that are replayed")]
    Pods(i32),
    #[error(
        "the trace asks for {0} decisions, more than {MOST_DECISIONS}; a longer syncPeriodSeconds makes them fewer"
    )]
    Decisions(i64),
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Seconds since the start.
    pub second: u32,
    /// The loads as they are, whether they could be read or not.
    pub loads: Vec<Option<Finite>>,
    pub replicas: i32,
    pub ready: i32,
    /// Replicas that should be there, before they are written or not.
    pub wanted: i32,
    /// Replicas that are ordered from now on.
    pub desired: i32,
    pub reason: Reason,
    /// Why it differs from what the metrics require.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    pub panicking: bool,
    /// Metrics that could not be read.
    pub missing: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub seconds: u32,
    pub decisions: u64,
    /// Pods that were ordered, times seconds: what it costs.
    pub pod_seconds: u64,
    /// Seconds in which some load was more than the ready pods carry at their target: what it spoils.
    pub above_target_seconds: u64,
    /// Decisions with a metric that could not be read.
    pub blind_decisions: u64,
    pub changes: u64,
    /// Changes that took back the one before within [`FLAP`] seconds.
    pub flaps: u64,
    /// Most replicas.
    pub most: i32,
    pub fewest: i32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    pub rows: Vec<Row>,
    pub summary: Summary,
    /// How often each rule was checked.
    pub checked: BTreeMap<Rule, u64>,
    /// Rules that were broken; the first hundred times.
    pub broken: Vec<Broken>,
}

/// Replays a trace from its second 0 to its last point.
pub fn replay(settings: &Settings, trace: &Trace, plan: &Plan) -> Result<Outcome, Error> {
    let (loads, metrics) = (trace.width(), settings.metrics.len());
    if loads != metrics {
        return Err(Error::Loads { trace: loads, object: metrics });
    }
    let decisions = i64::from(trace.seconds()) / settings.sync_period.max(1);
    if decisions > MOST_DECISIONS {
        return Err(Error::Decisions(decisions));
    }
    let mut run = Run {
        settings,
        memory: Memory::default(),
        pods: Pods::new(sound(plan.replicas)?),
        last: None,
        outcome: Outcome {
            rows: Vec::new(),
            summary: Summary {
                seconds: trace.seconds(),
                most: plan.replicas,
                fewest: plan.replicas,
                ..Summary::default()
            },
            checked: BTreeMap::new(),
            broken: Vec::new(),
        },
    };
    let mut due = plan.start;
    let mut points = trace.points().iter().peekable();
    let mut loads: &[Option<Finite>] = &[];
    for second in 0..trace.seconds() {
        while let Some(point) = points.next_if(|point| point.second <= second) {
            loads = &point.loads;
        }
        let now = plan.start.checked_add(i64::from(second).seconds()).unwrap_or(Timestamp::MAX);
        run.pods.ripen(second);
        if now >= due {
            let readable = !plan.outages.iter().any(|outage| outage.contains(&second));
            due = run.turn(second, now, loads, readable, plan.startup)?;
        }
        run.pass(loads);
    }
    Ok(run.outcome)
}

fn sound(replicas: i32) -> Result<i32, Error> {
    if (0..=MOST_PODS).contains(&replicas) { Ok(replicas) } else { Err(Error::Pods(replicas)) }
}

struct Run<'a> {
    settings: &'a Settings,
    memory: Memory,
    pods: Pods,
    /// When replicas were changed last, and whether there were more of them.
    last: Option<(u32, bool)>,
    outcome: Outcome,
}

impl Run<'_> {
    /// One decision; answers when the next is due.
    fn turn(
        &mut self,
        second: u32,
        now: Timestamp,
        loads: &[Option<Finite>],
        readable: bool,
        startup: u32,
    ) -> Result<Timestamp, Error> {
        let none = std::iter::repeat(&None);
        let metrics = self.settings.metrics.iter().zip(loads.iter().chain(none));
        let metrics = metrics.map(|(metric, load)| observed(metric, load.filter(|_| readable), &self.pods));
        let observation = Observation {
            current: self.pods.ordered(),
            ready: Some(self.pods.ready()),
            metrics: metrics.collect(),
        };
        let decision = decide(self.settings, &mut self.memory, &observation, now);
        // What is written for Kubernetes' own controller is what it is reckoned to do.
        let by_wrapper =
            self.settings.strategy == ScalingStrategy::Hpa && !decision.paused && !decision.recommend;
        let desired = sound(if by_wrapper { decision.recommendation } else { decision.desired })?;
        self.check(second, &decision, desired);
        self.note(second, loads, &decision, desired);
        self.pods.order(desired, second.saturating_add(startup));
        Ok(decision.next)
    }

    fn check(&mut self, second: u32, decision: &Decision, desired: i32) {
        for rule in Rule::ALL {
            let Some(verdict) = rule.check(self.settings, decision, desired) else { continue };
            *self.outcome.checked.entry(*rule).or_default() += 1;
            if let Err(message) = verdict
                && self.outcome.broken.len() < MOST_BROKEN
            {
                self.outcome.broken.push(Broken { rule: *rule, second, message });
            }
        }
    }

    fn note(&mut self, second: u32, loads: &[Option<Finite>], decision: &Decision, desired: i32) {
        let (replicas, missing) = (decision.fleet.current, decision.missing().count());
        let summary = &mut self.outcome.summary;
        summary.decisions += 1;
        summary.blind_decisions += u64::from(missing > 0);
        summary.most = summary.most.max(desired);
        summary.fewest = summary.fewest.min(desired);
        if desired != replicas {
            let up = desired > replicas;
            summary.changes += 1;
            let takes_back = |(at, other): (u32, bool)| other != up && second - at <= FLAP;
            summary.flaps += u64::from(self.last.is_some_and(takes_back));
            self.last = Some((second, up));
        }
        self.outcome.rows.push(Row {
            second,
            loads: loads.to_vec(),
            replicas,
            ready: decision.fleet.ready,
            wanted: decision.recommendation,
            desired,
            reason: decision.reason,
            limit: decision.limit,
            panicking: rule::panicking(decision),
            missing,
        });
    }

    /// A second goes by.
    fn pass(&mut self, loads: &[Option<Finite>]) {
        let ready = f64::from(self.pods.ready());
        let above = |(metric, load): (&MetricSettings, &Option<Finite>)| {
            load.is_some_and(|load| load.get() > ready * metric.target.get() * (1.0 + NOISE))
        };
        let above = self.settings.metrics.iter().zip(loads).any(above);
        let summary = &mut self.outcome.summary;
        summary.above_target_seconds += u64::from(above);
        summary.pod_seconds += u64::from(self.pods.ordered().unsigned_abs());
    }
}

/// What a metric shows of a load that the ready pods share.
fn observed(metric: &MetricSettings, load: Option<Finite>, pods: &Pods) -> Observed {
    let Some(load) = load else {
        return Observed::Missing(Missing::new(MissingReason::Unreachable, "there is an outage"));
    };
    let share = load.get() / f64::from(pods.ready().max(1));
    match (metric.kind, metric.target_type) {
        (MetricSourceType::External | MetricSourceType::Domain, TargetType::AverageValue) => {
            Observed::total(load.get())
        }
        (MetricSourceType::External | MetricSourceType::Domain, _) => Observed::total(share),
        (_, target_type) => {
            let request = (target_type == TargetType::Utilization).then(|| Finite::saturating(100.0));
            let sample = |number: i32| {
                let ready = number < pods.ready();
                let measure = if ready {
                    Ok(Measure::Value(Finite::saturating(share)))
                } else {
                    Err(Missing::new(MissingReason::NotRead, "is not ready"))
                };
                PodSample { uid: format!("pod-{number}"), name: String::new(), ready, measure, request }
            };
            Observed::Pods((0..pods.ordered()).map(sample).collect())
        }
    }
}
