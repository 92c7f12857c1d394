//! Hooks of backups: annotations by which Velero runs commands in a pod before and after it copies the pod's volumes.
//!
//! The commands freeze and thaw the guest's file systems by the socket of the runner, without any right. A guest that cannot be frozen is
//! backed up as it is, and the backup reports it (`on-error`).

use neonvm_api::VirtualMachine;
use neonvm_api::names::RUNNER_CONTAINER;
use neonvm_api::runner_pod::COMMAND;

/// How the keys begin.
const BEFORE: &str = "pre.hook.backup.velero.io";
const AFTER: &str = "post.hook.backup.velero.io";
/// Most seconds for which writes of the guest wait. A snapshot is cut within seconds; one that takes longer is not worth an outage.
const SECONDS: u32 = 60;
/// Time for a command: what is in the guest's memory is written back first.
const TIMEOUT: &str = "70s";

/// Whether an annotation is one of a hook.
pub(super) fn is_one(key: &str) -> bool {
    [BEFORE, AFTER]
        .into_iter()
        .any(|prefix| key.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/')))
}

/// The annotations of the pod of a VM that writes to volumes; none for others, which have nothing to copy.
pub(super) fn annotations(vm: &VirtualMachine) -> Vec<(String, String)> {
    let name = vm.metadata.name.as_deref().unwrap_or_default();
    if !vm.spec.claims(name).any(|(disk, _)| !disk.read_only) {
        return Vec::new();
    }
    let seconds = SECONDS.to_string();
    let orders: [(&str, &[&str]); 2] = [(BEFORE, &["freeze", "--seconds", &seconds]), (AFTER, &["thaw"])];
    let hook = |(prefix, order): (&str, &[&str])| {
        let command: Vec<&str> = COMMAND.iter().chain(order).copied().collect();
        let command = serde_json::to_string(&command).unwrap_or_default();
        [
            (format!("{prefix}/container"), RUNNER_CONTAINER.to_owned()),
            (format!("{prefix}/command"), command),
            (format!("{prefix}/on-error"), "Continue".to_owned()),
            (format!("{prefix}/timeout"), TIMEOUT.to_owned()),
        ]
    };
    orders.into_iter().flat_map(hook).collect()
}
