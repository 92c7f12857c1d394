//! Why a service is not ready: the state of its pods, or why it has none.

use neonvm_deploy::Named;
use serde_json::Value;

use super::apply;
use crate::commands::finals;
use crate::commands::object::{condition, is_true, items, text};
use crate::connect::Connection;
use crate::error::Error;

/// Waiting that needs no explanation.
const USUAL: [&str; 2] = ["ContainerCreating", "PodInitializing"];
/// Last lines of a container that are shown.
const LINES: u32 = 3;
/// Pods of a service that are named: the others mostly have the same trouble.
const PODS: usize = 3;

/// Why a pod, or a workload without pods, is not ready.
pub(super) struct Reason {
    /// `pod NAME`, or the name of the workload.
    of: String,
    text: String,
}

impl Reason {
    fn new(of: &str, text: &str) -> Self {
        Self { of: of.to_owned(), text: text.to_owned() }
    }
}

/// The reasons, one a line; those that are the same are one line with the number of pods.
pub(super) fn grouped(reasons: Vec<Reason>) -> Vec<String> {
    let mut groups: Vec<(Vec<String>, String)> = Vec::new();
    for Reason { of, text } in reasons {
        match groups.iter_mut().find(|(_, known)| *known == text) {
            Some((names, _)) => names.push(of),
            None => groups.push((vec![of], text)),
        }
    }
    let line = |(names, text): (Vec<String>, String)| match names.as_slice() {
        [first, _, ..] => format!("{first} and {} more: {text}", names.len() - 1),
        _ => format!("{}: {text}", names.concat()),
    };
    groups.into_iter().map(line).collect()
}

/// What to do where a registry denies an image.
const PASSWORD: &str = "the registry may require a password: create a secret with kubectl create secret docker-registry SECRET -n \
                        NAMESPACE, then run the command again with --set image.pullSecrets='[{name: SECRET}]'";

fn is_denied(reasons: &[Reason]) -> bool {
    let denials =
        ["authorization failed", "pull access denied", "unauthorized", "401 Unauthorized", "403 Forbidden"];
    let needs_password = |reason: &Reason| {
        reason.text.starts_with("ErrImagePull") && denials.iter().any(|denial| reason.text.contains(denial))
    };
    reasons.iter().any(needs_password)
}

pub(super) fn hint(reasons: &[Reason]) -> &'static str {
    if is_denied(reasons) {
        PASSWORD
    } else {
        "the installation continues in the cluster; correct the cause and run the same command again"
    }
}

/// Why a workload is not ready. What cannot be read is left out.
pub(super) async fn reasons(connection: &Connection, workload: &Value) -> Vec<Reason> {
    let (count, pods) = pods(connection, workload).await;
    let mut all = Vec::new();
    for pod in pods.iter().take(PODS) {
        let mut reason = of_pod(pod);
        if let Some(container) = crashed(pod) {
            reason.push_str(&final_lines(connection, pod, container).await);
        }
        all.push(Reason::new(&format!("pod {}", text(pod, "/metadata/name")), &reason));
    }
    if count == 0 {
        let name = text(workload, "/metadata/name");
        all.push(Reason::new(name, &without_pods(connection, workload).await));
    }
    all
}

/// Pods of a workload, and those of them that are not ready. What cannot be read is left out.
async fn pods(connection: &Connection, workload: &Value) -> (usize, Vec<Value>) {
    let (namespace, name) = (text(workload, "/metadata/namespace"), text(workload, "/metadata/name"));
    let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector=app.kubernetes.io%2Fname%3D{name}");
    let mut pods = items(connection, &path).await.unwrap_or_default();
    let count = pods.len();
    pods.retain(|pod| !is_true(pod, "Ready"));
    (count, pods)
}

/// Deletes the pods of a workload whose kubelet pauses between attempts to pull an image, so that new pods pull it at once: the cause may have
/// been corrected since. What cannot be deleted is left.
pub(super) async fn pull_again(connection: &Connection, workload: &Value) {
    let is_paused = |pod: &Value| {
        statuses(pod).any(|status| text(status, "/state/waiting/reason").ends_with("ImagePullBackOff"))
    };
    let (_, pods) = pods(connection, workload).await;
    for pod in pods.iter().filter(|pod| is_paused(pod)) {
        let named = Named { kind: "Pod".to_owned(), api_version: "v1".to_owned(), ..Named::from_object(pod) };
        let _ = apply::delete(connection, &named).await;
    }
}

/// Why a workload will not start, whatever the time limit; nothing if it may.
pub(super) async fn ending(connection: &Connection, workload: &Value) -> Option<Error> {
    let name = text(workload, "/metadata/name");
    let mut all: Vec<Reason> =
        of_workload(workload).map(|text| Reason::new(name, text)).into_iter().collect();
    let (_, pods) = pods(connection, workload).await;
    all.extend(pods.iter().map(|pod| Reason::new(name, &of_pod(pod))));
    let error = all.iter().find_map(|reason| finals::of_service(name, &reason.text))?;
    Some(if is_denied(&all) { error.hint(PASSWORD) } else { error })
}

fn statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    let of = |key: &str| pod.pointer(key).and_then(Value::as_array);
    let init = of("/status/initContainerStatuses").into_iter().flatten();
    init.chain(of("/status/containerStatuses").into_iter().flatten())
}

pub(crate) fn of_pod(pod: &Value) -> String {
    if let Some(found) = condition(pod, "PodScheduled").filter(|found| text(found, "/status") == "False") {
        return format!("it cannot be scheduled: {}", text(found, "/message"));
    }
    for status in statuses(pod) {
        let reason = text(status, "/state/waiting/reason");
        if !reason.is_empty() && !USUAL.contains(&reason) {
            let image = text(status, "/image");
            let message = text(status, "/state/waiting/message");
            // The kubelet alternates between the failed pull and the pause after it, whose message holds the failure.
            let (reason, message) = match message.split_once(": ErrImagePull: ") {
                Some((_, failure)) => ("ErrImagePull", failure),
                None => (reason, message),
            };
            let image = if reason.contains("Image") && !message.contains(image) {
                format!(" {image}")
            } else {
                String::new()
            };
            return format!("{reason}{image}: {message}");
        }
    }
    for status in statuses(pod) {
        let reason = text(status, "/state/terminated/reason");
        if !reason.is_empty() && reason != "Completed" {
            return format!(
                "{} ended: {reason} {}",
                text(status, "/name"),
                text(status, "/state/terminated/message")
            );
        }
    }
    match condition(pod, "Ready").map(|found| text(found, "/message")).filter(|message| !message.is_empty()) {
        Some(message) => message.to_owned(),
        None if text(pod, "/spec/nodeName").is_empty() => "no scheduler has processed it yet".to_owned(),
        None => format!("it is starting on {}", text(pod, "/spec/nodeName")),
    }
}

fn crashed(pod: &Value) -> Option<&str> {
    let is_it = |status: &&Value| {
        text(status, "/state/waiting/reason") == "CrashLoopBackOff"
            || status.pointer("/lastState/terminated").is_some()
    };
    statuses(pod).find(is_it).map(|status| text(status, "/name"))
}

async fn final_lines(connection: &Connection, pod: &Value, container: &str) -> String {
    let (namespace, name) = (text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
    let path = format!(
        "/api/v1/namespaces/{namespace}/pods/{name}/log?container={container}&previous=true&tailLines={LINES}"
    );
    match connection.text(&path).await {
        Ok(lines) if !lines.trim().is_empty() => {
            format!("; its last lines: {}", lines.trim().replace('\n', " | "))
        }
        _ => String::new(),
    }
}

/// Why a workload has no pods, as far as its own object shows it.
pub(crate) fn of_workload(workload: &Value) -> Option<&str> {
    let failure = condition(workload, "ReplicaFailure").filter(|found| text(found, "/status") == "True");
    if let Some(found) = failure {
        return Some(text(found, "/message"));
    }
    let is_new = workload.pointer("/status/observedGeneration").is_none();
    is_new.then_some("no controller has processed it yet; check that kube-controller-manager runs")
}

async fn without_pods(connection: &Connection, workload: &Value) -> String {
    if let Some(reason) = of_workload(workload) {
        return reason.to_owned();
    }
    let (namespace, name) = (text(workload, "/metadata/namespace"), text(workload, "/metadata/name"));
    let path = format!(
        "/api/v1/namespaces/{namespace}/events?fieldSelector=involvedObject.name%3D{name},type%3DWarning"
    );
    let events = items(connection, &path).await.unwrap_or_default();
    match events.last().map(|event| text(event, "/message")) {
        Some(message) if !message.is_empty() => message.to_owned(),
        _ => "it has no pods yet".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_same_reason_is_one_line_and_a_password_has_a_hint() {
        let reason = Reason::new;
        let denied = "ErrImagePull: pull access denied";
        let all = vec![reason("pod a", denied), reason("b", "it has no pods yet"), reason("pod c", denied)];
        assert!(hint(&all).contains("image.pullSecrets"));
        let digest = reason("pod a", "ErrImagePull: r/neond@sha256:3401af: no such host");
        assert!(!hint(&[digest]).contains("image.pullSecrets"));
        assert_eq!(grouped(all), [&format!("pod a and 1 more: {denied}"), "b: it has no pods yet"]);
        assert!(hint(&[reason("a", "it is starting on n1")]).contains("run the same command again"));
    }

    #[test]
    fn the_reason_is_that_of_the_pod() {
        let waiting = |reason: &str, message: &str| {
            of_pod(&json!({"status": {"containerStatuses": [{"name": "agent", "image": "r/neond:1",
                "state": {"waiting": {"reason": reason, "message": message}}}]}, "spec": {"nodeName": "n1"}}))
        };
        assert_eq!(waiting("ImagePullBackOff", "back-off"), "ImagePullBackOff r/neond:1: back-off");
        assert_eq!(waiting("ErrImagePull", "cannot pull r/neond:1"), "ErrImagePull: cannot pull r/neond:1");
        assert_eq!(
            waiting("ImagePullBackOff", "Back-off pulling image \"r/neond:1\": ErrImagePull: no such host"),
            waiting("ErrImagePull", "no such host")
        );
        assert_eq!(waiting("ContainerCreating", ""), "it is starting on n1");
        let unscheduled = json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False",
            "message": "0/2 nodes are available"}]}});
        assert_eq!(of_pod(&unscheduled), "it cannot be scheduled: 0/2 nodes are available");
        let ended = json!({"status": {"containerStatuses": [{"name": "a", "state": {"terminated": {"reason": "Error",
            "message": "x"}}}]}});
        assert_eq!(of_pod(&ended), "a ended: Error x");
        assert_eq!(of_pod(&json!({})), "no scheduler has processed it yet");
        let crashing = json!({"status": {"containerStatuses": [{"name": "a",
            "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}});
        assert_eq!(crashed(&crashing), Some("a"));
    }
}
