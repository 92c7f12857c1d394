use std::{fs, path::PathBuf};

use kube::Resource;
use serde_json::{Value, json};

use super::*;
use crate::{MigrationPolicy, PodAutoscaler, VirtualMachineMigration, apply_defaults, normalise, validate};

fn examples(folder: &str) -> Vec<(PathBuf, Value)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    assert!(!files.is_empty());
    files
        .into_iter()
        .map(|file| {
            let object = serde_saphyr::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
            (file, object)
        })
        .collect()
}

/// Admission, as the webhook does it; the result must decode and encode without a difference.
fn admit<T: Serialize + for<'de> Deserialize<'de>>(file: &PathBuf, kind: &str, mut object: Value) -> T {
    assert_eq!(object["kind"], kind, "{file:?}");
    assert_eq!(normalise(kind, &mut object), [], "{file:?}");
    apply_defaults(kind, &mut object);
    let typed: T = serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{file:?}: {error}"));
    assert_eq!(serde_json::to_value(&typed).unwrap(), object, "{file:?}");
    typed
}

#[test]
fn example_machines_are_valid_and_keep_every_field() {
    for (file, object) in examples("vm") {
        let vm: VirtualMachine = admit(&file, "VirtualMachine", object);
        assert_eq!(validate::virtual_machine_create(&vm), [], "{file:?}");
        assert_eq!(validate::virtual_machine_update(&vm, &vm), [], "{file:?}");
        assert_eq!(validate::virtual_machine_warnings(&vm), [], "{file:?}");
    }
}

/// Paths of the fields that have an effect, as their descriptions have it; fields of Kubernetes' own types are not listed one by one.
fn fields(schema: &Value, path: &str, all: &mut Vec<String>) {
    const NATIVE: [&str; 9] = [
        "affinity",
        "tolerations",
        "podResources",
        "imagePullSecrets",
        "extraInitContainers",
        "configMap",
        "secret",
        "nodeSelector",
        // That of a claim template.
        "spec",
    ];
    let schema = schema.get("items").unwrap_or(schema);
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if field["description"].as_str().is_some_and(|text| text.starts_with("Has no effect")) {
            continue;
        }
        all.push(path.clone());
        if !NATIVE.contains(&name.as_str()) {
            fields(field, &path, all);
        }
    }
}

fn is_set(object: &Value, path: &str) -> bool {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    match (object, rest) {
        (Value::Array(items), _) => items.iter().any(|item| is_set(item, path)),
        (_, None) => object.get(first).is_some(),
        (_, Some(rest)) => object.get(first).is_some_and(|value| is_set(value, rest)),
    }
}

#[test]
fn the_full_example_has_every_field_that_has_an_effect() {
    let definitions = crate::crds();
    let definition = definitions.iter().find(|one| one["spec"]["names"]["kind"] == "VirtualMachine").unwrap();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut all = Vec::new();
    fields(schema, "", &mut all);
    assert!(all.len() > 80, "{all:?}");
    let (_, full) = examples("vm").into_iter().find(|(file, _)| file.ends_with("full.yaml")).unwrap();
    all.retain(|path| !is_set(&full["spec"], path) && !path.starts_with("targetRevision."));
    // One of two ways; and a field that the agent writes.
    assert_eq!(all, ["guest.settings.swap", "targetRevision"]);
    assert!(!is_set(&full["spec"], "qmp"));
}

/// Empty values are what typed clients leave out; writing such an object back must not look like a change.
#[test]
fn empty_values_do_not_come_and_go() {
    let object = json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": {"name": "a"},
        "spec": {"initScript": "", "nodeSelector": {}, "tolerations": [], "schedulerName": "",
            "serviceAccountName": "", "imagePullSecrets": [], "extraInitContainers": [],
            "disks": [{"name": "d", "mountPath": "/d", "emptyDisk": {"size": 1, "discard": false, "enableQuotas": false}}],
            "extraNetwork": {"multusNetwork": ""}, "tls": {"certificateIssuer": "", "serverName": ""},
            "guest": {"cpus": {"min": 1, "max": 1, "use": 1}, "memorySlots": {"min": 1, "max": 1, "use": 1},
                "rootDisk": {"image": "i", "execute": []}, "command": [], "args": [], "env": [],
                "ports": [{"port": 1, "name": ""}], "settings": {"sysctl": []}}}});
    let _: VirtualMachine = admit(&PathBuf::new(), "VirtualMachine", object);
}

#[test]
fn example_migrations_are_valid() {
    for (file, object) in examples("migration") {
        if object["kind"] == "MigrationPolicy" {
            let policy: MigrationPolicy = admit(&file, "MigrationPolicy", object);
            assert_eq!(validate::migration_policy(&policy), [], "{file:?}");
            continue;
        }
        let migration: VirtualMachineMigration = admit(&file, "VirtualMachineMigration", object);
        assert_eq!(validate::migration_create(&migration), [], "{file:?}");
    }
}

#[test]
fn example_autoscalers_are_valid() {
    for (file, object) in examples("podautoscaler") {
        let autoscaler: PodAutoscaler = admit(&file, "PodAutoscaler", object);
        assert_eq!(validate::pod_autoscaler(&autoscaler), [], "{file:?}");
    }
}

/// The stored form of the specification's example.
#[test]
fn the_rust_defaults_are_those_of_the_schema() {
    let cpus = CpuBounds { min: MilliCpu::new(250), max: MilliCpu::new(1000), r#use: MilliCpu::new(250) };
    let mut spec =
        VirtualMachineSpec::new(Guest::new(cpus, MemorySlots { min: 1, max: 4, r#use: 1 }, "img:tag"));
    spec.cpu_scaling_mode = Some(CpuScalingMode::QmpScaling);
    let stored = json!({
        "qmp": 20183, "qmpManual": 20184, "runnerPort": 25183, "terminationGracePeriodSeconds": 5,
        "podResources": {}, "restartPolicy": "Always", "enableAcceleration": true, "enableSSH": true,
        "enableNetworkMonitoring": false, "cpuScalingMode": "QmpScaling",
        "guest": {
            "cpus": {"min": "250m", "max": 1, "use": "250m"}, "memorySlotSize": "1Gi",
            "memorySlots": {"min": 1, "max": 4, "use": 1},
            "rootDisk": {"image": "img:tag", "size": "0", "imagePullPolicy": "IfNotPresent"},
        },
    });
    assert_eq!(serde_json::to_value(&spec).unwrap(), stored);
    let least = json!({"cpuScalingMode": "QmpScaling", "guest": {"cpus": {"min": 0.25, "max": 1, "use": 0.25},
        "memorySlots": {"min": 1, "max": 4, "use": 1}, "rootDisk": {"image": "img:tag"}}});
    assert_eq!(serde_json::from_value::<VirtualMachineSpec>(least).unwrap(), spec);
}

#[test]
fn a_stored_object_with_removed_fields_is_read() {
    let spec = json!({"guest": {"cpus": {"min": 1, "max": 1, "use": 1}, "memorySlots": {"min": 1, "max": 1, "use": 1},
        "rootDisk": {"image": "i"}, "memoryProvider": "DIMMSlots", "settings": {"swapInfo": {"size": "1Gi"}}},
        "extraNetwork": {"enable": true, "multusNetworkNoIP": "x"}});
    let spec: VirtualMachineSpec = serde_json::from_value(spec).unwrap();
    let swap = SwapInfo { size: "1Gi".parse().unwrap(), skip_swapon: None };
    assert_eq!(
        spec.guest.settings,
        Some(GuestSettings { swap_info: Some(swap), ..GuestSettings::default() })
    );
    let status: VirtualMachineStatus =
        serde_json::from_value(json!({"memoryProvider": "VirtioMem"})).unwrap();
    assert_eq!(serde_json::to_value(status).unwrap(), json!({"restartCount": 0}));
}

#[test]
fn status_has_the_printed_forms() {
    let status = json!({"phase": "PreMigrating", "restartCount": 1, "podName": "p", "podIP": "10.0.0.1",
        "extraNetIP": "10.100.0.1", "extraNetMask": "255.255.0.0", "node": "n", "cpus": "250m", "memorySize": "1Gi",
        "sshSecretName": "s", "tlsSecretName": "t",
        "currentRevision": {"revision": {"value": 1, "flags": 1}, "updatedAt": "2024-07-01T11:00:00Z"}});
    let typed: VirtualMachineStatus = serde_json::from_value(status.clone()).unwrap();
    assert!(typed.phase.unwrap().is_alive());
    assert_eq!(serde_json::to_value(typed).unwrap(), status);
}

#[test]
fn an_empty_phase_is_none() {
    for json in [json!({"phase": ""}), json!({"phase": null}), json!({})] {
        assert_eq!(serde_json::from_value::<VirtualMachineStatus>(json).unwrap().phase, None);
    }
    assert!(serde_json::from_value::<VirtualMachineStatus>(json!({"phase": "Dancing"})).is_err());
}

#[test]
fn phases_are_alive_or_not() {
    for (phase, alive) in [
        (Phase::Pending, false),
        (Phase::Running, true),
        (Phase::Succeeded, false),
        (Phase::Failed, false),
        (Phase::PreMigrating, true),
        (Phase::Migrating, true),
        (Phase::Scaling, true),
    ] {
        assert_eq!(phase.is_alive(), alive);
        assert_eq!(serde_json::to_value(phase).unwrap(), phase.to_string());
    }
}

#[test]
fn memory_in_use_is_slots_times_size() {
    let mut guest = Guest::new(CpuBounds::fixed(MilliCpu::new(1000)), MemorySlots::fixed(3), "i");
    guest.memory_slot_size = "128Mi".parse().unwrap();
    assert_eq!(guest.memory_use(), Ok(neonvm_types::Bytes::mib(384)));
    guest.memory_slot_size = "-1".parse().unwrap();
    assert!(guest.memory_use().is_err());
}

#[test]
fn names_match_the_constants() {
    assert_eq!(VirtualMachine::api_version(&()), crate::names::VM_API_VERSION);
    assert_eq!(PodAutoscaler::api_version(&()), crate::names::POD_AUTOSCALER_API_VERSION);
}

/// `[0.7]` is no object, at any depth of any object that people write.
#[test]
fn a_list_stands_for_no_object() {
    for folder in ["vm", "migration", "podautoscaler"] {
        for (file, object) in examples(folder) {
            let kind = object["kind"].as_str().unwrap().to_owned();
            let refused = |mut object: Value| !crate::admit(&kind, &mut object, None).errors.is_empty();
            assert!(!refused(object.clone()), "{}", file.display());
            for (path, changed) in neonvm_test_support::lists::for_objects(&object) {
                let text = changed.pointer(&path).unwrap().to_string();
                assert!(refused(changed), "{}: {path}: {text}", file.display());
            }
        }
    }
}
