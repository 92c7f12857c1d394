//! Completion candidates: names read from the cluster within half a second and cached for ten seconds; none on failure.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Debug;
use std::hash::{Hash as _, Hasher as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Command, CommandFactory as _};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use kube::Resource;
use kube::api::{Api, ListParams};
use kube::core::NamespaceResourceScope;
use neonvm_api::{PodAutoscaler, VirtualMachine, VirtualMachineMigration};
use serde::de::DeserializeOwned;

use crate::args::Args;
use crate::args::local::Root;
use crate::args::names::Names;
use crate::args::resource::NamespaceArgs;
use crate::connect::{Connection, block_on};
use crate::env::Env;
use crate::instance;
use crate::settings::Settings;

/// Timeout of the request.
const BUDGET: Duration = Duration::from_millis(500);
/// How long names are cached.
const FRESH: Duration = Duration::from_secs(10);

/// The command line, each argument with what completes it.
pub(crate) fn command() -> Command {
    completed(Args::command())
}

fn completed(command: Command) -> Command {
    let command = command.mut_args(|arg| match arg.get::<Names>().copied() {
        Some(names) => arg.add(match names {
            Names::Vms => ArgValueCandidates::new(machines),
            Names::Migrations => ArgValueCandidates::new(migrations),
            Names::PodAutoscalers => ArgValueCandidates::new(podautoscalers),
            Names::Clusters => ArgValueCandidates::new(clusters),
            Names::Scenarios => ArgValueCandidates::new(scenarios),
        }),
        None => arg,
    });
    command.mut_subcommands(completed)
}

/// Names of VMs in the namespace of the context.
fn machines() -> Vec<CompletionCandidate> {
    names::<VirtualMachine>("machines")
}

/// Names of migrations in the namespace of the context.
fn migrations() -> Vec<CompletionCandidate> {
    names::<VirtualMachineMigration>("migrations")
}

/// Names of pod autoscalers in the namespace of the context.
fn podautoscalers() -> Vec<CompletionCandidate> {
    names::<PodAutoscaler>("podautoscalers")
}

fn names<K>(kind: &str) -> Vec<CompletionCandidate>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let env = Env::of_process();
    let kept = file(&env, kind);
    let names = fresh(&kept).or_else(|| {
        let names = asked::<K>(&env)?;
        if let Some(directory) = kept.parent() {
            let _ = std::fs::create_dir_all(directory);
        }
        let _ = std::fs::write(&kept, names.join("\n"));
        Some(names)
    });
    // A shell prints names unescaped.
    let plain = |name: &String| crate::render::one_line(name) == *name;
    names.unwrap_or_default().into_iter().filter(plain).map(CompletionCandidate::new).collect()
}

/// Names of the built-in scenarios.
fn scenarios() -> Vec<CompletionCandidate> {
    crate::commands::simulate::NAMED.iter().map(|(name, _)| CompletionCandidate::new(*name)).collect()
}

/// Cache file, one for each configuration of the access to a cluster.
fn file(env: &Env, kind: &str) -> PathBuf {
    let mut hash = DefaultHasher::new();
    for variable in ["KUBECONFIG", "NEONCTL_KUBECONFIG", "NEONCTL_CONTEXT", "HOME"] {
        env.var(variable).hash(&mut hash);
    }
    env.directory("XDG_CACHE_HOME", ".cache").join(format!("neonctl/{kind}-{:016x}", hash.finish()))
}

fn fresh(file: &std::path::Path) -> Option<Vec<String>> {
    let written = std::fs::metadata(file).ok()?.modified().ok()?;
    let age = SystemTime::now().duration_since(written).ok()?;
    let text = (age < FRESH).then(|| std::fs::read_to_string(file).ok())??;
    Some(text.lines().map(str::to_owned).collect())
}

fn asked<K>(env: &Env) -> Option<Vec<String>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let settings = Settings::load(env).ok()?;
    let names = block_on(async {
        let connection = Connection::open(&settings, &NamespaceArgs::default().access).await?;
        let api: Api<K> = Api::namespaced(connection.client(), connection.namespace());
        let asked = tokio::time::timeout(BUDGET, api.list_metadata(&ListParams::default())).await;
        Ok(asked.ok().and_then(std::result::Result::ok))
    });
    Some(names.ok()??.items.into_iter().filter_map(|item| item.metadata.name).collect())
}

/// Names of the local clusters of this host.
fn clusters() -> Vec<CompletionCandidate> {
    let env = Env::of_process();
    let root = Settings::load(&env).and_then(|settings| instance::root(&env, &settings, &Root::default()));
    root.map(|root| instance::all(&root))
        .unwrap_or_default()
        .into_iter()
        .map(|found| CompletionCandidate::new(found.name))
        .collect()
}
