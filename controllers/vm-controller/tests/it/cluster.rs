//! An API server with our kinds, a fake node, and controllers that can be killed.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::Phase;
use neonvm_kit::ca::{Authority, Identity};
pub(crate) use neonvm_test_cluster::PATIENCE;
use neonvm_test_cluster::{ApiServer, eventually, merge};
use neonvm_vm_controller::{Config, WebhookClient, run};
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::node::Node;

pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) client: Client,
    /// The same, which does not try again by itself what was refused for now.
    pub(crate) once: Client,
    /// What controllers are given: they have the rights of their service account, and no others.
    pub(crate) account: PathBuf,
    pub(crate) node: Arc<Node>,
    pub(crate) config: Config,
    playing: JoinHandle<()>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
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
        let server = ApiServer::with_our_kinds().await;
        let client = server.client.clone();
        let once = neonvm_kit::client::connect_without_retries(Some(&server.kubeconfig())).await.unwrap();
        let account = server.kubeconfig_of_service("vm-controller").await;
        let node = Node::new(client.clone());
        let playing = tokio::spawn(Arc::clone(&node).play());
        let mut config = Config::default();
        config.settings.certificate_pause = 1;
        config.settings.restart_pause = 1;
        Self { server, client, once, account, node, config, playing }
    }

    /// What the API server shows to webhooks.
    pub(crate) fn caller(&self) -> WebhookClient {
        let names = vec![neonvm_test_cluster::CALLER.to_owned()];
        WebhookClient { authority: self.server.directory().join("ca.crt"), names }
    }

    /// A certificate of the API server's own authority.
    pub(crate) fn identity_of(&self, name: &str) -> Identity {
        Authority::open(self.server.directory()).unwrap().client(name, &[]).unwrap()
    }

    pub(crate) fn controller(&self) -> Controller {
        self.controller_with(self.config.clone())
    }

    pub(crate) fn controller_with(&self, mut config: Config) -> Controller {
        config.kubeconfig = Some(self.account.clone());
        let (kill, killed) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    _ = killed => (),
                    ended = run(config, std::future::pending()) => ended.unwrap(),
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
        self.try_create(name, spec).await.unwrap()
    }

    pub(crate) async fn try_create(&self, name: &str, spec: Value) -> kube::Result<VirtualMachine> {
        let mut vm = json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": {"name": name},
            "spec": {"guest": {"cpus": {"min": 0.25, "max": 2, "use": 0.25},
                "memorySlots": {"min": 1, "max": 4, "use": 1}, "rootDisk": {"image": "img:1"}}}});
        merge(&mut vm["spec"], &spec);
        let gvk = GroupVersionKind::gvk("vm.neon.tech", "v1", "VirtualMachine");
        let api: Api<DynamicObject> =
            Api::default_namespaced_with(self.client.clone(), &ApiResource::from_gvk(&gvk));
        // Sent as written: the server normalises the floats.
        let object = serde_json::from_value(vm).unwrap();
        let made = api.create(&PostParams::default(), &object).await?;
        Ok(serde_json::from_value(serde_json::to_value(made).unwrap()).unwrap())
    }

    pub(crate) async fn patch(&self, name: &str, change: Value) {
        self.vms().patch(name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    }

    /// Waits until the VM is as wanted.
    pub(crate) async fn until(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&VirtualMachine) -> bool,
    ) -> VirtualMachine {
        let api = self.vms();
        eventually(what, async || {
            let vm = api.get(name).await.unwrap();
            if is(&vm) { Ok(vm) } else { Err(serde_json::to_string_pretty(&vm.status).unwrap()) }
        })
        .await
    }

    pub(crate) async fn until_phase(&self, name: &str, phase: Phase) -> VirtualMachine {
        self.until(name, phase.as_str(), |vm| phase_of(vm) == Some(phase)).await
    }

    /// Runs, is ready, and has the requested size.
    pub(crate) async fn until_settled(&self, name: &str) -> VirtualMachine {
        let settled = |vm: &VirtualMachine| {
            phase_of(vm) == Some(Phase::Running)
                && condition(vm, "Available").0 == "True"
                && condition(vm, "Scaled").0 == "True"
        };
        let vm = self.until(name, "settled", settled).await;
        self.server.nothing_forbidden().await;
        vm
    }

    pub(crate) async fn pods_of(&self, name: &str) -> Vec<Pod> {
        let selector = format!("vm.neon.tech/name={name}");
        self.pods().list(&ListParams::default().labels(&selector)).await.unwrap().items
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
