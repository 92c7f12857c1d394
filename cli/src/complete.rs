//! Completion candidates: names read from the cluster within half a second and cached for ten seconds; none on failure.

use std::collections::hash_map::DefaultHasher;
use std::ffi::OsString;
use std::fmt::Debug;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Arg, Command, CommandFactory as _, ValueHint};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate, complete};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{Api, ListParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use neonvm_api::{PodAutoscaler, VirtualMachine, VirtualMachineMigration};
use neonvm_builder::store::Store;
use serde::de::DeserializeOwned;

use crate::args::Args;
use crate::args::local::Root;
use crate::args::names::Names;
use crate::connect::{Connection, block_on};
use crate::env::Env;
use crate::instance;
use crate::invoked::{Invoked, PLUGIN};
use crate::settings::{KEYS, Key, Settings};

/// Timeout of the request.
const BUDGET: Duration = Duration::from_millis(500);
/// How long names are cached.
const FRESH: Duration = Duration::from_secs(10);

/// Answers a shell that asks for completions, by the script of `neonctl completion`; otherwise does nothing.
///
/// # Errors
/// If the shell is unknown or asks for something else.
pub(crate) fn answered(typed: &[OsString]) -> clap::error::Result<bool> {
    let directory = std::env::current_dir().ok();
    clap_complete::CompleteEnv::with_factory(command)
        .try_complete(typed.iter().cloned(), directory.as_deref())
}

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
            Names::Nodes => ArgValueCandidates::new(nodes),
            Names::Namespaces => ArgValueCandidates::new(namespaces),
            Names::Contexts => ArgValueCandidates::new(contexts),
            Names::Images => ArgValueCandidates::new(images),
            Names::Settings => ArgValueCandidates::new(settings),
        }),
        // Files whose name may be `-` are texts in the definitions.
        None if is_file(&arg) => arg.value_hint(ValueHint::FilePath),
        None => arg,
    });
    command.mut_subcommands(completed)
}

fn is_file(arg: &Arg) -> bool {
    matches!(arg.get_value_names(), Some([name]) if name == "FILE")
        && arg.get_value_hint() == ValueHint::Unknown
}

fn machines() -> Vec<CompletionCandidate> {
    names::<VirtualMachine>("machines")
}

fn migrations() -> Vec<CompletionCandidate> {
    names::<VirtualMachineMigration>("migrations")
}

fn podautoscalers() -> Vec<CompletionCandidate> {
    names::<PodAutoscaler>("podautoscalers")
}

fn nodes() -> Vec<CompletionCandidate> {
    kept("nodes", |client, _| Api::<Node>::all(client))
}

fn namespaces() -> Vec<CompletionCandidate> {
    kept("namespaces", |client, _| Api::<Namespace>::all(client))
}

fn contexts() -> Vec<CompletionCandidate> {
    let env = Env::of_process();
    let file =
        Settings::load(&env).ok().and_then(|settings| settings.value("kubeconfig", None).ok().flatten());
    let config = crate::connect::kubeconfig::read(file.as_deref());
    let contexts = config.map(|config| config.contexts).unwrap_or_default();
    candidates(contexts.into_iter().map(|context| context.name))
}

fn images() -> Vec<CompletionCandidate> {
    let directory = crate::commands::place::images(&Env::of_process());
    let all =
        directory.exists().then(|| Store::open(&directory).and_then(|store| store.list()).ok()).flatten();
    let short = |name: String| name.strip_prefix("docker.io/library/").map_or(name.clone(), str::to_owned);
    let names = all.unwrap_or_default().into_iter().filter_map(|entry| entry.reference);
    candidates(names.map(|reference| short(reference.to_string())))
}

fn names<K>(kind: &str) -> Vec<CompletionCandidate>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    kept(kind, |client, namespace| Api::<K>::namespaced(client, namespace))
}

fn kept<K>(kind: &str, api: impl FnOnce(Client, &str) -> Api<K>) -> Vec<CompletionCandidate>
where
    K: Clone + DeserializeOwned + Debug,
{
    let env = Env::of_process();
    let kept = file(&env, kind);
    let names = fresh(&kept).or_else(|| {
        let names = asked(&env, api)?;
        if let Some(directory) = kept.parent() {
            let _ = std::fs::create_dir_all(directory);
        }
        let _ = neonvm_builder::out::text(&kept, &names.join("\n"));
        Some(names)
    });
    candidates(names.unwrap_or_default().into_iter())
}

/// A shell prints names unescaped: others are left out.
fn candidates(names: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    names.filter(|name| crate::render::one_line(name) == *name).map(CompletionCandidate::new).collect()
}

fn settings() -> Vec<CompletionCandidate> {
    let of = |key: &Key| CompletionCandidate::new(key.name).help(Some(key.about.into()));
    KEYS.iter().map(of).collect()
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

fn asked<K>(env: &Env, api: impl FnOnce(Client, &str) -> Api<K>) -> Option<Vec<String>>
where
    K: Clone + DeserializeOwned + Debug,
{
    let settings = Settings::load(env).ok()?;
    let names = block_on(async {
        let connection = Connection::open(&settings).await?;
        let api = api(connection.client(), connection.namespace());
        let asked = tokio::time::timeout(BUDGET, api.list_metadata(&ListParams::default())).await;
        Ok(asked.ok().and_then(std::result::Result::ok))
    });
    Some(names.ok()??.items.into_iter().filter_map(|item| item.metadata.name).collect())
}

fn clusters() -> Vec<CompletionCandidate> {
    let env = Env::of_process();
    let root = Settings::load(&env).and_then(|settings| instance::root(&env, &settings, &Root::default()));
    root.map(|root| instance::all(&root))
        .unwrap_or_default()
        .into_iter()
        .map(|found| CompletionCandidate::new(found.name))
        .collect()
}

/// The shell adds no space behind the candidate.
const NO_SPACE: u8 = 2;
/// The shell does not add names of files.
const NO_FILES: u8 = 4;

pub(crate) fn answer(words: &[OsString], directory: Option<&Path>) -> String {
    let mut line = vec![OsString::from(PLUGIN)];
    line.extend_from_slice(words);
    if words.is_empty() {
        line.push(OsString::new());
    }
    let index = line.len().saturating_sub(1);
    let wants_flags = line.last().is_some_and(|word| word.to_string_lossy().starts_with('-'));
    let mut command = completed(Invoked::Completer.command());
    let found = complete(&mut command, line, index, directory).unwrap_or_default();
    let mut shown: Vec<&CompletionCandidate> =
        found.iter().filter(|candidate| wants_flags || !is_flag(candidate)).collect();
    if shown.is_empty() {
        shown = found.iter().collect();
    }
    text(&shown)
}

fn is_flag(candidate: &CompletionCandidate) -> bool {
    candidate.get_value().to_string_lossy().starts_with('-')
}

/// A candidate that does not fit on a line is left out.
fn text(candidates: &[&CompletionCandidate]) -> String {
    let mut text = String::new();
    let mut directive = NO_FILES;
    for candidate in candidates {
        let value = candidate.get_value().to_string_lossy();
        if value.contains(char::is_control) {
            continue;
        }
        if value.ends_with(['/', '=']) {
            directive = NO_FILES | NO_SPACE;
        }
        text.push_str(&value);
        let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        if let Some(help) = help.lines().next().filter(|help| !help.is_empty()) {
            text.push_str(&format!("\t{}", help.replace('\t', " ")));
        }
        text.push('\n');
    }
    text + &format!(":{directive}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &[&str]) -> String {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        answer(&words, None)
    }

    #[test]
    fn commands_come_with_their_description_and_without_flags() {
        let answer = asked(&["completion", ""]);
        assert!(answer.starts_with("bash\tGNU Bash\n"), "{answer}");
        assert!(answer.ends_with("\n:4\n") && !answer.contains("\n-"), "{answer}");
        assert!(asked(&[]).contains("vm\t"));
    }

    #[test]
    fn flags_come_when_they_are_asked_for() {
        assert!(asked(&["vm", "list", "--out"]).starts_with("--output\t"));
        assert!(asked(&["config", "set", ""]).lines().count() > 3);
    }

    #[test]
    fn flags_of_the_cluster_may_stand_first() {
        let answer = asked(&["-n", "x", "--context=y", "-q", "vm", "ssh-c"]);
        assert!(answer.starts_with("ssh-config\t"), "{answer}");
        assert!(asked(&["help", "vm", "ssh-c"]).starts_with("ssh-config\t"));
    }

    #[test]
    fn a_directory_gets_no_space() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("values")).unwrap();
        let answer = answer(&["vm", "create", "-f", ""].map(OsString::from), Some(directory.path()));
        assert_eq!(answer, "values/\n:6\n");
    }

    #[test]
    fn nothing_to_complete_is_an_answer_too() {
        assert_eq!(asked(&["no", "such", "--thing="]), ":4\n");
    }
}
