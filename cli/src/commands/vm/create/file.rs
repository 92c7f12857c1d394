//! The VMs of a manifest.

use serde_json::Value;

use crate::commands::input;
use crate::commands::resource::nearest;
use crate::error::{Code, Error, Result};

const KIND: &str = "VirtualMachine";
const VERSION: &str = "vm.neon.tech/v1";
/// What a server sets. An object that was printed by one can be created again without it.
const OF_SERVER: [&str; 6] =
    ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"];

/// The VMs in a file, and notes about what else is in it. `name` replaces that of the one VM.
pub(super) fn read(file: &str, name: Option<&str>) -> Result<(Vec<Value>, Vec<String>)> {
    let (objects, source) = input::read_objects(file)?;
    let (mut machines, others): (Vec<Value>, Vec<Value>) = objects.into_iter().partition(is_machine);
    let others: Vec<String> = others.iter().map(reference).collect();
    if machines.is_empty() {
        let error = Error::new(Code::Usage, format!("{source} contains no VirtualMachine")).hint(
            "kind: VirtualMachine, apiVersion: vm.neon.tech/v1; for other objects use kubectl apply -f",
        );
        return Err(if others.is_empty() {
            error
        } else {
            error.cause(format!("it has {}", others.join(", ")))
        });
    }
    if let (Some(_), true) = (name, machines.len() > 1) {
        let all: Vec<String> = machines.iter().map(reference).collect();
        return Err(Error::new(
            Code::Usage,
            format!("{source} contains {} VMs, and one name is given", all.len()),
        )
        .cause(format!("it has {}", all.join(", ")))
        .hint("leave the name out: each VM gets that of its object"));
    }
    for machine in &mut machines {
        clean(machine);
        known(machine)?;
        rename(machine, name, &source)?;
    }
    let note = (!others.is_empty()).then(|| {
        format!(
            "not created, because only VMs are: {}; create them with kubectl apply -f {file}",
            others.join(", ")
        )
    });
    Ok((machines, note.into_iter().collect()))
}

fn is_machine(object: &Value) -> bool {
    object.get("kind").is_some_and(|kind| kind == KIND)
        && object.get("apiVersion").is_some_and(|version| version == VERSION)
}

/// As `ConfigMap/settings`; the version is there if the kind alone would mislead.
fn reference(object: &Value) -> String {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (kind, name) = (text("/kind"), text("/metadata/name"));
    let version = if kind == KIND && !is_machine(object) {
        format!(" of {:?}", text("/apiVersion"))
    } else {
        String::new()
    };
    if name.is_empty() { format!("{kind}{version}") } else { format!("{kind}/{name}{version}") }
}

/// An error if the object has fields that a server would drop.
fn known(object: &Value) -> Result<()> {
    let mut unknown = neonvm_api::crd::unknown_fields(KIND, object).into_iter();
    let Some(first) = unknown.next() else { return Ok(()) };
    let mut error = Error::new(Code::Usage, format!("unknown field {:?}", first.path));
    error.causes = unknown.map(|other| format!("unknown field {:?}", other.path)).collect();
    let name = first.path.rsplit('.').next().unwrap_or_default();
    Err(match nearest(name, &first.known) {
        Some(meant) => error.hint(format!("did you mean {meant:?}?")),
        None => error.hint(format!("there are: {}", first.known.join(", "))),
    })
}

fn clean(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|field, _| !OF_SERVER.contains(&field.as_str()));
        }
    }
}

/// Gives the object its name, and refuses one without.
fn rename(object: &mut Value, name: Option<&str>, source: &str) -> Result<()> {
    let Some(fields) = object.as_object_mut() else { return Ok(()) };
    let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(serde_json::Map::new()));
    let Some(metadata) = metadata.as_object_mut() else {
        return Err(Error::new(Code::Usage, "metadata: must be an object"));
    };
    if let Some(name) = name {
        metadata.insert("name".to_owned(), name.into());
    }
    let is_set =
        |field: &str| metadata.get(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    if is_set("name") || is_set("generateName") {
        return Ok(());
    }
    Err(Error::new(Code::Usage, format!("metadata.name: a VM of {source} has no name"))
        .hint(format!("give it one: neonctl vm create NAME -f {source}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(text: &str, name: Option<&str>) -> Result<(Vec<Value>, Vec<String>)> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read(file.path().to_str().unwrap(), name)
    }

    const MACHINE: &str = "apiVersion: vm.neon.tech/v1\nkind: VirtualMachine\n";

    #[test]
    fn a_field_that_would_be_dropped_is_refused() {
        let object = |guest: Value| json!({"kind": KIND, "spec": {"guest": guest}});
        known(&object(json!({"cpus": {"min": 1}, "memoryProvider": "DIMMSlots"}))).unwrap();
        let error = known(&object(json!({"cpu": {"min": 1}, "zone": 1}))).unwrap_err();
        assert_eq!(error.message, "unknown field \"spec.guest.cpu\"");
        assert_eq!(error.hint.as_deref(), Some("did you mean \"cpus\"?"));
        assert_eq!(error.causes, ["unknown field \"spec.guest.zone\""]);
    }

    #[test]
    fn vms_are_taken_and_others_are_named() {
        let text = format!(
            "apiVersion: kuttl.dev/v1beta1\nkind: TestStep\n---\n{MACHINE}metadata: {{name: a}}\n---\n{MACHINE}metadata: {{name: b}}\n\
             ---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\n"
        );
        let (machines, notes) = of(&text, None).unwrap();
        let names: Vec<&Value> = machines.iter().map(|machine| &machine["metadata"]["name"]).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(
            notes[0].starts_with("not created, because only VMs are: TestStep, ConfigMap/c; create them"),
            "{notes:?}"
        );
        let error = of(&text, Some("x")).unwrap_err();
        assert_eq!(error.causes, ["it has VirtualMachine/a, VirtualMachine/b"]);
        let error = of("apiVersion: v1\nkind: VirtualMachine\n", None).unwrap_err();
        assert_eq!(error.causes, ["it has VirtualMachine of \"v1\""]);
        assert_eq!(of("# nothing\n", None).unwrap_err().causes, [""; 0]);
    }

    #[test]
    fn an_object_that_was_printed_is_made_again() {
        let text = format!(
            "{MACHINE}metadata: {{name: a, uid: x, resourceVersion: '1', labels: {{a: b}}}}\nstatus: {{phase: Running}}\n"
        );
        let (machines, _) = of(&text, Some("b")).unwrap();
        let expected =
            json!({"apiVersion": VERSION, "kind": KIND, "metadata": {"name": "b", "labels": {"a": "b"}}});
        assert_eq!(machines, [expected]);
        assert_eq!(of(MACHINE, Some("b")).unwrap().0[0]["metadata"]["name"], "b");
        assert!(of(MACHINE, None).unwrap_err().message.starts_with("metadata.name"));
        of(&format!("{MACHINE}metadata: {{generateName: a-}}\n"), None).unwrap();
    }
}
