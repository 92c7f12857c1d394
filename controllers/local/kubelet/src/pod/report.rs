//! Reports to the API server about a pod: its status, and that it may be removed.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;

use neonvm_core_kubelet::status::{PASSING, rows_know};

/// Longest a request may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// First and longest pause after a refusal.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The state to report to the API server.
#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    /// None: nothing new.
    pub(super) status: Option<PodStatus>,
    /// Everything is gone: the object is to go as well.
    pub(super) remove: bool,
}

/// Sends reports, always the newest, until the pod is gone.
pub(super) async fn send(client: Client, pod: Pod, mut reports: watch::Receiver<Report>) {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(client, &namespace);
    let name = pod.metadata.name.clone().unwrap_or_default();
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let mut sent: Option<Value> = None;
    let mut pause = PAUSES.0;
    while reports.changed().await.is_ok() {
        loop {
            let report = reports.borrow_and_update().clone();
            match tokio::time::timeout(DEADLINE, deliver(&api, &name, &uid, &report, &mut sent)).await {
                Ok(Ok(())) => break,
                Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                    // The pod is gone: the watch reports that.
                    tracing::debug!(%status, name, "not reported");
                    break;
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, namespace, name, "the status of a pod cannot be reported");
                }
                Err(_) => tracing::warn!(namespace, name, "the API server does not answer"),
            }
            // A newer status replaces this one then.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
        pause = PAUSES.0;
    }
}

/// Where objects are merged, what is absent would stay as it was.
fn clear_absent(status: &mut Value) {
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if let Some(fields) = condition.as_object_mut() {
            for key in ["reason", "message"] {
                fields.entry(key).or_insert(Value::Null);
            }
        }
    }
    if let Some(fields) = status.as_object_mut() {
        for key in ["reason", "message"] {
            fields.entry(key).or_insert(Value::Null);
        }
    }
}

/// What is the matter no more is taken away.
fn clear_passing(status: &mut Value) {
    let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) else { return };
    for type_ in PASSING {
        if !conditions.iter().any(|condition| condition["type"] == type_) {
            conditions.push(json!({ "$patch": "delete", "type": type_ }));
        }
    }
}

async fn deliver(
    api: &Api<Pod>,
    name: &str,
    uid: &str,
    report: &Report,
    sent: &mut Option<Value>,
) -> Result<(), kube::Error> {
    if let Some(status) = &report.status {
        let mut status = status.clone();
        // Conditions are merged by type: those of others are not touched.
        if let Some(conditions) = &mut status.conditions {
            conditions.retain(|condition| rows_know(&condition.type_));
        }
        let mut status = serde_json::to_value(&status).map_err(kube::Error::SerdeError)?;
        clear_absent(&mut status);
        clear_passing(&mut status);
        if sent.as_ref() != Some(&status) {
            let patch = json!({ "metadata": { "uid": uid }, "status": status });
            api.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
            *sent = Some(status);
        }
    }
    if report.remove {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        api.delete(name, &DeleteParams::default().grace_period(0).preconditions(preconditions)).await?;
    }
    Ok(())
}
