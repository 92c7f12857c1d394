//! What Helm itself makes of the chart is what `install` applies, object by object.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use neonvm_test_support::{need, needs};
use serde_json::Value;

/// Version of the cluster's Kubernetes, where it is not asked for.
const KUBERNETES: &str = "v1.36.0";

/// Kind, namespace and name of each object, and the rest of it without empty lists and maps, which mean nothing.
fn by_name(text: &str) -> BTreeMap<String, Value> {
    fn without(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.values_mut().for_each(without);
                // An empty selector selects all.
                map.retain(|key, value| {
                    key == "podSelector"
                        || !(*value == Value::Array(Vec::new()) || *value == serde_json::json!({}))
                });
            }
            Value::Array(all) => all.iter_mut().for_each(without),
            _ => {}
        }
    }
    let all: Vec<Value> = serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let objects = all.into_iter().filter(Value::is_object).map(|mut object| {
        without(&mut object);
        let of = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, metadata) = (of("/kind"), (of("/metadata/namespace"), of("/metadata/name")));
        (format!("{kind} {}/{}", metadata.0, metadata.1), object)
    });
    objects.collect()
}

fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |raw: &[u8]| String::from_utf8_lossy(raw).into_owned();
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn helm_renders_what_is_installed() {
    let helm = need!(needs::optional_program("helm"));
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/chart");
    let home = tempfile::tempdir().unwrap();
    for set in [
        &[][..],
        &[
            "image.registry=\"registry.example/vm\"",
            "image.version=\"1.2.3\"",
            "image.pullSecrets=[{\"name\":\"a\"}]",
        ],
        &[
            "components=[\"vm-controller\",\"agent\"]",
            "vmController.replicas=1",
            "runner.accelerator=\"tcg\"",
        ],
        &[
            "overlay.network=\"multus\"",
            "overlay.encryption=\"wireguard\"",
            "agent.nodeSelector={\"a\":\"b\"}",
        ],
    ] {
        let mut render = Command::new(&helm);
        render.args(["template", "neonvm", "--namespace", "neonvm-system", "--include-crds"]);
        render.args(["--kube-version", KUBERNETES]).arg(&chart);
        let mut install = Command::new(env!("CARGO_BIN_EXE_neonctl"));
        install.args(["install", "--dry-run=client", "-o", "yaml"]).env_clear();
        for one in set {
            render.args(["--set-json", one]);
            // Texts stand without quotes there.
            let (key, value) = one.split_once('=').unwrap();
            let text = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
            install.args(["--set".to_owned(), format!("{key}={text}")]);
        }
        render.env("HOME", home.path());
        install.env("HOME", home.path());
        let (rendered, mut installed) = (by_name(&output(&mut render)), by_name(&output(&mut install)));
        // Helm makes the namespace itself, and keeps account of what it has made.
        installed.retain(|name, _| !name.starts_with("Namespace ") && !name.ends_with("/neonvm-install"));
        for (name, object) in &installed {
            assert_eq!(rendered.get(name), Some(object), "{set:?}: {name}");
        }
        let names = |all: &BTreeMap<String, Value>| all.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&rendered), names(&installed), "{set:?}");
    }
}
