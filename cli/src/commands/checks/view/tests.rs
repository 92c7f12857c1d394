use serde_json::json;

use super::*;
use crate::commands::checks::tests::{push, put};

const LONG_AGO: &str = "2024-01-01T00:00:00Z";
const JUST_NOW: &str = "2024-01-01T00:59:55Z";

fn view() -> Facts {
    let mut facts = Facts::default();
    facts.clock.server = "2024-01-01T01:00:00Z".parse().ok();
    facts
}

fn machine(name: &str, created: &str, status: &Value) -> Value {
    json!({ "metadata": { "namespace": "db", "name": name, "creationTimestamp": created }, "status": status })
}

fn pod(name: &str, created: &str, conditions: &Value) -> Value {
    json!({ "metadata": { "namespace": "db", "name": name, "creationTimestamp": created },
        "status": { "phase": "Pending", "conditions": conditions } })
}

/// Whether a service works, and the note about it.
fn verdict(view: &Facts, name: &str) -> (Option<bool>, String) {
    let found = view.components().into_iter().find(|component| component.name == name).unwrap();
    (found.is_well, found.note)
}

#[test]
fn a_vm_without_status_for_long_means_that_no_controller_reconciles() {
    let mut view = view();
    assert_eq!(
        verdict(&view, "vm-controller"),
        (None, "no pods and no lease; there are no VMs to check".into())
    );
    put(
        &mut view,
        Source::Machines,
        vec![machine("new", JUST_NOW, &Value::Null), machine("a", LONG_AGO, &json!({ "phase": "Running" }))],
    );
    assert_eq!(verdict(&view, "vm-controller"), (Some(true), "every VM has a status".into()));
    for name in ["b", "c", "d", "e"] {
        push(&mut view, Source::Machines, machine(name, LONG_AGO, &json!({})));
    }
    let note = "4 VMs without a status for more than 10 s: db/b, db/c, db/d and 1 more";
    assert_eq!(verdict(&view, "vm-controller"), (Some(false), note.into()));
}

#[test]
fn pod_autoscalers_are_looked_at_by_their_service() {
    let mut view = view();
    // A stale lease is no fault where there is nothing to do.
    put(
        &mut view,
        Source::Leases,
        vec![json!({ "metadata": { "name": "neonvm-pod-autoscaler" },
        "spec": { "holderIdentity": "x", "renewTime": LONG_AGO } })],
    );
    let note = "its leader x has not renewed its lease for 3600 s";
    assert_eq!(verdict(&view, "pod-autoscaler"), (None, note.into()));
    let ready = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    put(&mut view, Source::Autoscalers, vec![machine("a", LONG_AGO, &ready)]);
    assert_eq!(verdict(&view, "pod-autoscaler"), (Some(false), note.into()));
    put(&mut view, Source::Leases, Vec::new());
    assert_eq!(verdict(&view, "pod-autoscaler"), (Some(true), "every pod autoscaler has a status".into()));
    push(&mut view, Source::Autoscalers, machine("b", LONG_AGO, &Value::Null));
    let note = "1 pod autoscaler without a status for more than 10 s: db/b";
    assert_eq!(verdict(&view, "pod-autoscaler"), (Some(false), note.into()));
    assert_eq!((view.unattended_autoscalers(), view.unattended()), (vec!["db/b".to_owned()], Vec::new()));
}

#[test]
fn pods_that_fit_nowhere_are_not_unseen_by_the_scheduler() {
    let unschedulable = json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: too small" }]);
    let gated = json!([{ "type": "PodScheduled", "status": "False", "reason": "SchedulingGated" }]);
    let mut view = view();
    put(
        &mut view,
        Source::Unbound,
        vec![
            pod("big", LONG_AGO, &unschedulable),
            pod("gated", LONG_AGO, &gated),
            pod("new", JUST_NOW, &json!([])),
        ],
    );
    assert_eq!(view.waiting(), Vec::<String>::new());
    assert!(!matches!(view.scheduler(), Service::Fails(_)));
    let pods = view.unschedulable();
    assert_eq!((pods.len(), pods[0].name.as_str(), pods[0].why.as_str()), (1, "big", "0/1 nodes: too small"));
    push(&mut view, Source::Unbound, pod("old", LONG_AGO, &json!([])));
    assert_eq!(
        view.scheduler(),
        Service::Fails("1 pod not processed by any scheduler for more than 10 s: db/old".into())
    );
}

#[test]
fn a_node_must_report_ready_and_keep_reporting() {
    let node = |name: &str, status: &str| {
        json!({ "metadata": { "name": name },
            "status": { "conditions": [{ "type": "Ready", "status": status, "message": "stopped" }] } })
    };
    let beat = |name: &str, at: &str| json!({ "metadata": { "name": name }, "spec": { "renewTime": at } });
    let mut view = view();
    put(
        &mut view,
        Source::Nodes,
        vec![
            node("a", "True"),
            node("b", "False"),
            node("c", "True"),
            json!({ "metadata": { "name": "d" } }),
        ],
    );
    put(&mut view, Source::Heartbeats, vec![beat("a", JUST_NOW), beat("c", LONG_AGO)]);
    let wanted = [
        ("b", "not ready: stopped"),
        ("c", "no heartbeat for 3600 s"),
        ("d", "not ready: it has never been ready"),
    ]
    .map(|(name, why)| (name.to_owned(), why.to_owned()));
    assert_eq!(view.unready(), wanted);
}

#[test]
fn machines_in_trouble_and_those_that_only_boot() {
    let conditions = |phase: &str, available: &str, reason: &str, since: &str, degraded: &str| {
        json!({ "phase": phase, "conditions": [
            { "type": "Available", "status": available, "reason": reason, "message": "", "lastTransitionTime": since },
            { "type": "Degraded", "status": degraded, "reason": "DiskFailure", "message": "full" }] })
    };
    let mut view = view();
    put(
        &mut view,
        Source::Machines,
        vec![
            machine("fine", LONG_AGO, &conditions("Running", "True", "Ready", LONG_AGO, "False")),
            machine("boots", JUST_NOW, &conditions("Running", "False", "Booting", JUST_NOW, "False")),
            machine("done", LONG_AGO, &conditions("Succeeded", "False", "Stopped", LONG_AGO, "False")),
            machine("slow", LONG_AGO, &conditions("Running", "False", "Booting", LONG_AGO, "False")),
            machine("ill", LONG_AGO, &conditions("Running", "True", "Ready", LONG_AGO, "True")),
            machine("dead", LONG_AGO, &conditions("Failed", "False", "Failed", LONG_AGO, "False")),
        ],
    );
    for at in [JUST_NOW, LONG_AGO] {
        let going = json!({ "metadata": { "namespace": "db", "name": "goes", "deletionTimestamp": at } });
        push(&mut view, Source::Machines, going);
    }
    let troubles: Vec<(String, bool, String)> =
        view.troubled().into_iter().map(|trouble| (trouble.name, trouble.down, trouble.why)).collect();
    let wanted = [
        ("dead", true, "Failed"),
        ("slow", false, "not available for 3600 s: Booting"),
        ("ill", false, "DiskFailure: full"),
        ("goes", false, "being deleted for 3600 s"),
    ]
    .map(|(name, down, why)| (name.to_owned(), down, why.to_owned()));
    assert_eq!(troubles, wanted);
}
