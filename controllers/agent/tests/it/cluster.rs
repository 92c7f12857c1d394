//! The embedded API server with VMs, and what elsewhere their controller does.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use neonvm_api::VirtualMachine;
use neonvm_api::names::SCHEDULER_LEASE;
use neonvm_kit::authority;
use neonvm_kit::service::Endpoint;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

pub(crate) const NODE: &str = "n1";
pub(crate) const NAMESPACE: &str = "neonvm-system";

pub(crate) struct Cluster {
    pub(crate) client: Client,
    directory: tempfile::TempDir,
    /// Whether the status of VMs follows what is asked of them.
    follows: Arc<AtomicBool>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Waits for a condition.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what}: not within 30 s");
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = neonvm_local::Config {
            directory: directory.path().into(),
            listen: ([127, 0, 0, 1], 0).into(),
            names: Vec::new(),
            faults: true,
        };
        let server = neonvm_local::Server::start(&config).await.unwrap();
        let kubeconfig = directory.path().join("kubeconfig");
        std::fs::write(&kubeconfig, server.kubeconfig("t").to_string()).unwrap();
        let client = neonvm_kit::client::connect(Some(&kubeconfig)).await.unwrap();
        let api = tokio::spawn(async move {
            let _ = server.run(std::future::pending()).await;
        });
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in neonvm_api::crds() {
            let definition: CustomResourceDefinition = serde_json::from_value(definition).unwrap();
            let created = definitions.create(&PostParams::default(), &definition).await.unwrap();
            until("the definition", async || {
                let seen = definitions.get(&created.metadata.name.clone()?).await.unwrap();
                let conditions = seen.status?.conditions?;
                conditions.iter().any(|c| c.type_ == "Established" && c.status == "True").then_some(())
            })
            .await;
        }
        // The namespace and the secret that all services share.
        authority::open(&client, NAMESPACE, "test").await.unwrap();
        let follows = Arc::new(AtomicBool::new(true));
        let controller = tokio::spawn(follow(client.clone(), Arc::clone(&follows)));
        Self { client, directory, follows, tasks: [api, controller] }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// Whether VMs become what is asked of them.
    pub(crate) fn follows(&self, yes: bool) {
        self.follows.store(yes, Ordering::Relaxed);
    }

    /// Sets a fault switch of the API server.
    pub(crate) async fn chaos(&self, name: &str, value: u64) {
        let request = http::Request::put(format!("/chaos/{name}?value={value}")).body(Vec::new()).unwrap();
        self.client.request_text(request).await.unwrap();
    }

    /// The API server answers so many requests with this status.
    pub(crate) async fn fail(&self, status: u64, count: u64) {
        self.chaos("status", status).await;
        self.chaos("fail", count).await;
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
        merge(&mut vm, more);
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

    /// ASKED, in compute units; both resources must agree.
    pub(crate) async fn asked(&self, name: &str) -> u32 {
        let guest = self.get(name).await.spec.guest;
        let (cpu, slots) = (guest.cpus.r#use.milli(), u32::from(guest.memory_slots.r#use));
        assert_eq!(cpu, slots * 250, "{name}: not in whole compute units");
        slots
    }

    /// Waits until a VM is asked to have so many compute units.
    pub(crate) async fn is_asked(&self, name: &str, units: u32) {
        until(&format!("{name} has {units} units"), async || (self.asked(name).await == units).then_some(()))
            .await;
    }

    /// Says where the scheduler is.
    pub(crate) async fn scheduler_is_at(&self, endpoint: Option<Endpoint>) {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        let annotations = endpoint.map(Endpoint::annotations).unwrap_or_default();
        let holder = if endpoint.is_some() { "somebody" } else { "" };
        let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": SCHEDULER_LEASE, "annotations": annotations },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15 } });
        let force = PatchParams::apply("test").force();
        api.patch(SCHEDULER_LEASE, &force, &Patch::Apply(lease)).await.unwrap();
    }
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// Does what the controller does: the status shows what was asked for.
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
        // A VM may be gone by now.
        let _ = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(change)).await;
    }
}
