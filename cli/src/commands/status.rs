//! `status`: a row for each component of a cluster, and one for each other finding about its services.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::checks::component::Component;
use super::checks::{self, Facts, Finding, Group, Source, Verdict, definitions, read};
use super::object::text;
use crate::args::cluster::Status;
use crate::connect::{Connection, block_on};
use crate::error::{Code, Result};
use crate::report::{API_VERSION, Document, Report, left};
use crate::settings::Settings;

/// The report on a cluster; the exit code is the verdict.
pub(super) async fn report(connection: &Connection, name: &str, namespace: Option<&str>) -> Result<Report> {
    let namespace = read::installed(connection, namespace).await?;
    let mut facts = read::begin(connection, &namespace).await?;
    let ready = connection.text("/readyz").await.is_ok();
    read::more(connection, &mut facts, &checks::needs(&[Group::Services, Group::Objects])).await?;
    Ok(shown(&facts, name, &connection.server, ready))
}

fn shown(facts: &Facts, name: &str, address: &str, ready: bool) -> Report {
    let (present, missing) = definitions(facts);
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let server = Component {
        name: "api-server",
        is_well: Some(ready),
        note: format!("{} at {address}", facts.version),
        ..Component::default()
    };
    let defined = Component {
        name: "definitions",
        ready: Some((count(present.len()), count(present.len() + missing.len()))),
        is_well: Some(missing.is_empty()),
        note: if missing.is_empty() { String::new() } else { format!("missing {}", missing.join(", ")) },
        ..Component::default()
    };
    let (components, nodes, others) = (facts.components(), nodes(facts), others(facts));
    let absent = facts.is_absent();
    let all = [&server, &defined].into_iter().chain(&components).chain([&nodes]).chain(&others);
    let healthy = !absent && all.clone().all(|component| component.is_well != Some(false));
    let rows = all.map(Component::cells).chain([vms(facts)]).collect();
    let value = json!({ "apiVersion": API_VERSION, "kind": "Status", "healthy": healthy, "namespace": facts.namespace,
        "apiServer": { "server": address, "version": facts.version, "ready": ready },
        "definitions": { "installed": present, "missing": missing },
        "components": components.iter().chain(&others).map(Component::json).collect::<Vec<_>>(),
        "vmController": working(&components, "vm-controller", &json!({ "unattended": facts.unattended() })),
        "scheduler": working(&components, "scheduler", &json!({ "waiting": facts.waiting() })),
        "podAutoscaler": working(&components, "pod-autoscaler",
            &json!({ "unattended": facts.unattended_autoscalers(), "total": facts.all(Source::Autoscalers).len() })),
        "nodes": { "ready": facts.all(Source::Nodes).len() - facts.unready().len(), "total": facts.all(Source::Nodes).len(),
            "notReady": facts.unready().into_iter().map(|(name, why)| json!({ "name": name, "reason": why })).collect::<Vec<_>>() },
        "machines": { "total": facts.all(Source::Machines).len(), "phases": phases(facts.all(Source::Machines)),
            "troubled": facts.troubled().len() } });
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
            facts.namespace
        ),
        (false, true) => "healthy".to_owned(),
        (false, false) => "not healthy".to_owned(),
    };
    let mut report = Report::document(document).note(verdict);
    report.code = if healthy { 0 } else { Code::Unhealthy.number() };
    report
}

/// What checks of the services have found beside components: devices, versions, certificates.
fn others(facts: &Facts) -> Vec<Component> {
    if facts.is_absent() {
        return Vec::new();
    }
    let components = facts.components();
    let found = checks::findings(facts, Group::Services).into_iter();
    let is_other = |found: &Finding| components.iter().all(|component| component.name != found.name);
    let shown = |found: Finding| match found.verdict {
        Verdict::Ok => None,
        verdict => Some(Component {
            name: found.name,
            is_well: (verdict == Verdict::Fail).then_some(false),
            note: found.line(),
            ..Component::default()
        }),
    };
    found
        .filter(is_other)
        .filter(|found| found.name != "definitions" || found.verdict == Verdict::Warn)
        .filter_map(shown)
        .collect()
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

fn nodes(facts: &Facts) -> Component {
    let unready = facts.unready();
    let why: Vec<String> = unready.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    match facts.all(Source::Nodes).len() {
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
fn vms(facts: &Facts) -> Vec<String> {
    let mut shown: Vec<String> =
        phases(facts.all(Source::Machines)).iter().map(|(phase, count)| format!("{count} {phase}")).collect();
    let troubled = facts.troubled().len();
    if troubled > 0 {
        shown.push(format!("{troubled} with problems: see neonctl doctor"));
    }
    let note = if shown.is_empty() { "-".to_owned() } else { shown.join(", ") };
    let none = || "-".to_owned();
    vec!["vms".to_owned(), facts.all(Source::Machines).len().to_string(), none(), none(), none(), note]
}

fn phases(machines: &[Value]) -> BTreeMap<String, usize> {
    let mut phases = BTreeMap::new();
    for machine in machines {
        let phase = Some(text(machine, "/status/phase")).filter(|phase| !phase.is_empty());
        *phases.entry(phase.unwrap_or("New").to_owned()).or_insert(0) += 1;
    }
    phases
}

pub(super) fn status(settings: &Settings, args: &Status) -> Result<Report> {
    block_on(async {
        let connection = Connection::open(settings).await?;
        report(&connection, "cluster", args.namespace.as_deref()).await
    })
}

#[cfg(test)]
mod tests {
    use super::super::checks::facts::Part;
    use super::*;

    /// A node without devices, and a secret that is gone, are in the report and its verdict.
    #[test]
    fn findings_beside_components_are_shown() {
        let mut facts = Facts { namespace: "vms".into(), ..Facts::default() };
        let ready = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
        let put =
            |facts: &mut Facts, source, object: &Value| facts.put(source, Part::Read(vec![object.clone()]));
        put(&mut facts, Source::Nodes, &json!({ "metadata": { "name": "n1" }, "status": ready }));
        let labels = json!({ "app.kubernetes.io/name": "neonvm-node" });
        let pod = json!({ "metadata": { "name": "p", "labels": labels }, "spec": { "nodeName": "n1" }, "status": ready });
        put(&mut facts, Source::Pods, &pod);
        let workload = json!({ "kind": "DaemonSet", "metadata": { "name": "neonvm-agent" } });
        put(&mut facts, Source::Workloads, &workload);
        facts.put(Source::Authority, Part::Read(Vec::new()));
        let found: Vec<(&str, Option<bool>)> =
            others(&facts).iter().map(|component| (component.name, component.is_well)).collect();
        assert_eq!(found, [("devices", Some(false)), ("authority", Some(false))]);
        let report = shown(&facts, "cluster", "https://a", true);
        assert_eq!(report.code, Code::Unhealthy.number());
    }
}
