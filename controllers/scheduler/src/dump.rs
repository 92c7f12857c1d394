//! The state as upstream's scheduler of v0.10 to v0.31 dumps it: `GET /` with any JSON document as body, over plain HTTP.
//!
//! Keys are upstream's. What this scheduler does not keep is left out; where upstream prints addresses in memory to
//! distinguish objects, names stand.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, StatusCode};
use neonvm_kit::http::{Admitted, FullResponse, SMALL_BODY, refuse, text};
use neonvm_types::scheduler_inspect::{Inspect, NodeView, PodView, ResourceView};
use neonvm_types::{MilliCpu, NamespacedName, Resources};
use serde_json::{Value, json};

use crate::shared::Shared;

const PLAIN: &str = "text/plain";

/// Only reading, with a small document.
pub(crate) fn admit(head: &Parts) -> Admitted {
    if head.method == Method::GET {
        return Ok(SMALL_BODY);
    }
    refuse(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "request method must be GET\n")
}

pub(crate) fn answer(shared: &Shared, body: &[u8]) -> FullResponse {
    if serde_json::from_slice::<serde::de::IgnoredAny>(body).is_err() {
        return text(StatusCode::BAD_REQUEST, PLAIN, "the body must be a JSON document, such as {}\n");
    }
    let body = serde_json::to_vec(&document(shared)).unwrap_or_default();
    text(StatusCode::OK, "application/json", Bytes::from(body))
}

fn document(shared: &Shared) -> Value {
    let (view, deletions, labels) = {
        let state = shared.state();
        let labels: BTreeMap<String, [String; 2]> = state
            .totals()
            .into_iter()
            .map(|(node, ..)| {
                let label = |label: &str| {
                    let key = shared.config.node_metric_labels.get(label);
                    key.and_then(|key| node.labels.get(key)).cloned().unwrap_or_default()
                };
                (node.name.clone(), [label("node_group"), label("availability_zone")])
            })
            .collect();
        (state.inspect(), state.undeleted(), labels)
    };
    let most = |of: fn(&NodeView) -> u64| view.nodes.iter().map(of).max().unwrap_or(0);
    let deletions: Vec<Value> =
        deletions.iter().map(|(name, tries)| json!({ "key": name, "value": tries })).collect();
    let node = |node: &NodeView| {
        let [group, zone] = labels.get(&node.name).cloned().unwrap_or_default();
        json!({ "key": node.name, "value": self::node(node, &group, &zone) })
    };
    let pods = view.nodes.iter().flat_map(|node| &node.pods).map(|pod| named(&pod.pod));
    json!({
        "stopped": shared.is_stopping(),
        "buildInfo": { "gitInfo": env!("CARGO_PKG_VERSION") },
        "state": {
            "ongoingMigrationDeletions": deletions,
            "nodes": view.nodes.iter().map(node).collect::<Vec<_>>(),
            "pods": pods.collect::<Vec<_>>(),
            "maxTotalReservableCPU": milli(most(|node| node.cpu.total)),
            "maxTotalReservableMem": bytes(most(|node| node.mem.total)),
            "config": config(shared, &view),
        },
    })
}

/// As a configuration file of v0.31 has it.
fn config(shared: &Shared, view: &Inspect) -> Value {
    let (settings, scoring) = (&view.settings, &shared.config.settings.scoring);
    json!({
        "nodeConfig": {
            "cpu": { "watermark": settings.cpu_watermark },
            "memory": { "watermark": settings.mem_watermark },
            "minUsageScore": scoring.min_usage,
            "maxUsageScore": scoring.max_usage,
            "scorePeak": scoring.peak,
        },
        "schedulerName": shared.config.scheduler_name,
        "randomizeScores": scoring.randomise,
        "doMigration": settings.do_migration,
        "ignoreNamespaces": shared.config.settings.ignored_namespaces,
    })
}

fn milli(amount: u64) -> MilliCpu {
    MilliCpu::new(u32::try_from(amount).unwrap_or(u32::MAX))
}

fn bytes(amount: u64) -> neonvm_types::Bytes {
    neonvm_types::Bytes::new(amount)
}

fn named(pod: &NamespacedName) -> Value {
    json!({ "obj": pod.to_string(), "podName": pod })
}

fn node(node: &NodeView, group: &str, zone: &str) -> Value {
    let resource = |view: &ResourceView, amount: fn(u64) -> Value| {
        json!({
            "total": amount(view.total),
            "watermark": amount(view.watermark),
            "reserved": amount(view.reserved),
            "buffer": amount(view.buffer),
            "capacityPressure": amount(view.capacity_pressure),
            "pressureAccountedFor": amount(view.pressure_accounted_for),
        })
    };
    let queue: Vec<&NamespacedName> = node.next.iter().map(|planned| &planned.pod).collect();
    let pods = node.pods.iter().map(|pod| json!({ "key": pod.pod, "value": self::pod(pod, node, &queue) }));
    json!({
        "obj": node.name,
        "name": node.name,
        "nodeGroup": group,
        "availabilityZone": zone,
        "cpu": resource(&node.cpu, |amount| json!(milli(amount))),
        "mem": resource(&node.mem, |amount| json!(bytes(amount))),
        "pods": pods.collect::<Vec<_>>(),
        "mq": queue.iter().map(|pod| named(pod)).collect::<Vec<_>>(),
    })
}

fn pod(pod: &PodView, node: &NodeView, queue: &[&NamespacedName]) -> Value {
    let resource = |of: fn(Resources) -> Value| {
        json!({
            "reserved": of(pod.reserved),
            "buffer": of(pod.buffer),
            "capacityPressure": of(pod.capacity_pressure),
            "max": pod.max.map(of),
        })
    };
    json!({
        "obj": pod.pod.to_string(),
        "name": pod.pod,
        "node": node.name,
        "cpu": resource(|size| json!(size.vcpus)),
        "mem": resource(|size| json!(size.mem)),
        "vm": pod.vm.as_ref().map(|name| vm(pod, name, queue)),
    })
}

/// These keys are upstream's names of fields.
fn vm(pod: &PodView, name: &str, queue: &[&NamespacedName]) -> Value {
    let place = queue.iter().position(|planned| **planned == pod.pod);
    json!({
        "Name": NamespacedName::new(pod.pod.namespace.clone(), name),
        "Config": { "autoMigrationEnabled": pod.migratable, "scalingEnabled": pod.scaled },
        "Metrics": pod.load.map(|load| json!({ "loadAvg1M": load })),
        "MqIndex": place.and_then(|place| i64::try_from(place).ok()).unwrap_or(-1),
        "MigrationState": pod.migrating.then(|| json!({ "Name": pod.pod })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_upstream_s_keys() {
        let pod = PodView {
            pod: NamespacedName::new("default", "v-1"),
            vm: Some("v".into()),
            reserved: Resources::new(MilliCpu::new(500), neonvm_types::Bytes::gib(2)),
            ..PodView::default()
        };
        let cpu = ResourceView { total: 4000, reserved: 500, ..ResourceView::default() };
        let view = NodeView { name: "n1".into(), cpu, pods: vec![pod], ..NodeView::default() };
        let node = node(&view, "group", "zone");
        for (pointer, value) in [
            ("/name", json!("n1")),
            ("/nodeGroup", json!("group")),
            ("/availabilityZone", json!("zone")),
            ("/cpu/total", json!(4)),
            ("/cpu/reserved", json!("500m")),
            ("/cpu/pressureAccountedFor", json!(0)),
            ("/pods/0/key", json!({ "namespace": "default", "name": "v-1" })),
            ("/pods/0/value/mem/reserved", json!("2Gi")),
            ("/pods/0/value/vm/Name/name", json!("v")),
            ("/pods/0/value/vm/MqIndex", json!(-1)),
            ("/mq", json!([])),
        ] {
            assert_eq!(node.pointer(pointer), Some(&value), "{pointer}");
        }
    }
}
