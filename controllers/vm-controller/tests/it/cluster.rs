//! An API server with our kinds, a node that is played, and controllers that can be killed.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config as ClientConfig};
use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::Phase;
use neonvm_local::Server;
use neonvm_vm_controller::{Config, run_with};
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::node::Node;

/// How long a test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// The same, which does not try again by itself what was refused for now.
    pub(crate) once: Client,
    /// What controllers are given: they have the rights of their service account, and no others.
    account: ClientConfig,
    pub(crate) node: Arc<Node>,
    pub(crate) config: Config,
    pub(crate) state: Arc<neonvm_local::state::State>,
    server: JoinHandle<()>,
    playing: JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.server.abort();
        self.playing.abort();
    }
}

/// A controller that runs as a process would: with its own threads and its own connections. When it is dropped, all of
/// it is gone at once, also what it answered with.
pub(crate) struct Controller {
    kill: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for Controller {
    fn drop(&mut self) {
        drop(self.kill.take());
        let ended = self.thread.take().map(thread::JoinHandle::join);
        assert!(thread::panicking() || matches!(ended, Some(Ok(()))), "the controller failed");
    }
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = neonvm_local::server::Config {
            directory: directory.path().to_owned(),
            listen: "127.0.0.1:0".parse().unwrap(),
            names: Vec::new(),
            faults: true,
        };
        let server = Server::start(&config).await.unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig("test").to_string()).unwrap();
        let state = server.state();
        let server = tokio::spawn(server.run(std::future::pending()));
        let mut config =
            ClientConfig::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        config.read_timeout = None;
        let mut once = config.clone();
        once.default_retry = false;
        let once = Client::try_from(once).unwrap();
        let client = Client::try_from(config.clone()).unwrap();
        define(&client, neonvm_api::crds()).await;
        let account = account(&client, config).await;
        let node = Node::new(client.clone());
        let playing = tokio::spawn(Arc::clone(&node).play());
        let mut config = Config::default();
        config.settings.certificate_pause = 1;
        config.settings.restart_pause = 1;
        Self { client, once, account, node, config, state, server, playing, _directory: directory }
    }

    pub(crate) fn controller(&self) -> Controller {
        self.controller_with(self.config.clone())
    }

    pub(crate) fn controller_with(&self, config: Config) -> Controller {
        let account = self.account.clone();
        let (kill, killed) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            runtime.block_on(async {
                let client = Client::try_from(account).unwrap();
                tokio::select! {
                    _ = killed => (),
                    ended = run_with(client, config, std::future::pending()) => ended.unwrap(),
                }
            });
        });
        Controller { kill: Some(kill), thread: Some(thread) }
    }

    pub(crate) fn vms(&self) -> Api<VirtualMachine> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Creates a small machine; `spec` is laid over it.
    pub(crate) async fn create(&self, name: &str, spec: Value) -> VirtualMachine {
        let mut vm = json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": {"name": name},
            "spec": {"guest": {"cpus": {"min": 0.25, "max": 2, "use": 0.25},
                "memorySlots": {"min": 1, "max": 4, "use": 1}, "rootDisk": {"image": "img:1"}}}});
        merge(&mut vm["spec"], &spec);
        let gvk = GroupVersionKind::gvk("vm.neon.tech", "v1", "VirtualMachine");
        let api: Api<DynamicObject> =
            Api::default_namespaced_with(self.client.clone(), &ApiResource::from_gvk(&gvk));
        // Sent as written: the server normalises the floats.
        let object = serde_json::from_value(vm).unwrap();
        let made = api.create(&PostParams::default(), &object).await.unwrap();
        serde_json::from_value(serde_json::to_value(made).unwrap()).unwrap()
    }

    pub(crate) async fn patch(&self, name: &str, change: Value) {
        self.vms().patch(name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    }

    /// Waits until the machine is as wanted.
    pub(crate) async fn until(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&VirtualMachine) -> bool,
    ) -> VirtualMachine {
        let api = self.vms();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let vm = api.get(name).await.unwrap();
            if is(&vm) {
                return vm;
            }
            assert!(
                Instant::now() < deadline,
                "not {what}: {}",
                serde_json::to_string_pretty(&vm.status).unwrap()
            );
            sleep(LOOK).await;
        }
    }

    pub(crate) async fn until_phase(&self, name: &str, phase: Phase) -> VirtualMachine {
        self.until(name, phase.as_str(), |vm| phase_of(vm) == Some(phase)).await
    }

    /// Runs, is ready, and has the size asked for.
    pub(crate) async fn until_settled(&self, name: &str) -> VirtualMachine {
        let settled = |vm: &VirtualMachine| {
            phase_of(vm) == Some(Phase::Running)
                && condition(vm, "Available").0 == "True"
                && condition(vm, "Scaled").0 == "True"
        };
        let vm = self.until(name, "settled", settled).await;
        self.nothing_forbidden().await;
        vm
    }

    /// Nobody was refused for lack of rights.
    pub(crate) async fn nothing_forbidden(&self) {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let text = self.client.request_text(request).await.unwrap();
        assert!(text.contains("apiserver_request_total"), "{text}");
        let refused: Vec<&str> = text.lines().filter(|line| line.contains("code=\"403\"")).collect();
        assert!(refused.is_empty(), "{refused:?}");
    }

    pub(crate) async fn pods_of(&self, name: &str) -> Vec<Pod> {
        let selector = format!("vm.neon.tech/name={name}");
        self.pods().list(&ListParams::default().labels(&selector)).await.unwrap().items
    }

    /// The newest revision of anything in the cluster.
    pub(crate) fn revision(&self) -> u64 {
        self.state.with(|engine| engine.store().revision())
    }

    /// Waits until nothing was written for a while; returns the revision.
    pub(crate) async fn until_quiet(&self) -> u64 {
        let deadline = Instant::now() + PATIENCE;
        let mut last = (self.revision(), Instant::now());
        while last.1.elapsed() < Duration::from_millis(600) {
            assert!(Instant::now() < deadline, "there is no rest");
            sleep(LOOK).await;
            if self.revision() != last.0 {
                last = (self.revision(), Instant::now());
            }
        }
        last.0
    }

    /// Events are written down by the way: whatever they tell of may be seen before them.
    pub(crate) async fn until_events(&self, name: &str, wanted: &[&str]) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let told = self.event_reasons(name).await;
            if wanted.iter().all(|reason| told.iter().any(|known| known == reason)) {
                return;
            }
            assert!(Instant::now() < deadline, "{name}: {wanted:?} in {told:?}");
            sleep(LOOK).await;
        }
    }

    pub(crate) async fn event_reasons(&self, name: &str) -> Vec<String> {
        let api: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(self.client.clone(), "default");
        let list = api.list(&ListParams::default()).await.unwrap().items;
        let of = list
            .into_iter()
            .filter(|event| event.regarding.as_ref().and_then(|object| object.name.as_deref()) == Some(name));
        of.filter_map(|event| event.reason).collect()
    }
}

pub(crate) fn phase_of(vm: &VirtualMachine) -> Option<Phase> {
    vm.status.as_ref().and_then(|status| status.phase)
}

/// Status, reason and message of a condition.
pub(crate) fn condition(vm: &VirtualMachine, kind: &str) -> (String, String, String) {
    let conditions = vm.status.iter().flat_map(|status| &status.conditions);
    conditions
        .filter(|condition| condition.type_ == kind)
        .map(|found| (found.status.clone(), found.reason.clone(), found.message.clone()))
        .next()
        .unwrap_or_default()
}

/// Makes the service account and the roles of `deploy/manifests`, and tells how a client is that account.
async fn account(admin: &Client, mut config: ClientConfig) -> ClientConfig {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "neonvm-system"}});
    let text = include_str!("../../../../deploy/manifests/vm-controller.yaml");
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    for object in [namespace].into_iter().chain(documents) {
        let group = object["apiVersion"].as_str().unwrap();
        if !["v1", "rbac.authorization.k8s.io/v1"].contains(&group) {
            continue;
        }
        let (group, version) = group.split_once('/').unwrap_or(("", group));
        let kind =
            ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap()));
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(admin.clone(), namespace, &kind),
            None => Api::all_with(admin.clone(), &kind),
        };
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    let path = "/api/v1/namespaces/neonvm-system/serviceaccounts/neonvm-vm-controller/token";
    let wanted = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let request = http::Request::post(path).header("content-type", "application/json");
    let made: Value = admin.request(request.body(wanted.to_string().into_bytes()).unwrap()).await.unwrap();
    let token = made["status"]["token"].as_str().unwrap().to_owned();
    config.auth_info = kube::config::AuthInfo { token: Some(token.into()), ..Default::default() };
    config
}

/// Defines kinds and waits until they are served.
pub(crate) async fn define(client: &Client, crds: Vec<Value>) {
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
    for crd in crds {
        let crd: DynamicObject = serde_json::from_value(crd).unwrap();
        let name = crd.metadata.name.clone().unwrap();
        api.create(&PostParams::default(), &crd).await.unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now = api.get(&name).await.unwrap();
            let conditions = now.data.pointer("/status/conditions").and_then(Value::as_array).cloned();
            let served =
                conditions.into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True");
            if served {
                break;
            }
            assert!(Instant::now() < deadline, "{name} is not served");
            sleep(LOOK).await;
        }
    }
}

fn merge(target: &mut Value, change: &Value) {
    match (target, change) {
        (Value::Object(target), Value::Object(change)) => {
            for (key, value) in change {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, change) => target.clone_from(change),
    }
}
