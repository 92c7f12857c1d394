//! Looking at a cluster: its API, our definitions, nodes, machines.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::connect::Connection;
use crate::error::{Code, Result};
use crate::report::{API_VERSION, Document, Report, left};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MACHINES: &str = "/apis/vm.neon.tech/v1/virtualmachines";

/// One thing that was looked at.
struct Row {
    component: &'static str,
    ready: String,
    note: String,
    good: bool,
}

/// The report on a cluster; the exit code is the verdict.
pub(super) async fn report(connection: &Connection, name: &str) -> Result<Report> {
    let version = connection.json("/version").await?;
    let version = version.get("gitVersion").and_then(Value::as_str).unwrap_or("unknown").to_owned();
    let ready = connection.text("/readyz").await.is_ok();
    let (present, missing) = definitions(connection).await?;
    let nodes = items(connection, "/api/v1/nodes").await?;
    let ready_nodes = nodes.iter().filter(|node| is_true(node, "Ready")).count();
    let phases = phases(connection).await?;
    let total: usize = phases.values().sum();
    let shown = phases.iter().map(|(phase, count)| format!("{count} {phase}")).collect::<Vec<_>>().join(", ");
    let rows = [
        Row {
            component: "api-server",
            ready: yes(ready),
            note: format!("{version} at {}", connection.server),
            good: ready,
        },
        Row {
            component: "definitions",
            ready: format!("{}/{}", present.len(), present.len() + missing.len()),
            note: if missing.is_empty() { "-".into() } else { format!("missing {}", missing.join(", ")) },
            good: missing.is_empty(),
        },
        Row {
            component: "nodes",
            ready: format!("{ready_nodes}/{}", nodes.len()),
            note: "-".into(),
            good: ready_nodes == nodes.len(),
        },
        Row {
            component: "machines",
            ready: total.to_string(),
            note: if total == 0 { "-".into() } else { shown },
            good: true,
        },
    ];
    let healthy = rows.iter().all(|row| row.good);
    let value = json!({ "apiVersion": API_VERSION, "kind": "Status", "healthy": healthy,
        "apiServer": { "server": connection.server, "version": version, "ready": ready },
        "definitions": { "installed": present, "missing": missing },
        "nodes": { "ready": ready_nodes, "total": nodes.len() },
        "machines": { "total": total, "phases": phases } });
    let document = Document {
        value,
        names: vec![format!("status/{name}")],
        text: None,
        columns: vec![left("COMPONENT"), left("READY"), left("NOTE")],
        rows: rows.into_iter().map(|row| vec![row.component.to_owned(), row.ready, row.note]).collect(),
    };
    let mut report = Report::document(document).note(if healthy { "healthy" } else { "not healthy" });
    report.code = if healthy { 0 } else { Code::Unhealthy.number() };
    Ok(report)
}

fn yes(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

fn is_true(object: &Value, condition: &str) -> bool {
    let conditions =
        object.pointer("/status/conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    conditions.iter().any(|found| {
        found.get("type").is_some_and(|kind| kind == condition)
            && found.get("status").is_some_and(|status| status == "True")
    })
}

async fn items(connection: &Connection, path: &str) -> Result<Vec<Value>> {
    let mut list = connection.json(path).await?;
    Ok(list.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default())
}

/// Our definitions that are there and established, and those that are not.
async fn definitions(connection: &Connection) -> Result<(Vec<String>, Vec<String>)> {
    let found = items(connection, DEFINITIONS).await?;
    let established = |name: &String| {
        found.iter().any(|crd| {
            crd.pointer("/metadata/name").is_some_and(|found| found == name) && is_true(crd, "Established")
        })
    };
    Ok(names().into_iter().partition(established))
}

fn names() -> Vec<String> {
    let name = |crd: &Value| crd.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned);
    neonvm_api::crds().iter().filter_map(name).collect()
}

/// Machines by phase.
async fn phases(connection: &Connection) -> Result<BTreeMap<String, usize>> {
    let machines = match items(connection, MACHINES).await {
        // Without the definition there are none.
        Err(error) if error.code == Code::NotFound => Vec::new(),
        machines => machines?,
    };
    let mut phases = BTreeMap::new();
    for machine in machines {
        let phase =
            machine.pointer("/status/phase").and_then(Value::as_str).filter(|phase| !phase.is_empty());
        *phases.entry(phase.unwrap_or("New").to_owned()).or_insert(0) += 1;
    }
    Ok(phases)
}

/// Installs our definitions and waits until they are in force.
pub(super) async fn install(connection: &Connection) -> Result<()> {
    for crd in neonvm_api::crds() {
        let name = crd.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let answer = connection.apply(&format!("{DEFINITIONS}/{name}"), &crd).await?;
        if is_true(&answer, "Established") {
            continue;
        }
        while !is_true(&connection.json(&format!("{DEFINITIONS}/{name}")).await?, "Established") {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
    Ok(())
}
