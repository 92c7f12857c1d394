//! The CEL rules, evaluated. The functions of Kubernetes' quantity library are stood in for by thousandths.

use cel::{Context, Program, extractors::This};
use neonvm_types::Quantity;
use serde_json::{Value, json};

use crate::schema::rules;

fn milli(text: &str) -> i64 {
    i64::try_from(text.parse::<Quantity>().unwrap().milli_rounded_up()).unwrap()
}

/// The messages of the rules that `new` breaks; rules about changes are skipped without an `old`.
pub(super) fn broken(rules: &Value, new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut context = Context::default();
    context.add_variable("self", new).unwrap();
    if let Some(old) = old {
        context.add_variable("oldSelf", old).unwrap();
    }
    context.add_function("quantity", |text: std::sync::Arc<String>| milli(&text)).unwrap();
    context.add_function("compareTo", |This(a): This<i64>, b: i64| (a > b) as i64 - (a < b) as i64).unwrap();
    context.add_function("isInteger", |This(a): This<i64>| a % 1000 == 0).unwrap();
    context.add_function("asInteger", |This(a): This<i64>| a / 1000).unwrap();
    let mut messages = Vec::new();
    for rule in rules.as_array().unwrap() {
        let text = rule["rule"].as_str().unwrap();
        if text.contains("oldSelf") && old.is_none() {
            continue;
        }
        let result = Program::compile(text).unwrap().execute(&context);
        match result {
            Ok(cel::Value::Bool(true)) => {}
            Ok(cel::Value::Bool(false)) => messages.push(rule["message"].as_str().unwrap().to_owned()),
            other => panic!("{text}: {other:?}"),
        }
    }
    messages
}

fn counts(rules: &Value, new: &Value, old: Option<&Value>, expected: usize) {
    let messages = broken(rules, new, old);
    assert_eq!(messages.len(), expected, "{new}: {messages:?}");
}

#[test]
fn cpus() {
    let rules = rules::cpus();
    let cpus = |min: Value, max: Value, used: Value| json!({"min": min, "max": max, "use": used});
    let good = cpus(json!("250m"), json!(1), json!("500m"));
    counts(&rules, &good, None, 0);
    counts(&rules, &good, Some(&cpus(json!("0.25"), json!("1"), json!(1))), 0);
    counts(&rules, &cpus(json!("250m"), json!(1), json!("100m")), None, 1);
    counts(&rules, &cpus(json!("250m"), json!(1), json!(2)), None, 1);
    counts(&rules, &cpus(json!(0), json!(1), json!(1)), None, 1);
    counts(&rules, &cpus(json!("250m"), json!("99999999999m"), json!(1)), None, 1);
}

#[test]
fn limits_of_disks() {
    let rules = rules::disk_limit();
    for (limit, faults) in [
        (json!({"iops": 500, "bandwidth": "50Mi", "burst": {"iops": 600, "bandwidth": "60Mi"}}), 0),
        (json!({"bandwidth": "64Ki"}), 0),
        (json!({}), 1),
        (json!({"bandwidth": "101Gi"}), 1),
        (json!({"iops": 50, "burst": {}}), 1),
        (json!({"iops": 50, "burst": {"iops": 50}}), 1),
        (json!({"iops": 50, "burst": {"bandwidth": "1Mi"}}), 1),
        (json!({"bandwidth": "1Mi", "burst": {"bandwidth": "1"}}), 2),
    ] {
        counts(&rules, &limit, None, faults);
    }
    let last = json!([rules::virtual_machine_spec().as_array().unwrap().last().unwrap()]);
    let spec = |disk: &str| {
        json!({"diskLimits": [{"disk": disk, "iops": 50}],
            "disks": [{"name": "data"}, {"name": "tmp", "tmpfs": {}}]})
    };
    for (disk, faults) in [("data", 0), ("rootdisk", 0), ("tmp", 1), ("other", 1)] {
        counts(&last, &spec(disk), None, faults);
    }
}

#[test]
fn memory() {
    let rules = rules::memory_slots();
    let slots = |min: u64, max: u64, used: u64| json!({"min": min, "max": max, "use": used});
    counts(&rules, &slots(1, 4, 2), Some(&slots(1, 4, 1)), 0);
    counts(&rules, &slots(2, 4, 1), None, 1);
    counts(&rules, &slots(1, 4, 5), None, 1);
    let rules = rules::memory_slot_size();
    for (size, faults) in
        [(json!("1Gi"), 0), (json!("8Mi"), 0), (json!(8_388_608), 0), (json!("12Mi"), 1), (json!("0"), 1)]
    {
        counts(&rules, &size, None, faults);
    }
}

#[test]
fn guest() {
    let rules = rules::guest();
    let ports = |first: &str, second: &str| json!({"rootDisk": {}, "ports": [{"port": 1, "name": first}, {"port": 2, "name": second}, {"port": 3}]});
    counts(&rules, &ports("a", "b"), None, 0);
    counts(&rules, &ports("", ""), None, 0);
    counts(&rules, &ports("a", "a"), None, 1);
    counts(&rules::port_name(), &json!("qmp"), None, 1);
    counts(&rules::port_name(), &json!("http"), None, 0);
}

/// What a pod is made of changes only while there is none; the status before has the name of the pod.
#[test]
fn what_changes_only_without_a_pod() {
    let rules = rules::virtual_machine();
    let spec = json!({"podResources": {}, "enableAcceleration": true, "enableSSH": true, "enableNetworkMonitoring": false,
        "guest": {"cpus": {"min": "250m", "max": 1, "use": "500m"}, "memorySlots": {"min": 1, "max": 4, "use": 1},
        "memorySlotSize": "1Gi", "rootDisk": {"image": "a"}, "command": ["x"]}});
    let vm = |pod: Value| json!({"spec": spec, "status": {"podName": pod}});
    let (old, off) = (vm(json!("a-1")), vm(json!("")));
    let made = json!({"spec": spec});
    for (pointer, value, faults) in [
        ("/spec/guest/cpus", json!({"min": "250m", "max": "1", "use": 1}), 0),
        ("/spec/guest/cpus", json!({"min": "100m", "max": 1, "use": 1}), 0),
        ("/spec/guest/cpus", json!({"min": "250m", "max": 2, "use": 1}), 1),
        ("/spec/guest/memorySlots", json!({"min": 2, "max": 5, "use": 3}), 2),
        ("/spec/guest/memorySlotSize", json!("1024Mi"), 0),
        ("/spec/guest/memorySlotSize", json!("2Gi"), 1),
        ("/spec/guest/rootDisk", json!({"image": "b"}), 1),
        ("/spec/guest/command", json!([]), 1),
        ("/spec/guest/args", json!([]), 0),
        ("/spec/guest/args", json!(["y"]), 1),
        ("/spec/guest/settings", json!({}), 1),
        ("/spec/enableSSH", json!(false), 1),
        ("/spec/disks", json!([]), 0),
        ("/spec/disks", json!([{}]), 1),
        ("/spec/initScript", json!("x"), 1),
        ("/spec/cpuModel", json!(""), 0),
        ("/spec/cpuModel", json!("EPYC-v1"), 1),
        ("/spec/priorityClassName", json!("high"), 0),
    ] {
        let mut new = old.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        new.pointer_mut(parent).unwrap()[key] = value;
        counts(&rules, &new, Some(&old), faults);
        counts(&rules, &new, Some(&off), 0);
        counts(&rules, &new, Some(&made), 0);
    }
}

#[test]
fn names_of_services() {
    let rules = rules::tls_server_name();
    for name in ["scheduler.neonvm", "neonvm", "*.NEONVM", "u.vm.neon.tech."] {
        counts(&rules, &json!(name), None, 1);
    }
    for name in ["", "db.example", "myneonvm", "avm.neon.tech"] {
        counts(&rules, &json!(name), None, 0);
    }
}

#[test]
fn paths_of_the_guest() {
    let rules = crate::guest_path::rules();
    for path in ["/..", "/../config", "/a/../../b", "/./a", "/a/.", "/", "//"] {
        counts(&rules, &json!(path), None, 1);
    }
    for path in ["/a", "/a/", "//a/b", "/..a/b..", "/a.b/.c"] {
        counts(&rules, &json!(path), None, 0);
    }
}

#[test]
fn spec() {
    let rules = rules::virtual_machine_spec();
    let base = json!({"qmp": 1, "qmpManual": 2, "runnerPort": 3, "podResources": {}, "enableAcceleration": true,
        "enableSSH": true, "enableNetworkMonitoring": false, "guest": {"ports": [{"port": 3, "protocol": "UDP"}]}});
    let with = |key: &str, value: Value| {
        let mut spec = base.clone();
        spec[key] = value;
        spec
    };
    counts(&rules, &base, Some(&base), 0);
    counts(&rules, &with("qmp", json!(3)), None, 1);
    counts(&rules, &with("guest", json!({"ports": [{"port": 3, "protocol": "TCP"}]})), None, 1);
    let claimed = |templates: Value| {
        let mut spec = with("disks", json!([{"name": "data"}]));
        spec["volumeClaimTemplates"] = templates;
        spec
    };
    let template = json!({"metadata": {"name": "data"}});
    counts(&rules, &with("disks", json!([{"name": "data"}])), None, 1);
    counts(&rules, &claimed(json!([{"metadata": {"name": "other"}}])), None, 1);
    counts(&rules, &claimed(json!([template])), None, 0);
    counts(&rules, &claimed(json!([template, template])), None, 1);
    let mode = with("cpuScalingMode", json!("QmpScaling"));
    counts(&rules, &mode, Some(&base), 0);
    counts(&rules, &base, Some(&mode), 1);
    counts(&rules, &with("cpuScalingMode", json!("SysfsScaling")), Some(&mode), 1);
}

#[test]
fn disks() {
    let rules = rules::disk();
    counts(&rules, &json!({"name": "a", "tmpfs": {}}), None, 0);
    counts(&rules, &json!({"name": "a"}), None, 0);
    counts(&rules, &json!({"name": "a", "tmpfs": {}, "secret": {}}), None, 1);
    counts(&rules, &json!({"name": "a", "tmpfs": {}, "persistentVolumeClaim": {}}), None, 1);
    counts(&rules, &json!({"name": "a".repeat(17), "persistentVolumeClaim": {}}), None, 1);
    counts(&rules, &json!({"name": "a".repeat(17), "emptyDisk": {}}), None, 1);
    counts(&rules, &json!({"name": "a".repeat(17), "secret": {}}), None, 0);
    counts(&rules::disk_name(), &json!("tls"), None, 1);
    counts(&rules::disk_name(), &json!("data"), None, 0);
}

#[test]
fn migrations_do_not_change() {
    let rules = rules::migration();
    let base = json!({"vmName": "a", "preventMigrationToSameHost": true, "completionTimeout": 1,
        "incremental": true, "allowPostCopy": false, "autoConverge": true, "maxBandwidth": "1Gi"});
    let with = |key: &str, value: Value| {
        let mut spec = base.clone();
        spec[key] = value;
        spec
    };
    counts(&rules, &base, Some(&base), 0);
    // Each field counts, whether it changes, comes or goes.
    for (key, one, other) in [
        ("vmName", json!("b"), json!("c")),
        ("nodeSelector", json!({"a": "b"}), json!({"a": "c"})),
        ("nodeAffinity", json!({"x": 1}), json!({"x": 2})),
        ("preventMigrationToSameHost", json!(false), json!(true)),
        ("completionTimeout", json!(2), json!(3)),
        ("incremental", json!(false), json!(true)),
        ("allowPostCopy", json!(true), json!(false)),
        ("autoConverge", json!(false), json!(true)),
        ("maxBandwidth", json!("2Gi"), json!("3Gi")),
        ("priority", json!(1), json!(2)),
        ("policy", json!("p"), json!("q")),
        ("downtimeLimitMs", json!(1), json!(2)),
        ("channels", json!(1), json!(2)),
        ("compression", json!("none"), json!("zstd")),
        ("postCopy", json!("never"), json!("on-timeout")),
        ("onTimeout", json!("abort"), json!("continue")),
    ] {
        counts(&rules, &with(key, one.clone()), Some(&with(key, other)), 1);
        counts(&rules, &with(key, one.clone()), Some(&base), 1);
        counts(&rules, &base, Some(&with(key, one)), 1);
    }
    // Empty and missing fields are the same; a migration can be cancelled, and not be resumed after that.
    counts(&rules, &with("priority", json!(0)), Some(&base), 0);
    counts(&rules, &base, Some(&with("nodeSelector", json!({}))), 0);
    counts(&rules, &with("cancel", json!(true)), Some(&base), 0);
    counts(&rules, &base, Some(&with("cancel", json!(false))), 0);
    counts(&rules, &base, Some(&with("cancel", json!(true))), 1);
}

#[test]
fn pod_autoscalers() {
    let rules = rules::pod_autoscaler();
    let base = json!({"maxReplicas": 3, "metricsSources": [{}], "scalingStrategy": "HPA"});
    let with = |key: &str, value: Value| {
        let mut spec = base.clone();
        spec[key] = value;
        spec
    };
    counts(&rules, &base, None, 0);
    counts(&rules, &with("minReplicas", json!(4)), None, 1);
    counts(&rules, &json!({"maxReplicas": 3, "scalingStrategy": "KPA"}), None, 1);
    counts(&rules, &with("subTargetSelector", json!({"roleName": "r"})), None, 1);
    counts(&rules, &with("subTargetSelector", json!({})), None, 0);
    counts(&rules, &with("observeWindowSeconds", json!(30)), None, 0);
    counts(&rules, &with("panicWindowSeconds", json!(181)), None, 1);
    let mut both = with("observeWindowSeconds", json!(30));
    both["panicWindowSeconds"] = json!(31);
    counts(&rules, &both, None, 1);
    counts(&rules::scale_target(), &json!({"kind": "Deployment", "name": "d"}), None, 0);
    counts(&rules::scale_target(), &json!({"kind": "Deployment"}), None, 1);
    counts(&rules::target_value(), &json!("0.5"), None, 0);
    counts(&rules::target_value(), &json!("0"), None, 1);
}

#[test]
fn schedules_and_metrics() {
    let rules = rules::schedule();
    counts(&rules, &json!({"startTime": "08:00", "endTime": "18:00", "minReplicas": 1}), None, 0);
    counts(&rules, &json!({"startTime": "18:00", "endTime": "08:00", "minReplicas": 1}), None, 0);
    counts(&rules, &json!({"startTime": "18:00", "endTime": "18:00", "minReplicas": 1}), None, 1);
    counts(&rules, &json!({"startTime": "08:00", "endTime": "18:00"}), None, 1);
    let crossed = json!({"startTime": "08:00", "endTime": "18:00", "minReplicas": 2, "maxReplicas": 1});
    counts(&rules, &crossed, None, 1);
    let rules = rules::metric_source();
    let pod = json!({"metricSourceType": "pod", "protocolType": "http", "port": "1", "path": "m", "targetMetric": "x"});
    counts(&rules, &pod, None, 0);
    counts(&rules, &json!({"metricSourceType": "pod", "targetMetric": "x"}), None, 1);
    counts(&rules, &json!({"metricSourceType": "external", "targetMetric": "x"}), None, 0);
    counts(&rules, &json!({"metricSourceType": "domain", "endpoint": "e", "targetMetric": "x"}), None, 1);
    counts(&rules, &json!({"metricSourceType": "resource", "targetMetric": "cpu"}), None, 0);
    counts(&rules, &json!({"metricSourceType": "resource", "port": "1", "targetMetric": "x"}), None, 2);
}
