//! Looking at a cluster: its API, our definitions, services, nodes, machines.

mod component;
mod look;
mod parts;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::install::apply;
use super::object::{is_true, items, text};
use crate::args::cluster::Status;
use crate::connect::{Connection, block_on};
use crate::error::{Code, Result};
use crate::report::{API_VERSION, Document, Report, left};
use crate::settings::Settings;

pub(super) use component::Component;
pub(super) use look::{Clock, checked, clock, installed, services, view};
pub(super) use parts::{Part, hooks};
pub(super) use view::View;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The report on a cluster; the exit code is the verdict.
pub(super) async fn report(connection: &Connection, name: &str, namespace: Option<&str>) -> Result<Report> {
    let version = connection.json("/version").await?;
    let version = version.get("gitVersion").and_then(Value::as_str).unwrap_or("unknown").to_owned();
    let ready = connection.text("/readyz").await.is_ok();
    let (present, missing) = definitions(connection).await?;
    let view = view(connection, namespace).await?;
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let server = Component {
        name: "api-server",
        is_well: Some(ready),
        note: format!("{version} at {}", connection.server),
        ..Component::default()
    };
    let defined = Component {
        name: "definitions",
        ready: Some((count(present.len()), count(present.len() + missing.len()))),
        is_well: Some(missing.is_empty()),
        note: if missing.is_empty() { String::new() } else { format!("missing {}", missing.join(", ")) },
        ..Component::default()
    };
    let (components, nodes) = (view.components(), nodes(&view));
    let absent = view.is_absent();
    let all = [&server, &defined].into_iter().chain(&components).chain([&nodes]);
    let healthy = !absent && all.clone().all(|component| component.is_well != Some(false));
    let rows = all.map(Component::cells).chain([vms(&view)]).collect();
    let value = json!({ "apiVersion": API_VERSION, "kind": "Status", "healthy": healthy, "namespace": view.parts.namespace,
        "apiServer": { "server": connection.server, "version": version, "ready": ready },
        "definitions": { "installed": present, "missing": missing },
        "components": components.iter().map(Component::json).collect::<Vec<_>>(),
        "vmController": working(&components, "vm-controller", &json!({ "unattended": view.unattended() })),
        "scheduler": working(&components, "scheduler", &json!({ "waiting": view.waiting() })),
        "podAutoscaler": working(&components, "pod-autoscaler",
            &json!({ "unattended": view.unattended_autoscalers(), "total": view.autoscalers.len() })),
        "nodes": { "ready": view.nodes.len() - view.unready().len(), "total": view.nodes.len(),
            "notReady": view.unready().into_iter().map(|(name, why)| json!({ "name": name, "reason": why })).collect::<Vec<_>>() },
        "machines": { "total": view.machines.len(), "phases": phases(&view.machines), "troubled": view.troubled().len() } });
    let document = Document {
        value,
        names: vec![format!("status/{name}")],
        text: None,
        columns: ["COMPONENT", "READY", "VERSION", "LEADER", "RENEWED", "NOTE"].map(left).to_vec(),
        rows,
    };
    let verdict = match (absent, healthy) {
        (true, _) => format!(
            "not installed: namespace {} has no service; install them: neonctl install",
            view.parts.namespace
        ),
        (false, true) => "healthy".to_owned(),
        (false, false) => "not healthy".to_owned(),
    };
    let mut report = Report::document(document).note(verdict);
    report.code = if healthy { 0 } else { Code::Unhealthy.number() };
    Ok(report)
}

/// What is known of a service, with more. `working` is null where nothing shows it.
fn working(components: &[Component], name: &str, more: &Value) -> Value {
    let found = components.iter().find(|component| component.name == name);
    let mut value = json!({ "working": found.and_then(|found| found.is_well),
        "note": found.map(|found| found.note.clone()).unwrap_or_default() });
    if let (Some(value), Some(more)) = (value.as_object_mut(), more.as_object()) {
        value.extend(more.clone());
    }
    value
}

fn nodes(view: &View) -> Component {
    let unready = view.unready();
    let why: Vec<String> = unready.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    match view.nodes.len() {
        0 => Component {
            name: "nodes",
            note: "there are none, or you lack permission to list nodes".to_owned(),
            ..Component::default()
        },
        all => Component {
            name: "nodes",
            ready: Some((count(all - unready.len()), count(all))),
            is_well: Some(unready.is_empty()),
            note: why.join("; "),
            ..Component::default()
        },
    }
}

/// The row of the VMs: how many there are of each phase, and how many have problems.
fn vms(view: &View) -> Vec<String> {
    let mut shown: Vec<String> =
        phases(&view.machines).iter().map(|(phase, count)| format!("{count} {phase}")).collect();
    let troubled = view.troubled().len();
    if troubled > 0 {
        shown.push(format!("{troubled} with problems: see neonctl doctor"));
    }
    let note = if shown.is_empty() { "-".to_owned() } else { shown.join(", ") };
    let none = || "-".to_owned();
    vec!["vms".to_owned(), view.machines.len().to_string(), none(), none(), none(), note]
}

/// Our definitions that are there and established, and those that are not.
pub(super) async fn definitions(connection: &Connection) -> Result<(Vec<String>, Vec<String>)> {
    let found = match items(connection, DEFINITIONS).await {
        Err(error) if error.code == Code::Denied => return served(connection).await,
        found => found?,
    };
    let established = |name: &String| {
        found.iter().any(|crd| {
            crd.pointer("/metadata/name").is_some_and(|found| found == name) && is_true(crd, "Established")
        })
    };
    Ok(names().into_iter().partition(established))
}

/// The same by discovery, which every user may read, for users who may not list definitions.
async fn served(connection: &Connection) -> Result<(Vec<String>, Vec<String>)> {
    let mut served = BTreeSet::new();
    for crd in neonvm_api::crds() {
        let group = text(&crd, "/spec/group");
        let versions = crd.pointer("/spec/versions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for version in versions {
            let path = format!("/apis/{group}/{}", text(version, "/name"));
            let list = match connection.json(&path).await {
                Err(error) if error.code == Code::NotFound => continue,
                list => list?,
            };
            let resources = list.get("resources").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            served.extend(resources.iter().map(|resource| format!("{}.{group}", text(resource, "/name"))));
        }
    }
    Ok(names().into_iter().partition(|name| served.contains(name)))
}

fn names() -> Vec<String> {
    let name = |crd: &Value| crd.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned);
    neonvm_api::crds().iter().filter_map(name).collect()
}

/// VMs by phase.
fn phases(machines: &[Value]) -> BTreeMap<String, usize> {
    let mut phases = BTreeMap::new();
    for machine in machines {
        let phase = Some(text(machine, "/status/phase")).filter(|phase| !phase.is_empty());
        *phases.entry(phase.unwrap_or("New").to_owned()).or_insert(0) += 1;
    }
    phases
}

/// Installs our definitions and waits until they are in force.
pub(super) async fn install(connection: &Connection) -> Result<()> {
    for crd in neonvm_api::crds() {
        apply::apply(connection, &crd).await?;
    }
    Ok(())
}

/// Health of the cluster that the kubeconfig names.
pub(super) fn status(settings: &Settings, args: &Status) -> Result<Report> {
    block_on(async {
        let connection = Connection::open(settings).await?;
        report(&connection, "cluster", args.namespace.as_deref()).await
    })
}
