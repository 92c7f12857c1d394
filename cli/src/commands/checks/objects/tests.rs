use serde_json::{Value, json};

use super::*;
use crate::commands::checks::tests::{push, put};
use crate::commands::checks::{Group, Verdict, findings};

fn node(name: &str, version: &str) -> Value {
    json!({ "metadata": { "name": name }, "status": { "nodeInfo": { "kubeletVersion": version },
        "conditions": [{ "type": "Ready", "status": "True" }] } })
}

fn machine(name: &str, node: &str, note: &str) -> Value {
    json!({ "metadata": { "namespace": "db", "name": name }, "status": { "phase": "Running", "node": node,
        "machine": { "accelerator": if note.is_empty() { "kvm" } else { "tcg" }, "acceleratorNote": note } } })
}

fn view() -> Facts {
    let mut facts = Facts::default();
    put(&mut facts, Source::Nodes, vec![node("n1", "v1.36.0-neonvm.0.1.0"), node("n2", "v1.35.1")]);
    let machines = vec![machine("a", "n1", ""), machine("b", "n2", "/dev/kvm hangs; using TCG")];
    put(&mut facts, Source::Machines, machines);
    facts
}

fn found(facts: &Facts) -> Vec<Finding> {
    findings(facts, Group::Objects)
}

fn find<'a>(checks: &'a [Finding], name: &str, place: &str) -> &'a Finding {
    checks.iter().find(|check| check.name == name && check.place == place).unwrap()
}

#[test]
fn a_cluster_that_is_well_but_slow_on_a_node() {
    let checks = found(&view());
    assert_eq!(find(&checks, "accelerator", "n1").detail, "kvm");
    let slow = find(&checks, "accelerator", "n2");
    assert_eq!((slow.verdict, slow.detail.as_str()), (Verdict::Warn, "tcg: /dev/kvm hangs; using TCG"));
    assert_eq!(find(&checks, "node", "n2").detail, "ready, v1.35.1");
    assert_eq!(find(&checks, "machines", "cluster").detail, "2, none with problems");
    assert!(checks.iter().all(|check| check.verdict != Verdict::Fail));
    assert!(checks.iter().all(|check| check.verdict == Verdict::Ok || !check.remedy.is_empty()));
}

#[test]
fn one_node_and_what_is_on_it() {
    let mut view = view();
    only(&mut view, "n1");
    assert!(found(&view).iter().all(|check| check.place != "n2"));
}

#[test]
fn failures_have_remedies_and_places() {
    let mut view = view();
    let dead = json!({ "metadata": { "namespace": "db", "name": "dead" }, "status": { "phase": "Failed" } });
    push(&mut view, Source::Machines, dead);
    put(
        &mut view,
        Source::Unbound,
        vec![json!({ "metadata": { "namespace": "db", "name": "big" }, "status": { "phase": "Pending",
        "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room" }] } })],
    );
    push(&mut view, Source::Nodes, json!({ "metadata": { "name": "n3" } }));
    let checks = found(&view);
    let failed: Vec<&str> = checks
        .iter()
        .filter(|check| check.verdict == Verdict::Fail)
        .map(|check| check.place.as_str())
        .collect();
    assert_eq!(failed, ["n3", "db/dead", "db/big"]);
    assert_eq!(find(&checks, "machine", "db/dead").remedy, "neonctl vm describe dead -n db");
    assert_eq!(find(&checks, "pod", "db/big").detail, "no room");
}

#[test]
fn autoscalers_that_cannot_do_their_work() {
    let autoscaler = |name: &str, kind: &str, status: &str| {
        json!({ "apiVersion": "autoscaling.aibrix.ai/v1alpha1", "kind": "PodAutoscaler",
            "metadata": { "namespace": "shop", "name": name },
            "spec": { "scaleTargetRef": { "kind": "Deployment", "name": name }, "maxReplicas": 3,
                "scalingStrategy": "APA", "metricsSources": [] },
            "status": { "conditions": [{ "type": kind, "status": status, "reason": "TimedOut",
                "message": "queue: TimedOut", "lastTransitionTime": "2024-01-01T00:00:00Z" }] } })
    };
    let mut view = view();
    assert_eq!(autoscalers(&view), Vec::new());
    put(&mut view, Source::Autoscalers, vec![autoscaler("fine", "Ready", "True")]);
    assert_eq!(autoscalers(&view)[0].detail, "1, none with problems");
    push(&mut view, Source::Autoscalers, autoscaler("blind", "MetricsAvailable", "False"));
    let checks = autoscalers(&view);
    assert_eq!(checks.len(), 1);
    assert_eq!((checks[0].place.as_str(), checks[0].verdict), ("shop/blind", Verdict::Warn));
    assert_eq!(checks[0].detail, "Blind: queue: TimedOut");
    assert_eq!(checks[0].remedy, "neonctl podautoscaler explain blind -n shop");
}
