//! Where pods go.

use neonvm_api::merge_patch::merge;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{Choice, Demand};
use k8s_openapi::api::core::v1::{Node, Pod};

fn k8s_node(name: &str, cpu: &str, memory: &str, more: &Value) -> Node {
    let mut value = json!({ "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name, "disk": "ssd" } },
        "spec": {}, "status": { "allocatable": { "cpu": cpu, "memory": memory, "pods": "3" } } });
    merge(&mut value, more);
    serde_json::from_value(value).unwrap()
}

fn pod(name: &str, cpu: &str, memory: &str, more: &Value) -> Pod {
    let mut value = json!({ "metadata": { "name": name, "namespace": "d", "labels": { "app": "x" } }, "spec": { "containers": [
        { "name": "c", "resources": { "requests": { "cpu": cpu, "memory": memory } } } ] } });
    merge(&mut value, more);
    serde_json::from_value(value).unwrap()
}

fn bound(name: &str, cpu: &str, memory: &str, node: &str) -> Pod {
    pod(name, cpu, memory, &json!({ "spec": { "nodeName": node } }))
}

/// The choice as the state makes it.
fn choose(pod: &Pod, nodes: &[&Node], pods: &[&Pod]) -> Choice {
    let mut state = State::new(Settings::default());
    for node in nodes {
        state.step(at(0), Event::Node(Box::new(NodeSeen::from_node(node))));
    }
    for pod in pods {
        state.step(at(0), seen(PodSeen::from_pod(pod, &Settings::default())));
    }
    audit(&state);
    state.choose(&PodSeen::from_pod(pod, &Settings::default()))
}

fn text(pod: &Pod, nodes: &[&Node], pods: &[&Pod]) -> String {
    choose(pod, nodes, pods).to_string()
}

#[test]
fn the_least_loaded_node_wins_and_names_break_ties() {
    let (a, b) = (k8s_node("a", "4", "8Gi", &json!({})), k8s_node("b", "4", "8Gi", &json!({})));
    let new = pod("new", "1", "1Gi", &json!({}));
    assert_eq!(text(&new, &[&b, &a], &[]), "node a");
    assert_eq!(text(&new, &[&b, &a], &[&bound("x", "500m", "1Gi", "a")]), "node b");
}

/// A watch that is behind reports the earlier one after room was reserved for its successor.
#[test]
fn room_for_a_pod_that_was_made_again_is_kept() {
    let mut state = State::new(Settings::default());
    state.step(at(0), node("n", cu(10)));
    state.step(at(0), Event::Listed);
    let reserved = |state: &State| state.inspect_node("n").unwrap().cpu.reserved;
    let of = |uid: &str, created: i64, units: u64| PodSeen {
        uid: uid.to_owned(),
        created,
        node: None,
        waits: true,
        ..plain("target", "n", cu(units))
    };
    state.step(at(1), seen(of("first", 1, 2)));
    state.reserve(at(2), of("second", 2, 8), "n").unwrap();
    assert_eq!(reserved(&state), 8_000);
    state.step(at(3), seen(PodSeen { waits: false, ..of("first", 1, 2) }));
    assert_eq!(reserved(&state), 8_000, "the earlier one is late");
    state.step(at(3), Event::PodGone { pod: name("target"), uid: "first".into() });
    assert_eq!(reserved(&state), 8_000);
    state.step(at(4), seen(PodSeen { node: Some("n".into()), waits: false, ..of("second", 2, 8) }));
    assert_eq!(reserved(&state), 8_000);
    // A pod that has a node counts, whatever was known.
    state.step(at(5), seen(PodSeen { node: Some("n".into()), waits: false, ..of("third", 2, 3) }));
    assert_eq!(reserved(&state), 3_000);
}

#[test]
fn every_node_that_does_not_fit_has_a_reason() {
    let small = k8s_node("small", "1", "1Gi", &json!({}));
    let cordoned = k8s_node("cordoned", "8", "8Gi", &json!({ "spec": { "unschedulable": true } }));
    let taint = json!({ "spec": { "taints": [{ "key": "only", "value": "me", "effect": "NoSchedule" }] } });
    let tainted = k8s_node("tainted", "8", "8Gi", &taint);
    let full = k8s_node("full", "8", "8Gi", &json!({}));
    let there: Vec<Pod> = (0..3).map(|i| bound(&format!("p{i}"), "0", "0", "full")).collect();
    let there: Vec<&Pod> = there.iter().collect();
    let new = pod("new", "1", "4Gi", &json!({}));
    assert_eq!(
        text(&new, &[&small, &cordoned, &tainted, &full], &there),
        "0/4 nodes fit: cordoned is cordoned; full insufficient pods (needs 1, has 0); \
         small insufficient memory (needs 4Gi, has 1Gi); tainted has the taint only=me"
    );
    assert_eq!(text(&new, &[], &[]), "there are no nodes");
    let tolerant = json!({ "spec": { "tolerations": [{ "key": "only", "operator": "Exists" }] } });
    assert_eq!(text(&pod("new", "1", "4Gi", &tolerant), &[&tainted], &[]), "node tainted");
    let unready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
    assert_eq!(text(&new, &[&k8s_node("n", "8", "8Gi", &unready)], &[]), "0/1 nodes fit: n is not ready");
}

#[test]
fn selectors_and_affinity_of_nodes_are_kept() {
    let a = k8s_node("a", "4", "8Gi", &json!({ "metadata": { "labels": { "gen": "3" } } }));
    let wants = |more: &Value| text(&pod("p", "1", "1Gi", &json!({ "spec": more })), &[&a], &[]);
    assert_eq!(wants(&json!({ "nodeSelector": { "disk": "ssd" } })), "node a");
    assert_eq!(
        wants(&json!({ "nodeSelector": { "disk": "tape" } })),
        "0/1 nodes fit: a does not have the label disk=tape"
    );
    let affinity = |terms: &Value| {
        wants(&json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": terms } } } }))
    };
    let expression = |operator: &str, values: &Value| json!([{ "matchExpressions": [{ "key": "gen", "operator": operator, "values": values }] }]);
    assert_eq!(affinity(&expression("Gt", &json!(["2"]))), "node a");
    assert_eq!(affinity(&expression("In", &json!(["2", "3"]))), "node a");
    for (operator, values) in [("Lt", json!(["3"])), ("NotIn", json!(["3"])), ("DoesNotExist", json!([]))] {
        assert!(affinity(&expression(operator, &values)).contains("node affinity"), "{operator}");
    }
    assert!(affinity(&json!([{}])).contains("node affinity"));
    assert_eq!(
        affinity(
            &json!([{}, { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["a"] }] }])
        ),
        "node a"
    );
}

#[test]
fn pods_are_kept_apart_from_both_sides() {
    let a = k8s_node("a", "4", "8Gi", &json!({}));
    let term = |key: &str| {
        json!({ "spec": { "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
            { "topologyKey": key, "labelSelector": { "matchLabels": { "app": "x" } } }] } } } })
    };
    let apart = pod("new", "1", "1Gi", &term(crate::HOSTNAME_LABEL));
    let plain = bound("old", "1", "1Gi", "a");
    let expected = "0/1 nodes fit: a runs d/old, which the pod must be apart from";
    assert_eq!(text(&apart, &[&a], &[&plain]), expected);
    assert_eq!(text(&apart, &[&a], &[]), "node a");
    let mut old = pod("old", "1", "1Gi", &term(crate::HOSTNAME_LABEL));
    old.spec.as_mut().unwrap().node_name = Some("a".into());
    assert_eq!(text(&pod("new", "1", "1Gi", &json!({})), &[&a], &[&old]), expected);
    assert!(text(&pod("new", "1", "1Gi", &term("zone")), &[&a], &[]).contains("not by zone"));
}

#[test]
fn runner_pods_take_at_least_their_usage() {
    let usage =
        json!({ "metadata": { "annotations": { "vm.neon.tech/usage": r#"{"cpu":"2","memory":"4Gi"}"# } } });
    let demand = Demand::from_pod(&pod("vm", "250m", "6Gi", &usage));
    assert_eq!(demand.amounts().get("cpu"), 2_000_000_000);
    assert_eq!(demand.amounts().get("memory"), (6 << 30) * 1_000_000_000);
    let init =
        json!({ "spec": { "initContainers": [{ "name": "i", "resources": { "limits": { "cpu": "3" } } }] } });
    assert_eq!(Demand::from_pod(&pod("p", "1", "1", &init)).amounts().get("cpu"), 3_000_000_000);
}

proptest! {
    /// Whatever is requested, in whatever order: no node is ever given more than it offers.
    #[test]
    fn nodes_are_never_given_more_than_they_offer(
        sizes in proptest::collection::vec((1_u32..8000, 1_u32..64), 1..5),
        asked in proptest::collection::vec((0_u32..5000, 0_u32..40, 0_u32..5000, 0_u32..40), 1..30),
    ) {
        let nodes: Vec<Node> = sizes.iter().enumerate()
            .map(|(i, (cpu, memory))| k8s_node(&format!("n{i}"), &format!("{cpu}m"), &format!("{memory}Gi"), &json!({})))
            .collect();
        let nodes: Vec<&Node> = nodes.iter().collect();
        let mut pods: Vec<Pod> = Vec::new();
        for (i, (cpu, memory, use_cpu, use_memory)) in asked.iter().enumerate() {
            let usage = format!(r#"{{"cpu":"{use_cpu}m","memory":"{use_memory}Gi"}}"#);
            let notes = json!({ "metadata": { "annotations": { "vm.neon.tech/usage": usage } } });
            let mut new = pod(&format!("p{i}"), &format!("{cpu}m"), &format!("{memory}Gi"), &notes);
            let there: Vec<&Pod> = pods.iter().collect();
            match choose(&new, &nodes, &there) {
                Choice::Node(name) => {
                    new.spec.as_mut().unwrap().node_name = Some(name);
                    pods.push(new);
                }
                Choice::Nowhere(reasons) => prop_assert_eq!(reasons.len(), nodes.len()),
            }
        }
        for (i, (cpu, memory)) in sizes.iter().enumerate() {
            let name = format!("n{i}");
            let here: Vec<&Pod> = pods.iter().filter(|p| p.spec.as_ref().unwrap().node_name.as_ref() == Some(&name)).collect();
            let sum = |resource: &str| here.iter().map(|p| Demand::from_pod(p).amounts().get(resource)).sum::<i128>();
            prop_assert!(sum("cpu") <= i128::from(*cpu) * 1_000_000);
            prop_assert!(sum("memory") <= (i128::from(*memory) << 30) * 1_000_000_000);
            prop_assert!(here.len() <= 3);
        }
    }
}

#[test]
fn ports_of_the_node_are_taken_once() {
    let a = k8s_node("a", "4", "8Gi", &json!({}));
    let with = |name: &str, port: u16, more: &Value| {
        let mut port = json!({ "containerPort": 1, "hostPort": port });
        merge(&mut port, more);
        pod(
            name,
            "1",
            "1Gi",
            &json!({ "spec": { "nodeName": "a", "containers": [{ "name": "c", "ports": [port] }] } }),
        )
    };
    let there = with("there", 80, &json!({}));
    assert_eq!(
        text(&with("new", 80, &json!({})), &[&a], &[&there]),
        "0/1 nodes fit: a port 80 is taken by d/there"
    );
    assert_eq!(text(&with("new", 80, &json!({ "protocol": "UDP" })), &[&a], &[&there]), "node a");
    assert_eq!(text(&with("new", 81, &json!({})), &[&a], &[&there]), "node a");
    let one = |ip: &str| with("x", 80, &json!({ "hostIP": ip }));
    assert_eq!(text(&one("10.0.0.1"), &[&a], &[&one("10.0.0.2")]), "node a");
    assert!(text(&one("10.0.0.1"), &[&a], &[&there]).contains("taken"));
}

/// #869: room is kept from the moment of the decision, and refused when there is none.
#[test]
fn d869_reservation_never_exceeds_capacity() {
    let mut state = state(cu(10));
    let waiting = |name: &str, units| PodSeen { node: None, waits: true, ..vm(name, "", units, 8) };
    for (pod, fits) in [("a", true), ("b", true), ("c", false), ("d", false)] {
        assert_eq!(state.reserve(at(1), waiting(pod, 4), "n").is_ok(), fits, "{pod}");
    }
    assert_eq!(sums(&state, "n").reserved.cpu, 8000);
    assert_eq!(state.reserve(at(1), waiting("a", 4), "n"), Ok(()), "asked twice: kept once");
    assert_eq!(sums(&state, "n").reserved.cpu, 8000);
    assert!(state.reserve(at(1), waiting("e", 1), "nowhere").is_err());
    // A pod that is only about to be bound has no agent yet.
    assert_eq!(ask(&mut state, "a", 6, None).unwrap_err().status(), 404);
    // Bound as planned: no scheduler permitted more before, so there is no buffer.
    state.step(at(2), seen(vm("a", "n", 4, 8)));
    assert_eq!(sums(&state, "n").reserved.cpu, 8000);
    assert_eq!(ask(&mut state, "a", 8, None).unwrap().permit, res(6));
    // Not bound: free again, at once or after a while.
    state.unreserve(&name("b"), "uid-b");
    assert_eq!(sums(&state, "n").reserved.cpu, 6000);
    state.reserve(at(3), waiting("f", 2), "n").unwrap();
    state.step(at(62), Event::Tick);
    assert_eq!(sums(&state, "n").reserved.cpu, 8000);
    state.step(at(63), Event::Tick);
    assert_eq!(sums(&state, "n").reserved.cpu, 6000);
}

#[test]
fn ignored_pods_count_when_placing_and_not_for_permits() {
    let settings = Settings { ignored_namespaces: ["d".to_owned()].into(), ..Settings::default() };
    let mut state = State::new(settings);
    state.step(at(0), node("n", cu(10)));
    state.step(at(0), Event::Listed);
    state.step(at(0), seen(plain("ballast", "n", cu(6))));
    let mut other = vm("p", "n", 2, 8);
    other.pod.namespace = "e".into();
    state.step(at(0), seen(other.clone()));
    let request = Request::new(res(1), res(8), Some(res(2)));
    assert_eq!(state.request(at(1), &other.pod, &request).unwrap().permit, res(8));
    let view = state.inspect_node("n").unwrap();
    assert_eq!((view.cpu.reserved, view.cpu.ignored), (8000, 6000));
    let mut new = PodSeen { node: None, ..vm("q", "", 1, 1) };
    new.pod.namespace = "e".into();
    assert!(state.fits(&new, "n").is_err());
}
