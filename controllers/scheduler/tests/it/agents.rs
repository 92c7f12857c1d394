//! Requests of agents over real connections.

use http::{Method, StatusCode};
use kube::Api;
use kube::api::{Patch, PatchParams};
use neonvm_api::VirtualMachine;
use neonvm_kit::authority::{AGENTS, OPERATORS};
use neonvm_kit::call::Caller;
use neonvm_scheduler::Mode;
use serde_json::{Value, json};

use crate::world::{Cluster, Scheduler, ask, call, eventually, request};

const UNIT: &str = "autoscaling.neon.tech/scaling-unit";
const REQUESTED: &str = "internal.autoscaling.neon.tech/resources-requested";
const APPROVED: &str = "internal.autoscaling.neon.tech/resources-approved";

async fn one_node() -> (Cluster, Scheduler) {
    let cluster = Cluster::start().await;
    cluster.node("n1", "10", "10Gi").await;
    let config = neonvm_scheduler::Config { mode: Mode::Extender, ..cluster.config("a") };
    let scheduler = cluster.leader(config).await;
    (cluster, scheduler)
}

async fn knows(cluster: &Cluster, scheduler: &Scheduler, pods: usize) {
    eventually("that the pods are known", async || {
        let dump = cluster.inspect(scheduler).await;
        (dump.nodes.first()?.pods.len() == pods).then_some(())
    })
    .await;
}

/// Upstream's request, GET with a document as its body, over plain HTTP.
#[tokio::test]
async fn the_state_is_dumped_as_upstream_requests_it() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "10", "10Gi").await;
    cluster.vm("v", 1, 8, Some("n1")).await;
    let own = neonvm_kit::port::Reserved::loopback().unwrap();
    let config = neonvm_scheduler::Config { dump_state: Some(own.address()), ..cluster.config("a") };
    let scheduler = cluster.leader(config).await;
    knows(&cluster, &scheduler, 1).await;
    let endpoint = neonvm_kit::service::Endpoint { address: own.address(), plain: true };
    let mut caller = Caller::new(endpoint, None, "");
    let (status, body) = call(&mut caller, Method::GET, "/", "{}").await;
    let dump: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, StatusCode::OK);
    let node = &dump["state"]["nodes"][0];
    assert_eq!((&node["key"], &node["value"]["cpu"]["reserved"]), (&json!("n1"), &json!(8)), "{dump:#}");
    assert_eq!(
        node["value"]["pods"][0]["value"]["vm"]["Name"],
        json!({ "namespace": "default", "name": "v" })
    );
    assert_eq!(call(&mut caller, Method::GET, "/", "").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(call(&mut caller, Method::POST, "/", "{}").await.0, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn permits_are_given_noted_and_shown() {
    let (cluster, scheduler) = one_node().await;
    cluster.vm("v", 1, 8, Some("n1")).await;
    cluster.vm("w", 1, 8, Some("n1")).await;
    knows(&cluster, &scheduler, 2).await;
    let mut agent = cluster.agent(&scheduler).await;
    assert_eq!(ask(&mut agent, "w", 1, None).await, 1);
    assert_eq!(ask(&mut agent, "v", 6, None).await, 6);
    assert_eq!(ask(&mut agent, "w", 8, Some(1)).await, 4, "what is left");
    // Defect 4: the VM had no annotations at all.
    let noted = async |vm: &str, approved: &str| {
        let all = cluster.annotations(vm).await;
        (all.get(APPROVED).map(String::as_str) == Some(approved)).then_some(all)
    };
    let all = eventually("the note", async || noted("w", r#"{"vCPUs":4,"mem":"4Gi"}"#).await).await;
    assert_eq!(all[UNIT], r#"{"vCPUs":1,"mem":"1Gi"}"#);
    assert_eq!(all[REQUESTED], r#"{"vCPUs":8,"mem":"8Gi"}"#);
    eventually("the other note", async || noted("v", r#"{"vCPUs":6,"mem":"6Gi"}"#).await).await;
    eventually("that all is written", async || {
        (cluster.inspect(&scheduler).await.counters.writes_pending == 0).then_some(())
    })
    .await;
    // S11: the same again writes nothing.
    let vms: Api<VirtualMachine> = Api::namespaced(cluster.client.clone(), "default");
    let version = async || vms.get("v").await.unwrap().metadata.resource_version;
    let before = version().await;
    assert_eq!(ask(&mut agent, "v", 6, Some(6)).await, 6);
    let dump = cluster.inspect(&scheduler).await;
    assert_eq!((dump.counters.writes_pending, version().await == before), (0, true));
    let node = &dump.nodes[0];
    assert_eq!((node.cpu.reserved, node.cpu.capacity_pressure, node.cpu.buffer), (10_000, 4000, 0));
    assert!(dump.leading && dump.ready && node.too_much_pressure);
    let mut operator = cluster.caller(scheduler.endpoint, &[OPERATORS]).await;
    let question = json!({ "namespace": "default", "vm": "w", "size": { "vCPUs": 5, "mem": "5Gi" } });
    let (status, body) = call(&mut operator, Method::POST, "/v1/what-if", question).await;
    assert_eq!(status, StatusCode::OK);
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert!(answer["why"].as_str().unwrap().contains("4 CU is the most n1 can give"), "{body}");
    let mut metrics = Caller::new(scheduler.metrics, None, "");
    let (_, text) = call(&mut metrics, Method::GET, "/metrics", "").await;
    for line in [
        "autoscaling_plugin_resource_requests_total{code=\"200\"} 4",
        "autoscaling_plugin_resource_requests_results_total{code=\"200\",node=\"n1\"} 4",
        "autoscaling_plugin_node_cpu_resources_current{node=\"n1\",field=\"Reserved\"} 10\n",
        "autoscaling_plugin_k8s_ops_total{op=\"Patch\",kind=\"VirtualMachine\",outcome=\"success\"}",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let families = neonvm_test_cluster::metrics::families(&text);
    assert!(families.contains(&"neonvm_scheduler_leading gauge".to_owned()), "{families:?}");
}

#[tokio::test]
async fn all_versions_are_understood_over_http() {
    let (cluster, scheduler) = one_node().await;
    cluster.vm("v", 1, 8, Some("n1")).await;
    knows(&cluster, &scheduler, 1).await;
    for version in 1..=7_u32 {
        let mut body = json!({ "protoVersion": version, "pod": { "namespace": "default", "name": "v" },
            "metrics": { "loadAvg1M": 0.1 } });
        if version < 7 {
            body["metrics"]["loadAvg5M"] = json!(0.1);
        }
        if version == 6 {
            body["metrics"]["memoryUsageBytes"] = json!(1.0);
        }
        body["resources"] =
            if version < 6 { json!({ "vCPUs": 4, "mem": 4 }) } else { json!({ "vCPUs": 4, "mem": "4Gi" }) };
        if version >= 6 {
            body["computeUnit"] = json!({ "vCPUs": 1, "mem": "1Gi" });
        }
        for mut caller in [cluster.agent(&scheduler).await, Caller::new(scheduler.plain, None, "")] {
            // Upstream answers on every path.
            let (status, text) = call(&mut caller, Method::POST, "/whatever", &body).await;
            assert_eq!(status, StatusCode::OK, "version {version}: {text}");
            let answer: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(answer["permit"], body["resources"], "version {version}");
            assert_eq!(answer.get("resourceUnit").is_some(), version < 5);
        }
    }
}

#[tokio::test]
async fn strangers_and_garbage_are_refused_and_change_nothing() {
    let (cluster, scheduler) = one_node().await;
    // It is seen before whatever is made after it.
    cluster.pod("ordinary", "1Gi").await;
    cluster.vm("v", 1, 8, Some("n1")).await;
    knows(&cluster, &scheduler, 1).await;
    let good = request("v", 2, None).to_string();
    for (organisations, permit, inspect, bind) in [
        (&[AGENTS][..], StatusCode::OK, StatusCode::FORBIDDEN, StatusCode::FORBIDDEN),
        (&[OPERATORS], StatusCode::FORBIDDEN, StatusCode::OK, StatusCode::BAD_REQUEST),
        (&["neonvm:schedulers"], StatusCode::FORBIDDEN, StatusCode::FORBIDDEN, StatusCode::BAD_REQUEST),
        (&["system:masters"], StatusCode::FORBIDDEN, StatusCode::FORBIDDEN, StatusCode::FORBIDDEN),
        (&[], StatusCode::FORBIDDEN, StatusCode::FORBIDDEN, StatusCode::FORBIDDEN),
    ] {
        let mut caller = cluster.caller(scheduler.endpoint, organisations).await;
        assert_eq!(call(&mut caller, Method::POST, "/", &good).await.0, permit, "{organisations:?}");
        assert_eq!(call(&mut caller, Method::GET, "/v1/inspect", "").await.0, inspect, "{organisations:?}");
        assert_eq!(call(&mut caller, Method::POST, "/extender/bind", "").await.0, bind, "{organisations:?}");
    }
    let (other, _) = neonvm_kit::ca::Authority::generate().unwrap();
    let forged = other.client("x", &[AGENTS]).unwrap();
    let real = neonvm_kit::authority::read(&cluster.client, "neonvm-system").await.unwrap();
    let tls = neonvm_kit::tls::client(Some(&forged), real.certificate().as_bytes()).unwrap();
    let mut forger = Caller::new(scheduler.endpoint, Some(tls.into()), "scheduler.neonvm");
    let within = std::time::Duration::from_secs(10);
    forger.call(Method::POST, "/", bytes::Bytes::from(good.clone()), within).await.unwrap_err();

    let mut agent = cluster.agent(&scheduler).await;
    let (blank, long) = (format!("{good}{}", " \n".repeat(1024)), format!("{}{good}", " ".repeat(1024)));
    let with = |field: &str, value: Value| {
        let mut body = request("v", 2, None);
        body[field] = value;
        body.to_string()
    };
    let pod = |name: &str| json!({ "namespace": "default", "name": name });
    for (method, body, status, text) in [
        (Method::GET, good.clone(), 400, "must be POST"),
        (Method::POST, String::new(), 400, "scheduler request"),
        (Method::POST, "\u{0}{{{".to_owned(), 400, "scheduler request"),
        (Method::POST, "\"text\"".to_owned(), 400, "scheduler request"),
        (Method::POST, blank, 200, "permit"),
        (Method::POST, long, 400, "longer than 1024"),
        (Method::POST, with("protoVersion", json!(0)), 400, "v1.0 to v5.0"),
        (Method::POST, with("protoVersion", json!(8)), 400, "v1.0 to v5.0"),
        (Method::POST, with("computeUnit", json!({ "vCPUs": 0, "mem": "1Gi" })), 400, "computeUnit"),
        (Method::POST, with("resources", json!({ "vCPUs": -1, "mem": "1Gi" })), 400, "resources"),
        (Method::POST, with("pod", pod("missing")), 404, "missing is not known"),
        // It waits for a node: where a pod is comes before what it is.
        (Method::POST, with("pod", pod("ordinary")), 404, "runs on no node"),
    ] {
        let (got, answer) = call(&mut agent, method, "/", &body).await;
        assert_eq!(got.as_u16(), status, "{body}: {answer}");
        assert!(answer.contains(text), "{body}: {answer}");
    }
    let dump = cluster.inspect(&scheduler).await;
    assert_eq!(dump.nodes[0].cpu.reserved, 2000, "only the one good request counted");
}

/// Another client writes the VM at the same time: nothing is lost. A VM created again under the same name is left alone.
#[tokio::test]
async fn notes_survive_conflicts_and_miss_strangers() {
    let (cluster, scheduler) = one_node().await;
    cluster.vm("v", 1, 8, Some("n1")).await;
    knows(&cluster, &scheduler, 1).await;
    let vms: Api<VirtualMachine> = Api::namespaced(cluster.client.clone(), "default");
    let mut agent = cluster.agent(&scheduler).await;
    let mut last = None;
    for round in 1..=8_u64 {
        let theirs = json!({ "metadata": { "annotations": { format!("theirs/{round}"): "x" } } });
        let (params, patch) = (PatchParams::default(), Patch::Merge(theirs));
        let theirs = vms.patch("v", &params, &patch);
        let ours = ask(&mut agent, "v", round, last);
        let (theirs, ours) = tokio::join!(theirs, ours);
        theirs.unwrap();
        last = Some(ours);
    }
    let all = eventually("the last note", async || {
        let all = cluster.annotations("v").await;
        (all.get(APPROVED)? == r#"{"vCPUs":8,"mem":"8Gi"}"#).then_some(all)
    })
    .await;
    assert!((1..=8).all(|round| all.contains_key(&format!("theirs/{round}"))), "{all:?}");
    // Another VM of that name, while the old pod is still there.
    vms.delete("v", &kube::api::DeleteParams::default()).await.unwrap();
    eventually("its end", async || vms.get_opt("v").await.unwrap().is_none().then_some(())).await;
    let bounds = json!({ "min": 1, "max": 8, "use": 1 });
    let recreated = json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": { "name": "v" },
        "spec": { "guest": { "cpus": bounds, "memorySlots": bounds, "memorySlotSize": "1Gi", "rootDisk": { "image": "i" } } } });
    vms.create(&kube::api::PostParams::default(), &serde_json::from_value(recreated).unwrap()).await.unwrap();
    let (status, _) = call(&mut agent, Method::POST, "/", request("v", 3, Some(8))).await;
    if status == StatusCode::OK {
        eventually("that the note is done with", async || {
            (cluster.inspect(&scheduler).await.counters.writes_pending == 0).then_some(())
        })
        .await;
    }
    assert!(!cluster.annotations("v").await.contains_key(APPROVED));
}
