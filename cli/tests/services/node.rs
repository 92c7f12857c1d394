//! Fake nodes: each pod that is bound gets an address on the loopback network, a runner and a guest; deleted pods end.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use neonvm_api::runner_pod::{RunnerConfig, identity_secret};
use neonvm_types::runner_protocol::{Exit, ExitReason, RunnerStatus};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use super::runner::{self, Machine, Targets};

/// Addresses of all pods in this process are different.
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
const NETWORKS: std::ops::Range<u8> = 64..127;
/// Port that nothing else listens on, by which a network is taken.
const LOCK: u16 = 25_183;

/// An address that no other pod has.
fn address() -> Ipv4Addr {
    let [_, _, high, low] = (NEXT.fetch_add(1, Ordering::Relaxed) + 1).to_be_bytes();
    Ipv4Addr::new(127, NETWORK.0, high, low)
}

/// Imitates all kubelets until it is dropped.
pub(crate) async fn play(client: Client) {
    let api: Api<Pod> = Api::all(client.clone());
    let mut events = Box::pin(watcher(api, watcher::Config::default()).default_backoff());
    let mut pods: BTreeMap<String, mpsc::UnboundedSender<Pod>> = BTreeMap::new();
    let (mut tasks, targets) = (JoinSet::new(), Targets::default());
    loop {
        while tasks.try_join_next().is_some() {}
        match events.try_next().await {
            Ok(Some(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod))) => {
                let sender = pods.entry(pod.uid().unwrap()).or_insert_with(|| {
                    let (sender, receiver) = mpsc::unbounded_channel();
                    let kubelet = Kubelet {
                        client: client.clone(),
                        targets: Arc::clone(&targets),
                        run: None,
                        ready: false,
                        over: false,
                    };
                    tasks.spawn(kubelet.work(receiver));
                    sender
                });
                let _ = sender.send(pod);
            }
            Ok(Some(watcher::Event::Delete(pod))) => drop(pods.remove(&pod.uid().unwrap())),
            _ => {}
        }
    }
}

/// What runs in a pod.
struct Run {
    machine: Machine,
    runner: JoinHandle<()>,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.runner.abort();
    }
}

/// The kubelet's work on one pod.
struct Kubelet {
    client: Client,
    targets: Targets,
    run: Option<Run>,
    /// Whether the guest was last reported as ready.
    ready: bool,
    over: bool,
}

impl Kubelet {
    async fn work(mut self, mut pods: mpsc::UnboundedReceiver<Pod>) {
        let mut last: Option<Pod> = None;
        loop {
            let mut status = self.run.as_ref().map(|run| run.machine.status.subscribe());
            let ended = async {
                match &mut status {
                    Some(status) => {
                        let news =
                            |status: &RunnerStatus| status.exit.is_some() || status.ready != self.ready;
                        status.wait_for(news).await.ok().and_then(|status| status.exit.clone())
                    }
                    None => std::future::pending().await,
                }
            };
            let (exit, is_new) = tokio::select! {
                pod = pods.recv() => {
                    let Some(pod) = pod else { return };
                    last = Some(pod);
                    (None, true)
                }
                exit = ended => (exit, false),
            };
            let Some(pod) = last.clone() else { continue };
            match exit {
                Some(exit) => self.terminate(&pod, &exit).await,
                None if is_new => self.see(&pod).await,
                None => self.runs(&pod, json!({})).await,
            }
        }
    }

    fn pods(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace().unwrap())
    }

    async fn see(&mut self, pod: &Pod) {
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        if pod.metadata.deletion_timestamp.is_some() {
            if let Some(run) = self.run.take() {
                run.machine.end(Exit::new(ExitReason::Stopped, "asked to stop"));
            }
            self.over = true;
            let only = Preconditions { uid: pod.uid(), resource_version: None };
            let how = DeleteParams {
                grace_period_seconds: Some(0),
                preconditions: Some(only),
                ..DeleteParams::default()
            };
            let (api, name) = (self.pods(pod), pod.name_any());
            insist(|| api.delete(&name, &how)).await;
        } else if self.run.is_some() && phase == "Running" {
            self.resize(pod).await;
        } else if self.run.is_none()
            && !self.over
            && pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
        {
            self.start(pod).await;
        }
    }

    async fn start(&mut self, pod: &Pod) {
        let name = pod.name_any();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap());
        let identity = identity_secret(&name);
        // Without its secrets a pod waits.
        let (Some(kept), Some(identity)) = (secret(&secrets, &name).await, secret(&secrets, &identity).await)
        else {
            return;
        };
        let config: RunnerConfig = serde_json::from_slice(&kept.data.as_ref().unwrap()["vm.json"].0).unwrap();
        let machine = Machine::start(&config);
        if let Some(receive) = &config.receive {
            self.targets.lock().unwrap().insert(receive.migration.clone(), machine.clone());
        }
        let ip = address();
        let at = SocketAddr::new(ip.into(), config.spec.runner_port);
        let (served, targets) = (machine.clone(), Arc::clone(&self.targets));
        let runner = tokio::spawn(async move { runner::serve(at, &identity, served, targets).await });
        self.run = Some(Run { machine, runner });
        self.runs(pod, json!({ "podIP": ip.to_string() })).await;
    }

    /// The container runs with the resources of its pod, and no resize waits.
    async fn runs(&mut self, pod: &Pod, mut status: Value) {
        self.ready = self.run.as_ref().is_some_and(|run| run.machine.status.borrow().ready);
        status["phase"] = json!("Running");
        status["observedGeneration"] = json!(pod.metadata.generation);
        let ready = if self.ready { "True" } else { "False" };
        status["conditions"] = json!([{ "type": "Ready", "status": ready }]);
        let resources = &pod.spec.as_ref().unwrap().containers[0].resources;
        status["containerStatuses"] = json!([{ "name": "neonvm-runner", "image": "", "imageID": "", "ready": self.ready,
            "restartCount": 0, "state": { "running": {} }, "resources": resources }]);
        self.status(pod, status).await;
    }

    async fn resize(&mut self, pod: &Pod) {
        if pod.status.as_ref().is_some_and(|status| status.observed_generation != pod.metadata.generation) {
            self.runs(pod, json!({})).await;
        }
    }

    async fn terminate(&mut self, pod: &Pod, exit: &Exit) {
        (self.run, self.over) = (None, true);
        let (phase, code) = if exit.is_success() { ("Succeeded", 0) } else { ("Failed", 1) };
        let terminated = json!({ "exitCode": code, "message": exit.to_message(), "reason": "Error" });
        let container = json!({ "name": "neonvm-runner", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "terminated": terminated } });
        self.status(pod, json!({ "phase": phase, "containerStatuses": [container] })).await;
    }

    async fn status(&self, pod: &Pod, status: Value) {
        let (api, name) = (self.pods(pod), pod.name_any());
        let change = json!({ "metadata": { "uid": pod.uid() }, "status": status });
        let (params, change) = (PatchParams::default(), Patch::Merge(&change));
        insist(|| api.patch_status(&name, &params, &change)).await;
    }
}

/// A secret that is there within seconds, or not at all: the controller makes it before or after the pod.
async fn secret(secrets: &Api<Secret>, name: &str) -> Option<Secret> {
    for _ in 0..200 {
        if let Ok(Some(found)) = secrets.get_opt(name).await {
            return Some(found);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    None
}

/// As a kubelet does: again, until it works or there is nothing to work on.
async fn insist<T, F: Future<Output = Result<T, kube::Error>>>(ask: impl Fn() -> F) -> Option<T> {
    for _ in 0..50 {
        match ask().await {
            Ok(answer) => return Some(answer),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return None,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    None
}
