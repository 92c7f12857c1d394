//! `local list`, `local status` and `local kubeconfig`

use serde_json::json;

use crate::args::local::{List, One, Which};
use crate::connect::{Connection, block_on};
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::instance::{self, Instance, State};
use crate::render::{age, sort};
use crate::report::{API_VERSION, Document, Report, left, right, wide};
use crate::settings::Settings;

pub(crate) fn list(env: &Env, settings: &Settings, args: &List) -> Result<Report> {
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

pub(crate) fn status(env: &Env, settings: &Settings, args: &One) -> Result<Report> {
    let instance = instance::named(env, settings, &args.which)?;
    instance.demand()?;
    let limit = settings.duration("request-timeout", args.request_timeout.as_deref())?;
    let name = &instance.name;
    let down = |text: String| {
        Error::new(Code::Unhealthy, text).hint(format!("start it: neonctl local up --name {name}"))
    };
    match instance.state() {
        State::Running(_) => {}
        State::Stopped => return Err(down(format!("local cluster {name:?} is stopped"))),
        State::Ended(process) => {
            return Err(down(format!(
                "local cluster {name:?} is not running: process {} ended without being stopped",
                process.pid
            )));
        }
    }
    block_on(async {
        let connection = Connection::local(settings, &instance.kubeconfig(), limit).await?;
        let report = crate::commands::status::report(&connection, name, None).await?;
        Ok(super::firewall(&instance).into_iter().fold(report, Report::note))
    })
}

pub(crate) fn kubeconfig(env: &Env, settings: &Settings, which: &Which) -> Result<Report> {
    let instance = instance::named(env, settings, which)?;
    instance.demand()?;
    let path = instance.kubeconfig();
    if !path.exists() {
        return Err(Error::new(
            Code::Conflict,
            format!("local cluster {:?} has not started yet", instance.name),
        )
        .hint(format!("start it: neonctl local up --name {}", instance.name)));
    }
    let path = path.display().to_string();
    Ok(Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "LocalKubeconfig", "name": instance.name, "kubeconfig": path }),
        names: vec![format!("localcluster/{}", instance.name)],
        text: Some(path.clone()),
        columns: vec![left("NAME"), left("KUBECONFIG")],
        rows: vec![vec![instance.name, path]],
    }))
}
