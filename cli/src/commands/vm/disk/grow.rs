//! `vm disk grow`

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, Patch, PatchParams};
use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::{Disk, Phase};
use neonvm_types::Bytes;
use serde_json::json;

use super::{capacity, claim_of, requested, used};
use crate::args::vm::DiskGrow;
use crate::commands::flags::duration;
use crate::commands::resource::wait::seconds;
use crate::commands::resource::{NamespaceClient, name_of, nearest};
use crate::commands::vm::size::memory;
use crate::commands::vm::waiting::state;
use crate::commands::watching::{self, WaitProgress};
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::report::{API_VERSION, Document, Report};
use crate::settings::Settings;

/// What is to grow.
struct Goal {
    vm: String,
    disk: String,
    claim: String,
    size: Bytes,
}

pub(super) fn run(settings: &Settings, args: &DiskGrow) -> Result<Report> {
    let size = memory("size", &args.size)?;
    let limit = duration("timeout", &args.waiting.timeout)?;
    block_on(async {
        let started = Instant::now();
        let client = NamespaceClient::open(settings).await?;
        let machine: VirtualMachine = client.find(&args.name).await?;
        let claim = written_claim(&machine, &args.disk)?;
        let goal = Goal { vm: args.name.clone(), disk: args.disk.clone(), claim, size };
        expand(&client, &goal).await?;
        if args.waiting.no_wait {
            return Ok(report(&goal, &format!("growth to {size} requested")));
        }
        until_expanded(&client, &goal, limit).await?;
        let rest = limit.saturating_sub(started.elapsed());
        let (done, note) = until_grown(&client, &goal, rest).await?;
        let took = seconds(started.elapsed());
        let report = report(&goal, &format!("{done} ({took})"));
        Ok(note.into_iter().fold(report, Report::note))
    })
}

fn report(goal: &Goal, done: &str) -> Report {
    let Goal { vm, disk, claim, size } = goal;
    Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "Disk", "vm": vm, "name": disk, "claim": claim, "size": size }),
        names: vec![format!("disk/{disk}")],
        text: Some(format!("virtualmachine/{vm} disk {disk} {done}")),
        ..Document::default()
    })
}

/// The claim of a disk that the guest writes.
fn written_claim(machine: &VirtualMachine, name: &str) -> Result<String> {
    let vm = name_of(machine);
    let list = format!("list its disks: neonctl vm disk list {vm}");
    let Some(disk) = machine.spec.disks.iter().find(|disk| disk.name == name) else {
        let names: Vec<String> = machine.spec.disks.iter().map(|disk| disk.name.clone()).collect();
        let hint = nearest(name, &names).map_or(list, |meant| format!("did you mean {meant:?}?"));
        return Err(Error::new(Code::NotFound, format!("{vm} has no disk {name:?}")).hint(hint));
    };
    let refused = |why: &str, hint: String| {
        Err(Error::new(Code::Conflict, format!("disk {name} of {vm} cannot grow")).cause(why).hint(hint))
    };
    match claim_of(machine, disk) {
        None => refused("it is not on a persistent volume claim", remedy(disk, vm)),
        Some(_) if disk.read_only => {
            refused("it is read-only: nothing in the guest can grow its file system", list)
        }
        Some(claim) => Ok(claim),
    }
}

/// What to do about a disk that is not on a claim.
fn remedy(disk: &Disk, vm: &str) -> String {
    if disk.empty_disk.is_some() {
        let name = &disk.name;
        format!(
            "an empty disk is made again at each start: neonctl vm set {vm} --disk {name}=SIZE:{}",
            disk.mount_path
        )
    } else {
        format!("list the disks and their claims: neonctl vm disk list {vm}")
    }
}

/// Requests the size of the claim, unless it requests it already.
async fn expand(client: &NamespaceClient, goal: &Goal) -> Result<()> {
    let Goal { claim: name, size, .. } = goal;
    let api = client.api::<PersistentVolumeClaim>();
    let found = client.connection.within(&format!("cannot get claim {name}"), api.get_opt(name)).await?;
    let Some(claim) = found else {
        return Err(Error::new(Code::NotFound, format!("claim {name} does not exist"))
            .hint(format!("see what the VM waits for: neonctl vm describe {}", goal.vm)));
    };
    let has = capacity(&claim).or_else(|| requested(&claim)).unwrap_or_default();
    if *size < has {
        return Err(Error::new(
            Code::Usage,
            format!("disk {} has {has}, and does not shrink to {size}", goal.disk),
        )
        .hint(format!("choose a size above {has}")));
    }
    if requested(&claim) == Some(*size) {
        return Ok(());
    }
    let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone()).unwrap_or_default();
    if let Some(false) = allows_expansion(client, &class).await {
        return Err(no_expansion(goal, &class));
    }
    let change = json!({ "spec": { "resources": { "requests": { "storage": size.to_quantity() } } } });
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(change));
    let attempt = format!("cannot expand claim {name}");
    client.connection.within(&attempt, api.patch(name, &parameters, &patch)).await.map(drop)
}

fn no_expansion(goal: &Goal, class: &str) -> Error {
    Error::new(Code::Conflict, format!("disk {} of {} cannot grow", goal.disk, goal.vm))
        .cause(format!("storage class {class} of claim {} does not allow expansion", goal.claim))
        .hint(format!(
            "if its driver can expand volumes, an administrator allows it: kubectl patch storageclass {class} -p \
             '{{\"allowVolumeExpansion\":true}}'"
        ))
}

/// Whether volumes of the class can grow; `None` if that cannot be read.
async fn allows_expansion(client: &NamespaceClient, class: &str) -> Option<bool> {
    if class.is_empty() {
        return None;
    }
    let api: Api<StorageClass> = Api::all(client.connection.client());
    let found = client.connection.within("", api.get_opt(class)).await.ok()??;
    Some(found.allow_volume_expansion.unwrap_or_default())
}

/// Waits until the volume has the size.
async fn until_expanded(client: &NamespaceClient, goal: &Goal, limit: Duration) -> Result<()> {
    let Goal { claim, size, .. } = goal;
    let late = |last: Option<&PersistentVolumeClaim>| {
        let now = last.map_or_else(|| "it does not exist".to_owned(), claim_state);
        Error::new(
            Code::Timeout,
            format!("timed out after {limit:?} waiting for claim {claim} to have {size}: {now}"),
        )
        .hint(format!(
            "the expansion continues; see why: kubectl describe pvc {claim} -n {}",
            client.namespace
        ))
    };
    let look = |seen: Option<&PersistentVolumeClaim>| match seen {
        None => WaitProgress::Never(Error::new(Code::NotFound, format!("claim {claim} was deleted"))),
        Some(seen) if capacity(seen).is_some_and(|has| has >= *size) => WaitProgress::Done,
        Some(_) => WaitProgress::NotYet,
    };
    let detached = || stopped_waiting(goal);
    watching::until(client.api(), (claim, None), limit, detached, late, look).await.map(drop)
}

/// What stands in the way of a volume.
fn claim_state(claim: &PersistentVolumeClaim) -> String {
    let has = capacity(claim).map_or_else(|| "it has no volume".to_owned(), |has| format!("it has {has}"));
    let conditions = claim.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let words = conditions.filter(|one| one.status == "True").map(|one| {
        let message = one.message.as_deref().filter(|text| !text.is_empty());
        message.map_or_else(|| one.type_.clone(), |text| format!("{}: {text}", one.type_))
    });
    std::iter::once(has).chain(words).collect::<Vec<_>>().join("; ")
}

fn stopped_waiting(goal: &Goal) -> Error {
    let Goal { vm, disk, size, .. } = goal;
    Error::new(Code::Interrupted, format!("stopped waiting for disk {disk} of {vm}"))
        .hint(format!("the growth continues; to wait again: neonctl vm disk grow {vm} {disk} {size}"))
}

/// Waits until the guest has the size. What was reached, and what is left for people to do.
async fn until_grown(
    client: &NamespaceClient,
    goal: &Goal,
    limit: Duration,
) -> Result<(String, Option<String>)> {
    let Goal { vm, disk, size, .. } = goal;
    let late = |last: Option<&VirtualMachine>| {
        let now = last.map_or_else(|| "it does not exist".to_owned(), state);
        Error::new(
            Code::Timeout,
            format!("timed out waiting for disk {disk} of {vm} to have {size} in the guest: {now}"),
        )
        .hint(format!("the growth continues; see why: neonctl vm describe {vm}"))
    };
    let detached = || stopped_waiting(goal);
    let look = |seen: Option<&VirtualMachine>| progress(goal, seen);
    let waited = watching::until(client.api(), (vm, None), limit, detached, late, look).await?;
    Ok(waited.object.as_ref().map_or_else(Default::default, |machine| outcome(goal, machine)))
}

/// The next start comes first for a VM that does not run, and for one whose runner reports no disks.
fn is_for_next_start(goal: &Goal, machine: &VirtualMachine) -> bool {
    let phase = machine.status.as_ref().and_then(|status| status.phase);
    let ended = matches!(phase, Some(Phase::Succeeded | Phase::Failed));
    let older = phase == Some(Phase::Running) && used(machine, &goal.disk).is_none() && is_available(machine);
    machine.spec.is_stopped() || ended || older
}

fn is_available(machine: &VirtualMachine) -> bool {
    let mut conditions = machine.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|one| one.type_ == "Available" && one.status == "True")
}

fn progress(goal: &Goal, seen: Option<&VirtualMachine>) -> WaitProgress {
    let Goal { vm, disk, size, .. } = goal;
    let Some(machine) = seen else {
        return WaitProgress::Never(Error::new(Code::NotFound, format!("{vm} was deleted")));
    };
    if used(machine, disk).is_some_and(|has| has >= *size) || is_for_next_start(goal, machine) {
        return WaitProgress::Done;
    }
    if machine.spec.is_paused() {
        let error = Error::new(Code::Conflict, format!("disk {disk} of {vm} did not grow: the VM is paused"));
        return WaitProgress::Never(
            error.hint(format!("it grows when the VM is resumed: neonctl vm resume {vm}")),
        );
    }
    WaitProgress::NotYet
}

fn outcome(goal: &Goal, machine: &VirtualMachine) -> (String, Option<String>) {
    let Goal { vm, disk, size, .. } = goal;
    if used(machine, disk).is_some_and(|has| has >= *size) {
        let mut conditions = machine.status.iter().flat_map(|status| &status.conditions);
        let left = conditions.find(|one| one.type_ == "Degraded" && one.reason == "DiskNotGrown");
        return (format!("grown to {size}"), left.map(|one| one.message.clone()));
    }
    let done = format!("grows to {size} at the next start");
    let runs = machine.status.as_ref().and_then(|status| status.phase).is_some_and(Phase::is_alive);
    let note =
        format!("its runner is of a version that grows no disk of a running VM: neonctl vm restart {vm}");
    (done, (runs && !machine.spec.is_stopped()).then_some(note))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn vm(status: &Value) -> VirtualMachine {
        serde_json::from_value(json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": { "name": "pg" },
            "status": status, "spec": { "disks": [
                { "name": "data", "mountPath": "/data", "persistentVolumeClaim": { "claimName": "c" } },
                { "name": "old", "mountPath": "/old", "readOnly": true, "persistentVolumeClaim": { "claimName": "d" } },
                { "name": "scratch", "mountPath": "/scratch", "emptyDisk": { "size": "1Gi" } }],
                "guest": { "cpus": { "min": 1, "max": 1, "use": 1 }, "rootDisk": { "image": "i" },
                "memorySlots": { "min": 1, "max": 1, "use": 1 } } } }))
        .unwrap()
    }

    fn goal() -> Goal {
        Goal { vm: "pg".into(), disk: "data".into(), claim: "c".into(), size: Bytes::gib(2) }
    }

    fn running(size: Option<&str>) -> Value {
        let mut volume = json!({ "name": "data", "claimName": "c" });
        if let Some(size) = size {
            volume["size"] = json!(size);
        }
        json!({ "phase": "Running", "volumes": [volume], "conditions": [{ "type": "Available", "status": "True",
            "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }] })
    }

    #[test]
    fn only_disks_on_claims_that_are_written_grow() {
        let moved = json!({ "volumes": [{ "name": "data", "claimName": "pg-x-data", "copyOf": "c" }] });
        assert_eq!(written_claim(&vm(&json!({})), "data").unwrap(), "c");
        assert_eq!(written_claim(&vm(&moved), "data").unwrap(), "pg-x-data");
        let why = |name| format!("{:?}", written_claim(&vm(&json!({})), name).unwrap_err());
        assert!(why("dta").contains("did you mean \\\"data\\\"?"), "{}", why("dta"));
        assert!(why("nothing").contains("neonctl vm disk list pg"), "{}", why("nothing"));
        assert!(why("old").contains("it is read-only"), "{}", why("old"));
        let scratch = why("scratch");
        assert!(
            scratch.contains("not on a persistent volume claim") && scratch.contains("scratch=SIZE:/scratch"),
            "{scratch}"
        );
    }

    #[test]
    fn it_has_grown_when_the_guest_has_the_size() {
        let done = |machine: &VirtualMachine| matches!(progress(&goal(), Some(machine)), WaitProgress::Done);
        assert!(!done(&vm(&running(Some("1Gi")))));
        let grown = vm(&running(Some("2Gi")));
        assert!(done(&grown));
        assert_eq!(outcome(&goal(), &grown), ("grown to 2Gi".into(), None));
        let older = vm(&running(None));
        assert!(done(&older));
        let (text, note) = outcome(&goal(), &older);
        assert!(
            text.contains("at the next start") && note.unwrap().contains("neonctl vm restart pg"),
            "{text}"
        );
        let stopped = vm(&json!({ "phase": "Succeeded" }));
        assert!(done(&stopped));
        assert_eq!(outcome(&goal(), &stopped), ("grows to 2Gi at the next start".into(), None));
        let mut paused = vm(&running(Some("1Gi")));
        paused.spec.power_state = Some(neonvm_api::virtual_machine::PowerState::Paused);
        assert!(matches!(progress(&goal(), Some(&paused)), WaitProgress::Never(_)));
        assert!(matches!(progress(&goal(), None), WaitProgress::Never(_)));
    }

    #[test]
    fn a_claim_that_does_not_grow_shows_why() {
        let claim: PersistentVolumeClaim =
            serde_json::from_value(json!({ "status": { "capacity": { "storage": "1Gi" }, "conditions": [
            { "type": "FileSystemResizePending", "status": "True", "message": "waits for a node" },
            { "type": "Resizing", "status": "False" }] } }))
            .unwrap();
        assert_eq!(claim_state(&claim), "it has 1Gi; FileSystemResizePending: waits for a node");
        assert_eq!(claim_state(&PersistentVolumeClaim::default()), "it has no volume");
    }
}
