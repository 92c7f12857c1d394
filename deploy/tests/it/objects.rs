//! Values to objects.

use std::collections::BTreeSet;

use neonvm_deploy::{Choice, Facts, Named, Record, is_workload, rank};
use serde_json::{Value, json};

use crate::{chosen, container, find, made};

const NODES: &str = "neonvm-vxlan-controller";

#[test]
fn images_come_from_the_registry_in_the_version() {
    let all = made(&[
        "image.registry=registry.example:5000/vm",
        "image.version=1.2.3",
        "image.pullPolicy=Always",
        "image.pullSecrets=[{name: login}]",
    ]);
    for workload in all.iter().filter(|object| is_workload(object)) {
        let pod = &workload["spec"]["template"]["spec"];
        assert_eq!(pod["imagePullSecrets"], json!([{"name": "login"}]));
        for one in pod["containers"].as_array().unwrap() {
            assert_eq!(one["imagePullPolicy"], "Always");
            let image = one["image"].as_str().unwrap();
            let is_stock = image == "registry.k8s.io/kube-scheduler:v1.36.2";
            assert!(is_stock || image == "registry.example:5000/vm/neond:1.2.3", "{image}");
        }
    }
    let controller = find(&all, "Deployment", "neonvm-vm-controller");
    let arguments = container(controller, "vm-controller")["args"].as_array().unwrap();
    assert!(arguments.contains(&json!("--runner-image=registry.example:5000/vm/neonvm-runner:1.2.3")));
    let all = made(&["runner.image=other/runner:1", "scheduler.kubeSchedulerImage=mirror/kube-scheduler:v1"]);
    let arguments = &container(find(&all, "Deployment", "neonvm-vm-controller"), "vm-controller")["args"];
    assert!(arguments.as_array().unwrap().contains(&json!("--runner-image=other/runner:1")));
    let stock = container(find(&all, "Deployment", "neonvm-scheduler"), "kube-scheduler");
    assert_eq!(stock["image"], "mirror/kube-scheduler:v1");
}

#[test]
fn each_service_has_its_own_place_and_size() {
    for (path, kind, name, container_name) in [
        ("vmController", "Deployment", "neonvm-vm-controller", "vm-controller"),
        ("podAutoscaler", "Deployment", "neonvm-pod-autoscaler", "pod-autoscaler"),
        ("scheduler", "Deployment", "neonvm-scheduler", "scheduler"),
        ("agent", "DaemonSet", "neonvm-agent", "agent"),
        ("overlay", "DaemonSet", NODES, "vxlan-controller"),
    ] {
        let set = [
            format!("{path}.resources={{requests: {{cpu: 77m}}}}"),
            format!("{path}.tolerations=[{{key: spot, operator: Exists}}]"),
            format!("{path}.nodeSelector={{pool: vm}}"),
            "overlay.network=multus".to_owned(),
        ];
        let all = made(&set.each_ref().map(String::as_str));
        let workload = find(&all, kind, name);
        let pod = &workload["spec"]["template"]["spec"];
        let resources = &container(workload, container_name)["resources"];
        assert_eq!(resources["requests"]["cpu"], "77m");
        assert!(resources["limits"]["memory"].is_string(), "what is not named stays");
        assert_eq!(pod["tolerations"], json!([{"key": "spot", "operator": "Exists"}]));
        let mut selector = json!({"pool": "vm"});
        if kind == "DaemonSet" {
            selector["kubernetes.io/os"] = json!("linux");
        }
        assert_eq!(pod["nodeSelector"], selector);
        let others = all.iter().filter(|object| is_workload(object) && object["metadata"]["name"] != name);
        assert!(others.into_iter().all(|other| !other.to_string().contains("77m")), "{name}");
    }
    let all = made(&["vmController.replicas=1", "podAutoscaler.replicas=4"]);
    assert_eq!(find(&all, "Deployment", "neonvm-scheduler")["spec"]["replicas"], 2);
    let all = made(&["vmController.replicas=1", "podAutoscaler.replicas=4", "scheduler.replicas=1"]);
    assert_eq!(find(&all, "Deployment", "neonvm-vm-controller")["spec"]["replicas"], 1);
    assert_eq!(find(&all, "Deployment", "neonvm-pod-autoscaler")["spec"]["replicas"], 4);
    assert_eq!(find(&all, "Deployment", "neonvm-scheduler")["spec"]["replicas"], 1);
}

#[test]
fn the_overlay_comes_when_it_is_chosen() {
    let with = made(&["overlay.network=multus", "overlay.encryption=wireguard"]);
    let arguments =
        container(find(&with, "DaemonSet", NODES), "vxlan-controller")["args"].as_array().unwrap();
    assert!(arguments.contains(&json!("--encryption=wireguard")));
    let config = |all: &[Value]| -> Value {
        let attachment = find(all, "NetworkAttachmentDefinition", "neonvm-overlay-for-vms");
        serde_json::from_str(attachment["spec"]["config"].as_str().unwrap()).unwrap()
    };
    assert_eq!(config(&with)["mtu"], 1370);
    assert_eq!(config(&made(&["overlay.network=multus"]))["mtu"], 1450);
    let without = made(&[]);
    assert!(without.iter().all(|object| object["metadata"]["name"] != "neonvm-overlay-for-vms"));
    assert!(without.iter().all(|object| !is_workload(object) || object["metadata"]["name"] != NODES));
}

#[test]
fn root_disks_are_copied_where_images_cannot_be_mounted() {
    let how = |set: &str, kubernetes: &str, image_volumes: Option<bool>| {
        let facts = Facts { kubernetes: Some(kubernetes.to_owned()), image_volumes };
        let all = neonvm_deploy::objects(&chosen(&[set]), &facts).unwrap();
        let controller = find(&all, "Deployment", "neonvm-vm-controller");
        let arguments = container(controller, "vm-controller")["args"].to_string();
        arguments.split("--root-disk=").nth(1).unwrap().split('"').next().unwrap().to_owned()
    };
    assert_eq!(how("runner.rootDisk=auto", "v1.34.9", None), "copy");
    assert_eq!(how("runner.rootDisk=auto", "v1.34.9", Some(true)), "image-volume");
    assert_eq!(how("runner.rootDisk=auto", "v1.35.0", None), "image-volume");
    assert_eq!(how("runner.rootDisk=auto", "v1.35.0", Some(false)), "copy");
    assert_eq!(how("runner.rootDisk=image-volume", "v1.31.0", Some(false)), "image-volume");
    assert_eq!(how("runner.rootDisk=copy", "v1.36.0", Some(true)), "copy");
}

#[test]
fn the_accelerator_of_runners_is_a_flag_of_the_controller() {
    let arguments = |set: &[&str]| {
        let all = made(set);
        container(find(&all, "Deployment", "neonvm-vm-controller"), "vm-controller")["args"].to_string()
    };
    assert!(arguments(&["runner.accelerator=tcg"]).contains("--accelerator=tcg"));
    assert!(arguments(&[]).contains("--accelerator=auto"));
}

#[test]
fn the_disk_cache_of_vms_is_a_flag_of_the_controller() {
    let arguments = |set: &[&str]| {
        let all = made(set);
        container(find(&all, "Deployment", "neonvm-vm-controller"), "vm-controller")["args"].to_string()
    };
    assert!(arguments(&["runner.diskCache=direct"]).contains("\"--disk-cache=direct\""));
    assert!(arguments(&[]).contains("\"--disk-cache=buffered\""));
    let mut choice = Choice::default();
    let wrong = choice.set("runner.diskCache=unsafe").err().or_else(|| choice.values().err());
    assert!(wrong.unwrap().to_string().contains("runner.diskCache"));
}

#[test]
fn hooks_of_backups_are_a_flag_of_the_controller() {
    let arguments = |set: &[&str]| {
        let all = made(set);
        container(find(&all, "Deployment", "neonvm-vm-controller"), "vm-controller")["args"].to_string()
    };
    assert!(arguments(&[]).contains("\"--backup-hooks=velero\""));
    assert!(arguments(&["runner.backupHooks=none"]).contains("\"--backup-hooks=none\""));
}

/// Each program of ours learns how to write its log, the controller for its runners as well; kube-scheduler has its own.
#[test]
fn the_form_of_logs_reaches_every_service() {
    for (set, form) in [(&[][..], "text"), (&["logFormat=json", "overlay.network=multus"], "json")] {
        let all = made(set);
        let mut seen = 0;
        for workload in all.iter().filter(|object| is_workload(object)) {
            let spec = &workload["spec"]["template"]["spec"];
            let lists = ["initContainers", "containers"].map(|kind| spec[kind].as_array().cloned());
            for container in lists.into_iter().flatten().flatten() {
                let variables = container["env"].as_array().cloned().unwrap_or_default();
                let found: Vec<_> =
                    variables.iter().filter(|one| one["name"] == "NEOND_LOG_FORMAT").collect();
                let is_ours = container["command"][0] == "neond";
                assert_eq!(found.len(), usize::from(is_ours), "{container}");
                assert!(found.iter().all(|one| one["value"] == form), "{container}");
                seen += found.len();
            }
        }
        assert!(seen >= 4, "{seen}");
    }
}

#[test]
fn another_namespace_is_meant_everywhere() {
    let all = made(&["namespace=vms", "overlay.network=multus"]);
    let words = Value::Array(all).to_string();
    assert!(!words.contains("neonvm-system"));
    assert!(words.contains("--namespace=vms"));
    // Its flags default to the namespace that is not meant.
    assert!(words.contains("--system-namespace=vms"));
}

/// The image of the services names a user. A container runtime gives capabilities that are added to root only.
#[test]
fn who_gets_capabilities_is_root() {
    let mut count = 0;
    for workload in made(&["overlay.network=multus"]).iter().filter(|object| is_workload(object)) {
        let pod = &workload["spec"]["template"]["spec"];
        let all =
            ["initContainers", "containers"].into_iter().filter_map(|kind| pod[kind].as_array()).flatten();
        for one in all {
            let context = &one["securityContext"];
            if context["capabilities"]["add"].as_array().is_none_or(Vec::is_empty) {
                continue;
            }
            let user = context.get("runAsUser").unwrap_or(&pod["securityContext"]["runAsUser"]);
            assert_eq!(user, 0, "{}", one["name"]);
            count += 1;
        }
    }
    assert_eq!(count, 3, "the history's directory, the node service and the overlay's controller");
}

/// Nothing of ours ends a VM to get a node: no class may preempt, and VMs come after services only while both wait.
#[test]
fn no_class_preempts() {
    let classes = |set: &[&str]| -> Vec<Value> {
        made(set).into_iter().filter(|object| object["kind"] == "PriorityClass").collect()
    };
    let of = |all: &[Value], name: &str| {
        let class = all.iter().find(|class| class["metadata"]["name"] == name).unwrap();
        assert_eq!(class["preemptionPolicy"], "Never", "{name}");
        assert!(class["globalDefault"].is_null(), "{name}");
        class["value"].as_i64().unwrap()
    };
    let flag = |set: &[&str]| {
        let all = made(set);
        let controller = container(find(&all, "Deployment", "neonvm-vm-controller"), "vm-controller").clone();
        let arguments = controller["args"].as_array().unwrap().clone();
        let mut values =
            arguments.iter().filter_map(|one| one.as_str()?.strip_prefix("--vm-priority-class="));
        values.next().unwrap().to_owned()
    };
    let all = classes(&[]);
    assert_eq!(all.len(), 2);
    assert!(of(&all, "neonvm-services") > of(&all, "neonvm-vms"));
    assert_eq!(flag(&[]), "neonvm-vms");
    let own = ["runner.priorityClass={name: databases, value: 7}"];
    assert_eq!((of(&classes(&own), "databases"), flag(&own)), (7, "databases".to_owned()));
    let theirs = ["runner.priorityClass={name: high, value: 0}"];
    assert_eq!((classes(&theirs).len(), flag(&theirs)), (1, "high".to_owned()));
    let none = ["runner.priorityClass={name: '', value: 0}"];
    assert_eq!((classes(&none).len(), flag(&none)), (1, String::new()));
}

#[test]
fn services_request_what_they_need_and_are_probed() {
    let all = made(&["overlay.network=multus"]);
    for workload in all.iter().filter(|object| is_workload(object)) {
        let name = &workload["metadata"]["name"];
        let pod = &workload["spec"]["template"]["spec"];
        assert_eq!(pod["priorityClassName"], "neonvm-services", "{name}");
        for one in pod["containers"].as_array().unwrap() {
            for resource in ["cpu", "memory"] {
                assert!(one["resources"]["requests"][resource].is_string(), "{name}: {resource}");
            }
            assert!(one["resources"]["limits"]["memory"].is_string(), "{name}");
            // These listen on nothing in the network of their node: what the node service offers is seen in the node's status.
            if *name != NODES && one["name"] != "node" {
                assert!(one["livenessProbe"].is_object() && one["readinessProbe"].is_object(), "{name}");
            }
        }
        if workload["spec"]["replicas"].as_u64().is_some_and(|count| count > 1) {
            let budget = find(&all, "PodDisruptionBudget", name.as_str().unwrap());
            assert_eq!(budget["spec"]["selector"], workload["spec"]["selector"], "{name}");
        }
    }
}

#[test]
fn the_inventory_names_everything_else() {
    let all = made(&["image.version=7.7.7"]);
    let map = find(&all, "ConfigMap", neonvm_deploy::INVENTORY);
    let record = Record::read(map);
    assert_eq!((record.version.as_str(), record.values.trim()), ("7.7.7", "image:\n  version: \"7.7.7\""));
    let names: BTreeSet<Named> = record.objects.into_iter().collect();
    let rest = all.iter().filter(|object| *object != map).map(Named::from_object);
    assert_eq!(names, rest.collect());
}

/// What each object needs to be there before it.
fn needs(object: &Value) -> Vec<(String, String)> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut all = Vec::new();
    if !text("/metadata/namespace").is_empty() {
        all.push(("Namespace".to_owned(), text("/metadata/namespace")));
    }
    if text("/kind").ends_with("RoleBinding") {
        all.push((text("/roleRef/kind"), text("/roleRef/name")));
        for subject in object["subjects"].as_array().unwrap() {
            all.push((subject["kind"].as_str().unwrap().into(), subject["name"].as_str().unwrap().into()));
        }
    }
    if text("/kind") == "ValidatingAdmissionPolicyBinding" {
        all.push(("ValidatingAdmissionPolicy".to_owned(), text("/spec/policyName")));
    }
    if is_workload(object) {
        all.push(("ServiceAccount".to_owned(), text("/spec/template/spec/serviceAccountName")));
        for volume in
            object.pointer("/spec/template/spec/volumes").and_then(Value::as_array).into_iter().flatten()
        {
            if let Some(name) = volume.pointer("/configMap/name").and_then(Value::as_str) {
                all.push(("ConfigMap".to_owned(), name.to_owned()));
            }
        }
    }
    all
}

/// Whatever is chosen, an object comes after what it needs, as far as that is of this installation.
#[test]
fn the_order_is_topological() {
    for chosen in 0..16_u8 {
        let is = |bit: u8| chosen & (1 << bit) != 0;
        let names =
            [(true, "vm-controller"), (is(0), "scheduler"), (is(1), "agent"), (is(2), "pod-autoscaler")];
        let names: Vec<&str> = names.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
        let overlay = if is(3) { "overlay.network=multus" } else { "overlay.network=none" };
        let all = made(&[&format!("components=[{}]", names.join(", ")), overlay]);
        let key = |object: &Value| {
            (
                object["kind"].as_str().unwrap().to_owned(),
                object["metadata"]["name"].as_str().unwrap().to_owned(),
            )
        };
        let known: BTreeSet<(String, String)> = all.iter().map(key).collect();
        let mut before = BTreeSet::new();
        for object in &all {
            for need in needs(object).into_iter().filter(|need| known.contains(need)) {
                assert!(before.contains(&need), "{names:?}: {need:?} comes after {:?}", key(object));
            }
            before.insert(key(object));
        }
        let is_agent = |object: &Value| object["metadata"]["name"] == "neonvm-agent" && is_workload(object);
        assert_eq!(all.iter().any(is_agent), is(1), "{names:?}");
        let others = all.iter().filter(|object| object["metadata"]["name"] != neonvm_deploy::INVENTORY);
        assert!(others.map(rank).is_sorted(), "{names:?}");
    }
}
