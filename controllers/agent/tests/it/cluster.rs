//! The embedded API server with VMs, and what elsewhere their controller does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::TryStreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use neonvm_api::VirtualMachine;
use neonvm_api::names::SCHEDULER_LEASE;
use neonvm_kit::service::Endpoint;
use neonvm_test_cluster::{ApiServer, Signer, merge};
pub(crate) use neonvm_test_cluster::{NAMESPACE, PATIENCE, eventually};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

pub(crate) const NODE: &str = "n1";

pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) client: Client,
    /// Whether the status of VMs follows the requested size.
    follows: Arc<AtomicBool>,
    controller: JoinHandle<()>,
    _signer: Signer,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.controller.abort();
    }
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let server = ApiServer::with_our_kinds().await;
        let client = server.client.clone();
        let signer = Signer::start(&client).await;
        let follows = Arc::new(AtomicBool::new(true));
        let controller = tokio::spawn(follow(client.clone(), Arc::clone(&follows)));
        Self { server, client, follows, controller, _signer: signer }
    }

    /// Whether VMs take the requested size.
    pub(crate) fn follows(&self, yes: bool) {
        self.follows.store(yes, Ordering::Relaxed);
    }

    /// The API server answers so many requests with this status.
    pub(crate) async fn fail(&self, status: u64, count: u64) {
        self.server.fault("status", status).await;
        self.server.fault("fail", count).await;
    }

    pub(crate) fn vms(&self) -> Api<VirtualMachine> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// A running VM of one compute unit that may grow to 16; `more` is merged into its object.
    pub(crate) async fn vm(&self, name: &str, ip: &str, more: Value) {
        let mut vm = json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
            "metadata": { "name": name, "labels": { "autoscaling.neon.tech/enabled": "true" } },
            "spec": { "schedulerName": "autoscale-scheduler", "guest": {
                "cpus": { "min": "250m", "max": 4, "use": "250m" }, "memorySlots": { "min": 1, "max": 16, "use": 1 },
                "memorySlotSize": "1Gi", "rootDisk": { "image": "i" } } } });
        merge(&mut vm, &more);
        self.vms().create(&PostParams::default(), &serde_json::from_value(vm).unwrap()).await.unwrap();
        let status = json!({ "status": { "phase": "Running", "node": NODE, "podName": format!("{name}-pod"), "podIP": ip,
            "cpus": "250m", "memorySize": "1Gi" } });
        self.vms().patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    pub(crate) async fn get(&self, name: &str) -> VirtualMachine {
        self.vms().get(name).await.unwrap()
    }

    pub(crate) async fn patch(&self, name: &str, change: Value) {
        self.vms().patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    }

    pub(crate) async fn patch_status(&self, name: &str, change: Value) {
        let change = json!({ "status": change });
        self.vms().patch_status(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    }

    /// Sets an annotation, or takes it away.
    pub(crate) async fn annotate(&self, name: &str, key: &str, value: Option<&str>) {
        self.patch(name, json!({ "metadata": { "annotations": { key: value } } })).await;
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.vms().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// The requested size, in compute units; both resources must agree.
    pub(crate) async fn asked(&self, name: &str) -> u32 {
        let guest = self.get(name).await.spec.guest;
        let (cpu, slots) = (guest.cpus.r#use.milli(), u32::from(guest.memory_slots.r#use));
        assert_eq!(cpu, slots * 250, "{name}: not in whole compute units");
        slots
    }

    /// Waits until a VM's requested size is so many compute units.
    pub(crate) async fn is_asked(&self, name: &str, units: u32) {
        eventually(&format!("{name} has {units} units"), async || {
            (self.asked(name).await == units).then_some(())
        })
        .await;
    }

    /// Publishes the scheduler's address.
    pub(crate) async fn scheduler_is_at(&self, endpoint: Option<Endpoint>) {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        let annotations = endpoint.map(Endpoint::annotations).unwrap_or_default();
        let holder = if endpoint.is_some() { "other" } else { "" };
        let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": SCHEDULER_LEASE, "annotations": annotations },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15 } });
        let force = PatchParams::apply("test").force();
        api.patch(SCHEDULER_LEASE, &force, &Patch::Apply(lease)).await.unwrap();
    }
}

/// Does what the controller does: the status shows the requested size.
async fn follow(client: Client, follows: Arc<AtomicBool>) {
    let api: Api<VirtualMachine> = Api::namespaced(client, "default");
    let mut events =
        Box::pin(watcher(api.clone(), watcher::Config::default()).default_backoff().touched_objects());
    loop {
        let Ok(Some(vm)) = events.try_next().await else { continue };
        let Some(status) = vm.status.filter(|_| follows.load(Ordering::Relaxed)) else { continue };
        let guest = vm.spec.guest;
        let memory = format!("{}Gi", guest.memory_slots.r#use);
        let shown = serde_json::to_value(status.memory_size).unwrap();
        if status.cpus == Some(guest.cpus.r#use) && shown == json!(memory) {
            continue;
        }
        let change = json!({ "status": { "cpus": guest.cpus.r#use, "memorySize": memory } });
        let name = vm.metadata.name.unwrap();
        // A VM may be gone by now. What the server refuses on a bad day is tried again: no event would come of it.
        for _ in 0..10 {
            if api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&change)).await.is_ok() {
                break;
            }
        }
    }
}
