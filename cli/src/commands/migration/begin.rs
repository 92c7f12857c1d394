//! `vm migrate`

#[cfg(test)]
mod tests;
mod volumes;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1 as core;
use kube::api::{Api, ListParams, PostParams};
use neonvm_api::migration::VirtualMachineMigrationSpec;
use neonvm_api::virtual_machine::Phase;
use neonvm_api::{VirtualMachine, VirtualMachineMigration};
use neonvm_kernel::Progress as _;
use neonvm_types::Bytes;
use neonvm_types::scheduler_inspect::{WhatIf, WhatIfAnswer};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{is_over, show, until_over, verdict};
use crate::args::vm::Migrate;
use crate::commands::flags::duration;
use crate::commands::resource::{NamespaceClient, document, name_of, nearest};
use crate::commands::services::Services;
use crate::commands::vm::size;
use crate::connect::block_on;
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::render::Reporter;
use crate::report::{API_VERSION, Document, Report, left};
use crate::settings::Settings;

/// Names that are tried before giving up: another client makes migrations of the same VM at the same time.
const ATTEMPTS: usize = 5;

pub(crate) fn run(env: &Env, settings: &Settings, args: &Migrate, quiet: bool) -> Result<Report> {
    let spec = spec(args)?;
    let limit = duration("timeout", &args.waiting.timeout)?;
    let reporter = Reporter::new(env, &args.showing.progress, quiet);
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let machine: VirtualMachine = client.find(&args.name).await?;
        check(&machine, args)?;
        if args.dry_run {
            return explain(&client, &machine, args).await;
        }
        if let Some(nodes) = nodes(&client).await {
            reachable(&machine, args, &nodes)?;
        }
        let made = create(&client, &args.name, spec).await?;
        let name = name_of(&made).to_owned();
        if args.waiting.no_wait {
            let text =
                format!("migration/{name} created (it continues; see: neonctl migration get {name} -w)");
            let document = document(&[made]);
            return Ok(Report::document(Document { text: Some(text), ..document }));
        }
        let mut steps = Steps { reporter, running: None, waits: String::new(), latest: made };
        let waited = match until_over(&client, &name, limit, |migration| steps.see(migration)).await {
            Ok(waited) => waited,
            Err(error) => {
                steps.leave();
                return Err(error);
            }
        };
        steps.finish();
        let took = waited.took;
        let ended = waited.object.unwrap_or(steps.latest);
        verdict(&ended)?;
        let status = show::status(&ended);
        let text = format!(
            "{} runs on {} (downtime {}, {} sent in {} iterations, total {:.1}s)",
            args.name,
            status.target_node,
            show::downtime(&status.info),
            show::size(status.info.ram.transferred),
            status.info.passes,
            took.as_secs_f64()
        );
        let document = document(&[ended]);
        Ok(Report::document(Document { text: Some(text), ..document }))
    })
}

/// The requested migration as an object. Errors contain the flag.
fn spec(args: &Migrate) -> Result<VirtualMachineMigrationSpec> {
    let mut spec = VirtualMachineMigrationSpec::new(&args.name);
    spec.node_affinity = affinity(&args.to, &args.avoid);
    spec.auto_converge = !args.no_auto_converge;
    spec.priority = args.priority;
    spec.policy = args.policy.clone().unwrap_or_default();
    if let Some(text) = &args.bandwidth {
        spec.max_bandwidth = size::memory("bandwidth", text)?.to_quantity();
    }
    if let Some(text) = &args.completion_timeout {
        let seconds = duration("completion-timeout", text)?.as_secs();
        spec.completion_timeout = i32::try_from(seconds).unwrap_or(i32::MAX);
    }
    if let Some(text) = &args.max_downtime {
        let milliseconds = duration("max-downtime", text)?.as_millis();
        spec.tuning.downtime_limit_ms = Some(u32::try_from(milliseconds).unwrap_or(u32::MAX));
    }
    spec.tuning.channels = args.channels;
    spec.tuning.compression = args.compress.as_deref().and_then(word);
    spec.tuning.post_copy = args.postcopy.as_deref().and_then(word);
    spec.tuning.on_timeout = args.on_timeout.as_deref().and_then(word);
    let object = VirtualMachineMigration::new(&args.name, spec.clone());
    match neonvm_api::validate::migration_create(&object).first() {
        Some(fault) => Err(Error::new(Code::Usage, format!("cannot migrate {}: {fault}", args.name))),
        None => Ok(spec),
    }
}

/// A value by its word in the API; the words were checked with the flags.
fn word<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_value(serde_json::Value::String(text.to_owned())).ok()
}

/// Nodes by name, as a daemon set names its own.
fn affinity(to: &[String], avoid: &[String]) -> Option<core::NodeAffinity> {
    let field = |operator: &str, names: &[String]| core::NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: operator.to_owned(),
        values: Some(names.to_vec()),
    };
    let avoided = avoid.iter().map(|name| field("NotIn", std::slice::from_ref(name)));
    // A field's values are one at most: several nodes are several terms, of which one must hold.
    let term = |name: Option<&String>| core::NodeSelectorTerm {
        match_fields: Some(
            name.map(|name| field("In", std::slice::from_ref(name)))
                .into_iter()
                .chain(avoided.clone())
                .collect(),
        ),
        ..core::NodeSelectorTerm::default()
    };
    let terms: Vec<core::NodeSelectorTerm> = match (to, avoid) {
        ([], []) => return None,
        ([], _) => vec![term(None)],
        (to, _) => to.iter().map(|name| term(Some(name))).collect(),
    };
    Some(core::NodeAffinity {
        required_during_scheduling_ignored_during_execution: Some(core::NodeSelector {
            node_selector_terms: terms,
        }),
        ..core::NodeAffinity::default()
    })
}

/// What is known before anything is made.
fn check(machine: &VirtualMachine, args: &Migrate) -> Result<()> {
    let name = &args.name;
    let status = machine.status.clone().unwrap_or_default();
    if let Some(active) = &status.migration {
        let other = &active.name;
        return Err(Error::new(
            Code::Conflict,
            format!("{name} is already being migrated, by migration {other}"),
        )
        .hint(format!("wait for it: neonctl migration wait {other}")));
    }
    if !status.phase.is_some_and(Phase::is_alive) {
        let phase = status.phase.map_or_else(|| "new".to_owned(), |phase| phase.to_string());
        return Err(Error::new(Code::Conflict, format!("{name} is not running: it is {phase}"))
            .hint(format!("see why: neonctl vm describe {name}")));
    }
    if machine.spec.is_paused() {
        return Err(Error::new(Code::Conflict, format!("{name} cannot be migrated: it is paused"))
            .hint(format!("resume it first: neonctl vm resume {name}")));
    }
    if let Some(why) = status.pinned_by() {
        return Err(Error::new(Code::Conflict, format!("{name} cannot be migrated: {why}"))
            .hint(format!("stop the VM where it has to leave its node: neonctl vm stop {name}")));
    }
    if args.to.as_slice() == [status.node.clone()] {
        return Err(Error::new(Code::Conflict, format!("{name} already runs on {}", status.node))
            .hint(format!("let the scheduler choose a node: neonctl vm migrate {name}")));
    }
    Ok(())
}

/// The names of all nodes; none if this user may not list them.
async fn nodes(client: &NamespaceClient) -> Option<Vec<String>> {
    let api: Api<core::Node> = Api::all(client.connection.client());
    let list = client.connection.within("cannot list nodes", api.list_metadata(&ListParams::default())).await;
    Some(list.ok()?.items.into_iter().filter_map(|node| node.metadata.name).collect())
}

/// An error if no node of the cluster can be the target by its name: the migration would wait for its timeout.
fn reachable(machine: &VirtualMachine, args: &Migrate, nodes: &[String]) -> Result<()> {
    let name = &args.name;
    if let Some(missing) = args.to.iter().find(|wanted| !nodes.contains(wanted)) {
        let error =
            Error::new(Code::NotFound, format!("cannot migrate {name}: there is no node {missing:?}"));
        return Err(match nearest(missing, nodes) {
            Some(meant) => error.hint(format!("did you mean {meant:?}?")),
            None => error.hint("list the nodes: kubectl get nodes"),
        });
    }
    let here = machine.status.as_ref().map(|status| status.node.as_str()).unwrap_or_default();
    let is_free = |node: &&String| {
        *node != here && !args.avoid.contains(node) && (args.to.is_empty() || args.to.contains(node))
    };
    if nodes.is_empty() || nodes.iter().any(|node| is_free(&node)) {
        return Ok(());
    }
    let why = match nodes.len() {
        1 => format!("{here} is the only node"),
        _ => format!("it runs on {here}, and --to and --avoid leave no other node"),
    };
    Err(Error::new(Code::Conflict, format!("cannot migrate {name}: {why}"))
        .hint(format!("see what speaks against each node: neonctl vm migrate {name} --dry-run")))
}

/// Makes the object, with the first free name of `STEM-1`, `STEM-2`, ….
pub(crate) async fn create(
    client: &NamespaceClient,
    stem: &str,
    spec: VirtualMachineMigrationSpec,
) -> Result<VirtualMachineMigration> {
    let attempt = format!("cannot migrate {}", spec.vm_name);
    let api = client.api();
    for _ in 0..ATTEMPTS {
        let list = client.connection.within(&attempt, api.list_metadata(&ListParams::default())).await?;
        let taken: BTreeSet<String> = list.items.into_iter().filter_map(|item| item.metadata.name).collect();
        let free = (1..).map(|number: u32| format!("{stem}-{number}")).find(|name| !taken.contains(name));
        let object = VirtualMachineMigration::new(&free.unwrap_or_default(), spec.clone());
        match client.connection.within(&attempt, api.create(&PostParams::default(), &object)).await {
            Err(error) if error.code == Code::Conflict => {}
            made => return made,
        }
    }
    Err(Error::new(Code::Conflict, attempt)
        .hint("another client started a migration: neonctl migration list"))
}

/// Shows the steps of a move as they come.
struct Steps {
    reporter: Reporter,
    running: Option<&'static str>,
    /// What the target was last shown to wait for.
    waits: String,
    latest: VirtualMachineMigration,
}

impl Steps {
    fn see(&mut self, migration: &VirtualMachineMigration) {
        self.latest = migration.clone();
        let step = show::step(migration);
        if step != self.running {
            self.finish();
            if let Some(step) = step {
                let detail = match step {
                    "queue" => show::status(migration).message,
                    _ => show::way(migration),
                };
                self.reporter.begin(step, &detail);
            }
            self.running = step;
        }
        if step == Some("prepare") {
            self.show_wait(show::status(migration).message);
        }
        if !is_over(migration) {
            self.reporter.line(&show::progress(migration));
        }
    }

    /// A target may wait for minutes, for room or for an image: why is shown as soon as it is known.
    fn show_wait(&mut self, message: String) {
        if !message.is_empty() && message != self.waits {
            self.reporter.show(&format!("{:<10} {message}", ""));
            self.waits = message;
        }
    }

    /// The wait ends, and the step that runs does not.
    fn leave(&mut self) {
        if self.running.take().is_some() {
            self.reporter.end("not finished");
        }
    }

    fn finish(&mut self) {
        if let Some(step) = self.running.take() {
            self.reporter.end(&show::step_result(&self.latest, step));
        }
    }
}

/// Each node with its verdict; exit code 5 if there is none to go to.
async fn explain(client: &NamespaceClient, machine: &VirtualMachine, args: &Migrate) -> Result<Report> {
    let services = Services::open(&client.connection, &args.system_namespace).await?;
    let question = WhatIf {
        namespace: client.namespace.clone(),
        vm: args.name.clone(),
        leave: true,
        to: args.to.clone(),
        avoid: args.avoid.clone(),
        ..WhatIf::default()
    };
    match services.what_if(&question).await {
        Ok(answer) => {
            let bandwidth = Bytes::try_from(spec(args)?.max_bandwidth).unwrap_or_default();
            let volumes = volumes::plan(machine, &volumes::sizes(client, machine).await, bandwidth);
            Ok(plan(&args.name, &answer, &volumes))
        }
        Err(error) if error.code == Code::NotFound => {
            // Without a scheduler of ours it is still known which nodes there are.
            if let Some(nodes) = nodes(client).await {
                reachable(machine, args, &nodes)?;
            }
            Err(error)
        }
        Err(error) => Err(error),
    }
}

fn plan(name: &str, answer: &WhatIfAnswer, volumes: &[volumes::Volume]) -> Report {
    let verdict = |chosen: bool, fits: bool| match (chosen, fits) {
        (true, _) => "target",
        (false, true) => "fits",
        (false, false) => "no",
    };
    let rows: Vec<Vec<String>> = answer
        .targets
        .iter()
        .map(|target| {
            vec![target.node.clone(), verdict(target.chosen, target.fits).to_owned(), target.why.clone()]
        })
        .collect();
    let chosen = answer.targets.iter().find(|target| target.chosen);
    let mut report = Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "MigrationPlan", "vm": name, "why": answer.why,
            "target": chosen.map(|target| &target.node), "nodes": answer.targets, "volumes": volumes }),
        names: chosen.iter().map(|target| format!("node/{}", target.node)).collect(),
        text: None,
        columns: vec![left("NODE"), left("VERDICT"), left("WHY")],
        rows,
    })
    .note(format!("{}; nothing was changed", answer.why));
    report.notes.extend(volumes.iter().map(ToString::to_string));
    if chosen.is_none() {
        report.code = Code::Conflict.number();
    }
    report
}
