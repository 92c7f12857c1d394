//! `doctor`: the cluster that the kubeconfig names.

use std::path::Path;
use std::time::Duration;

use neonvm_deploy::Choice;
use serde::Deserialize;

use crate::args::cluster::Doctor;
use crate::commands::checks::finding::{Finding, fail, ok, warn};
use crate::commands::checks::{self, Facts, Group, Source, Wanted, read};
use crate::commands::install::apply::record;
use crate::commands::services::Services;
use crate::connect::Connection;
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::instance;
use crate::settings::Settings;

/// Restarts of a service that are not worth a word.
const RESTARTS: u64 = 3;
/// Time for the answers of all agents.
const AGENTS: Duration = Duration::from_secs(8);

/// Every check of the cluster; what cannot be reached ends them.
pub(super) async fn findings(env: &Env, settings: &Settings, args: &Doctor) -> Result<Vec<Finding>> {
    let connection = match Connection::open(settings).await {
        Ok(connection) => connection,
        Err(error) => return Ok(vec![failed("kubeconfig", "cluster", &error).at("client")]),
    };
    if let Some(named) = &args.namespace {
        read::checked(named)?;
    }
    let mut all = vec![ok("kubeconfig", connection.server.clone()).at("client")];
    let begun = read::begin(&connection, "").await;
    let processes = services(env, settings, &connection.server);
    let mut facts = match begun {
        Ok(facts) => facts,
        Err(error) => {
            all.push(failed("api", "cluster", &error));
            all.extend(processes);
            return Ok(all.into_iter().map(|found| found.in_group("cluster")).collect());
        }
    };
    all.extend(checks::findings(&facts, Group::Cluster));
    all.extend(processes);
    let mut all: Vec<Finding> = all.into_iter().map(|found| found.in_group("cluster")).collect();
    if let Err(error) = look(&connection, &mut facts, args).await {
        all.push(failed("objects", "objects", &error));
        return Ok(all);
    }
    match wanted(&connection, &mut facts).await {
        // A user without the right to install may look on: that is no fault of the cluster.
        Ok(()) => all.extend(
            checks::findings(&facts, Group::Preflight)
                .into_iter()
                .map(|found| if found.name == "rights" { found.at_most_warn() } else { found }),
        ),
        Err(error) => all.push(failed("preflight", "preflight", &error)),
    }
    all.extend(checks::findings(&facts, Group::Services));
    all.extend(objects(&mut facts, args.node.as_deref())?);
    Ok(all)
}

async fn look(connection: &Connection, facts: &mut Facts, args: &Doctor) -> Result<()> {
    facts.namespace = read::installed(connection, args.namespace.as_deref()).await?;
    read::more(connection, facts, &checks::needs(&Group::ALL)).await?;
    facts.silent_agents = silent(connection, facts).await;
    Ok(())
}

/// Why agents do not answer; none if they cannot be asked: a vm-controller that is away signs no certificate, and a user may lack the
/// right to one.
async fn silent(connection: &Connection, facts: &Facts) -> Option<Vec<String>> {
    let is_well = |name: &str| {
        facts.components().iter().any(|component| component.name == name && component.is_well == Some(true))
    };
    if !is_well("vm-controller") || facts.all(Source::Leases).is_empty() {
        return None;
    }
    let asked = async {
        let services = Services::open(connection, &facts.namespace).await.ok()?;
        Some(services.agents(None, None).await)
    };
    match tokio::time::timeout(AGENTS, asked).await {
        Ok(None) => None,
        Ok(Some(Ok((_, silent)))) => Some(silent),
        Ok(Some(Err(error))) if error.code == Code::NotFound => None,
        Ok(Some(Err(Error { message, causes, .. }))) => {
            Some(vec![[vec![message], causes].concat().join(": ")])
        }
        Err(_) => Some(vec![format!("not all agents have answered within {AGENTS:?}")]),
    }
}

async fn wanted(connection: &Connection, facts: &mut Facts) -> Result<()> {
    let choice = chosen(connection, &facts.namespace).await?;
    let cluster = neonvm_deploy::Facts {
        kubernetes: Some(facts.version.clone()),
        image_volumes: facts.image_volumes(),
    };
    let bad = |error: neonvm_deploy::Error| Error::new(Code::Failed, error.to_string());
    let values = choice.values().map_err(bad)?;
    let objects = neonvm_deploy::objects(&choice, &cluster).map_err(bad)?;
    facts.wanted = Wanted::new(&values, &cluster, read::missing(connection, &objects).await?);
    Ok(())
}

/// What was chosen at the installation, as far as it may be read; in its namespace.
async fn chosen(connection: &Connection, namespace: &str) -> Result<Choice> {
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

/// What the objects show; of one node, if it is named.
fn objects(facts: &mut Facts, node: Option<&str>) -> Result<Vec<Finding>> {
    if let Some(node) = node {
        checks::only(facts, node);
        if facts.all(Source::Nodes).is_empty() {
            return Err(Error::new(Code::NotFound, format!("node {node:?} not found"))
                .hint("list the nodes: kubectl get nodes"));
        }
    }
    Ok(checks::findings(facts, Group::Objects))
}

/// An error as a check that failed.
fn failed(name: &'static str, group: &'static str, error: &Error) -> Finding {
    let causes: String = error.causes.iter().map(|cause| format!(": {cause}")).collect();
    let detail = format!("{}{causes}", error.message);
    fail(name, detail, error.hint.clone().unwrap_or_default()).at("cluster").in_group(group)
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
fn services(env: &Env, settings: &Settings, server: &str) -> Vec<Finding> {
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

fn service(process: &Process, cluster: &str) -> Finding {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::checks::Verdict;

    #[test]
    fn processes_of_a_local_cluster() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("services.json");
        assert!(processes(&file).is_empty());
        std::fs::write(
            &file,
            r#"[{"name":"apiserver","pid":7,"restarts":0,"newer":1},{"name":"node-n1","restarts":9}]"#,
        )
        .unwrap();
        let checks: Vec<Finding> = processes(&file).iter().map(|process| service(process, "dev")).collect();
        assert_eq!((checks[0].verdict, checks[0].place.as_str()), (Verdict::Ok, "apiserver"));
        assert_eq!(
            (checks[1].verdict, checks[1].remedy.as_str()),
            (Verdict::Fail, "see why: neonctl local logs --name dev")
        );
    }

    #[test]
    fn a_node_that_does_not_exist_is_an_error() {
        assert_eq!(objects(&mut Facts::default(), Some("n9")).unwrap_err().code, Code::NotFound);
    }
}
