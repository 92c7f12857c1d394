//! Whether any other node could take a machine's pod, were it empty: what no waiting mends is said at once, instead of making a
//! migration that fails after minutes and keeps others waiting meanwhile. Whether there is room now is for the scheduler to say.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams};
use kube::{Client, Error, ResourceExt as _};
use neonvm_core_placement::{Reason, Usage, fit};

use crate::act::within;

/// Nodes that are named in an answer.
const NAMED: usize = 4;

/// Why no other node can take a pod; `None`: one can.
pub(super) async fn nowhere(client: &Client, pod: &Pod) -> Result<Option<String>, Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    // From the server's memory: nodes change seldom, and a drain asks often.
    let list = within(nodes.list(&ListParams::default().match_any())).await?;
    Ok(reasons(pod, &list.items))
}

fn reasons(pod: &Pod, nodes: &[Node]) -> Option<String> {
    let here = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let mut against = Vec::new();
    for node in nodes.iter().filter(|node| node.metadata.name.as_deref() != here) {
        match fit(pod, node, &Usage::default(), std::iter::empty()) {
            // Another scheduler than ours may know this topology.
            Ok(()) | Err(Reason::Topology { .. }) => return None,
            Err(reason) => against.push(format!("{} {reason}", node.name_any())),
        }
    }
    if against.is_empty() {
        return Some("there is no other node".to_owned());
    }
    let more = against.len().saturating_sub(NAMED);
    against.truncate(NAMED);
    let mut text = format!("no other node can take it: {}", against.join("; "));
    if more > 0 {
        let _ = write!(text, "; and {more} more");
    }
    Some(text)
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
    fn what_no_waiting_mends_is_said() {
        let plain = pod(&json!({}));
        assert_eq!(reasons(&plain, &[node("a", &json!({}))]).unwrap(), "there is no other node");
        let open = node("b", &json!({}));
        assert_eq!(reasons(&plain, &[node("a", &json!({})), open.clone()]), None);
        let closed = node("c", &json!({"spec": {"unschedulable": true}}));
        let small = node("d", &json!({"status": {"allocatable": {"memory": "512Mi"}}}));
        let said = reasons(&plain, &[closed.clone(), small]).unwrap();
        assert_eq!(
            said,
            "no other node can take it: c is cordoned; d insufficient memory (needs 1Gi, has 512Mi)"
        );
        let pinned = pod(&json!({"nodeSelector": {"disk": "a"}}));
        assert_eq!(
            reasons(&pinned, &[open]).unwrap(),
            "no other node can take it: b does not have the label disk=a"
        );
        let many: Vec<Node> =
            (0..9).map(|i| node(&format!("n{i}"), &json!({"spec": {"unschedulable": true}}))).collect();
        assert!(reasons(&plain, &many).unwrap().ends_with("n3 is cordoned; and 5 more"));
    }
}
