//! The runner pod against the contract.

use k8s_openapi::api::core::v1::{Affinity, Pod};
use neonvm_api::runner_pod::Seal;
use neonvm_api::{Policy, Power, VirtualMachine};
use neonvm_core_vm_lifecycle::pod::{self, metadata_change, plan, seal, sealed};
use neonvm_core_vm_lifecycle::{PodView, RootDiskFrom, Settings};
use neonvm_types::Accelerator;
use serde_json::{Value, json};

use crate::machine::{settings, vm};
use crate::restricted::violations;

/// Settings of an installation that allows all that can be allowed.
fn generous() -> Settings {
    let policy = Policy { allowed: Power::ALL.into(), ..Policy::default() };
    Settings { policy, ..settings() }
}

fn planned(vm: &VirtualMachine) -> Value {
    serde_json::to_value(plan(vm, "db-abcde", &generous()).unwrap()).unwrap()
}

fn full() -> VirtualMachine {
    let mut vm = vm();
    let patch = json!({
        "runnerPort": 1234, "service_links": false, "runnerImage": "runner:x", "schedulerName": "s",
        "serviceAccountName": "a", "nodeSelector": {"k": "v"}, "imagePullSecrets": [{"name": "pull"}],
        "terminationGracePeriodSeconds": 30, "targetArchitecture": "amd64",
        "tolerations": [{"key": "t", "operator": "Exists"}],
        "podResources": {"requests": {"cpu": "250m"}},
        "extraInitContainers": [{"name": "mine", "image": "i"}],
        "overcommit": {"cpu": "2"},
        "tls": {"serverName": "db", "mountPath": "/var/tls"},
        "extraNetwork": {"enable": true, "multusNetwork": "ns/nad"},
        "disks": [
            {"name": "data", "mountPath": "/data", "emptyDisk": {"size": "10Gi"}},
            {"name": "conf", "mountPath": "/conf", "readOnly": true,
             "configMap": {"name": "c", "optional": true, "defaultMode": 256, "items": [{"key": "K", "path": "a/B"}]}},
            {"name": "sec", "mountPath": "/sec", "secret": {"secretName": "s"}},
            {"name": "tmp", "mountPath": "/tmp", "tmpfs": {"size": "1Gi"}}],
    });
    let mut value = serde_json::to_value(&vm).unwrap();
    value["spec"].as_object_mut().unwrap().extend(patch.as_object().unwrap().clone());
    value["spec"]["guest"]["kernelImage"] = json!("kernel:1");
    value["spec"]["guest"]["rootDisk"]["size"] = json!("1Gi");
    value["spec"]["guest"]["settings"] = json!({"swap": "1Gi"});
    value["spec"]["guest"]["ports"] = json!([{"name": "pg", "port": 5432}, {"port": 53, "protocol": "UDP"}]);
    value["metadata"]["labels"] = json!({"l": "1", "vm.neon.tech/name": "forged"});
    value["metadata"]["annotations"] =
        json!({"a": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}"});
    vm = serde_json::from_value(value).unwrap();
    vm
}

#[test]
fn the_smallest_machine() {
    let pod = planned(&vm());
    assert_eq!(
        pod["metadata"]["labels"],
        json!({"vm.neon.tech/name": "db", "app.kubernetes.io/name": "NeonVM"})
    );
    let mut annotations = pod["metadata"]["annotations"].clone();
    let placement = annotations.as_object_mut().unwrap().remove("vm.neon.tech/placement").unwrap();
    let placement: Value = serde_json::from_str(placement.as_str().unwrap()).unwrap();
    let rules = json!({"affinity": pod["spec"]["affinity"], "tolerations": pod["spec"]["tolerations"]});
    assert_eq!(placement, rules, "those of the pod, until a migration adds its own");
    assert_eq!(
        annotations,
        json!({
            "vm.neon.tech/usage": r#"{"cpu":"500m","memory":"1Gi"}"#,
            "vm.neon.tech/overhead": r#"{"cpu":"20m","memory":"325Mi"}"#,
            "vm.neon.tech/resources": concat!(r#"{"cpus":{"min":"250m","max":2,"use":"500m"},"#,
                r#""memorySlots":{"min":1,"max":4,"use":1},"memorySlotSize":"1Gi"}"#),
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
            "kubectl.kubernetes.io/default-container": "neonvm-runner"})
    );
    assert_eq!(
        pod["metadata"]["ownerReferences"],
        json!([{"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "name": "db", "uid": "u-1",
            "controller": true, "blockOwnerDeletion": true}])
    );
    let spec = &pod["spec"];
    assert_eq!(spec["restartPolicy"], "Never");
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert_eq!(spec["terminationGracePeriodSeconds"], 5);
    let container = &spec["containers"][0];
    assert_eq!(container["name"], "neonvm-runner");
    assert_eq!(container["command"], json!(["neond", "runner"]));
    assert_eq!(container["image"], "neonvm-runner:latest");
    let amounts = |cpu: &str| json!({"cpu": cpu, "memory": "1349Mi"});
    assert_eq!(container["resources"], json!({"requests": amounts("520m"), "limits": amounts("600m")}));
    let without = |name: &str| json!({"resourceName": name, "restartPolicy": "NotRequired"});
    assert_eq!(container["resizePolicy"], json!([without("cpu"), without("memory")]));
    for (probe, period, failures) in [("startupProbe", 1, i32::MAX), ("readinessProbe", 10, 3)] {
        let probe = &container[probe];
        assert_eq!(probe["httpGet"], json!({"path": "/ready", "port": 25183, "scheme": "HTTPS"}));
        assert_eq!((&probe["periodSeconds"], &probe["failureThreshold"]), (&json!(period), &json!(failures)));
    }
    let env: Vec<&str> =
        container["env"].as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
    assert_eq!(env, ["K8S_POD_NAME", "K8S_POD_NAMESPACE", "K8S_POD_IP", "K8S_POD_IPS", "K8S_NODE_NAME"]);
    assert_eq!(spec["initContainers"], Value::Null, "nothing has to be done before the runner");
    assert!(!pod.to_string().contains("hostPath"), "nothing of the node is mounted");
}

#[test]
fn nothing_that_an_author_writes_is_privileged() {
    let mut vm = full();
    let error = plan(&vm, "p", &settings()).unwrap_err().to_string();
    assert!(
        error.starts_with("spec.runnerImage: ") && error.contains("allow.vm.neon.tech/runner-image=true"),
        "{error}"
    );
    let pod = planned(&vm);
    assert_eq!(pod["spec"]["initContainers"][0]["securityContext"], no_right());
    let of = |context: Value| {
        let mut vm = vm.clone();
        vm.spec.extra_init_containers =
            serde_json::from_value(json!([{"name": "a", "securityContext": context}])).unwrap();
        planned(&vm)["spec"]["initContainers"][0]["securityContext"].clone()
    };
    assert_eq!(
        of(json!({"runAsUser": 0, "runAsNonRoot": false, "seLinuxOptions": {"type": "spc_t"},
        "appArmorProfile": {"type": "Unconfined"}, "seccompProfile": {"type": "Unconfined"}})),
        no_right()
    );
    assert_eq!(of(json!({"runAsUser": 1000, "runAsGroup": 1000}))["runAsUser"], 1000);
    vm.spec.extra_init_containers =
        serde_json::from_value(json!([{"name": "a", "securityContext": {"privileged": true}}])).unwrap();
    let error = plan(&vm, "p", &generous()).unwrap_err().to_string();
    assert!(error.starts_with("spec.extraInitContainers[0].securityContext.privileged: "), "{error}");
}

/// Names in the second column of a row of SECURITY.md.
fn documented(process: &str) -> Vec<&'static str> {
    let head = format!("| {process} |");
    let document = include_str!("../../../../../SECURITY.md");
    let row = document.lines().find_map(|line| line.strip_prefix(&head)).expect("a row");
    row.split('|').next().unwrap_or_default().split('`').skip(1).step_by(2).collect()
}

/// What every container of the pod has.
fn no_right() -> Value {
    json!({"privileged": false, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": true, "runAsUser": 65534, "runAsGroup": 65534, "seccompProfile": {"type": "RuntimeDefault"}})
}

#[test]
fn the_runner_has_no_right_and_its_volumes_are_its_groups() {
    assert!(documented("runner").is_empty(), "SECURITY.md names capabilities of the runner");
    for (vm, port) in [(vm(), None), (full(), None), (full(), Some(443))] {
        let mut vm = vm;
        vm.spec.runner_port = port.unwrap_or(vm.spec.runner_port);
        let pod = planned(&vm);
        let containers = pod["spec"]["containers"].as_array().unwrap();
        assert_eq!(containers.len(), 1);
        assert_eq!(containers[0]["securityContext"], no_right());
        let mut own = json!({"runAsNonRoot": true, "runAsUser": 65534, "runAsGroup": 65534, "fsGroup": 65534,
            "seccompProfile": {"type": "RuntimeDefault"}});
        if port.is_some() {
            own["sysctls"] = json!([{"name": "net.ipv4.ip_unprivileged_port_start", "value": "443"}]);
        }
        assert_eq!(pod["spec"]["securityContext"], own);
        for field in ["hostNetwork", "hostPID", "hostIPC"] {
            assert_eq!(pod["spec"][field], Value::Null, "{field}");
        }
        assert!(!pod.to_string().contains("\"privileged\":true"));
        let aliases = json!([{"ip": "169.254.254.254", "hostnames": ["guest-vm"]}]);
        assert_eq!(pod["spec"]["hostAliases"], aliases);
    }
}

#[test]
fn annotations_do_not_pass_by_the_policy() {
    let mut vm = vm();
    vm.spec.overcommit = serde_json::from_value(json!({"cpu": "1000"})).unwrap();
    let annotations = [
        ("vm.neon.tech/overcommit", "{}"),
        ("vm.neon.tech/machine", "{}"),
        ("k8s.v1.cni.cncf.io/networks", "kube-system/host"),
        ("v1.multus-cni.io/default-network", "kube-system/host-device"),
        ("container.apparmor.security.beta.kubernetes.io/neonvm-runner", "unconfined"),
        ("cni.projectcalico.org/ipAddrsNoIpam", "[\"10.0.0.1\"]"),
        ("ovn.kubernetes.io/logical_switch", "other"),
        ("logical_switch", "other"),
        ("io.kubernetes.cri-o.userns-mode", "host"),
        ("example.com/team", "a"),
    ];
    let labels = [
        ("vm.neon.tech/runner-version", "1"),
        ("sidecar.istio.io/inject", "true"),
        ("io.kubernetes.cri-o.Devices", "x"),
        ("pod-security.kubernetes.io/enforce", "privileged"),
        ("example.com/team", "a"),
    ];
    let map = |all: &[(&str, &str)]| {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    vm.metadata.annotations = Some(map(&annotations));
    vm.metadata.labels = Some(map(&labels));
    assert!(plan(&vm, "p", &settings()).is_err());
    vm.spec.overcommit = None;
    let pod = planned(&vm);
    for (key, _) in annotations {
        assert_eq!(pod["metadata"]["annotations"][key], Value::Null, "{key}");
    }
    for (key, _) in labels {
        assert_eq!(pod["metadata"]["labels"][key], Value::Null, "{key}");
    }
    // The administrator names what else may be there: one key, or all of a prefix.
    for named in ["example.com/team", "example.com/"] {
        let settings = Settings { pod_metadata: vec![named.to_owned()], ..settings() };
        let pod = serde_json::to_value(plan(&vm, "p", &settings).unwrap()).unwrap();
        assert_eq!(pod["metadata"]["annotations"]["example.com/team"], "a");
        assert_eq!(pod["metadata"]["labels"]["example.com/team"], "a");
        assert_eq!(pod["metadata"]["labels"]["sidecar.istio.io/inject"], Value::Null);
    }
}

/// What an earlier version copied stays, because a selector may depend on it; what only the controller writes does not.
#[test]
fn keys_that_are_not_copied_any_more_are_left_until_the_vm_has_them_no_more() {
    let mut vm = vm();
    vm.metadata.labels = Some([("example.com/team".to_owned(), "a".to_owned())].into());
    let plan = plan(&vm, "p", &settings()).unwrap();
    let mut seen = PodView {
        labels: plan.metadata.labels.unwrap(),
        annotations: plan.metadata.annotations.unwrap(),
        ..PodView::default()
    };
    seen.labels.insert("example.com/team".into(), "a".into());
    seen.own_labels = seen.labels.keys().cloned().collect();
    assert_eq!(metadata_change(&vm, &seen, &settings()), None);
    vm.metadata.labels = None;
    let change = metadata_change(&vm, &seen, &settings()).unwrap();
    assert_eq!(change.labels, [("example.com/team".to_owned(), None)].into());
    seen.annotations.insert("vm.neon.tech/overcommit".into(), r#"{"cpu":"1000"}"#.into());
    let change = metadata_change(&vm, &seen, &settings()).unwrap();
    assert_eq!(change.annotations, [("vm.neon.tech/overcommit".to_owned(), None)].into());
}

#[test]
fn volumes_and_mounts_of_the_contract() {
    let pod = planned(&full());
    let mounts = pod["spec"]["containers"][0]["volumeMounts"].as_array().unwrap();
    let mounts: Vec<(&str, &str, bool)> = mounts
        .iter()
        .map(|m| (m["name"].as_str().unwrap(), m["mountPath"].as_str().unwrap(), m["readOnly"] == true))
        .collect();
    assert_eq!(
        mounts,
        [
            ("virtualmachineimages", "/vm/images", false),
            ("rootdisk", "/vm/rootdisk", true),
            ("kernel", "/vm/kernel-image", true),
            ("run", "/vm/run", false),
            ("runner-config", "/vm/config", true),
            ("ssh-privatekey", "/mnt/ssh", true),
            ("ssh-publickey", "/vm/ssh", true),
            ("swapdisk", "/vm/swap", false),
            ("disk-data", "/vm/disks/data", false),
            ("disk-conf", "/vm/mounts/conf", true),
            ("disk-sec", "/vm/mounts/sec", false),
            ("tls", "/vm/mounts/var/tls", true),
        ]
    );
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    let volume = |name: &str| volumes.iter().find(|volume| volume["name"] == name).unwrap();
    assert_eq!(volume("rootdisk")["image"], json!({"reference": "img:tag", "pullPolicy": "IfNotPresent"}));
    assert_eq!(volume("kernel")["image"]["reference"], "kernel:1");
    let items = |keys: &[&str]| -> Value {
        keys.iter().map(|key| json!({"key": key, "path": key, "mode": 256})).collect()
    };
    assert_eq!(
        volume("runner-config")["projected"],
        json!({"defaultMode": 256, "sources": [
            {"secret": {"name": "db-abcde", "items": items(&["vm.json"])}},
            {"secret": {"name": "db-abcde-identity", "items": items(&["tls.crt", "tls.key", "ca.crt"])}},
        ]})
    );
    assert_eq!(
        volume("ssh-privatekey")["secret"],
        json!({"secretName": "ssh-neonvm-db-u1", "items": [{"key": "ssh-privatekey", "path": "id_ed25519", "mode": 384}]})
    );
    assert_eq!(volume("tls")["secret"]["secretName"], "tls-neonvm-db");
    // Sizes with room for the tables of the images, so that a full disk does not have the pod evicted.
    assert_eq!(volume("disk-data")["emptyDir"]["sizeLimit"], "10320Mi");
    assert_eq!(volume("swapdisk")["emptyDir"]["sizeLimit"], "1040Mi");
    assert_eq!(volume("virtualmachineimages")["emptyDir"]["sizeLimit"], "1040Mi");
    let source =
        json!({"name": "c", "optional": true, "defaultMode": 256, "items": [{"key": "K", "path": "a/B"}]});
    assert_eq!(volume("disk-conf")["configMap"], source);
}

#[test]
fn without_image_volumes_files_are_copied_by_our_program_without_privileges() {
    let settings = Settings { root_disk: RootDiskFrom::Copy, ..generous() };
    let pod = serde_json::to_value(plan(&full(), "db-abcde", &settings).unwrap()).unwrap();
    let containers = pod["spec"]["initContainers"].as_array().unwrap();
    let names: Vec<&str> = containers.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["copy-program", "copy-rootdisk", "copy-kernel", "mine"]);
    let what: Vec<(&str, String)> = containers[..3]
        .iter()
        .map(|one| {
            (
                one["image"].as_str().unwrap(),
                one["command"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|word| word.as_str().unwrap())
                    .collect::<Vec<_>>()
                    .join(" "),
            )
        })
        .collect();
    assert_eq!(what[0], ("runner:x", "neond runner copy /proc/self/exe /vm/copy/neond".into()));
    assert_eq!(what[1], ("img:tag", "/vm/copy/neond runner copy /disk.qcow2 /vm/rootdisk/disk.qcow2".into()));
    assert_eq!(what[2], ("kernel:1", "/vm/copy/neond runner copy /vmlinuz /vm/kernel-image/vmlinuz".into()));
    for one in &containers[..3] {
        assert_eq!(one["securityContext"], {
            let mut context = no_right();
            context["readOnlyRootFilesystem"] = json!(true);
            context
        });
    }
    // In the images of others the program cannot be changed; the runner cannot change the copies.
    assert_eq!(
        containers[1]["volumeMounts"],
        json!([{"name": "copy-program", "mountPath": "/vm/copy", "readOnly": true},
            {"name": "rootdisk", "mountPath": "/vm/rootdisk"}])
    );
    let runner = &pod["spec"]["containers"][0]["volumeMounts"];
    assert_eq!(runner[1], json!({"name": "rootdisk", "mountPath": "/vm/rootdisk", "readOnly": true}));
    assert!(!runner.to_string().contains("copy-program"));
    for volume in pod["spec"]["volumes"].as_array().unwrap() {
        assert_eq!(volume["image"], Value::Null, "{volume}");
    }
}

#[test]
fn the_spec_reaches_the_pod() {
    let pod = planned(&full());
    let spec = &pod["spec"];
    for (field, value) in [
        ("enableServiceLinks", json!(false)),
        ("schedulerName", json!("s")),
        ("serviceAccountName", json!("a")),
        ("nodeSelector", json!({"k": "v"})),
        ("imagePullSecrets", json!([{"name": "pull"}])),
        ("terminationGracePeriodSeconds", json!(30)),
    ] {
        assert_eq!(spec[field], value, "{field}");
    }
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 3);
    assert_eq!(spec["tolerations"][1]["tolerationSeconds"], 30);
    assert_eq!(spec["initContainers"][0]["name"], "mine");
    assert_eq!(spec["containers"][0]["image"], "runner:x");
    let container = &spec["containers"][0];
    // What the author names is the least there is; the factor of overcommitment counts.
    let resources = json!({"requests": {"cpu": "270m", "memory": "1469Mi"}, "limits": {"cpu": "600m", "memory": "1469Mi"}});
    assert_eq!(container["resources"], resources);
    assert_eq!(
        container["ports"],
        json!([{"name": "runner", "containerPort": 1234, "protocol": "TCP"},
            {"name": "pg", "containerPort": 5432, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}])
    );
    assert_eq!(container["readinessProbe"]["httpGet"]["port"], 1234);
    let annotations = &pod["metadata"]["annotations"];
    assert_eq!(annotations["vm.neon.tech/overcommit"], r#"{"cpu":"2"}"#);
    assert_eq!(annotations["k8s.v1.cni.cncf.io/networks"], "ns/nad@net1");
    assert_eq!(annotations["kubectl.kubernetes.io/last-applied-configuration"], Value::Null);
    assert_eq!(pod["metadata"]["labels"]["vm.neon.tech/name"], "db", "our labels win");
}

#[test]
fn devices_are_asked_for_where_nodes_offer_them() {
    let settings = Settings { device_plugin: true, ..settings() };
    let mut vm = vm();
    let limits = |vm: &VirtualMachine| {
        let pod: Pod = plan(vm, "p", &settings).unwrap();
        pod.spec.unwrap().containers[0].resources.clone().unwrap().limits.unwrap()
    };
    for device in ["neonvm/kvm", "neonvm/node", "neonvm/vhost-net"] {
        assert!(limits(&vm).contains_key(device), "{device}");
    }
    vm.spec.enable_acceleration = false;
    assert!(!limits(&vm).contains_key("neonvm/kvm"));
}

#[test]
fn a_namespace_with_vms_needs_no_more_than_the_level_restricted() {
    let low = |mut vm: VirtualMachine| {
        vm.spec.runner_port = 80;
        vm
    };
    for vm in [vm(), full(), low(full())] {
        for settings in
            [generous(), Settings { device_plugin: true, root_disk: RootDiskFrom::Copy, ..generous() }]
        {
            let pod = serde_json::to_value(plan(&vm, "p", &settings).unwrap()).unwrap();
            assert_eq!(violations(&pod), [""; 0], "{pod:#}");
        }
    }
}

#[test]
fn runners_emulate_where_that_is_set() {
    let variable = |settings: &Settings| {
        let pod: Pod = plan(&vm(), "p", settings).unwrap();
        let all = pod.spec.unwrap().containers[0].env.clone().unwrap();
        all.into_iter().find(|one| one.name == "NEONVM_ACCEL").and_then(|one| one.value)
    };
    assert_eq!(variable(&settings()), None);
    let with = |accelerator| Settings { accelerator, ..settings() };
    assert_eq!(variable(&with(Accelerator::Tcg)).as_deref(), Some("tcg"));
    assert_eq!(variable(&with(Accelerator::Kvm)).as_deref(), Some("kvm"));
}

/// A VM that names no scheduler or priority class has those of the installation.
#[test]
fn pods_are_placed_by_the_installed_scheduler_with_its_class() {
    let placed = |vm: &VirtualMachine, settings: &Settings| {
        let spec = plan(vm, "p", settings).unwrap().spec.unwrap();
        (spec.scheduler_name, spec.priority_class_name)
    };
    let installed = Settings {
        scheduler: "autoscale-scheduler".into(),
        priority_class: "neonvm-vms".into(),
        ..settings()
    };
    let some = |scheduler: &str, class: &str| (Some(scheduler.to_owned()), Some(class.to_owned()));
    let (unset, mut named) = (vm(), vm());
    assert_eq!(placed(&unset, &settings()), (None, None));
    assert_eq!(placed(&unset, &installed), some("autoscale-scheduler", "neonvm-vms"));
    named.spec.priority_class_name = "databases".into();
    assert_eq!(placed(&named, &installed), some("autoscale-scheduler", "databases"));
    named.spec.scheduler_name = "default-scheduler".into();
    let policy = Policy { allowed: Power::ALL.into(), ..Policy::default() };
    assert_eq!(placed(&named, &Settings { policy, ..installed }), some("default-scheduler", "databases"));
}

#[test]
fn runners_write_json_where_that_is_set() {
    let variable = |json_logs| {
        let pod: Pod = plan(&vm(), "p", &Settings { json_logs, ..settings() }).unwrap();
        let all = pod.spec.unwrap().containers[0].env.clone().unwrap();
        all.into_iter().find(|one| one.name == "NEOND_LOG_FORMAT").and_then(|one| one.value)
    };
    assert_eq!(variable(false), None);
    assert_eq!(variable(true).as_deref(), Some("json"));
}

/// W-03: an extra term would make the user's terms optional.
#[test]
fn w03_the_operating_system_is_required_in_every_term() {
    let mut vm = full();
    let term =
        |zone: &str| json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [term("a"), term("b")]}}});
    vm.spec.affinity = Some(serde_json::from_value::<Affinity>(affinity).unwrap());
    let path = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let pod = planned(&vm);
    let terms = pod.pointer(path).unwrap().as_array().unwrap();
    assert_eq!(terms.len(), 2);
    for (term, zone) in terms.iter().zip(["a", "b"]) {
        let keys: Vec<&str> =
            term["matchExpressions"].as_array().unwrap().iter().map(|e| e["key"].as_str().unwrap()).collect();
        assert_eq!(keys, ["zone", "kubernetes.io/os", "kubernetes.io/arch"]);
        assert_eq!(term["matchExpressions"][0]["values"], json!([zone]));
    }
    vm.spec.affinity = None;
    let pod = planned(&vm);
    assert_eq!(pod.pointer(path).unwrap().as_array().unwrap().len(), 1);
}

/// The digest of the configuration is where it cannot be changed, and in no other container.
#[test]
fn a_pod_is_sealed_with_its_configuration() {
    let mut pod = plan(&full(), "p", &generous()).unwrap();
    assert_eq!(sealed(&pod), None);
    let with = Seal { config: "c0ffee".into(), authorities: vec!["a".into(), "b".into()] };
    seal(&mut pod, &with);
    assert_eq!(sealed(&pod), Some("c0ffee"));
    let value = serde_json::to_value(&pod).unwrap();
    let env = value["spec"]["containers"][0]["env"].as_array().unwrap();
    assert!(env.contains(&json!({"name": "NEONVM_CONFIG_SHA256", "value": "c0ffee"})), "{env:?}");
    assert!(env.contains(&json!({"name": "NEONVM_AUTHORITIES_SHA256", "value": "a,b"})), "{env:?}");
    assert!(!value["spec"]["initContainers"].to_string().contains("c0ffee"));
}

/// W-13: what others wrote on the pod is theirs.
#[test]
fn w13_only_own_labels_and_annotations_are_managed() {
    let mut vm = full();
    let plan = plan(&vm, "p", &generous()).unwrap();
    let mut seen = PodView {
        labels: plan.metadata.labels.clone().unwrap(),
        annotations: plan.metadata.annotations.clone().unwrap(),
        own_labels: plan.metadata.labels.unwrap().into_keys().collect(),
        own_annotations: plan.metadata.annotations.unwrap().into_keys().collect(),
        ..PodView::default()
    };
    seen.labels.insert("foreign".into(), "1".into());
    seen.annotations.insert("foreign".into(), "1".into());
    assert_eq!(metadata_change(&vm, &seen, &generous()), None);
    vm.metadata.labels.as_mut().unwrap().remove("l");
    vm.spec.guest.memory_slots.r#use = 2;
    let change = metadata_change(&vm, &seen, &generous()).unwrap();
    assert_eq!(change.labels, [("l".to_owned(), None)].into());
    let keys: Vec<&str> = change.annotations.keys().map(String::as_str).collect();
    assert_eq!(keys, ["vm.neon.tech/overhead", "vm.neon.tech/resources", "vm.neon.tech/usage"]);
}

/// Where Kubernetes is too old, pods are as they were.
#[test]
fn a_pod_that_cannot_follow_requests_nothing() {
    let old = Settings { pod_size: false, ..generous() };
    let pod = serde_json::to_value(plan(&full(), "p", &old).unwrap()).unwrap();
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["resources"], json!({"requests": {"cpu": "250m"}}));
    assert_eq!(container["resizePolicy"], Value::Null);
    assert_eq!(pod["metadata"]["annotations"]["vm.neon.tech/overhead"], Value::Null);
}

/// The author's least, devices beside it, and the overhead at other sizes.
#[test]
fn requests_and_limits_of_large_and_of_emulated_vms() {
    let mut vm = vm();
    vm.spec.pod_resources =
        serde_json::from_value(json!({"limits": {"memory": "5Gi", "example.com/nic": "1"}})).unwrap();
    let kvm = Settings { device_plugin: true, accelerator: Accelerator::Kvm, ..settings() };
    let resources = |vm: &VirtualMachine| {
        let pod = serde_json::to_value(plan(vm, "p", &kvm).unwrap()).unwrap();
        pod["spec"]["containers"][0]["resources"].clone()
    };
    assert_eq!(
        resources(&vm),
        json!({"requests": {"cpu": "520m", "memory": "1221Mi"},
            "limits": {"cpu": "600m", "memory": "5Gi", "example.com/nic": "1", "neonvm/kvm": "1", "neonvm/node": "1", "neonvm/vhost-net": "1"}})
    );
    vm.spec.pod_resources = Default::default();
    vm.spec.guest.cpus.max = neonvm_types::MilliCpu::new(16_000);
    vm.spec.guest.cpus.r#use = neonvm_types::MilliCpu::new(16_000);
    (vm.spec.guest.memory_slots.max, vm.spec.guest.memory_slots.r#use) = (256, 64);
    let large = resources(&vm);
    assert_eq!(large["requests"], json!({"cpu": "16020m", "memory": "66083Mi"}), "0.8% above 64 GiB");
    assert_eq!(large["limits"]["cpu"], "17600m");
}

#[test]
fn a_plan_that_fails_has_a_reason() {
    let mut vm = vm();
    vm.spec.guest.memory_slot_size = "-1".parse().unwrap();
    let error = plan(&vm, "p", &generous()).unwrap_err().to_string();
    assert!(error.starts_with("spec.guest.memorySlotSize: "), "{error}");
    vm.metadata.uid = None;
    assert!(pod::config(&vm, "p", &generous()).is_err());
}

#[test]
fn pods_are_read_back() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "uid": "u", "managedFields": [
            {"manager": "us", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
             "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}, ".": {}}}}},
            {"manager": "them", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
             "fieldsV1": {"f:metadata": {"f:labels": {"f:b": {}}}}}]},
        "spec": {"nodeName": "n", "containers": []},
        "status": {"phase": "Failed", "podIP": "1.2.3.4", "containerStatuses": [{"name": "neonvm-runner", "image": "", "imageID": "",
            "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": 1,
                "message": "{\"reason\":\"GuestPanic\",\"message\":\"m\"}"}}}]}}))
    .unwrap();
    let view = PodView::from_pod(&pod, "us");
    assert_eq!(view.own_labels, ["a".to_owned()].into());
    assert_eq!(view.ended.as_ref().unwrap().reason.as_str(), "GuestPanic");
    let mut killed = pod.clone();
    let status = killed.status.as_mut().unwrap().container_statuses.as_mut().unwrap();
    let end = status[0].state.as_mut().unwrap().terminated.as_mut().unwrap();
    (end.message, end.reason, end.exit_code) = (None, Some("OOMKilled".into()), 137);
    let exit = PodView::from_pod(&killed, "us").ended.unwrap();
    assert_eq!(exit.reason.as_str(), "RunnerKilled");
    assert!(exit.message.contains("137") && exit.message.contains("OOMKilled"), "{}", exit.message);
}

/// Velero freezes what a VM writes to volumes, by commands that the pod has from its start.
#[test]
fn pods_with_volumes_have_hooks_of_backups() {
    let hook = |vm: &VirtualMachine, settings: &Settings| {
        let pod = plan(vm, "p", settings).unwrap();
        let annotations = pod.metadata.annotations.unwrap_or_default();
        annotations.get("pre.hook.backup.velero.io/command").cloned()
    };
    let mut with_claim = vm();
    let disks = json!([{"name": "data", "mountPath": "/data", "persistentVolumeClaim": {"claimName": "c"}}]);
    with_claim.spec.disks = serde_json::from_value(disks).unwrap();
    let expected = r#"["neond","runner","freeze","--seconds","60"]"#;
    assert_eq!(hook(&with_claim, &settings()).as_deref(), Some(expected));
    let none = Settings { backup_hooks: false, ..settings() };
    assert_eq!((hook(&vm(), &settings()), hook(&with_claim, &none)), (None, None));

    // A pod of an earlier version gets none, and one that has them loses them with the setting.
    let planned = plan(&with_claim, "p", &settings()).unwrap();
    let with_hooks = PodView {
        labels: planned.metadata.labels.unwrap(),
        annotations: planned.metadata.annotations.clone().unwrap(),
        own_annotations: planned.metadata.annotations.unwrap().into_keys().collect(),
        ..PodView::default()
    };
    let mut earlier = with_hooks.clone();
    earlier.annotations.retain(|key, _| !key.contains("velero"));
    assert_eq!(metadata_change(&with_claim, &earlier, &settings()), None);
    let change = metadata_change(&with_claim, &with_hooks, &none).unwrap();
    assert_eq!(change.annotations.len(), 8, "{change:?}");
    assert!(change.annotations.values().all(Option::is_none));
}
