//! Addresses of Services: cluster IPs and node ports.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::admission::Halt;
use crate::engine::Engine;
use crate::field::FieldError;
use crate::object;
use crate::status::{ApiError, Subject};

/// Cluster IPs are taken from `10.96.0.0/16`, as a default cluster does.
const BLOCK: [u8; 2] = [10, 96];
const PORTS: std::ops::RangeInclusive<u64> = 30_000..=32_767;

/// Gives a service the addresses it needs.
pub(crate) fn allocate(engine: &Engine, service: &mut Value, live: Option<&Value>) -> Result<(), Halt> {
    let name = object::name(service).to_owned();
    let others = engine.values("/services");
    let others: Vec<&Value> =
        others.iter().filter(|other| object::uid(other) != object::uid(service)).collect();
    let kind = object::text_at(service, "spec.type").to_owned();
    if kind == "ExternalName" {
        return Ok(());
    }
    cluster_ip(service, live, &others).map_err(|error| refused(&name, &error))?;
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        node_ports(service, &others).map_err(|error| refused(&name, &error))?;
    }
    Ok(())
}

fn refused(name: &str, error: &FieldError) -> Halt {
    let subject = Subject { group: "", resource: "Service", name };
    Halt::Error(ApiError::invalid(subject, std::slice::from_ref(error)))
}

fn cluster_ip(service: &mut Value, live: Option<&Value>, others: &[&Value]) -> Result<(), FieldError> {
    let taken: BTreeSet<&str> = others.iter().map(|other| object::text_at(other, "spec.clusterIP")).collect();
    let mut address = object::text_at(service, "spec.clusterIP").to_owned();
    if address.is_empty()
        && let Some(live) = live
    {
        object::text_at(live, "spec.clusterIP").clone_into(&mut address);
    }
    let spec = object::child_mut(service, "spec");
    crate::builtin::service::default_families(spec);
    if address.is_empty() {
        let free = (1..=254_u8).flat_map(|c| (1..=254_u8).map(move |d| (c, d))).map(|(c, d)| {
            let [a, b] = BLOCK;
            format!("{a}.{b}.{c}.{d}")
        });
        let Some(found) = free.into_iter().find(|ip| !taken.contains(ip.as_str())) else {
            return Err(FieldError::bare(
                crate::field::FieldReason::Internal,
                "spec.clusterIPs",
                "failed to allocate a serviceIP: range is full",
            ));
        };
        address = found;
    } else if address != "None" && !in_block(&address) {
        let why = format!(
            "failed to allocate IP {address}: the provided IP is not in the valid range. The range of valid IPs is 10.96.0.0/16"
        );
        return Err(FieldError::invalid("spec.clusterIPs", &json!([address]), &why));
    } else if address != "None" && taken.contains(address.as_str()) {
        return Err(FieldError::invalid(
            "spec.clusterIPs",
            &json!([address]),
            &format!("failed to allocate IP {address}: provided IP is already allocated"),
        ));
    }
    spec.insert("clusterIP".into(), json!(address));
    spec.insert("clusterIPs".into(), json!([address]));
    Ok(())
}

fn in_block(address: &str) -> bool {
    let [a, b] = BLOCK;
    address.parse::<std::net::Ipv4Addr>().is_ok_and(|ip| ip.octets().starts_with(&[a, b]))
}

fn node_ports(service: &mut Value, others: &[&Value]) -> Result<(), FieldError> {
    let ports_of = |service: &Value| -> Vec<u64> {
        let ports = object::at(service, "spec.ports").and_then(Value::as_array);
        ports.into_iter().flatten().filter_map(|p| p.get("nodePort").and_then(Value::as_u64)).collect()
    };
    let mut taken: BTreeSet<u64> = others.iter().flat_map(|other| ports_of(other)).collect();
    let spec = object::child_mut(service, "spec");
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for (at, port) in ports.into_iter().flatten().enumerate() {
        let Some(port) = port.as_object_mut() else { continue };
        let given = port.get("nodePort").and_then(Value::as_u64).unwrap_or(0);
        if given != 0 {
            let field = format!("spec.ports[{at}].nodePort");
            if !PORTS.contains(&given) {
                let why = "provided port is not in the valid range. The range of valid ports is 30000-32767";
                return Err(FieldError::invalid(field, &given, why));
            }
            if !taken.insert(given) {
                return Err(FieldError::invalid(field, &given, "provided port is already allocated"));
            }
            continue;
        }
        if let Some(free) = PORTS.into_iter().find(|port| !taken.contains(port)) {
            taken.insert(free);
            port.insert("nodePort".into(), json!(free));
        }
    }
    Ok(())
}
