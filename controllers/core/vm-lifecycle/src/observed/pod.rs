//! What is seen of a runner pod.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, Pod, PodCondition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, OwnerReference, Time};
use neonvm_api::names::{RUNNER_CONTAINER, VM_API_VERSION};
use neonvm_types::Timestamp;
use neonvm_types::runner_protocol::{Exit, ExitReason};
use serde_json::Value;

use super::resize::{Obstacle, ResizeDenial};
use crate::disruption;
use crate::pod::{PodSize, is_copied};

/// How [`PodView::waiting`] begins of a pod that the scheduler has no node for (reason of the condition `PodScheduled`).
const UNSCHEDULABLE: &str = "Unschedulable";

/// What the kubelet reports of a resize of the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Resize {
    /// No action: it is complete, or was not checked yet.
    #[default]
    None,
    /// It is being done.
    InProgress {
        /// The kubelet's message, if it fails so far.
        fails: String,
        /// Since when it is being done.
        since: Option<Timestamp>,
    },
    /// The kubelet does not begin with it.
    Denied(ResizeDenial),
}

/// What matters of a runner pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodView {
    pub name: String,
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Labels that we wrote.
    pub own_labels: BTreeSet<String>,
    /// Annotations that we wrote.
    pub own_annotations: BTreeSet<String>,
    /// UID of the object that controls it.
    pub controller: String,
    /// UIDs of the migrations among its owners.
    pub migrations: BTreeSet<String>,
    /// When its grace period ends, if it is being deleted.
    pub deleting: Option<Timestamp>,
    /// Its address; empty if it has none yet.
    pub ip: String,
    /// Its node; empty if it has none yet.
    pub node: String,
    /// Whether the runner container runs.
    pub running: bool,
    /// Whether the runner's readiness probe succeeds.
    pub ready: bool,
    /// How it ended; then nothing of it runs any more.
    pub ended: Option<Exit>,
    /// Whether its root disk has been copied out of the image; `None`: the image is a volume.
    pub copied: Option<bool>,
    /// Why it does not run yet; empty if its status has no reason.
    pub waiting: String,
    /// Whether the kubelet has tried to start a container and failed, for the reason in `waiting`.
    pub failing: bool,
    /// Whether it is being deleted because its node is not reached.
    pub lost: bool,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Requests and limits of the runner's container as they were written last; `None`: they do not follow the VM.
    pub size: Option<PodSize>,
    /// Requests and limits that the kubelet reports to be in force.
    pub applied: Option<PodSize>,
    /// Whether the kubelet has seen what was written last: before that, `applied` may be what it is about to take away.
    pub current: bool,
    /// How far the kubelet is with what was written last.
    pub resize: Resize,
}

impl PodView {
    /// Reads what matters. `manager` is the field manager under which we write.
    #[must_use]
    pub fn from_pod(pod: &Pod, manager: &str) -> Self {
        let meta = &pod.metadata;
        let status = pod.status.as_ref();
        let container = status
            .and_then(|status| status.container_statuses.as_ref())
            .and_then(|all| all.iter().find(|container| container.name == RUNNER_CONTAINER));
        let text = |part: Option<&String>| part.cloned().unwrap_or_default();
        let state = container.and_then(|container| container.state.as_ref());
        let size = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.containers.iter().find(|container| container.name == RUNNER_CONTAINER))
            .and_then(|container| PodSize::from_resources(container.resources.as_ref()?));
        let applied = container.and_then(|container| PodSize::from_resources(container.resources.as_ref()?));
        Self {
            name: text(meta.name.as_ref()),
            uid: text(meta.uid.as_ref()),
            labels: meta.labels.clone().unwrap_or_default(),
            annotations: meta.annotations.clone().unwrap_or_default(),
            own_labels: own_keys(meta.managed_fields.as_deref(), manager, "f:labels"),
            own_annotations: own_keys(meta.managed_fields.as_deref(), manager, "f:annotations"),
            controller: controller(meta.owner_references.as_deref()),
            migrations: migrations(meta.owner_references.as_deref()),
            deleting: meta.deletion_timestamp.as_ref().and_then(time),
            ip: text(status.and_then(|status| status.pod_ip.as_ref())),
            node: text(pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref())),
            running: state.is_some_and(|state| state.running.is_some()),
            ready: container.is_some_and(|container| container.ready),
            ended: ended(pod, container).map(|exit| disruption::explained(exit, pod)),
            copied: is_copied(pod),
            waiting: waiting(pod),
            failing: stuck(pod).is_some(),
            lost: lost(pod),
            created: meta.creation_timestamp.as_ref().and_then(time),
            size,
            applied,
            current: match status.and_then(|status| status.observed_generation).zip(meta.generation) {
                Some((seen, now)) => seen >= now,
                None => size == applied,
            },
            resize: resize(pod),
        }
    }

    /// Whether the scheduler has found no node for it.
    #[must_use]
    pub fn is_unschedulable(&self) -> bool {
        self.node.is_empty() && self.waiting.starts_with(UNSCHEDULABLE)
    }

    /// Whether something of it may still run.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.ended.is_none()
    }
}

fn controller(owners: Option<&[OwnerReference]>) -> String {
    let found = owners.unwrap_or_default().iter().find(|owner| owner.controller == Some(true));
    found.map(|owner| owner.uid.clone()).unwrap_or_default()
}

fn migrations(owners: Option<&[OwnerReference]>) -> BTreeSet<String> {
    let ours = |owner: &&OwnerReference| {
        owner.kind == "VirtualMachineMigration" && owner.api_version == VM_API_VERSION
    };
    owners.unwrap_or_default().iter().filter(ours).map(|owner| owner.uid.clone()).collect()
}

/// A time of the API as ours.
pub fn time(time: &Time) -> Option<Timestamp> {
    Timestamp::from_unix(time.0.as_second())
}

/// How the pod ended, from the termination message if the runner left one.
fn ended(pod: &Pod, container: Option<&ContainerStatus>) -> Option<Exit> {
    let status = pod.status.as_ref()?;
    let terminated = container.and_then(|container| container.state.as_ref()?.terminated.as_ref());
    let over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    if let Some(terminated) = terminated {
        let message = terminated.message.as_deref().unwrap_or_default();
        return Some(Exit::from_message(message).unwrap_or_else(|| {
            let reason = terminated.reason.as_deref().unwrap_or("Error");
            let message: String = message.chars().take(500).collect();
            if never_started(terminated) {
                return Exit::new(ExitReason::StartFailure, format!("{reason}: {message}").trim_end());
            }
            let text =
                format!("the runner left no reason; exit code {}, {reason} {message}", terminated.exit_code);
            Exit::new(ExitReason::RunnerKilled, text.trim_end())
        }));
    }
    let init = status.init_container_statuses.iter().flatten().find_map(|init| {
        let terminated = init.state.as_ref()?.terminated.as_ref().filter(|end| end.exit_code != 0)?;
        let message = terminated.message.as_deref().or(terminated.reason.as_deref()).unwrap_or_default();
        Some(format!("init container {} ended with {}: {message}", init.name, terminated.exit_code))
    });
    over.then(|| {
        let known = [status.reason.as_deref(), status.message.as_deref(), init.as_deref()];
        let known: Vec<&str> = known.into_iter().flatten().collect();
        let ran = container
            .is_some_and(|container| container.state.as_ref().is_some_and(|now| now.running.is_some()));
        let (reason, what) = if ran {
            (ExitReason::RunnerKilled, "the pod ended and the runner left no reason")
        } else {
            (ExitReason::StartFailure, "the pod ended before the runner was started")
        };
        let separator = if known.is_empty() { "" } else { ": " };
        Exit::new(reason, format!("{what}{separator}{}", known.join(", ")))
    })
}

/// What the kubelet reports about the newest resize.
fn resize(pod: &Pod) -> Resize {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let newest = |one: &&PodCondition| {
        let behind = one.observed_generation.zip(pod.metadata.generation);
        one.status == "True" && behind.is_none_or(|(seen, now)| seen >= now)
    };
    let find = |kind: &str| conditions.iter().filter(newest).find(|one| one.type_ == kind);
    let message = |one: &PodCondition| one.message.clone().unwrap_or_default();
    let since = |one: &PodCondition| one.last_transition_time.as_ref().and_then(time);
    if let Some(pending) = find("PodResizePending") {
        let message = message(pending);
        let since = since(pending);
        return Resize::Denied(ResizeDenial { obstacle: Obstacle::from_message(&message), message, since });
    }
    find("PodResizeInProgress")
        .map_or(Resize::None, |one| Resize::InProgress { fails: message(one), since: since(one) })
}

/// Whether the container's program never ran. The container runtime has no start time for it then, or that of the epoch.
fn never_started(terminated: &ContainerStateTerminated) -> bool {
    let failed = matches!(terminated.reason.as_deref(), Some("StartError" | "ContainerCannotRun"));
    failed || terminated.started_at.as_ref().is_some_and(|at| at.0.as_second() <= 0)
}

/// The container that the kubelet could not start, and why: an image that cannot be pulled, a volume that is not there.
fn stuck(pod: &Pod) -> Option<&ContainerStateWaiting> {
    let status = pod.status.as_ref()?;
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let waiting = containers.filter_map(|container| container.state.as_ref()?.waiting.as_ref());
    waiting.into_iter().find(|waiting| {
        !matches!(waiting.reason.as_deref(), None | Some("ContainerCreating" | "PodInitializing"))
    })
}

/// Whether Kubernetes deletes the pod because its node is not reached.
fn lost(pod: &Pod) -> bool {
    let reason = pod.status.as_ref().and_then(|status| status.reason.as_deref());
    let by = disruption::condition(pod).and_then(|condition| condition.reason.as_deref());
    pod.metadata.deletion_timestamp.is_some()
        && (reason == Some("NodeLost") || by == Some("DeletionByTaintManager"))
}

/// Why the pod does not run yet.
fn waiting(pod: &Pod) -> String {
    let Some(status) = pod.status.as_ref() else { return String::new() };
    if let Some(waiting) = stuck(pod) {
        let (reason, message) = (waiting.reason.as_deref(), waiting.message.as_deref());
        return [reason, message].into_iter().flatten().collect::<Vec<_>>().join(": ");
    }
    let running = |status: &&ContainerStatus| status.state.as_ref().is_some_and(|now| now.running.is_some());
    if let Some(init) = status.init_container_statuses.iter().flatten().find(running) {
        return format!("init container {} runs", init.name);
    }
    let unscheduled =
        |condition: &&PodCondition| condition.type_ == "PodScheduled" && condition.status == "False";
    status
        .conditions
        .iter()
        .flatten()
        .find(unscheduled)
        .map(|condition| {
            let (reason, message) = (condition.reason.as_deref(), condition.message.as_deref());
            [reason, message].into_iter().flatten().collect::<Vec<_>>().join(": ")
        })
        .unwrap_or_default()
}

/// The keys of `metadata.labels` or `.annotations` that the manager wrote last.
fn own_keys(entries: Option<&[ManagedFieldsEntry]>, manager: &str, part: &str) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for entry in entries.unwrap_or_default() {
        let Some(fields) = &entry.fields_v1 else { continue };
        if entry.manager.as_deref() != Some(manager) || entry.subresource.is_some() {
            continue;
        }
        let part = fields.0.get("f:metadata").and_then(|meta| meta.get(part)).and_then(Value::as_object);
        let names = part.into_iter().flatten().filter_map(|(key, _)| key.strip_prefix("f:"));
        keys.extend(names.map(str::to_owned));
    }
    keys
}
