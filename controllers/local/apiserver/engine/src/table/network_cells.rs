//! Cells of services, endpoints and network policies.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cells::{joined, list, number, or_none, pairs};
use crate::object::{at, strings, text_at};

pub(super) fn service_ip(service: &Value, _: Timestamp) -> Value {
    or_none(text_at(service, "spec.clusterIP"))
}

pub(super) fn service_external(service: &Value, _: Timestamp) -> Value {
    let own = strings(at(service, "spec.externalIPs")).join(",");
    match text_at(service, "spec.type") {
        "ClusterIP" | "NodePort" => or_none(&own),
        "LoadBalancer" => {
            let given = ingress_points(service);
            let both: Vec<String> = [given, own].into_iter().filter(|text| !text.is_empty()).collect();
            json!(if both.is_empty() { "<pending>".to_owned() } else { both.join(",") })
        }
        "ExternalName" => json!(text_at(service, "spec.externalName")),
        _ => json!("<unknown>"),
    }
}

/// Addresses or names that a load balancer gave.
fn ingress_points(object: &Value) -> String {
    let all = list(object, "status.loadBalancer.ingress").iter();
    let points =
        all.map(|i| if text_at(i, "ip").is_empty() { text_at(i, "hostname") } else { text_at(i, "ip") });
    joined(points.filter(|point| !point.is_empty()).map(str::to_owned).collect())
}

pub(super) fn service_ports(service: &Value, _: Timestamp) -> Value {
    let ports: Vec<String> = list(service, "spec.ports")
        .iter()
        .map(|p| match number(p, "nodePort") {
            0 => format!("{}/{}", number(p, "port"), text_at(p, "protocol")),
            node => format!("{}:{node}/{}", number(p, "port"), text_at(p, "protocol")),
        })
        .collect();
    or_none(&ports.join(","))
}

pub(super) fn service_selector(service: &Value, _: Timestamp) -> Value {
    or_none(&pairs(at(service, "spec.selector")))
}
