//! Reconcile of an autoscaler.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::core::Selector;
use kube::{Client, Error, Resource as _};
use neonvm_api::PodAutoscaler;
use neonvm_api::pod_autoscaler::ScalingStrategy;
use neonvm_core_pod_autoscaler::status::{Applied, Pass, failure};
use neonvm_core_pod_autoscaler::{Decision, Memory, Observation, Settings, decide};
use neonvm_kit::event::Events;
use neonvm_kit::queue::{Outcome, Queue};

use crate::cache::{Cache, Key};
use crate::observe::{Before, Observer};
use crate::pods::Pods;
use crate::target::Targets;
use crate::telemetry::Telemetry;
use crate::{status, wrapped};

/// Time for one request to the API server.
pub(crate) const REQUEST: Duration = Duration::from_secs(10);

/// Something did not work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failed {
    /// One of [`failure`].
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// There is no such thing.
    pub(crate) is_missing: bool,
    /// Another writer was faster.
    pub(crate) is_conflict: bool,
    /// The request is invalid there.
    pub(crate) is_invalid: bool,
}

impl Failed {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), ..Self::default() }
    }
}

/// A request with a deadline; `what` begins the message if it fails.
pub(crate) async fn within<T>(
    what: &str,
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, Failed> {
    match tokio::time::timeout(REQUEST, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(Error::Api(status))) => Err(Failed {
            is_missing: status.code == 404,
            is_conflict: status.code == 409,
            is_invalid: status.code == 422,
            ..Failed::new(failure::GET_SCALE, format!("{what}: {}", status.message))
        }),
        Ok(Err(error)) => Err(Failed::new(failure::GET_SCALE, format!("{what}: {error}"))),
        Err(_) => {
            let text = format!("{what}: the API server did not answer within {} s", REQUEST.as_secs());
            Err(Failed::new(failure::GET_SCALE, text))
        }
    }
}

/// State of one autoscaler that is kept between reconciles.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    uid: String,
    memory: Memory,
    before: Before,
    /// The last failure that was reported, so that each is reported once.
    reported: String,
    /// The `HorizontalPodAutoscaler` that was applied last.
    pub(crate) applied: Option<serde_json::Value>,
    /// When the status was written last.
    pub(crate) written: Option<Instant>,
}

/// State that all reconciles share.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) queue: Queue<Key>,
    pub(crate) cache: Cache,
    pub(crate) pods: Pods,
    pub(crate) targets: Targets,
    pub(crate) observer: Arc<Observer>,
    pub(crate) events: Events,
    pub(crate) telemetry: Arc<Telemetry>,
    kept: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<Kept>>>>,
    begun: (Instant, Timestamp),
}

impl Context {
    pub(crate) fn new(
        client: Client,
        observer: Arc<Observer>,
        events: Events,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        Self {
            targets: Targets::new(client.clone()),
            client,
            queue: Queue::new(),
            cache: Cache::default(),
            pods: Pods::default(),
            observer,
            events,
            telemetry,
            kept: Mutex::default(),
            begun: (Instant::now(), Timestamp::now()),
        }
    }

    /// Time of day for people and schedules.
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn kept(&self, key: &Key) -> Arc<tokio::sync::Mutex<Kept>> {
        let mut all = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(key.clone()).or_default())
    }

    fn forget(&self, key: &Key) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        self.telemetry.forget(key);
    }

    /// Time until the next reconcile: the decision's, shifted so that objects with the same period do not all come at
    /// once.
    fn pause(&self, key: &Key, decision: &Decision, settings: &Settings) -> Duration {
        let until = decision.next.duration_since(self.now());
        let until = Duration::try_from(until).unwrap_or_default().max(Duration::from_millis(10));
        let period = Duration::from_secs(settings.sync_period.unsigned_abs().max(1));
        if until < period.mul_f64(0.9) {
            // Other bounds come into force then.
            return until;
        }
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let phase =
            period.mul_f64(f64::from(u16::try_from(hasher.finish() >> 48).unwrap_or_default()) / 65536.0);
        spread(self.begun.0.elapsed(), period, phase)
    }
}

/// From `now` to the next time that is `phase` after a multiple of the period, but not sooner than half a period.
fn spread(now: Duration, period: Duration, phase: Duration) -> Duration {
    let period_ns = period.as_nanos().max(1);
    let earliest = now + period / 2;
    let past = (earliest.as_nanos() + period_ns - phase.as_nanos() % period_ns) % period_ns;
    let wait = (period_ns - past) % period_ns;
    period / 2 + Duration::from_nanos(u64::try_from(wait).unwrap_or_default())
}

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
        *kept = Kept { uid, ..Kept::default() };
    }
    let outcome = one(context, key, &object, &mut kept).await;
    context.telemetry.turn(begun.elapsed());
    outcome
}

async fn one(context: &Context, key: &Key, object: &PodAutoscaler, kept: &mut Kept) -> Outcome {
    let settings = match Settings::of(object) {
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
fn report(context: &Context, object: &PodAutoscaler, kept: &mut Kept, failed: &Failed) {
    let text = format!("{}: {}", failed.reason, failed.message);
    if kept.reported != text {
        tracing::info!(name = ?object.metadata.name, namespace = ?object.metadata.namespace, text, "cannot scale");
        context.events.publish(object.object_ref(&()), "Warning", failed.reason, &failed.message);
        kept.reported = text;
    }
}

/// Writes the status, if it is another one.
pub(crate) async fn finish(
    context: &Context,
    object: &PodAutoscaler,
    pass: &Pass<'_>,
    kept: &mut Kept,
    outcome: Outcome,
) -> Outcome {
    match status::write(context, object, pass, &mut kept.written).await {
        Ok(()) => outcome,
        Err(failed) if failed.is_missing => outcome,
        Err(failed) => {
            tracing::info!(name = ?object.metadata.name, message = failed.message, "the status cannot be written");
            Outcome::Failed
        }
    }
}

async fn scale(
    context: &Context,
    key: &Key,
    object: &PodAutoscaler,
    settings: &Settings,
    kept: &mut Kept,
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
    kept: &mut Kept,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_spread_over_the_period() {
        let (period, second) = (Duration::from_secs(10), Duration::from_secs(1));
        for phase in 0..10_u32 {
            let mut now = Duration::from_millis(1234);
            for _ in 0..5 {
                let wait = spread(now, period, second * phase);
                assert!(wait >= period / 2 && wait < period + period / 2, "{wait:?}");
                now += wait;
                assert_eq!(now.as_nanos() % period.as_nanos(), (second * phase).as_nanos());
            }
        }
    }
}
