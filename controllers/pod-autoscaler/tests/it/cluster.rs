//! An API server with our kind, and autoscalers that can be killed and have the rights of their service account only.

use std::path::PathBuf;
use std::time::Duration;

use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Config as ClientConfig};
use neonvm_api::PodAutoscaler;
use neonvm_api::pod_autoscaler::PodAutoscalerStatus;
use neonvm_pod_autoscaler::{Config, WebhookConfig, run, run_with};
pub(crate) use neonvm_test_cluster::PATIENCE;
use neonvm_test_cluster::{ApiServer, define, eventually};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) client: Client,
    account: PathBuf,
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
        let server = ApiServer::start().await;
        let client = server.client.clone();
        let ours = |kind: &Value| kind["spec"]["group"] == "autoscaling.aibrix.ai";
        define(&client, neonvm_api::crds().into_iter().filter(ours).collect()).await;
        let account = server.kubeconfig_of_service("pod-autoscaler").await;
        Self { server, client, account }
    }

    pub(crate) fn autoscaler(&self) -> Running {
        let config = Config { kubeconfig: Some(self.account.clone()), ..config() };
        Running(tokio::spawn(async move { run(config, std::future::pending()).await.unwrap() }))
    }

    pub(crate) fn autoscaler_with(&self, webhooks: WebhookConfig) -> Running {
        let config = Config { kubeconfig: Some(self.account.clone()), webhooks: Some(webhooks), ..config() };
        Running(tokio::spawn(async move { run(config, std::future::pending()).await.unwrap() }))
    }

    /// One that reaches the API server in another way.
    pub(crate) fn autoscaler_through(mut to: ClientConfig) -> Running {
        let client = neonvm_kit::client::from_config(to.clone()).unwrap();
        to.default_retry = false;
        let metrics = neonvm_kit::client::from_config(to).unwrap();
        Running(tokio::spawn(async move {
            run_with(client, metrics, config(), std::future::pending()).await.unwrap();
        }))
    }

    /// A client with the rights of an autoscaler.
    pub(crate) async fn account(&self) -> Client {
        neonvm_kit::client::connect(Some(&self.account)).await.unwrap()
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
        eventually(what, async || {
            let status = self.api().get(name).await.unwrap().status.unwrap_or_default();
            if is(&status) { Ok(status) } else { Err(serde_json::to_string_pretty(&status).unwrap()) }
        })
        .await
    }
}

fn config() -> Config {
    // Pods are simulated on the loopback interface, in separate networks.
    let scrape_allowed = vec!["127.64.0.0/10".parse().unwrap(), "127.128.0.0/10".parse().unwrap()];
    Config { scrape_timeout: Duration::from_millis(500), scrape_allowed, ..Config::default() }
}

/// An autoscaler of a deployment by the queue of its pods: ten for each, a reconcile every second.
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
