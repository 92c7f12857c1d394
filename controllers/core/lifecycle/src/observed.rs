//! What is seen of a machine's partners.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, OwnerReference, Time};
use neonvm_api::names::{RUNNER_CONTAINER, VM_API_VERSION};
use neonvm_types::Timestamp;
use neonvm_types::runner_protocol::{Exit, ExitReason, RunnerStatus};
use serde_json::Value;

use crate::tls::TlsObserved;

/// How [`PodView::waiting`] begins of a pod that the scheduler has no node for (reason of the condition `PodScheduled`).
const UNSCHEDULABLE: &str = "Unschedulable";

/// What is seen of a machine's partners.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Machine and pods were read from the server for this step, or come from its answer to our own write; otherwise
    /// watches brought them and they may be old.
    pub fresh: bool,
    /// The pod that the status names.
    pub pod: Option<PodView>,
    /// Other pods that the machine owns.
    pub strays: Vec<PodView>,
    /// The runner in the pod.
    pub runner: RunnerView,
    /// The guest's certificate; looked at only if the spec asks for one.
    pub tls: TlsObserved,
    /// The machine's address on the overlay network, as the pools have it.
    pub address: AddressView,
    /// The migration that the status names; looked at only if it names one.
    pub moving: Moving,
    /// What went wrong when the actions of the step before were run.
    pub failure: Option<Failure>,
    /// Five random letters and digits for the name of a new pod.
    pub suffix: String,
}

/// What is seen of the migration that moves a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moving {
    /// The object; `None` if there is none with the UID that the machine's status names.
    pub mover: Option<Mover>,
    /// The pod that the machine goes to.
    pub target: Option<PodView>,
    /// The runner in it.
    pub target_runner: RunnerView,
    /// When a paused post-copy was told to go on.
    pub recovered: Option<Timestamp>,
    /// The target has answered that it cannot have the machine: a part of it is at the source only.
    pub refused: bool,
}

/// What a machine must know of its migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mover {
    /// The source may have been told to begin.
    pub ordered: bool,
    /// It is decided that the machine stays: it can be let go.
    pub over: bool,
}

/// The address of a machine on the overlay network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressView {
    /// The pools were not read yet.
    #[default]
    Unknown,
    /// It has none.
    None,
    /// It has one, and that is on record.
    Held {
        /// The address.
        ip: IpAddr,
        /// The mask of its network.
        mask: IpAddr,
    },
}

/// An action that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// For programs.
    pub reason: FailureReason,
    /// For people; the same as long as the cause is the same.
    pub message: String,
}

/// Which action failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureReason {
    /// The pod could not be made or changed.
    PodFailed,
    /// A secret could not be made.
    SecretFailed,
    /// The certificate could not be made.
    CertificateFailed,
    /// The machine got no address on the overlay network, or could not give it back.
    AddressFailed,
    /// The runner refused the size.
    ScaleFailed,
    /// The runner did not take an order about a migration.
    MigrationFailed,
    /// Anything else.
    ActionFailed,
}

impl FailureReason {
    /// The word in the condition.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PodFailed => "PodFailed",
            Self::SecretFailed => "SecretFailed",
            Self::CertificateFailed => "CertificateFailed",
            Self::AddressFailed => "AddressFailed",
            Self::ScaleFailed => "ScaleFailed",
            Self::MigrationFailed => "MigrationFailed",
            Self::ActionFailed => "ActionFailed",
        }
    }
}

/// The runner, as the connection to it shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum RunnerView {
    /// Nothing was heard from it yet: what the status says still holds.
    #[default]
    Unknown,
    /// Its newest document.
    Seen(Box<RunnerStatus>),
    /// It cannot be reached.
    Unreachable {
        /// Since when.
        since: Timestamp,
        /// The newest document before that.
        last: Option<Box<RunnerStatus>>,
    },
}

impl RunnerView {
    /// The newest document of a runner, whether it still answers or not.
    #[must_use]
    pub fn newest(&self) -> Option<&RunnerStatus> {
        match self {
            Self::Seen(status) | Self::Unreachable { last: Some(status), .. } => Some(status),
            Self::Unknown | Self::Unreachable { last: None, .. } => None,
        }
    }

    /// The newest document of a runner that answers.
    #[must_use]
    pub fn current(&self) -> Option<&RunnerStatus> {
        match self {
            Self::Seen(status) => Some(status),
            Self::Unknown | Self::Unreachable { .. } => None,
        }
    }

    /// How the machine ended, if the runner said so.
    #[must_use]
    pub fn exit(&self) -> Option<&Exit> {
        self.newest()?.exit.as_ref()
    }
}

/// What matters of a runner pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodView {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
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
    /// Why it does not run yet; empty if nothing is said.
    pub waiting: String,
    /// When it was made.
    pub created: Option<Timestamp>,
}

impl PodView {
    /// Reads what matters. `manager` is the field manager under which we write.
    #[must_use]
    pub fn of(pod: &Pod, manager: &str) -> Self {
        let meta = &pod.metadata;
        let status = pod.status.as_ref();
        let container = status
            .and_then(|status| status.container_statuses.as_ref())
            .and_then(|all| all.iter().find(|container| container.name == RUNNER_CONTAINER));
        let text = |part: Option<&String>| part.cloned().unwrap_or_default();
        let state = container.and_then(|container| container.state.as_ref());
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
            ended: ended(pod, container),
            waiting: waiting(pod),
            created: meta.creation_timestamp.as_ref().and_then(time),
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
pub(crate) fn time(time: &Time) -> Option<Timestamp> {
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
        let said = [status.reason.as_deref(), status.message.as_deref(), init.as_deref()];
        let said: Vec<&str> = said.into_iter().flatten().collect();
        let reason = if init.is_some() { ExitReason::StartFailure } else { ExitReason::RunnerKilled };
        Exit::new(reason, format!("the pod ended without a word of the runner: {}", said.join(", ")))
    })
}

/// Why the pod does not run yet.
fn waiting(pod: &Pod) -> String {
    let Some(status) = pod.status.as_ref() else { return String::new() };
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let stuck =
        containers.filter_map(|container| container.state.as_ref()?.waiting.as_ref()).find(|waiting| {
            !matches!(waiting.reason.as_deref(), None | Some("ContainerCreating" | "PodInitializing"))
        });
    if let Some(waiting) = stuck {
        let (reason, message) = (waiting.reason.as_deref(), waiting.message.as_deref());
        return [reason, message].into_iter().flatten().collect::<Vec<_>>().join(": ");
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
