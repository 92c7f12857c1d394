use std::{collections::BTreeSet, fs, path::Path};

use serde_json::{Value, json};

use super::*;

mod rules;
mod unchanged;

fn name(crd: &Value) -> &str {
    crd["metadata"]["name"].as_str().unwrap()
}

/// What the API server demands of a structural schema. Returns the paths of nodes that break it.
fn faults(schema: &Value, path: &str, found: &mut Vec<String>) {
    let Some(fields) = schema.as_object() else {
        found.push(format!("{path}: not an object"));
        return;
    };
    let loose = ["x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"];
    let kind = fields.get("type").and_then(Value::as_str);
    let is_loose = loose.iter().any(|key| fields.get(*key) == Some(&json!(true)));
    let known = ["object", "array", "string", "integer", "number", "boolean"];
    let mut fault = |text: &str| found.push(format!("{path}: {text}"));
    if !is_loose && !kind.is_some_and(|kind| known.contains(&kind)) {
        fault("no type");
    }
    if fields.contains_key("x-kubernetes-int-or-string") && kind.is_some() {
        fault("int-or-string with a type");
    }
    let banned = [
        "$ref",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "nullable",
        "title",
        "uniqueItems",
        "definitions",
        "$schema",
    ];
    for keyword in banned.iter().filter(|keyword| fields.contains_key(**keyword)) {
        fault(keyword);
    }
    if fields.get("default").is_some_and(Value::is_null) {
        fault("default null");
    }
    if let Some(Value::Array(values)) = fields.get("enum")
        && values.iter().any(|value| !value.is_string())
    {
        fault("enum of something else than texts");
    }
    let formats = ["int32", "int64", "date-time", "byte", "double", "float"];
    if let Some(format) = fields.get("format").and_then(Value::as_str)
        && !formats.contains(&format)
    {
        fault("unknown format");
    }
    if fields.contains_key("properties") && fields.contains_key("additionalProperties") {
        fault("properties and additionalProperties");
    }
    if kind == Some("array") && !fields.get("items").is_some_and(Value::is_object) {
        fault("array without items");
    }
    name_faults(schema, path, found);
    for (property, below) in fields.get("properties").and_then(Value::as_object).into_iter().flatten() {
        faults(below, &format!("{path}.{property}"), found);
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(below) = fields.get(keyword).filter(|below| below.is_object()) {
            faults(below, &format!("{path}.{keyword}"), found);
        }
    }
}

/// Names that must be those of properties.
fn name_faults(schema: &Value, path: &str, found: &mut Vec<String>) {
    let names = |keyword: &str| schema.get(keyword).and_then(Value::as_array).cloned().unwrap_or_default();
    for key in names("x-kubernetes-list-map-keys") {
        let item = &schema["items"];
        let key = key.as_str().unwrap();
        let required = item["required"].as_array().is_some_and(|names| names.contains(&json!(key)));
        if !required && item["properties"][key].get("default").is_none() {
            found.push(format!("{path}: list map key {key} is neither required nor has a default"));
        }
    }
    for required in names("required") {
        if schema["properties"].get(required.as_str().unwrap()).is_none() {
            found.push(format!("{path}: required {required} is no property"));
        }
    }
}

#[test]
fn schemas_are_structural() {
    for crd in crds() {
        let mut found = Vec::new();
        faults(crd.pointer(SCHEMA).unwrap(), name(&crd), &mut found);
        assert!(found.is_empty(), "{found:#?}");
    }
}

#[test]
fn identity_is_kept() {
    let expected = [
        ("virtualmachines.vm.neon.tech", "VirtualMachine", "neonvm", vec!["vm"], true),
        ("virtualmachinemigrations.vm.neon.tech", "VirtualMachineMigration", "neonvmm", vec!["vmm"], true),
        ("migrationpolicies.vm.neon.tech", "MigrationPolicy", "migrationpolicy", vec![], false),
        ("ippools.vm.neon.tech", "IPPool", "ippool", vec![], false),
        ("podautoscalers.autoscaling.aibrix.ai", "PodAutoscaler", "podautoscaler", vec!["pa"], true),
    ];
    let crds = crds();
    assert_eq!(crds.len(), expected.len());
    for (crd, (object, kind, singular, short, status)) in crds.iter().zip(expected) {
        let names = &crd["spec"]["names"];
        assert_eq!(name(crd), object);
        assert_eq!(names["kind"], kind);
        assert_eq!(names["singular"], singular);
        assert_eq!(names.get("shortNames").cloned().unwrap_or(json!([])), json!(short));
        // Not "neonvm": that is the singular of a VM, and kubectl would take it for all kinds at once.
        assert_eq!(names["categories"], json!(["neon"]));
        let scope = if kind == "MigrationPolicy" { "Cluster" } else { "Namespaced" };
        assert_eq!(crd["spec"]["scope"], scope);
        let version = &crd["spec"]["versions"][0];
        assert_eq!(version["subresources"].get("status").is_some(), status, "{object}");
        assert_eq!((&version["served"], &version["storage"]), (&json!(true), &json!(true)));
    }
}

/// Every column of `kubectl get` must show a field that exists. Upstream's Restarts column does not.
#[test]
fn printer_columns_point_at_fields() {
    for crd in crds() {
        let schema = crd.pointer(SCHEMA).unwrap();
        for column in crd["spec"]["versions"][0]["additionalPrinterColumns"].as_array().unwrap() {
            let path = column["jsonPath"].as_str().unwrap();
            // A filter chooses an item of an array.
            let (array, item) =
                path.split_once("[?(").map_or((path, None), |(array, rest)| (array, rest.split_once(")].")));
            let mut node = schema;
            for step in array.split('.').skip(1).filter(|_| !path.starts_with(".metadata.")) {
                node = &node["properties"][step];
            }
            if let Some((_, field)) = item {
                node = &node["items"]["properties"][field];
            }
            assert!(node.is_object(), "{} {path}", name(&crd));
        }
    }
}

fn columns(kind: usize) -> Vec<String> {
    let crds = crds();
    let columns = crds[kind]["spec"]["versions"][0]["additionalPrinterColumns"].as_array().unwrap().clone();
    columns.iter().map(|column| column["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn printer_columns_are_kept_in_order() {
    let vm =
        "Cpus Memory Pod ExtraIP Status Restarts Age Reason Node Image CPUScalingMode TargetArchitecture";
    assert_eq!(columns(0).join(" "), vm);
    assert_eq!(columns(1).join(" "), "VM Source SourceIP Target TargetIP Status Reason Age");
    assert_eq!(columns(4).join(" "), "MINPODS MAXPODS REPLICAS STRATEGY AGE");
}

#[test]
fn fields_of_the_machine_are_kept() {
    let schema = object_schemas().remove("VirtualMachine").unwrap();
    let fields = |path: &str| -> BTreeSet<String> {
        let mut node = &schema;
        for step in path.split('.') {
            node = if step == "[]" { &node["items"] } else { &node["properties"][step] };
        }
        node["properties"].as_object().unwrap().keys().cloned().collect()
    };
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>();
    for (path, expected) in [
        (
            "spec",
            "qmp qmpManual runnerPort terminationGracePeriodSeconds nodeSelector affinity tolerations schedulerName
             serviceAccountName priorityClassName podResources restartPolicy powerState idle restartRequest imagePullSecrets targetArchitecture guest
             extraInitContainers initScript disks diskLimits extraNetwork service_links enableAcceleration runnerImage enableSSH
             tls tlsCertificateIssuer tlsExpiration tlsRenewal overcommit targetRevision cpuScalingMode cpuModel enableNetworkMonitoring volumeClaimTemplates persistentVolumeClaimRetentionPolicy",
        ),
        (
            "spec.guest",
            "kernelImage memhpAutoMovableRatio appendKernelCmdline cpus memoryProvider memorySlotSize memorySlots rootDisk command
             args attach env ports settings",
        ),
        ("spec.guest.cpus", "min max use"),
        ("spec.guest.memorySlots", "min max use"),
        ("spec.guest.rootDisk", "image size imagePullPolicy execute"),
        ("spec.guest.ports.[]", "name port protocol"),
        ("spec.guest.settings", "sysctl swap swapInfo"),
        ("spec.disks.[]", "name mountPath readOnly watch emptyDisk configMap secret tmpfs persistentVolumeClaim"),
        ("spec.diskLimits.[]", "disk iops bandwidth burst"),
        ("spec.diskLimits.[].burst", "iops bandwidth seconds"),
        ("spec.disks.[].emptyDisk", "size discard enableQuotas"),
        ("spec.extraNetwork", "enable interface multusNetwork multusNetworkNoIP"),
        ("spec.tls", "certificateIssuer expireAfter renewBefore serverName mountPath"),
        ("spec.targetRevision", "revision updatedAt"),
        (
            "status",
            "conditions phase restartCount powerState freezesExpired restartRequest workload podName podIP node extraNetIP extraNetMask cpus memorySize sshSecretName
             tlsSecretName currentRevision observedGeneration machine lastExit migration scalingFrom volumes diskLimits",
        ),
    ] {
        assert_eq!(fields(path), words(expected), "{path}");
    }
}

#[test]
fn each_rule_has_a_message_and_parses() {
    fn walk(value: &Value, rules: &mut Vec<Value>) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::Array(found)) = fields.get("x-kubernetes-validations") {
                    rules.extend(found.clone());
                }
                fields.values().for_each(|below| walk(below, rules));
            }
            Value::Array(items) => items.iter().for_each(|below| walk(below, rules)),
            _ => {}
        }
    }
    let mut rules = Vec::new();
    crds().iter().for_each(|crd| walk(crd, &mut rules));
    assert!(rules.len() > 40, "{}", rules.len());
    for rule in rules {
        let text = rule["rule"].as_str().unwrap();
        assert!(cel::Program::compile(text).is_ok(), "{text}");
        assert!(!rule["message"].as_str().unwrap().contains('\n'));
    }
}

/// `UPDATE_GOLDEN=1` rewrites the files.
#[test]
fn files_are_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let lines: Vec<String> = generated().iter().map(Value::to_string).collect();
    let text = format!("[\n{}\n]\n", lines.join(",\n"));
    if update {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/crd/definitions.json");
        fs::write(file, &text).unwrap();
    }
    assert!(update || text == DEFINITIONS, "definitions.json is out of date; run with UPDATE_GOLDEN=1");
    for crd in generated() {
        let group = crd["spec"]["group"].as_str().unwrap();
        let plural = crd["spec"]["names"]["plural"].as_str().unwrap();
        let file = folder.join(format!("{group}_{plural}.yaml"));
        let yaml = format!("# Generated from the types in controllers/api; do not edit.\n{}", to_yaml(&crd));
        if update {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&file, &yaml).unwrap();
        }
        let stored = fs::read_to_string(&file).unwrap_or_default();
        assert!(stored == yaml, "{} is out of date; run the test with UPDATE_GOLDEN=1", file.display());
        assert_eq!(serde_saphyr::from_str::<Value>(&stored).unwrap(), crd, "{}", file.display());
    }
}

/// Fields with a schema of Kubernetes: their own fields are in its documentation.
const FOREIGN: [&str; 7] = [
    "affinity",
    "tolerations",
    "podResources",
    "extraInitContainers",
    "conditions",
    "nodeAffinity",
    "scaleTargetRef",
];

/// `UPDATE_GOLDEN=1` writes the page again.
#[test]
fn the_reference_has_every_field() {
    let mut text = String::from(
        "<!-- run: none -->\n# Objects\n\nGenerated from the types: `UPDATE_GOLDEN=1 cargo test -p neonvm-api --lib crd`. \
         `kubectl explain vm.spec` prints the same.\n",
    );
    for crd in generated() {
        let kind = crd["spec"]["names"]["kind"].as_str().unwrap();
        let group = crd["spec"]["group"].as_str().unwrap();
        let version = crd["spec"]["versions"][0]["name"].as_str().unwrap();
        let schema = crd.pointer(SCHEMA).unwrap();
        let about = schema["description"].as_str().unwrap_or_default();
        text.push_str(&format!("\n## {kind}\n\n`{group}/{version}`. {}\n", in_a_cell(about)));
        for part in ["spec", "status"] {
            let below = &schema["properties"][part];
            if below.is_object() {
                text.push_str(&format!("\n### {kind} {part}\n\n| Field | Type | Meaning |\n|---|---|---|\n"));
                rows(below, "", &mut text);
            }
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/reference/objects.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&file, &text).unwrap();
    }
    let stored = fs::read_to_string(&file).unwrap_or_default();
    assert!(stored == text, "{} is out of date; run with UPDATE_GOLDEN=1", file.display());
}

fn in_a_cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// A row for each field, those of objects and of the elements of lists below them.
fn rows(schema: &Value, prefix: &str, text: &mut String) {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, node) in schema["properties"].as_object().into_iter().flatten() {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        let kind = node["type"].as_str().unwrap_or("integer or string");
        let is_list = kind == "array";
        let kind = if is_list {
            format!("list of {}", node["items"]["type"].as_str().unwrap_or("values"))
        } else {
            kind.to_owned()
        };
        let mut notes = vec![in_a_cell(node["description"].as_str().unwrap_or_default())];
        if let Some(values) = node["enum"].as_array() {
            let values: Vec<String> =
                values.iter().filter_map(Value::as_str).map(|value| format!("`{value}`")).collect();
            notes.push(format!("One of {}.", values.join(", ")));
        }
        if required.contains(&name.as_str()) {
            notes.push("Required.".to_owned());
        } else if let Some(default) = node.get("default") {
            notes.push(format!("Default: `{default}`."));
        }
        notes.retain(|note| !note.is_empty());
        text.push_str(&format!("| `{path}` | {kind} | {} |\n", notes.join(" ")));
        if FOREIGN.contains(&name.as_str()) {
            continue;
        }
        if is_list {
            rows(&node["items"], &format!("{path}[]"), text);
        } else {
            rows(node, &path, text);
        }
    }
}

fn to_yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap()
}
