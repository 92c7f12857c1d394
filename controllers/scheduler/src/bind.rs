//! Places pods on clusters without another scheduler, and binds them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client};
use neonvm_core_scheduling::Choice;
use neonvm_core_scheduling::permits::PodSeen;
use neonvm_types::NamespacedName;
use serde_json::json;

use crate::claims;
use crate::shared::Shared;

/// First and longest pause after a refusal.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// Bindings that are sent at the same time.
const AT_ONCE: usize = 16;
/// Our name in events.
const COMPONENT: &str = "neonvm-scheduler";

/// Why a pod was not bound.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The API server refused for good: the pod is gone, or another scheduler has bound it.
    #[error("{0}")]
    Refused(String),
    /// Whether the pod is bound is unknown.
    #[error("{0}")]
    Unknown(String),
}

/// The last reason that was reported for each waiting pod, by uid.
type Reported = BTreeMap<String, String>;

/// Places pods until it is dropped.
pub(crate) async fn keep_placing(shared: &Shared) {
    let recorder =
        Recorder::new(shared.client.clone(), Reporter { controller: COMPONENT.into(), instance: None });
    let mut reported = Reported::new();
    let mut pause = PAUSES.0;
    loop {
        if place_all(shared, &recorder, &mut reported).await {
            pause = PAUSES.0;
            shared.place.notified().await;
        } else {
            pause = (pause * 2).min(PAUSES.1);
            // Refused: tried again later, or when something has changed.
            let _ = tokio::time::timeout(pause, shared.place.notified()).await;
        }
    }
}

/// Places the waiting pods. Whether all went well.
async fn place_all(shared: &Shared, recorder: &Recorder, reported: &mut Reported) -> bool {
    let waiting: Vec<PodSeen> = {
        let state = shared.state();
        if !state.is_listed() {
            return true;
        }
        state.waiting().into_iter().cloned().collect()
    };
    let uids: BTreeSet<&str> = waiting.iter().map(|pod| pod.uid.as_str()).collect();
    reported.retain(|uid, _| uids.contains(uid.as_str()));
    let (mut well, mut placing) = (true, FuturesUnordered::new());
    // Nodes are chosen one pod after the other, each with room reserved for those before it; the API server is written to
    // for several at a time.
    for pod in waiting {
        let read = claims::read(&shared.client, &pod, shared.config.request_timeout);
        let pinned = match Box::pin(read).await {
            Ok(pinned) => pinned,
            Err(why) => {
                // Nothing shows when the claim is there: it is tried again after a pause.
                report_once(shared, recorder, reported, &pod, why).await;
                well = false;
                continue;
            }
        };
        let pod = pinned.put(pod);
        let choice = {
            let mut state = shared.state();
            let choice = state.choose(&pod);
            if let Choice::Node(node) = &choice
                && let Err(reason) = state.reserve(shared.now(), pod.clone(), node)
            {
                tracing::debug!(?reason, pod = %pod.pod, "the choice does not stand");
                continue;
            }
            choice
        };
        match choice {
            Choice::Node(node) => {
                placing.push(place(shared, recorder, pod, node));
                if placing.len() >= AT_ONCE {
                    well &= placing.next().await.unwrap_or(true);
                }
            }
            nowhere @ Choice::Nowhere(_) => {
                let why = format!("{nowhere}{}", pinned.explanation());
                well &= report_once(shared, recorder, reported, &pod, why).await;
            }
        }
    }
    while let Some(placed) = placing.next().await {
        well &= placed;
    }
    well
}

/// Reports why a pod waits, unless that was reported last. Whether it is written.
async fn report_once(
    shared: &Shared,
    recorder: &Recorder,
    reported: &mut Reported,
    pod: &PodSeen,
    why: String,
) -> bool {
    if reported.get(&pod.uid) == Some(&why) {
        return true;
    }
    match in_time(shared, report(&shared.client, recorder, pod, &why)).await {
        Ok(()) => {
            reported.insert(pod.uid.clone(), why);
            true
        }
        Err(error) => {
            tracing::warn!(%error, pod = %pod.pod, "its condition could not be written");
            false
        }
    }
}

async fn place(shared: &Shared, recorder: &Recorder, pod: PodSeen, node: String) -> bool {
    let PodSeen { pod: key, uid, .. } = &pod;
    match bind(shared, key, uid, &node).await {
        Ok(()) => {
            tracing::info!(pod = %key, node, "bound");
            let note = format!("Successfully assigned {}/{} to {node}", key.namespace, key.name);
            let recorded = record(recorder, &pod, "Scheduled", EventType::Normal, note);
            let _ = tokio::time::timeout(shared.config.request_timeout, recorded).await;
            true
        }
        Err(Error::Refused(error)) => {
            tracing::debug!(error, pod = %key, "not bound");
            true
        }
        Err(Error::Unknown(error)) => {
            tracing::warn!(error, pod = %key, "not bound");
            false
        }
    }
}

async fn in_time<T>(
    shared: &Shared,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, String> {
    match tokio::time::timeout(shared.config.request_timeout, call).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err("the API server did not answer in time".to_owned()),
    }
}

/// Binds a pod for which room is reserved. A failure releases the room; if the outcome is unknown, the room stays reserved until
/// the cluster shows the pod, or for a minute.
///
/// # Errors
/// If the pod is not bound, or may not be.
pub(crate) async fn bind(shared: &Shared, key: &NamespacedName, uid: &str, node: &str) -> Result<(), Error> {
    // Losing the lead waits for this to end.
    let _going_on = shared.binding.read().await;
    if !shared.is_leading() {
        shared.state().unreserve(key, uid);
        return Err(Error::Refused("this scheduler does not lead any more".to_owned()));
    }
    let target =
        ObjectReference { kind: Some("Node".into()), name: Some(node.to_owned()), ..Default::default() };
    let mut binding = Binding { target, ..Default::default() };
    binding.metadata.name = Some(key.name.clone());
    // Another pod of this name is not the one that was weighed.
    binding.metadata.uid = Some(uid.to_owned());
    let pods: Api<Pod> = Api::namespaced(shared.client.clone(), &key.namespace);
    let params = PostParams::default();
    let call = pods.create_subresource::<_, serde_json::Value>("binding", &key.name, &params, &binding);
    let outcome = tokio::time::timeout(shared.config.request_timeout, call).await;
    shared.metrics.wrote("Create", "Binding", matches!(outcome, Ok(Ok(_))));
    let error = match outcome {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(kube::Error::Api(status))) if (400..500).contains(&status.code) && status.code != 429 => {
            shared.state().unreserve(key, uid);
            return Err(Error::Refused(status.to_string()));
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the API server did not answer in time".to_owned(),
    };
    match in_time(shared, pods.get_opt(&key.name)).await {
        Ok(Some(pod)) if pod.metadata.uid.as_deref() == Some(uid) => {
            if pod.spec.and_then(|spec| spec.node_name).as_deref() == Some(node) {
                return Ok(());
            }
            shared.state().unreserve(key, uid);
        }
        Ok(_) => shared.state().unreserve(key, uid),
        Err(_) => {}
    }
    Err(Error::Unknown(error))
}

async fn report(client: &Client, recorder: &Recorder, seen: &PodSeen, why: &str) -> Result<(), kube::Error> {
    let (name, uid) = (&seen.pod.name, &seen.uid);
    let pods: Api<Pod> = Api::namespaced(client.clone(), &seen.pod.namespace);
    let pod = match pods.get_opt(name).await? {
        Some(pod) if pod.metadata.uid.as_ref() == Some(uid) => pod,
        _ => return Ok(()),
    };
    let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
    let shown = conditions.iter().find(|c| c.type_ == "PodScheduled").and_then(|c| c.message.as_deref());
    if shown == Some(why) {
        return Ok(());
    }
    let mut conditions: Vec<serde_json::Value> =
        conditions.iter().filter(|c| c.type_ != "PodScheduled").map(|c| json!(c)).collect();
    // Kubernetes' times have whole seconds.
    let now = jiff::Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string();
    conditions
        .push(json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
        "lastProbeTime": null, "lastTransitionTime": now }));
    // With the resource version, so that conditions of other writers are not lost.
    let patch = json!({ "metadata": { "uid": uid, "resourceVersion": pod.metadata.resource_version },
        "status": { "conditions": conditions } });
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    record(recorder, seen, "FailedScheduling", EventType::Warning, why.to_owned()).await;
    Ok(())
}

async fn record(recorder: &Recorder, pod: &PodSeen, reason: &str, type_: EventType, note: String) {
    let about = ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: Some(pod.pod.namespace.clone()),
        name: Some(pod.pod.name.clone()),
        uid: Some(pod.uid.clone()),
        ..Default::default()
    };
    // Notes have at most 1024 bytes.
    let note = note.chars().take(1000).collect();
    let event = Event {
        type_,
        reason: reason.into(),
        note: Some(note),
        action: "Scheduling".into(),
        secondary: None,
    };
    if let Err(error) = recorder.publish(&event, &about).await {
        tracing::debug!(%error, "an event is lost");
    }
}
