//! Small statistics of the node's pods.

use http::StatusCode;
use serde_json::json;

use super::body::{Response, with_type};
use crate::naming;
use crate::node::Node;

/// CPU nanoseconds and resident bytes of a pod.
fn usage(node: &Node, uid: &str) -> Option<(u64, u64)> {
    let hierarchy = node.hierarchy.as_ref()?;
    let group = naming::pod_cgroup(&node.config.cluster, &node.config.name, uid);
    let page = rustix::param::page_size() as u64;
    let resident = |pid: i32| -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        text.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(page)
    };
    let memory = hierarchy.processes(&group).into_iter().filter_map(resident).sum();
    Some((hierarchy.cpu_nanos(&group).unwrap_or(0), memory))
}

/// Namespace, name, UID and use of each pod.
fn pods(node: &Node) -> Vec<(String, String, String, u64, u64)> {
    let pods = node.pods.lock();
    let row = |handle: &std::sync::Arc<crate::pod::Handle>| {
        let metadata = &handle.pod.borrow().metadata;
        let (cpu, memory) = usage(node, &handle.uid)?;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Some((text(&metadata.namespace), text(&metadata.name), handle.uid.clone(), cpu, memory))
    };
    pods.values().filter_map(row).collect()
}

/// `/stats/summary`
pub(super) fn summary(node: &Node) -> Response {
    let now = jiff::Timestamp::now().to_string();
    let all = pods(node);
    let pods: Vec<_> = all
        .iter()
        .map(|(namespace, name, uid, cpu, memory)| {
            json!({ "podRef": { "name": name, "namespace": namespace, "uid": uid },
                "cpu": { "time": now, "usageCoreNanoSeconds": cpu }, "memory": { "time": now, "workingSetBytes": memory } })
        })
        .collect();
    let total = |pick: fn(&(String, String, String, u64, u64)) -> u64| all.iter().map(pick).sum::<u64>();
    let body = json!({ "node": { "nodeName": node.config.name,
            "cpu": { "time": now, "usageCoreNanoSeconds": total(|row| row.3) },
            "memory": { "time": now, "workingSetBytes": total(|row| row.4) } },
        "pods": pods });
    with_type(StatusCode::OK, "application/json", body.to_string())
}

/// `/metrics/resource`
pub(super) fn metrics(node: &Node) -> Response {
    let all = pods(node);
    let mut text = String::from("# TYPE pod_cpu_usage_seconds_total counter\n");
    for (namespace, name, _, cpu, _) in &all {
        let seconds = std::time::Duration::from_nanos(*cpu).as_secs_f64();
        text += &format!("pod_cpu_usage_seconds_total{{namespace={namespace:?},pod={name:?}}} {seconds}\n");
    }
    text += "# TYPE pod_memory_working_set_bytes gauge\n";
    for (namespace, name, _, _, memory) in &all {
        text += &format!("pod_memory_working_set_bytes{{namespace={namespace:?},pod={name:?}}} {memory}\n");
    }
    with_type(StatusCode::OK, "text/plain; version=0.0.4", text)
}
