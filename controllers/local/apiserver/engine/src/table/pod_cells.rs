//! Cells of pods: what their containers did, in one word and a few numbers.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::cells::{list, number, or_none};
use crate::object::{at, is_deleting, text_at};

/// What the columns of a pod are derived from, gathered in one walk over its containers.
struct Summary {
    ready: usize,
    total: usize,
    word: String,
    restarts: i64,
    /// When a container last ended before it was restarted; empty if none did.
    restarted: String,
}

pub(super) fn ready(pod: &Value, _: Timestamp) -> Value {
    let Summary { ready, total, .. } = summary(pod);
    json!(format!("{ready}/{total}"))
}

/// The pod status that kubectl shows: the phase, unless a container's state or a deletion is more specific.
pub(super) fn status(pod: &Value, _: Timestamp) -> Value {
    json!(summary(pod).word)
}

pub(super) fn restarts(pod: &Value, now: Timestamp) -> Value {
    let Summary { restarts, restarted, .. } = summary(pod);
    if restarts == 0 || restarted.is_empty() {
        return json!(restarts.to_string());
    }
    json!(format!("{restarts} ({} ago)", age(&restarted, now)))
}

pub(super) fn ip(pod: &Value, _: Timestamp) -> Value {
    let own = text_at(pod, "status.podIP");
    let first = list(pod, "status.podIPs").first().map_or("", |ip| text_at(ip, "ip"));
    or_none(if own.is_empty() { first } else { own })
}

pub(super) fn node(pod: &Value, _: Timestamp) -> Value {
    or_none(text_at(pod, "spec.nodeName"))
}

pub(super) fn nominated(pod: &Value, _: Timestamp) -> Value {
    or_none(text_at(pod, "status.nominatedNodeName"))
}

pub(super) fn gates(pod: &Value, _: Timestamp) -> Value {
    let gates = list(pod, "spec.readinessGates");
    if gates.is_empty() {
        return json!("<none>");
    }
    let met = |gate: &&Value| condition(pod, text_at(gate, "conditionType")) == Some("True");
    json!(format!("{}/{}", gates.iter().filter(met).count(), gates.len()))
}

/// The conditions of a row: a pod that has ended is marked as complete.
pub(super) fn row_conditions(pod: &Value) -> Option<Value> {
    let (reason, message) = match text_at(pod, "status.phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{ "type": "Completed", "status": "True", "reason": reason, "message": message }]))
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a str> {
    let found = list(pod, "status.conditions").iter().find(|c| text_at(c, "type") == kind)?;
    Some(text_at(found, "status"))
}

fn summary(pod: &Value) -> Summary {
    let sidecars: Vec<&str> = list(pod, "spec.initContainers")
        .iter()
        .filter(|container| text_at(container, "restartPolicy") == "Always")
        .map(|container| text_at(container, "name"))
        .collect();
    let mut sum = Summary {
        ready: 0,
        total: list(pod, "spec.containers").len() + sidecars.len(),
        word: first_word(pod),
        restarts: 0,
        restarted: String::new(),
    };
    let mut of_sidecars = (0, String::new());
    let initializing = init_containers(pod, &sidecars, &mut sum, &mut of_sidecars);
    if !initializing || condition(pod, "Initialized") == Some("True") {
        (sum.restarts, sum.restarted) = of_sidecars;
        containers(pod, &mut sum);
    }
    let reason = text_at(pod, "status.reason");
    if is_deleting(pod) && reason == "NodeLost" {
        "Unknown".clone_into(&mut sum.word);
    } else if is_deleting(pod) && !matches!(text_at(pod, "status.phase"), "Succeeded" | "Failed") {
        "Terminating".clone_into(&mut sum.word);
    }
    sum
}

fn first_word(pod: &Value) -> String {
    const GATED: &str = "SchedulingGated";
    let gated = list(pod, "status.conditions")
        .iter()
        .any(|c| text_at(c, "type") == "PodScheduled" && text_at(c, "reason") == GATED);
    let reason = text_at(pod, "status.reason");
    if gated {
        GATED
    } else if reason.is_empty() {
        text_at(pod, "status.phase")
    } else {
        reason
    }
    .to_owned()
}

/// Whether init containers still run or failed. Restarts are counted apart for those that keep running.
fn init_containers(
    pod: &Value,
    sidecars: &[&str],
    sum: &mut Summary,
    of_sidecars: &mut (i64, String),
) -> bool {
    let total = list(pod, "spec.initContainers").len();
    for (index, status) in list(pod, "status.initContainerStatuses").iter().enumerate() {
        let stays = sidecars.contains(&text_at(status, "name"));
        sum.restarts += number(status, "restartCount");
        later(&mut sum.restarted, status);
        if stays {
            of_sidecars.0 += number(status, "restartCount");
            later(&mut of_sidecars.1, status);
        }
        let ended = at(status, "state.terminated");
        if ended.is_some_and(|ended| number(ended, "exitCode") == 0) {
            continue;
        }
        if stays && at(status, "started") == Some(&json!(true)) {
            sum.ready += usize::from(at(status, "ready") == Some(&json!(true)));
            continue;
        }
        let waiting = text_at(status, "state.waiting.reason");
        sum.word = match ended {
            Some(ended) => format!("Init:{}", end_word(ended)),
            None if !matches!(waiting, "" | "PodInitializing") => format!("Init:{waiting}"),
            None => format!("Init:{index}/{total}"),
        };
        return true;
    }
    false
}

fn containers(pod: &Value, sum: &mut Summary) {
    let (mut running, mut failure) = (false, String::new());
    for status in list(pod, "status.containerStatuses").iter().rev() {
        sum.restarts += number(status, "restartCount");
        later(&mut sum.restarted, status);
        let waiting = text_at(status, "state.waiting.reason");
        if !waiting.is_empty() {
            waiting.clone_into(&mut sum.word);
        } else if let Some(ended) = at(status, "state.terminated") {
            sum.word = end_word(ended);
            if number(ended, "exitCode") != 0 {
                failure.clone_from(&sum.word);
            }
        } else if at(status, "ready") == Some(&json!(true)) && at(status, "state.running").is_some() {
            running = true;
            sum.ready += 1;
        }
    }
    if sum.word == "Completed" {
        if running && condition(pod, "Ready") == Some("True") {
            "Running".clone_into(&mut sum.word);
        } else if !failure.is_empty() {
            sum.word = failure;
        } else if running {
            "NotReady".clone_into(&mut sum.word);
        }
    }
}

fn end_word(ended: &Value) -> String {
    let reason = text_at(ended, "reason");
    match (reason, number(ended, "signal")) {
        ("", 0) => format!("ExitCode:{}", number(ended, "exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        _ => reason.to_owned(),
    }
}

/// Keeps the later of a time and the end of a container's previous run.
fn later(latest: &mut String, status: &Value) {
    let time = |text: &str| text.parse::<Timestamp>().ok();
    let ended = text_at(status, "lastState.terminated.finishedAt");
    if time(ended).is_some_and(|ended| time(latest).is_none_or(|latest| latest < ended)) {
        ended.clone_into(latest);
    }
}
