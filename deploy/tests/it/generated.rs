//! The chart and the kustomization are equal to an installation, and the committed files are the generated ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use neonvm_deploy::{INVENTORY, Named, chart};
use serde_json::Value;

use crate::{chosen, helm, made};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Writes what is generated if that is wanted; compares it.
pub(crate) fn golden(path: &Path, text: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(committed == text, "{}: run UPDATE_GOLDEN=1 cargo test -p neonvm-deploy", path.display());
}

#[test]
fn what_is_committed_is_generated() {
    for (name, text) in chart::chart().unwrap() {
        golden(&root().join("chart").join(name), &text);
    }
    golden(&root().join("kustomization.yaml"), &chart::kustomization().unwrap());
    // No template is left of a manifest that is gone.
    let kept = std::fs::read_dir(root().join("chart/templates")).unwrap().count();
    assert_eq!(kept, chart::chart().unwrap().keys().filter(|name| name.starts_with("templates/")).count());
}

/// Manifests are applied as they are, also without a program of ours: each names the images of this version.
#[test]
fn manifests_have_the_images_of_this_version() {
    let mut found = 0;
    for entry in std::fs::read_dir(root().join("manifests")).unwrap() {
        let path = entry.unwrap().path();
        let mut text = String::new();
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let images = ["image: neond:", "--runner-image=neonvm-runner:"];
            let image = images.into_iter().find_map(|image| Some(line.find(image)? + image.len()));
            found += usize::from(image.is_some());
            match image {
                Some(end) => text.extend([&line[..end], env!("CARGO_PKG_VERSION"), "\n"]),
                None => text.extend([line, "\n"]),
            }
        }
        golden(&path, &text);
    }
    assert!(found >= 8, "{found} images in the manifests");
}

/// By name; empty lists left out.
fn by_name(all: impl IntoIterator<Item = Value>) -> BTreeMap<Named, Value> {
    fn without(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.values_mut().for_each(without);
                map.retain(|key, value| {
                    key == "podSelector"
                        || !(value == &Value::Array(Vec::new()) || value == &serde_json::json!({}))
                });
            }
            Value::Array(all) => all.iter_mut().for_each(without),
            _ => {}
        }
    }
    let all = all.into_iter().map(|mut object| {
        without(&mut object);
        (Named::from_object(&object), object)
    });
    all.collect()
}

#[test]
fn the_chart_renders_what_is_installed() {
    for set in [
        &[][..],
        &["image.registry=registry.example/vm", "image.version=1.2.3", "image.pullSecrets=[{name: a}]"],
        &["components=[vm-controller, agent]", "vmController.replicas=1", "namespace=vms"],
        &["overlay.network=multus", "runner.accelerator=tcg", "agent.resources={requests: {cpu: 1m}}"],
        &["scheduler.kubeSchedulerImage=mirror/k:1", "runner.image=r:2", "agent.nodeSelector={a: b}"],
        &["overlay.network=multus", "overlay.encryption=wireguard"],
        &["scheduler.upstreamAgents=true"],
        &["runner.rootDisk=copy"],
        &["logFormat=json", "runner.diskCache=direct", "runner.backupHooks=none"],
        &["image.pullPolicy=Never", "podAutoscaler.tolerations=[{key: k, operator: Exists}]"],
    ] {
        let choice = chosen(set);
        let (values, own) = (choice.values().unwrap(), chart::given(&choice).unwrap());
        let files = chart::chart().unwrap();
        let templates =
            files.iter().filter(|(name, _)| name.starts_with("templates/") && name.ends_with(".yaml"));
        let rendered =
            templates.flat_map(|(_, text)| helm::rendered(text, &own, &values.namespace, "v1.36.2"));
        let installed = made(set).into_iter().filter(|object| {
            let kind = object["kind"].as_str().unwrap();
            kind != "CustomResourceDefinition"
                && kind != "Namespace"
                && object["metadata"]["name"] != INVENTORY
        });
        let (rendered, installed) = (by_name(rendered), by_name(installed));
        for (name, object) in &installed {
            assert_eq!(rendered.get(name), Some(object), "{set:?}: {name}");
        }
        assert_eq!(rendered.len(), installed.len(), "{set:?}");
    }
}

#[test]
fn values_of_the_chart_are_those_that_are_installed() {
    let built_in = chart::given(&chosen(&[])).unwrap();
    assert_eq!(built_in["image"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(built_in["vmController"]["replicas"], 3);
    assert_eq!(built_in["scheduler"]["kubeSchedulerResources"]["requests"]["cpu"], "100m");
    let text = &chart::chart().unwrap()["values.yaml"];
    assert!(text.contains("# Tag of the images.\n  version: "), "{text}");
}

#[test]
fn the_kustomization_is_what_is_installed_by_default() {
    let text = chart::kustomization().unwrap();
    let kustomization: Value = serde_saphyr::from_str(&text).unwrap();
    let files = kustomization["resources"].as_array().unwrap().iter().map(|file| file.as_str().unwrap());
    let read = |file: &str| -> Vec<Value> {
        serde_saphyr::from_multiple(&std::fs::read_to_string(root().join(file)).unwrap()).unwrap()
    };
    let listed = by_name(files.flat_map(read));
    let built_in = neonvm_deploy::objects(&chosen(&[]), &neonvm_deploy::Facts::default()).unwrap();
    let installed = by_name(built_in.into_iter().filter(|object| object["metadata"]["name"] != INVENTORY));
    for (name, object) in &installed {
        assert_eq!(listed.get(name), Some(object), "{name}");
    }
    assert_eq!(listed.len(), installed.len());
}
