//! The status of an object: written whole, once per reconcile, and only if it has changed.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use neonvm_api::PodAutoscaler;
use neonvm_core_pod_autoscaler::status::{Pass, after, differs};
use neonvm_kit::queue::Outcome;
use serde_json::{Map, Value, json};

use crate::context::{AutoscalerState, Context};
use crate::request::{Failed, within};

/// Readings alone are not written more often than this.
const READINGS: Duration = Duration::from_secs(15);

/// Writes it; `written` is when that was done last.
pub(crate) async fn write(
    context: &Context,
    object: &PodAutoscaler,
    pass: &Pass<'_>,
    written: &mut Option<Instant>,
) -> Result<(), Failed> {
    // The newest in the cache: the reconcile may have begun with an older one.
    let key = crate::cache::key_of(object);
    let newest = context.cache.object(&key).filter(|newest| newest.metadata.uid == object.metadata.uid);
    let newest = newest.as_deref().unwrap_or(object);
    let old = newest.status.clone().unwrap_or_default();
    let new = after(&old, pass, object.metadata.generation, Timestamp::now());
    let is_due = written.is_none_or(|at| at.elapsed() >= READINGS);
    if newest.status.is_some() && (new == old || (!is_due && !differs(&old, &new))) {
        return Ok(());
    }
    let unreadable = |error: serde_json::Error| Failed::new("Status", error.to_string());
    let change = difference(
        &serde_json::to_value(&old).map_err(unreadable)?,
        &serde_json::to_value(&new).map_err(unreadable)?,
    );
    context.telemetry.wrote();
    let api: Api<PodAutoscaler> = Api::namespaced(context.client.clone(), &key.0);
    let patch = Patch::Merge(json!({"status": change}));
    let (name, how) = (object.name_any(), PatchParams::default());
    let answer = within("status", api.patch_status(&name, &how, &patch)).await?;
    *written = Some(Instant::now());
    // The watch will bring it; until then the next reconcile must not start from an older one.
    context.cache.put_status(&key, &answer);
    Ok(())
}

/// A merge patch (RFC 7386) for the fields that differ at the top; those that are gone become null.
fn difference(old: &Value, new: &Value) -> Value {
    let none = Map::new();
    let (old, new) = (old.as_object().unwrap_or(&none), new.as_object().unwrap_or(&none));
    let mut change = Map::new();
    for (key, value) in new {
        if old.get(key) != Some(value) {
            // An object is merged with what is there, so what it no longer has must be named, too.
            let value = match (old.get(key), value) {
                (Some(before @ Value::Object(_)), Value::Object(_)) => difference(before, value),
                _ => value.clone(),
            };
            change.insert(key.clone(), value);
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        change.insert(key.clone(), Value::Null);
    }
    Value::Object(change)
}

/// Writes the status, if it is another one.
pub(crate) async fn finish(
    context: &Context,
    object: &PodAutoscaler,
    pass: &Pass<'_>,
    kept: &mut AutoscalerState,
    outcome: Outcome,
) -> Outcome {
    match write(context, object, pass, &mut kept.written).await {
        Ok(()) => outcome,
        Err(failed) if failed.is_missing => outcome,
        Err(failed) => {
            tracing::info!(name = ?object.metadata.name, message = failed.message, "the status cannot be written");
            Outcome::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_written() {
        let old = json!({"a": 1, "b": {"x": 1, "y": 2}, "c": [1], "gone": true});
        let new = json!({"a": 1, "b": {"x": 1, "z": 3}, "c": [1, 2]});
        assert_eq!(difference(&old, &new), json!({"b": {"y": null, "z": 3}, "c": [1, 2], "gone": null}));
        assert_eq!(difference(&new, &new), json!({}));
    }
}
