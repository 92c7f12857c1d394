use std::time::Duration;

use serde_json::{Value, json};

use super::super::check::Verdict;
use super::*;
use crate::commands::health::Part;

fn node(name: &str, version: &str) -> Value {
    json!({ "metadata": { "name": name }, "status": { "nodeInfo": { "kubeletVersion": version },
        "conditions": [{ "type": "Ready", "status": "True" }] } })
}

fn machine(name: &str, node: &str, note: &str) -> Value {
    json!({ "metadata": { "namespace": "db", "name": name }, "status": { "phase": "Running", "node": node,
        "machine": { "accelerator": if note.is_empty() { "kvm" } else { "tcg" }, "acceleratorNote": note } } })
}

fn view() -> View {
    View {
        nodes: vec![node("n1", "v1.36.0-neonvm.0.1.0"), node("n2", "v1.35.1")],
        machines: vec![machine("a", "n1", ""), machine("b", "n2", "/dev/kvm hangs; using TCG")],
        ..View::default()
    }
}

fn find<'a>(checks: &'a [Check], name: &str, place: &str) -> &'a Check {
    checks.iter().find(|check| check.name == name && check.place == place).unwrap()
}

#[test]
fn a_cluster_that_is_well_but_slow_on_a_node() {
    let checks = of_view(view(), None).unwrap();
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
    let checks = of_view(view(), Some("n1")).unwrap();
    assert!(checks.iter().all(|check| check.place != "n2"));
    let error = of_view(view(), Some("n9")).unwrap_err();
    assert_eq!(error.code, Code::NotFound);
}

#[test]
fn versions_that_differ_are_reported_once() {
    let mut view = view();
    assert_eq!(objects::versions(&view, "0.1.0")[0].detail, "all 0.1.0");
    view.nodes.push(node("n3", "v1.36.0-neonvm.0.0.9"));
    view.parts.workloads = Part::Read(vec![json!({ "metadata": { "name": "vm-controller" },
        "spec": { "template": { "spec": { "containers": [{ "image": "reg:5000/neonvm/neond:v0.0.9" }, { "image": "x@sha256:0" },
            { "image": "registry.k8s.io/kube-scheduler:v1.36.2" }] } } } })]);
    let checks = objects::versions(&view, "0.1.0");
    assert_eq!(checks.len(), 1);
    assert_eq!((checks[0].place.as_str(), checks[0].verdict), ("n3,vm-controller", Verdict::Warn));
}

#[test]
fn failures_have_remedies_and_places() {
    let mut view = view();
    view.machines
        .push(json!({ "metadata": { "namespace": "db", "name": "dead" }, "status": { "phase": "Failed" } }));
    view.unbound = vec![
        json!({ "metadata": { "namespace": "db", "name": "big" }, "status": { "phase": "Pending",
        "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room" }] } }),
    ];
    view.nodes.push(json!({ "metadata": { "name": "n3" } }));
    let checks = of_view(view, None).unwrap();
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
fn clocks_are_compared_to_the_second() {
    let clock = |server: &str, own: &str| Clock {
        server: server.parse().ok(),
        own: own.parse().unwrap(),
        latency: Duration::from_millis(12),
    };
    let near = skew(&clock("2024-01-01T00:00:00Z", "2024-01-01T00:00:01.9Z"));
    assert_eq!(near.verdict, Verdict::Ok);
    let behind = skew(&clock("2024-01-01T00:00:00Z", "2024-01-01T00:00:05.2Z"));
    assert_eq!(
        (behind.verdict, behind.detail.as_str()),
        (Verdict::Warn, "the server's clock is 4.7 s behind this host's clock")
    );
    assert!(
        skew(&clock("2024-01-01T00:01:00Z", "2024-01-01T00:00:00Z"))
            .detail
            .contains("ahead of this host's clock")
    );
    assert_eq!(skew(&clock("", "2024-01-01T00:00:00Z")).verdict, Verdict::Ok);
    assert_eq!(latency(&clock("", "2024-01-01T00:00:00Z")).detail, "12 ms");
}

#[test]
fn processes_of_a_local_cluster() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("services.json");
    assert!(processes(&file).is_empty());
    std::fs::write(
        &file,
        r#"[{"name":"apiserver","pid":7,"restarts":0,"newer":1},{"name":"node-n1","restarts":9}]"#,
    )
    .unwrap();
    let checks: Vec<Check> = processes(&file).iter().map(|process| service(process, "dev")).collect();
    assert_eq!((checks[0].verdict, checks[0].place.as_str()), (Verdict::Ok, "apiserver"));
    assert_eq!(
        (checks[1].verdict, checks[1].remedy.as_str()),
        (Verdict::Fail, "see why: neonctl local logs --name dev")
    );
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
    assert_eq!(objects::autoscalers(&view), Vec::new());
    view.autoscalers = vec![autoscaler("fine", "Ready", "True")];
    assert_eq!(objects::autoscalers(&view)[0].detail, "1, none with problems");
    view.autoscalers.push(autoscaler("blind", "MetricsAvailable", "False"));
    let checks = objects::autoscalers(&view);
    assert_eq!(checks.len(), 1);
    assert_eq!((checks[0].place.as_str(), checks[0].verdict), ("shop/blind", Verdict::Warn));
    assert_eq!(checks[0].detail, "Blind: queue: TimedOut");
    assert_eq!(checks[0].remedy, "neonctl podautoscaler explain blind -n shop");
}
