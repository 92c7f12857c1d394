//! `podautoscaler history`

use serde_json::json;

use super::events::{of_object, story};
use super::show;
use crate::args::podautoscaler::History;
use crate::commands::resource::client::NamespaceClient;
use crate::connect::block_on;
use crate::error::Result;
use crate::report::{API_VERSION, Document, Report, left};
use crate::settings::Settings;

/// What has happened, newest first.
pub(in crate::commands) fn run(settings: &Settings, args: &History) -> Result<Report> {
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let object = client.find(&args.name).await?;
        let events = of_object(&client, &object).await?;
        let entries = story(&object, &events);
        let report = Report::document(Document {
            value: json!({ "apiVersion": API_VERSION, "kind": "ScalingHistory", "name": args.name,
                "namespace": client.namespace, "items": entries.iter().map(super::events::Entry::json).collect::<Vec<_>>() }),
            names: vec![format!("podautoscaler/{}", args.name)],
            text: None,
            columns: ["AGE", "REPLICAS", "RESULT", "REASON", "MESSAGE"].map(left).into(),
            rows: entries.iter().map(super::events::Entry::cells).collect(),
        });
        if !entries.is_empty() {
            return Ok(report);
        }
        let why = show::message(&object);
        let why = if why.is_empty() { String::new() } else { format!("; {why}") };
        Ok(report.note(format!("nothing has been scaled yet{why}")))
    })
}
