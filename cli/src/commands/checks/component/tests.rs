use super::*;
use crate::commands::checks::facts::{Part, SERVICE};
use crate::commands::checks::tests::put;

const NOW: &str = "2026-01-01T01:00:00Z";
const FRESH: &str = "2026-01-01T00:59:55.000000Z";
const STALE: &str = "2026-01-01T00:59:00.000000Z";

fn workload(kind: &str, name: &str, desired: u64, ready: u64) -> Value {
    json!({"kind": kind, "metadata": {"name": format!("neonvm-{name}"), "generation": 1},
        "spec": {"replicas": desired, "template": {"spec": {"containers": [
            {"name": "kube-scheduler", "image": "registry.k8s.io/kube-scheduler:v1.36.2"},
            {"name": name, "image": "reg:5000/vm/neond:0.1.0@sha256:0"}]}}},
        "status": {"observedGeneration": 1, "replicas": desired, "updatedReplicas": desired, "availableReplicas": ready,
            "desiredNumberScheduled": desired, "updatedNumberScheduled": desired, "numberAvailable": ready}})
}

fn lease(name: &str, holder: &str, renewed: &str) -> Value {
    json!({"metadata": {"name": name},
        "spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}})
}

fn pod(name: &str, service: &str, status: &Value) -> Value {
    json!({"metadata": {"name": name, "labels": {"app.kubernetes.io/name": format!("neonvm-{service}")}},
        "spec": {"nodeName": "n1"}, "status": status})
}

fn hook(namespace: &str) -> Value {
    json!({"webhooks": [{"clientConfig": {"service": {"namespace": namespace, "name": "neonvm-webhook"}}}]})
}

fn slice(ready: &[bool]) -> Value {
    let endpoints: Vec<Value> = ready.iter().map(|ready| json!({"conditions": {"ready": ready}})).collect();
    json!({"metadata": {"labels": {"kubernetes.io/service-name": SERVICE}}, "endpoints": endpoints})
}

fn node(name: &str) -> Value {
    json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
}

/// Nothing at all, at a time.
fn bare() -> Facts {
    let mut facts = Facts { namespace: "vms".into(), ..Facts::default() };
    facts.clock.server = NOW.parse().ok();
    facts
}

/// Everything installed on two nodes, and well.
fn well() -> Facts {
    let mut facts = bare();
    put(&mut facts, Source::Nodes, vec![node("n1"), node("n2")]);
    put(
        &mut facts,
        Source::Workloads,
        vec![
            workload("Deployment", "vm-controller", 3, 3),
            workload("Deployment", "scheduler", 1, 1),
            workload("DaemonSet", "agent", 2, 2),
            workload("DaemonSet", "node", 2, 2),
            workload("DaemonSet", "vxlan-controller", 2, 2),
            workload("Deployment", "pod-autoscaler", 2, 2),
        ],
    );
    put(
        &mut facts,
        Source::Leases,
        vec![
            lease(CONTROLLER_LEASE, "c-0", FRESH),
            lease(SCHEDULER_LEASE, "s-0", FRESH),
            lease("neonvm-agent-n1", "a-0", FRESH),
            lease("neonvm-agent-n2", "a-1", "2026-01-01T00:59:51.000000Z"),
            lease("neonvm-agent-gone", "a-2", STALE),
            lease(AUTOSCALER_LEASE, "p-0", FRESH),
        ],
    );
    put(&mut facts, Source::Hooks, vec![hook("vms"), hook("vms")]);
    put(&mut facts, Source::Endpoints, vec![slice(&[true, true, true])]);
    facts
}

fn found(facts: &Facts, name: &str) -> Component {
    facts.services().into_iter().find(|component| component.name == name).unwrap()
}

/// Replaces the object whose name ends so, or adds it.
fn change(facts: &mut Facts, source: Source, name: &str, to: Value) {
    let mut objects = facts.all(source).to_vec();
    let is_it =
        |object: &Value| object["metadata"]["name"].as_str().is_some_and(|found| found.ends_with(name));
    match objects.iter().position(is_it) {
        Some(at) => objects[at] = to,
        None => objects.push(to),
    }
    put(facts, source, objects);
}

#[test]
fn services_that_are_well() {
    let facts = well();
    let rows: Vec<Vec<String>> = facts.services().iter().map(Component::cells).collect();
    let wanted = [
        ["vm-controller", "3/3", "0.1.0", "c-0", "5s ago", "-"],
        ["scheduler", "1/1", "0.1.0", "s-0", "5s ago", "-"],
        ["agent", "2/2", "0.1.0", "2 nodes", "9s ago", "-"],
        ["node", "2/2", "0.1.0", "-", "-", "-"],
        ["vxlan-controller", "2/2", "0.1.0", "-", "-", "-"],
        ["pod-autoscaler", "2/2", "0.1.0", "p-0", "5s ago", "-"],
        ["webhooks", "2/2", "-", "-", "-", "3 ready endpoints"],
    ];
    assert_eq!(rows, wanted);
}

#[test]
fn a_node_service_that_fails_or_is_lost_is_shown_and_one_without_a_controller_is_not() {
    let mut facts = well();
    change(&mut facts, Source::Workloads, "neonvm-node", workload("DaemonSet", "node", 2, 1));
    let status = json!({"containerStatuses": [{"name": "node", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]});
    put(&mut facts, Source::Pods, vec![pod("node-x", "node", &status)]);
    let plugin = found(&facts, "node");
    assert_eq!((plugin.is_well, plugin.ready), (Some(false), Some((1, 2))));
    assert!(plugin.note.starts_with("pod node-x: CrashLoopBackOff"), "{}", plugin.note);
    // A controller without it: the installation lost it.
    let mut workloads = facts.all(Source::Workloads).to_vec();
    workloads.retain(|one| one["metadata"]["name"] != "neonvm-node");
    put(&mut facts, Source::Workloads, workloads);
    assert_eq!(found(&facts, "node").is_well, Some(false));
    put(&mut facts, Source::Workloads, Vec::new());
    let all = facts.services();
    assert!(all.iter().all(|component| component.name != "node"));
}

#[test]
fn pods_that_are_not_ready_give_the_reason() {
    let mut facts = well();
    change(&mut facts, Source::Workloads, "neonvm-agent", workload("DaemonSet", "agent", 2, 1));
    let status = json!({"containerStatuses": [{"name": "agent", "image": "r/neond:0.1.0",
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}]});
    put(
        &mut facts,
        Source::Pods,
        vec![pod("agent-x", "agent", &status), pod("other", "scheduler", &json!({}))],
    );
    let agent = found(&facts, "agent");
    assert_eq!((agent.is_well, agent.ready), (Some(false), Some((1, 2))));
    assert_eq!(agent.note, "pod agent-x: ImagePullBackOff r/neond:0.1.0: not found");

    let status = json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}]});
    put(&mut facts, Source::Pods, vec![pod("agent-x", "agent", &status)]);
    assert_eq!(found(&facts, "agent").note, "pod agent-x: it cannot be scheduled: 0/2 nodes are available");

    change(&mut facts, Source::Workloads, "neonvm-scheduler", workload("Deployment", "scheduler", 1, 0));
    assert_eq!(found(&facts, "scheduler").note, "it has no pods yet");
}

#[test]
fn a_lease_that_is_not_renewed_is_a_fault() {
    let mut facts = well();
    change(&mut facts, Source::Leases, SCHEDULER_LEASE, lease(SCHEDULER_LEASE, "s-0", STALE));
    let scheduler = found(&facts, "scheduler");
    assert_eq!((scheduler.is_well, scheduler.renewed), (Some(false), Some(60)));
    assert_eq!(scheduler.note, "its leader s-0 has not renewed its lease for 60 s");

    change(&mut facts, Source::Leases, SCHEDULER_LEASE, lease(SCHEDULER_LEASE, "", FRESH));
    assert_eq!(found(&facts, "scheduler").note, "its lease has no holder");
    change(&mut facts, Source::Leases, "neonvm-agent-n2", lease("neonvm-agent-n2", "a-1", STALE));
    let agent = found(&facts, "agent");
    assert_eq!((agent.is_well, agent.leader.as_str()), (Some(false), "1 node"));
    assert_eq!(agent.note, "leases not renewed: n2 for 60 s");
    put(&mut facts, Source::Leases, Vec::new());
    assert_eq!(
        found(&facts, "vm-controller").note,
        format!("its lease {CONTROLLER_LEASE} has never been held")
    );
}

#[test]
fn webhooks_need_endpoints() {
    let mut facts = well();
    put(&mut facts, Source::Endpoints, vec![slice(&[false])]);
    let webhooks = found(&facts, "webhooks");
    assert_eq!((webhooks.is_well, webhooks.ready), (Some(false), Some((2, 2))));
    assert_eq!(
        webhooks.note,
        "service vms/neonvm-webhook has no ready endpoint: VMs cannot be created or changed"
    );
    put(&mut facts, Source::Hooks, vec![hook("old"), hook("old")]);
    let note =
        "registered at old/neonvm-webhook, which is not this installation: VMs cannot be created or changed";
    assert_eq!(found(&facts, "webhooks").note, note);
    put(&mut facts, Source::Hooks, vec![hook("vms")]);
    assert_eq!(found(&facts, "webhooks").note, "the vm-controller has not registered them");
    // PodAutoscalers are written without their webhooks.
    let mut facts = well();
    let service = json!({"namespace": "vms", "name": "neonvm-pod-autoscaler"});
    let mut hooks = facts.all(Source::Hooks).to_vec();
    hooks[0]["webhooks"].as_array_mut().unwrap().push(json!({"clientConfig": {"service": service}}));
    put(&mut facts, Source::Hooks, hooks);
    let webhooks = found(&facts, "webhooks");
    let note = "3 ready endpoints; PodAutoscalers are not validated: service vms/neonvm-pod-autoscaler has no ready endpoint";
    assert_eq!((webhooks.is_well, webhooks.note.as_str()), (Some(true), note));
    // On a local cluster.
    let by_url = json!({"webhooks": [{"clientConfig": {"url": "https://127.0.0.1:1/"}}]});
    let mut facts = bare();
    put(&mut facts, Source::Hooks, vec![by_url]);
    assert_eq!(found(&facts, "webhooks").cells(), ["webhooks", "yes", "-", "-", "-", "served by a process"]);
}

#[test]
fn what_may_not_be_read_is_no_fault_and_is_named() {
    let unread = |plural: &str| Part::Unread(format!("you may not list {plural} in namespace vms"));
    let mut facts = bare();
    for (source, plural) in
        [(Source::Workloads, "deployments"), (Source::Pods, "pods"), (Source::Leases, "leases")]
    {
        facts.put(source, unread(plural));
    }
    facts.put(Source::Hooks, Part::Unread("you lack permission to get mutatingwebhookconfigurations".into()));
    let scheduler = found(&facts, "scheduler");
    assert_eq!((scheduler.is_well, scheduler.ready), (None, None));
    let note = "you may not list deployments in namespace vms; you may not list leases in namespace vms";
    assert_eq!(scheduler.note, note);
    assert_eq!(found(&facts, "webhooks").note, "you lack permission to get mutatingwebhookconfigurations");
    // With the role view, pods can be read and leases cannot.
    let mut facts = well();
    facts.put(Source::Leases, unread("leases"));
    let scheduler = found(&facts, "scheduler");
    assert_eq!(
        (scheduler.is_well, scheduler.note.as_str()),
        (Some(true), "you may not list leases in namespace vms")
    );
}

#[test]
fn what_does_its_work_runs() {
    let facts = bare();
    let absent = || found(&facts, "vm-controller");
    assert_eq!(
        absent().with(&Service::Works("every VM has a status".into())).cells()[1..],
        ["yes", "-", "-", "-", "every VM has a status"]
    );
    let idle = absent().with(&Service::Unknown("there are no VMs to check".into()));
    assert_eq!(idle.note, "no pods and no lease; there are no VMs to check");
    assert_eq!(absent().with(&Service::Fails("1 VM without a status".into())).cells()[1], "no");
    assert_eq!(found(&facts, "webhooks").note, "not registered");
}
