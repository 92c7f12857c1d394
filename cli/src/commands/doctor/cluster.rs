//! `doctor`: the cluster that the kubeconfig names.

mod objects;

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::check::{Check, fail, ok, warn};
use crate::args::cluster::Doctor;
use crate::args::local::Root;
use crate::commands::health::{self, Clock, Service, View, text};
use crate::connect::Connection;
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::instance;
use crate::settings::Settings;

/// An answer that takes longer is slow.
const SLOW: Duration = Duration::from_secs(1);
/// Clocks that differ by more, in milliseconds, lead to wrong conclusions: the server's has whole seconds.
const SKEW: i64 = 2000;
/// Restarts of a service that are not worth a word.
const RESTARTS: u64 = 3;

/// Every check of the cluster; what cannot be reached ends them.
pub(super) async fn checks(env: &Env, settings: &Settings, args: &Doctor) -> Result<Vec<Check>> {
    let connection = match Connection::open(settings, &args.access).await {
        Ok(connection) => connection,
        Err(error) => return Ok(vec![told("kubeconfig", &error).at("client")]),
    };
    let mut checks = vec![ok("kubeconfig", connection.server.clone()).at("client")];
    let clock = match health::clock(&connection).await {
        Ok(clock) => clock,
        Err(error) => {
            checks.push(told("api", &error).at("cluster"));
            checks.extend(services(env, settings, &connection.server));
            return Ok(checks);
        }
    };
    checks.extend([latency(&clock), skew(&clock)]);
    checks.extend(services(env, settings, &connection.server));
    let view = match definitions(&connection).await {
        Ok(check) => {
            checks.push(check);
            health::view(&connection).await
        }
        Err(error) => Err(error),
    };
    match view {
        Ok(view) => checks.extend(of_view(view, args.node.as_deref())?),
        Err(error) => checks.push(told("objects", &error).at("cluster")),
    }
    Ok(checks)
}

/// An error as a check that failed.
fn told(name: &'static str, error: &Error) -> Check {
    let causes: String = error.causes.iter().map(|cause| format!(": {cause}")).collect();
    fail(name, format!("{}{causes}", error.message), error.hint.clone().unwrap_or_default())
}

fn latency(clock: &Clock) -> Check {
    let detail = format!("{} ms", clock.latency.as_millis());
    let check = if clock.latency > SLOW {
        warn(
            "api",
            format!("reachable, but slow: {detail}"),
            "look at the load of the API server and the network to it",
        )
    } else {
        ok("api", detail)
    };
    check.at("cluster")
}

fn skew(clock: &Clock) -> Check {
    let Some(server) = clock.server else {
        return ok("clock", "the server does not say what time it is").at("cluster");
    };
    // The server's time has been cut to whole seconds: on average half a one is missing.
    let difference = server.as_millisecond().saturating_add(500).saturating_sub(clock.own.as_millisecond());
    if difference.abs() <= SKEW {
        return ok("clock", "the server's is ours").at("cluster");
    }
    let way = if difference < 0 { "behind" } else { "ahead of" };
    let (seconds, tenths) = (difference.abs() / 1000, difference.abs() % 1000 / 100);
    warn(
        "clock",
        format!("the server's is {seconds}.{tenths} s {way} ours"),
        "synchronise the clocks, for example with chrony or systemd-timesyncd",
    )
    .at("cluster")
}

async fn definitions(connection: &Connection) -> Result<Check> {
    let (present, missing) = match health::definitions(connection).await {
        Err(error) if error.code == Code::Denied => {
            return Ok(warn(
                "definitions",
                "they may not be listed",
                "ask for the right to list customresourcedefinitions",
            )
            .at("cluster"));
        }
        found => found?,
    };
    let check = if missing.is_empty() {
        ok("definitions", format!("{} installed", present.len()))
    } else {
        let remedy = "on a local cluster: neonctl local up installs them";
        fail("definitions", format!("missing {}", missing.join(", ")), remedy)
    };
    Ok(check.at("cluster"))
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
    let root = instance::root(env, settings, &Root::default());
    let all = root.map(|root| instance::all(&root)).unwrap_or_default();
    let Some(found) = all.into_iter().find(|instance| instance.server().as_deref() == Some(server)) else {
        return Vec::new();
    };
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
        None => fail("service", format!("does not run; it was started again {restarts} times"), remedy),
        Some(pid) if *restarts > RESTARTS => {
            warn("service", format!("process {pid}, started again {restarts} times"), remedy)
        }
        Some(pid) => ok("service", format!("process {pid}")),
    };
    check.at(name.clone())
}

/// What the objects say.
fn of_view(mut view: View, node: Option<&str>) -> Result<Vec<Check>> {
    let mut checks = vec![
        known("vm-controller", &view.vm_controller(), "start it; on a local cluster see: neonctl local logs"),
        known(
            "scheduler",
            &view.scheduler(),
            "start a scheduler; on a local cluster see: neonctl local logs",
        ),
        known(
            "pod-autoscaler",
            &view.pod_autoscaler(),
            "start it; on a local cluster see: neonctl local logs",
        ),
    ];
    if let Some(node) = node {
        objects::only(&mut view, node);
        if view.nodes.is_empty() {
            return Err(Error::new(Code::NotFound, format!("node {node:?} not found"))
                .hint("see what there is: neonctl top nodes --once"));
        }
    }
    checks.extend(objects::nodes(&view));
    checks.extend(objects::versions(&view, env!("CARGO_PKG_VERSION")));
    checks.extend(objects::accelerators(&view));
    checks.extend(objects::machines(&view));
    checks.extend(objects::pods(&view));
    checks.extend(objects::autoscalers(&view));
    Ok(checks)
}

fn known(name: &'static str, service: &Service, remedy: &str) -> Check {
    match service {
        Service::Works(note) | Service::Unknown(note) => ok(name, note.clone()),
        Service::Fails(note) => fail(name, note.clone(), remedy),
    }
    .at("cluster")
}

#[cfg(test)]
mod tests;
