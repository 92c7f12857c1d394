//! A cluster: the embedded API server, and schedulers that are started and stopped.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use neonvm_api::VirtualMachine;
use neonvm_kit::authority::{self, AGENTS, OPERATORS, SCHEDULER_NAME, agent_common_name};
use neonvm_kit::call::Caller;
use neonvm_kit::lease::Times;
use neonvm_kit::service::Endpoint;
use neonvm_scheduler::{Config, Running};
pub(crate) use neonvm_test_cluster::eventually;
use neonvm_test_cluster::{ApiServer, Signer};
use neonvm_types::scheduler_inspect::Inspect;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Longest wait for one answer.
const WITHIN: Duration = Duration::from_secs(20);

pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) server: ApiServer,
    _signer: Signer,
}

/// A scheduler. Dropped, it is gone at once, as if it was killed.
pub(crate) struct Scheduler {
    pub(crate) endpoint: Endpoint,
    pub(crate) plain: Endpoint,
    pub(crate) metrics: Endpoint,
    task: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Scheduler {
    /// Stops it as SIGTERM does.
    pub(crate) async fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        (&mut self.task).await.unwrap();
    }
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let server = ApiServer::with_our_kinds().await;
        let signer = Signer::start(&server.client).await;
        Self { client: server.client.clone(), server, _signer: signer }
    }

    pub(crate) fn config(&self, identity: &str) -> Config {
        let loopback = ([127, 0, 0, 1], 0).into();
        Config {
            kubeconfig: Some(self.server.kubeconfig()),
            identity: identity.into(),
            plain: Some(loopback),
            metrics: Some(loopback),
            // Longer than anything takes: nothing here is about a slow machine.
            lease: Times {
                duration: Duration::from_secs(60),
                renew_deadline: Duration::from_secs(50),
                retry: Duration::from_millis(200),
            },
            request_timeout: WITHIN,
            ..Config::default()
        }
    }

    pub(crate) async fn scheduler(&self, config: Config) -> Scheduler {
        let running: Running = neonvm_scheduler::start(config).await.unwrap();
        let endpoint = running.endpoint();
        let at = |address: Option<std::net::SocketAddr>| Endpoint { address: address.unwrap(), plain: true };
        let (plain, metrics) = (at(running.plain()), at(running.metrics()));
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            running
                .lead(async {
                    if stopped.await.is_err() {
                        std::future::pending::<()>().await;
                    }
                })
                .await
                .unwrap();
        });
        Scheduler { endpoint, plain, metrics, task, stop: Some(stop) }
    }

    /// A scheduler that leads and has listed all objects.
    pub(crate) async fn leader(&self, config: Config) -> Scheduler {
        let scheduler = self.scheduler(config).await;
        ready(&scheduler).await;
        scheduler
    }

    /// A connection with a certificate of an organisation.
    pub(crate) async fn caller(&self, endpoint: Endpoint, organisations: &[&str]) -> Caller {
        let authority = authority::read(&self.client, "neonvm-system").await.unwrap();
        // Agents are of the node n1.
        let common_name =
            if organisations == [AGENTS] { agent_common_name("n1") } else { "other".to_owned() };
        let identity = authority.client(&common_name, organisations).unwrap();
        let tls = neonvm_kit::tls::client(Some(&identity), authority.certificate().as_bytes()).unwrap();
        Caller::new(endpoint, Some(Arc::new(tls)), SCHEDULER_NAME)
    }

    pub(crate) async fn agent(&self, scheduler: &Scheduler) -> Caller {
        self.caller(scheduler.endpoint, &[AGENTS]).await
    }

    pub(crate) async fn inspect(&self, scheduler: &Scheduler) -> Inspect {
        let mut caller = self.caller(scheduler.endpoint, &[OPERATORS]).await;
        let (status, body) = call(&mut caller, Method::GET, "/v1/inspect", "").await;
        assert_eq!(status, StatusCode::OK);
        serde_json::from_str(&body).unwrap()
    }

    pub(crate) async fn node(&self, name: &str, cpu: &str, memory: &str) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let value = json!({ "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } } });
        nodes.create(&PostParams::default(), &serde_json::from_value(value).unwrap()).await.unwrap();
        // New nodes are tainted until they are reported ready.
        let untainted = json!({ "spec": { "taints": null } });
        nodes.patch(name, &PatchParams::default(), &Patch::Merge(untainted)).await.unwrap();
        let amounts = json!({ "cpu": cpu, "memory": memory, "pods": "100" });
        let status = json!({ "status": { "capacity": amounts, "allocatable": amounts } });
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    pub(crate) async fn pod(&self, name: &str, memory: &str) -> Pod {
        let value = json!({ "metadata": { "name": name }, "spec": { "schedulerName": "autoscale-scheduler", "containers": [
            { "name": "c", "image": "i", "resources": { "requests": { "memory": memory } } } ] } });
        self.create_pod(value).await
    }

    async fn create_pod(&self, value: Value) -> Pod {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), "default");
        pods.create(&PostParams::default(), &serde_json::from_value(value).unwrap()).await.unwrap()
    }

    /// A VM and its pod, as the controller makes it; sizes in units of one CPU and one gibibyte. On a node, or waiting.
    pub(crate) async fn vm(&self, name: &str, using: u16, max: u16, node: Option<&str>) -> VirtualMachine {
        let vms: Api<VirtualMachine> = Api::namespaced(self.client.clone(), "default");
        let bounds = json!({ "min": 1, "max": max, "use": using });
        let labels = json!({ "autoscaling.neon.tech/enabled": "true" });
        let vm = json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
            "metadata": { "name": name, "labels": labels },
            "spec": { "guest": { "cpus": bounds, "memorySlots": bounds, "memorySlotSize": "1Gi", "rootDisk": { "image": "i" } } } });
        let vm = vms.create(&PostParams::default(), &serde_json::from_value(vm).unwrap()).await.unwrap();
        let usage = json!({ "cpu": using.to_string(), "memory": format!("{using}Gi") }).to_string();
        let resources = json!({ "cpus": bounds, "memorySlots": bounds, "memorySlotSize": "1Gi" }).to_string();
        let owner = json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "name": name,
            "uid": vm.metadata.uid, "controller": true });
        let mut pod = json!({ "metadata": { "name": name, "ownerReferences": [owner],
            "labels": { "autoscaling.neon.tech/enabled": "true", "vm.neon.tech/name": name },
            "annotations": { "vm.neon.tech/usage": usage, "vm.neon.tech/resources": resources } },
            "spec": { "containers": [{ "name": "neonvm-runner", "image": "i" }] } });
        if let Some(node) = node {
            pod["spec"]["nodeName"] = json!(node);
        }
        self.create_pod(pod).await;
        if node.is_some() {
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), "default");
            let runs = json!({ "status": { "phase": "Running" } });
            pods.patch_status(name, &PatchParams::default(), &Patch::Merge(runs)).await.unwrap();
        }
        vm
    }

    pub(crate) async fn annotations(&self, vm: &str) -> std::collections::BTreeMap<String, String> {
        let vms: Api<VirtualMachine> = Api::namespaced(self.client.clone(), "default");
        vms.get(vm).await.unwrap().metadata.annotations.unwrap_or_default()
    }

    pub(crate) async fn node_of(&self, name: &str) -> String {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), "default");
        let what = format!("the binding of {name}");
        eventually(&what, async || pods.get(name).await.unwrap().spec.unwrap().node_name).await
    }
}

pub(crate) async fn ready(scheduler: &Scheduler) {
    eventually("that it leads", async || {
        let mut caller = Caller::new(scheduler.metrics, None, "");
        let (status, _) = caller.call(Method::GET, "/leadz", Bytes::new(), WITHIN).await.ok()?;
        (status == StatusCode::OK).then_some(())
    })
    .await;
}

pub(crate) async fn call(
    caller: &mut Caller,
    method: Method,
    path: &str,
    body: impl ToString,
) -> (StatusCode, String) {
    let (status, body) = caller.call(method, path, Bytes::from(body.to_string()), WITHIN).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// A request of the latest version, in units of one CPU and one gibibyte.
pub(crate) fn request(pod: &str, units: u64, last: Option<u64>) -> Value {
    let amount = |units: u64| json!({ "vCPUs": units, "mem": format!("{units}Gi") });
    json!({ "protoVersion": 7, "pod": { "namespace": "default", "name": pod }, "computeUnit": amount(1),
        "resources": amount(units), "lastPermit": last.map(amount), "metrics": { "loadAvg1M": 0.5 } })
}

/// Sends a request and returns the number of permitted units.
pub(crate) async fn ask(caller: &mut Caller, pod: &str, units: u64, last: Option<u64>) -> u64 {
    let (status, body) = call(caller, Method::POST, "/", request(pod, units, last)).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    let permit = answer["permit"]["vCPUs"].as_u64().unwrap();
    assert_eq!(answer["permit"]["mem"], json!(format!("{permit}Gi")));
    permit
}
