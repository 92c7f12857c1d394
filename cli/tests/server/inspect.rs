//! `agent inspect` and `scheduler inspect` of services in pods: through the API server, with the caller's own rights. Pods run on a
//! node in this process; what answers in them is the test.

use std::net::IpAddr;
use std::process::Command;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams};
use neonvm_api::names::{SCHEDULER_LEASE, agent_lease};
use neonvm_kit::authority::OPERATORS;
use neonvm_kit::ca::Purpose;
use neonvm_kit::certificate::{Certificate, CertificateFor};
use neonvm_kit::http::{FullRequest, Gate, PRIVATE, Peer, no_body, serve, text};
use neonvm_test_cluster::{ApiServer, NAMESPACE, Signer, apply, documents, eventually};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::run;

/// An address that leads nowhere (RFC 5737), as that of a pod from outside of its cluster.
const ELSEWHERE: &str = "192.0.2.7";

/// A cluster with a node whose pods do nothing.
struct Cluster {
    server: ApiServer,
    client: Client,
    _signer: Signer,
    id: String,
    node: Option<Runtime>,
    answering: Vec<JoinHandle<()>>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let node = self.node.take();
        // It is waited for, which must not be done within a runtime.
        std::thread::spawn(move || drop(node)).join().unwrap();
        self.answering.iter().for_each(JoinHandle::abort);
        neonvm_kubelet::clean_up(&self.id, self.server.directory(), Duration::ZERO).unwrap();
    }
}

impl Cluster {
    async fn start() -> Self {
        let server = ApiServer::start().await;
        let client = server.client.clone();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        apply(&client, &namespace).await;
        let signer = Signer::start(&client).await;
        let program = server.directory().join("neond");
        // Another process writes it: the kernel refuses to run a file that a process has open for writing.
        let put = r#"printf '#!/bin/sh\nexec sleep 600\n' > "$0" && chmod 755 "$0""#;
        assert!(Command::new("/bin/sh").args(["-c", put]).arg(&program).status().unwrap().success());
        let id = format!("test-{}", server.directory().display());
        let mut config = neonvm_kubelet::Config::new(&id, "n1", server.directory());
        config.network = neonvm_kubelet::Network::User;
        config.executable = Some(program);
        let node =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        node.spawn(async move { neonvm_kubelet::run(config, std::future::pending()).await.unwrap() });
        let nodes: Api<Node> = Api::all(client.clone());
        eventually("the node", async || {
            let node = nodes.get_opt("n1").await.unwrap()?;
            let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
            (taints.is_empty() && node.status?.addresses.is_some()).then_some(())
        })
        .await;
        Self { server, client, _signer: signer, id, node: Some(node), answering: Vec::new() }
    }

    /// A pod of a service; its address.
    async fn pod(&self, name: &str, service: &str) -> IpAddr {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/name": service}}, "spec": {"nodeName": "n1", "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "i", "command": ["neond", "runner"], "args": ["x"]}]}});
        apply(&self.client, &pod).await;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        eventually("the pod's address", async || pods.get(name).await.unwrap().status?.pod_ip?.parse().ok())
            .await
    }

    async fn delete(&self, name: &str) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        pods.delete(name, &DeleteParams::default()).await.unwrap();
        eventually("the end of the pod", async || pods.get_opt(name).await.unwrap().is_none().then_some(()))
            .await;
    }

    async fn lease(&self, name: &str, holder: &str, address: &str) {
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name,
            "namespace": NAMESPACE, "annotations": {"vm.neon.tech/service-address": address}},
            "spec": {"holderIdentity": holder}});
        apply(&self.client, &lease).await;
    }

    /// A service in a pod, which answers operators; its port.
    async fn answer(&mut self, ip: IpAddr, wanted: CertificateFor, document: Value) -> u16 {
        let certificate = Certificate::at_start(&self.client, NAMESPACE, wanted).await.unwrap();
        let tls = Arc::new(RwLock::new(Arc::new(certificate.server_config().unwrap())));
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let gate = Gate::new(PRIVATE, &Arc::default(), |peer| peer.is_one_of(&[OPERATORS]));
        let answer = move |request: FullRequest| {
            let is_operator = Peer::from_extensions(request.extensions()).is_one_of(&[OPERATORS]);
            let good =
                is_operator && request.method() == Method::GET && request.uri().path() == "/v1/inspect";
            let status = if good { StatusCode::OK } else { StatusCode::FORBIDDEN };
            std::future::ready(text(status, "application/json", document.to_string()))
        };
        self.answering.push(tokio::spawn(serve(listener, Some(tls), gate, no_body, answer)));
        port
    }

    /// A kubeconfig of a user without rights.
    async fn person(&self, name: &str) -> std::path::PathBuf {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": NAMESPACE}});
        apply(&self.client, &account).await;
        self.server.kubeconfig_of(name).await
    }

    async fn bind(&self, name: &str, kind: &str) {
        let namespace = (kind == "Role").then_some(NAMESPACE);
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"),
            "metadata": {"name": name, "namespace": namespace},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "neonvm-operator"}});
        apply(&self.client, &binding).await;
    }
}

/// R8: from outside of the pods' network, with the rights of the operator roles and no others.
#[tokio::test(flavor = "multi_thread")]
async fn services_are_inspected_through_the_api_server() {
    let mut cluster = Cluster::start().await;
    for object in documents("manifests/users.yaml") {
        apply(&cluster.client, &object).await;
    }
    let own = cluster.pod("agent-x", "neonvm-agent").await;
    let agent = json!({"agent": "agent-x", "version": "1", "node": "n1", "vms": [{"name": "default/db"}]});
    let port = cluster.answer(own, CertificateFor::agent("n1", Purpose::Server), agent).await;
    cluster.lease(&agent_lease("n1"), "agent-x", &format!("{ELSEWHERE}:{port}")).await;
    let ann = cluster.person("ann").await;
    let inspect = ["agent", "inspect"];

    // Each right that is missing is named, with what gives it.
    let (code, _, error) = run(&ann, &inspect).await;
    assert_eq!(code, 4, "{error}");
    assert!(error.contains("get of configmaps/neonvm-internal-ca in namespace neonvm-system"), "{error}");
    assert!(error.contains("the cluster role and the role neonvm-operator"), "{error}");
    assert!(!error.contains("Status {"), "{error}");
    cluster.bind("ann", "Role").await;
    let (code, _, error) = run(&ann, &inspect).await;
    assert_eq!(code, 4, "{error}");
    assert!(error.contains("get and create of certificatesigningrequests"), "{error}");
    cluster.bind("ann", "ClusterRole").await;

    let (code, out, error) = run(&ann, &inspect).await;
    assert_eq!(code, 0, "{error}");
    assert!(out.contains("default/db") && out.contains("n1"), "{out}");

    // The scheduler's pod is found by its address: its name in the lease is its own.
    let ip = cluster.pod("scheduler-x", "neonvm-scheduler").await;
    let port = cluster.answer(ip, CertificateFor::scheduler(), inspected()).await;
    cluster.lease(SCHEDULER_LEASE, "scheduler", &format!("{ip}:{port}")).await;
    for command in [&["scheduler", "inspect"][..], &["debug", "node-pressure"]] {
        let (code, out, error) = run(&ann, command).await;
        assert_eq!(code, 0, "{error}{out}");
    }

    // Another server in the pod's place has the wrong certificate; and a port without a listener.
    let wrong = cluster.answer(own, CertificateFor::scheduler(), json!({})).await;
    for port in [wrong, 1] {
        cluster.lease(&agent_lease("n1"), "agent-x", &format!("{ELSEWHERE}:{port}")).await;
        let (code, _, error) = run(&ann, &inspect).await;
        assert_eq!(code, 8, "{error}");
        assert!(error.contains("cannot reach the agent of n1 in pod neonvm-system/agent-x"), "{error}");
    }

    cluster.delete("agent-x").await;
    let (code, _, error) = run(&ann, &inspect).await;
    assert_eq!(code, 3, "{error}");
    assert!(error.contains("the pod of the agent of n1"), "{error}");
    assert!(error.contains("is not in namespace neonvm-system"), "{error}");
    cluster.delete("scheduler-x").await;
}

/// Without the flag that names their namespace.
#[tokio::test(flavor = "multi_thread")]
async fn services_are_looked_for_where_they_are_installed() {
    let server = ApiServer::start().await;
    let installation = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vms"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": neonvm_deploy::INVENTORY, "namespace": "vms"}}),
    ];
    for object in &installation {
        apply(&server.client, object).await;
    }
    let (_, _, error) = run(&server.kubeconfig(), &["agent", "inspect"]).await;
    assert!(error.contains("in the namespace vms;"), "{error}");
    let named = ["agent", "inspect", "--system-namespace", "others"];
    let (_, _, error) = run(&server.kubeconfig(), &named).await;
    assert!(error.contains("in the namespace others;"), "{error}");
}

/// Rights but that of the port-forward: an older role.
#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_forward_is_shown_the_right() {
    let cluster = Cluster::start().await;
    for mut object in documents("manifests/users.yaml") {
        if object["kind"] == "Role" {
            object["rules"]
                .as_array_mut()
                .unwrap()
                .retain(|rule| rule["resources"] != json!(["pods/portforward"]));
        }
        apply(&cluster.client, &object).await;
    }
    cluster.pod("agent-x", "neonvm-agent").await;
    cluster.lease(&agent_lease("n1"), "agent-x", &format!("{ELSEWHERE}:10301")).await;
    let bob = cluster.person("bob").await;
    cluster.bind("bob", "Role").await;
    cluster.bind("bob", "ClusterRole").await;
    let (code, _, error) = run(&bob, &["agent", "inspect"]).await;
    assert_eq!(code, 4, "{error}");
    for part in
        ["get and create of pods/portforward in namespace neonvm-system", "neonvm-operator", "is forbidden"]
    {
        assert!(error.contains(part), "{error}");
    }
    cluster.delete("agent-x").await;
}

/// The state of a scheduler without nodes.
fn inspected() -> Value {
    serde_json::to_value(neonvm_types::scheduler_inspect::Inspect::default()).unwrap()
}
