//! `config path`

use serde_json::json;

use crate::report::{API_VERSION, Document, Report, left};
use crate::settings::Settings;

/// Where the configuration file is, whether it exists or not.
pub(crate) fn run(settings: &Settings) -> Report {
    let path = settings.path().display().to_string();
    Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "ConfigPath", "path": path, "exists": settings.path().exists() }),
        names: vec![format!("configpath/{path}")],
        text: Some(path.clone()),
        columns: vec![left("PATH")],
        rows: vec![vec![path]],
    })
}
