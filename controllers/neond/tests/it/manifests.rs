//! The programs accept the flags of their manifests, and their roles allow what they need.

use neonvm_test_support::{Need, needs};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;

use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use neonvm_api::names::{SCHEDULER_LEASE, agent_lease};
use neonvm_api::overlay;
use serde_json::{Value, json};

use crate::cluster::{Cluster, documents, manifests, until};
use crate::service::{Service, arguments, containers, listening};

/// Groups that a cluster may lack.
const OPTIONAL: [&str; 7] = [
    "cert-manager.io",
    "k8s.cni.cncf.io",
    "metrics.k8s.io",
    "custom.metrics.k8s.io",
    "external.metrics.k8s.io",
    "orchestration.aibrix.ai",
    "leaderworkerset.x-k8s.io",
];
/// Resources that a cluster may lack, of groups that it has: before Kubernetes 1.33 there are no ServiceCIDRs.
const OPTIONAL_RESOURCES: [&str; 1] = ["servicecidrs"];
/// What rights are named after without being served: signers of certificates.
const NEVER_SERVED: [&str; 1] = ["signers"];

/// Status and body of an answer; `None` while the port is closed.
async fn ask(address: &str, path: &str, body: Option<&Value>) -> Option<(u16, String)> {
    let stream = tokio::net::TcpStream::connect(address).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(connection);
    let method = if body.is_some() { "POST" } else { "GET" };
    let request = http::Request::builder().method(method).uri(path).header("host", "h");
    let text = body.map(Value::to_string).unwrap_or_default();
    let answer = sender.send_request(request.body(text).unwrap()).await.ok()?;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.ok()?.to_bytes();
    Some((status, String::from_utf8_lossy(&body).into_owned()))
}

/// Whether the table of ports lists that port of a container.
fn is_in_table(container: &Value, address: SocketAddr) -> bool {
    // The address of the node is one of loopback here.
    let whose = if address.ip().is_loopback() { &["loopback", "node"][..] } else { &["any"] };
    let who = format!("| `{}`:", container["name"].as_str().unwrap());
    let places = whose.iter().map(|whose| format!("`tcp {whose}:{}`", address.port()));
    let table = include_str!("../../../../SECURITY.md");
    let places: Vec<String> = places.collect();
    table.lines().any(|line| line.starts_with(&who) && places.iter().any(|place| line.contains(place)))
}

/// `kubectl apply -f` of the directory makes the namespace before what is in it.
#[test]
fn the_namespace_comes_first() {
    assert_eq!(manifests()[0].1["kind"], "Namespace");
}

/// Where a container answers probes, and nothing else: strangers that fill its other ports must not be able to fail a
/// probe.
fn answered(container: &Value) -> Option<SocketAddr> {
    let flags = listening(&arguments(container));
    flags.into_iter().find_map(|(flag, address)| (flag == "--health-probe-bind-address").then_some(address))
}

/// Where the kubelet sends a probe: to a named port of the container, or, in the network of the node, to its loopback address.
fn probed(container: &Value, request: &Value) -> Option<SocketAddr> {
    let (host, port) = match (&request["host"], &request["port"]) {
        (Value::String(host), Value::Number(port)) => (host.as_str(), port.as_u64()),
        (Value::Null, Value::String(name)) => {
            let ports = container["ports"].as_array()?;
            let named = ports.iter().find(|one| one["name"] == name.as_str())?;
            ("0.0.0.0", named["containerPort"].as_u64())
        }
        _ => return None,
    };
    Some(SocketAddr::new(host.parse().ok()?, port?.try_into().ok()?))
}

/// Ports, probes and services name each other.
#[test]
fn ports_and_names_agree() {
    let all = manifests();
    let workloads = all.iter().filter(|(_, object)| !containers(object).is_empty());
    let mut named: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, workload) in workloads {
        let template = &workload["spec"]["template"];
        assert_eq!(
            workload["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"],
            template["metadata"]["labels"]["app.kubernetes.io/name"],
            "{file}"
        );
        for container in containers(workload) {
            assert_eq!(container["image"], concat!("neond:", env!("CARGO_PKG_VERSION")), "{file}");
            let ports = container["ports"].as_array().cloned().unwrap_or_default();
            let number = |port: &Value| port["containerPort"].as_u64();
            for (flag, address) in listening(&arguments(container)) {
                let declared = ports.iter().any(|port| number(port) == Some(address.port().into()));
                assert!(declared || address.ip().is_loopback(), "{file}: {flag} {address} is not a port");
                assert!(
                    is_in_table(container, address),
                    "{file}: SECURITY.md has no row for {flag} {address}"
                );
            }
            let names: Vec<String> =
                ports.iter().map(|port| port["name"].as_str().unwrap().to_owned()).collect();
            for probe in ["livenessProbe", "readinessProbe"] {
                let request = container.pointer(&format!("/{probe}/httpGet"));
                let request = request.unwrap_or_else(|| panic!("{file}: a container without {probe}"));
                let place = probed(container, request);
                assert!(place.is_some() && place == answered(container), "{file}: {probe} {place:?}");
            }
            let name = template["metadata"]["labels"]["app.kubernetes.io/name"].as_str().unwrap();
            named.entry(name.to_owned()).or_default().extend(names);
        }
    }
    for (file, service) in all.iter().filter(|(_, object)| object["kind"] == "Service") {
        let name = service["spec"]["selector"]["app.kubernetes.io/name"].as_str().unwrap();
        for port in service["spec"]["ports"].as_array().unwrap() {
            let target = port["targetPort"].as_str().unwrap();
            assert!(named[name].iter().any(|known| known == target), "{file}: {target}");
        }
    }
}

/// A service that reads endpoints chosen by others has no rights on its node.
#[test]
fn the_pod_autoscaler_has_no_rights_on_its_node() {
    let all = manifests();
    let is_ours =
        |object: &&(String, Value)| object.0 == "pod-autoscaler.yaml" && object.1["kind"] == "Deployment";
    let (_, workload) = all.iter().find(is_ours).unwrap();
    let pod = &workload["spec"]["template"]["spec"];
    let own = &containers(workload)[0]["securityContext"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_ne!(pod["securityContext"]["runAsUser"], 0);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(
        (&own["allowPrivilegeEscalation"], &own["readOnlyRootFilesystem"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(own["capabilities"], json!({"drop": ["ALL"]}));
    for field in ["hostNetwork", "hostPID", "hostIPC", "volumes"] {
        assert!(pod.get(field).is_none(), "{field}");
    }
}

/// The configuration of Multus is what runners and controllers expect.
#[test]
fn attachments_lead_to_the_overlay() {
    let all = documents("multus");
    let config = |name: &str| -> Value {
        let found = all.iter().find(|(_, object)| object["metadata"]["name"] == name);
        let (_, object) = found.unwrap_or_else(|| panic!("there is no {name}"));
        assert_eq!(object["metadata"]["namespace"], "neonvm-system");
        serde_json::from_str(object["spec"]["config"].as_str().unwrap()).unwrap()
    };
    let runners = config(overlay::ATTACHMENT);
    assert_eq!((&runners["type"], &runners["ipam"]), (&json!("bridge"), &json!({})));
    assert_eq!(runners["bridge"], overlay::BRIDGE);
    assert_eq!(runners["mtu"], 1500 - overlay::OVERHEAD_V4);
    // What is the default without it, as `core/overlay` tests.
    let addresses = &config("neonvm-overlay-ipam")["ipam"];
    assert_eq!(addresses["network_name"], overlay::NETWORK);
    assert_eq!(addresses["range"], overlay::RANGE);
    assert_eq!(addresses["range_start"], overlay::FIRST_VM_ADDRESS);
}

/// Every rule is about a resource that a server serves, and requests verbs that it has.
#[tokio::test(flavor = "multi_thread")]
async fn rules_name_what_there_is() {
    let cluster = Cluster::start().await;
    for (file, role) in manifests() {
        for rule in role["rules"].as_array().into_iter().flatten() {
            let group = rule["apiGroups"][0].as_str().unwrap();
            if OPTIONAL.contains(&group) {
                continue;
            }
            let path = if group.is_empty() {
                "/api/v1".to_owned()
            } else {
                let versions = cluster.get(&format!("/apis/{group}")).await;
                let versions = versions.unwrap_or_else(|| panic!("{file}: {group} is not served"));
                format!("/apis/{}", versions["preferredVersion"]["groupVersion"].as_str().unwrap())
            };
            let known = cluster.get(&path).await.unwrap_or_else(|| panic!("{file}: {path} is not served"));
            for resource in rule["resources"].as_array().unwrap() {
                // Only used in access reviews, never served.
                let name = resource.as_str().unwrap();
                let unserved = OPTIONAL_RESOURCES.contains(&name) || NEVER_SERVED.contains(&name);
                if name.ends_with("/finalizers") || unserved {
                    continue;
                }
                let found =
                    known["resources"].as_array().unwrap().iter().find(|one| one["name"] == *resource);
                let found = found.unwrap_or_else(|| panic!("{file}: {group} has no {resource}"));
                for verb in rule["verbs"].as_array().unwrap() {
                    assert!(found["verbs"].as_array().unwrap().contains(verb), "{file}: {resource} {verb}");
                }
            }
        }
    }
}

/// A network namespace of this test.
struct Namespace(String);

impl Namespace {
    fn make() -> Need<Self> {
        needs::network_namespaces()?;
        let name = format!("neond-it-{}", std::process::id());
        let ip = |arguments: &[&str]| {
            Command::new("ip").args(arguments).output().is_ok_and(|o| o.status.success())
        };
        assert!(ip(&["netns", "add", &name]), "no network namespace can be made");
        let namespace = Self(name);
        assert!(ip(&["-n", &namespace.0, "link", "set", "lo", "up"]));
        Ok(namespace)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn machine() -> Value {
    json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
        "metadata": {"name": "db", "namespace": "default"}, "spec": {
            "schedulerName": "autoscale-scheduler", "guest": {
            "cpus": {"min": 1, "max": 1, "use": 1}, "memorySlots": {"min": 1, "max": 1, "use": 1},
            "rootDisk": {"image": "i:1"}}}})
}

fn node() -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {
        "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": "n1"}}})
}

/// Each service with the flags of its manifest and the rights of its account: it gets its lease, is ready, does its part of making
/// a VM, and is never refused.
#[tokio::test(flavor = "multi_thread")]
async fn services_run_with_their_manifests() {
    let cluster = Cluster::start().await;
    neonvm_test_cluster::apply(&cluster.client, &node()).await;
    let nodes = neonvm_test_cluster::client_of(&cluster.client, &node());
    let ready = json!({"status": {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "100",
        "ephemeral-storage": "100Gi", "neonvm/kvm": "1000", "neonvm/node": "1000", "neonvm/vhost-net": "1000"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}});
    let merge = |value: Value| kube::api::Patch::Merge(value);
    nodes.patch_status("n1", &Default::default(), &merge(ready)).await.unwrap();
    nodes.patch("n1", &Default::default(), &merge(json!({"spec": {"taints": null}}))).await.unwrap();
    let namespace = Namespace::make();
    let mut services = BTreeMap::new();
    for (_, workload) in manifests() {
        for container in containers(&workload) {
            let name = container["name"].as_str().unwrap().to_owned();
            // It needs a kubelet: see `node.rs`.
            if name == "node" {
                continue;
            }
            let account = workload.pointer("/spec/template/spec/serviceAccountName").unwrap();
            let (account, namespace_of) = (account.as_str().unwrap(), &workload["metadata"]["namespace"]);
            let namespace_of = namespace_of.as_str().unwrap();
            let kubeconfig = cluster.server.kubeconfig_of_pod_in(namespace_of, account, "n1").await;
            let mut more = Vec::new();
            if name == "vxlan-controller" {
                let Ok(namespace) = &namespace else { continue };
                more = vec!["--netns", namespace.0.as_str()];
            }
            services.insert(name, Service::start(container, &kubeconfig, &more));
        }
    }
    for (name, service) in &services {
        let Some(probes) = service.addresses.get("--health-probe-bind-address") else { continue };
        let place = &probes.address().to_string();
        until(&format!("readiness of {name}: {}", service.log()), async || {
            ask(place, "/readyz", None).await.is_some_and(|(status, _)| status == 200)
        })
        .await;
    }
    let leases = "/apis/coordination.k8s.io/v1/namespaces/neonvm-system/leases";
    for lease in ["a3b22509.neon.tech", SCHEDULER_LEASE, &agent_lease("n1")] {
        until(&format!("a holder of {lease}"), async || {
            let found = cluster.get(&format!("{leases}/{lease}")).await;
            found.is_some_and(|found| {
                found["spec"]["holderIdentity"].as_str().is_some_and(|who| !who.is_empty())
            })
        })
        .await;
    }
    neonvm_test_cluster::apply(&cluster.client, &machine()).await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = async || cluster.get(pods).await.and_then(|list| list["items"].as_array()?.first().cloned());
    until("a runner pod", async || pod().await.is_some()).await;
    places(
        &cluster,
        &services["scheduler"].addresses["--plain-listen"].address().to_string(),
        &pod().await.unwrap(),
    )
    .await;
    for (name, service) in &mut services {
        assert!(service.is_running(), "{name}: {}", service.log());
        assert!(!service.log().contains("forbidden"), "{name}: {}", service.log());
    }
    assert_eq!(cluster.server.forbidden().await, Vec::<String>::new());
}

/// The requests of a kube-scheduler to its extender, to the end.
async fn places(cluster: &Cluster, extender: &str, pod: &Value) {
    let name = pod["metadata"]["name"].as_str().unwrap();
    let filter = json!({"Pod": pod, "NodeNames": ["n1"]});
    let (status, answer) = ask(extender, "/extender/filter", Some(&filter)).await.unwrap();
    assert!(status == 200 && answer.contains("\"NodeNames\":[\"n1\"]"), "{status} {answer}");
    let bind =
        json!({"PodName": name, "PodNamespace": "default", "PodUID": pod["metadata"]["uid"], "Node": "n1"});
    let (status, answer) = ask(extender, "/extender/bind", Some(&bind)).await.unwrap();
    assert_eq!(status, 200, "{answer}");
    let bound = cluster.get(&format!("/api/v1/namespaces/default/pods/{name}")).await.unwrap();
    assert_eq!(bound["spec"]["nodeName"], "n1", "{answer}");
}
