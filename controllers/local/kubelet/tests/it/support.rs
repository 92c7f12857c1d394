//! A cluster with a node on which the runner is a script: the words of the container's command after `neond runner` are
//! run by a shell.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use neonvm_kubelet::{Config, NamespaceNetwork, Network, network_number};
pub(crate) use neonvm_test_cluster::eventually;
use neonvm_test_cluster::{ApiServer, PATIENCE};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) server: ApiServer,
    pub(crate) id: String,
    nodes: Vec<Node>,
}

/// A node in a separate runtime. When it is dropped all that the node does has ended, also on threads that block: a
/// task that continued would meet the next node, which never happens after the death of a process.
struct Node {
    name: String,
    runtime: Option<Runtime>,
}

impl Drop for Node {
    fn drop(&mut self) {
        let runtime = self.runtime.take();
        // It is waited for, which must not be done within a runtime.
        std::thread::spawn(move || drop(runtime)).join().unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.clear();
        neonvm_kubelet::clean_up(&self.id, self.server.directory(), Duration::ZERO).unwrap();
        network_number::release(&self.place_of_claim()).unwrap();
    }
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let server = ApiServer::start().await;
        let directory = server.directory();
        // `$0 runner WORDS…`
        put_program(&directory.join("neond"), "#!/bin/sh\nshift\nexec /bin/sh -c \"$@\"\n");
        let id = format!("test-{}", directory.display());
        Self { client: server.client.clone(), server, id, nodes: Vec::new() }
    }

    /// A cluster with one node, without namespaces.
    pub(crate) async fn with_node() -> Self {
        let mut cluster = Self::start().await;
        cluster.add_node(cluster.config("n1", Network::User)).await;
        cluster
    }

    pub(crate) fn config(&self, name: &str, network: Network) -> Config {
        let mut config = Config::new(&self.id, name, self.server.directory());
        config.network = network;
        config.executable = Some(self.server.directory().join("neond"));
        config.restart_pause = Duration::from_millis(50);
        config
    }

    /// The claim of the cluster's addresses: this directory.
    fn place_of_claim(&self) -> String {
        self.server.directory().display().to_string()
    }

    /// Addresses of a node with namespaces that no other cluster on this machine has.
    pub(crate) fn addresses(&self, index: u8) -> NamespaceNetwork {
        NamespaceNetwork::numbered(network_number::claim(&self.place_of_claim(), None).unwrap(), index)
    }

    pub(crate) fn start_node(&mut self, config: Config) {
        let name = config.name.clone();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.spawn(async move {
            if let Err(error) = neonvm_kubelet::run(config, std::future::pending()).await {
                eprintln!("the node ended: {error:?}");
            }
        });
        self.nodes.push(Node { name, runtime: Some(runtime) });
    }

    /// Starts a node, and waits until it is ready.
    pub(crate) async fn add_node(&mut self, config: Config) {
        let name = config.name.clone();
        self.start_node(config);
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.client.clone());
        eventually("the node", || async {
            let node = nodes.get_opt(&name).await.unwrap()?;
            let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
            (taints.is_empty() && node.status?.addresses.is_some()).then_some(())
        })
        .await;
    }

    /// Ends a node as if it were killed.
    pub(crate) fn kill_node(&mut self, name: &str) {
        let at = self.nodes.iter().position(|node| node.name == name).unwrap();
        drop(self.nodes.remove(at));
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) fn place(&self, node: &str, pod: &Pod) -> PathBuf {
        let uid = pod.metadata.uid.as_deref().unwrap();
        self.server.directory().join("nodes").join(node).join("pods").join(uid)
    }

    /// The directory in which the scripts of a pod write, for them `$NEONVM_ROOT/out`.
    pub(crate) fn out(&self, node: &str, pod: &Pod) -> PathBuf {
        self.place(node, pod).join("volumes/out")
    }

    /// The process of a pod's only container, by the number that this host has for it.
    pub(crate) async fn pid(&self, node: &str, pod: &Pod) -> String {
        let stat =
            content(&self.place(node, pod).join("containers/c/0.pid"), |text| text.contains(' ')).await;
        stat.split(' ').next().unwrap().to_owned()
    }

    /// What a pod that runs sees as its root.
    pub(crate) async fn seen(&self, node: &str, pod: &Pod) -> PathBuf {
        match is_root() {
            true => format!("/proc/{}/root", self.pid(node, pod).await).into(),
            false => self.place(node, pod).join("root"),
        }
    }

    pub(crate) async fn create(&self, node: &str, name: &str, script: &str, more: &Value) -> Pod {
        let mut value = json!({ "metadata": { "name": name }, "spec": { "nodeName": node, "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5, "automountServiceAccountToken": false,
            "containers": [{ "name": "c", "image": "i", "command": ["neond", "runner"], "args": [script] }] } });
        merge(&mut value, more);
        add_out(&mut value);
        self.pods().create(&PostParams::default(), &serde_json::from_value(value).unwrap()).await.unwrap()
    }

    /// Waits until a pod is as wanted.
    pub(crate) async fn wait(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let pods = self.pods();
        let last = std::cell::RefCell::new(Value::Null);
        let look = || async {
            let pod = serde_json::to_value(pods.get_opt(name).await.unwrap()?).unwrap();
            last.replace(pod.clone());
            wanted(&pod).then_some(pod)
        };
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                if let Some(pod) = look().await {
                    return pod;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        found.await.unwrap_or_else(|_| panic!("{what} did not happen in time: {:#}", last.borrow()["status"]))
    }

    pub(crate) async fn phase(&self, name: &str, phase: &str) -> Value {
        self.wait(name, phase, |pod| pod["status"]["phase"] == phase).await
    }

    pub(crate) async fn ready(&self, name: &str) -> Value {
        self.wait(name, "readiness", |pod| condition(pod, "Ready") == "True").await
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default()).await.unwrap();
        let pods = self.pods();
        eventually("the end of the pod", || async {
            pods.get_opt(name).await.unwrap().is_none().then_some(())
        })
        .await;
    }
}

/// Gives all containers of a pod a directory in which they write.
fn add_out(pod: &mut Value) {
    let push = |into: &mut Value, value: Value| match into {
        Value::Array(all) => all.push(value),
        other => *other = json!([value]),
    };
    push(&mut pod["spec"]["volumes"], json!({ "name": "out", "emptyDir": {} }));
    for kind in ["initContainers", "containers"] {
        for container in pod["spec"][kind].as_array_mut().into_iter().flatten() {
            push(&mut container["volumeMounts"], json!({ "name": "out", "mountPath": "/out" }));
        }
    }
}

/// A program that every user can run. Another process writes it: a child that this one starts meanwhile would inherit the open
/// file, and the kernel refuses to run a file that a process has open for writing.
fn put_program(path: &Path, text: &str) {
    let script = r#"printf %s "$1" > "$0" && chmod 755 "$0""#;
    let put = std::process::Command::new("/bin/sh").args(["-c", script]).arg(path).arg(text).status();
    assert!(put.unwrap().success(), "{}", path.display());
}

pub(crate) fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(more)) if into.len() == more.len() => {
            into.iter_mut().zip(more).for_each(|(into, more)| merge(into, more));
        }
        (into, more) => *into = more.clone(),
    }
}

/// Something of the only container.
pub(crate) fn with(container: &Value) -> Value {
    json!({ "spec": { "containers": [container] } })
}

pub(crate) fn condition(pod: &Value, kind: &str) -> String {
    let all = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|condition| condition["type"] == kind);
    found.map_or_else(String::new, |condition| condition["status"].as_str().unwrap_or("").to_owned())
}

/// Waits for the content of a file.
pub(crate) async fn content(path: &Path, wanted: impl Fn(&str) -> bool) -> String {
    eventually(&format!("the content of {}", path.display()), || async {
        std::fs::read_to_string(path).ok().filter(|text| wanted(text))
    })
    .await
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Kills a process.
pub(crate) fn kill(pid: &str) {
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// Whether a process runs.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}
