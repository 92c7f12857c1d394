//! Reconcile of an autoscaler.

use std::time::{Duration, Instant};

use kube::Resource as _;
use kube::core::Selector;
use neonvm_api::PodAutoscaler;
use neonvm_api::pod_autoscaler::ScalingStrategy;
use neonvm_core_pod_autoscaler::status::{Applied, Pass, failure};
use neonvm_core_pod_autoscaler::{Decision, Observation, Settings, decide};
use neonvm_kit::queue::Outcome;

use crate::cache::Key;
use crate::context::{AutoscalerState, Context};
use crate::request::Failed;
use crate::status::finish;
use crate::wrapped;

/// Reconciles an autoscaler; returns when the next reconcile is due.
pub(crate) async fn reconcile(context: &Context, key: &Key) -> Outcome {
    let Some(object) = context.cache.object(key) else {
        context.forget(key);
        return Outcome::Gone;
    };
    if object.metadata.deletion_timestamp.is_some() {
        return Outcome::Done(None);
    }
    let begun = Instant::now();
    let kept = context.kept(key);
    let mut kept = kept.lock().await;
    let uid = object.metadata.uid.clone().unwrap_or_default();
    if kept.uid != uid {
        // Another object of the same name does not inherit the state of the first.
        *kept = AutoscalerState { uid, ..AutoscalerState::default() };
    }
    let outcome = one(context, key, &object, &mut kept).await;
    context.telemetry.turn(begun.elapsed());
    outcome
}

async fn one(context: &Context, key: &Key, object: &PodAutoscaler, kept: &mut AutoscalerState) -> Outcome {
    let settings = match Settings::from_object(object) {
        Ok((settings, _)) => settings,
        Err(faults) => {
            context.telemetry.forget(key);
            return finish(context, object, &Pass::Invalid(&faults), kept, Outcome::Done(None)).await;
        }
    };
    if let Some(message) = context.cache.conflict(key) {
        let removed = wrapped::remove(context, object).await;
        context.telemetry.forget(key);
        let outcome = if removed.is_ok() { Outcome::Done(None) } else { Outcome::Failed };
        return finish(context, object, &Pass::Conflict(&message), kept, outcome).await;
    }
    let done = match settings.strategy {
        ScalingStrategy::Hpa => wrapped::pass(context, object, &settings, kept).await,
        ScalingStrategy::Kpa | ScalingStrategy::Apa => scale(context, key, object, &settings, kept).await,
    };
    match done {
        Ok(outcome) => {
            kept.reported.clear();
            outcome
        }
        Err(failed) => {
            report(context, object, kept, &failed);
            let (reason, message) = (failed.reason, failed.message.as_str());
            let period = Duration::from_secs(settings.sync_period.unsigned_abs());
            // What is missing now may be there at the next reconcile; an earlier retry gains nothing.
            finish(context, object, &Pass::Failed { reason, message }, kept, Outcome::Done(Some(period)))
                .await
        }
    }
}

/// A warning, once.
fn report(context: &Context, object: &PodAutoscaler, kept: &mut AutoscalerState, failed: &Failed) {
    let text = format!("{}: {}", failed.reason, failed.message);
    if kept.reported != text {
        tracing::info!(name = ?object.metadata.name, namespace = ?object.metadata.namespace, text, "cannot scale");
        context.events.publish(object.object_ref(&()), "Warning", failed.reason, &failed.message);
        kept.reported = text;
    }
}

async fn scale(
    context: &Context,
    key: &Key,
    object: &PodAutoscaler,
    settings: &Settings,
    kept: &mut AutoscalerState,
) -> Result<Outcome, Failed> {
    // What an earlier strategy left behind would work against this one.
    wrapped::remove(context, object).await?;
    let workload = context.targets.read(object).await?;
    let pods = context.pods.select(&key.0, &workload.selectors);
    let selectors: Vec<String> = workload.selectors.iter().map(Selector::to_string).collect();
    let metrics = context.observer.observe(object, &pods, selectors, &mut kept.before).await;
    let ready = i32::try_from(pods.iter().filter(|pod| pod.ready).count()).unwrap_or(i32::MAX);
    let observation = Observation { current: workload.replicas, ready: Some(ready), metrics };
    let decision = decide(settings, &mut kept.memory, &observation, context.now());
    context.telemetry.decided(key, settings, &decision);
    let applied = if decision.scales() {
        match context.targets.write(object, &workload, decision.desired).await {
            Ok(()) => Applied::Done,
            Err(failed) => Applied::Failed(failed.message),
        }
    } else {
        Applied::NotNeeded
    };
    announce(context, object, kept, &decision, &applied);
    let pass = Pass::Decided { decision: &decision, settings, applied: &applied };
    let outcome = Outcome::Done(Some(context.pause(key, &decision, settings)));
    Ok(finish(context, object, &pass, kept, outcome).await)
}

fn announce(
    context: &Context,
    object: &PodAutoscaler,
    kept: &mut AutoscalerState,
    decision: &Decision,
    applied: &Applied,
) {
    match applied {
        Applied::Done => {
            let (from, to, why) = (decision.fleet.current, decision.desired, decision.reason);
            let text = format!("from {from} to {to} replicas: {why:?}");
            tracing::info!(name = ?object.metadata.name, namespace = ?object.metadata.namespace, from, to, ?why, "scaled");
            context.events.publish(object.object_ref(&()), "Normal", "SuccessfulRescale", &text);
        }
        Applied::Failed(message) => {
            let failed = Failed::new(failure::RESCALE, message.clone());
            report(context, object, kept, &failed);
        }
        Applied::NotNeeded => {}
    }
}
