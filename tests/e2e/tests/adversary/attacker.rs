//! Clients of the API with stolen rights, and raw requests.

use http::Method;
use kube::Client;
use kube::config::{AuthInfo, Config, KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::cluster::Cluster;

/// Collection of the VMs of the namespace `default`.
pub(crate) const VMS: &str = "/apis/vm.neon.tech/v1/namespaces/default/virtualmachines";
/// Namespace of the services.
pub(crate) const SYSTEM: &str = "neonvm-system";
/// Service account of agents.
const AGENT: &str = "neonvm-agent";

pub(crate) async fn configuration(cluster: &Cluster) -> Config {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
}

/// An administrator.
pub(crate) async fn client(cluster: &Cluster) -> Client {
    neonvm_kit::client::from_config(configuration(cluster).await).unwrap()
}

/// One request; `media` is the type of its body.
pub(crate) async fn send(
    client: &Client,
    method: Method,
    path: &str,
    media: &str,
    body: Option<&Value>,
) -> kube::Result<Value> {
    let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let mut request = http::Request::builder().method(method).uri(path);
    if !media.is_empty() {
        request = request.header(http::header::CONTENT_TYPE, media);
    }
    client.request(request.body(bytes).unwrap()).await
}

/// Creates an object.
pub(crate) async fn post(client: &Client, path: &str, object: &Value) -> kube::Result<Value> {
    send(client, Method::POST, path, "application/json", Some(object)).await
}

/// Applies all documents of a file of the repository.
pub(crate) async fn apply_file(client: &Client, file: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    for object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap();
        let version = text("/apiVersion");
        let root = if version.contains('/') { "apis" } else { "api" };
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
        let namespace = namespace.map(|name| format!("namespaces/{name}/")).unwrap_or_default();
        let plural = format!("{}s", text("/kind").to_lowercase());
        let name = text("/metadata/name");
        let path = format!("/{root}/{version}/{namespace}{plural}/{name}?fieldManager=test&force=true");
        send(client, Method::PATCH, &path, "application/apply-patch+yaml", Some(&object)).await.unwrap();
    }
}

/// Asserts that the server refuses with a 403 and these words.
pub(crate) fn refusal(answer: kube::Result<Value>, words: &str) {
    match answer {
        Err(kube::Error::Api(status)) => {
            assert_eq!(status.code, 403, "{status:?}");
            assert!(status.message.contains(words), "{}", status.message);
        }
        other => panic!("{words}: {other:?}"),
    }
}

/// The agent's service account: a token as the agent of a node has it, or one that is bound to no pod.
pub(crate) async fn stolen_agent(cluster: &Cluster, admin: &Client, node: Option<&str>) -> Client {
    let base = format!("/api/v1/namespaces/{SYSTEM}");
    let mut spec = json!({});
    if let Some(node) = node {
        let name = format!("stolen-{node}");
        // The node does not run it, but it is there.
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"serviceAccountName": AGENT, "nodeName": node,
                "containers": [{"name": "c", "image": "i"}]}});
        post(admin, &format!("{base}/pods"), &pod).await.unwrap();
        spec = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name}});
    }
    let wanted = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let made = post(admin, &format!("{base}/serviceaccounts/{AGENT}/token"), &wanted).await.unwrap();
    let token = made["status"]["token"].as_str().unwrap().to_owned();
    let mut config = configuration(cluster).await;
    config.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
    neonvm_kit::client::from_config(config).unwrap()
}
