//! `config`

pub(super) mod service;

use serde_json::{Value, json};

use crate::args::config::{Set, Unset, View};
use crate::error::Result;
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

/// Where the configuration file is, whether it exists or not.
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
