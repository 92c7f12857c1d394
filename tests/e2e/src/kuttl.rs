//! Scenarios in the file format of kuttl, in which upstream writes its end-to-end tests: a directory of files
//! `NN-name.yaml` (a step), `NN-assert.yaml` (what becomes true after it) and `NN-errors.yaml` (what must not be there).
//!
//! <https://kuttl.dev/docs/testing/steps.html>. Supported: objects that are applied, objects that are asserted, and of `TestStep`
//! and `TestAssert` the fields `delete`, `commands` with `script`, and `timeout`. Anything else is refused. A list of an assertion
//! matches if each of its elements matches an element of the object's list: objects of this project have more conditions than
//! upstream's.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::client::{Error, documents};

/// Kinds of kuttl's own documents.
const GROUP: &str = "kuttl.dev/v1beta1";
/// Time for an assertion that states none, as in kuttl.
const PATIENCE: Duration = Duration::from_secs(30);

/// One step, and what it leads to.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Number and name of its file.
    pub name: String,
    /// References of objects that are deleted first.
    pub delete: Vec<Value>,
    /// Objects that are applied.
    pub apply: Vec<Value>,
    /// Shell scripts that run afterwards, once, and must succeed.
    pub scripts: Vec<String>,
    /// Objects that become part of what the cluster has.
    pub asserts: Vec<Value>,
    /// Shell scripts that come to succeed.
    pub assert_scripts: Vec<String>,
    /// Objects that are not there.
    pub errors: Vec<Value>,
    /// Time for the assertions.
    pub timeout: Duration,
}

impl Default for Step {
    fn default() -> Self {
        Self {
            name: String::new(),
            delete: Vec::new(),
            apply: Vec::new(),
            scripts: Vec::new(),
            asserts: Vec::new(),
            assert_scripts: Vec::new(),
            errors: Vec::new(),
            timeout: PATIENCE,
        }
    }
}

/// Reads the steps of a scenario, in order.
///
/// # Errors
/// If a file cannot be read, or has something that is not supported; the message names the file.
pub fn read(directory: &Path) -> Result<Vec<Step>, Error> {
    let failed =
        |path: &Path, error: &dyn std::fmt::Display| Error::Document(format!("{}: {error}", path.display()));
    let mut steps: BTreeMap<u32, Step> = BTreeMap::new();
    let entries = std::fs::read_dir(directory).map_err(|error| failed(directory, &error))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    for path in files {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let Some((number, name)) = stem.split_once('-') else { continue };
        let number: u32 = number.parse().map_err(|error| failed(&path, &error))?;
        let text = std::fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
        let step = steps.entry(number).or_default();
        if !matches!(name, "assert" | "errors") {
            step.name = stem.clone();
        }
        for document in documents(&text).map_err(|error| failed(&path, &error))? {
            add(step, name, document).map_err(|error| failed(&path, &error))?;
        }
    }
    Ok(steps.into_values().collect())
}

fn add(step: &mut Step, file: &str, document: Value) -> Result<(), String> {
    let word = |field: &str| document.get(field).and_then(Value::as_str);
    if word("apiVersion") != Some(GROUP) {
        match file {
            "assert" => step.asserts.push(document),
            "errors" => step.errors.push(document),
            _ => step.apply.push(document),
        }
        return Ok(());
    }
    let is_assert = match (word("kind"), file) {
        (Some("TestStep"), file) if !matches!(file, "assert" | "errors") => false,
        (Some("TestAssert"), "assert") => true,
        (kind, _) => return Err(format!("kind {} has no place in this file", kind.unwrap_or("(none)"))),
    };
    for (field, value) in document.as_object().into_iter().flatten() {
        match (field.as_str(), is_assert) {
            ("apiVersion" | "kind" | "unitTest", _) => {}
            ("timeout", true) => {
                let seconds = value.as_u64().ok_or("timeout: a number of seconds")?;
                step.timeout = Duration::from_secs(seconds);
            }
            ("delete", false) => step.delete = value.as_array().cloned().ok_or("delete: a list")?,
            ("commands", is_assert) => {
                let scripts = scripts(value)?;
                if is_assert { step.assert_scripts = scripts } else { step.scripts = scripts }
            }
            _ => return Err(format!("{field} is not supported")),
        }
    }
    Ok(())
}

fn scripts(commands: &Value) -> Result<Vec<String>, String> {
    let commands = commands.as_array().ok_or("commands: a list")?;
    let script = |command: &Value| command.get("script").and_then(Value::as_str).map(str::to_owned);
    commands
        .iter()
        .map(|command| script(command).ok_or("commands: only script is supported".to_owned()))
        .collect()
}

/// The first difference of what is expected from what there is: its path, and both values.
#[must_use]
pub fn difference(expected: &Value, actual: &Value) -> Option<String> {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => expected.iter().find_map(|(key, value)| {
            let inner = difference(value, actual.get(key).unwrap_or(&Value::Null))?;
            Some(format!(".{key}{inner}"))
        }),
        (Value::Array(expected), Value::Array(actual)) => expected.iter().find_map(|value| {
            let found = actual.iter().any(|candidate| difference(value, candidate).is_none());
            (!found).then(|| format!(": no element matches {value}"))
        }),
        _ if expected == actual => None,
        _ => Some(format!(": expected {expected}, found {actual}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_expected_is_a_part_of_what_there_is() {
        let actual = json!({ "status": { "cpus": "250m", "conditions": [
            { "type": "Degraded", "status": "False" }, { "type": "Available", "status": "True", "reason": "Ready" }] } });
        let is = |expected: Value| difference(&expected, &actual);
        assert_eq!(
            is(json!({ "status": { "conditions": [{ "type": "Available", "status": "True" }] } })),
            None
        );
        assert_eq!(
            is(json!({ "status": { "cpus": 1 } })).as_deref(),
            Some(".status.cpus: expected 1, found \"250m\"")
        );
        let missing = is(json!({ "status": { "conditions": [{ "type": "Available", "status": "False" }] } }));
        assert!(missing.is_some_and(|text| text.starts_with(".status.conditions: no element matches")));
        assert!(is(json!({ "spec": {} })).is_some());
    }

    #[test]
    fn every_scenario_is_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
            let steps = read(&entry.path()).unwrap();
            assert!(steps.iter().all(|step| !step.name.is_empty()), "{entry:?}: an assertion without a step");
            count += steps.len();
        }
        assert!(count > 10);
    }

    #[test]
    fn files_make_steps() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        write(
            "00-create.yaml",
            "apiVersion: kuttl.dev/v1beta1\nkind: TestStep\nunitTest: false\n---\napiVersion: v1\nkind: Secret\n",
        );
        write(
            "00-assert.yaml",
            "apiVersion: kuttl.dev/v1beta1\nkind: TestAssert\ntimeout: 90\n---\napiVersion: v1\nkind: Secret\n",
        );
        write(
            "01-run.yaml",
            "apiVersion: kuttl.dev/v1beta1\nkind: TestStep\ncommands: [{ script: 'true' }]\n",
        );
        write("README.md", "no step");
        let steps = read(directory.path()).unwrap();
        assert_eq!(steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>(), ["00-create", "01-run"]);
        assert_eq!((steps[0].apply.len(), steps[0].asserts.len(), steps[0].timeout.as_secs()), (1, 1, 90));
        assert_eq!((steps[1].scripts.clone(), steps[1].timeout), (vec!["true".to_owned()], PATIENCE));
        for (name, text, why) in [
            (
                "02-a.yaml",
                "apiVersion: kuttl.dev/v1beta1\nkind: TestStep\nkubeconfig: x\n",
                "kubeconfig is not supported",
            ),
            ("02-a.yaml", "apiVersion: kuttl.dev/v1beta1\nkind: TestAssert\n", "TestAssert has no place"),
            (
                "02-a.yaml",
                "apiVersion: kuttl.dev/v1beta1\nkind: TestStep\ncommands: [{ command: x }]\n",
                "only script",
            ),
        ] {
            write(name, text);
            let error = read(directory.path()).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(name), "{error}");
        }
    }
}
