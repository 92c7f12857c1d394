//! What answers and watches bring, in whichever order.

use serde_json::json;

use super::*;

fn pod(version: u32, deleting: bool) -> Pod {
    let owner = json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "name": "db", "uid": "u"});
    let mut pod = json!({"metadata": {"name": "db-1", "namespace": "ns", "uid": "p",
        "resourceVersion": version.to_string(), "ownerReferences": [owner]}});
    if deleting {
        pod["metadata"]["deletionTimestamp"] = json!("2024-07-01T11:00:00Z");
    }
    serde_json::from_value(pod).unwrap()
}

/// The end of a pod may be seen before the answer to the request that began it.
#[test]
fn a_late_answer_does_not_bring_a_pod_back() {
    let cache = Cache::default();
    let key = cache.put_pod(&pod(1, false)).unwrap();
    cache.put_pod(&pod(2, true));
    assert!(cache.pods(&key)[0].view.deleting.is_some());
    cache.bury_pod(&key, &pod(3, true));
    assert_eq!(cache.put_pod(&pod(2, true)), None);
    assert!(cache.pods(&key).is_empty());
}

#[test]
fn a_late_answer_does_not_bring_a_machine_back() {
    let vm = |uid: &str| -> VirtualMachine {
        let guest = json!({"cpus": {"min": 1, "max": 1, "use": 1}, "memorySlots": {"min": 1, "max": 1, "use": 1},
            "rootDisk": {"image": "img:1"}});
        let meta = json!({"name": "db", "namespace": "ns", "uid": uid, "resourceVersion": "2"});
        serde_json::from_value(
            json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": meta,
            "spec": {"guest": guest}}),
        )
        .unwrap()
    };
    let cache = Cache::default();
    let key = key_of(&vm("one").metadata);
    assert!(cache.put_vm(vm("one")));
    cache.drop_vm(&key, Some("one"));
    assert!(cache.put_vm(vm("one")), "it was only not found");
    cache.bury_vm(&key, Some("one"));
    assert!(!cache.put_vm(vm("one")));
    assert!(cache.vm(&key).is_none());
    assert!(cache.put_vm(vm("two")), "another of the same name");
}
