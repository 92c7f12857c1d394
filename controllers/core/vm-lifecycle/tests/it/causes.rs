//! What a kubelet and Kubernetes' own controllers write into a pod reaches the VM's conditions.

use k8s_openapi::api::core::v1::Pod;
use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::Phase;
use neonvm_core_vm_lifecycle::condition::{AVAILABLE, CRASH_LOOP, DEGRADED, ROOT_DISK_COPIED, find};
use neonvm_core_vm_lifecycle::disruption::{lacks_preemptor, name_preemptor, preemptor};
use neonvm_core_vm_lifecycle::{Outcome, PodView, RunnerView, step};
use neonvm_types::runner_protocol::{Problem, ProblemReason, RunnerState, RunnerStatus};
use serde_json::{Value, json};

use crate::machine::{at, pod, settings, vm};
use crate::observations::observed;

const NOW: i64 = 10_000;

/// The pod with this status, as the controller sees it.
fn view(deleted: bool, status: &Value) -> PodView {
    let mut object = json!({
        "metadata": {"name": "db-old", "uid": "uid-db-old"},
        "spec": {"nodeName": "n1", "containers": []},
        "status": status,
    });
    if deleted {
        object["metadata"]["deletionTimestamp"] = json!("1970-01-01T02:46:50Z");
    }
    let read = PodView::from_pod(&serde_json::from_value::<Pod>(object).unwrap(), "us");
    let plan = pod(&vm(), "db-old");
    PodView { labels: plan.labels, annotations: plan.annotations, controller: plan.controller, ..read }
}

fn container(state: &Value) -> Value {
    json!([{"name": "neonvm-runner", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state}])
}

fn after(phase: Phase, seen: PodView) -> Outcome {
    let mut vm: VirtualMachine = vm();
    let status = vm.status.get_or_insert_default();
    (status.phase, status.pod_name) = (Some(phase), "db-old".into());
    step(at(NOW), &vm, &observed(Some(seen), RunnerView::Unknown), &settings())
}

fn condition(outcome: &Outcome, kind: &str) -> (String, String, String) {
    let found = find(&outcome.status, kind).unwrap();
    (found.status.clone(), found.reason.clone(), found.message.clone())
}

#[test]
fn a_root_disk_that_is_copied_is_reported() {
    let pod = |state: Value| {
        let object = json!({"metadata": {"name": "db-old", "uid": "u"}, "spec": {"nodeName": "n1", "containers": [],
            "initContainers": [{"name": "copy-rootdisk"}]}, "status": {"phase": "Pending", "initContainerStatuses": [
            {"name": "copy-rootdisk", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state}]}});
        let read = PodView::from_pod(&serde_json::from_value::<Pod>(object).unwrap(), "us");
        PodView { controller: self::pod(&vm(), "db-old").controller, ..read }
    };
    let copying = after(Phase::Pending, pod(json!({"running": {}})));
    assert_eq!(condition(&copying, ROOT_DISK_COPIED).1, "Copying");
    assert_eq!(condition(&copying, AVAILABLE).2, "init container copy-rootdisk runs");
    let copied = after(Phase::Pending, pod(json!({"terminated": {"exitCode": 0}})));
    assert_eq!(condition(&copied, ROOT_DISK_COPIED).0, "True");
    let failed = after(Phase::Pending, pod(json!({"terminated": {"exitCode": 1}})));
    assert_eq!(condition(&failed, ROOT_DISK_COPIED).0, "False");
    let mounted = after(Phase::Pending, view(false, &json!({"phase": "Pending"})));
    assert!(find(&mounted.status, ROOT_DISK_COPIED).is_none());
}

#[test]
fn an_image_that_cannot_be_pulled_degrades_the_vm() {
    let waiting = json!({"waiting": {"reason": "ErrImagePull", "message": "db:17: not found"}});
    let outcome = after(
        Phase::Pending,
        view(false, &json!({"phase": "Pending", "containerStatuses": container(&waiting)})),
    );
    let message = "ErrImagePull: db:17: not found".to_owned();
    assert_eq!(condition(&outcome, DEGRADED), ("True".into(), "PodNotStarting".into(), message.clone()));
    assert_eq!(condition(&outcome, AVAILABLE).2, message);
    let events = outcome.events.iter().filter(|note| note.message == message).count();
    assert_eq!(events, 1, "{:?}", outcome.events);
    // A container that is being made is none that fails.
    let waiting = json!({"waiting": {"reason": "ContainerCreating"}});
    let outcome = after(
        Phase::Pending,
        view(false, &json!({"phase": "Pending", "containerStatuses": container(&waiting)})),
    );
    assert_eq!(condition(&outcome, DEGRADED).0, "False");
}

/// Files that cannot be sent keep the workload from starting; so does a workload that cannot.
#[test]
fn what_keeps_a_guest_from_coming_up_degrades_the_vm_while_it_boots() {
    let booting = |reason: ProblemReason| {
        let mut vm: VirtualMachine = vm();
        let status = vm.status.get_or_insert_default();
        (status.phase, status.pod_name) = (Some(Phase::Pending), "db-old".into());
        let problems = vec![Problem { reason, message: "in its words".into() }];
        let runner = RunnerStatus { state: RunnerState::Booting, problems, ..RunnerStatus::default() };
        let running = json!({"phase": "Running", "containerStatuses": container(&json!({"running": {}}))});
        let seen = observed(Some(view(false, &running)), RunnerView::Seen(Box::new(runner)));
        step(at(NOW), &vm, &seen, &settings())
    };
    use ProblemReason::{FilesNotSynchronised, NodeServiceAway, WorkloadNotStarted};
    for reason in [FilesNotSynchronised, WorkloadNotStarted, NodeServiceAway] {
        let found = condition(&booting(reason), DEGRADED);
        let expected = ("True", format!("{reason:?}"), "in its words");
        assert_eq!((found.0.as_str(), found.1, found.2.as_str()), expected);
    }
    // Sizes are a matter of guests that are up.
    assert_eq!(condition(&booting(ProblemReason::MemoryNotReleased), DEGRADED).0, "False");
}

#[test]
fn a_runner_that_never_started_was_not_killed() {
    let error = json!({"terminated": {"exitCode": 128, "reason": "StartError", "startedAt": "1970-01-01T00:00:00Z",
        "message": "exec: \"neonvm-runner\": executable file not found in $PATH"}});
    let waiting = json!({"waiting": {"reason": "ContainerCreating"}});
    let statuses = [
        (json!({"phase": "Failed", "containerStatuses": container(&error)}), "StartError: exec:"),
        (
            json!({"phase": "Failed", "containerStatuses": container(&waiting), "reason": "DeadlineExceeded"}),
            "DeadlineExceeded",
        ),
        (
            json!({"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}),
            "enough resource: cpu",
        ),
    ];
    for (status, part) in statuses {
        let exit = view(false, &status).ended.unwrap();
        assert_eq!(exit.reason.as_str(), "StartFailure", "{}", exit.message);
        assert!(exit.message.contains(part), "{}", exit.message);
    }
    let killed =
        json!({"terminated": {"exitCode": 137, "reason": "OOMKilled", "startedAt": "2026-01-01T00:00:00Z"}});
    let exit =
        view(false, &json!({"phase": "Failed", "containerStatuses": container(&killed)})).ended.unwrap();
    assert_eq!(exit.reason.as_str(), "RunnerKilled");
}

/// The runner reports a stop on request; who requested it is in the pod. Such a VM starts again under `OnFailure`, at once.
#[test]
fn a_pod_that_kubernetes_took_away_was_not_stopped_on_request() {
    let end = |reason: &str| {
        let message = json!({"reason": reason, "message": "the guest powered off as asked"}).to_string();
        container(
            &json!({"terminated": {"exitCode": 0, "message": message, "startedAt": "2026-01-01T00:00:00Z"}}),
        )
    };
    let status = |end: &Value, reason: &str, more: &Value| {
        let mut status = json!({"phase": "Failed", "containerStatuses": end, "conditions": [{"type": "DisruptionTarget",
            "status": "True", "reason": reason, "lastTransitionTime": null}]});
        status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        status
    };
    let stopped = end("Stopped");
    let low = json!({"reason": "Evicted", "message": "The node was low on resource: memory."});
    let critical = json!({"reason": "Preempting", "message": "Preempted in order to admit critical pod"});
    for (reason, more, expected, part) in [
        ("PreemptionByScheduler", json!({}), "Preempted", "by the scheduler for a pod of higher priority"),
        ("TerminationByKubelet", critical, "Preempted", "admit critical pod"),
        ("TerminationByKubelet", low, "Evicted", "low on resource: memory"),
        ("EvictionByEvictionAPI", json!({}), "Evicted", "through the API"),
        ("DeletionByTaintManager", json!({}), "Evicted", "by a taint"),
        ("DeletionByPodGC", json!({}), "NodeLost", "its node is gone"),
    ] {
        let outcome = after(Phase::Running, view(true, &status(&stopped, reason, &more)));
        let last = outcome.status.last_exit.clone().unwrap();
        assert_eq!(last.reason, expected, "{reason}");
        assert!(last.message.contains(part), "{}", last.message);
        assert!(last.message.ends_with("the guest powered off as asked"), "{}", last.message);
        assert_eq!(outcome.status.phase, Some(Phase::Failed), "{reason}");
        assert!(find(&outcome.status, CRASH_LOOP).is_none(), "{reason}");
        let event = if expected == "NodeLost" { "Failed" } else { expected };
        assert!(outcome.events.iter().any(|note| note.reason.as_str() == event), "{reason}");
    }
    let mut exit = view(true, &status(&stopped, "PreemptionByScheduler", &json!({}))).ended.unwrap();
    assert!(lacks_preemptor(&exit));
    name_preemptor(&mut exit, "kube-system/dns");
    assert!(
        exit.message.starts_with("preempted by the scheduler for pod kube-system/dns: "),
        "{}",
        exit.message
    );
    assert!(!lacks_preemptor(&exit));
    assert_eq!(preemptor("Preempted by pod a7fc-1 on node n1.example"), Some(("a7fc-1", "n1.example")));
    assert_eq!(
        preemptor("Preempted by pod a7fc-1 on node n1 (in kube-scheduler memory)."),
        Some(("a7fc-1", "n1"))
    );
    assert_eq!(preemptor("Preempted by a pod on node n1"), None);
    for (end, reason) in [(end("WorkloadEnded"), "PreemptionByScheduler"), (stopped, "SomethingNew")] {
        let outcome = after(Phase::Running, view(true, &status(&end, reason, &json!({}))));
        let last = outcome.status.last_exit.unwrap().reason;
        assert!(["WorkloadEnded", "Stopped"].contains(&last.as_str()), "{last}");
    }
}

#[test]
fn a_lost_node_is_no_shutdown() {
    let running = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
    let taint = json!([{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": null}]);
    let lost = json!({"phase": "Running", "conditions": taint, "containerStatuses": container(&running)});
    let outcome = after(Phase::Running, view(true, &lost));
    let (status, reason, message) = condition(&outcome, AVAILABLE);
    assert_eq!((status.as_str(), reason.as_str()), ("Unknown", "NodeLost"));
    assert!(message.starts_with("node n1 is not reached"), "{message}");
    // A deletion by a person is a shutdown.
    let asked = json!({"phase": "Running", "containerStatuses": container(&running)});
    let outcome = after(Phase::Running, view(true, &asked));
    assert_eq!(condition(&outcome, AVAILABLE).1, "Stopped");
}
