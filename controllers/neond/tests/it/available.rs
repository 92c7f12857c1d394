//! What keeps the services there while nodes and pods come and go, as the manifests have it.

use std::collections::BTreeMap;
use std::time::Duration;

use neonvm_kit::lease::Times;
use serde_json::{Value, json};

use crate::cluster::manifests;
use crate::service::{arguments, containers};

/// Longest time from the end of one leader to the next one.
const TAKEOVER: Duration = Duration::from_secs(15);
/// A kube-scheduler draws its pauses between the configured one and this many times as much (`JitterFactor` of client-go).
const JITTER: f64 = 2.2;

fn of_kind(kind: &str) -> Vec<Value> {
    manifests().into_iter().map(|(_, object)| object).filter(|object| object["kind"] == kind).collect()
}

fn all_containers(workload: &Value) -> &Vec<Value> {
    workload["spec"]["template"]["spec"]["containers"].as_array().unwrap()
}

/// What a Deployment of ours lacks of what it must have, in words.
fn lacks(deployment: &Value, budgets: &[Value]) -> Vec<String> {
    let mut all = Vec::new();
    let mut need = |has: bool, what: &str| {
        if !has {
            all.push(what.to_owned());
        }
    };
    let (spec, pod) = (&deployment["spec"], &deployment["spec"]["template"]["spec"]);
    need(spec["replicas"].as_u64().is_some_and(|count| count >= 2), "a second replica");
    let budget = budgets.iter().find(|budget| budget["spec"]["selector"] == spec["selector"]);
    let one = budget.is_some_and(|budget| budget["spec"]["maxUnavailable"] == 1);
    need(one, "a PodDisruptionBudget that lets one replica go at a time");
    need(pod["priorityClassName"] == "neonvm-services", "the priority class neonvm-services");
    // One constraint, over the label that each node has: for all of them a kube-scheduler gives nodes that lack a label of any the
    // same score, and a cluster without zones would spread nothing.
    let spread = pod["topologySpreadConstraints"].as_array().cloned().unwrap_or_default();
    let over = |one: &Value, key: &str| one["topologyKey"] == key && one["labelSelector"] == spec["selector"];
    let is_spread = matches!(spread.as_slice(), [one] if over(one, "kubernetes.io/hostname"));
    need(is_spread, "a spread over nodes, and nothing else");
    let apart = "/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/podAffinityTerm";
    let is_apart = pod.pointer(apart).is_some_and(|term| over(term, "topology.kubernetes.io/zone"));
    need(is_apart, "a preference for other zones");
    for container in all_containers(deployment) {
        let name = container["name"].as_str().unwrap();
        let probe = |kind: &str| container[kind]["httpGet"]["path"].as_str().unwrap_or_default().to_owned();
        need(["/healthz", "/livez"].contains(&probe("livenessProbe").as_str()), &format!("{name}: liveness"));
        need(probe("readinessProbe") == "/readyz", &format!("{name}: readiness"));
        for resource in ["cpu", "memory"] {
            let requested = container["resources"]["requests"][resource].is_string();
            need(requested, &format!("{name}: a request of {resource}"));
        }
        need(container["resources"]["limits"]["memory"].is_string(), &format!("{name}: a limit of memory"));
    }
    all
}

#[test]
fn a_deployment_lacks_nothing() {
    let budgets = of_kind("PodDisruptionBudget");
    let deployments = of_kind("Deployment");
    assert!(deployments.len() >= 3);
    for deployment in &deployments {
        assert_eq!(lacks(deployment, &budgets), Vec::<String>::new(), "{}", deployment["metadata"]["name"]);
    }
    // The test finds what is missing.
    for path in [
        "/spec/replicas",
        "/spec/template/spec/priorityClassName",
        "/spec/template/spec/topologySpreadConstraints/0",
        "/spec/template/spec/affinity",
        "/spec/template/spec/containers/0/livenessProbe",
        "/spec/template/spec/containers/0/readinessProbe",
        "/spec/template/spec/containers/0/resources/requests/cpu",
    ] {
        let mut without = deployments[0].clone();
        *without.pointer_mut(path).unwrap() = Value::Null;
        assert_eq!(lacks(&without, &budgets).len(), 1, "{path}");
    }
    assert_eq!(lacks(&deployments[0], &[]).len(), 1);
}

/// Two replicas with one name would both take a lease for their own.
#[test]
fn each_replica_has_a_name_of_its_own() {
    let name = json!({"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}});
    let mut leading = 0;
    for workload in of_kind("Deployment").iter().chain(&of_kind("DaemonSet")) {
        for container in containers(workload) {
            let given = container["args"].as_array().cloned().unwrap_or_default();
            let Some(identity) =
                given.iter().filter_map(Value::as_str).find(|word| word.starts_with("--identity="))
            else {
                let leads = given.iter().any(|word| word == "--leader-elect");
                assert!(!leads, "{}: no --identity", container["name"]);
                continue;
            };
            leading += 1;
            assert_eq!(identity, "--identity=$(POD_NAME)", "{}", container["name"]);
            assert!(container["env"].as_array().unwrap().contains(&name), "{}", container["name"]);
        }
    }
    assert_eq!(leading, 4, "vm-controller, scheduler, pod-autoscaler, agent");
}

/// Times of the lease from the flags of a container.
fn times(container: &Value) -> Times {
    let words = arguments(container);
    let flags: BTreeMap<&str, &str> = words.iter().filter_map(|word| word.split_once('=')).collect();
    let seconds = |flag: &str, otherwise: Duration| {
        flags.get(flag).map_or(otherwise, |text| Duration::from_secs(text.parse().unwrap()))
    };
    let usual = Times::default();
    Times {
        duration: seconds("--leader-elect-lease-duration", usual.duration),
        renew_deadline: seconds("--leader-elect-renew-deadline", usual.renew_deadline),
        retry: seconds("--leader-elect-retry-period", usual.retry),
    }
}

/// The configuration of the kube-scheduler.
fn configuration() -> Value {
    let maps = of_kind("ConfigMap");
    let map = maps.iter().find(|map| map["metadata"]["name"] == "neonvm-kube-scheduler").unwrap();
    serde_saphyr::from_str(map["data"]["config.yaml"].as_str().unwrap()).unwrap()
}

#[test]
fn another_leads_within_fifteen_seconds() {
    let mut extender = None;
    for workload in of_kind("Deployment").iter().chain(&of_kind("DaemonSet")) {
        for container in containers(workload) {
            let (name, times) = (container["name"].as_str().unwrap(), times(container));
            times.check().unwrap();
            assert!(times.takeover() <= TAKEOVER, "{name}: {:?}", times.takeover());
            if name == "scheduler" {
                extender = Some((times, arguments(container)));
            }
        }
    }
    let (extender, words) = extender.unwrap();
    let election = &configuration()["leaderElection"];
    let seconds = |key: &str| {
        let text = election[key].as_str().unwrap().strip_suffix('s').unwrap();
        Duration::from_secs(text.parse().unwrap())
    };
    assert_eq!(election["leaderElect"], true);
    assert_eq!(
        (&election["resourceLock"], &election["resourceNamespace"]),
        (&json!("leases"), &json!("neonvm-system"))
    );
    // The extender follows the very lease of the kube-scheduler.
    let follows = format!("--kube-scheduler-lease={}", election["resourceName"].as_str().unwrap());
    assert!(words.contains(&follows), "{follows}");
    let kube = Times {
        duration: seconds("leaseDuration"),
        renew_deadline: seconds("renewDeadline"),
        retry: seconds("retryPeriod").mul_f64(JITTER),
    };
    kube.check().unwrap();
    // The kube-scheduler of the other pod leads; the extender that led sees that a pause later and gives its lease back, and a pause
    // after that the other one takes it.
    let both = kube.takeover() + extender.retry * 2;
    assert!(both <= TAKEOVER, "{both:?}");
    // A whole pod that ends: both leases expire at the same time.
    assert!(extender.takeover() <= kube.takeover());
}

/// A kube-scheduler without its extender binds nothing, so it must not continue to lead: its liveness is the
/// extender's.
#[test]
fn a_kube_scheduler_ends_with_its_extender() {
    let deployments = of_kind("Deployment");
    let pair = deployments.iter().find(|one| one["metadata"]["name"] == "neonvm-scheduler").unwrap();
    let container =
        |name: &str| all_containers(pair).iter().find(|container| container["name"] == name).unwrap().clone();
    let (kube, extender) = (container("kube-scheduler"), container("scheduler"));
    let ports = extender["ports"].as_array().unwrap();
    let probes = ports.iter().find(|port| port["name"] == "probes").unwrap();
    assert_eq!(
        kube["livenessProbe"]["httpGet"],
        json!({"path": "/healthz", "port": probes["containerPort"]})
    );
    let number = |key: &str| kube["livenessProbe"][key].as_u64().unwrap();
    let noticed =
        Duration::from_secs(number("periodSeconds") * number("failureThreshold") + number("timeoutSeconds"));
    // It gives its lease back as it ends, and the other one tries again after a pause.
    let kube =
        configuration()["leaderElection"]["retryPeriod"].as_str().unwrap().strip_suffix('s').unwrap().parse();
    let pause = Duration::from_secs(kube.unwrap()).mul_f64(JITTER);
    assert!(noticed + pause <= TAKEOVER, "{noticed:?} + {pause:?}");
}

/// What is left of the kube-scheduler's own scores must not work against the extender's: it fills nodes, they would spread pods.
#[test]
fn the_score_of_the_extender_wins() {
    let configuration = configuration();
    let profiles = configuration["profiles"].as_array().unwrap();
    assert_eq!(profiles.len(), 1);
    assert_eq!(profiles[0]["schedulerName"], "autoscale-scheduler");
    // As upstream's autoscale-scheduler has it. Only their scores: NodeResourcesFit still filters.
    let disabled = json!({"score": {"disabled": [{"name": "NodeResourcesFit"},
        {"name": "NodeResourcesBalancedAllocation"}, {"name": "ImageLocality"}]}});
    assert_eq!(profiles[0]["plugins"], disabled);
    let extender = &configuration["extenders"][0];
    assert_eq!((&extender["prioritizeVerb"], &extender["weight"]), (&json!("prioritize"), &json!(1)));
    assert_eq!(extender["ignorable"], false);
    // Only that of its own pod: which of two leads is decided by what they share.
    assert!(extender["urlPrefix"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{extender}");
}
