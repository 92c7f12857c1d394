//! Cells of services, endpoints and network policies.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cells::{joined, list, number, or_none, pairs, plain, shortened};
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

pub(super) fn pod_selector(object: &Value, _: Timestamp) -> Value {
    or_none(&crate::selector::text_of(at(object, "spec.podSelector")))
}

pub(super) fn endpoints(object: &Value, _: Timestamp) -> Value {
    let mut all = Vec::new();
    for subset in list(object, "subsets") {
        let addresses = || list(subset, "addresses").iter().map(|address| text_at(address, "ip"));
        let ports = list(subset, "ports");
        if ports.is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in ports {
            let port = number(port, "port");
            all.extend(
                addresses().map(|ip| {
                    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
                }),
            );
        }
    }
    if list(object, "subsets").is_empty() { json!("<none>") } else { json!(shortened(&all, 3, all.len())) }
}

fn or_unset(all: &[String]) -> Value {
    let text = shortened(all, 3, all.len());
    json!(if text.is_empty() { "<unset>".to_owned() } else { text })
}

pub(super) fn slice_ports(object: &Value, _: Timestamp) -> Value {
    let shown = |port: &Value| match (port.get("port"), port.get("name")) {
        (Some(number), _) => plain(number),
        (None, Some(name)) => plain(name),
        (None, None) => "*".to_owned(),
    };
    or_unset(&list(object, "ports").iter().map(shown).collect::<Vec<_>>())
}

pub(super) fn slice_endpoints(object: &Value, _: Timestamp) -> Value {
    let all = list(object, "endpoints").iter().flat_map(|e| strings(e.get("addresses")));
    or_unset(&all.map(str::to_owned).collect::<Vec<_>>())
}
