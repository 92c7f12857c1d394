//! Changes the size of a VM, if it is still what we think it is.

use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Error as ApiError};
use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::Phase;
use neonvm_types::{NamespacedName, Resources, RevisionWithTime};
use serde_json::{Value, json};

#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) vm: NamespacedName,
    pub(crate) uid: String,
    /// The object's generation when this was decided: what is sent twice must not pass twice, even if the size is again
    /// what it was.
    pub(crate) generation: Option<i64>,
    /// The size that the VM requests now.
    pub(crate) from: Size,
    /// The size that it should request.
    pub(crate) to: Size,
    pub(crate) revision: Option<RevisionWithTime>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) cpu: neonvm_types::MilliCpu,
    pub(crate) slots: u16,
}

impl Error {
    /// Whether the VM has to be read again before anything is tried.
    pub(crate) fn is_conflict(&self) -> bool {
        match self {
            Self::Changed(_) | Self::Replaced | Self::Moves | Self::Phase(_) | Self::Generation => true,
            Self::Api(error) => {
                matches!(&**error, ApiError::Api(status) if matches!(status.code, 404 | 409 | 422))
            }
            Self::Late(_) | Self::Refused(_) => false,
        }
    }
}

impl Size {
    /// In whole slots, rounded down; none if there are too many.
    pub(crate) fn from_resources(resources: Resources, slot: neonvm_types::Bytes) -> Option<Self> {
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
    #[error("another client changed its size to {} and {} slots", .0.cpu, .0.slots)]
    Changed(Size),
    #[error("it is another VM by now")]
    Replaced,
    #[error("it is on its way to another node")]
    Moves,
    #[error("it does not run: its phase is {}", .0.map_or("unset", Phase::as_str))]
    Phase(Option<Phase>),
    #[error("its spec was changed since")]
    Generation,
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
        // A migration that begins right now changes it, and the permit is one of the node that it leaves.
        test("/status/phase", Phase::Running),
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
    if vm.status.as_ref().is_some_and(|status| status.migration.is_some() && status.size_is_held()) {
        return Err(Error::Moves);
    }
    // The second attempt is bound to this version alone, so what the first one tested has to hold of it. A VM that is still being
    // scaled is one that runs: its load may grow before it has become smaller.
    let phase = vm.status.as_ref().and_then(|status| status.phase);
    if !matches!(phase, Some(Phase::Running | Phase::Scaling)) {
        return Err(Error::Phase(phase));
    }
    if change.generation.is_some() && vm.metadata.generation != change.generation {
        return Err(Error::Generation);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Method, StatusCode};
    use neonvm_kit::http::{FullRequest, serve_openly, text};

    use super::*;

    /// Patches an object that the API server reports as changed, with this generation and status.
    async fn against(generation: i64, status: Value) -> (Result<Option<i64>, Error>, usize) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let vm = json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
            "metadata": {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "7", "generation": generation},
            "spec": {"guest": {"cpus": {"min": 1, "max": 2, "use": 1}, "memorySlotSize": "1Gi",
                "memorySlots": {"min": 1, "max": 2, "use": 1}, "rootDisk": {"image": "i"}}}, "status": status});
        let patches = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&patches);
        let server = tokio::spawn(serve_openly(listener, move |request: FullRequest| {
            let is_first = request.method() == Method::PATCH && seen.fetch_add(1, Ordering::Relaxed) == 0;
            let vm = vm.clone();
            async move {
                if is_first {
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 422,
                        "reason": "Invalid", "message": "the server rejected our request"});
                    return text(StatusCode::UNPROCESSABLE_ENTITY, "application/json", status.to_string());
                }
                text(StatusCode::OK, "application/json", vm.to_string())
            }
        }));
        let client = Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
        let (one, two) = (neonvm_types::MilliCpu::new(1000), neonvm_types::MilliCpu::new(2000));
        let change = Change {
            vm: NamespacedName { namespace: "default".into(), name: "a".into() },
            uid: "u".into(),
            generation: Some(1),
            from: Size { cpu: one, slots: 1 },
            to: Size { cpu: two, slots: 1 },
            revision: None,
        };
        let done = apply(&client, &change, Duration::from_secs(20)).await;
        server.abort();
        (done, patches.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn a_machine_that_begins_to_move_keeps_its_size() {
        let moves =
            json!({"phase": "PreMigrating", "migration": {"name": "m", "uid": "x", "targetPodName": "p"}});
        let (done, patches) = against(1, moves).await;
        let error = done.unwrap_err();
        assert!(matches!(error, Error::Moves) && error.is_conflict(), "{error}");
        assert_eq!(patches, 1);
        // Of one that stays something else changed, and it is tried again.
        let (done, patches) = against(1, json!({"phase": "Scaling"})).await;
        assert_eq!((done.unwrap(), patches), (Some(1), 2));
    }

    #[tokio::test]
    async fn the_second_attempt_tests_what_the_first_one_did() {
        for phase in ["PreMigrating", "Succeeded", "Pending"] {
            let (done, patches) = against(1, json!({"phase": phase})).await;
            let error = done.unwrap_err();
            assert!(matches!(error, Error::Phase(Some(_))) && error.is_conflict(), "{phase}: {error}");
            assert_eq!(patches, 1);
        }
        let (done, patches) = against(2, json!({"phase": "Running"})).await;
        let error = done.unwrap_err();
        assert!(matches!(error, Error::Generation) && error.is_conflict(), "{error}");
        assert_eq!(patches, 1, "what was decided about another generation is not sent again");
    }
}
