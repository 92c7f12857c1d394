//! `doctor`: the cluster that the kubeconfig names.

mod objects;

use std::path::Path;
use std::time::Duration;

use neonvm_deploy::Choice;
use serde::Deserialize;

use super::check::{Check, fail, ok, warn};
use crate::args::cluster::Doctor;
use crate::commands::health::{self, Clock, Component, View};
use crate::commands::install::apply::record;
use crate::commands::object::text;
use crate::commands::preflight;
use crate::connect::Connection;
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::instance;
use crate::settings::Settings;

/// An answer that takes longer is slow.
const SLOW: Duration = Duration::from_secs(1);
/// Clocks that differ by more, in milliseconds, lead to wrong conclusions: the server's has whole seconds.
const SKEW: i64 = 2000;
/// How notes begin about what could not be read.
const UNREAD: &str = "you lack permission";
/// Restarts of a service that are not worth a word.
const RESTARTS: u64 = 3;

/// Every check of the cluster; what cannot be reached ends them.
pub(super) async fn checks(env: &Env, settings: &Settings, args: &Doctor) -> Result<Vec<Check>> {
    let connection = match Connection::open(settings).await {
        Ok(connection) => connection,
        Err(error) => return Ok(vec![failed_check("kubeconfig", &error).at("client").in_group("cluster")]),
    };
    let mut checks = vec![ok("kubeconfig", connection.server.clone()).at("client")];
    let clock = match health::clock(&connection).await {
        Ok(clock) => clock,
        Err(error) => {
            checks.push(failed_check("api", &error).at("cluster"));
            checks.extend(services(env, settings, &connection.server));
            return Ok(grouped(checks, "cluster"));
        }
    };
    checks.extend([latency(&clock), skew(&clock)]);
    checks.extend(services(env, settings, &connection.server));
    let mut checks = grouped(checks, "cluster");
    if let Some(named) = &args.namespace {
        health::checked(named)?;
    }
    let namespace = health::installed(&connection, args.namespace.as_deref()).await;
    let view = match &namespace {
        Ok(namespace) => health::view(&connection, Some(namespace)).await,
        Err(error) => Err(error.clone()),
    };
    match view {
        Ok(view) => {
            match preflight(&connection, &view).await {
                Ok(found) => checks.extend(found),
                Err(error) => {
                    checks.push(failed_check("preflight", &error).at("cluster").in_group("preflight"));
                }
            }
            checks.extend(definitions(&connection, &view).await.map(|check| check.in_group("services")));
            checks.extend(of_view(view, args.node.as_deref())?);
        }
        Err(error) => checks.push(failed_check("objects", &error).at("cluster").in_group("objects")),
    }
    Ok(checks)
}

fn grouped(checks: Vec<Check>, group: &'static str) -> Vec<Check> {
    checks.into_iter().map(|check| check.in_group(group)).collect()
}

/// What an installation needs, or the one that there is. Who has no right to install may look on: that is no fault of the cluster.
async fn preflight(connection: &Connection, view: &View) -> Result<Vec<Check>> {
    let version = connection.json("/version").await?;
    let version = text(&version, "/gitVersion").to_owned();
    let choice = chosen(connection, view).await?;
    let image_volumes = preflight::image_volumes(connection).await?;
    let facts = neonvm_deploy::Facts { kubernetes: Some(version.clone()), image_volumes };
    let bad = |error: neonvm_deploy::Error| Error::new(Code::Failed, error.to_string());
    let values = choice.values().map_err(bad)?;
    let objects = neonvm_deploy::objects(&choice, &facts).map_err(bad)?;
    let checks = preflight::run(connection, &facts, &values, &objects).await?;
    let eased = |check: Check| if check.name == "rights" { check.at_most_warn() } else { check };
    Ok(checks.into_iter().map(eased).collect())
}

/// What was chosen at the installation, as far as it may be read; in its namespace.
async fn chosen(connection: &Connection, view: &View) -> Result<Choice> {
    let namespace = &view.parts.namespace;
    let mut choice = Choice::default();
    match record(connection, namespace).await {
        Ok(Some(found)) => {
            let mut read = Choice::default();
            if read.file(&found.values).is_ok() && read.values().is_ok() {
                choice = read;
            }
        }
        Ok(None) => {}
        Err(error) if error.code == Code::Denied => {}
        Err(error) => return Err(error),
    }
    // A name that a namespace can have; whether an installation may have it is no matter of this cluster's.
    let mut own = choice.clone();
    if own.put("namespace", serde_json::json!(namespace)).is_ok() && own.values().is_ok() {
        choice = own;
    }
    Ok(choice)
}

/// An error as a check that failed.
fn failed_check(name: &'static str, error: &Error) -> Check {
    let causes: String = error.causes.iter().map(|cause| format!(": {cause}")).collect();
    fail(name, format!("{}{causes}", error.message), error.hint.clone().unwrap_or_default())
}

fn latency(clock: &Clock) -> Check {
    let detail = format!("{} ms", clock.latency.as_millis());
    let check = if clock.latency > SLOW {
        warn(
            "api",
            format!("reachable, but slow: {detail}"),
            "check the load of the API server and the network to it",
        )
    } else {
        ok("api", detail)
    };
    check.at("cluster")
}

fn skew(clock: &Clock) -> Check {
    let Some(server) = clock.server else {
        return ok("clock", "the server does not report its time").at("cluster");
    };
    // The server's time has been cut to whole seconds: on average half a one is missing.
    let difference = server.as_millisecond().saturating_add(500).saturating_sub(clock.own.as_millisecond());
    if difference.abs() <= SKEW {
        return ok("clock", "the clocks of server and client agree").at("cluster");
    }
    let way = if difference < 0 { "behind" } else { "ahead of" };
    let (seconds, tenths) = (difference.abs() / 1000, difference.abs() % 1000 / 100);
    warn(
        "clock",
        format!("the server's clock is {seconds}.{tenths} s {way} this host's clock"),
        "synchronise the clocks, for example with chrony or systemd-timesyncd",
    )
    .at("cluster")
}

async fn definitions(connection: &Connection, view: &View) -> Option<Check> {
    let check = match health::definitions(connection).await {
        Err(error) => failed_check("definitions", &error),
        Ok((present, missing)) if missing.is_empty() => {
            ok("definitions", format!("{} installed", present.len()))
        }
        // Nothing is installed: that is reported of the services.
        Ok((present, _)) if present.is_empty() && view.is_absent() => return None,
        Ok((_, missing)) => fail(
            "definitions",
            format!("missing {}", missing.join(", ")),
            "install them: neonctl install, or on a local cluster neonctl local up",
        ),
    };
    Some(check.at("cluster"))
}

/// Every service of which something is known.
fn components(view: &View) -> Vec<Check> {
    let namespace = &view.parts.namespace;
    if view.is_absent() && view.machines.is_empty() {
        let found = "no pods and no leases of services in namespace";
        return vec![ok("services", format!("{found} {namespace}")).at("cluster")];
    }
    let check = |component: &Component| {
        let [_, ready, version, leader, _, note] = component.cells().try_into().ok()?;
        let check = match component.is_well {
            Some(false) => fail(
                component.name,
                if component.ready.is_some() { format!("{ready} ready: {note}") } else { note },
                format!(
                    "see the details: kubectl describe pods -n {namespace}; on a local cluster: neonctl local logs"
                ),
            ),
            None if component.note.starts_with(UNREAD) => {
                warn(component.name, note, format!("request the role view in namespace {namespace}"))
            }
            None if component.ready.is_none() => return None,
            _ => {
                let ready = component.ready.map(|_| format!("{ready} ready")).unwrap_or_default();
                let known = [&ready, &version, &leader, &note].map(String::as_str);
                let known: Vec<&str> = known.into_iter().filter(|text| !["", "-"].contains(text)).collect();
                ok(component.name, known.join(", "))
            }
        };
        Some(check.at(namespace.clone()))
    };
    view.components().iter().filter_map(check).collect()
}

/// A process of a local cluster, as its supervisor writes it to `services.json`.
#[derive(Clone, Debug, Deserialize)]
struct Process {
    name: String,
    #[serde(default)]
    pid: Option<u32>,
    #[serde(default)]
    restarts: u64,
}

/// The processes of the cluster, if it is one of this machine.
fn services(env: &Env, settings: &Settings, server: &str) -> Vec<Check> {
    let Some(found) = instance::of_server(env, settings, server) else { return Vec::new() };
    processes(&found.directory.join("services.json"))
        .into_iter()
        .map(|process| service(&process, &found.name))
        .collect()
}

fn processes(file: &Path) -> Vec<Process> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn service(process: &Process, cluster: &str) -> Check {
    let Process { name, pid, restarts } = process;
    let remedy = format!("see why: neonctl local logs --name {cluster}");
    let check = match pid {
        None => fail("service", format!("not running; restarted {restarts} times"), remedy),
        Some(pid) if *restarts > RESTARTS => {
            warn("service", format!("process {pid}, restarted {restarts} times"), remedy)
        }
        Some(pid) => ok("service", format!("process {pid}")),
    };
    check.at(name.clone())
}

/// What the objects show.
fn of_view(mut view: View, node: Option<&str>) -> Result<Vec<Check>> {
    let mut checks = components(&view);
    if let Some(node) = node {
        objects::only(&mut view, node);
        if view.nodes.is_empty() {
            return Err(Error::new(Code::NotFound, format!("node {node:?} not found"))
                .hint("list the nodes: neonctl top nodes"));
        }
    }
    checks.extend(objects::versions(&view, env!("CARGO_PKG_VERSION")));
    let mut checks = grouped(checks, "services");
    let found = [
        objects::nodes(&view),
        objects::accelerators(&view),
        objects::machines(&view),
        objects::pods(&view),
        objects::autoscalers(&view),
    ];
    checks.extend(grouped(found.concat(), "objects"));
    Ok(checks)
}

#[cfg(test)]
mod tests;
