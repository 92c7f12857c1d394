use super::*;
use crate::kinds::Kinds;
use crate::media::{Accepted, Shape};

const NOW: &str = "2024-01-01T00:10:00Z";

type Resource = (&'static str, &'static str, &'static str);

/// The table of one object.
fn shown(resource: Resource, include: &str, object: &Value) -> Value {
    let kinds = Kinds::builtin();
    let kind = kinds.resource(resource.0, resource.1, resource.2).unwrap();
    let accepted = Accepted { shape: Shape::Table("v1"), aggregated: false };
    let form = Form { kind, accepted, include, now: NOW.parse().unwrap() };
    table(&form, "v1", &json!({}), &[object])
}

fn cells(resource: Resource, object: &Value) -> Value {
    shown(resource, "None", object)["rows"][0]["cells"].clone()
}

const PODS: Resource = ("", "v1", "pods");

#[test]
fn rows_have_as_much_of_the_object_as_is_wanted() {
    let maps = ("", "v1", "configmaps");
    let map =
        json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": { "name": "a" }, "data": { "k": "v" } });
    let row = |include| shown(maps, include, &map)["rows"][0].clone();
    let metadata = json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": { "name": "a" } });
    assert_eq!(row("None"), json!({ "cells": ["a", 1, "<unknown>"], "object": null }));
    assert_eq!(row("Object")["object"], map);
    assert_eq!(row("Metadata")["object"], metadata);
    assert_eq!(row("")["object"], metadata);
    let mut marked = map.clone();
    marked["metadata"]["annotations"] = json!({ (INITIAL_END): "true" });
    assert_eq!(shown(maps, "None", &marked)["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

#[test]
fn pods_that_ended_are_marked() {
    let row = |phase: &str| {
        let pod = json!({ "metadata": { "name": "p" }, "status": { "phase": phase } });
        shown(PODS, "None", &pod)["rows"][0].clone()
    };
    assert_eq!(
        row("Succeeded")["conditions"],
        json!([{ "type": "Completed", "status": "True", "reason": "Succeeded",
            "message": "The pod has completed successfully." }])
    );
    assert_eq!(row("Failed")["conditions"][0]["message"], "The pod failed.");
    assert_eq!(row("Running").get("conditions"), None);
}

#[test]
fn pods_show_what_their_containers_do() {
    let pod = |init: Value, of_init: Value, of_main: Value| {
        json!({ "metadata": { "name": "p" }, "spec": { "initContainers": init, "containers": [{ "name": "c" }] },
            "status": { "phase": "Pending", "initContainerStatuses": of_init, "containerStatuses": of_main } })
    };
    let main = json!([{ "name": "c", "ready": true, "restartCount": 2, "state": { "running": {} },
        "lastState": { "terminated": { "finishedAt": "2024-01-01T00:09:30Z", "exitCode": 1 } } }]);
    let ended = |code: i64| json!({ "terminated": { "exitCode": code } });
    let one = json!([{ "name": "i" }]);
    for (init, of_init, of_main, want) in [
        (json!([]), json!([]), json!([]), ["0/1", "Pending", "0"]),
        (json!([]), json!([]), main.clone(), ["1/1", "Pending", "2 (30s ago)"]),
        (
            one.clone(),
            json!([{ "name": "i", "restartCount": 3, "state": { "waiting": { "reason": "PodInitializing" } } }]),
            json!([]),
            ["0/1", "Init:0/1", "3"],
        ),
        (
            one.clone(),
            json!([{ "name": "i", "state": { "waiting": { "reason": "ErrImagePull" } } }]),
            json!([]),
            ["0/1", "Init:ErrImagePull", "0"],
        ),
        (
            one.clone(),
            json!([{ "name": "i", "state": ended(2) }]),
            json!([]),
            ["0/1", "Init:ExitCode:2", "0"],
        ),
        (
            one,
            json!([{ "name": "i", "state": ended(0), "restartCount": 5 }]),
            main,
            ["1/1", "Pending", "2 (30s ago)"],
        ),
        (
            json!([{ "name": "s", "restartPolicy": "Always" }]),
            json!([{ "name": "s", "ready": true, "started": true, "restartCount": 4, "state": { "running": {} } }]),
            json!([{ "name": "c", "state": { "terminated": { "exitCode": 0, "reason": "Completed" } } }]),
            ["1/2", "Completed", "4"],
        ),
        (
            json!([]),
            json!([]),
            json!([{ "name": "c", "state": { "terminated": { "exitCode": 137, "signal": 9 } } }]),
            ["0/1", "Signal:9", "0"],
        ),
    ] {
        let found = cells(PODS, &pod(init, of_init, of_main));
        assert_eq!([&found[1], &found[2], &found[3]].map(|cell| cell.as_str().unwrap()), want);
    }
    let gated = json!({ "metadata": { "name": "p" }, "status": { "phase": "Pending",
        "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "SchedulingGated" }] } });
    assert_eq!(cells(PODS, &gated)[2], "SchedulingGated");
    let done =
        json!({ "metadata": { "name": "p", "deletionTimestamp": NOW }, "status": { "phase": "Succeeded" } });
    assert_eq!(cells(PODS, &done)[2], "Succeeded");
}

#[test]
fn cells_of_a_claim_are_as_a_real_server_prints_them() {
    let object = json!({ "metadata": { "name": "a", "creationTimestamp": "2024-01-01T00:00:00Z" },
        "spec": { "accessModes": ["ReadWriteOnce"] }, "status": { "phase": "Pending" } });
    let want = json!(["a", "Pending", "", "", "", "", "<unset>", "10m", "<unset>"]);
    assert_eq!(cells(("", "v1", "persistentvolumeclaims"), &object), want);
}
