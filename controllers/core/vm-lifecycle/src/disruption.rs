//! A pod that Kubernetes took away from its VM: the condition `DisruptionTarget`.

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use neonvm_types::runner_protocol::{Exit, ExitReason};

/// The pod that got the room, which the condition does not name.
const OTHER_POD: &str = "a pod of higher priority";

/// The end of a pod as what caused it, if Kubernetes did. What the runner reports of it alone looks like a stop on request. A guest
/// that ended by itself keeps its own reason.
pub(crate) fn explained(exit: Exit, pod: &Pod) -> Exit {
    use ExitReason as E;
    if !matches!(exit.reason, E::Stopped | E::StoppedByForce | E::RunnerKilled | E::StartFailure | E::Unknown)
    {
        return exit;
    }
    let Some((reason, why)) = disruption(pod) else { return exit };
    Exit { reason, message: format!("{why}: {}", exit.message), ..exit }
}

/// Names the pod for which the scheduler preempted this one, in the message of an end that has no name yet.
pub fn name_preemptor(exit: &mut Exit, preemptor: &str) {
    exit.message = exit.message.replacen(OTHER_POD, &format!("pod {preemptor}"), 1);
}

/// UID and node of the other pod, by the note of the scheduler's event. That of Kubernetes 1.36 names the pod in no other way.
#[must_use]
pub fn preemptor(note: &str) -> Option<(&str, &str)> {
    let (uid, node) = note.strip_prefix("Preempted by pod ")?.split_once(" on node ")?;
    Some((uid, node.split(' ').next().unwrap_or_default()))
}

/// Whether the pod was preempted, and the end does not name for which other one.
#[must_use]
pub fn lacks_preemptor(exit: &Exit) -> bool {
    exit.reason == ExitReason::Preempted && exit.message.contains(OTHER_POD)
}

/// The condition, if Kubernetes takes the pod away.
pub(crate) fn condition(pod: &Pod) -> Option<&PodCondition> {
    let holds = |one: &&PodCondition| one.type_ == "DisruptionTarget" && one.status == "True";
    pod.status.as_ref()?.conditions.iter().flatten().find(holds)
}

/// Reasons are those of Kubernetes 1.31 to 1.36.
fn disruption(pod: &Pod) -> Option<(ExitReason, String)> {
    let status = pod.status.as_ref()?;
    let condition = condition(pod)?;
    let details = status.message.as_deref().or(condition.message.as_deref()).unwrap_or_default().trim();
    let with = |text: &str| if details.is_empty() { text.to_owned() } else { format!("{text} ({details})") };
    Some(match condition.reason.as_deref()? {
        "PreemptionByScheduler" => {
            (ExitReason::Preempted, format!("preempted by the scheduler for {OTHER_POD}"))
        }
        // The kubelet removes pods for a critical one that it must admit.
        "TerminationByKubelet"
            if status.reason.as_deref() == Some("Preempting") || details.contains("critical pod") =>
        {
            (ExitReason::Preempted, with("preempted by the kubelet for a critical pod"))
        }
        "TerminationByKubelet" => (ExitReason::Evicted, with("evicted by the kubelet")),
        "EvictionByEvictionAPI" => (ExitReason::Evicted, with("evicted through the API")),
        "DeletionByTaintManager" => (ExitReason::Evicted, with("evicted by a taint of its node")),
        "DeletionByPodGC" => (ExitReason::NodeLost, "its node is gone".to_owned()),
        _ => return None,
    })
}
