//! The contribution of one metric: from a reading to a load, from loads to replicas.

use jiff::Timestamp;
use neonvm_api::pod_autoscaler::{ScalingStrategy, TargetType};

use super::{Limit, MetricTrace};
use crate::{
    apa, forecast, hpa,
    memory::MetricMemory,
    number::{Finite, count},
    sample::{Measure, Observed, Reading},
    settings::{MetricSettings, Settings},
    want::{Fleet, Load},
};

/// The whole load that a reading stands for, in units of the target. Of what is not a share for each pod (a latency, a
/// percentage), it is the value times the pods that made it.
fn whole(metric: &MetricSettings, reading: &Reading, fleet: Fleet) -> Finite {
    let ready = reading.pods.map_or(fleet.ready, |pods| pods.ready);
    let made_by = f64::from(ready.max(1));
    let value = match metric.target_type {
        TargetType::Utilization => reading.utilization.unwrap_or_default().get() * made_by,
        TargetType::AverageValue if reading.pods.is_none() => reading.value.get(),
        TargetType::AverageValue | TargetType::Value => reading.value.get() * made_by,
    };
    Finite::saturating(value)
}

pub(super) fn judge(
    settings: &Settings,
    metric: &MetricSettings,
    memory: &mut MetricMemory,
    observed: &Observed,
    fleet: Fleet,
    now: Timestamp,
) -> MetricTrace {
    let utilization = metric.target_type == TargetType::Utilization;
    let reading = Reading::from_observed(observed, metric.aggregation, metric.statistic, utilization);
    let mut trace = MetricTrace {
        name: metric.name.clone(),
        kind: metric.kind,
        target: metric.target,
        target_type: metric.target_type,
        reading,
        without_value: observed.without_value().into_iter().take(super::MOST_MISSING).collect(),
        load: None,
        stable: None,
        panic: None,
        answer: None,
        forecast: None,
        wanted: None,
        replicas: None,
        limit: None,
        idle: false,
    };
    let Ok(reading) = &trace.reading else { return trace };
    let (reading, second) = (*reading, now.as_second());
    let load = whole(metric, &reading, fleet);
    memory.window.record(second, load, settings.keep());
    let since = *memory.since.get_or_insert(now);
    let stable = memory.window.average(second, settings.stable_window, settings.tuning.averaging);
    let stable = stable.unwrap_or(load);
    (trace.load, trace.stable) = (Some(load), Some(stable));
    let settled = settled(settings, memory, now, since);
    trace.idle = stable.get() <= 0.0 && settled;
    let partial = |load: Finite, trusting: bool| {
        let ready = reading.pods.map_or(fleet.ready, |pods| pods.ready);
        Load::partial(load, metric.target, ready, reading.coverage(), trusting)
    };
    let (wanted, replicas) = match settings.strategy {
        ScalingStrategy::Apa => {
            let load = partial(stable, false);
            let wanted = load.wanted(fleet, settings.tolerance());
            let replicas = apa::replicas(&load, fleet, settings.tolerance(), settings.rates());
            let least = if load.up > Finite::ZERO { settings.tuning.activation_scale } else { 0 };
            (wanted, replicas.max(least))
        }
        ScalingStrategy::Hpa => through_hpa(settings, metric, observed, &partial(load, false), fleet),
        ScalingStrategy::Kpa => {
            let surge = memory.window.average(second, settings.panic_window, settings.tuning.averaging);
            let surge = surge.unwrap_or(load);
            let rules = settings.panic_rules();
            let answer = memory.panic.step(&partial(stable, true), &partial(surge, true), fleet, &rules, now);
            trace.panic = Some(surge);
            trace.answer = Some(answer);
            let wanted = if answer.panicking { answer.stable.max(answer.panic) } else { answer.stable };
            (wanted, answer.replicas)
        }
    };
    trace.wanted = Some(wanted);
    trace.limit = limit(&trace, wanted, replicas, settings.rates().floor(fleet));
    let mut replicas = replicas.max(ahead(settings, memory, &mut trace, fleet, second).unwrap_or(0));
    if replicas < fleet.current && !settled && settings.strategy != ScalingStrategy::Hpa {
        trace.limit = Some(Limit::WarmingUp);
        replicas = fleet.current;
    }
    trace.replicas = Some(replicas);
    trace
}

/// Whether the stable window is reliable when it requires less: the metric was watched for all of it, and read for at
/// least half of it. After a start or an outage, a few values do not represent the load.
fn settled(settings: &Settings, memory: &MetricMemory, now: Timestamp, since: Timestamp) -> bool {
    let values = count(memory.window.values(now.as_second(), settings.stable_window).count());
    let covered = i64::from(values).saturating_mul(settings.sync_period).saturating_mul(2);
    now.duration_since(since).as_secs() >= settings.stable_window && covered >= settings.stable_window
}

fn limit(trace: &MetricTrace, wanted: i32, replicas: i32, floor: i32) -> Option<Limit> {
    match replicas.cmp(&wanted) {
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Less => Some(Limit::ScaleUpRate),
        std::cmp::Ordering::Greater if trace.answer.is_some_and(|answer| answer.panicking) => {
            Some(Limit::Panic)
        }
        std::cmp::Ordering::Greater if replicas == floor => Some(Limit::ScaleDownRate),
        std::cmp::Ordering::Greater => Some(Limit::ActivationScale),
    }
}

/// The replicas that the trend requires, if it rises.
fn ahead(
    settings: &Settings,
    memory: &MetricMemory,
    trace: &mut MetricTrace,
    fleet: Fleet,
    second: i64,
) -> Option<i32> {
    let horizon = settings.forecast?;
    let values: Vec<(i64, Finite)> = memory.window.values(second, settings.stable_window).collect();
    let trend = forecast::trend(&values, second, settings.stable_window, horizon)?;
    let rising = trend.slope > Finite::ZERO;
    let load = Load::known(trend.ahead, trace.target);
    let wanted = load.wanted(fleet, settings.tolerance()).min(settings.rates().ceiling(fleet));
    trace.forecast = Some((trend, wanted));
    rising.then_some(wanted)
}

/// The result of Kubernetes' own controller; it applies its rates over time, which is simplified to one step here.
fn through_hpa(
    settings: &Settings,
    metric: &MetricSettings,
    observed: &Observed,
    load: &Load,
    fleet: Fleet,
) -> (i32, i32) {
    let tolerance = settings.tolerance();
    let by_pods = match observed {
        Observed::Pods(pods) if metric.target_type == TargetType::AverageValue => {
            let value = |measure: &Measure| match measure {
                Measure::Value(value) => Some(*value),
                Measure::Histogram(_) => None,
            };
            let ready = || pods.iter().filter(|pod| pod.ready);
            let values: Vec<Finite> =
                ready().filter_map(|pod| pod.measure.as_ref().ok().and_then(value)).collect();
            let missing = count(ready().count()).saturating_sub(count(values.len()));
            let unready = count(pods.len()).max(fleet.current).saturating_sub(count(ready().count()));
            let pods = hpa::Pods { current: fleet.current, values: &values, unready, missing };
            hpa::replicas(&pods, metric.target, tolerance)
        }
        Observed::Pods(_) | Observed::Whole(_) | Observed::Missing(_) => None,
    };
    let wanted = by_pods.unwrap_or_else(|| load.wanted(fleet, tolerance));
    (wanted, wanted.max(settings.rates().floor(fleet)).min(settings.rates().ceiling(fleet)))
}
