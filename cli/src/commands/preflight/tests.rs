use serde_json::json;

use super::*;
use crate::commands::doctor::check::Verdict;

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
    Facts {
        version: "v1.36.2".into(),
        namespace: "neonvm-system".into(),
        nodes: Part::Read(vec![
            node("n1", &good, &json!({})),
            node("n2", &good, &json!({"neonvm/kvm": "1000"})),
        ]),
        has_image_volumes: Some(true),
        ..Facts::default()
    }
}

/// Detail and verdict of a check.
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
    assert_eq!(found(&facts, "kvm", "n1").1, "unknown until the installation");
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
    let without = Facts { has_image_volumes: Some(false), ..facts() };
    assert_eq!(verdict(&without, "image-volumes", "cluster"), Verdict::Warn);
    let copied = Facts { copies_root_disks: true, ..without };
    assert_eq!(verdict(&copied, "image-volumes", "cluster"), Verdict::Ok);
    let unknown = Facts { has_image_volumes: None, ..facts() };
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
            &json!({"neonvm/kvm": "0", "neonvm/tun": "0"}),
        ),
        json!({"metadata": {"name": "new"}}),
    ];
    let facts = Facts { nodes: Part::Read(nodes), ..facts() };
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
    let copied = Facts { copies_root_disks: true, ..facts.clone() };
    assert_eq!(verdict(&copied, "runtime", "old"), Verdict::Ok);
    let none = Facts { nodes: Part::default(), ..facts.clone() };
    assert_eq!(found(&none, "nodes", "cluster").1, "no node is Ready");
    let unread = Facts { nodes: Part::Unread("you lack permission to list nodes".into()), ..facts };
    assert_eq!(found(&unread, "nodes", "cluster").1, "you lack permission to list nodes");
}

#[test]
fn rights_that_are_missing_are_named() {
    let missing: Vec<Right> =
        ["a", "b", "c", "d", "e", "f", "g"].map(|plural| Right::from_verb("patch", "", plural, "")).into();
    let facts = Facts { missing, ..facts() };
    let detail = "you lack permission to patch a, patch b, patch c, patch d, patch e and 2 more";
    assert_eq!(found(&facts, "rights", "client"), (Verdict::Fail, detail.into()));
}

#[test]
fn the_network_and_its_mtu() {
    let map = |name: &str, data: Value| json!({"metadata": {"name": name}, "data": data});
    let of = |map: Value| found(&Facts { networks: vec![map], ..facts() }, "mtu", "cluster");
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
    let facts = Facts { wants_multus: true, ..facts() };
    assert_eq!(verdict(&facts, "multus", "cluster"), Verdict::Fail);
    assert!(checks(&Facts { has_multus: true, ..facts }).iter().all(|check| check.name != "multus"));
}

#[test]
fn a_plain_way_to_the_scheduler_is_warned_of() {
    let named = |facts: &Facts| checks(facts).into_iter().find(|check| check.name == "upstream-agents");
    assert!(named(&facts()).is_none());
    let check = named(&Facts { wants_upstream_agents: true, ..facts() }).unwrap();
    assert_eq!(check.verdict, Verdict::Warn);
    assert!(check.detail.contains("may request sizes"), "{}", check.detail);
}

#[test]
fn a_namespace_with_another_level_of_pod_security() {
    let at = |level: &str| {
        let space = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}});
        verdict(&Facts { space: Some(space), ..facts() }, "pod-security", "neonvm-system")
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
    let other = Facts { controllers: Part::Read(vec![controller("vms")]), ..facts() };
    assert_eq!(
        found(&other, "installation", "vms"),
        (Verdict::Fail, "neonvm is already installed in namespace vms".into())
    );

    let hooked = Facts { hooks: Part::Read(vec![hook]), has_hook_service: Some(false), ..facts() };
    assert!(found(&hooked, "webhooks", "cluster").1.contains("old/neonvm-webhook, which does not exist"));
    let served = Facts { has_hook_service: Some(true), ..hooked };
    assert_eq!(found(&served, "leftovers", "cluster").1, "none");

    let orphaned = Facts { definitions: Part::Read(vec![crd("neonctl")]), ..facts() };
    assert_eq!(verdict(&orphaned, "definitions", "cluster"), Verdict::Warn);
    let installed = Facts { controllers: Part::Read(vec![controller("neonvm-system")]), ..orphaned };
    assert_eq!(verdict(&installed, "leftovers", "cluster"), Verdict::Ok);
    let helm = Facts { definitions: Part::Read(vec![crd("helm")]), ..installed };
    assert_eq!(found(&helm, "managers", "cluster").1, "definitions are also managed by helm");
}

#[test]
fn a_local_cluster_has_neither_container_runtime_nor_network() {
    let local = Facts { version: "v1.36.0+neonvm".into(), ..facts() };
    let names: Vec<&str> = checks(&local).iter().map(|check| check.name).collect();
    assert_eq!(names, ["kubernetes", "rights", "leftovers"]);
}
