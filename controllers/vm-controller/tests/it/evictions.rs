//! Evictions of runner pods: VMs migrate, those that cannot stay, and nothing is lost while the webhook is not served.

use http::StatusCode;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, EvictParams, ListParams};
use kube::core::GroupVersionKind;
use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::Phase;
use neonvm_kit::ca::Identity;
use neonvm_kit::port::Reserved;
use neonvm_test_support::eventually;
use neonvm_types::runner_protocol::{Exit, ExitReason};
use neonvm_vm_controller::{Config, Registration, WebhookConfig, WebhookScope};
use serde_json::json;

use crate::cluster::Cluster;
use crate::webhooks::post_as;

/// As on a local cluster: any free port, evictions only.
fn config(cluster: &Cluster) -> Config {
    let mut config = cluster.config.clone();
    config.webhook = Some(WebhookConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        names: Vec::new(),
        register: Some(Registration::Listener),
        scope: WebhookScope::Evictions,
        autoscaler: false,
        client: Some(cluster.caller()),
    });
    config
}

impl Cluster {
    fn configurations(&self, side: &str) -> Api<DynamicObject> {
        let kind = format!("{side}WebhookConfiguration");
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", &kind);
        Api::all_with(self.client.clone(), &ApiResource::from_gvk(&gvk))
    }

    /// Where reviews of evictions are sent.
    async fn place(&self) -> Option<String> {
        let found =
            self.configurations("Validating").get_opt("neonvm-validating-webhook-configuration").await;
        let hooks = found.unwrap()?.data["webhooks"].as_array().unwrap().clone();
        assert_eq!(hooks.len(), 1, "{hooks:?}");
        Some(hooks[0]["clientConfig"]["url"].as_str().unwrap().to_owned())
    }

    /// Waits until it is registered elsewhere than before.
    async fn until_placed(&self, before: Option<&str>) -> String {
        let elsewhere = async || self.place().await.filter(|place| Some(place.as_str()) != before);
        eventually("the registration of evictions", elsewhere).await
    }

    pub(crate) async fn add_node(&self, name: &str, cordoned: bool) {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": name, "labels": {
            "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}}, "spec": {"unschedulable": cordoned}}))
        .unwrap();
        let api: Api<Node> = Api::all(self.client.clone());
        if api.get_opt(name).await.unwrap().is_some() {
            // The first pod there has brought it along.
            let there = kube::api::Patch::Merge(json!({"spec": {"unschedulable": cordoned}}));
            api.patch(name, &Default::default(), &there).await.unwrap();
        } else {
            api.create(&Default::default(), &node).await.unwrap();
        }
        let status = json!({"status": {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "100",
            "ephemeral-storage": "100Gi"}, "conditions": [{"type": "Ready", "status": "True"}]}});
        let patch = kube::api::Patch::Merge(&status);
        api.patch_status(name, &Default::default(), &patch).await.unwrap();
        // What the server gives a new node until it is ready.
        let ready = kube::api::Patch::Merge(json!({"spec": {"taints": null}}));
        api.patch(name, &Default::default(), &ready).await.unwrap();
    }

    async fn evict_with(&self, pod: &str, how: &EvictParams) -> Result<(), (u16, String)> {
        let pods: Api<Pod> = Api::namespaced(self.once.clone(), "default");
        match pods.evict(pod, how).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) => Err((status.code, status.message.clone())),
            Err(other) => panic!("{other:?}"),
        }
    }

    async fn refused(&self, pod: &str) -> (u16, String) {
        self.evict_with(pod, &EvictParams::default()).await.unwrap_err()
    }

    fn budgets(&self) -> Api<PodDisruptionBudget> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// A pod of another workload.
    async fn create_other_pod(&self, name: &str) {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}))
        .unwrap();
        self.pods().create(&Default::default(), &pod).await.unwrap();
    }

    /// The VM's pod has this name, as one that an earlier version made.
    async fn rename_pod(&self, vm: &VirtualMachine, name: &str) {
        let mut pod = self.only_pod(&vm.name_any()).await;
        let before = pod.name_any();
        pod.metadata.name = Some(name.to_owned());
        (pod.metadata.uid, pod.metadata.resource_version) = (None, None);
        self.pods().create(&Default::default(), &pod).await.unwrap();
        // The eviction of a pod that does not run yet does not check a budget.
        let runs = kube::api::Patch::Merge(json!({ "status": pod.status }));
        self.pods().patch_status(name, &Default::default(), &runs).await.unwrap();
        let named = kube::api::Patch::Merge(json!({"status": {"podName": name}}));
        self.vms().patch_status(&vm.name_any(), &Default::default(), &named).await.unwrap();
        self.pods().delete(&before, &kube::api::DeleteParams::default().grace_period(0)).await.unwrap();
    }

    /// Waits until there is a budget, or none.
    async fn until_budget(&self, wanted: bool) -> Option<PodDisruptionBudget> {
        eventually(if wanted { "a budget" } else { "no budget" }, async || {
            let found = self.budgets().get_opt("neonvm-machines").await.unwrap();
            (found.is_some() == wanted).then_some(found)
        })
        .await
    }
}

/// A drain waits during the migration of the VM, and the source pod can be evicted then.
#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_moves_the_machine() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller_with(config(&cluster));
    cluster.until_placed(None).await;
    for name in ["n1", "n2"] {
        cluster.add_node(name, name == "n1").await;
    }
    cluster.create("db", json!({})).await;
    let home = cluster.until_settled("db").await.status.unwrap().pod_name;
    // One that is only tried makes nothing.
    let mut trying = EvictParams::default();
    trying.post_options.dry_run = true;
    let (status, message) = cluster.evict_with(&home, &trying).await.unwrap_err();
    assert!(status == 429 && message.contains("it would be made"), "{status} {message}");
    assert!(cluster.moves().list(&ListParams::default()).await.unwrap().items.is_empty());

    let (status, message) = cluster.refused(&home).await;
    assert_eq!(status, 429, "{message}");
    assert!(message.contains(&format!("migration evict-{home} moves the VM")), "{message}");
    let name = format!("evict-{home}");
    let made = cluster.moves().get(&name).await.unwrap();
    assert_eq!(made.labels()["vm.neon.tech/created-by-eviction"], "true");
    let (source, target) = cluster.until_started(&name).await;
    assert_eq!(source, home);
    for pod in [&source, &target] {
        assert_eq!(cluster.refused(pod).await.0, 429);
    }
    cluster.carry(&source, &target).await;
    cluster.until_over(&name).await;
    assert_eq!(cluster.only_pod("db").await.name_any(), target);
    let missing = cluster.refused(&home).await;
    assert_eq!(missing.0, 404, "{missing:?}");
    // Back to where it came from, the only other node; its pod may not be there, but the next one may. One migration is left.
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let open = kube::api::Patch::Merge(json!({"spec": {"unschedulable": null}}));
    nodes.patch("n1", &Default::default(), &open).await.unwrap();
    assert_eq!(cluster.refused(&target).await.0, 429);
    let only = [format!("evict-{target}")];
    eventually("the end of the earlier migration", async || {
        let left = cluster.migrations().await;
        if left == only { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

/// What an API server would send about an eviction of a pod.
fn review(pod: &str) -> String {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u-1",
        "namespace": "default", "name": pod, "operation": "CREATE", "object": {"kind": "Eviction"}}})
    .to_string()
}

impl Cluster {
    /// Sends it to the webhook, with this certificate or none.
    async fn post_review(&self, place: &str, caller: Option<&Identity>, pod: &str) -> (StatusCode, String) {
        let uri: http::Uri = place.parse().unwrap();
        let address = uri.authority().unwrap().as_str().parse().unwrap();
        post_as(self, caller, address, uri.path(), &review(pod)).await
    }

    async fn migrations(&self) -> Vec<String> {
        let all = self.moves().list(&ListParams::default()).await.unwrap().items;
        all.iter().map(ResourceExt::name_any).collect()
    }
}

/// H1: where the API server shows its certificate, requests of other clients are rejected.
#[tokio::test(flavor = "multi_thread")]
async fn evictions_of_strangers_are_rejected() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller_with(config(&cluster));
    let place = cluster.until_placed(None).await;
    cluster.add_node("n1", true).await;
    cluster.add_node("n2", false).await;
    cluster.create("db", json!({})).await;
    let home = cluster.until_settled("db").await.status.unwrap().pod_name;
    let other = cluster.identity_of("other");
    for caller in [None, Some(&other)] {
        let (status, body) = cluster.post_review(&place, caller, &home).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
        assert!(body.contains("--webhook-client-ca-file"), "{body}");
    }
    assert_eq!(cluster.migrations().await, Vec::<String>::new());
}

/// H1: where it shows none, a request brings about only what is decided already: the VM leaves a node that is drained.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_unknown_origin_is_verified() {
    let cluster = Cluster::start().await;
    let mut open = config(&cluster);
    open.webhook.as_mut().unwrap().client = None;
    let _controller = cluster.controller_with(open);
    let place = cluster.until_placed(None).await;
    cluster.add_node("n1", false).await;
    cluster.add_node("n2", false).await;
    cluster.create("db", json!({})).await;
    let home = cluster.until_settled("db").await.status.unwrap().pod_name;
    let (status, body) = cluster.post_review(&place, None, &home).await;
    assert_eq!(status, StatusCode::OK);
    assert!(body.contains("\"allowed\":false") && body.contains("is not being drained"), "{body}");
    // A real eviction is not taken for one either, and its caller gets the remedy.
    let (status, message) = cluster.refused(&home).await;
    assert!(status == 429 && message.contains("cordon the node"), "{status} {message}");
    assert_eq!(cluster.migrations().await, Vec::<String>::new());
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let cordon = kube::api::Patch::Merge(json!({"spec": {"unschedulable": true}}));
    nodes.patch("n1", &Default::default(), &cordon).await.unwrap();
    let (status, message) = cluster.refused(&home).await;
    assert!(status == 429 && message.contains("it has begun"), "{status} {message}");
    assert_eq!(cluster.migrations().await, [format!("evict-{home}")]);
}

/// A VM that does not run is not held.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_has_ended_is_not_held() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller_with(config(&cluster));
    cluster.until_placed(None).await;
    cluster.create("db", json!({"restartPolicy": "Never"})).await;
    let home = cluster.until_settled("db").await.status.unwrap().pod_name;
    cluster.node.end(&home, Exit::new(ExitReason::PoweredOff, "")).await;
    cluster.until_phase("db", Phase::Succeeded).await;
    cluster.evict_with(&home, &EvictParams::default()).await.unwrap();
}

/// A paused VM cannot be migrated, so it stays until it is resumed.
#[tokio::test(flavor = "multi_thread")]
async fn a_paused_machine_stays_until_it_is_resumed() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller_with(config(&cluster));
    cluster.until_placed(None).await;
    cluster.add_node("n1", true).await;
    cluster.add_node("n2", false).await;
    cluster.create("db", json!({})).await;
    let home = cluster.until_settled("db").await.status.unwrap().pod_name;
    cluster.patch("db", json!({"spec": {"powerState": "Paused"}})).await;
    let (status, message) = cluster.refused(&home).await;
    assert!(status == 429 && message.contains("resume it: neonctl vm resume db"), "{status} {message}");
    assert_eq!(cluster.migrations().await, Vec::<String>::new());
    cluster.patch("db", json!({"spec": {"powerState": "Running"}})).await;
    let (status, message) = cluster.refused(&home).await;
    assert!(status == 429 && message.contains("it has begun"), "{status} {message}");
}

/// Where there is no other node the VM stays, the response has the reason, and nothing impossible is tried.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_can_go_nowhere_stays() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller_with(config(&cluster));
    cluster.until_placed(None).await;
    cluster.add_node("n1", true).await;
    cluster.create("db", json!({})).await;
    let home = cluster.until_settled("db").await.status.unwrap().pod_name;
    let (status, message) = cluster.refused(&home).await;
    assert_eq!(status, 429, "{message}");
    assert!(
        message.contains("db cannot be migrated") && message.contains("there is no other node"),
        "{message}"
    );
    cluster.add_node("n2", true).await;
    let (status, message) = cluster.refused(&home).await;
    assert!(status == 429 && message.contains("n2 is cordoned"), "{status} {message}");
    assert!(message.contains("delete its pod"), "{message}");
    assert!(cluster.moves().list(&ListParams::default()).await.unwrap().items.is_empty());
    assert_eq!(cluster.only_pod("db").await.name_any(), home);
    cluster.until_settled("db").await;
    // Uncordoning a node is enough.
    cluster.add_node("n3", false).await;
    let (status, message) = cluster.refused(&home).await;
    assert!(status == 429 && message.contains("it has begun"), "{status} {message}");
}

/// While no webhook answers runner pods stay, and other pods go. After a restart the new port is used.
#[tokio::test(flavor = "multi_thread")]
async fn machines_are_held_while_no_webhook_answers() {
    let cluster = Cluster::start().await;
    let controller = cluster.controller_with(config(&cluster));
    let first = cluster.until_placed(None).await;
    let mutating = cluster.configurations("Mutating").list(&ListParams::default()).await.unwrap();
    assert!(mutating.items.is_empty(), "only evictions were to be registered");
    cluster.add_node("n2", false).await;
    cluster.create("db", json!({})).await;
    let home = cluster.until_settled("db").await.status.unwrap().pod_name;
    drop(controller);
    let (status, message) = cluster.refused(&home).await;
    assert!(status == 500 && message.contains("eviction.vm.neon.tech"), "{status} {message}");
    assert!(cluster.moves().list(&ListParams::default()).await.unwrap().items.is_empty());
    // The next controller must not get the same port by chance.
    let port = first.parse::<http::Uri>().unwrap().port_u16().unwrap();
    let _taken = Reserved::new(([127, 0, 0, 1], port).into());
    for other in ["other", "web-7d4b9c6f5d-x2x7q", "web-0"] {
        cluster.create_other_pod(other).await;
        cluster.evict_with(other, &EvictParams::default()).await.unwrap();
    }

    // The controller is ready only once it has registered its new port.
    let metrics = Reserved::loopback().unwrap();
    let mut next = config(&cluster);
    next.metrics = Some(metrics.address());
    let _controller = cluster.controller_with(next);
    let is_ready = async || {
        crate::life::ask(metrics.address(), "/readyz").await.is_some_and(|(status, _)| status == 200)
    };
    eventually("a controller that is ready", is_ready).await;
    assert_ne!(cluster.place().await.unwrap(), first);
    let (status, message) = cluster.refused(&home).await;
    assert!(status == 429 && message.contains("it has begun"), "{status} {message}");
}

/// What the cluster autoscaler checks of the pods of a node before it empties it: none is held by a budget, and each
/// pod without an owning workload permits its eviction. Then it taints the node, evicts its pods until they are gone,
/// and deletes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_autoscaler_removes_a_node() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller_with(config(&cluster));
    cluster.until_placed(None).await;
    cluster.add_node("n1", false).await;
    cluster.create("db", json!({})).await;
    cluster.until_settled("db").await;
    cluster.add_node("n2", false).await;
    let on_node = ListParams::default().fields("spec.nodeName=n1");
    let pods = cluster.pods().list(&on_node).await.unwrap().items;
    assert_eq!(pods.len(), 1);
    for pod in &pods {
        let permits = pod.annotations().get("cluster-autoscaler.kubernetes.io/safe-to-evict");
        assert_eq!(permits.map(String::as_str), Some("true"));
    }
    let everywhere: Api<PodDisruptionBudget> = Api::all(cluster.client.clone());
    assert!(everywhere.list(&ListParams::default()).await.unwrap().items.is_empty());
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let taint = json!({"spec": {"taints": [
        {"key": "ToBeDeletedByClusterAutoscaler", "value": "1700000000", "effect": "NoSchedule"}]}});
    nodes.patch("n1", &Default::default(), &kube::api::Patch::Merge(taint)).await.unwrap();

    let home = pods[0].name_any();
    let (status, message) = cluster.refused(&home).await;
    assert!(status == 429 && message.contains("it has begun"), "{status} {message}");
    let name = format!("evict-{home}");
    let (source, target) = cluster.until_started(&name).await;
    cluster.carry(&source, &target).await;
    cluster.until_over(&name).await;
    assert_eq!(cluster.refused(&home).await.0, 404);
    let left = cluster.pods().list(&on_node).await.unwrap().items;
    assert!(left.is_empty(), "{left:?}");
    nodes.delete("n1", &Default::default()).await.unwrap();
    assert_eq!(cluster.only_pod("db").await.name_any(), target);
}

/// The author of a VM decides otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn a_vm_can_be_kept_from_the_cluster_autoscaler() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller_with(config(&cluster));
    cluster.create("db", json!({})).await;
    cluster.until_settled("db").await;
    let key = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    let keep = json!({"metadata": {"annotations": {key: "false"}}});
    cluster.vms().patch("db", &Default::default(), &kube::api::Patch::Merge(keep)).await.unwrap();
    eventually("the decision at the pod", async || {
        let pod = cluster.only_pod("db").await;
        (pod.annotations().get(key).map(String::as_str) == Some("false")).then_some(())
    })
    .await;
}

/// Runner pods of earlier versions have names for which the webhook is not called: a budget holds them, until the last
/// is gone. A budget that was changed or deleted is restored.
#[tokio::test(flavor = "multi_thread")]
async fn pods_of_earlier_versions_are_held_by_a_budget() {
    let cluster = Cluster::start().await;
    let controller = cluster.controller_with(config(&cluster));
    cluster.until_placed(None).await;
    cluster.create("db", json!({})).await;
    let vm = cluster.until_settled("db").await;
    cluster.server.until_quiet().await;
    assert!(cluster.budgets().get_opt("neonvm-machines").await.unwrap().is_none());
    drop(controller);
    cluster.rename_pod(&vm, "db-bcdfg").await;

    let _controller = cluster.controller_with(config(&cluster));
    let made = cluster.until_budget(true).await.unwrap();
    let selected = made.spec.unwrap().selector.unwrap().match_labels.unwrap();
    let labels = cluster.only_pod("db").await.metadata.labels.unwrap();
    assert!(selected.iter().all(|(key, value)| labels.get(key) == Some(value)), "{selected:?} {labels:?}");
    cluster.budgets().delete("neonvm-machines", &Default::default()).await.unwrap();
    cluster.until_budget(true).await;
    let change = kube::api::Patch::Merge(json!({"spec": {"minAvailable": 0}}));
    cluster.budgets().patch("neonvm-machines", &Default::default(), &change).await.unwrap();
    let bound = async || {
        let spec = cluster.budgets().get("neonvm-machines").await.unwrap().spec.unwrap();
        serde_json::to_value(spec.min_available).unwrap()
    };
    eventually("the budget as it was", async || bound().await == json!(i32::MAX)).await;
    let (status, message) = cluster.refused("db-bcdfg").await;
    assert!(status == 429 && message.contains("disruption budget"), "{status} {message}");
    cluster.pods().delete("db-bcdfg", &Default::default()).await.unwrap();
    cluster.until_budget(false).await;
}
