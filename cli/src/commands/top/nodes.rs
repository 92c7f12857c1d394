//! `top nodes`: how much of each node is allocated, to VMs by their observed size and to other pods by their requests.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Node, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use kube::api::{Api, ListParams};
use neonvm_api::VirtualMachine;
use neonvm_api::names::label;
use neonvm_types::{Bytes, Quantity};
use serde_json::{Value, json};

use super::Key;
use super::vms::{NONE, hundredfold, percent};
use crate::args::top::Nodes;
use crate::commands::vm::table::observed;
use crate::connect::{Connection, block_on};
use crate::error::Result;
use crate::live::size::float;
use crate::report::{API_VERSION, Column, Document, Report, left, right};
use crate::settings::Settings;

/// CPU in thousandths and memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    cpu: u64,
    memory: u64,
}

impl Amount {
    fn plus(self, other: Self) -> Self {
        Self { cpu: self.cpu.saturating_add(other.cpu), memory: self.memory.saturating_add(other.memory) }
    }

    fn or_more(self, other: Self) -> Self {
        Self { cpu: self.cpu.max(other.cpu), memory: self.memory.max(other.memory) }
    }

    fn written(amounts: Option<&BTreeMap<String, Written>>) -> Self {
        let parsed = |name: &str| {
            let text = amounts.and_then(|amounts| amounts.get(name));
            text.and_then(|text| text.0.parse::<Quantity>().ok())
        };
        let number = |value: i128| u64::try_from(value).unwrap_or(0);
        Self {
            cpu: parsed("cpu").map_or(0, |cpu| number(cpu.milli_rounded_up())),
            memory: parsed("memory").map_or(0, |memory| number(memory.units_rounded_up())),
        }
    }

    fn requested(resources: Option<&ResourceRequirements>) -> Self {
        Self::written(resources.and_then(|resources| resources.requests.as_ref()))
    }

    /// What a VM has; what it is to have while that is not known.
    fn of_machine(machine: &VirtualMachine) -> Self {
        let (mut cpu, mut memory) = observed(machine);
        let guest = &machine.spec.guest;
        if cpu.milli() == 0 {
            cpu = guest.cpus.r#use;
        }
        if memory == Bytes::ZERO {
            let slot = guest.slot_size().unwrap_or_default();
            memory = slot.saturating_mul(u32::from(guest.memory_slots.r#use));
        }
        Self { cpu: u64::from(cpu.milli()), memory: memory.get() }
    }

    /// What Kubernetes reserves for a pod: its containers and sidecars, or its greediest other init container, and overhead.
    fn of_pod(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        let (sidecars, once): (Vec<&Container>, Vec<&Container>) = spec
            .init_containers
            .iter()
            .flatten()
            .partition(|container| container.restart_policy.as_deref() == Some("Always"));
        let of = |container: &Container| Self::requested(container.resources.as_ref());
        let lasting = spec.containers.iter().chain(sidecars).map(of).fold(Self::default(), Self::plus);
        let most = once.into_iter().map(of).fold(lasting, Self::or_more);
        most.plus(Self::written(spec.overhead.as_ref()))
    }
}

/// A node and what of it is given away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Share {
    name: String,
    machines: usize,
    given: Amount,
    total: Amount,
}

/// The shares of all nodes.
fn shares(nodes: &[Node], machines: &[VirtualMachine], pods: &[Pod]) -> Vec<Share> {
    let mut shares: BTreeMap<String, Share> = BTreeMap::new();
    for node in nodes {
        let name = node.metadata.name.clone().unwrap_or_default();
        let total = Amount::written(node.status.as_ref().and_then(|status| status.allocatable.as_ref()));
        shares.insert(name.clone(), Share { name, total, ..Share::default() });
    }
    for machine in machines {
        let Some(status) = &machine.status else { continue };
        let here = shares.get_mut(&status.node);
        if let (Some(share), true) = (here, status.phase.is_none_or(|phase| !has_ended(phase))) {
            share.machines += 1;
            share.given = share.given.plus(Amount::of_machine(machine));
        }
    }
    for pod in pods {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        // A runner's pod requests what its VM may have, which is counted with the VM.
        let runner = pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(label::VM_NAME));
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        if let (Some(share), false, false) =
            (node.and_then(|node| shares.get_mut(node)), runner, matches!(phase, "Succeeded" | "Failed"))
        {
            share.given = share.given.plus(Amount::of_pod(pod));
        }
    }
    shares.into_values().collect()
}

fn has_ended(phase: neonvm_api::virtual_machine::Phase) -> bool {
    use neonvm_api::virtual_machine::Phase;
    matches!(phase, Phase::Succeeded | Phase::Failed)
}

impl Share {
    fn of_cpu(&self) -> Option<f64> {
        (self.total.cpu > 0).then(|| float(self.given.cpu) / float(self.total.cpu))
    }

    fn of_memory(&self) -> Option<f64> {
        (self.total.memory > 0).then(|| float(self.given.memory) / float(self.total.memory))
    }

    fn keys(&self) -> Vec<Key> {
        let number = |number: u64| Key::Number(Some(float(number)));
        vec![
            Key::Text(self.name.clone()),
            Key::Number(Some(float(u64::try_from(self.machines).unwrap_or(u64::MAX)))),
            number(self.given.cpu),
            number(self.total.cpu),
            Key::Number(self.of_cpu()),
            number(self.given.memory),
            number(self.total.memory),
            Key::Number(self.of_memory()),
        ]
    }

    fn row(&self) -> Vec<String> {
        let cpu = |milli: u64| format!("{}.{:02}", milli / 1000, milli % 1000 / 10);
        let known = |text: String, amount: u64| if amount > 0 { text } else { NONE.to_owned() };
        vec![
            self.name.clone(),
            self.machines.to_string(),
            cpu(self.given.cpu),
            known(cpu(self.total.cpu), self.total.cpu),
            percent(self.of_cpu(), 0),
            crate::render::bytes(self.given.memory),
            known(crate::render::bytes(self.total.memory), self.total.memory),
            percent(self.of_memory(), 0),
        ]
    }

    fn value(&self) -> Value {
        json!({ "name": self.name, "machines": self.machines,
            "cpu": { "allocated": float(self.given.cpu) / 1000.0, "allocatable": float(self.total.cpu) / 1000.0,
                "allocatedPercent": self.of_cpu().map(hundredfold) },
            "memory": { "allocatedBytes": self.given.memory, "allocatableBytes": self.total.memory,
                "allocatedPercent": self.of_memory().map(hundredfold) } })
    }
}

fn columns() -> Vec<Column> {
    vec![
        left("NODE"),
        right("VMS"),
        right("CPU-ALLOC"),
        right("CPU-TOTAL"),
        right("CPU%"),
        right("MEM-ALLOC"),
        right("MEM-TOTAL"),
        right("MEM%"),
    ]
}

/// The table of nodes and what is allocated of each.
pub(super) fn run(settings: &Settings, args: &Nodes) -> Result<Report> {
    let column = super::column(&columns(), args.sort_by.as_deref().unwrap_or("cpu%"))?;
    block_on(async {
        let connection = Connection::open(settings).await?;
        let (client, all) = (|| connection.client(), ListParams::default());
        let (nodes, vms, pods) = (Api::all(client()), Api::all(client()), Api::all(client()));
        let (nodes, vms, pods) = tokio::try_join!(
            connection.within("cannot list nodes", nodes.list(&all)),
            connection.within("cannot list VMs", vms.list(&all)),
            connection.within("cannot list pods", pods.list(&all)),
        )?;
        let shares = super::sorted(shares(&nodes.items, &vms.items, &pods.items), column, Share::keys);
        let items: Vec<Value> = shares.iter().map(Share::value).collect();
        let report = Report::document(Document {
            value: json!({ "apiVersion": API_VERSION, "kind": "NodeUsageList", "items": items }),
            names: shares.iter().map(|share| format!("node/{}", share.name)).collect(),
            text: None,
            columns: columns(),
            rows: shares.iter().map(Share::row).collect(),
        });
        Ok(if shares.is_empty() { report.note("no nodes") } else { report })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> Node {
        serde_json::from_value(json!({ "metadata": { "name": name },
            "status": { "allocatable": { "cpu": "4", "memory": "16Gi" } } }))
        .unwrap()
    }

    fn pod(node: &str, phase: &str, labels: &Value) -> Pod {
        let resources = |cpu: &str| json!({ "requests": { "cpu": cpu, "memory": "1Gi" } });
        serde_json::from_value(json!({ "metadata": { "name": "p", "labels": labels },
            "spec": { "nodeName": node, "overhead": { "cpu": "50m" },
                "containers": [{ "name": "a", "resources": resources("100m") }, { "name": "b" }],
                "initContainers": [{ "name": "i", "resources": resources("300m") },
                    { "name": "s", "restartPolicy": "Always", "resources": resources("100m") }] },
            "status": { "phase": phase } }))
        .unwrap()
    }

    fn machine(node: &str, status: &Value) -> VirtualMachine {
        let mut machine: VirtualMachine = serde_json::from_value(json!({
            "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": { "name": "m" },
            "spec": { "guest": { "cpus": { "min": 1, "max": 3, "use": 2 }, "rootDisk": { "image": "img" },
                "memorySlots": { "min": 1, "max": 12, "use": 4 } } }, "status": status }))
        .unwrap();
        machine.status.as_mut().unwrap().node = node.to_owned();
        machine
    }

    #[test]
    fn machines_count_as_they_are_and_pods_as_they_request() {
        let vms = [
            machine("n1", &json!({ "phase": "Running", "cpus": "2750m", "memorySize": "11Gi" })),
            machine("n1", &json!({ "phase": "Failed", "cpus": 1, "memorySize": "1Gi" })),
            machine("n2", &json!({ "phase": "Pending" })),
            machine("gone", &json!({ "phase": "Running" })),
        ];
        let pods = [
            pod("n1", "Running", &json!({})),
            pod("n1", "Succeeded", &json!({})),
            pod("n1", "Running", &json!({ "vm.neon.tech/name": "m" })),
        ];
        let shares = shares(&[node("n2"), node("n1")], &vms, &pods);
        // 2.75 and the pod's init container with its overhead; the memory of a container and a sidecar.
        assert_eq!(shares[0].row(), ["n1", "1", "3.10", "4.00", "78%", "13Gi", "16Gi", "81%"]);
        assert_eq!(shares[1].row(), ["n2", "1", "2.00", "4.00", "50%", "4Gi", "16Gi", "25%"]);
        assert_eq!(shares[0].keys().len(), columns().len());
        assert_eq!(shares[0].value()["cpu"]["allocated"], 3.1);
    }

    #[test]
    fn a_node_that_does_not_report_its_capacity() {
        let shares = shares(&[Node::default()], &[], &[]);
        assert_eq!(shares[0].row()[3..5], ["-", "-"]);
    }
}
