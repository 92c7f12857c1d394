use serde_json::{Value, json};

use super::facts::Part;
use super::*;
use crate::commands::rights::Right;

fn node(name: &str, info: &Value, allocatable: &Value) -> Value {
    json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": info, "allocatable": allocatable}})
}

fn info(runtime: &str, architecture: &str, kernel: &str) -> Value {
    json!({"containerRuntimeVersion": runtime, "architecture": architecture, "operatingSystem": "linux",
        "osImage": "Debian GNU/Linux 12", "kernelVersion": kernel})
}

/// A cluster that is as it should be, with nothing of ours.
fn facts() -> Facts {
    let good = info("containerd://2.3.4", "amd64", "6.1.0-28-amd64");
    let facts = Facts {
        version: "v1.36.2".into(),
        namespace: "neonvm-system".into(),
        keeps_image_volumes: Some(true),
        ..Facts::default()
    };
    let nodes = vec![node("n1", &good, &json!({})), node("n2", &good, &json!({"neonvm/kvm": "1000"}))];
    with(facts, Source::Nodes, nodes)
}

/// These objects, and no others of their kind.
pub(super) fn put(facts: &mut Facts, source: Source, objects: Vec<Value>) {
    facts.put(source, Part::Read(objects));
}

/// One more object.
pub(super) fn push(facts: &mut Facts, source: Source, object: Value) {
    let all = facts.all(source).iter().cloned().chain([object]).collect();
    put(facts, source, all);
}

fn with(mut facts: Facts, source: Source, objects: Vec<Value>) -> Facts {
    put(&mut facts, source, objects);
    facts
}

fn wanting(wanted: Wanted) -> Facts {
    Facts { wanted, ..facts() }
}

fn checks(facts: &Facts) -> Vec<Finding> {
    findings(facts, Group::Preflight)
}

fn found(facts: &Facts, name: &str, place: &str) -> (Verdict, String) {
    let all = checks(facts);
    let found = all.iter().find(|check| check.name == name && check.place == place);
    let found = found.unwrap_or_else(|| panic!("no {name} at {place}: {all:?}"));
    assert_eq!(found.remedy.is_empty(), found.verdict == Verdict::Ok, "{found:?}");
    assert_eq!(found.group, "preflight");
    (found.verdict, found.detail.clone())
}

fn verdict(facts: &Facts, name: &str, place: &str) -> Verdict {
    found(facts, name, place).0
}

#[test]
fn a_cluster_that_has_everything() {
    let facts = facts();
    assert!(checks(&facts).iter().all(|check| check.verdict == Verdict::Ok), "{:?}", checks(&facts));
    assert_eq!(found(&facts, "kvm", "n1").1, "unknown until a device plugin runs");
    assert_eq!(found(&facts, "kvm", "n2").1, "available to pods as neonvm/kvm");
    assert_eq!(found(&facts, "runtime", "n1").1, "containerd 2.3.4");
    assert_eq!(found(&facts, "platform", "n1").1, "amd64, Debian GNU/Linux 12, Linux 6.1.0-28-amd64");
}

#[test]
fn old_versions_are_refused_and_older_ones_cost_something() {
    let of = |version: &str| verdict(&Facts { version: version.into(), ..facts() }, "kubernetes", "cluster");
    assert_eq!(of("v1.30.9"), Verdict::Fail);
    assert_eq!((of("v1.31.0"), of("v1.34.2+k3s1")), (Verdict::Warn, Verdict::Warn));
    assert_eq!((of("v1.35.0"), of("v2.0.0")), (Verdict::Ok, Verdict::Ok));
    assert_eq!(of("latest"), Verdict::Warn);
    let without = Facts { keeps_image_volumes: Some(false), ..facts() };
    assert_eq!(verdict(&without, "image-volumes", "cluster"), Verdict::Warn);
    let mut copied = without;
    copied.wanted.copies_root_disks = true;
    assert_eq!(verdict(&copied, "image-volumes", "cluster"), Verdict::Ok);
    let unknown = Facts { keeps_image_volumes: None, ..facts() };
    assert!(checks(&unknown).iter().all(|check| check.name != "image-volumes"));
}

#[test]
fn nodes_that_lack_something_are_named() {
    let nodes = vec![
        node("old", &info("containerd://1.7.2", "amd64", "4.19.0"), &json!({"neonvm/kvm": "0"})),
        node("arm", &info("cri-o://1.33.1", "arm64", "6.1"), &json!({})),
        node("odd", &info("docker://20.10", "amd64", "6.1.0"), &json!({})),
        node(
            "gone",
            &info("containerd://2.3.4", "amd64", "6.1.0"),
            &json!({"neonvm/kvm": "0", "neonvm/node": "0"}),
        ),
        json!({"metadata": {"name": "new"}}),
    ];
    let facts = with(facts(), Source::Nodes, nodes);
    assert_eq!(
        found(&facts, "runtime", "old"),
        (Verdict::Warn, "containerd 1.7.2 has no image volumes; 2.1 has".into())
    );
    assert_eq!(
        (verdict(&facts, "kvm", "old"), verdict(&facts, "platform", "old")),
        (Verdict::Warn, Verdict::Warn)
    );
    assert_eq!(
        (verdict(&facts, "runtime", "arm"), verdict(&facts, "platform", "arm")),
        (Verdict::Ok, Verdict::Warn)
    );
    assert_eq!(found(&facts, "kvm", "gone"), (Verdict::Ok, "unknown: no device plugin runs".into()));
    assert_eq!(verdict(&facts, "runtime", "odd"), Verdict::Warn);
    assert_eq!(found(&facts, "nodes", "cluster"), (Verdict::Warn, "not Ready: new".into()));
    let mut copied = facts.clone();
    copied.wanted.copies_root_disks = true;
    assert_eq!(verdict(&copied, "runtime", "old"), Verdict::Ok);
    let none = with(facts.clone(), Source::Nodes, Vec::new());
    assert_eq!(found(&none, "nodes", "cluster").1, "no node is Ready");
    let mut unread = facts;
    unread.put(Source::Nodes, Part::Unread("you lack permission to list nodes".into()));
    assert_eq!(found(&unread, "nodes", "cluster").1, "you lack permission to list nodes");
}

#[test]
fn a_kubelet_older_than_its_server_is_named() {
    let of = |server: &str, kubelet: &str| {
        let mut info = info("containerd://2.3.4", "amd64", "6.1.0");
        info["kubeletVersion"] = json!(kubelet);
        let facts = with(facts(), Source::Nodes, vec![node("n", &info, &json!({}))]);
        let facts = Facts { version: server.into(), ..facts };
        let named = checks(&facts).into_iter().find(|check| check.name == "kubelet");
        (named.map(|check| check.verdict), facts.image_volumes())
    };
    assert_eq!(of("v1.36.2", "v1.33.4"), (Some(Verdict::Warn), Some(false)));
    assert_eq!(of("v1.36.2", "v1.35.0"), (None, Some(true)));
    // The finding about the server names it, and what it keeps was switched on.
    assert_eq!(of("v1.34.1", "v1.33.4"), (None, Some(true)));
    assert_eq!(of("v1.36.2", ""), (None, Some(true)));
}

#[test]
fn rights_that_are_missing_are_named() {
    let missing: Vec<Right> =
        ["a", "b", "c", "d", "e", "f", "g"].map(|plural| Right::from_verb("patch", "", plural, "")).into();
    let facts = wanting(Wanted { missing, ..Wanted::default() });
    let detail = "you lack permission to patch a, patch b, patch c, patch d, patch e and 2 more";
    assert_eq!(found(&facts, "rights", "client"), (Verdict::Fail, detail.into()));
}

#[test]
fn the_network_and_its_mtu() {
    let map = |name: &str, data: Value| json!({"metadata": {"name": name}, "data": data});
    let of = |map: Value| found(&with(facts(), Source::Networks, vec![map]), "mtu", "cluster");
    assert_eq!(
        of(map("cilium-config", json!({"mtu": "8951"}))),
        (Verdict::Ok, "8951 in cilium-config".into())
    );
    assert_eq!(of(map("calico-config", json!({"veth_mtu": "1280"}))).0, Verdict::Warn);
    let flannel = json!({"net-conf.json": "{\"Backend\": {\"Type\": \"vxlan\", \"MTU\": 1450}}"});
    assert_eq!(of(map("kube-flannel-cfg", flannel)).1, "1450 in kube-flannel-cfg");
    for unknown in [json!({"veth_mtu": "0"}), json!({"net-conf.json": "{"}), json!({})] {
        assert!(of(map("x", unknown)).1.starts_with("not recorded"));
    }
    let facts = wanting(Wanted { multus: true, ..Wanted::default() });
    assert_eq!(verdict(&facts, "multus", "cluster"), Verdict::Fail);
    assert!(checks(&with(facts, Source::Multus, vec![json!({})])).iter().all(|check| check.name != "multus"));
}

#[test]
fn a_plain_way_to_the_scheduler_is_warned_of() {
    let named = |facts: &Facts| checks(facts).into_iter().find(|check| check.name == "upstream-agents");
    assert!(named(&facts()).is_none());
    let check = named(&wanting(Wanted { upstream_agents: true, ..Wanted::default() })).unwrap();
    assert_eq!(check.verdict, Verdict::Warn);
    assert!(check.detail.contains("may request sizes"), "{}", check.detail);
}

#[test]
fn a_namespace_with_another_level_of_pod_security() {
    let at = |level: &str| {
        let space = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}});
        verdict(&with(facts(), Source::Space, vec![space]), "pod-security", "neonvm-system")
    };
    assert_eq!(
        (at("privileged"), at("baseline"), at("restricted")),
        (Verdict::Ok, Verdict::Warn, Verdict::Warn)
    );
}

#[test]
fn what_was_left_is_found() {
    let controller = |namespace: &str| json!({"metadata": {"namespace": namespace}});
    let crd = |manager: &str| {
        json!({"metadata": {"name": "a", "managedFields": [{"manager": manager},
            {"manager": "kube-apiserver", "subresource": "status"}]}})
    };
    let hook =
        json!({"webhooks": [{"clientConfig": {"service": {"namespace": "old", "name": "neonvm-webhook"}}}]});
    let other = with(facts(), Source::Controllers, vec![controller("vms")]);
    assert_eq!(
        found(&other, "installation", "vms"),
        (Verdict::Fail, "neonvm is already installed in namespace vms".into())
    );

    let hooked = with(Facts { has_hook_service: Some(false), ..facts() }, Source::Hooks, vec![hook]);
    assert!(found(&hooked, "webhooks", "cluster").1.contains("old/neonvm-webhook, which does not exist"));
    let served = Facts { has_hook_service: Some(true), ..hooked };
    assert_eq!(found(&served, "leftovers", "cluster").1, "none");

    let orphaned = with(facts(), Source::Definitions, vec![crd("neonctl")]);
    assert_eq!(verdict(&orphaned, "definitions", "cluster"), Verdict::Warn);
    let installed = with(orphaned, Source::Controllers, vec![controller("neonvm-system")]);
    assert_eq!(verdict(&installed, "leftovers", "cluster"), Verdict::Ok);
    let helm = with(installed, Source::Definitions, vec![crd("helm")]);
    assert_eq!(found(&helm, "managers", "cluster").1, "definitions are also managed by helm");
}

#[test]
fn a_local_cluster_has_neither_container_runtime_nor_network() {
    let local = Facts { version: "v1.36.0+neonvm".into(), ..facts() };
    let names: Vec<&str> = checks(&local).iter().map(|check| check.name).collect();
    assert_eq!(names, ["kubernetes", "rights", "leftovers"]);
}

#[test]
fn clocks_are_compared_to_the_second() {
    let clock = |server: &str, own: &str| {
        let latency = std::time::Duration::from_millis(12);
        let clock = facts::Clock { server: server.parse().ok(), own: own.parse().unwrap(), latency };
        Facts { clock, ..Facts::default() }
    };
    let skew = |facts: &Facts| cluster::skew(facts).remove(0);
    let latency = |facts: &Facts| cluster::latency(facts).remove(0);
    let near = skew(&clock("2024-01-01T00:00:00Z", "2024-01-01T00:00:01.9Z"));
    assert_eq!(near.verdict, Verdict::Ok);
    let behind = skew(&clock("2024-01-01T00:00:00Z", "2024-01-01T00:00:05.2Z"));
    assert_eq!(
        (behind.verdict, behind.detail.as_str()),
        (Verdict::Warn, "the server's clock is 4.7 s behind this host's clock")
    );
    assert!(
        skew(&clock("2024-01-01T00:01:00Z", "2024-01-01T00:00:00Z"))
            .detail
            .contains("ahead of this host's clock")
    );
    assert_eq!(skew(&clock("", "2024-01-01T00:00:00Z")).verdict, Verdict::Ok);
    assert_eq!(latency(&clock("", "2024-01-01T00:00:00Z")).detail, "12 ms");
}

/// What each check needs is read for the groups that use it, once.
#[test]
fn each_source_is_read_for_some_group() {
    let all = needs(&Group::ALL);
    assert_eq!(all.len(), 19, "{all:?}");
    assert!(needs(&[Group::Cluster]).is_empty());
    assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
}

/// A node without devices although the plugin runs there: no VM can be placed on it.
#[test]
fn a_node_without_devices_is_found() {
    let pod = |node: &str, ready: &str| {
        json!({"metadata": {"name": "p", "labels": {"app.kubernetes.io/name": "neonvm-node"}},
            "spec": {"nodeName": node}, "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    };
    let good = info("containerd://2.3.4", "amd64", "6.1.0");
    let nodes = vec![
        node("none", &good, &json!({})),
        node("zero", &good, &json!({"neonvm/node": "0", "neonvm/tun": "1000"})),
        node("tapless", &good, &json!({"neonvm/node": "0", "neonvm/tun": "0"})),
        node("well", &good, &json!({"neonvm/node": "1000"})),
        node("starts", &good, &json!({})),
        node("other", &good, &json!({})),
    ];
    let ready = ["none", "zero", "tapless", "well"].map(|name| pod(name, "True"));
    let pods = ready.into_iter().chain([pod("starts", "False")]).collect();
    let facts = with(with(facts(), Source::Nodes, nodes), Source::Pods, pods);
    let found = nodes::devices(&facts);
    let places: Vec<&str> = found.iter().map(|found| found.place.as_str()).collect();
    assert_eq!(places, ["none", "zero", "tapless"]);
    assert!(found[2].detail.contains("/dev/net/tun") && found[2].remedy.contains("modprobe tun"));
    assert!(found[..2].iter().all(|found| found.detail.contains("neonvm/node")));
    assert!(found.iter().all(|found| found.verdict == Verdict::Fail && !found.remedy.is_empty()));
}

/// A DaemonSet that does not cover a node any more is complete, and yet no VM starts there.
#[test]
fn a_node_that_the_node_service_has_left_is_found() {
    let good = info("containerd://2.3.4", "amd64", "6.1.0");
    let nodes = ["left", "never"].map(|name| match name {
        "left" => node(name, &good, &json!({"neonvm/node": "0"})),
        _ => node(name, &good, &json!({})),
    });
    let seen = with(facts(), Source::Nodes, nodes.to_vec());
    assert!(nodes::devices(&seen).is_empty(), "nothing is installed");
    let workload = json!({"metadata": {"name": "neonvm-node"}});
    let found = nodes::devices(&with(seen, Source::Workloads, vec![workload]));
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].place.as_str(), found[0].verdict), ("left", Verdict::Fail));
    assert!(found[0].remedy.contains("neonvm-node"), "{}", found[0].remedy);
}

#[test]
fn a_lost_authority_and_certificates_that_fail_are_found() {
    let workload = json!({"metadata": {"name": "neonvm-agent"}});
    let installed = with(facts(), Source::Workloads, vec![workload]);
    let lost = with(installed.clone(), Source::Authority, Vec::new());
    assert_eq!(installed::authority(&lost)[0].verdict, Verdict::Fail);
    let kept = with(installed.clone(), Source::Authority, vec![json!({})]);
    assert!(installed::authority(&kept).is_empty());
    let mut unread = installed;
    unread.put(Source::Authority, Part::Unread("you lack permission".into()));
    assert!(installed::authority(&unread).is_empty() && installed::authority(&facts()).is_empty());

    let request = |signer: &str, created: &str, status: Value| {
        json!({"metadata": {"creationTimestamp": created}, "status": status,
            "spec": {"signerName": signer, "username": "system:serviceaccount:vms:neonvm-agent"}})
    };
    let denied = json!({"conditions": [{"type": "Denied", "message": "another node"}]});
    let (soon, late, old) = ("2026-01-01T00:59:50Z", "2026-01-01T00:59:00Z", "2026-01-01T00:00:00Z");
    let ours = "vm.neon.tech/internal";
    let at = |requests: Vec<Value>| {
        let mut facts = with(facts(), Source::Certificates, requests);
        facts.clock.server = "2026-01-01T01:00:00Z".parse().ok();
        installed::certificates(&facts).into_iter().map(|found| found.verdict).collect::<Vec<_>>()
    };
    assert_eq!(at(vec![request(ours, late, denied.clone())]), [Verdict::Warn]);
    assert_eq!(at(vec![request(ours, late, json!({}))]), [Verdict::Fail]);
    let fine = vec![
        request(ours, soon, json!({})),
        request(ours, old, json!({})),
        request(ours, old, denied.clone()),
        request(ours, late, json!({"certificate": "x"})),
        request("kubernetes.io/kubelet-serving", late, denied),
    ];
    assert_eq!(at(fine), []);
}

#[test]
fn definitions_of_another_version_are_found() {
    let established = |mut crd: Value| {
        crd["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
        // The server adds defaults.
        crd["spec"]["conversion"] = json!({"strategy": "None"});
        crd["spec"]["versions"][0]["deprecated"] = json!(false);
        crd
    };
    let own: Vec<Value> = neonvm_api::crds().iter().cloned().map(established).collect();
    let served = |crds: Vec<Value>| installed::served(&with(facts(), Source::Definitions, crds)).remove(0);
    assert_eq!(served(own.clone()).verdict, Verdict::Ok);
    let mut other = own.clone();
    other[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["type"] = json!("array");
    let found = served(other);
    assert_eq!(found.verdict, Verdict::Warn);
    assert!(found.detail.contains(own[0]["metadata"]["name"].as_str().unwrap()), "{}", found.detail);
    assert!(served(own[1..].to_vec()).detail.starts_with("missing "));
}

#[test]
fn versions_that_differ_are_reported_once() {
    let info = |version: &str| json!({"kubeletVersion": version});
    let local = |versions: &[&str]| {
        let nodes = versions.iter().enumerate();
        nodes
            .map(|(index, version)| node(&format!("n{index}"), &info(version), &json!({})))
            .collect::<Vec<_>>()
    };
    assert!(installed::versions_beside(&facts(), "0.1.0").is_empty(), "nothing is installed");
    let all = ["v1.36.0-neonvm.0.1.0", "v1.35.1"];
    let one = with(facts(), Source::Nodes, local(&all));
    assert_eq!(installed::versions_beside(&one, "0.1.0")[0].detail, "all 0.1.0");
    let two = with(facts(), Source::Nodes, local(&[&all[..], &["v1.36.0-neonvm.0.0.9"]].concat()));
    let workload = json!({"metadata": {"name": "vm-controller"},
        "spec": {"template": {"spec": {"containers": [{"image": "reg:5000/neonvm/neond:v0.0.9"}, {"image": "x@sha256:0"},
            {"image": "registry.k8s.io/kube-scheduler:v1.36.2"}]}}}});
    let checks = installed::versions_beside(&with(two, Source::Workloads, vec![workload]), "0.1.0");
    assert_eq!(checks.len(), 1);
    assert_eq!((checks[0].place.as_str(), checks[0].verdict), ("n2,vm-controller", Verdict::Warn));
}
