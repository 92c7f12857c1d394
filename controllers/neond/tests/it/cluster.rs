//! An API server with our kinds and all that `deploy/manifests` makes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kube::api::{Api, DynamicObject, Patch, PatchParams, ValidationDirective};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};
use neonvm_local::Server;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// How long a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Cluster {
    pub(crate) client: Client,
    kubeconfig: Value,
    server: JoinHandle<()>,
    pub(crate) directory: tempfile::TempDir,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.server.abort();
    }
}

pub(crate) async fn until<F: Future<Output = bool>>(what: &str, check: impl Fn() -> F) {
    let deadline = Instant::now() + PATIENCE;
    while !check().await {
        assert!(Instant::now() < deadline, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// All documents of `deploy/manifests`, the namespace first.
pub(crate) fn manifests() -> Vec<(String, Value)> {
    documents("manifests")
}

/// All documents of a directory of `deploy`, a namespace first; each with the name of its file.
pub(crate) fn documents(directory: &str) -> Vec<(String, Value)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(directory);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort_by_key(|file| (!file.ends_with("namespace.yaml"), file.clone()));
    let read = |file: &PathBuf| {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(file).unwrap();
        let all: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        all.into_iter().map(move |object| (name.clone(), object)).collect::<Vec<_>>()
    };
    files.iter().flat_map(read).collect()
}

/// The client of a kind, in the object's namespace if it has one.
pub(crate) fn api(client: &Client, object: &Value) -> Api<DynamicObject> {
    let version = object["apiVersion"].as_str().unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let gvk = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
    let kind = ApiResource::from_gvk(&gvk);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    }
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = neonvm_local::server::Config {
            directory: directory.path().join("api"),
            listen: "127.0.0.1:0".parse().unwrap(),
            names: Vec::new(),
            faults: false,
        };
        std::fs::create_dir_all(&config.directory).unwrap();
        let server = Server::start(&config).await.unwrap();
        let kubeconfig = server.kubeconfig("test");
        let server = tokio::spawn(server.run(std::future::pending()));
        let read = Kubeconfig::from_yaml(&kubeconfig.to_string()).unwrap();
        let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.unwrap();
        config.read_timeout = None;
        let client = Client::try_from(config).unwrap();
        let kubeconfig = serde_json::from_str(&kubeconfig.to_string()).unwrap();
        let cluster = Self { client, kubeconfig, server, directory };
        for definition in neonvm_api::crds() {
            cluster.apply(&definition).await;
        }
        for (version, kind) in [
            ("vm.neon.tech/v1", "virtualmachinemigrations"),
            ("autoscaling.aibrix.ai/v1alpha1", "podautoscalers"),
        ] {
            until(kind, async || {
                let found = cluster.get(&format!("/apis/{version}")).await;
                found.is_some_and(|found| found["resources"].to_string().contains(kind))
            })
            .await;
        }
        for (file, object) in manifests() {
            println!("{file}: {} {}", object["kind"], object["metadata"]["name"]);
            cluster.apply(&object).await;
        }
        cluster
    }

    /// Applies an object as `kubectl apply --server-side --validate=strict` does.
    pub(crate) async fn apply(&self, object: &Value) {
        let mut params = PatchParams::apply("test");
        params.field_validation = Some(ValidationDirective::Strict);
        let name = object["metadata"]["name"].as_str().unwrap();
        api(&self.client, object).patch(name, &params, &Patch::Apply(object)).await.unwrap();
    }

    /// What the server says to `GET`.
    pub(crate) async fn get(&self, path: &str) -> Option<Value> {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        self.client.request(request).await.ok()
    }

    /// A kubeconfig of a service account.
    pub(crate) async fn kubeconfig(&self, account: &str) -> PathBuf {
        let path = format!("/api/v1/namespaces/neonvm-system/serviceaccounts/{account}/token");
        let wanted = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(wanted.to_string().into_bytes()).unwrap();
        let made: Value = self.client.request(request).await.unwrap();
        let mut file = self.kubeconfig.clone();
        file["users"][0]["user"] = json!({"token": made["status"]["token"]});
        let path = self.directory.path().join(format!("{account}.kubeconfig"));
        std::fs::write(&path, file.to_string()).unwrap();
        path
    }

    /// How often the server has refused something for lack of rights.
    pub(crate) async fn forbidden(&self) -> Vec<String> {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let text = self.client.request_text(request).await.unwrap();
        assert!(text.contains("apiserver_request_total"), "{text}");
        text.lines().filter(|line| line.contains("code=\"403\"")).map(str::to_owned).collect()
    }
}
