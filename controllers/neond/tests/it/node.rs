//! The node service runs with the flags of its manifest, and its role allows what it reads.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use neonvm_api::VirtualMachine;
use neonvm_kit::port::Reserved;
use neonvm_node::service::Pods as _;
use neonvm_test_support::eventually_blocking;
use serde_json::json;

use crate::cluster::{Cluster, manifests};
use crate::service::{arguments, containers, listen_here};

#[test]
fn the_node_service_runs_with_the_flags_of_its_manifest() {
    let mut node = Node::start(Stdio::piped());
    let mut lines = BufReader::new(node.child.stderr.take().unwrap()).lines().map_while(Result::ok);
    // There is no kubelet here: it continues to try.
    let waits = lines.by_ref().find(|line| line.contains("cannot register"));
    assert!(waits.is_some(), "it ended before");
    let answer = probe(TcpStream::connect(node.address()).unwrap());
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("neonvm/node"), "{answer}");
}

/// The log's reader can exit while the service runs. The pipe then stays closed.
#[test]
fn a_service_continues_when_its_log_is_not_read() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut node = Node::start(writer.into());
    let address = node.address();
    let connection = eventually_blocking(
        || "a listener".to_owned(),
        || {
            assert_eq!(node.child.try_wait().unwrap(), None, "it ended");
            TcpStream::connect(address)
        },
    );
    // By then it has failed to register, and to log that.
    let answer = probe(connection);
    assert_eq!(node.child.try_wait().unwrap(), None);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
}

/// Nothing is read before a runner calls.
const KUBECONFIG: &str = r#"{"apiVersion":"v1","kind":"Config","current-context":"c",
    "contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
    "clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:9"}}],"users":[{"name":"u","user":{}}]}"#;

/// With the rights of its account it finds the pods of its node, and reads the objects that decide.
#[tokio::test(flavor = "multi_thread")]
async fn the_role_of_the_node_service_allows_what_it_reads() {
    let cluster = Cluster::start().await;
    let vm = json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
        "metadata": {"name": "db", "namespace": "default"}, "spec": {"guest": {
        "cpus": {"min": 1, "max": 1, "use": 1}, "memorySlots": {"min": 1, "max": 1, "use": 1},
        "rootDisk": {"image": "i:1"}}}});
    neonvm_test_cluster::apply(&cluster.client, &vm).await;
    let vm = cluster.get("/apis/vm.neon.tech/v1/namespaces/default/virtualmachines/db").await.unwrap();
    let owner = json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "name": "db",
        "uid": vm["metadata"]["uid"], "controller": true});
    let pod = |name: &str, node: &str| {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "ownerReferences": [owner]},
            "spec": {"nodeName": node, "containers": [{"name": "runner", "image": "i"}]}})
    };
    let mut uids = Vec::new();
    for (name, node) in [("db-1", "n1"), ("db-2", "n2")] {
        neonvm_test_cluster::apply(&cluster.client, &pod(name, node)).await;
        let made = cluster.get(&format!("/api/v1/namespaces/default/pods/{name}")).await.unwrap();
        uids.push(made["metadata"]["uid"].as_str().unwrap().to_owned());
    }
    let kubeconfig = cluster.server.kubeconfig_of_pod_in("neonvm-system", "neonvm-node", "n1").await;
    let client = neonvm_kit::client::connect(Some(&kubeconfig)).await.unwrap();
    let pods = neonvm_node::service::Cluster { client: client.clone(), node: "n1".into() };
    let found = pods.pod(&uids[0]).await.unwrap().expect("a pod of this node");
    assert_eq!((found.name.as_str(), found.deleting), ("db-1", false));
    assert_eq!(found.vm.as_ref().map(|(name, _)| name.as_str()), Some("db"));
    assert_eq!(pods.pod(&uids[1]).await.unwrap(), None, "it is on another node");
    let vms: Api<VirtualMachine> = Api::namespaced(client.clone(), "default");
    assert!(vms.get_opt("db").await.unwrap().is_some());
    let namespaces: Api<Namespace> = Api::all(client);
    namespaces.get_metadata("default").await.unwrap();
    assert_eq!(cluster.server.forbidden().await, Vec::<String>::new());
}

/// What SECURITY.md states that the service has is what its manifest requests, and the other way round.
#[test]
fn the_rights_of_the_node_service_are_those_of_the_table() {
    let document = include_str!("../../../../SECURITY.md");
    let (_, section) = document.split_once("### The node service").expect("a section");
    let (_, table) = section.split_once("| It has |").expect("a table");
    let table = table.split("\n\n").next().unwrap_or_default();
    let first = |line: &'static str| line.strip_prefix("| ")?.split(" | ").next();
    let words: Vec<&str> =
        table.lines().filter_map(first).flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let (_, workload) = manifests()
        .into_iter()
        .find(|(_, one)| one["metadata"]["name"] == "neonvm-node" && one["kind"] == "DaemonSet")
        .unwrap();
    let template = &workload["spec"]["template"]["spec"];
    let container = &template["containers"][0];
    let of = |list: &serde_json::Value| list.as_array().cloned().unwrap_or_default();
    for capability in of(&container["securityContext"]["capabilities"]["add"]) {
        assert!(words.contains(&capability.as_str().unwrap()), "{capability} is not in the table");
    }
    for volume in of(&template["volumes"]) {
        let path = volume["hostPath"]["path"].as_str().unwrap();
        assert!(words.contains(&path), "{path} is not in the table");
    }
    let requested = workload.to_string();
    let is_capability = |word: &&&str| word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    for word in words.iter().filter(|word| is_capability(word) || word.starts_with('/')) {
        assert!(requested.contains(&format!("\"{word}\"")), "{word} is not in the manifest");
    }
}

struct Node {
    child: Child,
    addresses: BTreeMap<String, Reserved>,
    _directory: tempfile::TempDir,
}

impl Node {
    /// Starts it with the arguments of its manifest, but where no kubelet is.
    fn start(log: Stdio) -> Self {
        let all = manifests();
        let container = all
            .iter()
            .flat_map(|(_, workload)| containers(workload))
            .find(|container| container["name"] == "node")
            .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let mut arguments = arguments(container);
        let addresses = listen_here(&mut arguments);
        let kubeconfig = directory.path().join("kubeconfig");
        std::fs::write(&kubeconfig, KUBECONFIG).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_neond"))
            .args(arguments)
            .args(["--node", "n1", "--kubeconfig"])
            .arg(kubeconfig)
            .arg("--kubelet-directory")
            .arg(directory.path())
            .arg("--socket-directory")
            .arg(directory.path().join("sockets"))
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child, addresses, _directory: directory }
    }

    /// Where it answers probes, the only address it listens on.
    fn address(&self) -> SocketAddr {
        self.addresses.values().next().expect("an address for probes").address()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn probe(mut connection: TcpStream) -> String {
    let mut answer = String::new();
    connection.write_all(b"GET /readyz HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").unwrap();
    connection.read_to_string(&mut answer).unwrap();
    answer
}
