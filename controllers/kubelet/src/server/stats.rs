//! Small statistics of the node's pods.

use http::StatusCode;
use neonvm_kit::metrics::{CONTENT_TYPE, Kind, Page, double};
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

/// Namespace, name, UID, CPU nanoseconds and resident bytes of a pod.
type Usage = (String, String, String, u64, u64);

/// What each pod uses.
fn pods(node: &Node) -> Vec<Usage> {
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
    let total = |pick: fn(&Usage) -> u64| all.iter().map(pick).sum::<u64>();
    let body = json!({ "node": { "nodeName": node.config.name,
            "cpu": { "time": now, "usageCoreNanoSeconds": total(|row| row.3) },
            "memory": { "time": now, "workingSetBytes": total(|row| row.4) } },
        "pods": pods });
    with_type(StatusCode::OK, "application/json", body.to_string())
}

/// `/metrics/resource`
pub(super) fn metrics(node: &Node) -> Response {
    with_type(StatusCode::OK, CONTENT_TYPE, page(&pods(node)).finish())
}

/// Under the names of Kubernetes' kubelet.
fn page(pods: &[Usage]) -> Page {
    let mut page = Page::new();
    page.family("pod_cpu_usage_seconds_total", Kind::Counter, "CPU time that a pod used.");
    for (namespace, name, _, cpu, _) in pods {
        let seconds = std::time::Duration::from_nanos(*cpu).as_secs_f64();
        page.sample(&[("namespace", namespace), ("pod", name)], seconds);
    }
    page.family("pod_memory_working_set_bytes", Kind::Gauge, "Memory of a pod's processes.");
    for (namespace, name, _, _, memory) in pods {
        page.sample(&[("namespace", namespace), ("pod", name)], double(*memory));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay() {
        let pod = ("default".to_owned(), "p".to_owned(), "1".to_owned(), 1_500_000_000, 4096);
        let text = page(&[pod]).finish();
        let families = [
            "pod_cpu_usage_seconds_total counter namespace pod",
            "pod_memory_working_set_bytes gauge namespace pod",
        ];
        assert_eq!(neonvm_test_cluster::metrics::families(&text), families);
        assert!(
            text.contains("pod_cpu_usage_seconds_total{namespace=\"default\",pod=\"p\"} 1.5\n"),
            "{text}"
        );
    }
}
