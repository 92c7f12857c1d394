//! `local down`

use std::time::Duration;

use serde_json::json;

use crate::args::local::Down;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::instance::{self, Instance};
use crate::report::{API_VERSION, Document, Report, left};
use crate::settings::Settings;

/// Stops clusters, and forgets them if asked to.
pub(crate) fn run(env: &Env, settings: &Settings, args: &Down) -> Result<Report> {
    let limit = settings.duration("timeout", args.timeout.as_deref())?;
    let chosen = if args.all {
        instance::all(&instance::root(env, settings, &args.which.root)?)
    } else {
        let one = instance::named(env, settings, &args.which)?;
        one.demand()?;
        vec![one]
    };
    let mut report = Report::document(Document::default());
    let mut items = Vec::new();
    let mut document = Document { columns: vec![left("NAME"), left("RESULT")], ..Document::default() };
    for instance in chosen {
        let ran = down(&instance, limit, args.delete)?;
        let result = if args.delete {
            "deleted"
        } else if ran {
            "stopped"
        } else {
            "was not running"
        };
        report.notes.push(format!("local cluster {:?}: {result}", instance.name));
        items.push(json!({ "apiVersion": API_VERSION, "kind": "LocalCluster", "name": instance.name,
            "status": if args.delete { "deleted" } else { "stopped" }, "ran": ran }));
        document.names.push(format!("localcluster/{}", instance.name));
        document.rows.push(vec![instance.name, result.to_owned()]);
    }
    document.value = json!({ "apiVersion": API_VERSION, "kind": "LocalClusterList", "items": items });
    // People read the notes; nothing is left to say on standard output.
    document.text = Some(String::new());
    report.body = crate::report::Body::Document(document);
    Ok(report)
}

fn down(instance: &Instance, limit: Duration, delete: bool) -> Result<bool> {
    let lock = instance.lock()?;
    let ran = instance.stop(limit)?;
    if delete {
        let directory = &instance.directory;
        std::fs::remove_dir_all(directory).map_err(|error| Error::file("remove", directory, &error))?;
        // Our own directories above go too if nothing else is in them; one that the user named stays.
        let ours = directory.ancestors().skip(1).take(2).filter(|_| ours(directory));
        ours.for_each(|above| drop(std::fs::remove_dir(above)));
    }
    drop(lock);
    Ok(ran)
}

/// Whether it lies in the directory that nobody had to name.
fn ours(directory: &std::path::Path) -> bool {
    directory.parent().is_some_and(|root| root.ends_with("neonctl/local"))
}
