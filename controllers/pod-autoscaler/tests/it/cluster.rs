//! An API server with our kind, and autoscalers that can be killed and have the rights of their service account only.

use std::time::Duration;

use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config as ClientConfig};
use neonvm_api::PodAutoscaler;
use neonvm_api::pod_autoscaler::PodAutoscalerStatus;
use neonvm_local::Server;
use neonvm_pod_autoscaler::{Config, run_with};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// How long a test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);

pub(crate) struct Cluster {
    pub(crate) client: Client,
    account: ClientConfig,
    state: std::sync::Arc<neonvm_local::state::State>,
    server: JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// An autoscaler that runs; killed when dropped.
pub(crate) struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
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
        let client = Client::try_from(config.clone()).unwrap();
        let ours = |kind: &Value| kind["spec"]["group"] == "autoscaling.aibrix.ai";
        define(&client, neonvm_api::crds().into_iter().filter(ours).collect()).await;
        let account = account(&client, config).await;
        Self { client, account, state, server, _directory: directory }
    }

    pub(crate) fn autoscaler(&self) -> Running {
        Self::autoscaler_through(self.account.clone())
    }

    /// One that reaches the API server in another way.
    pub(crate) fn autoscaler_through(mut to: ClientConfig) -> Running {
        let client = Client::try_from(to.clone()).unwrap();
        to.default_retry = false;
        let metrics = Client::try_from(to).unwrap();
        let config = Config { scrape_timeout: Duration::from_millis(500), ..Config::default() };
        Running(tokio::spawn(async move {
            run_with(client, metrics, config, std::future::pending()).await.unwrap();
        }))
    }

    /// A client with the rights of an autoscaler.
    pub(crate) fn account(&self) -> Client {
        Client::try_from(self.account.clone()).unwrap()
    }

    pub(crate) fn api(&self) -> Api<PodAutoscaler> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) async fn create(&self, object: Value) -> PodAutoscaler {
        let object: PodAutoscaler = serde_json::from_value(object).unwrap();
        self.api().create(&PostParams::default(), &object).await.unwrap()
    }

    pub(crate) async fn patch(&self, name: &str, change: Value) {
        self.api().patch(name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    }

    /// Waits until the status is as wanted.
    pub(crate) async fn until(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&PodAutoscalerStatus) -> bool,
    ) -> PodAutoscalerStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.api().get(name).await.unwrap().status.unwrap_or_default();
            if is(&status) {
                return status;
            }
            let text = serde_json::to_string_pretty(&status).unwrap();
            assert!(Instant::now() < deadline, "not {what}: {text}");
            sleep(LOOK).await;
        }
    }

    /// The newest revision of anything in the cluster.
    pub(crate) fn revision(&self) -> u64 {
        self.state.with(|engine| engine.store().revision())
    }

    /// Nobody was refused for lack of rights.
    pub(crate) async fn nothing_forbidden(&self) {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let text = self.client.request_text(request).await.unwrap();
        assert!(text.contains("apiserver_request_total"), "{text}");
        let refused: Vec<&str> = text.lines().filter(|line| line.contains("code=\"403\"")).collect();
        assert!(refused.is_empty(), "{refused:?}");
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

    async fn event_reasons(&self, name: &str) -> Vec<String> {
        let api: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(self.client.clone(), "default");
        let list = api.list(&ListParams::default()).await.unwrap().items;
        let of = list
            .into_iter()
            .filter(|event| event.regarding.as_ref().and_then(|object| object.name.as_deref()) == Some(name));
        of.filter_map(|event| event.reason).collect()
    }
}

/// An autoscaler of a deployment by the queue of its pods: ten for each, a turn every second.
pub(crate) fn autoscaler(name: &str, target: &str, port: u16, strategy: &str) -> Value {
    json!({"apiVersion": "autoscaling.aibrix.ai/v1alpha1", "kind": "PodAutoscaler",
        "metadata": {"name": name, "namespace": "default", "annotations": {
            "autoscaling.aibrix.ai/scale-down-cooldown-window": "1s",
            "autoscaling.aibrix.ai/max-scale-up-rate": "4"}},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "minReplicas": 1, "maxReplicas": 8, "scalingStrategy": strategy, "syncPeriodSeconds": 1,
            "observeWindowSeconds": 2, "panicWindowSeconds": 1,
            "metricsSources": [{"metricSourceType": "pod", "protocolType": "http", "path": "/stats",
                "port": port.to_string(), "targetMetric": "queue_length", "targetValue": "10"}]}})
}

/// Status, reason and message of a condition.
pub(crate) fn condition(status: &PodAutoscalerStatus, kind: &str) -> Option<(String, String, String)> {
    let found = status.conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((found.status.clone(), found.reason.clone(), found.message.clone()))
}

async fn account(admin: &Client, mut config: ClientConfig) -> ClientConfig {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "neonvm-system"}});
    let text = include_str!("../../../../deploy/manifests/pod-autoscaler.yaml");
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
    let path = "/api/v1/namespaces/neonvm-system/serviceaccounts/neonvm-pod-autoscaler/token";
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
