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

fn vm(uid: &str) -> VirtualMachine {
    let guest = json!({"cpus": {"min": 1, "max": 1, "use": 1}, "memorySlots": {"min": 1, "max": 1, "use": 1},
        "rootDisk": {"image": "img:1"}});
    let meta = json!({"name": "db", "namespace": "ns", "uid": uid, "resourceVersion": "2"});
    serde_json::from_value(
        json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": meta,
        "spec": {"guest": guest}}),
    )
    .unwrap()
}

/// The end of a pod may be seen before the answer to the request that began it.
#[test]
fn a_late_answer_does_not_bring_a_pod_back() {
    let cache = Cache::default();
    let key = cache.put_pod(&pod(1, false)).unwrap();
    cache.put_pod(&pod(2, true));
    assert!(cache.pods(&key)[0].view.deleting.is_some());
    cache.pod_deleted(&key, &pod(3, true));
    assert_eq!(cache.put_pod(&pod(2, true)), None);
    assert!(cache.pods(&key).is_empty());
}

#[test]
fn a_late_answer_does_not_bring_a_machine_back() {
    let cache = Cache::default();
    let key = key_of(&vm("one").metadata);
    assert!(cache.put_vm(vm("one")));
    cache.drop_vm(&key, Some("one"));
    assert!(cache.put_vm(vm("one")), "it was only not found");
    cache.vm_deleted(&key, Some("one"));
    assert!(!cache.put_vm(vm("one")));
    assert!(cache.vm(&key).is_none());
    assert!(cache.put_vm(vm("two")), "another of the same name");
}

/// A response may come at any moment of the removal, from another thread.
#[test]
fn a_response_during_a_deletion_does_not_bring_a_vm_or_pod_back() {
    let cache = Cache::default();
    let key = key_of(&vm("0").metadata);
    let newest = std::sync::atomic::AtomicUsize::new(0);
    let done = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::SeqCst;
    let named = |number: usize| {
        let mut pod = pod(1, false);
        pod.metadata.uid = Some(format!("p{number}"));
        pod
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(order) {
                let number = newest.load(order);
                cache.put_vm(vm(&number.to_string()));
                cache.put_pod(&named(number));
            }
        });
        for number in 0..3000 {
            newest.store(number, order);
            let uid = number.to_string();
            cache.put_vm(vm(&uid));
            cache.put_pod(&named(number));
            cache.vm_deleted(&key, Some(&uid));
            cache.pod_deleted(&key, &named(number));
            let vm = cache.vm(&key).filter(|vm| vm.metadata.uid.as_deref() == Some(&uid));
            let pods = cache.pods(&key);
            if vm.is_some() || pods.iter().any(|pod| pod.view.uid == format!("p{number}")) {
                done.store(true, order);
                panic!("deleted object {number} is back");
            }
        }
        done.store(true, order);
    });
}

#[test]
fn tombstones_are_bounded_and_the_oldest_goes_first() {
    let mut tombstones = Tombstones::default();
    for number in 0..=TOMBSTONES {
        tombstones.add(&number.to_string());
        tombstones.add(&number.to_string());
    }
    assert!(!tombstones.has("0") && tombstones.has("1") && tombstones.has(&TOMBSTONES.to_string()));
    assert_eq!((tombstones.uids.len(), tombstones.order.len()), (TOMBSTONES, TOMBSTONES));
}
