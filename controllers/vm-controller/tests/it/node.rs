//! A fake node: each pod gets an address on the loopback network and a runner; deleted pods end.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use neonvm_api::runner_pod::{RunnerConfig, identity_secret};
use neonvm_core_vm_lifecycle::pod::sealed;
use neonvm_kit::anchors::sha256;
use neonvm_types::runner_protocol::{Exit, ExitReason};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::runner::{Machine, Temper, serve};

/// Addresses of all nodes of all tests in this process are different.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The loopback network 127.x.0.0/16 of this process, for as long as the listener is held: tests run in several processes
/// at a time.
static NETWORK: LazyLock<(u8, TcpListener)> = LazyLock::new(|| {
    let begin = std::process::id() as usize % NETWORKS.len();
    let mut all = NETWORKS.cycle().skip(begin).take(NETWORKS.len());
    all.find_map(|number| {
        Some((number, TcpListener::bind((Ipv4Addr::new(127, number, 255, 254), LOCK)).ok()?))
    })
    .expect("a loopback network that no other process of these tests has")
});
const NETWORKS: std::ops::Range<u8> = 7..64;
/// Port that nothing else listens on, by which a network is taken.
const LOCK: u16 = 25_182;

/// An address that no other pod has.
fn address() -> Ipv4Addr {
    let number = NEXT.fetch_add(1, Ordering::Relaxed) + 1;
    let [_, _, high, low] = number.to_be_bytes();
    Ipv4Addr::new(127, NETWORK.0, high, low)
}

struct Running {
    uid: String,
    machine: Machine,
    runner: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.runner.abort();
    }
}

pub(crate) struct Node {
    client: Client,
    running: Mutex<BTreeMap<String, Running>>,
    /// UIDs of pods that have ended: late watch events must not start them again.
    ended: Mutex<BTreeSet<String>>,
    /// A pod is started to the end before it is ended.
    turn: tokio::sync::Mutex<()>,
    /// Most runners of one machine that were alive at once.
    most: Mutex<BTreeMap<String, usize>>,
    /// The node is cut off: it neither starts nor ends anything.
    pub(crate) cut_off: AtomicBool,
    pub(crate) temper: watch::Sender<Temper>,
    /// Why pods on `n1` cannot become larger.
    pub(crate) full: Mutex<Option<String>>,
}

impl Node {
    pub(crate) fn new(client: Client) -> Arc<Self> {
        Arc::new(Self {
            client,
            running: Mutex::default(),
            ended: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            most: Mutex::default(),
            cut_off: AtomicBool::new(false),
            temper: watch::Sender::new(Temper::default()),
            full: Mutex::default(),
        })
    }

    pub(crate) fn machine(&self, pod: &str) -> Machine {
        self.running.lock().unwrap()[pod].machine.clone()
    }

    /// Most runners of the VM that were alive at once.
    pub(crate) fn most(&self, vm: &str) -> usize {
        self.most.lock().unwrap().get(vm).copied().unwrap_or(0)
    }

    pub(crate) async fn play(self: Arc<Self>) {
        let api: Api<Pod> = Api::default_namespaced(self.client.clone());
        let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
        loop {
            // The watch of a server that was stopped on purpose is tried again.
            let Ok(Some(event)) = events.try_next().await else { continue };
            match event {
                watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) => self.see(&pod).await,
                watcher::Event::Delete(pod) => {
                    self.running.lock().unwrap().retain(|_, run| Some(&run.uid) != pod.metadata.uid.as_ref());
                }
                watcher::Event::Init | watcher::Event::InitDone => {}
            }
        }
    }

    async fn see(self: &Arc<Self>, pod: &Pod) {
        let name = pod.name_any();
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        if self.cut_off.load(Ordering::Relaxed) {
            return;
        }
        let known = self.running.lock().unwrap().get(&name).map(|run| run.uid.clone());
        let uid = pod.metadata.uid.clone();
        if pod.metadata.deletion_timestamp.is_some() {
            if known.is_some() {
                self.end(&name, Exit::new(ExitReason::Stopped, "asked to stop")).await;
            }
            let only = Preconditions { uid, resource_version: None };
            let how = DeleteParams {
                grace_period_seconds: Some(0),
                preconditions: Some(only),
                ..DeleteParams::default()
            };
            let api: Api<Pod> = Api::default_namespaced(self.client.clone());
            insist(|| api.delete(&name, &how)).await;
        } else if known.is_some() && known == uid && phase == "Running" {
            self.resize(pod).await;
        } else if known.is_none()
            && matches!(phase.as_str(), "" | "Pending")
            && !uid.is_some_and(|uid| self.ended.lock().unwrap().contains(&uid))
        {
            let _turn = self.turn.lock().await;
            self.start(pod).await;
        }
    }

    async fn start(self: &Arc<Self>, pod: &Pod) {
        let (name, uid) = (pod.name_any(), pod.uid().unwrap());
        let secrets: Api<Secret> = Api::default_namespaced(self.client.clone());
        // Without its secrets a pod waits.
        let volumes = pod.spec.as_ref().unwrap().volumes.iter().flatten();
        for needed in volumes.filter_map(|volume| volume.secret.as_ref()?.secret_name.clone()) {
            if insist(|| secrets.get(&needed)).await.is_none() {
                return;
            }
        }
        let Some(kept) = insist(|| secrets.get(&name)).await else { return };
        let identity = identity_secret(&name);
        let Some(secret) = insist(|| secrets.get(&identity)).await else { return };
        let json = &kept.data.as_ref().unwrap()["vm.json"].0;
        // A runner refuses another configuration than that of its pod.
        assert_eq!(sealed(pod), Some(sha256(json).as_str()));
        let config: RunnerConfig = serde_json::from_slice(json).unwrap();
        let machine = Machine::new(&config);
        let ip = address();
        let address = SocketAddr::new(ip.into(), config.spec.runner_port);
        let runner = tokio::spawn({
            let (machine, temper) = (machine.clone(), self.temper.subscribe());
            async move { serve(address, &secret, machine, temper).await }
        });
        let vm = pod.labels()["vm.neon.tech/name"].clone();
        {
            let mut running = self.running.lock().unwrap();
            running.insert(name.clone(), Running { uid, machine, runner: runner.abort_handle() });
            let prefix = format!("{vm}-");
            let alive =
                running.keys().filter(|pod| pod.strip_prefix(&prefix).is_some_and(|s| s.len() == 5)).count();
            let mut most = self.most.lock().unwrap();
            let most = most.entry(vm).or_default();
            *most = (*most).max(alive);
        }
        // A target is elsewhere.
        let node = if config.receive.is_some() { "n2" } else { "n1" };
        self.appear(node).await;
        self.bind(&name, node).await;
        let (status, resources) = (json!({"podIP": ip.to_string()}), resources(pod));
        self.run(&name, status, &resources, generation(pod)).await;
    }

    /// The container runs with these resources, and no resize waits.
    async fn run(&self, pod: &str, mut status: Value, resources: &Value, generation: Option<i64>) {
        status["phase"] = json!("Running");
        status["observedGeneration"] = json!(generation);
        status["conditions"] = json!([]);
        status["containerStatuses"] = json!([
            {"name": "neonvm-runner", "image": "", "imageID": "", "ready": true, "restartCount": 0,
             "state": {"running": {}}, "resources": resources}]);
        self.status(pod, status).await;
    }

    /// Imitates a kubelet: the sizes of the spec come into force, unless the node has no room.
    async fn resize(&self, pod: &Pod) {
        let status = pod.status.as_ref().unwrap();
        if status.observed_generation == generation(pod) {
            return;
        }
        let here = pod.spec.as_ref().unwrap().node_name.as_deref() == Some("n1");
        let containers = status.container_statuses.as_deref().unwrap_or_default();
        let in_force = containers.first().and_then(|one| one.resources.clone());
        // A request that was taken back leaves nothing to deny.
        let same = in_force.is_some_and(|in_force| json!(in_force) == resources(pod));
        let full = self.full.lock().unwrap().clone().filter(|_| here && !same);
        if let Some(message) = full {
            let pending = json!({"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": message,
                "observedGeneration": generation(pod)});
            let status = json!({"observedGeneration": generation(pod), "conditions": [pending]});
            self.status(&pod.name_any(), status).await;
        } else {
            self.run(&pod.name_any(), json!({}), &resources(pod), generation(pod)).await;
        }
    }

    /// The node's object, unless a test has made it: without one no pod on it can be resized.
    async fn appear(&self, node: &str) {
        let api: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.client.clone());
        let object = serde_json::from_value(json!({"metadata": {"name": node, "labels": {
            "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}}}))
        .unwrap();
        let (params, patching) = (PostParams::default(), PatchParams::default());
        if insist(|| api.create(&params, &object)).await.is_some() {
            let room = json!({"cpu": "64", "memory": "256Gi", "pods": "100"});
            let status = Patch::Merge(json!({"status": {"capacity": room, "allocatable": room}}));
            insist(|| api.patch_status(node, &patching, &status)).await;
        }
    }

    /// A pod that has a node is ended by that node, with its grace; the server removes others at once.
    async fn bind(&self, pod: &str, node: &str) {
        let body = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
            "target": {"kind": "Node", "name": node}})
        .to_string();
        let path = format!("/api/v1/namespaces/default/pods/{pod}/binding");
        let client = &self.client;
        insist(|| {
            let request = http::Request::post(&path).header("content-type", "application/json");
            client.request_text(request.body(body.clone().into_bytes()).unwrap())
        })
        .await;
    }

    /// The runner in the pod ends, with a termination message. It may have ended before, because its pod was deleted.
    pub(crate) async fn end(&self, pod: &str, exit: Exit) {
        let _turn = self.turn.lock().await;
        let Some(run) = self.remove(pod) else { return };
        run.machine.end(exit.clone());
        drop(run);
        self.terminate(pod, exit.is_success(), &exit.to_message()).await;
    }

    /// The pod ends before there was anything of a runner.
    pub(crate) async fn refuse(&self, pod: &str, exit: &Exit) {
        self.terminate(pod, exit.is_success(), &exit.to_message()).await;
    }

    /// Kills the runner, without a termination message.
    pub(crate) async fn kill(&self, pod: &str) {
        let _turn = self.turn.lock().await;
        drop(self.remove(pod));
        self.terminate(pod, false, "").await;
    }

    /// What ran in the pod. It is not started again.
    fn remove(&self, pod: &str) -> Option<Running> {
        let mut running = self.running.lock().unwrap();
        let run = running.remove(pod)?;
        self.ended.lock().unwrap().insert(run.uid.clone());
        Some(run)
    }

    async fn terminate(&self, pod: &str, well: bool, message: &str) {
        let phase = if well { "Succeeded" } else { "Failed" };
        let code = if well { 0 } else { 1 };
        self.status(
            pod,
            json!({"phase": phase, "containerStatuses": [
            {"name": "neonvm-runner", "image": "", "imageID": "", "ready": false, "restartCount": 0,
             "state": {"terminated": {"exitCode": code, "message": message, "reason": "Error"}}}]}),
        )
        .await;
    }

    async fn status(&self, pod: &str, status: Value) {
        let api: Api<Pod> = Api::default_namespaced(self.client.clone());
        let change = json!({"status": status});
        let (params, change) = (PatchParams::default(), Patch::Merge(&change));
        insist(|| api.patch_status(pod, &params, &change)).await;
    }
}

fn generation(pod: &Pod) -> Option<i64> {
    pod.metadata.generation
}

/// Resources of the runner's container.
fn resources(pod: &Pod) -> Value {
    json!(pod.spec.as_ref().unwrap().containers[0].resources)
}

/// As a kubelet does: again, until it works or there is nothing to work on.
async fn insist<T, F: Future<Output = Result<T, kube::Error>>>(ask: impl Fn() -> F) -> Option<T> {
    for _ in 0..50 {
        match ask().await {
            Ok(answer) => return Some(answer),
            // A conflict: it was done before, and the answer was lost.
            Err(kube::Error::Api(status))
                if matches!(status.code, 404 | 409) && status.message != "injected conflict" =>
            {
                return None;
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    None
}
