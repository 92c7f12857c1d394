//! Whether any other node could take a VM's pod if it were empty: an obstacle that waiting does not remove is reported at once,
//! instead of creating a migration that fails after minutes and delays others. The scheduler decides whether there is room now.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use neonvm_core_scheduling::{Reason, Usage, fit, unrepelled};

/// Nodes that are named in an answer.
const NAMED: usize = 4;

fn home(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref())
}

/// Whether a pod is to leave its node: the node is cordoned, or has a taint that the pod does not tolerate.
pub(super) fn is_to_leave(pod: &Pod, nodes: &[Node]) -> bool {
    let own = nodes.iter().find(|node| home(pod).is_some() && node.metadata.name.as_deref() == home(pod));
    // Labels count for nothing here: a pod stays on a node whose labels no longer match its rules.
    own.is_some_and(|node| matches!(unrepelled(pod, node), Err(Reason::Unschedulable | Reason::Taint { .. })))
}

/// Why no other node can take a pod; `None`: one can.
pub(super) fn nowhere(pod: &Pod, nodes: &[Node]) -> Option<String> {
    let here = home(pod);
    let mut against = Vec::new();
    for node in nodes.iter().filter(|node| node.metadata.name.as_deref() != here) {
        match fit(pod, node, &Usage::default(), std::iter::empty()) {
            // Another scheduler than ours may support this topology.
            Ok(()) | Err(Reason::Topology { .. }) => return None,
            Err(reason) => against.push(format!("{} {reason}", node.name_any())),
        }
    }
    if against.is_empty() {
        return Some("there is no other node".to_owned());
    }
    Some(format!("no other node can take it: {}", listed(against)))
}

/// Why no node's host can receive the VM of a planned target pod, whatever happens to the load of nodes; `None`: one may
/// be able to.
pub(crate) fn unsuitable(target: &Pod, nodes: &[Node]) -> Option<String> {
    let mut against = Vec::new();
    for node in nodes {
        match fit(target, node, &Usage::default(), std::iter::empty()) {
            Err(Reason::Host(why)) => against.push(format!("{} {why}", node.name_any())),
            Err(Reason::Selector { .. } | Reason::NodeAffinity) => {}
            _ => return None,
        }
    }
    (!against.is_empty()).then(|| format!("no node can receive the VM: {}", listed(against)))
}

/// The first reasons, and how many there are more.
fn listed(mut against: Vec<String>) -> String {
    let more = against.len().saturating_sub(NAMED);
    against.truncate(NAMED);
    let mut text = against.join("; ");
    if more > 0 {
        let _ = write!(text, "; and {more} more");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, more: &Value) -> Node {
        let mut node = json!({"metadata": {"name": name, "labels": {"disk": name}},
            "spec": {}, "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"},
                "conditions": [{"type": "Ready", "status": "True"}]}});
        json_patch::merge(&mut node, more);
        serde_json::from_value(node).unwrap()
    }

    fn pod(spec: &Value) -> Pod {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "a", "containers": [
            {"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}});
        json_patch::merge(&mut pod, &json!({"spec": spec}));
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_pod_is_to_leave_where_the_scheduler_would_not_put_it_again() {
        let pod = pod(&json!({"tolerations": [{"key": "mine", "operator": "Exists"}]}));
        let leaves = |more: &Value| is_to_leave(&pod, &[node("a", more), node("b", &json!({}))]);
        let tainted = |key: &str, effect: &str| json!({"spec": {"taints": [{"key": key, "effect": effect}]}});
        assert!(!leaves(&json!({})));
        assert!(leaves(&json!({"spec": {"unschedulable": true}})));
        assert!(leaves(&tainted("ToBeDeletedByClusterAutoscaler", "NoSchedule")));
        assert!(!leaves(&tainted("mine", "NoSchedule")) && !leaves(&tainted("other", "PreferNoSchedule")));
        let elsewhere = [node("a", &json!({})), node("b", &json!({"spec": {"unschedulable": true}}))];
        assert!(!is_to_leave(&pod, &elsewhere), "another node is drained");
        assert!(!is_to_leave(&pod, &[]));
        let mut unmatched = pod.clone();
        unmatched.spec.as_mut().unwrap().node_selector =
            Some([("disk".to_owned(), "gone".to_owned())].into());
        assert!(is_to_leave(&unmatched, &[node("a", &json!({"spec": {"unschedulable": true}}))]));
        assert!(!is_to_leave(&unmatched, &[node("a", &json!({}))]), "its labels have changed since");
    }

    #[test]
    fn permanent_obstacles_are_reported() {
        let plain = pod(&json!({}));
        assert_eq!(nowhere(&plain, &[node("a", &json!({}))]).unwrap(), "there is no other node");
        let open = node("b", &json!({}));
        assert_eq!(nowhere(&plain, &[node("a", &json!({})), open.clone()]), None);
        let closed = node("c", &json!({"spec": {"unschedulable": true}}));
        let small = node("d", &json!({"status": {"allocatable": {"memory": "512Mi"}}}));
        let reason = nowhere(&plain, &[closed.clone(), small]).unwrap();
        assert_eq!(
            reason,
            "no other node can take it: c is cordoned; d insufficient memory (needs 1Gi, has 512Mi)"
        );
        let pinned = pod(&json!({"nodeSelector": {"disk": "a"}}));
        assert_eq!(
            nowhere(&pinned, &[open]).unwrap(),
            "no other node can take it: b does not have the label disk=a"
        );
        let mut born_on_10 = plain.clone();
        let machine = r#"{"machineType":"pc-q35-10.0"}"#.to_owned();
        born_on_10.metadata.annotations = Some([("vm.neon.tech/machine".to_owned(), machine)].into());
        let with = |qemu: &str| {
            let facts = json!({"qemuVersion": qemu}).to_string();
            node("e", &json!({"metadata": {"annotations": {"vm.neon.tech/host-facts": facts}}}))
        };
        let why = "e has QEMU 7.2.22, and the VM's machine type pc-q35-10.0 needs 10.0";
        assert_eq!(
            nowhere(&born_on_10, &[with("7.2.22")]).unwrap(),
            format!("no other node can take it: {why}")
        );
        assert_eq!(nowhere(&born_on_10, &[with("10.0.13")]), None);
        let refused = Some(format!("no node can receive the VM: {why}"));
        assert_eq!(unsuitable(&born_on_10, &[with("7.2.22")]), refused);
        // Another node may become free.
        assert_eq!(unsuitable(&born_on_10, &[with("7.2.22"), closed.clone()]), None);
        assert_eq!(unsuitable(&born_on_10, std::slice::from_ref(&closed)), None);
        let many: Vec<Node> =
            (0..9).map(|i| node(&format!("n{i}"), &json!({"spec": {"unschedulable": true}}))).collect();
        assert!(nowhere(&plain, &many).unwrap().ends_with("n3 is cordoned; and 5 more"));
    }
}
