//! An object that a person writes again, as the file has it: accepted, and without a change.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::super::object_schemas;
use super::rules::broken;
use crate::admit;

/// Every example that is one object, as it is in its file.
fn examples() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = ["vm", "migration", "podautoscaler"].map(|name| fs::read_dir(folder.join(name)).unwrap());
    let mut all = Vec::new();
    for file in files.into_iter().flatten().map(|file| file.unwrap().path()) {
        if file.extension().is_some_and(|extension| extension == "yaml") {
            all.extend(serde_saphyr::from_multiple::<Value>(&fs::read_to_string(file).unwrap()).unwrap());
        }
    }
    all.retain(|object| object_schemas().contains_key(object["kind"].as_str().unwrap()));
    assert!(all.len() > 10, "{}", all.len());
    all
}

/// The object as it is stored after its first reconcile.
fn stored(kind: &str, object: &Value) -> Value {
    let mut stored = object.clone();
    let verdict = admit(kind, &mut stored, None);
    assert_eq!(verdict.errors, [], "{stored}");
    if kind == "VirtualMachine" {
        for (field, value) in [("cpuScalingMode", "SysfsScaling"), ("targetArchitecture", "amd64")] {
            let spec = stored["spec"].as_object_mut().unwrap();
            spec.entry(field).or_insert(json!(value));
        }
        stored["status"] = json!({"podName": "a-1", "restartCount": 0});
    }
    stored
}

/// The rules of the definition that a write breaks, of the object itself and of all objects in it.
fn rules(schema: &Value, new: &Value, old: &Value, found: &mut Vec<String>) {
    if let Some(own) = schema.get("x-kubernetes-validations") {
        found.extend(broken(own, new, Some(old)));
    }
    for (name, below) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if let (Some(new), Some(old)) = (new.get(name), old.get(name)) {
            rules(below, new, old, found);
        }
    }
}

/// Writes `new` over `old`.
fn accepted(kind: &str, mut new: Value, old: &Value, what: &str) {
    let errors = admit(kind, &mut new, Some(old)).errors;
    assert_eq!(errors, [], "{what}: {new}");
    assert_eq!(new["spec"], old["spec"], "{what}");
    if let Some(status) = old.get("status") {
        new["status"] = status.clone();
    }
    let mut found = Vec::new();
    rules(&object_schemas()[kind], &new, old, &mut found);
    assert_eq!(found, [""; 0], "{what}: {new}");
}

/// Pointers of the fields below `value` that have a default, and those that the system fills in.
fn defaulted(schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let Some(below) = schema.pointer(&format!("/properties/{name}")) else { continue };
                let at = format!("{at}/{name}");
                if below.get("default").is_some() {
                    found.push(at.clone());
                }
                defaulted(below, field, &at, found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                defaulted(&schema["items"], item, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn an_unchanged_object_is_accepted() {
    for file in examples() {
        let kind = file["kind"].as_str().unwrap();
        let old = stored(kind, &file);
        accepted(kind, file.clone(), &old, "replaced by its file");
        accepted(kind, old.clone(), &old, "edited without a change");
        let mut fields = Vec::new();
        defaulted(&object_schemas()[kind], &old, "", &mut fields);
        if kind == "VirtualMachine" {
            fields.extend(["/spec/cpuScalingMode", "/spec/targetArchitecture"].map(str::to_owned));
        }
        // A default that the file has in another value is a change if it is left out.
        fields.retain(|field| file.pointer(field).is_none());
        for field in fields {
            let (parent, name) = field.rsplit_once('/').unwrap();
            let mut new = old.clone();
            new.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name);
            accepted(kind, new.clone(), &old, &format!("without {field}"));
            new.pointer_mut(parent).unwrap()[name] = Value::Null;
            accepted(kind, new, &old, &format!("with null for {field}"));
        }
    }
}

#[test]
fn a_migration_that_is_cancelled_stays_so() {
    let file = json!({"kind": "VirtualMachineMigration", "metadata": {"name": "m"}, "spec": {"vmName": "a"}});
    let mut old = stored("VirtualMachineMigration", &file);
    old["spec"]["cancel"] = json!(true);
    accepted("VirtualMachineMigration", file, &old, "replaced by its file");
}
