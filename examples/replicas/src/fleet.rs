//! One Deployment: its pods, its clients, its status.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams};
use neonvm_kit::supervise::catch;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::REQUEST;
use super::load::{Load, Readiness};
use super::pod::{self, Stage};
use super::spec::Spec;

/// The longest that pods may take to end.
const ENDING: Duration = Duration::from_secs(15);
/// First and longest pause after a status that could not be written.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// A Deployment that is simulated.
pub(crate) struct Fleet {
    pub(crate) uid: String,
    specs: watch::Sender<Spec>,
    task: JoinHandle<()>,
}

impl Fleet {
    pub(crate) fn start(stage: Arc<Stage>, spec: Spec) -> Self {
        let uid = spec.uid.clone();
        let (specs, follow) = watch::channel(spec);
        Self { uid, specs, task: tokio::spawn(keep(stage, follow)) }
    }

    pub(crate) fn put(&self, spec: Spec) {
        self.specs.send_if_modified(|known| {
            let is_new = *known != spec;
            *known = spec;
            is_new
        });
    }

    /// Ends its pods and removes them.
    pub(crate) async fn end(self) {
        drop(self.specs);
        let _ = self.task.await;
    }
}

async fn keep(stage: Arc<Stage>, mut specs: watch::Receiver<Spec>) {
    let mut load = Load::default();
    let readiness = load.readiness();
    let mut pods = JoinSet::new();
    let mut running = BTreeSet::new();
    let mut status = Status::default();
    let mut pause = PAUSES.0;
    loop {
        let spec = specs.borrow_and_update().clone();
        load.set(spec.clients);
        for number in 0..spec.replicas {
            if running.insert(number) {
                let (stage, specs, readiness) = (Arc::clone(&stage), specs.clone(), readiness.clone());
                pods.spawn(async move {
                    if let Err(panic) = catch(pod::keep(stage, number, specs, readiness)).await {
                        tracing::error!(number, panic, "a pod panicked; it is started again");
                        tokio::time::sleep(PAUSES.1).await;
                    }
                    number
                });
            }
        }
        let counts = Counts { ordered: running.len(), ready: readiness.count() };
        let written = status.write(&stage, &spec, counts).await;
        pause = if written { PAUSES.0 } else { (pause * 2).min(PAUSES.1) };
        tokio::select! {
            changed = specs.changed() => if changed.is_err() { break },
            () = readiness.other_than(counts.ready) => {}
            Some(ended) = pods.join_next() => match ended {
                Ok(number) => drop(running.remove(&number)),
                Err(error) => tracing::error!(%error, "a pod is no longer simulated"),
            },
            () = tokio::time::sleep(pause), if !written => {}
        }
    }
    let spec = specs.borrow().clone();
    end(&stage, &spec, pods, &readiness).await;
}

async fn end(stage: &Stage, spec: &Spec, mut pods: JoinSet<usize>, readiness: &Readiness) {
    let all = async { while pods.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(ENDING, all).await;
    Status::default().write(stage, spec, Counts { ordered: 0, ready: readiness.count() }).await;
}

/// Pods of a Deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    ordered: usize,
    ready: usize,
}

/// What was written last.
#[derive(Debug, Default)]
struct Status {
    written: Option<(Counts, Option<i64>)>,
    /// Whether enough pods are ready, and since when.
    available: Option<(bool, Timestamp)>,
}

impl Status {
    /// Writes the status of the Deployment if it is another one; whether it is as it should be.
    async fn write(&mut self, stage: &Stage, spec: &Spec, counts: Counts) -> bool {
        let wanted = (counts, spec.generation);
        if self.written == Some(wanted) {
            return true;
        }
        let Counts { ordered, ready } = counts;
        let enough = ready >= spec.replicas;
        let since = match self.available {
            Some((before, since)) if before == enough => since,
            _ => Timestamp::now(),
        };
        self.available = Some((enough, since));
        let reason = if enough { "MinimumReplicasAvailable" } else { "MinimumReplicasUnavailable" };
        let status = json!({"status": {"observedGeneration": spec.generation, "replicas": ordered,
            "updatedReplicas": ordered, "readyReplicas": ready, "availableReplicas": ready,
            "unavailableReplicas": ordered.saturating_sub(ready), "conditions": [{"type": "Available",
                "status": if enough { "True" } else { "False" }, "reason": reason,
                "message": format!("{ready} of {} pods are ready", spec.replicas),
                "lastTransitionTime": since.to_string(), "lastUpdateTime": since.to_string()}]}});
        let api: Api<Deployment> = Api::namespaced(stage.client.clone(), &spec.namespace);
        let (how, patch) = (PatchParams::default(), Patch::Merge(status));
        match tokio::time::timeout(REQUEST, api.patch_status(&spec.name, &how, &patch)).await {
            Ok(Ok(_)) => self.written = Some(wanted),
            Ok(Err(kube::Error::Api(answer))) if answer.code == 404 => self.written = Some(wanted),
            Ok(Err(error)) => tracing::warn!(%error, deployment = spec.name, "the status is not written"),
            Err(_) => tracing::warn!(deployment = spec.name, "the API server did not answer"),
        }
        self.written == Some(wanted)
    }
}
