//! A decision in words and numbers, for the status and for people: metric → window → recommendation → constraint →
//! result.

use neonvm_api::pod_autoscaler::{ExplanationStep, ForecastStatus, TargetType};

use crate::{
    decide::{Decision, Limit, MetricTrace, Reason, Stage},
    number::render,
    settings::Settings,
};

/// The reason in one sentence.
#[must_use]
pub const fn reason_text(reason: Reason) -> &'static str {
    match reason {
        Reason::AboveTarget => "a metric is above its target",
        Reason::AllBelowTarget => "all metrics are below their targets",
        Reason::PanicAboveTarget => "the load of the panic window asks for more",
        Reason::ForecastAboveTarget => "the load is expected to rise above the target",
        Reason::AboveMaximum => "there are more replicas than the upper bound",
        Reason::BelowMinimum => "there are fewer replicas than the lower bound",
        Reason::Stable => "nothing is to be changed",
        Reason::DisabledAtZero => "it was set to zero by hand; set replicas above 0 to scale it again",
        Reason::MetricsMissing => "no metric could be read",
    }
}

#[must_use]
pub const fn limit_text(limit: Limit) -> &'static str {
    match limit {
        Limit::TooManyReplicas => "held at the upper bound",
        Limit::TooFewReplicas => "held at the lower bound",
        Limit::ScaleUpRate => "held back by the largest step up",
        Limit::ScaleDownRate => "held back by the largest step down",
        Limit::ScaleUpStabilized => "held back by lower recommendations of the last while",
        Limit::ScaleDownStabilized => "held up by higher recommendations of the last while",
        Limit::ActivationScale => "held up by the fewest replicas while there is any load",
        Limit::MetricMissing => "nothing is taken away while a metric is missing",
        Limit::Panic => "nothing is taken away in panic",
        Limit::WarmingUp => "nothing is taken away until the stable window is filled",
        Limit::NotIdle => {
            "the last replica stays until all metrics were zero for the stable window, and zero is allowed"
        }
    }
}

const fn target_text(kind: TargetType) -> &'static str {
    match kind {
        TargetType::AverageValue => "for each pod",
        TargetType::Value => "as it is",
        TargetType::Utilization => "percent of the request",
    }
}

fn metric(trace: &MetricTrace, settings: &Settings, decision: &Decision) -> ExplanationStep {
    let step = |replicas: i32, message: String| ExplanationStep {
        step: "Metric".to_owned(),
        metric: trace.name.clone(),
        replicas,
        message,
    };
    let reading = match &trace.reading {
        Err(missing) => return step(decision.fleet.current, format!("no value: {missing}")),
        Ok(reading) => reading,
    };
    let value = reading.utilization.unwrap_or(reading.value).get();
    let mut text = format!("value {}", render(value));
    if let Some(pods) = reading.pods {
        text += &format!(" of {}/{} pods", pods.sampled, pods.ready);
    }
    text += &format!(", target {} {}", render(trace.target.get()), target_text(trace.target_type));
    if let Some(load) = trace.load {
        text += &format!("; whole load {}", render(load.get()));
    }
    if let Some(stable) = trace.stable {
        text += &format!(", over {} s {}", settings.stable_window, render(stable.get()));
    }
    if let Some(panic) = trace.panic {
        text += &format!(", over {} s {}", settings.panic_window, render(panic.get()));
    }
    if let Some(answer) = trace.answer {
        text += &format!("; asks for {} (stable), {} (panic)", answer.stable, answer.panic);
        if answer.panicking {
            text += ", in panic";
        }
    } else if let Some(wanted) = trace.wanted {
        text += &format!("; asks for {wanted}");
    }
    if let Some((trend, replicas)) = trace.forecast {
        text += &format!("; expected load {} asks for {replicas}", render(trend.ahead.get()));
    }
    if let Some(limit) = trace.limit {
        text += &format!("; {}", limit_text(limit));
    }
    step(trace.replicas.unwrap_or(decision.fleet.current), text)
}

/// All steps on the way to a decision.
#[must_use]
pub fn explain(decision: &Decision, settings: &Settings) -> Vec<ExplanationStep> {
    let step = |name: &str, replicas: i32, message: String| ExplanationStep {
        step: name.to_owned(),
        metric: String::new(),
        replicas,
        message,
    };
    let bounds = &decision.bounds;
    let from = bounds.schedule.as_ref().map_or_else(String::new, |name| format!(" by schedule {name}"));
    let fleet = decision.fleet;
    let start = format!(
        "{} ordered, {} ready; bounds {} to {}{from}; one step goes from {} to {}",
        fleet.current, fleet.ready, bounds.min, bounds.max, decision.floor, decision.ceiling,
    );
    let mut all = vec![step("Observed", fleet.current, start)];
    all.extend(decision.metrics.iter().map(|trace| metric(trace, settings, decision)));
    let (up, down) = settings.cooldowns();
    for done in &decision.steps {
        let (name, text) = match done.stage {
            Stage::Largest => ("Largest", "the metric that asks for most counts".to_owned()),
            Stage::Zero => ("Zero", "all metrics were zero for the stable window".to_owned()),
            Stage::Stabilization => {
                ("Stabilization", format!("up over {} s, down over {} s", up.as_secs(), down.as_secs()))
            }
            Stage::Bounds => ("Bounds", format!("{} to {}{from}", bounds.min, bounds.max)),
            Stage::Mode => ("Result", result(decision)),
        };
        let text = done.limit.map_or(text.clone(), |limit| format!("{text}; {}", limit_text(limit)));
        all.push(step(name, done.replicas, text));
    }
    all
}

fn result(decision: &Decision) -> String {
    let because = reason_text(decision.reason);
    if decision.paused {
        format!("paused; the recommendation is {}: {because}", decision.recommendation)
    } else if decision.recommend {
        format!("not applied in mode Recommend; the recommendation is {}: {because}", decision.recommendation)
    } else {
        because.to_owned()
    }
}

/// What is expected, as the status shows it; `None` without a forecast in the spec.
#[must_use]
pub fn forecast(decision: &Decision, settings: &Settings) -> Option<ForecastStatus> {
    let horizon_seconds = settings.forecast?;
    let strongest = decision.metrics.iter().filter_map(|metric| Some((metric, metric.forecast?)));
    let strongest = strongest.max_by_key(|(_, (_, replicas))| *replicas);
    let Some((metric, (trend, replicas))) = strongest else {
        let message =
            format!("the window is too short for a trend; it needs half of {} s", settings.stable_window);
        return Some(ForecastStatus { horizon_seconds, desired_replicas: None, message });
    };
    let message = format!(
        "load of {} is {} and changes by {} each minute; in {horizon_seconds} s it is {}",
        metric.name,
        render(trend.level.get()),
        render(trend.slope.get() * 60.0),
        render(trend.ahead.get()),
    );
    Some(ForecastStatus { horizon_seconds, desired_replicas: Some(replicas), message })
}
