//! Eviction of a runner pod: its machine is moved instead, and the eviction is answered with 429 until the pod is gone. So a
//! drain waits for it as it waits for a disruption budget. A machine that cannot be moved stays, and the answer says why: an
//! eviction asks, and who wants the machine stopped nevertheless can delete its pod.

use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Client, ResourceExt as _};
use neonvm_api::migration::{MigrationPhase, VirtualMachineMigrationSpec};
use neonvm_api::names::label;
use neonvm_api::virtual_machine::Phase;
use neonvm_api::{VirtualMachine, VirtualMachineMigration};
use neonvm_kit::http::{Answer, Whole, text};
use serde_json::{Value, json};

use super::{Hooks, elsewhere};
use crate::act::{is_conflict, is_missing, posting, within};
use crate::cache::owner;
use crate::context::now;

/// Where evictions are asked about.
pub(super) const PATH: &str = "/validate-v1-pod-eviction";
/// After a migration that failed another one is begun for the same eviction no sooner, in seconds.
const PAUSE: i64 = 30;

/// What is answered to an eviction.
enum Word {
    /// The pod may go.
    Pass,
    /// Not yet.
    Later(String),
}

/// Answers one review.
pub(super) async fn answer(hooks: &Hooks, request: &Whole) -> Answer {
    if request.method() != Method::POST {
        return text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only POST\n");
    }
    let Ok(review) = serde_json::from_slice::<Value>(request.body()) else {
        return text(StatusCode::BAD_REQUEST, "text/plain", "the body is not JSON\n");
    };
    let part = |path: &str| review.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (uid, namespace, name) = (part("/request/uid"), part("/request/namespace"), part("/request/name"));
    if uid.is_empty() || namespace.is_empty() || name.is_empty() {
        return text(StatusCode::BAD_REQUEST, "text/plain", "no request.uid, .namespace or .name\n");
    }
    let tried = review.pointer("/request/dryRun").and_then(Value::as_bool).unwrap_or(false)
        || review.pointer("/request/object/deleteOptions/dryRun/0").is_some();
    let response = match decide(&hooks.client, namespace, name, tried).await {
        Ok(Word::Pass) => json!({"uid": uid, "allowed": true}),
        Ok(Word::Later(why)) => json!({"uid": uid, "allowed": false,
            "status": {"code": 429, "reason": "TooManyRequests", "message": why}}),
        Err(error) => {
            tracing::warn!(%error, pod = name, "an eviction cannot be decided on");
            json!({"uid": uid, "allowed": false, "status": {"code": 429, "reason": "TooManyRequests",
                "message": "the API server does not say whether the pod's machine can be moved; try again"}})
        }
    };
    let review =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    text(StatusCode::OK, "application/json", review.to_string())
}

async fn found<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<Option<T>, kube::Error> {
    match within(request).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn decide(client: &Client, namespace: &str, name: &str, tried: bool) -> Result<Word, kube::Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let Some(pod) = found(pods.get(name)).await? else { return Ok(Word::Pass) };
    let ours = pod.labels().get(label::APP_NAME).is_some_and(|value| value == label::APP_NAME_VALUE);
    let ended = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let ended = matches!(ended, Some("Succeeded" | "Failed"));
    let vm = pod.labels().get(label::VM_NAME).filter(|_| ours && !ended);
    let Some(vm) = vm.filter(|_| pod.metadata.deletion_timestamp.is_none()) else { return Ok(Word::Pass) };
    let vms: Api<VirtualMachine> = Api::namespaced(client.clone(), namespace);
    let Some(vm) = found(vms.get(vm)).await? else { return Ok(Word::Pass) };
    let Some(status) = vm.status.as_ref().filter(|_| vm.metadata.deletion_timestamp.is_none()) else {
        return Ok(Word::Pass);
    };
    if let Some(lock) = &status.migration {
        if name == status.pod_name {
            return Ok(Word::Later(format!("migration {} moves the machine; try again", lock.name)));
        }
        if name == lock.target_pod_name {
            let why = format!("migration {} brings a machine here; try again when it has arrived", lock.name);
            return Ok(Word::Later(why));
        }
    }
    let owned = owner(&pod.metadata).is_some_and(|(_, uid)| vm.metadata.uid.as_ref() == Some(&uid));
    // What does not run anywhere, or not here, loses nothing by going.
    if name != status.pod_name || !owned || !status.phase.is_some_and(Phase::is_alive) {
        return Ok(Word::Pass);
    }
    move_away(client, namespace, &pod, &vm, tried).await
}

/// Sees to it that the machine is moved. One migration for each pod, by name, however often the eviction is tried.
async fn move_away(
    client: &Client,
    namespace: &str,
    pod: &Pod,
    vm: &VirtualMachine,
    tried: bool,
) -> Result<Word, kube::Error> {
    let migrations: Api<VirtualMachineMigration> = Api::namespaced(client.clone(), namespace);
    let home = pod.name_any();
    let name = format!("evict-{home}");
    let later =
        |why: &str| Ok(Word::Later(format!("migration {name} moves the machine of pod {home}: {why}")));
    let last = found(migrations.get(&name)).await?;
    if let Some(last) = &last {
        let status = last.status.clone().unwrap_or_default();
        if status.phase != Some(MigrationPhase::Failed) {
            return later(if status.message.is_empty() { "try again" } else { &status.message });
        }
        let since = status.completion_time.map_or(0, |time| time.unix());
        if now().unix() < since.saturating_add(PAUSE) {
            let why =
                format!("the last try has failed ({}: {}); another follows", status.reason, status.message);
            return later(&why);
        }
    }
    if let Some(why) = elsewhere::nowhere(client, pod).await? {
        return Ok(stays(vm, &why));
    }
    if tried {
        return later("it would be made");
    }
    if let Some(last) = last {
        found(migrations.delete(&name, &only(&last))).await?;
        return later("it is begun anew");
    }
    tidy(&migrations, &vm.name_any()).await?;
    let mut wanted = VirtualMachineMigration::new(&name, VirtualMachineMigrationSpec::new(vm.name_any()));
    let labels = [(label::CREATED_BY_EVICTION.to_owned(), "true".to_owned())];
    wanted.metadata.labels = Some(labels.into());
    let params: PostParams = posting();
    match within(migrations.create(&params, &wanted)).await {
        Ok(_) => later("it has begun"),
        Err(error) if is_conflict(&error) => later("it has begun"),
        Err(kube::Error::Api(refused)) if matches!(refused.code, 400 | 403 | 404 | 422) => {
            tracing::warn!(pod = home, error = %refused.message, "an evicted machine cannot be moved");
            Ok(stays(vm, &refused.message))
        }
        Err(error) => Err(error),
    }
}

/// The answer about a machine that cannot be moved.
fn stays(vm: &VirtualMachine, why: &str) -> Word {
    let vm = vm.name_any();
    Word::Later(format!(
        "machine {vm} cannot be moved and is not stopped by an eviction: {why}; to stop it here, delete its pod"
    ))
}

/// This very object.
fn only(migration: &VirtualMachineMigration) -> DeleteParams {
    let only = Preconditions { uid: migration.metadata.uid.clone(), resource_version: None };
    DeleteParams { preconditions: Some(only), ..DeleteParams::default() }
}

/// Deletes what earlier evictions of a machine left, or a machine that lives long would own one for each drain.
async fn tidy(migrations: &Api<VirtualMachineMigration>, vm: &str) -> Result<(), kube::Error> {
    let ours = ListParams::default().labels(&format!("{}=true", label::CREATED_BY_EVICTION));
    let all = within(migrations.list(&ours)).await?.items;
    let over = |one: &&VirtualMachineMigration| {
        let phase = one.status.as_ref().and_then(|status| status.phase);
        one.spec.vm_name == vm && matches!(phase, Some(MigrationPhase::Succeeded | MigrationPhase::Failed))
    };
    for one in all.iter().filter(over) {
        found(migrations.delete(&one.name_any(), &only(one))).await?;
    }
    Ok(())
}
