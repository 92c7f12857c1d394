//! `config`

use neonvm_api::service_config::{self, Converted};
use serde_json::{Value, json};

use crate::args::config::{Service, ServiceFile, Set, Unset, View};
use crate::commands::input;
use crate::error::{Code, Error, Result};
use crate::report::{API_VERSION, Document, Report, left};
use crate::settings::{KEYS, Origin, Settings};

pub(super) fn view(settings: &Settings, args: &View) -> Result<Report> {
    let mut document = Document { columns: vec![left("SETTING"), left("VALUE")], ..Document::default() };
    if args.show_origin {
        document.columns.push(left("ORIGIN"));
    }
    let mut items = Vec::new();
    for key in KEYS {
        let (value, origin) = settings.find(key.name)?;
        let origin = match origin {
            Origin::Environment(variable) => variable,
            Origin::File => settings.path().display().to_string(),
            Origin::Builtin => "built-in".to_owned(),
        };
        let mut item = json!({ "name": key.name, "value": value });
        let shown = if value.is_empty() { "-".to_owned() } else { value };
        let mut row = vec![key.name.to_owned(), shown];
        if args.show_origin {
            if let Some(item) = item.as_object_mut() {
                item.insert("origin".into(), Value::String(origin.clone()));
            }
            row.push(origin);
        }
        items.push(item);
        document.rows.push(row);
        document.names.push(format!("setting/{}", key.name));
    }
    document.value = json!({ "apiVersion": API_VERSION, "kind": "SettingList", "items": items });
    Ok(Report::document(document))
}

pub(super) fn set(settings: &Settings, args: &Set) -> Result<Report> {
    let mut settings = settings.clone();
    settings.store(&args.key, &args.value)?;
    Ok(Report::text(String::new()).note(format!(
        "{} is {:?} in {}",
        args.key,
        args.value,
        settings.path().display()
    )))
}

pub(super) fn unset(settings: &Settings, args: &Unset) -> Result<Report> {
    let mut settings = settings.clone();
    let path = settings.path().display().to_string();
    if !settings.remove(&args.key)? {
        return Ok(Report::text(String::new()).note(format!("{} is not in {path}", args.key)));
    }
    let report = Report::text(String::new()).note(format!("{} was removed from {path}", args.key));
    Ok(match settings.find(&args.key)? {
        (value, Origin::Environment(variable)) => {
            report.note(format!("{variable} still sets it to {value:?}"))
        }
        _ => report,
    })
}

pub(super) fn path(settings: &Settings) -> Report {
    let path = settings.path().display().to_string();
    Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "ConfigPath", "path": path, "exists": settings.path().exists() }),
        names: vec![format!("configpath/{path}")],
        text: Some(path.clone()),
        columns: vec![left("PATH")],
        rows: vec![vec![path]],
    })
}

pub(crate) fn convert(args: &ServiceFile) -> Result<Report> {
    let file = read(args)?;
    let text = serde_json::to_string_pretty(&file.document).unwrap_or_default();
    let mut report = Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "ServiceConfig", "service": name(args.kind),
            "config": file.document }),
        names: vec![format!("serviceconfig/{}", name(args.kind))],
        text: Some(text),
        columns: vec![left("SERVICE")],
        rows: vec![vec![name(args.kind).to_owned()]],
    });
    report.notes.extend(file.without_effect().map(|key| format!("{} has no effect: {}", key.key, key.text)));
    Ok(report)
}

pub(crate) fn explain(args: &ServiceFile) -> Result<Report> {
    let file = read(args)?;
    let mut document = Document {
        columns: vec![left("KEY"), left("VALUE"), left("EFFECT"), left("MEANING")],
        ..Document::default()
    };
    let mut items = Vec::new();
    for key in &file.keys {
        let effect = key.effect.to_string();
        let value = key.value.as_str().map_or_else(|| key.value.to_string(), str::to_owned);
        items.push(json!({ "key": key.key, "value": key.value, "effect": effect, "meaning": key.text }));
        document.names.push(format!("key/{}", key.key));
        document.rows.push(vec![key.key.clone(), value, effect, key.text.clone()]);
    }
    document.value = json!({ "apiVersion": API_VERSION, "kind": "ServiceConfigKeyList",
        "service": name(args.kind), "items": items });
    Ok(Report::document(document))
}

const fn name(service: Service) -> &'static str {
    match service {
        Service::Agent => "agent",
        Service::Scheduler => "scheduler",
    }
}

fn read(args: &ServiceFile) -> Result<Converted> {
    let (text, source) = input::read(&args.file)?;
    let unusable = || {
        Error::new(Code::Usage, format!("{source} is not a configuration file of the {}", name(args.kind)))
    };
    let text = in_config_map(&text, &source).map_err(|cause| unusable().cause(cause))?;
    let read = match args.kind {
        Service::Agent => service_config::agent(&text),
        Service::Scheduler => service_config::scheduler(&text),
    };
    let file = read.map_err(|error| unusable().cause(error.to_string()))?;
    if file.faults.is_empty() {
        return Ok(file);
    }
    Err(file.faults.into_iter().fold(unusable(), Error::cause))
}

/// The JSON text itself, or the one JSON file in ConfigMaps.
fn in_config_map(text: &str, source: &str) -> std::result::Result<String, String> {
    let maps = match input::objects(text, source) {
        Ok(maps) if maps.iter().any(|map| map.get("data").is_some()) => maps,
        // A file of a service is no Kubernetes object.
        _ if text.trim_start().starts_with('{') => return Ok(text.to_owned()),
        read => read.map_err(|error| error.causes.first().cloned().unwrap_or(error.message))?,
    };
    let files: Vec<(&String, &Value)> = maps
        .iter()
        .filter(|map| map.get("kind").is_some_and(|kind| kind == "ConfigMap"))
        .filter_map(|map| map.get("data")?.as_object())
        .flatten()
        .filter(|(name, _)| name.ends_with(".json"))
        .collect();
    match files.as_slice() {
        [(_, Value::String(file))] => Ok(file.clone()),
        [] => Err("it is neither JSON nor a ConfigMap with a JSON file".to_owned()),
        several => Err(format!("it has {} JSON files; extract the one to read", several.len())),
    }
}
