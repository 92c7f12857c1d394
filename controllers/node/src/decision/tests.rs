use proptest::prelude::*;
use serde_json::json;

use super::*;

const UID: &str = "5f0c2f3a-7d3e-4f0e-9b1c-5f3d2a1b0c9d";

fn vm(status: &serde_json::Value) -> VirtualMachine {
    serde_json::from_value(json!({
        "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
        "metadata": {"name": "db", "namespace": "shop", "uid": UID},
        "spec": {
            "guest": {
                "cpus": {"min": 1, "max": 2, "use": 1}, "memorySlots": {"min": 1, "max": 2, "use": 1},
                "rootDisk": {"image": "i"},
                "ports": [{"name": "pg", "port": 5432}, {"name": "sql", "port": 5432},
                          {"name": "dns", "port": 53, "protocol": "UDP"}],
            },
            "extraNetwork": {"enable": true, "interface": "net1"},
            "enableNetworkMonitoring": true,
        },
        "status": status,
    }))
    .unwrap()
}

fn pod(name: &str) -> Pod {
    Pod { namespace: "shop".into(), name: name.into(), vm: Some(("db".into(), UID.into())), deleting: false }
}

fn status() -> serde_json::Value {
    json!({"podName": "db-1", "extraNetIP": "10.40.0.7", "extraNetMask": "255.255.0.0",
           "migration": {"name": "m", "uid": "u", "targetPodName": "db-2"}})
}

#[test]
fn both_pods_of_a_migration_get_the_same() {
    let vm = vm(&status());
    let order = |name: &str| order(&pod(name), &vm, &Policy::default()).unwrap();
    assert_eq!(order("db-1"), order("db-2"));
    let order = order("db-1");
    assert_eq!(
        order.forwards.into_iter().collect::<Vec<_>>(),
        [Forward { udp: false, port: 5432 }, Forward { udp: true, port: 53 }]
    );
    let overlay = order.overlay.unwrap();
    assert_eq!((overlay.interface.as_str(), overlay.ip), ("net1", Ipv4Addr::new(10, 40, 0, 7)));
    assert!(order.counted && !order.open);
}

#[test]
fn the_policy_of_the_namespace_opens_the_node() {
    let labels = [(Power::NodeAccess.label(), "true".to_owned())].into();
    let policy = Policy::default().in_namespace(&labels);
    assert!(order(&pod("db-1"), &vm(&status()), &policy).unwrap().open);
}

#[test]
fn a_pod_that_is_not_the_vms_gets_nothing() {
    let all = vm(&status());
    let named = |name: &str, uid: &str| Pod { vm: Some((name.into(), uid.into())), ..pod("db-1") };
    let cases = [
        (Pod { deleting: true, ..pod("db-1") }, "pod db-1 is being deleted"),
        (Pod { vm: None, ..pod("db-1") }, "pod db-1 belongs to no VM"),
        (named("db", "another"), "pod db-1 belongs to an earlier VM db, which is gone"),
        (named("other", UID), "pod db-1 belongs to an earlier VM other, which is gone"),
        (
            Pod { namespace: "other".into(), ..pod("db-1") },
            "pod db-1 belongs to an earlier VM db, which is gone",
        ),
        (
            pod("db-3"),
            "pod db-3 is not the pod of its VM, which is \"db-1\", nor the target of its migration",
        ),
    ];
    for (pod, reason) in cases {
        assert_eq!(order(&pod, &all, &Policy::default()), Err(refused(reason.into())), "{pod:?}");
    }
    let unknown = order(&pod(""), &vm(&json!({"podName": ""})), &Policy::default());
    assert!(unknown.is_err(), "a VM without a pod has no pod without a name");
}

proptest! {
    /// Whatever the objects hold, only a pod that the VM's status names gets anything, and it gets the VM's own address.
    #[test]
    fn nothing_is_given_to_others(
        name in "db-[0-3]?", current in "(db-[0-3])?", target in proptest::option::of("db-[0-3]"),
        owner in "(a|b)", uid in "(a|b)", deleting: bool, ip in "(10\\.40\\.0\\.[0-9]|x|)",
    ) {
        let migration = target.as_ref().map(|target| json!({"name": "m", "uid": "u", "targetPodName": target}));
        let mut vm = vm(&json!({"podName": current, "extraNetIP": ip, "migration": migration}));
        vm.metadata.uid = Some(uid.clone());
        let pod = Pod { vm: Some(("db".into(), owner.clone())), deleting, ..pod(&name) };
        let named = !name.is_empty() && (current == name || target.as_deref() == Some(&name));
        match order(&pod, &vm, &Policy::default()) {
            Ok(order) => {
                prop_assert!(named && !deleting && owner == uid);
                prop_assert_eq!(order.overlay.map(|overlay| overlay.ip.to_string()).unwrap_or_default(), ip);
            }
            Err(refusal) => {
                prop_assert!(!refusal.reason.is_empty());
                prop_assert!(!named || deleting || owner != uid || ip == "x");
            }
        }
    }
}
