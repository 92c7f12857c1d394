//! Whether a pod may go to a node.

use std::fmt;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use neonvm_api::names::annotation;
use neonvm_types::Quantity;
use neonvm_types::quantity::Format;
use neonvm_types::runner_protocol::{HostFacts, MachineInfo, facts};
use serde::de::DeserializeOwned;

use crate::amounts::allocatable;
use crate::{Amounts, Demand, HOSTNAME_LABEL, Usage, affinity, taints, tolerated};

/// Why a pod may not go to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Too little of a resource is free. Amounts are in billionths of the resource's unit.
    Insufficient {
        resource: String,
        /// What the pod takes.
        needs: i128,
        /// What is free.
        has: i128,
    },
    /// The node does not carry a label that `nodeSelector` requires.
    Selector {
        key: String,
        /// Value it should have.
        value: String,
    },
    /// No term of the pod's required node affinity matches.
    NodeAffinity,
    /// A taint is not tolerated.
    Taint {
        key: String,
        /// Its value; may be empty.
        value: String,
    },
    /// The node's host cannot receive the VM of the pod; a text that continues a sentence about the node.
    Host(String),
    /// The node is cordoned.
    Unschedulable,
    /// The node's condition `Ready` is not true.
    NotReady,
    /// The pod must not share a node with another one that is there.
    AntiAffinity {
        /// Namespace and name of the other.
        with: String,
    },
    /// A port of the node that the pod wants is taken.
    Port {
        /// The host port that is taken.
        port: i32,
        /// Namespace and name of the pod that has it.
        with: String,
    },
    /// Pods can be kept apart by host name only.
    Topology {
        /// Key of the label that the pod requires.
        key: String,
    },
}

fn amount(resource: &str, nanos: i128) -> String {
    let units = i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX);
    match resource {
        "cpu" => {
            let milli = i64::try_from(nanos / 1_000_000).unwrap_or(i64::MAX);
            Quantity::from_milli(milli, Format::DecimalSi).to_string()
        }
        "memory" | "ephemeral-storage" => Quantity::from_units(units, Format::BinarySi).to_string(),
        _ => units.to_string(),
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Insufficient { resource, needs, has } => {
                let (needs, has) = (amount(resource, *needs), amount(resource, *has));
                write!(f, "insufficient {resource} (needs {needs}, has {has})")
            }
            Self::Selector { key, value } => write!(f, "does not have the label {key}={value}"),
            Self::NodeAffinity => f.write_str("does not match the node affinity"),
            Self::Taint { key, value } if value.is_empty() => write!(f, "has the taint {key}"),
            Self::Taint { key, value } => write!(f, "has the taint {key}={value}"),
            Self::Host(why) => f.write_str(why),
            Self::Unschedulable => f.write_str("is cordoned"),
            Self::NotReady => f.write_str("is not ready"),
            Self::AntiAffinity { with } => write!(f, "runs {with}, which the pod must be apart from"),
            Self::Port { port, with } => write!(f, "port {port} is taken by {with}"),
            Self::Topology { key } => {
                write!(f, "pods can be kept apart by {HOSTNAME_LABEL} only, not by {key}")
            }
        }
    }
}

/// Whether a pod may go to a node. `usage` and `pods` are of the pods that are bound to it and have not ended.
///
/// # Errors
/// The first reason against it; what no change of the node's load mends comes first.
pub fn fit<'a>(
    pod: &Pod,
    node: &Node,
    usage: &Usage,
    pods: impl Iterator<Item = &'a Pod>,
) -> Result<(), Reason> {
    suits(pod, node)?;
    receives(pod, node)?;
    beside(pod, pods)?;
    room(Demand::from_pod(pod).amounts(), &allocatable(node), usage.amounts())
}

/// Whether a node is one that a pod may go to at all: labels, taints, readiness.
pub(crate) fn suits(pod: &Pod, node: &Node) -> Result<(), Reason> {
    labels(pod, node)?;
    unrepelled(pod, node)
}

/// Whether a node's host can run the VM that the pod has, or is to receive, by what both have published. What one of them
/// has not published is no obstacle: the target's runner compares again.
pub(crate) fn receives(pod: &Pod, node: &Node) -> Result<(), Reason> {
    let machine: Option<MachineInfo> = published(&pod.metadata, annotation::MACHINE);
    let Some(machine) = machine else { return Ok(()) };
    let host: HostFacts = published(&node.metadata, annotation::HOST_FACTS).unwrap_or_default();
    facts::obstacle(&machine, &host).map_or(Ok(()), |obstacle| Err(Reason::Host(obstacle.to_string())))
}

/// The JSON in an annotation; none if there is none that can be read.
fn published<T: DeserializeOwned>(meta: &ObjectMeta, key: &str) -> Option<T> {
    serde_json::from_str(meta.annotations.as_ref()?.get(key)?).ok()
}

/// Whether a pod can be on a node beside others: rules that keep pods apart, ports of the node.
pub(crate) fn beside<'a>(pod: &Pod, pods: impl Iterator<Item = &'a Pod>) -> Result<(), Reason> {
    let pods: Vec<&Pod> = pods.collect();
    ports(pod, &pods)?;
    apart(pod, pods.into_iter())
}

/// Port, protocol and address.
fn host_ports(pod: &Pod) -> impl Iterator<Item = (i32, &str, &str)> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports.filter_map(|port| {
        let number = port.host_port.filter(|number| *number != 0)?;
        let address = port.host_ip.as_deref().filter(|ip| !matches!(*ip, "0.0.0.0" | "::")).unwrap_or("");
        Some((number, port.protocol.as_deref().unwrap_or("TCP"), address))
    })
}

fn ports(pod: &Pod, others: &[&Pod]) -> Result<(), Reason> {
    for (port, protocol, address) in host_ports(pod) {
        for other in others {
            let taken = host_ports(other).any(|(theirs, same, at)| {
                theirs == port && same == protocol && (at.is_empty() || address.is_empty() || at == address)
            });
            if taken {
                return Err(Reason::Port { port, with: name_of(other) });
            }
        }
    }
    Ok(())
}

fn name_of(pod: &Pod) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}", part(&pod.metadata.namespace), part(&pod.metadata.name))
}

fn labels(pod: &Pod, node: &Node) -> Result<(), Reason> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    let own = node.metadata.labels.as_ref();
    for (key, value) in spec.node_selector.iter().flatten() {
        if own.and_then(|labels| labels.get(key)) != Some(value) {
            return Err(Reason::Selector { key: key.clone(), value: value.clone() });
        }
    }
    let rules = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    match rules.and_then(|rules| rules.required_during_scheduling_ignored_during_execution.as_ref()) {
        Some(selector) if !affinity::selects(selector, node) => Err(Reason::NodeAffinity),
        _ => Ok(()),
    }
}

/// Whether nothing about the node, such as a taint, repels the pod.
///
/// # Errors
/// What does.
pub fn unrepelled(pod: &Pod, node: &Node) -> Result<(), Reason> {
    let none = Vec::new();
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_ref()).unwrap_or(&none);
    let unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    let cordoned = k8s_openapi::api::core::v1::Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        effect: "NoSchedule".into(),
        ..Default::default()
    };
    if unschedulable && !tolerated(&cordoned, tolerations) {
        return Err(Reason::Unschedulable);
    }
    let all = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let own = |taint: &&k8s_openapi::api::core::v1::Taint| taint.key != cordoned.key;
    for taint in all.iter().filter(own).filter(|taint| taints::repels(taint)) {
        if !tolerated(taint, tolerations) {
            return Err(Reason::Taint {
                key: taint.key.clone(),
                value: taint.value.clone().unwrap_or_default(),
            });
        }
    }
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    if conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status != "True") {
        return Err(Reason::NotReady);
    }
    Ok(())
}

fn apart<'a>(pod: &Pod, pods: impl Iterator<Item = &'a Pod>) -> Result<(), Reason> {
    let own = affinity::apart(pod);
    if let Some(term) = own.iter().find(|term| term.topology_key != HOSTNAME_LABEL) {
        return Err(Reason::Topology { key: term.topology_key.clone() });
    }
    for other in pods {
        let theirs = affinity::apart(other);
        let against = own.iter().any(|term| affinity::is_about(term, pod, other))
            || theirs
                .iter()
                .any(|term| term.topology_key == HOSTNAME_LABEL && affinity::is_about(term, other, pod));
        if against {
            return Err(Reason::AntiAffinity { with: name_of(other) });
        }
    }
    Ok(())
}

/// Whether there is enough of everything.
pub(crate) fn room(demand: &Amounts, offered: &Amounts, used: &Amounts) -> Result<(), Reason> {
    for (resource, needs) in demand.iter().filter(|(_, needs)| *needs > 0) {
        let has = offered.get(resource).saturating_sub(used.get(resource)).max(0);
        if needs > has {
            return Err(Reason::Insufficient { resource: resource.to_owned(), needs, has });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_host_that_cannot_receive_the_vm_is_named() {
        let pod = |machine: Option<&str>| -> Pod {
            let annotations = machine.map(|text| json!({"vm.neon.tech/machine": text}));
            serde_json::from_value(json!({"metadata": {"name": "p", "annotations": annotations}})).unwrap()
        };
        let node = |facts: Option<&str>| -> Node {
            let annotations = facts.map(|text| json!({"vm.neon.tech/host-facts": text}));
            let status = json!({"allocatable": {"pods": "1", "cpu": "1", "memory": "1Gi"}});
            serde_json::from_value(
                json!({"metadata": {"name": "n", "annotations": annotations}, "status": status}),
            )
            .unwrap()
        };
        let fits = |machine, facts| {
            fit(&pod(machine), &node(facts), &Usage::default(), std::iter::empty())
                .map_err(|why| why.to_string())
        };
        let (ten, seven) = (r#"{"machineType":"pc-q35-10.0"}"#, r#"{"qemuVersion":"7.2.22"}"#);
        let why = "has QEMU 7.2.22, and the VM's machine type pc-q35-10.0 needs 10.0";
        assert_eq!(fits(Some(ten), Some(seven)), Err(why.to_owned()));
        // A VM that boots, a node that has published nothing, and texts that cannot be read.
        for (machine, facts) in
            [(None, Some(seven)), (Some(ten), None), (Some("x"), Some(seven)), (Some(ten), Some("x"))]
        {
            assert_eq!(fits(machine, facts), Ok(()), "{machine:?} {facts:?}");
        }
    }
}
