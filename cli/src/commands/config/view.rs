//! `config view`

use serde_json::{Value, json};

use crate::args::config::View;
use crate::error::Result;
use crate::report::{API_VERSION, Document, Report, left};
use crate::settings::{KEYS, Origin, Settings};

/// Effective settings.
pub(crate) fn run(settings: &Settings, args: &View) -> Result<Report> {
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
