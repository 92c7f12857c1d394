//! Features that the CPU of a guest would have, from QEMU itself: another process of it is started for that, without a
//! machine.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::accelerator::Accelerator;
use crate::architecture::Architecture;
use crate::installation::Installation;
use crate::patience::scaled;

/// Time that QEMU has to answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// Properties of an expanded model that are no features.
const NO_FEATURES: [&str; 1] = ["lmce"];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuModel {
    /// Manufacturer that it names, such as `GenuineIntel`.
    pub vendor: String,
    /// Features by QEMU's names. Empty if QEMU does not list them: it does for x86-64 only.
    pub features: BTreeSet<String>,
    /// Features of the model that cannot be had with this accelerator on this host.
    pub missing: BTreeSet<String>,
}

/// Why nothing is known about a CPU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuModelError {
    /// QEMU has no such model.
    #[error("QEMU {version} has no CPU model {name:?}; it has {}", known.join(", "))]
    Unknown { version: String, name: String, known: Vec<String> },
    /// QEMU did not answer.
    #[error("QEMU does not list the features of its CPU models: {0}")]
    Unanswered(String),
}

/// The CPU that a guest would have with `model` (QEMU's name; `None`: the accelerator's own). Takes at most 5 s.
///
/// # Errors
/// If QEMU does not know the model or does not answer.
pub async fn query(
    installation: &Installation,
    accelerator: Accelerator,
    model: Option<&str>,
) -> Result<CpuModel, CpuModelError> {
    let architecture = installation.architecture;
    if architecture != Architecture::Amd64 {
        return Ok(CpuModel::default());
    }
    let option = match model {
        Some(name) => crate::plan::cpu_option(name, accelerator, architecture),
        None => accelerator.cpu_option(architecture).to_owned(),
    };
    let (name, properties) = split(&option);
    let text =
        tokio::time::timeout(scaled(DEADLINE), ask(installation, accelerator, name, &properties)).await;
    let text = text
        .map_err(|_| {
            CpuModelError::Unanswered(format!("it does not answer within {} s", scaled(DEADLINE).as_secs()))
        })?
        .map_err(|error| CpuModelError::Unanswered(error.to_string()))?;
    read(&text, name, &installation.version.to_string())
}

/// A value of `-cpu` as name and properties.
fn split(option: &str) -> (&str, Map<String, Value>) {
    let mut parts = option.split(',');
    let name = parts.next().unwrap_or_default();
    let property = |part: &str| {
        let (key, value) = part.split_once('=')?;
        Some((key.trim().to_owned(), Value::Bool(value == "on")))
    };
    (name, parts.filter_map(property).collect())
}

/// Everything that QEMU prints.
async fn ask(
    installation: &Installation,
    accelerator: Accelerator,
    name: &str,
    properties: &Map<String, Value>,
) -> std::io::Result<String> {
    let mut command = Command::new(&installation.program);
    command
        .args(["-machine", "none", "-accel", accelerator.as_str(), "-nodefaults", "-no-user-config"])
        .args(["-display", "none", "-S", "-qmp", "stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = command.spawn()?;
    let mut input = child.stdin.take();
    let orders = [
        json!({"execute": "qmp_capabilities"}),
        json!({"execute": "query-cpu-definitions", "id": "definitions"}),
        json!({"execute": "query-cpu-model-expansion", "id": "expansion",
            "arguments": {"type": "static", "model": {"name": name, "props": properties}}}),
        json!({"execute": "quit"}),
    ];
    if let Some(input) = &mut input {
        for order in orders {
            input.write_all(format!("{order}\n").as_bytes()).await?;
        }
    }
    let output = child.wait_with_output().await?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[derive(Deserialize)]
struct Answer {
    id: String,
    #[serde(default)]
    r#return: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Definition {
    name: String,
    #[serde(default)]
    unavailable_features: BTreeSet<String>,
    #[serde(default)]
    deprecated: bool,
    /// Another name of a model, which depends on the machine type.
    alias_of: Option<String>,
}

fn read(text: &str, name: &str, version: &str) -> Result<CpuModel, CpuModelError> {
    let answers: Vec<Answer> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let answer = |id: &str| answers.iter().find(|answer| answer.id == id).map(|answer| &answer.r#return);
    let unread = |what: &str| CpuModelError::Unanswered(format!("no answer to {what}"));
    let definitions = answer("definitions").ok_or_else(|| unread("query-cpu-definitions"))?;
    let definitions: Vec<Definition> = serde_json::from_value(definitions.clone())
        .map_err(|error| CpuModelError::Unanswered(format!("query-cpu-definitions: {error}")))?;
    let Some(definition) = definitions.iter().find(|definition| definition.name == name) else {
        let usable = |one: &&Definition| !one.deprecated && one.alias_of.is_none();
        let mut known: Vec<String> =
            definitions.iter().filter(usable).map(|definition| definition.name.clone()).collect();
        known.sort();
        return Err(CpuModelError::Unknown { version: version.to_owned(), name: name.to_owned(), known });
    };
    let expansion = answer("expansion").and_then(|expansion| expansion.pointer("/model/props"));
    let properties =
        expansion.and_then(Value::as_object).ok_or_else(|| unread("query-cpu-model-expansion"))?;
    let is_feature = |(key, value): &(&String, &Value)| {
        **value == Value::Bool(true) && !NO_FEATURES.contains(&key.as_str())
    };
    let missing = definition.unavailable_features.clone();
    let features = properties.iter().filter(is_feature).map(|(key, _)| key.clone());
    let features = features.filter(|key| !missing.contains(key)).collect();
    let vendor = properties.get("vendor").and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(CpuModel { vendor, features, missing })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"{"QMP": {"version": {}}}
{"return": {}}
{"return": [{"name": "EPYC-v1", "unavailable-features": ["sha-ni"]}, {"name": "EPYC", "alias-of": "EPYC-v1"}, {"name": "old", "deprecated": true}, {"name": "486-v1"}], "id": "definitions"}
{"return": {"model": {"name": "base", "props": {"avx": true, "sha-ni": true, "lmce": true, "mpx": false, "vendor": "AuthenticAMD", "family": 23}}}, "id": "expansion"}
"#;

    fn set(words: &[&str]) -> BTreeSet<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_cpu_has_the_features_of_its_model_that_can_be_had() {
        let found = read(OUTPUT, "EPYC-v1", "7.2.22").unwrap();
        let expected =
            CpuModel { vendor: "AuthenticAMD".into(), features: set(&["avx"]), missing: set(&["sha-ni"]) };
        assert_eq!(found, expected);
    }

    #[test]
    fn models_that_are_not_there_are_refused_with_those_that_are() {
        let error = read(OUTPUT, "Nothing", "7.2.22").unwrap_err().to_string();
        assert_eq!(error, r#"QEMU 7.2.22 has no CPU model "Nothing"; it has 486-v1, EPYC-v1"#);
        for text in ["", "garbage", OUTPUT.lines().nth(2).unwrap()] {
            assert!(matches!(read(text, "EPYC-v1", "7"), Err(CpuModelError::Unanswered(_))), "{text}");
        }
    }

    #[test]
    fn options_are_split() {
        let (name, properties) = split("EPYC-v1,erms=off, aes=on,enforce");
        assert_eq!(name, "EPYC-v1");
        assert_eq!(Value::Object(properties), json!({"erms": false, "aes": true}));
    }

    #[tokio::test]
    async fn a_qemu_that_does_not_answer_is_an_error() {
        let version = crate::installation::Version { major: 7, minor: 2, micro: 0 };
        let with =
            |program: &str, architecture| Installation { program: program.into(), version, architecture };
        let error = query(&with("/no/such", Architecture::Amd64), Accelerator::Tcg, None).await.unwrap_err();
        assert!(matches!(error, CpuModelError::Unanswered(_)), "{error}");
        let error = query(&with("/bin/true", Architecture::Amd64), Accelerator::Tcg, None).await.unwrap_err();
        assert!(matches!(error, CpuModelError::Unanswered(_)), "{error}");
        let arm = query(&with("/no/such", Architecture::Arm64), Accelerator::Tcg, None).await;
        assert_eq!(arm, Ok(CpuModel::default()));
    }
}
