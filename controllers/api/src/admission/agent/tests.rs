use proptest::prelude::*;
use serde_json::json;

use super::*;

const NAMESPACE: &str = "neonvm-system";

fn account(name: &str, nodes: &[&str]) -> Requester {
    let username = format!("system:serviceaccount:{NAMESPACE}:{name}");
    Requester { username, nodes: nodes.iter().map(|&node| node.to_owned()).collect() }
}

fn agent() -> Requester {
    account(AGENT_ACCOUNT, &["n1"])
}

fn vm() -> Value {
    json!({"apiVersion": "vm.neon.tech/v1", "kind": KIND, "metadata": {"name": "a", "uid": "u",
        "resourceVersion": "1", "generation": 1, "labels": {"a": "b"}}, "spec": {"guest": {
        "cpus": {"min": 0.25, "max": 1, "use": 0.25}, "memorySlots": {"min": 1, "max": 4, "use": 1},
        "rootDisk": {"image": "i"}}}, "status": {"node": "n1", "phase": "Running"}})
}

fn why(requester: &Requester, change: impl FnOnce(&mut Value)) -> Option<String> {
    let old = vm();
    let mut new = old.clone();
    change(&mut new);
    refused(NAMESPACE, requester, KIND, &new, Some(&old))
}

#[test]
fn an_agent_changes_the_size_of_vms_of_its_node() {
    let scaled = why(&agent(), |vm| {
        vm["spec"]["guest"]["cpus"]["use"] = json!("500m");
        vm["spec"]["guest"]["memorySlots"]["use"] = json!(3);
        vm["spec"]["targetRevision"] = json!({"value": 1, "flags": 0, "updatedAt": "2026-01-01T00:00:00Z"});
        vm["metadata"]["generation"] = json!(2);
        vm["metadata"]["managedFields"] = json!([{"manager": "neonvm-agent"}]);
    });
    assert_eq!(scaled, None);
    // What admission has written in another way, or filled in, is no change.
    let spelt = why(&agent(), |vm| {
        crate::admit(KIND, vm, None);
    });
    assert_eq!(spelt, None);
}

#[test]
fn an_agent_of_another_node_is_refused() {
    let other = account(AGENT_ACCOUNT, &["n2"]);
    let expected = "the VM is on node n1; the agent of n2 may change VMs of its own node only";
    assert_eq!(why(&other, |_| {}).as_deref(), Some(expected));
    let mut nowhere = vm();
    nowhere["status"] = json!({});
    let why = refused(NAMESPACE, &agent(), KIND, &nowhere, Some(&nowhere)).unwrap();
    assert_eq!(why, "the VM is on no node; the agent of n1 may change VMs of its own node only");
    // The node of the stored object counts.
    let mut moved = vm();
    moved["status"]["node"] = json!("n2");
    assert!(refused(NAMESPACE, &other, KIND, &moved, Some(&vm())).is_some());
}

#[test]
fn an_agent_without_a_node_is_refused() {
    for nodes in [&[][..], &["n1", "n2"]] {
        let why = why(&account(AGENT_ACCOUNT, nodes), |_| {}).unwrap();
        assert!(why.contains("does not name one node (authentication.kubernetes.io/node-name)"), "{why}");
    }
    assert_eq!(refused(NAMESPACE, &agent(), KIND, &vm(), None).unwrap(), "agents may not create VMs");
}

#[test]
fn an_agent_changes_nothing_else() {
    type Change = fn(&mut Value);
    let cases: [(Change, &str); 7] = [
        (|vm| vm["spec"]["runnerImage"] = json!("evil"), "spec.runnerImage"),
        (|vm| vm["spec"]["guest"]["cpus"]["max"] = json!(8), "spec.guest.cpus.max"),
        (|vm| vm["spec"]["guest"]["rootDisk"]["image"] = json!("x"), "spec.guest.rootDisk.image"),
        (|vm| vm["metadata"]["annotations"] = json!({"k": "v"}), "metadata.annotations.k"),
        (|vm| vm["metadata"]["finalizers"] = json!([]), "metadata.finalizers"),
        (|vm| drop(vm["metadata"].as_object_mut().unwrap().remove("labels")), "metadata.labels.a"),
        (|vm| vm["status"]["phase"] = json!("Failed"), "status.phase"),
    ];
    for (change, path) in cases {
        let expected = format!("agents may change the size of a VM only, not {path}");
        assert_eq!(why(&agent(), change), Some(expected));
    }
    let many = why(&agent(), |vm| {
        vm["metadata"]["labels"] = json!({"a": "1", "b": "1", "c": "1", "d": "1", "e": "1"});
    });
    assert!(many.unwrap().ends_with("metadata.labels.d and 1 more"));
}

#[test]
fn other_users_and_kinds_are_not_concerned() {
    let change = |vm: &mut Value| vm["spec"]["runnerImage"] = json!("x");
    let elsewhere =
        Requester { username: "system:serviceaccount:other:neonvm-agent".to_owned(), nodes: Vec::new() };
    for user in [account("neonvm-vm-controller", &[]), elsewhere, Requester::default()] {
        assert_eq!(why(&user, change), None, "{user:?}");
    }
    assert_eq!(refused(NAMESPACE, &account(AGENT_ACCOUNT, &[]), "IPPool", &vm(), None), None);
}

#[test]
fn a_review_names_its_user() {
    let user = json!({"username": "system:serviceaccount:neonvm-system:neonvm-agent", "groups": ["g"],
        "extra": {NODE_CLAIM: ["n1"], "authentication.kubernetes.io/pod-name": ["p"]}});
    assert_eq!(Requester::of_review(&user), agent());
    let extra = [(NODE_CLAIM, &["n1".to_owned()][..]), ("other", &["n2".to_owned()][..])];
    assert_eq!(Requester::new(&agent().username, extra), agent());
    for bad in [Value::Null, json!([]), json!({"username": 1, "extra": {NODE_CLAIM: "n1"}})] {
        assert_eq!(Requester::of_review(&bad), Requester::default());
    }
}

proptest! {
    /// Whatever an agent writes: what passes differs from the stored object in the fields that agents own.
    #[test]
    fn what_passes_is_a_size(cpus in 0_u32..4, slots in 0_u16..9, key in "[a-z]{1,6}", value in 0_u8..3) {
        let old = vm();
        let mut new = old.clone();
        new["spec"]["guest"]["cpus"]["use"] = json!(cpus);
        new["spec"]["guest"]["memorySlots"]["use"] = json!(slots);
        prop_assert_eq!(refused(NAMESPACE, &agent(), KIND, &new, Some(&old)), None);
        new["spec"]["guest"][&key] = json!(value);
        prop_assert!(refused(NAMESPACE, &agent(), KIND, &new, Some(&old)).is_some(), "{}", key);
    }
}
