//! `local list`

use serde_json::json;

use crate::args::local::List;
use crate::env::Env;
use crate::error::Result;
use crate::instance::{self, Instance, State};
use crate::render::{age, sort};
use crate::report::{API_VERSION, Document, Report, left, right, wide};
use crate::settings::Settings;

/// Lists all clusters on this host.
pub(crate) fn run(env: &Env, settings: &Settings, args: &List) -> Result<Report> {
    let root = instance::root(env, settings, &args.root)?;
    let found = instance::all(&root);
    let mut document = Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "LocalClusterList", "items": found.iter().map(super::value).collect::<Vec<_>>() }),
        names: found.iter().map(|instance| format!("localcluster/{}", instance.name)).collect(),
        text: None,
        columns: vec![
            left("NAME"),
            left("STATUS"),
            right("PID"),
            left("SERVER"),
            left("AGE"),
            wide("DIRECTORY"),
        ],
        rows: found.iter().map(row).collect(),
    };
    if let Some(field) = &args.sort_by {
        // Shown ages are rounded; what they are made from is not.
        let field = if field.eq_ignore_ascii_case("age") { ".since" } else { field };
        sort(&mut document, field)?;
    }
    let report = Report::document(document);
    Ok(if found.is_empty() { report.note("no local clusters; start one: neonctl local up") } else { report })
}

fn row(instance: &Instance) -> Vec<String> {
    let state = instance.state();
    let (pid, since) = match &state {
        State::Running(process) => (process.pid.to_string(), age(process.since)),
        State::Ended(_) | State::Stopped => ("-".to_owned(), "-".to_owned()),
    };
    let server = instance.server().unwrap_or_else(|| "-".to_owned());
    vec![
        instance.name.clone(),
        super::word(&state).to_owned(),
        pid,
        server,
        since,
        instance.directory.display().to_string(),
    ]
}
