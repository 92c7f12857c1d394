use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use super::super::{Action, Event, Machine, Plan};
use super::*;

const GI: u64 = 1 << 30;

fn pod(containers: &Value) -> k8s_openapi::api::core::v1::Pod {
    serde_json::from_value(json!({ "metadata": { "name": "p", "generation": 1 },
        "spec": { "containers": containers } }))
    .unwrap()
}

fn wanted(cpu: &str, memory: &str) -> PodRequests {
    let list = json!({ "cpu": cpu, "memory": memory });
    PodRequests::from_pod(&pod(&json!([{ "name": "c", "resources": { "requests": list, "limits": list } }])))
}

fn need(cpu_milli: u64, memory: u64) -> Need {
    Need { cpu_milli, memory }
}

#[test]
fn what_resources_come_to() {
    let limits = |cpu_request_milli, cpu_milli, memory| Limits { cpu_request_milli, cpu_milli, memory };
    for (spec, expected_need, expected_limits) in [
        (json!({ "containers": [{ "name": "c" }] }), need(0, 0), limits(0, None, None)),
        (
            json!({ "containers": [
                { "name": "c", "resources": { "requests": { "cpu": "250m", "memory": "1Gi" }, "limits": { "cpu": "1", "memory": "1Gi" } } },
                { "name": "d", "resources": { "requests": { "cpu": "0.5" }, "limits": { "cpu": "1" } } }] }),
            need(750, GI),
            limits(750, Some(2000), None),
        ),
        (
            json!({ "initContainers": [{ "name": "i", "resources": { "requests": { "cpu": "2" } } }],
                "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" }, "limits": { "cpu": "1" } } }] }),
            need(2000, 0),
            limits(2000, None, None),
        ),
        (
            json!({ "resources": { "requests": { "cpu": "3" }, "limits": { "memory": "2Gi" } },
                "overhead": { "cpu": "100m", "memory": "1Gi" },
                "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1", "memory": "1Gi" } } }] }),
            need(3100, 2 * GI),
            limits(3100, None, Some(3 * GI)),
        ),
    ] {
        let pod = serde_json::from_value(json!({ "metadata": {}, "spec": spec.clone() })).unwrap();
        let resources = PodRequests::from_pod(&pod).resources;
        assert_eq!(resources.need(), expected_need, "{spec}");
        assert_eq!(resources.limits(), expected_limits, "{spec}");
    }
}

#[test]
fn a_resize_is_accepted_deferred_or_infeasible() {
    let room = |used| Room { total: need(4000, 8 * GI), used };
    let free = need(0, 0);
    for (cpu, memory, used, expected) in [
        ("1", "1Gi", free, "same"),
        ("1000m", "1Gi", free, "accepted"),
        ("4", "8Gi", free, "accepted"),
        ("3", "1Gi", need(1000, 0), "accepted"),
        ("500m", "512Mi", need(4000, 8 * GI), "accepted"),
        (
            "4100m",
            "1Gi",
            free,
            "Infeasible: Node didn't have enough capacity: cpu, requested: 4100, capacity: 4000",
        ),
        (
            "9",
            "9Gi",
            free,
            "Infeasible: Node didn't have enough capacity: memory, requested: 9663676416, capacity: 8589934592",
        ),
        (
            "3",
            "1Gi",
            need(1500, 0),
            "Deferred: Node didn't have enough resource: cpu, requested: 3000, used: 1500, capacity: 4000",
        ),
        (
            "1",
            "5Gi",
            need(0, 4 * GI),
            "Deferred: Node didn't have enough resource: memory, requested: 5368709120, used: 4294967296, capacity: 8589934592",
        ),
    ] {
        let mut size = Size::new(wanted("1", "1Gi"), Some(1));
        let before = size.allocated.clone();
        let judgement = size.judge(5, wanted(cpu, memory), 2, room(used));
        let found = match (&judgement, &size.pending) {
            (Judgement::Same, None) => "same".to_owned(),
            (Judgement::Accepted, None) => "accepted".to_owned(),
            (Judgement::Waits { is_new: true }, Some(pending)) => {
                assert_eq!(size.allocated, before, "what waits is not allocated");
                format!("{}: {}", pending.reason.as_str(), pending.message)
            }
            other => format!("{other:?}"),
        };
        assert_eq!(found, expected, "{cpu} {memory}");
        assert_eq!(size.generation, Some(2));
    }
}

#[test]
fn a_restart_is_refused() {
    let restarting = |memory: &str| {
        PodRequests::from_pod(&pod(&json!([{ "name": "c", "resources": { "requests": { "memory": memory } },
            "resizePolicy": [{ "resourceName": "memory", "restartPolicy": "RestartContainer" }] }])))
    };
    let mut size = Size::new(restarting("1Gi"), Some(1));
    let room = Room { total: need(4000, 8 * GI), used: need(0, 0) };
    size.judge(0, restarting("2Gi"), 2, room);
    let pending = size.pending.clone().unwrap();
    assert_eq!(pending.reason, Reason::Infeasible);
    assert!(pending.message.contains("resizePolicy NotRequired"), "{}", pending.message);
    assert_eq!(size.judge(0, restarting("1Gi"), 3, room), Judgement::Same);
    assert_eq!(size.conditions(), []);
}

fn words(machine: &Machine) -> String {
    let all = machine.size.conditions();
    let word = |condition: &PodCondition| {
        let reason = condition.reason.clone().unwrap_or_default();
        format!("{} {} {}", condition.type_, condition.observed_generation.unwrap(), reason).trim().to_owned()
    };
    all.iter().map(word).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_resize_goes_its_way() {
    let pod = pod(&json!([{ "name": "c", "command": ["neond", "runner"] }]));
    let mut machine = Machine::new(Plan::from_pod(&pod, 100), 0);
    machine.size = Size::new(wanted("1", "1Gi"), Some(1));
    machine.resume(0);
    let sized = |cpu: &str, fault: Option<&str>| Event::Sized {
        resources: wanted(cpu, "1Gi").resources,
        fault: fault.map(str::to_owned),
    };
    let specified = |cpu: &str, generation, used| Event::Specified {
        wanted: wanted(cpu, "1Gi"),
        generation,
        room: Room { total: need(4000, 8 * GI), used: need(used, 0) },
    };
    let in_force = |machine: &Machine| {
        let mut status = ContainerStatus { name: "c".into(), ..ContainerStatus::default() };
        status.state = Some(serde_json::from_value(json!({ "running": {} })).unwrap());
        machine.size.show(&mut status);
        let cpu = |list: Option<BTreeMap<String, Quantity>>| list.unwrap()["cpu"].0.clone();
        (cpu(status.resources.unwrap().requests), cpu(status.allocated_resources))
    };
    // Event, whether the cgroup is set, conditions, and CPUs in force and allocated.
    for (now, event, resizes, conditions, cpus) in [
        (1, Event::Prepared, true, "", ("1", "1")),
        (2, sized("1", None), false, "", ("1", "1")),
        (3, specified("2", 2, 0), true, "PodResizeInProgress 2", ("1", "2")),
        (4, specified("3", 3, 2000), false, "PodResizePending 3 Deferred, PodResizeInProgress 2", ("1", "2")),
        (5, sized("2", None), false, "PodResizePending 3 Deferred", ("2", "2")),
        (6, specified("3", 3, 1000), true, "PodResizeInProgress 3", ("2", "3")),
        (7, sized("3", Some("busy")), false, "PodResizeInProgress 3 Error", ("2", "3")),
        (8, Event::Time, false, "PodResizeInProgress 3 Error", ("2", "3")),
        (7 + RETRY, Event::Time, true, "PodResizeInProgress 3 Error", ("2", "3")),
        (9000, sized("3", None), false, "", ("3", "3")),
        (9001, specified("5", 4, 0), false, "PodResizePending 4 Infeasible", ("3", "3")),
        (9002, specified("2500m", 5, 0), true, "PodResizeInProgress 5", ("3", "2500m")),
        (9003, specified("2", 6, 0), true, "PodResizeInProgress 6", ("3", "2")),
        (9004, sized("2500m", None), true, "PodResizeInProgress 6", ("2500m", "2")),
        (9005, sized("2", None), false, "", ("2", "2")),
    ] {
        let text = format!("{event:?} at {now}");
        let actions = machine.step(now, event);
        assert_eq!(actions.contains(&Action::Resize), resizes, "{text}: {actions:?}");
        assert_eq!(words(&machine), conditions, "{text}");
        let (running, allocated) = in_force(&machine);
        assert_eq!((running.as_str(), allocated.as_str()), cpus, "{text}");
    }
    machine.step(9010, Event::Delete { grace: 1000 });
    machine.step(9011, specified("1", 7, 0));
    assert_eq!(machine.size.allocated, wanted("2", "1Gi").resources, "a pod that ends keeps its size");
}
