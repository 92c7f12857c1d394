//! Eviction of a runner pod: its VM migrates instead, and the eviction is answered with 429 until the pod is gone. So a
//! drain waits for it as for a disruption budget. A VM that cannot migrate stays, and the response has the reason: an
//! eviction is a request, and a user who wants the VM stopped nevertheless can delete its pod.

use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt as _};
use neonvm_api::migration::{MigrationPhase, VirtualMachineMigrationSpec, VirtualMachineMigrationStatus};
use neonvm_api::names::label;
use neonvm_api::virtual_machine::Phase;
use neonvm_api::{VirtualMachine, VirtualMachineMigration, VirtualMachineStatus};
use neonvm_core_scheduling::has_ended;
use neonvm_kit::http::{FullRequest, FullResponse, Peer, text};
use serde_json::{Value, json};

use super::requests::{Request, Word};
use super::{Hooks, elsewhere};
use crate::cache::machine_of;
use crate::clock::now;
use crate::request::{is_conflict, is_missing, only, posting, within};

pub(super) const PATH: &str = "/validate-v1-pod-eviction";
/// After a migration that failed another one is begun for the same eviction no sooner, in seconds.
const PAUSE: i64 = 30;

/// Answers one review. Nothing is done here: the request is recorded, and the controller verifies it against the API.
pub(super) async fn answer(hooks: &Hooks, review: &FullRequest) -> FullResponse {
    let proved = Peer::from_extensions(review.extensions()).known;
    let Ok(review) = serde_json::from_slice::<Value>(review.body()) else {
        return text(StatusCode::BAD_REQUEST, "text/plain", "the body is not JSON\n");
    };
    let part = |path: &str| review.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (uid, namespace, name) = (part("/request/uid"), part("/request/namespace"), part("/request/name"));
    if uid.is_empty() || namespace.is_empty() || name.is_empty() {
        return text(StatusCode::BAD_REQUEST, "text/plain", "no request.uid, .namespace or .name\n");
    }
    let dry_run = review.pointer("/request/dryRun").and_then(Value::as_bool).unwrap_or(false)
        || review.pointer("/request/object/deleteOptions/dryRun/0").is_some();
    let request = Request { namespace: namespace.to_owned(), pod: name.to_owned(), dry_run, proved };
    let response = match hooks.requests.record(request).await {
        Word::Pass => json!({"uid": uid, "allowed": true}),
        Word::Later(why) => json!({"uid": uid, "allowed": false,
            "status": {"code": 429, "reason": "TooManyRequests", "message": why}}),
    };
    let review =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    text(StatusCode::OK, "application/json", review.to_string())
}

/// What the controller makes of a request.
pub(super) async fn word(client: &Client, request: &Request) -> Word {
    match decide(client, request).await {
        Ok(word) => word,
        Err(error) => {
            tracing::warn!(%error, pod = request.pod, "an eviction cannot be decided on");
            let why = "the API server cannot be asked whether the pod's machine can be moved; try again";
            Word::Later(why.to_owned())
        }
    }
}

async fn found<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<Option<T>, kube::Error> {
    match within(request).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn decide(client: &Client, request: &Request) -> Result<Word, kube::Error> {
    let (namespace, name) = (request.namespace.as_str(), request.pod.as_str());
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let Some(pod) = found(pods.get(name)).await? else { return Ok(Word::Pass) };
    let ours = pod.labels().get(label::APP_NAME).is_some_and(|value| value == label::APP_NAME_VALUE);
    let vm = pod.labels().get(label::VM_NAME).filter(|_| ours && !has_ended(&pod));
    let Some(vm) = vm.filter(|_| pod.metadata.deletion_timestamp.is_none()) else { return Ok(Word::Pass) };
    let vms: Api<VirtualMachine> = Api::namespaced(client.clone(), namespace);
    let Some(vm) = found(vms.get(vm)).await? else { return Ok(Word::Pass) };
    let Some(status) = vm.status.as_ref().filter(|_| vm.metadata.deletion_timestamp.is_none()) else {
        return Ok(Word::Pass);
    };
    if let Some(lock) = &status.migration {
        if name == status.pod_name {
            let migrations: Api<VirtualMachineMigration> = Api::namespaced(client.clone(), namespace);
            let status = found(migrations.get(&lock.name)).await?.and_then(|migration| migration.status);
            return Ok(under_way(&lock.name, name, &status.unwrap_or_default()));
        }
        if name == lock.target_pod_name {
            let why = format!("migration {} brings a VM here; try again when it has arrived", lock.name);
            return Ok(Word::Later(why));
        }
    }
    // What does not run anywhere, or not here, loses nothing by going.
    if name != status.pod_name || !is_of(&pod, &vm) || !status.phase.is_some_and(Phase::is_alive) {
        return Ok(Word::Pass);
    }
    move_away(client, request, &pod, &vm).await
}

/// A migration goes on: what it waits for, if it waits.
fn under_way(migration: &str, pod: &str, status: &VirtualMachineMigrationStatus) -> Word {
    moved_by(migration, pod, if status.message.is_empty() { "try again" } else { &status.message })
}

fn moved_by(migration: &str, pod: &str, why: &str) -> Word {
    Word::Later(format!("migration {migration} moves the VM of pod {pod}: {why}"))
}

/// Whether the pod is this VM's, and not that of an earlier one of its name. The VM has just arrived in a pod that its migration
/// controls: the status names the pod before the pod's owners are written.
fn is_of(pod: &Pod, vm: &VirtualMachine) -> bool {
    machine_of(&pod.metadata).is_some_and(|(_, uid)| vm.metadata.uid.as_ref() == Some(&uid))
}

/// Ensures that a migration of the VM exists. One migration for each pod, by name, however often the eviction is tried.
async fn move_away(
    client: &Client,
    request: &Request,
    pod: &Pod,
    vm: &VirtualMachine,
) -> Result<Word, kube::Error> {
    let migrations: Api<VirtualMachineMigration> = Api::namespaced(client.clone(), &request.namespace);
    let home = pod.name_any();
    let name = format!("evict-{home}");
    let later = |why: &str| Ok(moved_by(&name, &home, why));
    let last = found(migrations.get(&name)).await?;
    if let Some(last) = &last {
        let status = last.status.clone().unwrap_or_default();
        if status.phase != Some(MigrationPhase::Failed) {
            return Ok(under_way(&name, &home, &status));
        }
        let since = status.completion_time.map_or(0, |time| time.unix());
        if now().unix() < since.saturating_add(PAUSE) {
            let why =
                format!("the last try has failed ({}: {}); another follows", status.reason, status.message);
            return later(&why);
        }
    }
    if vm.spec.is_paused() {
        let why = format!("it is paused; resume it: neonctl vm resume {}", vm.name_any());
        return Ok(stays(vm, &why));
    }
    if let Some(why) = vm.status.as_ref().and_then(VirtualMachineStatus::pinned_by) {
        return Ok(stays(vm, &why));
    }
    let nodes = crate::cluster::nodes(client).await?;
    // The pod of a VM that came by a migration may not be where the VM came from; the next one may.
    let mut next = pod.clone();
    if let Some(spec) = &mut next.spec {
        neonvm_core_vm_lifecycle::pod::placement(vm).put(spec);
    }
    if let Some(why) = elsewhere::nowhere(&next, &nodes) {
        return Ok(stays(vm, &why));
    }
    // An eviction that is refused leaves no trace in the API: no condition, no event; and a dry run that the controller
    // sent itself would only show that the API server calls webhooks. What the API does show is that the pod is to
    // leave its node: a drain cordons the node first, an autoscaler of nodes taints it. A client that may do that may
    // also migrate the node's VMs, so the request has no effect that was not decided already, whichever client sends
    // it.
    if !request.proved && !elsewhere::is_to_leave(pod, &nodes) {
        return Ok(Word::Later(format!(
            "it is not known who requests the eviction of VM {}, and its node is not being drained: cordon the node, or \
             let the API server show webhooks a client certificate (flag --webhook-client-ca-file of vm-controller)",
            vm.name_any()
        )));
    }
    if request.dry_run {
        return later("it would be made");
    }
    if let Some(last) = last {
        // It has this pod's name, has failed, and is replaced for the same eviction. Others stay: the leader tidies them up.
        found(migrations.delete(&name, &only(&last.metadata))).await?;
        return later("it is started again");
    }
    let mut wanted = VirtualMachineMigration::new(&name, VirtualMachineMigrationSpec::new(vm.name_any()));
    let labels = [(label::CREATED_BY_EVICTION.to_owned(), "true".to_owned())];
    wanted.metadata.labels = Some(labels.into());
    let params: PostParams = posting();
    match within(migrations.create(&params, &wanted)).await {
        Ok(_) => later("it has begun"),
        Err(error) if is_conflict(&error) => later("it has begun"),
        Err(kube::Error::Api(refused)) if matches!(refused.code, 400 | 403 | 404 | 422) => {
            tracing::warn!(pod = home, error = %refused.message, "an evicted VM cannot be migrated");
            Ok(stays(vm, &refused.message))
        }
        Err(error) => Err(error),
    }
}

/// The response about a VM that cannot be migrated.
fn stays(vm: &VirtualMachine, why: &str) -> Word {
    let vm = vm.name_any();
    Word::Later(format!(
        "VM {vm} cannot be migrated and is not stopped by an eviction: {why}; to stop it here, delete its pod"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_the_vms_from_the_moment_of_the_switchover() {
        let vm: VirtualMachine = serde_json::from_value(json!({"apiVersion": "vm.neon.tech/v1",
            "kind": "VirtualMachine", "metadata": {"name": "db", "uid": "u"}, "spec": {"guest": {
                "cpus": {"min": 1, "max": 1, "use": 1}, "memorySlots": {"min": 1, "max": 1, "use": 1},
                "rootDisk": {"image": "i"}}}}))
        .unwrap();
        let is_of_vm = |owners: Value| {
            let pod = json!({"metadata": {"name": "p", "namespace": "n", "ownerReferences": owners}});
            is_of(&serde_json::from_value(pod).unwrap(), &vm)
        };
        let reference = |kind: &str, uid: &str, controller: bool| {
            json!({"apiVersion": "vm.neon.tech/v1", "kind": kind, "name": "db", "uid": uid,
                "controller": controller})
        };
        assert!(is_of_vm(json!([reference("VirtualMachine", "u", true)])));
        // As a migration makes it.
        let mover = reference("VirtualMachineMigration", "m", true);
        assert!(is_of_vm(json!([mover, reference("VirtualMachine", "u", false)])));
        assert!(!is_of_vm(json!([reference("VirtualMachine", "earlier", true)])));
        assert!(!is_of_vm(json!([])));
    }
}
