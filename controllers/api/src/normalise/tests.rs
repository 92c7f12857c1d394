use proptest::prelude::*;
use serde_json::json;

use super::*;

fn normalised(kind: &str, mut object: Value) -> Value {
    let errors = normalise(kind, &mut object);
    assert_eq!(errors, []);
    object
}

#[test]
fn floats_and_spellings_become_canonical() {
    let written = json!({"spec": {
        "guest": {
            "cpus": {"min": 0.25, "max": "1", "use": "0.5"},
            "memorySlotSize": "1024Mi",
            "rootDisk": {"image": "i", "size": 8_589_934_592u64},
            "settings": {"swap": "0.5Gi"},
            "env": [{"name": "N", "value": 4}, {"name": "T", "value": "x"}],
        },
        "disks": [{"emptyDisk": {"size": "1.5Gi"}}, {"tmpfs": {"size": "1000000"}}],
        "overcommit": {"cpu": 2.5, "memory": 1},
        "podResources": {"limits": {"cpu": 0.1}, "requests": {"memory": "1024Ki"}},
        "extraInitContainers": [{"resources": {"limits": {"cpu": 1.5}}}],
        "tls": {"expireAfter": "24h", "renewBefore": "90m"},
    }, "status": {"cpus": 2, "memorySize": "2048Mi"}});
    let stored = json!({"spec": {
        "guest": {
            "cpus": {"min": "250m", "max": 1, "use": "500m"},
            "memorySlotSize": "1Gi",
            "rootDisk": {"image": "i", "size": "8589934592"},
            "settings": {"swap": "512Mi"},
            "env": [{"name": "N", "value": "4"}, {"name": "T", "value": "x"}],
        },
        "disks": [{"emptyDisk": {"size": "1536Mi"}}, {"tmpfs": {"size": "1M"}}],
        "overcommit": {"cpu": "2500m", "memory": "1"},
        "podResources": {"limits": {"cpu": "100m"}, "requests": {"memory": "1Mi"}},
        "extraInitContainers": [{"resources": {"limits": {"cpu": "1500m"}}}],
        "tls": {"expireAfter": "24h0m0s", "renewBefore": "1h30m0s"},
    }, "status": {"cpus": 2, "memorySize": "2Gi"}});
    assert_eq!(normalised("VirtualMachine", written), stored);
}

#[test]
fn other_kinds() {
    let bandwidth = |value: Value| json!({"spec": {"maxBandwidth": value}});
    assert_eq!(normalised("VirtualMachineMigration", bandwidth(json!("1024Mi"))), bandwidth(json!("1Gi")));
    let source = |value: Value, port: Value| json!({"spec": {"metricsSources": [{"targetValue": value, "port": port}]}});
    assert_eq!(
        normalised("PodAutoscaler", source(json!(12.5), json!(8000))),
        source(json!("12.5"), json!("8000"))
    );
    assert_eq!(normalised("Pod", bandwidth(json!(0.5))), bandwidth(json!(0.5)));
}

#[test]
fn what_cannot_be_read_is_reported_and_kept() {
    let written = json!({"spec": {"guest": {"cpus": {"min": -1, "max": "many", "use": true}, "memorySlotSize": ""},
        "disks": [{}, {"tmpfs": {"size": "1i"}}], "tls": {"expireAfter": "1d"}}});
    let mut object = written.clone();
    let errors: Vec<String> =
        normalise("VirtualMachine", &mut object).iter().map(ToString::to_string).collect();
    assert_eq!(object, written);
    assert_eq!(
        errors,
        [
            "spec.guest.cpus.min: -1 is out of range; it must be between 0 and 4294967295m",
            "spec.guest.cpus.max: \"many\" is not a quantity; write a number with an optional suffix, such as 250m, 0.5 or 2Gi",
            "spec.guest.cpus.use: a quantity is expected; write a number or a text such as \"250m\" or \"2Gi\"",
            "spec.guest.memorySlotSize: a quantity is expected, such as 250m, 1 or 2Gi, but the text is empty",
            "spec.disks[1].tmpfs.size: \"1i\" is not a quantity; write a number with an optional suffix, such as 250m, 0.5 or 2Gi",
            "spec.tls.expireAfter: \"1d\" is not a duration; write numbers with units, such as 24h, 5m30s or 250ms",
        ]
    );
}

fn any_scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e6..1e6f64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[0-9]{1,12}(\\.[0-9]{1,12})?(Ki|Mi|Gi|m|u|n|k|e3|E)?".prop_map(Value::from),
        "([0-9]{1,3}(h|m|s|ms))+".prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
    ]
}

fn any_machine() -> impl Strategy<Value = Value> {
    prop::collection::vec(any_scalar(), 19).prop_map(|values| {
        let at = |index: usize| values[index].clone();
        json!({"spec": {
            "guest": {"cpus": {"min": at(0), "max": at(1), "use": at(2)}, "memorySlotSize": at(3),
                "rootDisk": {"size": at(4)}, "settings": {"swap": at(5)}, "env": [{"value": at(6)}, at(7)]},
            "disks": [{"emptyDisk": {"size": at(8)}}, {"tmpfs": {"size": at(9)}}, at(10)],
            "overcommit": {"cpu": at(11), "memory": at(12)},
            "podResources": {"limits": {"cpu": at(13)}, "requests": at(14)},
            "tls": {"expireAfter": at(15), "renewBefore": at(16)}},
            "status": {"cpus": at(17), "memorySize": at(18)}})
    })
}

proptest! {
    #[test]
    fn twice_is_the_same_as_once(mut object in any_machine()) {
        let errors = normalise("VirtualMachine", &mut object);
        let once = object.clone();
        let again = normalise("VirtualMachine", &mut object);
        prop_assert_eq!(errors, again);
        prop_assert_eq!(object, once);
    }

    #[test]
    fn a_float_keeps_its_value(milli in 1u32..10_000_000) {
        let object = json!({"spec": {"guest": {"cpus": {"min": f64::from(milli) / 1000.0}}}});
        let object = normalised("VirtualMachine", object);
        let min = object.pointer("/spec/guest/cpus/min").unwrap();
        prop_assert_eq!(serde_json::from_value::<MilliCpu>(min.clone()).unwrap().milli(), milli);
    }
}
