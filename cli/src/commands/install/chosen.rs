//! From flags and files to what is chosen.

use neonvm_deploy::{Choice, Component, Record};
use serde_json::{Value, json};

use crate::args::install::Choices;
use crate::error::{Code, Error, Result};

/// An error about a value.
pub(crate) fn unusable(error: &neonvm_deploy::Error) -> Error {
    Error::new(Code::Usage, error.to_string()).hint("all values: deploy/chart/values.yaml")
}

pub(super) fn of_record(record: &Record) -> Result<Choice> {
    let mut choice = Choice::default();
    choice.file(&record.values).map_err(|error| {
        let message = format!("the values chosen for {} are no longer valid", record.version);
        Error::new(Code::Usage, message).cause(error.to_string()).hint("discard them: --reset-values")
    })?;
    Ok(choice)
}

/// The choices of the flags, over those made before: files, then `--set`, then flags of their own.
pub(crate) fn of_flags(args: &Choices, before: &Choice) -> Result<Choice> {
    let mut choice = before.clone();
    for file in &args.values {
        let text = std::fs::read_to_string(file).map_err(|error| Error::file("read", file, &error))?;
        choice.file(&text).map_err(|error| unusable(&error).cause(format!("in {}", file.display())))?;
    }
    for text in &args.set {
        choice.set(text).map_err(|error| unusable(&error))?;
    }
    for (path, value) in flags(args, &choice)? {
        choice.put(path, value).map_err(|error| unusable(&error))?;
    }
    Ok(choice)
}

fn flags(args: &Choices, choice: &Choice) -> Result<Vec<(&'static str, Value)>> {
    let mut all = Vec::new();
    let mut text = |path: &'static str, value: Option<&String>| {
        if let Some(value) = value {
            all.push((path, json!(value)));
        }
    };
    text("image.registry", args.registry.as_ref());
    text("image.version", args.version.as_ref());
    text("namespace", args.namespace.as_ref());
    text("runner.rootDisk", args.root_disk.as_ref());
    text("overlay.network", args.overlay.as_ref());
    text("overlay.encryption", args.encryption.as_ref());
    if let Some(kvm) = &args.kvm {
        let accelerator = match kvm.as_str() {
            "never" => "tcg",
            "require" => "kvm",
            other => other,
        };
        all.push(("runner.accelerator", json!(accelerator)));
    }
    if let Some(upstream) = args.upstream_agents {
        all.push(("scheduler.upstreamAgents", json!(upstream)));
    }
    if let Some(replicas) = args.replicas {
        all.push(("vmController.replicas", json!(replicas)));
        all.push(("scheduler.replicas", json!(replicas)));
        all.push(("podAutoscaler.replicas", json!(replicas)));
    }
    if let Some(components) = components(args, choice)? {
        all.push(("components", json!(components)));
    }
    Ok(all)
}

/// The components of `--components`, with or without the scheduler by `--scheduler`.
fn components(args: &Choices, choice: &Choice) -> Result<Option<Vec<String>>> {
    if args.components.is_empty() && args.scheduler.is_none() {
        return Ok(None);
    }
    let mut names = args.components.clone();
    if names.is_empty() {
        let values = choice.values().map_err(|error| unusable(&error))?;
        names = values.components.iter().map(|component| component.name().to_owned()).collect();
    }
    if let Some(bad) =
        names.iter().find(|name| Component::ALL.iter().all(|known| known.name() != name.as_str()))
    {
        let known: Vec<&str> = Component::ALL.iter().map(|component| component.name()).collect();
        return Err(Error::new(Code::Usage, format!("--components: there is no {bad:?}")).hint(format!(
            "components are {}; vxlan-controller is part of --overlay multus",
            known.join(", ")
        )));
    }
    let scheduler = Component::Scheduler.name();
    match args.scheduler.as_deref() {
        Some("none") => names.retain(|name| name != scheduler),
        Some(_) if names.iter().all(|name| name != scheduler) => names.push(scheduler.to_owned()),
        _ => {}
    }
    Ok(Some(names))
}
