//! What the controller observes of a VM, for the tests.

use neonvm_core_vm_lifecycle::{Observed, PodView, RunnerView};
use neonvm_types::runner_protocol::{Exit, ExitReason};

pub(crate) fn ended(mut pod: PodView, reason: ExitReason) -> PodView {
    (pod.running, pod.ready) = (false, false);
    pod.ended = Some(Exit::new(reason, "it ended"));
    pod
}

pub(crate) fn observed(pod: Option<PodView>, runner: RunnerView) -> Observed {
    Observed { fresh: true, pod, runner, suffix: "new01".into(), ..Observed::default() }
}
