//! Changes the size of a VM, if it is still what we think it is.

use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Error as ApiError};
use neonvm_api::VirtualMachine;
use neonvm_types::{NamespacedName, Resources, RevisionWithTime};
use serde_json::{Value, json};

/// What is to be changed.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) vm: NamespacedName,
    pub(crate) uid: String,
    /// The object's generation when this was decided: what is sent twice must not pass twice, even if the size is again
    /// what it was.
    pub(crate) generation: Option<i64>,
    /// What the VM asks for now.
    pub(crate) from: Size,
    /// What it should ask for.
    pub(crate) to: Size,
    pub(crate) revision: Option<RevisionWithTime>,
}

/// A size as the spec has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) cpu: neonvm_types::MilliCpu,
    pub(crate) slots: u16,
}

impl Error {
    /// Whether the VM has to be looked at again before anything is tried.
    pub(crate) fn is_conflict(&self) -> bool {
        match self {
            Self::Changed(_) | Self::Replaced => true,
            Self::Api(error) => {
                matches!(&**error, ApiError::Api(status) if matches!(status.code, 404 | 409 | 422))
            }
            Self::Late(_) | Self::Refused(_) => false,
        }
    }
}

impl Size {
    /// In whole slots, rounded down; none if there are too many.
    pub(crate) fn of(resources: Resources, slot: neonvm_types::Bytes) -> Option<Self> {
        let slots = u16::try_from(resources.mem.slots(slot)?).ok()?;
        Some(Self { cpu: resources.vcpus, slots })
    }

    fn in_spec(vm: &VirtualMachine) -> Self {
        Self { cpu: vm.spec.guest.cpus.r#use, slots: vm.spec.guest.memory_slots.r#use }
    }
}

/// Why it was not changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("somebody else changed its size to {} and {} slots", .0.cpu, .0.slots)]
    Changed(Size),
    #[error("it is another VM by now")]
    Replaced,
    #[error("the API server did not answer within {} s", .0.as_secs())]
    Late(Duration),
    #[error("the API server refuses: {0}")]
    Refused(String),
    #[error("the API server refuses: {0}")]
    Api(Box<ApiError>),
}

/// Changes it, within the time; the generation of the object that came of it.
pub(crate) async fn apply(client: &Client, change: &Change, within: Duration) -> Result<Option<i64>, Error> {
    let api: Api<VirtualMachine> = Api::namespaced(client.clone(), &change.vm.namespace);
    let applied = tokio::time::timeout(within, attempt(&api, change));
    applied.await.unwrap_or(Err(Error::Late(within)))
}

async fn attempt(api: &Api<VirtualMachine>, change: &Change) -> Result<Option<i64>, Error> {
    let mut tests = vec![
        test("/metadata/uid", &change.uid),
        test("/spec/guest/cpus/use", change.from.cpu),
        test("/spec/guest/memorySlots/use", change.from.slots),
    ];
    tests.extend(change.generation.map(|generation| test("/metadata/generation", generation)));
    match send(api, change, tests).await {
        Err(ApiError::Api(status)) if status.code == 422 => {}
        sent => return sent.map_err(|error| Error::Api(Box::new(error))),
    }
    // Either it is not what we think it is, or something else of it changed, or it is spelt in another way.
    let vm = api.get(&change.vm.name).await.map_err(|error| Error::Api(Box::new(error)))?;
    if vm.metadata.uid.as_deref() != Some(&change.uid) {
        return Err(Error::Replaced);
    }
    let now = Size::in_spec(&vm);
    if now != change.from {
        return Err(Error::Changed(now));
    }
    tests = vec![test("/metadata/resourceVersion", &vm.metadata.resource_version)];
    match send(api, change, tests).await {
        Err(ApiError::Api(status)) if status.code == 422 && is_still(api, &vm).await => {
            Err(Error::Refused(status.message))
        }
        sent => sent.map_err(|error| Error::Api(Box::new(error))),
    }
}

/// Whether the object did not change. Then it is not our idea of it that the server refuses, but what we make of it; both
/// have the same code.
async fn is_still(api: &Api<VirtualMachine>, vm: &VirtualMachine) -> bool {
    let Some(name) = vm.metadata.name.as_deref() else { return false };
    let seen = api.get_metadata(name).await;
    seen.is_ok_and(|seen| seen.metadata.resource_version == vm.metadata.resource_version)
}

fn test(path: &str, value: impl serde::Serialize) -> Value {
    json!({ "op": "test", "path": path, "value": json!(value) })
}

async fn send(
    api: &Api<VirtualMachine>,
    change: &Change,
    mut operations: Vec<Value>,
) -> Result<Option<i64>, ApiError> {
    operations.extend([
        json!({ "op": "replace", "path": "/spec/guest/cpus/use", "value": quoted(change.to.cpu) }),
        json!({ "op": "replace", "path": "/spec/guest/memorySlots/use", "value": change.to.slots }),
    ]);
    if let Some(revision) = change.revision {
        operations.push(json!({ "op": "add", "path": "/spec/targetRevision", "value": revision }));
    }
    let patch: Patch<()> =
        Patch::Json(serde_json::from_value(Value::Array(operations)).map_err(ApiError::SerdeError)?);
    let parameters = PatchParams { field_manager: Some("neonvm-agent".into()), ..PatchParams::default() };
    Ok(api.patch_metadata(&change.vm.name, &parameters, &patch).await?.metadata.generation)
}

/// CPU as a quantity in quotes, as upstream's agent writes it.
fn quoted(cpu: neonvm_types::MilliCpu) -> String {
    match serde_json::to_value(cpu) {
        Ok(Value::String(text)) => text,
        Ok(number) => number.to_string(),
        Err(_) => String::new(),
    }
}
