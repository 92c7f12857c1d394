//! What an author of a VM writes appears in the VM's pod only where SECURITY.md states it.

use std::collections::BTreeSet;

use neonvm_api::{Policy, Power, VirtualMachine};
use neonvm_core_vm_lifecycle::pod::plan;
use neonvm_core_vm_lifecycle::{RootDiskFrom, Settings};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::machine::{settings, vm};

const PLACEMENT: &str = "/metadata/annotations/vm.neon.tech~1placement";

/// A text of an author, by its JSON pointer in the object; and where it may be in the pod: pointers, of which each may go on, with `*` for
/// an index or key.
const PLACES: &[(&str, &str, &[&str])] = &[
    ("/spec/nodeSelector/KEY", "v", &["/spec/nodeSelector", PLACEMENT]),
    ("/spec/schedulerName", "s", &["/spec/schedulerName"]),
    ("/spec/serviceAccountName", "a", &["/spec/serviceAccountName"]),
    ("/spec/restartRequest", "r", &[]),
    ("/spec/imagePullSecrets/0/name", "p", &["/spec/imagePullSecrets"]),
    ("/spec/initScript", "i", &[]),
    ("/spec/runnerImage", "img", &["/spec/containers/*/image", "/spec/initContainers/*/image"]),
    ("/spec/cpuModel", "m", &[]),
    ("/spec/priorityClassName", "c", &["/spec/priorityClassName"]),
    (
        "/spec/guest/rootDisk/image",
        "img",
        &["/spec/volumes/*/image/reference", "/spec/initContainers/*/image"],
    ),
    ("/spec/guest/rootDisk/execute/0", "x", &[]),
    ("/spec/guest/kernelImage", "k", &["/spec/volumes/*/image/reference", "/spec/initContainers/*/image"]),
    ("/spec/guest/appendKernelCmdline", "c", &[]),
    ("/spec/guest/memhpAutoMovableRatio", "9", &[]),
    ("/spec/guest/command/0", "c", &[]),
    ("/spec/guest/args/0", "a", &[]),
    ("/spec/guest/env/0/name", "N", &[]),
    ("/spec/guest/env/0/value", "V", &[]),
    ("/spec/guest/settings/sysctl/0", "s", &[]),
    ("/spec/guest/ports/0/name", "port", &["/spec/containers/0/ports/*/name"]),
    ("/spec/tls/serverName", "n", &[]),
    ("/spec/tls/certificateIssuer", "ci", &[]),
    ("/spec/tls/mountPath", "/t", &["/spec/containers/0/volumeMounts/*/mountPath"]),
    ("/spec/disks/0/name", "d", &["/spec/volumes/*/name", "/spec/containers/0/volumeMounts"]),
    ("/spec/disks/0/mountPath", "/d", &["/spec/containers/0/volumeMounts/*/mountPath"]),
    ("/spec/disks/0/configMap/name", "cm", &["/spec/volumes/*/configMap"]),
    ("/spec/disks/1/secret/secretName", "se", &["/spec/volumes/*/secret"]),
    ("/spec/disks/1/secret/items/0/key", "key", &["/spec/volumes/*/secret"]),
    ("/spec/disks/1/secret/items/0/path", "pa", &["/spec/volumes/*/secret"]),
    ("/spec/disks/2/persistentVolumeClaim/claimName", "pvc", &["/spec/volumes/*/persistentVolumeClaim"]),
    ("/spec/volumeClaimTemplates/0/metadata/labels/l", "tl", &[]),
    ("/spec/volumeClaimTemplates/0/spec/storageClassName", "sc", &[]),
    ("/spec/extraNetwork/interface", "if", &["/metadata/annotations/k8s.v1.cni.cncf.io~1networks"]),
    ("/spec/extraNetwork/multusNetwork", "ns/n", &["/metadata/annotations/k8s.v1.cni.cncf.io~1networks"]),
    ("/spec/tolerations/0/key", "t", &["/spec/tolerations", PLACEMENT]),
    (
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions/0/values/0",
        "v",
        &["/spec/affinity", PLACEMENT],
    ),
    ("/spec/extraInitContainers/0/image", "ei", &["/spec/initContainers"]),
    ("/spec/extraInitContainers/0/args/0", "ea", &["/spec/initContainers"]),
    ("/spec/podResources/claims/0/name", "cl", &["/spec/containers/0/resources"]),
    ("/metadata/labels/team", "l", &["/metadata/labels"]),
    ("/metadata/labels/sidecar.istio.io~1inject", "l", &[]),
    ("/metadata/annotations/example.com~1a", "an", &[]),
    ("/metadata/annotations/v1.multus-cni.io~1default-network", "an", &[]),
    (
        "/metadata/annotations/autoscaling.neon.tech~1bounds",
        "an",
        &["/metadata/annotations/autoscaling.neon.tech~1bounds"],
    ),
    ("/metadata/annotations/vm.neon.tech~1overcommit", "an", &[]),
];

/// Puts a text at a pointer, and makes what is missing on the way.
fn put(object: &mut Value, pointer: &str, text: &str) {
    let mut at = object;
    let parts: Vec<&str> = pointer.split('/').skip(1).collect();
    for part in parts {
        let key = part.replace("~1", "/");
        at = match key.parse::<usize>() {
            Ok(index) => {
                if !at.is_array() {
                    *at = json!([]);
                }
                let all = at.as_array_mut().unwrap();
                while all.len() <= index {
                    all.push(json!({}));
                }
                &mut all[index]
            }
            Err(_) => {
                if !at.is_object() {
                    *at = json!({});
                }
                at.as_object_mut().unwrap().entry(key).or_insert(Value::Null)
            }
        };
    }
    *at = json!(text);
}

/// Pointers of the texts, keys of maps among them, that hold a word.
fn found(value: &Value, word: &str, at: &str, all: &mut BTreeSet<String>) {
    match value {
        Value::String(text) if text.contains(word) => drop(all.insert(at.to_owned())),
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, item)| found(item, word, &format!("{at}/{index}"), all));
        }
        Value::Object(map) => {
            for (key, item) in map {
                let inside = format!("{at}/{}", key.replace('/', "~1"));
                if key.contains(word) {
                    all.insert(inside.clone());
                }
                found(item, word, &inside, all);
            }
        }
        _ => {}
    }
}

fn is_at(pointer: &str, place: &str) -> bool {
    let (mut is, mut may) = (pointer.split('/'), place.split('/'));
    may.all(|part| is.next().is_some_and(|found| part == "*" || part == found))
}

/// The VM with a word in each of these fields.
fn written(fields: &[usize]) -> (VirtualMachine, Vec<(usize, String)>) {
    let mut object = serde_json::to_value(vm()).unwrap();
    let mut words = Vec::new();
    for &field in fields {
        let (pointer, text, _) = PLACES[field];
        let word = format!("zq{field}x");
        put(&mut object, pointer, &format!("{text}{word}"));
        words.push((field, word));
    }
    let spec = &mut object["spec"];
    // What else these fields need.
    for template in spec.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut).into_iter().flatten() {
        let template = template.as_object_mut().unwrap();
        template.entry("spec").or_insert(json!({}));
        let meta = template.entry("metadata").or_insert(json!({})).as_object_mut().unwrap();
        meta.insert("name".into(), json!("data"));
    }
    if let Some(disks) = spec.get_mut("disks").and_then(Value::as_array_mut) {
        for (index, disk) in disks.iter_mut().enumerate() {
            let disk = disk.as_object_mut().unwrap();
            disk.entry("name").or_insert(json!(format!("disk{index}")));
            disk.entry("mountPath").or_insert(json!(format!("/disk{index}")));
            let sources = ["configMap", "secret", "persistentVolumeClaim"];
            if !sources.iter().any(|source| disk.contains_key(*source)) {
                disk.insert("emptyDisk".into(), json!({"size": "1Gi"}));
            }
            if let Some(items) = disk.get_mut("secret").and_then(|secret| secret.get_mut("items")) {
                let item = items[0].as_object_mut().unwrap();
                item.entry("key").or_insert(json!("k"));
                item.entry("path").or_insert(json!("p"));
            }
        }
    }
    let fill = |spec: &mut Value, pointer: &str, key: &str, value: Value| {
        if let Some(map) = spec.pointer_mut(pointer).and_then(Value::as_object_mut) {
            map.entry(key).or_insert(value);
        }
    };
    fill(spec, "/extraNetwork", "enable", json!(true));
    fill(spec, "/extraInitContainers/0", "name", json!("extra"));
    fill(spec, "/guest/env/0", "name", json!("N"));
    fill(spec, "/guest/env/0", "value", json!("V"));
    fill(spec, "/guest/ports/0", "port", json!(5432));
    let term = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions/0";
    fill(spec, term, "key", json!("k"));
    fill(spec, term, "operator", json!("In"));
    (serde_json::from_value(object).unwrap(), words)
}

fn check(fields: &[usize], root_disk: RootDiskFrom) -> Result<(), TestCaseError> {
    let policy = Policy { allowed: Power::ALL.into(), ..Policy::default() };
    let settings = Settings { policy, root_disk, ..settings() };
    let (vm, words) = written(fields);
    let pod = serde_json::to_value(plan(&vm, "db-abcde", &settings).unwrap()).unwrap();
    for (field, word) in words {
        let (pointer, _, places) = PLACES[field];
        let mut all = BTreeSet::new();
        found(&pod, &word, "", &mut all);
        for place in &all {
            prop_assert!(places.iter().any(|may| is_at(place, may)), "{} is at {}", pointer, place);
        }
        // A table with too many places is wrong as well.
        let is_shown =
            fields.len() == PLACES.len() && !pointer.contains("claims") && !pointer.ends_with("runnerImage");
        prop_assert!(!is_shown || places.is_empty() || !all.is_empty(), "{} is nowhere", pointer);
    }
    Ok(())
}

#[test]
fn every_text_of_an_author_is_where_it_may_be() {
    let all: Vec<usize> = (0..PLACES.len()).collect();
    for from in [RootDiskFrom::ImageVolume, RootDiskFrom::Copy] {
        check(&all, from).unwrap();
    }
}

proptest! {
    #[test]
    fn any_texts_of_an_author_are_where_they_may_be(
        fields in proptest::sample::subsequence((0..PLACES.len()).collect::<Vec<_>>(), 0..PLACES.len()),
        copy in any::<bool>(),
    ) {
        check(&fields, if copy { RootDiskFrom::Copy } else { RootDiskFrom::ImageVolume })?;
    }
}
