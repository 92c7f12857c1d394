//! What the agent of a node may change: by the token of its pod, and by reviews that an API server sends.

use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use neonvm_api::VirtualMachine;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::webhooks::{config, post, until_registered};

const VALIDATE: &str = "/validate-vm-neon-tech-v1-virtualmachine";

fn machine(name: &str) -> Value {
    json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": {"name": name}, "spec": {"guest": {
        "cpus": {"min": "250m", "max": 1, "use": "250m"}, "memorySlots": {"min": 1, "max": 4, "use": 1},
        "rootDisk": {"image": "i"}}}, "status": {"node": "n1"}})
}

/// A review of an agent's update, with the node that its token names.
fn review(name: &str, node: Option<&str>, change: impl FnOnce(&mut Value)) -> String {
    let old = machine(name);
    let mut new = old.clone();
    change(&mut new);
    let extra = node.map_or(json!({}), |node| json!({"authentication.kubernetes.io/node-name": [node]}));
    let user = json!({"username": "system:serviceaccount:neonvm-system:neonvm-agent", "extra": extra});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u", "userInfo": user,
        "operation": "UPDATE", "namespace": "default", "name": name, "object": new, "oldObject": old}})
    .to_string()
}

fn size(vm: &mut Value) {
    vm["spec"]["guest"]["cpus"]["use"] = json!("500m");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_holds_agents_to_the_vms_of_their_node() {
    let cluster = Cluster::start().await;
    let (config, listen) = config(&cluster);
    let _controller = cluster.controller_with(config);
    until_registered(&cluster).await;
    let verdict = async |body: String| {
        let (_, text) = post(&cluster, listen.address(), VALIDATE, &body).await;
        let response = serde_json::from_str::<Value>(&text).unwrap()["response"].take();
        let message = response["status"]["message"].as_str().unwrap_or_default().to_owned();
        (response["allowed"].as_bool().unwrap(), message)
    };
    assert_eq!(verdict(review("db", Some("n1"), size)).await, (true, String::new()));
    let image = |vm: &mut Value| vm["spec"]["runnerImage"] = json!("x");
    // Validation of updates of `free` is skipped, but not this.
    for name in ["db", "free"] {
        let (allowed, why) = verdict(review(name, Some("n2"), size)).await;
        assert!(!allowed && why.starts_with("the VM is on node n1; the agent of n2"), "{why}");
        let (allowed, why) = verdict(review(name, None, size)).await;
        assert!(!allowed && why.contains("does not name one node"), "{why}");
        let (allowed, why) = verdict(review(name, Some("n1"), image)).await;
        assert!(!allowed && why.ends_with("not spec.runnerImage"), "{why}");
    }
    // Reviews of every update are requested, and nothing passes without an answer.
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/neonvm-validating-webhook-configuration";
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    let registered: Value = cluster.client.request(request).await.unwrap();
    let hooks = registered["webhooks"].as_array().unwrap();
    let hook = hooks.iter().find(|hook| hook["name"] == "vvirtualmachine.kb.io").unwrap();
    assert_eq!(hook["failurePolicy"], "Fail");
    let rule = &hook["rules"][0];
    assert_eq!(
        (&rule["resources"], &rule["operations"]),
        (&json!(["virtualmachines"]), &json!(["CREATE", "UPDATE"]))
    );
}

async fn vms(cluster: &Cluster, kubeconfig: &std::path::Path) -> Api<VirtualMachine> {
    let client: Client = neonvm_kit::client::connect(Some(kubeconfig)).await.unwrap();
    Api::namespaced(client, cluster.client.default_namespace())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_server_holds_agents_to_the_vms_of_their_node() {
    let cluster = Cluster::start().await;
    cluster.server.kubeconfig_of_service("agent").await;
    cluster.create("db", json!({})).await;
    let status = Patch::Merge(json!({"status": {"node": "n1", "phase": "Running"}}));
    cluster.vms().patch_status("db", &PatchParams::default(), &status).await.unwrap();
    let own = vms(&cluster, &cluster.server.kubeconfig_of_pod("neonvm-agent", "n1").await).await;
    let change = async |api: &Api<VirtualMachine>, change: Value| match api
        .patch("db", &PatchParams::default(), &Patch::Merge(change))
        .await
    {
        Ok(_) => String::new(),
        Err(kube::Error::Api(status)) => format!("{} {}", status.code, status.message),
        Err(error) => panic!("{error}"),
    };
    let size = json!({"spec": {"guest": {"memorySlots": {"use": 2}}}});
    assert_eq!(change(&own, size.clone()).await, "");
    let why = change(&own, json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert!(
        why.starts_with("403 ")
            && why.ends_with("agents may change the size of a VM only, not metadata.labels.a"),
        "{why}"
    );
    let unbound = vms(&cluster, &cluster.server.kubeconfig_of("neonvm-agent").await).await;
    let why = change(&unbound, size.clone()).await;
    assert!(why.starts_with("403 ") && why.contains("does not name one node"), "{why}");
    let other = vms(&cluster, &cluster.server.kubeconfig_of_pod("neonvm-agent", "n2").await).await;
    let why = change(&other, size.clone()).await;
    assert!(why.starts_with("403 ") && why.contains("the VM is on node n1; the agent of n2"), "{why}");
    // Other clients are not restricted.
    let admin = cluster.vms();
    assert_eq!(change(&admin, json!({"metadata": {"labels": {"a": "b"}}})).await, "");
}
