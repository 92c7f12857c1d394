//! What ends a wait before its time: signs that only another command, another spec or an administrator removes. One table for every
//! command that waits. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use neonvm_api::names::{QUOTA_EXCEEDED, TRUE, label};
use neonvm_api::virtual_machine::{Phase, RestartPolicy};
use neonvm_api::{PodAutoscaler, VirtualMachine};

use super::resource::name_of;
use super::vm::table::failing;
use super::vm::waiting::state;
use super::watching::WaitProgress;
use crate::error::{Code, Error};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// A VM that runs: `create`, `start`, `restart`, `set --restart`, `run`.
    Up,
    Paused,
    Suspended,
    Resumed,
    /// A VM with a size: `scale`, `wait`.
    Size,
    Ready,
    /// Pods of a service: `install`, `upgrade`.
    Service,
}

use Awaited::{Paused, Ready, Resumed, Service, Size, Suspended, Up};

/// How it is recognised that the wait cannot succeed.
enum Sign {
    /// A condition of this type and status, with one of the reasons and one of the words in its message. Empty: with any.
    Condition(&'static str, &'static str, &'static [&'static str], &'static [&'static str]),
    /// Something else of a VM; returns the cause.
    Vm(fn(&VirtualMachine) -> Option<String>),
    /// What a pod waits for contains one of these.
    Pod(&'static [&'static str]),
}

use Sign::{Condition as Is, Pod, Vm};

struct Final {
    ends: &'static [Awaited],
    sign: Sign,
    /// What is the matter, after the name of the object. IMAGE stands for the image that the cause names.
    what: &'static str,
    /// What to do. NAME and NAMESPACE stand for those of the object.
    hint: &'static str,
}

const fn row(ends: &'static [Awaited], sign: Sign, what: &'static str, hint: &'static str) -> Final {
    Final { ends, sign, what, hint }
}

/// Words of the API server and of admission about an object that is refused each time. A webhook that does not answer is not one.
const REFUSED: &[&str] = &["is forbidden", "forbidden:", "is invalid", "denied the request"];
/// Reports of a kubelet about an image that it cannot pull.
pub(super) const UNPULLABLE: &[&str] =
    &["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"];
/// Reports about an image of a service that a registry refuses or does not have. A registry that is away may come back.
const REFUSED_IMAGES: &[&str] = &[
    "InvalidImageName",
    "ErrImageNeverPull",
    "pull access denied",
    "authorization failed",
    "manifest unknown",
    ": not found",
    "401 Unauthorized",
    "403 Forbidden",
];

const TABLE: &[Final] = &[
    row(
        &[Up, Paused, Suspended, Resumed, Size],
        Vm(deleting),
        "is being deleted",
        "list what is left: neonctl vm list",
    ),
    row(
        &[Up],
        Is("Degraded", "True", &[QUOTA_EXCEEDED], &[]),
        "does not start: a quota of its namespace is exhausted",
        "it starts when the quota allows it: kubectl describe resourcequota -n NAMESPACE; or delete it: neonctl vm delete NAME",
    ),
    row(
        &[Up],
        Is("Degraded", "True", &["PodFailed", "SecretFailed", "ActionFailed"], REFUSED),
        "does not start: the cluster refuses an object of it",
        "correct the policy that refuses it, or delete the VM: neonctl vm delete NAME",
    ),
    row(
        &[Up],
        Is("Degraded", "True", &["InvalidSpec"], &[]),
        "does not start: its spec cannot be carried out",
        "correct it: kubectl edit neonvm NAME -n NAMESPACE",
    ),
    row(
        &[Up],
        Is("Degraded", "True", &["PodNotStarting"], UNPULLABLE),
        "does not start: IMAGE cannot be pulled",
        "correct the name and begin again: neonctl vm delete NAME; it starts by itself if the image appears",
    ),
    row(
        &[Up],
        Is("Degraded", "True", &["StartFailure"], &["there is no image /vm/rootdisk/"]),
        "does not start: its image has no disk of a VM",
        "make one of it: neonctl vm build --from IMAGE -t IMAGE-WITH-DISK --push; delete this one: neonctl vm delete NAME",
    ),
    row(
        &[Up],
        Is("Degraded", "True", &[], &["not started again until the spec changes"]),
        "failed, and is not started again",
        "see its last lines: neonctl vm logs NAME --previous",
    ),
    row(&[Up], Vm(failed_for_good), "failed to start", "see its last lines: neonctl vm logs NAME --previous"),
    row(&[Up], Vm(workload), "runs, but its workload does not", "see what it wrote: neonctl vm logs NAME"),
    row(
        &[Paused, Resumed],
        Is("Degraded", "True", &["PauseFailed"], &[]),
        "cannot be paused or resumed",
        "a runner of an older version cannot: neonctl vm migrate NAME, or neonctl vm restart NAME",
    ),
    row(
        &[Suspended],
        Is("Degraded", "True", &["SuspendFailed"], &[]),
        "cannot be suspended",
        "the message names the cause; a runner of an older version cannot: neonctl vm migrate NAME, or neonctl vm restart NAME",
    ),
    row(&[Suspended], Vm(ended), "has ended before it was suspended", "see why: neonctl vm describe NAME"),
    row(&[Paused], Vm(ended), "has ended before it was paused", "see why: neonctl vm describe NAME"),
    row(&[Paused, Suspended, Resumed], Vm(stopped), "is stopped", "start it: neonctl vm start NAME"),
    row(
        &[Size],
        Vm(ended),
        "did not reach its size, which it has when it is started",
        "start it: neonctl vm start NAME",
    ),
    row(
        &[Size],
        Is("Scaled", "False", &["Paused"], &[]),
        "did not reach its size: it is paused",
        "resume it: neonctl vm resume NAME",
    ),
    row(
        &[Size],
        Vm(too_large),
        "did not reach its size: its node is too small",
        "migrate it to a larger node: neonctl vm migrate NAME",
    ),
    row(
        &[Size],
        Is("Scaled", "False", &["ResizeUnsupported", "ResizeForbidden", "InvalidSpec"], &[]),
        "did not reach its size: it cannot have it",
        "see the details: neonctl vm describe NAME",
    ),
    row(
        &[Ready],
        Is("ValidSpec", "False", &[], &[]),
        "will not be ready: its spec is not valid",
        "correct the object: kubectl edit podautoscaler NAME -n NAMESPACE",
    ),
    row(
        &[Ready],
        Is("MultiPodAutoscalerConflict", "False", &[], &[]),
        "will not be ready: another one scales its target",
        "delete one of them: kubectl delete podautoscaler NAME -n NAMESPACE",
    ),
    row(
        &[Service],
        Pod(REFUSED_IMAGES),
        "does not start: IMAGE cannot be pulled",
        "correct the registry, or its password; then run the same command again",
    ),
    row(
        &[Service],
        Pod(REFUSED),
        "does not start: the cluster refuses its pods",
        "correct the policy or the quota; then run the same command again",
    ),
];

fn deleting(vm: &VirtualMachine) -> Option<String> {
    vm.metadata.deletion_timestamp.as_ref().map(|_| state(vm))
}

fn phase(vm: &VirtualMachine) -> Option<Phase> {
    vm.status.as_ref().and_then(|status| status.phase)
}

fn failed_for_good(vm: &VirtualMachine) -> Option<String> {
    let is_final = vm.spec.restart_policy == RestartPolicy::Never;
    (phase(vm) == Some(Phase::Failed) && is_final).then(|| state(vm))
}

fn workload(vm: &VirtualMachine) -> Option<String> {
    let runs = matches!(phase(vm), Some(Phase::Running | Phase::Scaling));
    (runs && failing(vm).is_some()).then(|| state(vm))
}

fn ended(vm: &VirtualMachine) -> Option<String> {
    matches!(phase(vm), Some(Phase::Succeeded | Phase::Failed)).then(|| state(vm))
}

fn stopped(vm: &VirtualMachine) -> Option<String> {
    vm.spec.is_stopped().then(|| state(vm))
}

/// A VM that the controller may migrate to a larger node is waited for.
fn too_large(vm: &VirtualMachine) -> Option<String> {
    let labels = vm.metadata.labels.as_ref();
    let migrates = labels.and_then(|labels| labels.get(label::AUTO_MIGRATION_ENABLED));
    let status = vm.status.as_ref()?;
    let infeasible =
        |one: &&Condition| one.type_ == "Scaled" && one.status == "False" && one.reason == "ResizeInfeasible";
    let found = status.conditions.iter().find(infeasible)?;
    migrates.is_none_or(|value| value != TRUE).then(|| found.message.clone())
}

/// What is looked at.
struct Seen<'a> {
    name: &'a str,
    namespace: &'a str,
    conditions: &'a [Condition],
    vm: Option<&'a VirtualMachine>,
    pod: &'a str,
}

fn has(words: &[&str], text: &str) -> bool {
    words.is_empty() || words.iter().any(|word| text.contains(word))
}

impl Seen<'_> {
    /// The cause if the sign is there.
    fn shows(&self, sign: &Sign) -> Option<String> {
        match sign {
            Is(kind, status, reasons, words) => {
                let is_it = |one: &&Condition| {
                    let known = reasons.is_empty() || reasons.contains(&one.reason.as_str());
                    one.type_ == *kind && one.status == *status && known && has(words, &one.message)
                };
                let found = self.conditions.iter().find(is_it)?;
                Some(if found.message.is_empty() { &found.reason } else { &found.message }.clone())
            }
            Vm(sign) => sign(self.vm?),
            Pod(words) => has(words, self.pod).then(|| self.pod.to_owned()),
        }
    }

    fn ending(&self, awaited: Awaited) -> Option<Error> {
        let mut rows = TABLE.iter().filter(|row| row.ends.contains(&awaited));
        let (row, cause) = rows.find_map(|row| Some((row, self.shows(&row.sign)?)))?;
        let image = self.vm.map_or_else(|| "an image".to_owned(), |vm| image(vm, &cause));
        let what = row.what.replace("IMAGE", &image);
        let hint = row.hint.replace("NAMESPACE", self.namespace).replace("NAME", self.name);
        Some(Error::new(Code::Conflict, format!("{} {what}", self.name)).cause(cause).hint(hint))
    }
}

/// The image of a VM that a kubelet complains about.
fn image(vm: &VirtualMachine, cause: &str) -> String {
    let guest = &vm.spec.guest;
    let kernel = guest.kernel_image.as_deref().unwrap_or_default();
    match (kernel.is_empty(), cause.contains(kernel), cause.contains(&guest.root_disk.image)) {
        (false, true, _) => format!("its kernel image {kernel:?}"),
        (_, _, true) => format!("its image {:?}", guest.root_disk.image),
        _ => "an image".to_owned(),
    }
}

pub(super) fn of_vm(awaited: Awaited, vm: &VirtualMachine) -> WaitProgress {
    let seen = Seen {
        name: name_of(vm),
        namespace: vm.metadata.namespace.as_deref().unwrap_or("default"),
        conditions: vm.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default(),
        vm: Some(vm),
        pod: "",
    };
    seen.ending(awaited).map_or(WaitProgress::NotYet, WaitProgress::Never)
}

pub(super) fn of_autoscaler(object: &PodAutoscaler) -> WaitProgress {
    let seen = Seen {
        name: name_of(object),
        namespace: object.metadata.namespace.as_deref().unwrap_or("default"),
        conditions: object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default(),
        vm: None,
        pod: "",
    };
    seen.ending(Ready).map_or(WaitProgress::NotYet, WaitProgress::Never)
}

/// Why a service will not start, by what one of its pods, or the service without pods, waits for.
pub(super) fn of_service(name: &str, waits_for: &str) -> Option<Error> {
    Seen { name, namespace: "", conditions: &[], vm: None, pod: waits_for }.ending(Service)
}

#[cfg(test)]
mod tests;
