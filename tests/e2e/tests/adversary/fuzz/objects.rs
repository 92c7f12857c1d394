//! Objects that authors write: those of the examples, and what fits the schemas.

use std::path::{Path, PathBuf};

use neonvm_e2e::fuzz::{Random, instance, mutate};
use serde_json::{Value, json};

/// An image that no registry has, at an address where none listens.
const NO_IMAGE: &str = "127.0.0.1:1/none:1";

/// What objects are made of.
pub(super) struct Objects {
    examples: Vec<Value>,
    definitions: Vec<Value>,
}

fn files(directory: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(directory);
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "yaml")).collect();
    files.sort();
    files
}

fn documents(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let all: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    all.into_iter().filter(|document| !document.is_null()).collect()
}

/// The plural of a kind that an author may write.
fn plural(kind: &str) -> Option<&'static str> {
    match kind {
        "VirtualMachine" => Some("virtualmachines"),
        "VirtualMachineMigration" => Some("virtualmachinemigrations"),
        "PodAutoscaler" => Some("podautoscalers"),
        _ => None,
    }
}

impl Objects {
    pub(super) fn read() -> Self {
        let directories = [
            "examples/vm",
            "examples/migration",
            "examples/podautoscaler",
            "examples/podautoscaler/hpa",
            "examples/replicas",
        ];
        let is_ours = |value: &Value| value["kind"].as_str().and_then(plural).is_some();
        let all = directories.iter().flat_map(|directory| files(directory)).flat_map(|file| documents(&file));
        let definitions = files("deploy/crds").into_iter().flat_map(|file| documents(&file));
        let is_known = |value: &Value| value["spec"]["names"]["kind"].as_str().and_then(plural).is_some();
        Self { examples: all.filter(is_ours).collect(), definitions: definitions.filter(is_known).collect() }
    }

    /// An object that is an example with something wrong, or something that fits a schema; and its plural.
    pub(super) fn make(&self, random: &mut Random) -> (Value, &'static str) {
        let mut object = if random.once_in(3) {
            self.of_schema(random)
        } else {
            random.choose(&self.examples).cloned().unwrap()
        };
        let collection = plural(object["kind"].as_str().unwrap()).unwrap();
        let kept = (object["apiVersion"].clone(), object["kind"].clone());
        if !random.once_in(6) {
            mutate(random, &mut object);
        }
        // What names no kind is refused before anything of ours has it.
        if let (Value::Object(map), false) = (&mut object, random.once_in(20)) {
            map.insert("apiVersion".to_owned(), kept.0);
            map.insert("kind".to_owned(), kept.1);
            let name = format!("f{}", random.below(6));
            if let Some(metadata) = map.entry("metadata").or_insert_with(|| json!({})).as_object_mut() {
                metadata.insert("name".to_owned(), name.into());
                // The namespace is that of the path.
                metadata.remove("namespace");
            }
        }
        tame(&mut object);
        (object, collection)
    }

    fn of_schema(&self, random: &mut Random) -> Value {
        let definition = random.choose(&self.definitions).unwrap();
        let versions = definition["spec"]["versions"].as_array().unwrap();
        let version = random.choose(versions).unwrap();
        let schema = &version["schema"]["openAPIV3Schema"];
        let spec = instance(random, &schema["properties"]["spec"]);
        let group = definition["spec"]["group"].as_str().unwrap();
        let name = version["name"].as_str().unwrap();
        json!({"apiVersion": format!("{group}/{name}"), "kind": definition["spec"]["names"]["kind"],
            "metadata": {"name": "x"}, "spec": spec})
    }
}

/// Images stay on this host: nothing of a test looks for a registry elsewhere.
fn tame(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                if key == "image" && inner.is_string() {
                    *inner = NO_IMAGE.into();
                } else {
                    tame(inner);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(tame),
        _ => {}
    }
}
