//! `local up`

use std::time::{Duration, Instant};

use jiff::Timestamp;
use neonvm_kit::{administrator, private};
use serde_json::{Value, json};

use super::kept::Nodes;
use super::network::Network;
use super::start::{Requests, Started, start, wait};
use crate::args::local::Up;
use crate::commands::install::apply;
use crate::commands::object;
use crate::connect::{Connection, block_on};
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::instance::{self, Instance, Process, State};
use crate::report::{API_VERSION, Document, Report, left};
use crate::settings::Settings;

/// Time between two looks at the nodes.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Starts a cluster; harmless if it runs.
pub(crate) fn run(env: &Env, settings: &Settings, args: &Up) -> Result<Report> {
    let begun = Instant::now();
    let instance = instance::named(env, settings, &args.which)?;
    let limit = settings.duration("timeout", args.timeout.as_deref())?;
    let fresh = !instance.exists();
    let directory = &instance.directory;
    private::directory(&directory.join("log")).map_err(|error| Error::file("create", directory, &error))?;
    // Before anything is written there: a service that refuses would come too late.
    if let Err(error @ private::Error::Foreign { .. }) = private::verify(directory, &private::LEFT) {
        return Err(Error::new(Code::Conflict, error.to_string()));
    }
    let lock = instance.lock()?;
    let mut notes = Vec::new();
    match instance.state() {
        State::Running(process) => return running(settings, &instance, args, &process, limit),
        State::Ended(process) => {
            instance.outlast(&process, limit);
            notes.push(format!(
                "process {} of local cluster {:?} ended without being stopped; starting it again",
                process.pid, instance.name
            ));
        }
        State::Stopped => {}
    }
    let requests = if args.foreground { Some(Requests::follow()?) } else { None };
    let network = Network::of(env, args);
    let started = match bring_up(env, settings, &instance, args, limit, (&network, requests.as_ref())) {
        Ok(started) => started,
        Err(error) => {
            if args.foreground {
                // It does not outlive this program.
                instance.stop(limit)?;
            }
            if fresh && (error.code == Code::Conflict || (args.foreground && !instance.exists())) {
                // Nothing was started, so nothing stays behind.
                let _ = std::fs::remove_dir_all(directory);
            }
            let asked = requests.is_some_and(|requests| requests.any());
            let stopped = || Error::new(Code::Interrupted, "stopped before the cluster was ready");
            return Err(if asked { stopped() } else { error });
        }
    };
    notes.extend(remarks(env, settings, &instance, args, &network)?);
    if args.metrics {
        notes.push(format!("Prometheus finds the metrics by {}", directory.join("metrics.json").display()));
    }
    drop(lock);
    let server = instance.server().unwrap_or_default();
    notes.push(format!(
        "local cluster {:?} is ready at {server} ({:.2} s)",
        instance.name,
        begun.elapsed().as_secs_f64()
    ));
    let mut report = report(&instance);
    report.notes = notes;
    if let Started::Foreground(foreground) = started {
        report.then = Some(Box::new(move || foreground.wait(&instance)));
    }
    Ok(report)
}

/// Starts it, and waits until all of it is there.
fn bring_up(
    env: &Env,
    settings: &Settings,
    instance: &Instance,
    args: &Up,
    limit: Duration,
    how: (&Network, Option<&Requests>),
) -> Result<Started> {
    let (begun, since) = (Instant::now(), Timestamp::now());
    let started = start(env, settings, instance, args, limit, how)?;
    let nodes = Nodes::of(instance, settings, args)?;
    let left = limit.saturating_sub(begun.elapsed());
    complete(settings, instance, args, (&nodes, Some(since)), left)?;
    Ok(started)
}

/// What comes after the start of the server, each step harmless if it was done before. `since`: when it was started, unless before.
fn complete(
    settings: &Settings,
    instance: &Instance,
    args: &Up,
    (nodes, since): (&Nodes, Option<Timestamp>),
    limit: Duration,
) -> Result<()> {
    let begun = Instant::now();
    let left = || limit.saturating_sub(begun.elapsed()).max(Duration::from_secs(1));
    if !args.no_install {
        let left = left();
        block_on(async {
            let connection = Connection::local(settings, &instance.kubeconfig(), left).await?;
            let installed = tokio::time::timeout(left, apply::definitions(&connection)).await;
            installed.unwrap_or_else(|_| {
                Err(Error::new(Code::Timeout, "the custom resource definitions are not established yet")
                    .hint(format!("run it again to finish: neonctl local up --name {}", instance.name)))
            })
        })?;
    }
    match nodes.nodes.unwrap_or(1) {
        0 => Ok(()),
        count => block_on(ready(settings, instance, (count, since), left())),
    }
}

fn remarks(
    env: &Env,
    settings: &Settings,
    instance: &Instance,
    args: &Up,
    network: &Network,
) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    if Nodes::of(instance, settings, args)?.nodes == Some(0) {
        return Ok(notes);
    }
    if !crate::commands::place::kernels(env).join("default/vmlinux").exists() {
        notes.push("there is no kernel, which VMs require: neonctl kernel fetch".to_owned());
    }
    if let Network::User(why) = network {
        notes.push(format!("one node; its VMs get loopback addresses and user-mode networking, {why}"));
    }
    notes.extend(super::firewall(instance));
    Ok(notes)
}

/// Waits until so many nodes are ready, and have reported that since the start: their objects are those of the last run before. Nodes
/// that the cluster no longer has are gone then.
async fn ready(
    settings: &Settings,
    instance: &Instance,
    (nodes, since): (u8, Option<Timestamp>),
    limit: Duration,
) -> Result<()> {
    let connection = Connection::local(settings, &instance.kubeconfig(), limit).await?;
    let until = Instant::now() + limit;
    loop {
        let all = object::items(&connection, "/api/v1/nodes").await?;
        let ready: Vec<&str> = all.iter().filter(|node| is_ready(node, since)).map(name).collect();
        let missing = (1..=nodes).map(|number| format!("n{number}")).find(|name| !ready.contains(&&**name));
        let is_over = Instant::now() > until;
        let Some(missing) = missing else {
            if is_over || !all.iter().any(|node| is_surplus(name(node), nodes)) {
                return Ok(());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
            continue;
        };
        if is_over {
            let text =
                format!("{} of {nodes} nodes are ready after {limit:?}; startup continues", ready.len());
            let hint =
                format!("see why: neonctl local logs --name {} --service node-{missing}", instance.name);
            return Err(Error::new(Code::Timeout, text).hint(hint));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn name(node: &Value) -> &str {
    object::text(node, "/metadata/name")
}

/// Whether a cluster of so many nodes no longer has a node of this name.
fn is_surplus(name: &str, nodes: u8) -> bool {
    name.strip_prefix('n').and_then(|digits| digits.parse::<u8>().ok()).is_some_and(|number| number > nodes)
}

fn is_ready(node: &Value, since: Option<Timestamp>) -> bool {
    let Some(ready) = object::condition(node, "Ready") else { return false };
    let reported = object::text(ready, "/lastHeartbeatTime").parse::<Timestamp>();
    object::text(ready, "/status") == "True"
        && since.is_none_or(|since| reported.is_ok_and(|at| at.as_second() >= since.as_second()))
}

/// A cluster whose server runs. What an interrupted start has not done is done now; it is not healthy before.
fn running(
    settings: &Settings,
    instance: &Instance,
    args: &Up,
    process: &Process,
    limit: Duration,
) -> Result<Report> {
    let name = &instance.name;
    let stop = format!("stop it first: neonctl local down --name {name}");
    if args.foreground {
        let text = format!(
            "local cluster {name:?} is already running, as process {} in the background",
            process.pid
        );
        return Err(Error::new(Code::Conflict, text).hint(stop));
    }
    if let (Some(wanted), Some(port)) = (args.port, instance.last_port())
        && wanted != port
    {
        return Err(Error::new(
            Code::Conflict,
            format!("local cluster {name:?} is already running, on port {port}"),
        )
        .hint(stop));
    }
    let begun = Instant::now();
    let renewed = administrator::renew(&instance.directory)
        .map_err(|error| Error::new(Code::Failed, "cannot renew the kubeconfig").cause(error.to_string()))?;
    block_on(wait(settings, instance, None, limit, false))?;
    // The size of its nodes is that of its start, whatever this command has.
    let nodes = Nodes::read(instance);
    complete(settings, instance, args, (&nodes, None), limit.saturating_sub(begun.elapsed()))?;
    let mut report = report(instance)
        .note(format!("local cluster {name:?} is already running, as process {}", process.pid));
    if renewed {
        report.notes.push("the certificate of its kubeconfig is renewed".to_owned());
    }
    if nodes.nodes != Some(0) {
        report.notes.extend(super::firewall(instance));
    }
    let given = [
        ("--nodes", args.nodes.is_some()),
        ("--cpus", args.cpus.is_some()),
        ("--memory", args.memory.is_some()),
        ("--metrics", args.metrics),
    ];
    let given: Vec<&str> = given.iter().filter(|(_, given)| *given).map(|(flag, _)| *flag).collect();
    if given.is_empty() {
        return Ok(report);
    }
    Ok(report.note(format!("{} has no effect on a cluster that runs; {stop}", given.join(" "))))
}

fn report(instance: &Instance) -> Report {
    let kubeconfig = instance.kubeconfig().display().to_string();
    let server = instance.server().unwrap_or_default();
    let name = instance.name.clone();
    let value: Value = json!({ "apiVersion": API_VERSION, "kind": "LocalCluster", "name": name, "status": "running",
        "server": server, "kubeconfig": kubeconfig });
    Report::document(Document {
        value,
        names: vec![format!("localcluster/{name}")],
        text: Some(format!("export KUBECONFIG={}", quoted(&kubeconfig))),
        columns: vec![left("NAME"), left("SERVER"), left("KUBECONFIG")],
        rows: vec![vec![name, server, kubeconfig]],
    })
}

fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_the_last_start_is_not_ready() {
        let node = |status: &str| {
            json!({ "metadata": { "name": "n1" }, "status": { "conditions": [
                { "type": "Ready", "status": status, "lastHeartbeatTime": "2026-11-28T10:00:00Z" }] } })
        };
        let at = |text: &str| Some(text.parse::<Timestamp>().unwrap());
        assert!(is_ready(&node("True"), None));
        // The report has whole seconds.
        assert!(is_ready(&node("True"), at("2026-11-28T10:00:00.9Z")));
        assert!(!is_ready(&node("True"), at("2026-11-28T10:00:01Z")));
        assert!(!is_ready(&node("Unknown"), None));
        assert!(!is_ready(&json!({}), None));
    }

    #[test]
    fn words_for_a_shell() {
        assert_eq!(quoted("/a/b-c.d"), "/a/b-c.d");
        assert_eq!(quoted("/a b'c"), "'/a b'\\''c'");
    }
}
