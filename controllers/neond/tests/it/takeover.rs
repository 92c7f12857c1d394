//! The leading scheduler is killed while agents send requests: the other one of the pair continues, and the permits on
//! a node never exceed its size.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use kube::Client;
use kube::api::{Patch, PatchParams};
use neonvm_api::names::SCHEDULER_LEASE;
use neonvm_kit::authority::{self, AGENTS, SCHEDULER_NAME, agent_common_name};
use neonvm_kit::call::Caller;
use neonvm_kit::service::{self, Endpoint};
use neonvm_test_cluster::{Signer, apply, client_of};
use serde_json::{Value, json};

use crate::cluster::{Cluster, manifests, until};
use crate::service::{Service, containers};

const NAMESPACE: &str = "neonvm-system";
/// What the node has, in compute units of a CPU and a gibibyte.
const CAPACITY: u64 = 10;
/// VMs on it, each of one to eight units: together they would have three times as much.
const VMS: usize = 4;
/// Answers that each VM gets of each scheduler that leads.
const ANSWERS: u64 = 6;
/// Times that the one that leads is killed.
const KILLS: usize = 3;

/// What each VM holds, and how often it was answered.
#[derive(Default)]
struct Account {
    held: BTreeMap<String, u64>,
    answers: BTreeMap<String, u64>,
    most: u64,
}

impl Account {
    /// An agent makes its VM smaller before it reports that.
    fn shrink(&mut self, vm: &str, target: u64) -> Option<u64> {
        let held = self.held.get_mut(vm)?;
        *held = target.min(*held);
        Some(*held)
    }

    /// What it has is never taken away by a permit for less.
    fn permitted(&mut self, vm: &str, units: u64) {
        let held = self.held.entry(vm.to_owned()).or_default();
        *held = units.max(*held);
        *self.answers.entry(vm.to_owned()).or_default() += 1;
        let all: u64 = self.held.values().sum();
        self.most = self.most.max(all);
        assert!(all <= CAPACITY, "{:?} of {CAPACITY} units are permitted", self.held);
    }

    fn fewest(&self) -> u64 {
        if self.answers.len() < VMS { 0 } else { self.answers.values().copied().min().unwrap_or(0) }
    }
}

fn node() -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
}

/// A VM on the node, with its pod, as the controller makes it.
async fn vm(client: &Client, name: &str) {
    let bounds = json!({"min": 1, "max": 8, "use": 1});
    let labels = json!({"autoscaling.neon.tech/enabled": "true"});
    let vm = json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": "default", "labels": labels}, "spec": {"guest": {"cpus": bounds,
        "memorySlots": bounds, "memorySlotSize": "1Gi", "rootDisk": {"image": "i"}}}});
    apply(client, &vm).await;
    let made = client_of(client, &vm).get(name).await.unwrap();
    let owner = json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "name": name,
        "uid": made.metadata.uid, "controller": true});
    let usage = json!({"cpu": "1", "memory": "1Gi"}).to_string();
    let resources = json!({"cpus": bounds, "memorySlots": bounds, "memorySlotSize": "1Gi"}).to_string();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default",
        "ownerReferences": [owner],
        "labels": {"autoscaling.neon.tech/enabled": "true", "vm.neon.tech/name": name},
        "annotations": {"vm.neon.tech/usage": usage, "vm.neon.tech/resources": resources}},
        "spec": {"nodeName": "n1", "containers": [{"name": "neonvm-runner", "image": "i",
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}});
    apply(client, &pod).await;
    let runs = Patch::Merge(json!({"status": {"phase": "Running"}}));
    client_of(client, &pod).patch_status(name, &PatchParams::default(), &runs).await.unwrap();
}

/// An agent repeatedly requests other sizes for one VM from whichever scheduler leads.
async fn ask(
    client: Client,
    connect: impl Fn(Endpoint) -> Caller,
    vm: String,
    (account, over): (Arc<Mutex<Account>>, Arc<AtomicBool>),
) {
    let units = |units: u64| json!({"vCPUs": units, "mem": format!("{units}Gi")});
    for turn in 0.. {
        if over.load(Ordering::Acquire) {
            return;
        }
        let Ok(Some(endpoint)) = service::find(&client, NAMESPACE, SCHEDULER_LEASE).await else { continue };
        let target = 1 + (turn * 5 + vm.bytes().map(u64::from).sum::<u64>()) % 8;
        let last = account.lock().unwrap().shrink(&vm, target);
        let request = json!({"protoVersion": 7, "pod": {"namespace": "default", "name": vm},
            "computeUnit": units(1), "resources": units(target), "lastPermit": last.map(units),
            "metrics": {"loadAvg1M": 0.5}});
        let mut caller = connect(endpoint);
        let body = Bytes::from(request.to_string());
        match caller.call(Method::POST, "/", body, Duration::from_secs(20)).await {
            Ok((StatusCode::OK, answer)) => {
                let answer: Value = serde_json::from_slice(&answer).unwrap();
                account.lock().unwrap().permitted(&vm, answer["permit"]["vCPUs"].as_u64().unwrap());
            }
            // No scheduler leads, or it has just ended.
            _ => tokio::task::yield_now().await,
        }
    }
}

async fn kube_scheduler_leads(cluster: &Cluster, pod: &str) {
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "neonvm-kube-scheduler", "namespace": NAMESPACE},
        "spec": {"holderIdentity": format!("{pod}_0c1d"), "leaseDurationSeconds": 3600}});
    apply(&cluster.client, &lease).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_is_killed_and_nothing_is_permitted_twice() {
    let cluster = Cluster::start().await;
    let _signer = Signer::start(&cluster.client).await;
    apply(&cluster.client, &node()).await;
    let amounts = json!({"cpu": CAPACITY.to_string(), "memory": format!("{CAPACITY}Gi"), "pods": "100"});
    let status = json!({"status": {"capacity": amounts, "allocatable": amounts}});
    let nodes = client_of(&cluster.client, &node());
    nodes.patch_status("n1", &Default::default(), &Patch::Merge(status)).await.unwrap();
    let names: Vec<String> = (0..VMS).map(|number| format!("v{number}")).collect();
    for name in &names {
        vm(&cluster.client, name).await;
    }

    let all = manifests();
    let extender = all.iter().flat_map(|(_, object)| containers(object));
    let extender = extender.into_iter().find(|container| container["name"] == "scheduler").unwrap();
    // The pod that it is for belongs to a node; this one has no room to lose.
    let kubeconfig = cluster.server.kubeconfig_of_pod("neonvm-scheduler", "elsewhere").await;
    let mut pair: BTreeMap<usize, Service> = BTreeMap::new();
    let pod = |number: usize| format!("neonvm-scheduler-{}", number % 2);
    for number in 0..2 {
        pair.insert(number, Service::start_in(&pod(number), extender, &kubeconfig, &[]));
    }
    kube_scheduler_leads(&cluster, &pod(0)).await;

    let authority = authority::read(&cluster.client, NAMESPACE).await.unwrap();
    let identity = authority.client(&agent_common_name("n1"), &[AGENTS]).unwrap();
    let tls = neonvm_kit::tls::client(Some(&identity), authority.certificate().as_bytes()).unwrap();
    let tls = Arc::new(tls);
    let connect = move |endpoint| Caller::new(endpoint, Some(Arc::clone(&tls)), SCHEDULER_NAME);
    let (account, over) = (Arc::new(Mutex::new(Account::default())), Arc::new(AtomicBool::new(false)));
    let mut agents = tokio::task::JoinSet::new();
    for name in &names {
        let shared = (Arc::clone(&account), Arc::clone(&over));
        agents.spawn(ask(cluster.client.clone(), connect.clone(), name.clone(), shared));
    }

    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{SCHEDULER_LEASE}");
    for kill in 0..=KILLS {
        let leader = kill % 2;
        let log = pair[&leader].log();
        until(&format!("{} to lead: {log}", pod(leader)), async || {
            cluster.get(&path).await.is_some_and(|lease| lease["spec"]["holderIdentity"] == pod(leader))
        })
        .await;
        // Each agent has something of this leader before it is killed.
        let wanted = account.lock().unwrap().fewest() + ANSWERS;
        until("answers for each VM", async || account.lock().unwrap().fewest() >= wanted).await;
        if kill == KILLS {
            break;
        }
        pair.get_mut(&leader).unwrap().kill();
        // The kube-scheduler beside it ends with it, and that of the other pod leads. The lease need not be waited for.
        kube_scheduler_leads(&cluster, &pod(leader + 1)).await;
        cluster.server.end_lease(SCHEDULER_LEASE).await;
        // The kubelet starts it again.
        pair.insert(leader, Service::start_in(&pod(leader), extender, &kubeconfig, &[]));
    }
    over.store(true, Ordering::Release);
    agents.join_all().await;
    let most = account.lock().unwrap().most;
    assert!(most > CAPACITY / 2, "only {most} units were ever permitted: no VM requested what another had");
    assert_eq!(cluster.server.forbidden().await, Vec::<String>::new());
}
