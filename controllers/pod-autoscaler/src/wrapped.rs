//! Strategy HPA: a `HorizontalPodAutoscaler` does the work. Server-side apply keeps it as the object requests, its status
//! becomes that of the object, and it is deleted when the strategy changes.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use neonvm_api::PodAutoscaler;
use neonvm_core_pod_autoscaler::status::{Pass, failure};
use neonvm_core_pod_autoscaler::{Settings, hpa_object};
use neonvm_kit::queue::Outcome;
use serde_json::Value;

use crate::context::{AutoscalerState, Context};
use crate::request::{Failed, within};
use crate::status::finish;

/// Field manager of server-side apply.
pub(crate) const MANAGER: &str = "neonvm-pod-autoscaler";

fn api(context: &Context, object: &PodAutoscaler) -> Api<HorizontalPodAutoscaler> {
    Api::namespaced(context.client.clone(), &object.namespace().unwrap_or_default())
}

fn is_ours(hpa: &HorizontalPodAutoscaler, object: &PodAutoscaler) -> bool {
    hpa.owner_references().iter().any(|owner| Some(&owner.uid) == object.metadata.uid.as_ref())
}

pub(crate) async fn pass(
    context: &Context,
    object: &PodAutoscaler,
    settings: &Settings,
    kept: &mut AutoscalerState,
) -> Result<Outcome, Failed> {
    let now = Timestamp::now();
    let refused = |faults: Vec<neonvm_api::FieldError>| {
        let text: Vec<String> = faults.iter().map(ToString::to_string).collect();
        Failed::new(failure::UPDATE_HPA, text.join("; "))
    };
    let wanted = hpa_object::build(object, now).map_err(refused)?;
    let (api, name) = (api(context, object), wanted.name_any());
    let what = format!("HorizontalPodAutoscaler {name}");
    let named = |failed: Failed| Failed { reason: failure::UPDATE_HPA, ..failed };
    let have = within(&what, api.get_opt(&name)).await.map_err(named)?;
    if let Some(have) = have.as_ref().filter(|have| !is_ours(have, object)) {
        let text =
            format!("{what} belongs to another owner; rename this object or delete {}", have.name_any());
        return Err(Failed::new(failure::UPDATE_HPA, text));
    }
    let text = serde_json::to_value(&wanted).unwrap_or_default();
    let stands = have.as_ref().and_then(|have| serde_json::to_value(have).ok());
    let is_current =
        kept.applied.as_ref() == Some(&text) && stands.is_some_and(|have| contains(&have, &text));
    if !is_current {
        let how = PatchParams::apply(MANAGER).force();
        within(&what, api.patch(&name, &how, &Patch::Apply(&wanted))).await.map_err(named)?;
        kept.applied = Some(text);
        context.telemetry.wrote();
    }
    let bounds = settings.bounds(now);
    let passive = settings.paused || settings.recommend;
    // Changes of either object wake us; what is left are the times of day at which bounds change.
    let next = settings
        .schedules
        .next_transition(now)
        .map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
    let pass = Pass::Wrapped { hpa: have.as_ref(), settings, bounds: &bounds, passive };
    Ok(finish(context, object, &pass, kept, Outcome::Done(next)).await)
}

/// Whether all that is wanted is there; what the server or others have added does not matter.
fn contains(have: &Value, wanted: &Value) -> bool {
    match (have, wanted) {
        (Value::Object(have), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| have.get(key).is_some_and(|have| contains(have, wanted)))
        }
        (Value::Array(have), Value::Array(wanted)) => {
            have.len() == wanted.len() && have.iter().zip(wanted).all(|(have, wanted)| contains(have, wanted))
        }
        _ => have == wanted,
    }
}

/// Removes the one of an object, if it has one.
pub(crate) async fn remove(context: &Context, object: &PodAutoscaler) -> Result<(), Failed> {
    let uid = object.metadata.uid.clone().unwrap_or_default();
    let key = (object.namespace().unwrap_or_default(), hpa_object::name(&object.name_any()));
    if !context.cache.has_wrapper(&key, &uid) {
        return Ok(());
    }
    let what = format!("HorizontalPodAutoscaler {}", key.1);
    let api = api(context, object);
    let Some(have) = within(&what, api.get_opt(&key.1)).await? else { return Ok(()) };
    if !is_ours(&have, object) {
        return Ok(());
    }
    let only = Preconditions { uid: have.metadata.uid.clone(), resource_version: None };
    let how = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
    match within(&what, api.delete(&key.1, &how)).await {
        Err(failed) if !failed.is_missing => Err(Failed { reason: failure::UPDATE_HPA, ..failed }),
        _ => Ok(()),
    }
}
