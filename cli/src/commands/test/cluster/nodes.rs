//! Which nodes may run a VM. Pure.

use neonvm_api::names::agent_lease;
use serde_json::Value;

use crate::commands::object::{is_true, text};

/// Taints that keep pods away which do not tolerate them.
const REPELLING: [&str; 2] = ["NoSchedule", "NoExecute"];

fn is_open(node: &Value) -> bool {
    let is_cordoned = node.pointer("/spec/unschedulable").and_then(Value::as_bool) == Some(true);
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    let repels = taints.into_iter().flatten().any(|taint| REPELLING.contains(&text(taint, "/effect")));
    is_true(node, "Ready") && !is_cordoned && !repels
}

/// Names of nodes that are ready, open to new pods and, where agents hold leases, have an agent.
pub(super) fn that_run_vms(nodes: &[Value], leases: &[Value]) -> Vec<String> {
    let has_lease = |name: &str| leases.iter().any(|lease| text(lease, "/metadata/name") == name);
    let has_agents = leases.iter().any(|lease| text(lease, "/metadata/name").starts_with(&agent_lease("")));
    let open = nodes.iter().filter(|node| is_open(node)).map(|node| text(node, "/metadata/name").to_owned());
    open.filter(|name| !has_agents || has_lease(&agent_lease(name))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_must_be_ready_and_open_and_have_an_agent() {
        let node = |name: &str, ready: &str, spec: Value| {
            json!({"metadata": {"name": name}, "spec": spec,
                "status": {"conditions": [{"type": "Ready", "status": ready}]}})
        };
        let nodes = [
            node("n1", "True", json!({})),
            node("n2", "True", json!({"taints": [{"key": "a", "effect": "PreferNoSchedule"}]})),
            node("master", "True", json!({"taints": [{"key": "a", "effect": "NoSchedule"}]})),
            node("closed", "True", json!({"unschedulable": true})),
            node("lost", "Unknown", json!({})),
        ];
        assert_eq!(that_run_vms(&nodes, &[]), ["n1", "n2"]);
        let leases =
            [json!({"metadata": {"name": "neonvm-agent-n2"}}), json!({"metadata": {"name": "other"}})];
        assert_eq!(that_run_vms(&nodes, &leases), ["n2"]);
    }
}
