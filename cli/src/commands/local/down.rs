//! `local down`

use std::io::BufRead as _;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

use crate::args::local::Down;
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::instance::{self, Instance};
use crate::render::Reporter;
use crate::report::{API_VERSION, Document, Report, left};
use crate::settings::Settings;

/// Stops clusters, and forgets them if asked to.
pub(crate) fn run(env: &Env, settings: &Settings, args: &Down, quiet: bool) -> Result<Report> {
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
        let volumes = volumes(&instance.directory);
        let ran = down(env, settings, &instance, limit, args.delete, quiet)?;
        let result = if args.delete {
            "deleted"
        } else if ran {
            "stopped"
        } else {
            "was not running"
        };
        let data = match (volumes, args.delete) {
            (0, _) => String::new(),
            (1, true) => ", with 1 persistent volume".to_owned(),
            (1, false) => "; 1 persistent volume stays".to_owned(),
            (count, true) => format!(", with {count} persistent volumes"),
            (count, false) => format!("; {count} persistent volumes stay"),
        };
        report.notes.push(format!("local cluster {:?}: {result}{data}", instance.name));
        items.push(json!({ "apiVersion": API_VERSION, "kind": "LocalCluster", "name": instance.name,
            "status": if args.delete { "deleted" } else { "stopped" }, "ran": ran }));
        document.names.push(format!("localcluster/{}", instance.name));
        document.rows.push(vec![instance.name, result.to_owned()]);
    }
    document.value = json!({ "apiVersion": API_VERSION, "kind": "LocalClusterList", "items": items });
    // People read the notes; standard output stays empty.
    document.text = Some(String::new());
    report.body = crate::report::Body::Document(document);
    Ok(report)
}

/// How many volumes of the class `local` the nodes of a cluster have.
fn volumes(directory: &std::path::Path) -> usize {
    let below = |path: std::path::PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
    below(directory.join("nodes")).map(|node| below(node.path().join("volumes")).count()).sum()
}

fn down(
    env: &Env,
    settings: &Settings,
    instance: &Instance,
    limit: Duration,
    delete: bool,
    quiet: bool,
) -> Result<bool> {
    let lock = instance.lock()?;
    let ran = instance.stop(limit)?;
    if instance.directory.join("nodes").exists() {
        // The whole time again: what slow services took is no reason to kill a database.
        clean_up(env, settings, instance, limit, delete, quiet)?;
    }
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

/// VMs outlive the services of their cluster; here they are stopped, and what nodes made on this machine is removed.
fn clean_up(
    env: &Env,
    settings: &Settings,
    instance: &Instance,
    longest: Duration,
    forget: bool,
    quiet: bool,
) -> Result<()> {
    let program = super::neond(env, settings)?;
    // Whole seconds, rounded up: with a second left a VM gets that second.
    let seconds = longest.as_millis().div_ceil(1000).to_string();
    let mut command = std::process::Command::new(&program);
    command
        .args(["local", "--clean-up", "--stop-timeout", &seconds, "--data-dir"])
        .arg(&instance.directory)
        .args(forget.then_some("--forget"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let failed = || Error::new(Code::Failed, format!("cannot clean up the nodes of {:?}", instance.name));
    let why = |error: std::io::Error| failed().cause(crate::error::reason(&error));
    let mut child = command.spawn().map_err(why)?;
    let reporter = Reporter::lines(quiet);
    // What it does and how long that may take is of use only while it does it.
    for line in child
        .stdout
        .take()
        .into_iter()
        .flat_map(|out| std::io::BufReader::new(out).lines().map_while(|line| line.ok()))
    {
        reporter.show(&line);
    }
    let output = child.wait_with_output().map_err(why)?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(failed().cause(text.trim().lines().next_back().unwrap_or_default()))
}

fn ours(directory: &std::path::Path) -> bool {
    directory.parent().is_some_and(|root| root.ends_with("neonctl/local"))
}
