//! An embedded API server for tests of what speaks to one: with our kinds if they are defined, with service accounts that have
//! the rights of `deploy/manifests`, and with its fault switches on.
//!
//! Whatever goes wrong in here fails the test that asked for it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::missing_panics_doc, reason = "only tests use it")]

mod intercept;
pub mod metrics;
mod objects;
mod simulated;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use neonvm_apiserver::Server;
use neonvm_apiserver::state::State;
use neonvm_kit::{authority, signer};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub use intercept::{healthz, intercepted, is_release, is_watch, refusing};
pub use neonvm_apiserver::server::CALLER;
pub use neonvm_test_support::{PATIENCE, eventually};
pub use objects::{apply, client_of, define, documents, merge};
pub use simulated::Simulated;

/// Where our services live.
pub const NAMESPACE: &str = "neonvm-system";

/// Signs certificates of services, as the vm-controller that leads does. Gone when dropped.
#[derive(Debug)]
pub struct Signer(JoinHandle<()>);

impl Drop for Signer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Signer {
    /// Makes the internal authority, publishes it, and answers requests.
    pub async fn start(client: &Client) -> Self {
        let internal = authority::INTERNAL;
        let opened = authority::open(client, NAMESPACE, internal, "test").await.unwrap();
        authority::publish(client, NAMESPACE, (internal, &opened), "test").await.unwrap();
        let opened = (authority::Current::new(opened), &neonvm_api::lifetimes::Lifetimes::DEFAULT);
        let signer = signer::Signer::new(client.clone(), NAMESPACE, opened, "test");
        Self(tokio::spawn(signer.serve()))
    }
}

/// A server of its own on a free port of this machine; gone when dropped, with all it kept.
pub struct ApiServer {
    /// An administrator.
    pub client: Client,
    /// What the server knows.
    pub state: Arc<State>,
    server: JoinHandle<Result<(), neonvm_apiserver::server::Error>>,
    directory: tempfile::TempDir,
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl ApiServer {
    /// Starts one that knows no kinds but Kubernetes' own.
    pub async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = neonvm_apiserver::Config {
            directory: directory.path().into(),
            listen: ([127, 0, 0, 1], 0).into(),
            names: Vec::new(),
            faults: true,
            has_hpa_controller: true,
        };
        let server = Server::start(&config).await.unwrap();
        let kubeconfig = directory.path().join("kubeconfig");
        std::fs::write(&kubeconfig, server.kubeconfig("test").to_string()).unwrap();
        let client = neonvm_kit::client::connect(Some(&kubeconfig)).await.unwrap();
        let state = server.state();
        let server = tokio::spawn(server.run(std::future::pending()));
        Self { client, state, server, directory }
    }

    /// Starts one that knows our kinds as well.
    pub async fn with_our_kinds() -> Self {
        let server = Self::start().await;
        define(&server.client, neonvm_api::crds()).await;
        server
    }

    /// The server is gone.
    pub fn stop(&self) {
        self.server.abort();
    }

    /// Its directory, in which tests may leave files as well.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The file of an administrator.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory().join("kubeconfig")
    }

    /// The file of a service account that exists, as a pod with it on a node has it.
    pub async fn kubeconfig_of_pod(&self, account: &str, node: &str) -> PathBuf {
        self.kubeconfig_of_pod_in(NAMESPACE, account, node).await
    }

    /// The same for a service account of another namespace.
    pub async fn kubeconfig_of_pod_in(&self, namespace: &str, account: &str, node: &str) -> PathBuf {
        let name = format!("token-{account}-{node}");
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
            "spec": {"serviceAccountName": account, "nodeName": node, "containers": [{"name": "c", "image": "i"}]}});
        apply(&self.client, &pod).await;
        let bound = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name}});
        self.token(namespace, account, bound).await
    }

    /// The file of a service account that exists.
    pub async fn kubeconfig_of(&self, account: &str) -> PathBuf {
        self.token(NAMESPACE, account, json!({})).await
    }

    async fn token(&self, namespace: &str, account: &str, spec: Value) -> PathBuf {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let wanted = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(wanted.to_string().into_bytes()).unwrap();
        let made: Value = self.client.request(request).await.unwrap();
        let text = std::fs::read_to_string(self.kubeconfig()).unwrap();
        let mut file: Value = serde_json::from_str(&text).unwrap();
        *file.pointer_mut("/users/0/user").unwrap() = json!({"token": made.pointer("/status/token")});
        let path = self.directory().join(format!("{account}.kubeconfig"));
        std::fs::write(&path, file.to_string()).unwrap();
        path
    }

    /// The file of a service: of the account that `deploy/manifests/SERVICE.yaml` makes, with the rights that it gives.
    pub async fn kubeconfig_of_service(&self, service: &str) -> PathBuf {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        apply(&self.client, &namespace).await;
        let mut account = None;
        for object in documents(&format!("manifests/{service}.yaml")) {
            let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            if ["v1", "rbac.authorization.k8s.io/v1"].contains(&text("apiVersion").as_str()) {
                apply(&self.client, &object).await;
            }
            if text("kind") == "ServiceAccount" {
                account = object.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned);
            }
        }
        self.kubeconfig_of(&account.unwrap()).await
    }

    /// Sets a fault switch.
    pub async fn fault(&self, switch: &str, value: u64) {
        // The request itself may be hit by the switch that was set before.
        eventually(&format!("fault switch {switch}"), async || {
            let request = http::Request::put(format!("/chaos/{switch}?value={value}"));
            self.client.request_text(request.body(Vec::new()).unwrap()).await.ok()
        })
        .await;
    }

    /// The lease of a holder who is no more ends within seconds, instead of when its time has passed: that can then be as long as
    /// no test takes, and no holder loses a lease because the host is slow.
    pub async fn end_lease(&self, name: &str) {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        let soon = Patch::Merge(json!({"spec": {"leaseDurationSeconds": 1}}));
        // What was sent for the holder and comes only now finds another version, and does nothing.
        leases.patch(name, &PatchParams::default(), &soon).await.unwrap();
    }

    /// The newest revision of anything.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.state.with(|engine| engine.store().revision())
    }

    /// Waits until nothing was written for a while; returns the revision. A late write of a component may still follow: wait for
    /// that, if it matters.
    pub async fn until_quiet(&self) -> u64 {
        let mut last = (self.revision(), Instant::now());
        eventually("no more writes", async || {
            if self.revision() != last.0 {
                last = (self.revision(), Instant::now());
            }
            (last.1.elapsed() >= Duration::from_millis(600)).then_some(last.0)
        })
        .await
    }

    /// No request was refused for lack of rights.
    pub async fn nothing_forbidden(&self) {
        let refused = self.forbidden().await;
        assert!(refused.is_empty(), "{refused:?}");
    }

    /// What the server counts of requests that it refused for lack of rights.
    pub async fn forbidden(&self) -> Vec<String> {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let text = self.client.request_text(request).await.unwrap();
        assert!(text.contains("apiserver_request_total"), "{text}");
        text.lines().filter(|line| line.contains("code=\"403\"")).map(str::to_owned).collect()
    }

    /// Reasons of the events about an object in the namespace `default`.
    pub async fn event_reasons(&self, name: &str) -> Vec<String> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let list = api.list(&ListParams::default()).await.unwrap().items;
        let about = |event: &Event| event.regarding.as_ref().and_then(|object| object.name.clone());
        list.into_iter()
            .filter(|event| about(event).as_deref() == Some(name))
            .filter_map(|event| event.reason)
            .collect()
    }

    /// Waits for events: they are written asynchronously, and their cause may be observed before them.
    pub async fn until_events(&self, name: &str, wanted: &[&str]) {
        eventually(&format!("events {wanted:?} of {name}"), async || {
            let reasons = self.event_reasons(name).await;
            wanted.iter().all(|reason| reasons.iter().any(|known| known == reason)).then_some(())
        })
        .await;
    }
}
