//! What is read from pods.

use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const UNIT: &str = "autoscaling.neon.tech/scaling-unit";
const REQUESTED: &str = "internal.autoscaling.neon.tech/resources-requested";
const APPROVED: &str = "internal.autoscaling.neon.tech/resources-approved";
const OVERCOMMIT: &str = "vm.neon.tech/overcommit";

fn k8s(annotations: &[(&str, &str)], labels: &[&str], owners: &Value) -> PodSeen {
    let mut value = json!({ "metadata": { "name": "p", "namespace": "d", "uid": "u", "ownerReferences": owners,
        "labels": { "vm.neon.tech/name": "v" }, "annotations": {
            "vm.neon.tech/usage": r#"{"cpu":"1","memory":"2Gi"}"#,
            "vm.neon.tech/resources": r#"{"cpus":{"min":"250m","max":4,"use":1},"memorySlots":{"min":1,"max":8,"use":2},"memorySlotSize":"1Gi"}"#
        } }, "spec": { "nodeName": "n", "containers": [{ "name": "c" }] } });
    for (key, text) in annotations {
        value["metadata"]["annotations"][key] = json!(text);
    }
    for label in labels {
        value["metadata"]["labels"][format!("autoscaling.neon.tech/{label}")] = json!("true");
    }
    PodSeen::from_pod(&serde_json::from_value::<Pod>(value).unwrap(), &Settings::default())
}

fn owner(kind: &str, controller: bool) -> Value {
    json!({ "apiVersion": "vm.neon.tech/v1", "kind": kind, "name": "x", "uid": format!("{kind}-uid"), "controller": controller })
}

fn amount(milli: u32, mib: u32) -> Resources {
    Resources::new(MilliCpu::new(milli), Bytes::mib(mib))
}

/// Vectors of spec §7.5.
#[test]
fn pods_as_they_are_counted() {
    let containers = |cpu: &str, memory: &str| json!({ "name": cpu, "resources": { "requests": { "cpu": cpu, "memory": memory } } });
    let plain = json!({ "metadata": { "name": "p" },
        "spec": { "containers": [containers("250m", "256Mi"), containers("500m", "1Gi")] } });
    let plain = PodSeen::from_pod(&serde_json::from_value::<Pod>(plain).unwrap(), &Settings::default());
    assert_eq!((plain.usage, plain.vm), (amount(750, 1280).into(), None));

    let none = json!([]);
    let noted = |annotations: &[(&str, &str)], labels: &[&str], owners: &Value| {
        let pod = k8s(annotations, labels, owners);
        assert_eq!(pod.problems, Vec::<String>::new());
        let vm = pod.vm.clone().unwrap();
        (pod.usage.resources(), vm)
    };
    assert_eq!(
        noted(&[(APPROVED, r#"{"vCPUs":2,"mem":"4Gi"}"#)], &[], &none).0,
        amount(1000, 2048),
        "not scaled"
    );
    let unit = (UNIT, r#"{"vCPUs":"500m","mem":"1Gi"}"#);
    let (reserved, vm) = noted(&[unit, (REQUESTED, r#"{"vCPUs":"1500m","mem":"3Gi"}"#)], &["enabled"], &none);
    assert_eq!(reserved, amount(1000, 2048));
    assert_eq!((vm.requested, vm.unit), (Some(amount(1500, 3072)), Some(amount(500, 1024))));
    assert_eq!((vm.max, vm.migratable), (Some(amount(4000, 8192)), false));
    let all = [unit, (REQUESTED, r#"{"vCPUs":1,"mem":"2Gi"}"#), (APPROVED, r#"{"vCPUs":2,"mem":"4Gi"}"#)];
    assert_eq!(noted(&all, &["enabled"], &none).0, amount(1000, 2048), "an annotation is no permit");
    let labels = ["enabled", "auto-migration-enabled"];
    assert!(noted(&all, &labels, &none).1.migratable);
    for (owners, migratable, role) in [
        (
            json!([owner("VirtualMachine", true), owner("VirtualMachineMigration", false)]),
            true,
            MigrationRole::Source,
        ),
        (
            json!([owner("VirtualMachine", false), owner("VirtualMachineMigration", true)]),
            false,
            MigrationRole::Target,
        ),
        (
            json!([owner("VirtualMachine", false), owner("VirtualMachineMigration", false)]),
            true,
            MigrationRole::Source,
        ),
    ] {
        let vm = noted(&all, &labels, &owners).1;
        assert_eq!(vm.migratable, migratable);
        assert_eq!(vm.migration, Some((role, "VirtualMachineMigration-uid".into())));
        assert_eq!(vm.uid.as_deref(), Some("VirtualMachine-uid"));
    }
    let (reserved, vm) = noted(&[(OVERCOMMIT, r#"{"cpu":"2500m","memory":"1500m"}"#)], &[], &none);
    assert_eq!((reserved, vm.overcommit), (amount(1000, 2048), Pair::new(2500, 1500)));
    assert_eq!(noted(&[(OVERCOMMIT, r#"{"cpu":"2500m"}"#)], &[], &none).1.overcommit, Pair::new(2500, 1000));
}

/// The pod of a VM requests the VM and what is beside it: no part of that counts twice, before, during or after a change.
#[test]
fn a_vm_counts_once_with_what_is_beside_it() {
    const OVERHEAD: &str = "vm.neon.tech/overhead";
    let counted = |requests: Value, in_force: Value, pending: &str, overcommit: &str| {
        let mut value = json!({ "metadata": { "name": "p", "labels": { "vm.neon.tech/name": "v" }, "annotations": {
                "vm.neon.tech/usage": r#"{"cpu":"1","memory":"2Gi"}"#, OVERHEAD: r#"{"cpu":"20m","memory":"256Mi"}"#,
                "vm.neon.tech/resources": r#"{"cpus":{"min":1,"max":4,"use":1},"memorySlots":{"min":1,"max":8,"use":2},"memorySlotSize":"1Gi"}"#
            } }, "spec": { "nodeName": "n", "containers": [{ "name": "c", "resources": { "requests": requests } }] } });
        value["status"] = json!({ "containerStatuses": [{ "name": "c", "image": "", "imageID": "", "ready": true,
            "restartCount": 0, "resources": { "requests": in_force } }],
            "conditions": [{ "type": "PodResizePending", "status": "True", "reason": pending }] });
        if !overcommit.is_empty() {
            value["metadata"]["annotations"][OVERCOMMIT] = json!(format!(r#"{{"memory":"{overcommit}"}}"#));
        }
        let mut state = state(Pair::new(8_000, 64 << 30));
        state.step(
            at(0),
            seen(PodSeen::from_pod(&serde_json::from_value::<Pod>(value).unwrap(), &Settings::default())),
        );
        sums(&state, "n").reserved
    };
    let of = |cpu: &str, memory: &str| json!({ "cpu": cpu, "memory": memory });
    let mib = |cpu, mib: u128| Pair::new(cpu, mib << 20);
    let here = of("1020m", "2304Mi");
    assert_eq!(counted(here.clone(), here.clone(), "", ""), mib(1020, 2304), "at rest");
    assert_eq!(counted(of("20m", "1280Mi"), here.clone(), "", ""), mib(1020, 2304), "it grows");
    assert_eq!(
        counted(of("3020m", "4352Mi"), here.clone(), "", ""),
        mib(3020, 4352),
        "it shrinks, or waits for room"
    );
    assert_eq!(
        counted(of("9", "4352Mi"), here.clone(), "Infeasible", ""),
        mib(1020, 2304),
        "it can never be"
    );
    assert_eq!(counted(json!({}), json!({}), "", ""), mib(1020, 2304), "a pod that requests nothing");
    assert_eq!(counted(of("1020m", "1280Mi"), json!({}), "", "2"), mib(1020, 1280), "overcommitted");
}

/// Defects 23 and 24: annotations that are missing or nonsense are noted, and something safe stands in their place.
#[test]
fn d23_d24_nonsense_is_reported_and_replaced() {
    let none = json!([]);
    for (key, text, about) in [
        (OVERCOMMIT, r#"{"cpu":"0"}"#, "cpu is out of range"),
        (OVERCOMMIT, r#"{"memory":"-1"}"#, "memory is out of range"),
        (OVERCOMMIT, "{", "vm.neon.tech/overcommit"),
        (APPROVED, r#"{"vCPUs":-1}"#, "resources-approved"),
        ("vm.neon.tech/resources", "nonsense", "vm.neon.tech/resources"),
        ("autoscaling.neon.tech/bounds", r#"{"min":{}}"#, "autoscaling.neon.tech/bounds"),
    ] {
        let pod = k8s(&[(key, text)], &["enabled"], &none);
        assert!(pod.problems.iter().any(|problem| problem.contains(about)), "{key}: {:?}", pod.problems);
        assert_eq!(pod.vm.as_ref().unwrap().overcommit, Pair::both(1000));
        assert_eq!(pod.usage, amount(1000, 2048).into());
        let mut state = state(cu(10));
        state.step(at(0), seen(pod));
        let shown = &state.inspect().nodes[0].pods[0];
        assert!(shown.problems.iter().any(|problem| problem.contains(about)));
        let reply =
            state.request(at(1), &name("p"), &Request::new(amount(500, 1024), amount(500, 1024), None));
        assert_eq!(reply.is_err(), key == "vm.neon.tech/resources");
    }
    let unit = k8s(&[(UNIT, r#"{"vCPUs":0,"mem":0}"#)], &["enabled"], &none);
    assert_eq!(unit.vm.unwrap().unit, None);
}

/// Defect 26: the same pod is the same; what decisions do not depend on is not in it.
#[test]
fn d26_a_pod_seen_again_is_equal() {
    let none = json!([]);
    let factor = [(OVERCOMMIT, r#"{"cpu":"2500m"}"#)];
    assert_eq!(k8s(&factor, &["enabled"], &none), k8s(&factor, &["enabled"], &none));
}

proptest! {
    /// Whatever stands in the annotations.
    #[test]
    fn arbitrary_annotations_are_taken(texts in proptest::collection::vec("[\\{\\}\":a-zA-Z0-9,.-]{0,40}", 6)) {
        let keys = [UNIT, REQUESTED, APPROVED, OVERCOMMIT, "vm.neon.tech/usage", "vm.neon.tech/resources"];
        let annotations: Vec<(&str, &str)> = keys.into_iter().zip(texts.iter().map(String::as_str)).collect();
        let pod = k8s(&annotations, &["enabled"], &json!([]));
        let mut state = state(cu(10));
        state.step(at(0), seen(pod));
        drop(state.request(at(1), &name("p"), &Request::new(res(1), res(1), None)));
        audit(&state);
    }
}

#[test]
fn a_pod_of_a_daemon_set_expects_its_node() {
    let affinity = |fields: &Value| {
        json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchFields": fields }] } } })
    };
    let is = |operator: &str, names: &[&str]| {
        affinity(&json!([{ "key": "metadata.name", "operator": operator, "values": names }]))
    };
    let expects = |affinity: &Value, at: &str, value: &str| {
        let mut pod = json!({ "metadata": { "name": "p", "labels": {} }, "spec": { "containers": [], "affinity": affinity } });
        if let Some((parent, key)) = at.split_once('.') {
            pod.pointer_mut(parent).unwrap()[key] = json!(value);
        }
        PodSeen::from_pod(&serde_json::from_value::<Pod>(pod).unwrap(), &Settings::default()).expects
    };
    assert_eq!(expects(&is("In", &["n"]), "", "").as_deref(), Some("n"));
    assert_eq!(expects(&is("In", &["n", "m"]), "", ""), None);
    assert_eq!(expects(&is("NotIn", &["n"]), "", ""), None);
    assert_eq!(expects(&json!({}), "", ""), None);
    assert_eq!(expects(&is("In", &["n"]), "/spec.nodeName", "n"), None, "it is there");
    assert_eq!(
        expects(&is("In", &["n"]), "/metadata/labels.vm.neon.tech/name", "v"),
        None,
        "the scheduler places it"
    );
}

fn with_facts(name: &str, facts: &str) -> NodeSeen {
    let node = json!({"metadata": {"name": name, "annotations": {"vm.neon.tech/host-facts": facts}},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "10"}}});
    NodeSeen::from_node(&serde_json::from_value(node).unwrap())
}

/// A target that its runner would refuse is not chosen.
#[test]
fn a_host_that_cannot_receive_a_vm_is_no_target() {
    let machine = ("vm.neon.tech/machine", r#"{"machineType":"pc-q35-10.0"}"#);
    let pod = k8s(&[machine], &[], &json!([]));
    let mut state = State::new(Settings::default());
    for (node, facts) in [("old", r#"{"qemuVersion":"7.2.22"}"#), ("new", r#"{"qemuVersion":"10.0.13"}"#)] {
        state.step(at(0), Event::Node(Box::new(with_facts(node, facts))));
    }
    let why = state.fits(&pod, "old").unwrap_err().unwrap().to_string();
    assert_eq!(why, "has QEMU 7.2.22, and the VM's machine type pc-q35-10.0 needs 10.0");
    assert_eq!(state.fits(&pod, "new"), Ok(()));
}

/// What a migration required of its target holds until the target has a node.
#[test]
fn a_pod_with_a_node_has_the_rules_of_its_vm() {
    let seen = |node: Option<&str>, placement: Option<&str>| {
        let mut pod = json!({"metadata": {"name": "p", "namespace": "d", "labels": {"vm.neon.tech/name": "v"}},
            "spec": {"nodeName": node, "nodeSelector": {"pinned": "yes"}, "containers": [{"name": "c"}]}});
        if let Some(placement) = placement {
            pod["metadata"]["annotations"] = json!({"vm.neon.tech/placement": placement});
        }
        let seen = PodSeen::from_pod(&serde_json::from_value::<Pod>(pod).unwrap(), &Settings::default());
        let rules = seen.object.as_ref().unwrap().spec.as_ref().unwrap().node_selector.clone();
        (rules.unwrap_or_default().into_keys().collect::<Vec<_>>(), seen.problems.len())
    };
    let own = r#"{"nodeSelector":{"own":"1"}}"#;
    let problems = seen(Some("n"), None).1;
    assert_eq!(seen(None, Some(own)).0, ["pinned"]);
    assert_eq!(seen(Some("n"), Some(own)).0, ["own"]);
    assert_eq!(seen(Some("n"), Some("{}")).0, Vec::<String>::new());
    assert_eq!(seen(Some("n"), None).0, ["pinned"], "of an earlier version");
    assert_eq!(seen(Some("n"), Some("[")), (vec!["pinned".to_owned()], problems + 1));
}
