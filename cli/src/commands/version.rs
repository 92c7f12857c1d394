//! `version`

use serde_json::json;

use crate::report::{API_VERSION, Document, Report, left};

/// The version of this program.
pub(super) fn run() -> Report {
    let version = env!("CARGO_PKG_VERSION");
    Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "Version", "client": version }),
        names: vec![format!("version/{version}")],
        text: Some(format!("neonctl {version}")),
        columns: vec![left("CLIENT")],
        rows: vec![vec![version.to_owned()]],
    })
}
