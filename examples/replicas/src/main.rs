//! `simulated-pods`: simulates the pods of Deployments on this machine.
//!
//! A local cluster has no controller of workloads and no images. To see replicas follow a load, processes are enough that
//! serve, need a while to be ready and report their load: each replica of a Deployment with the annotation [`spec::PLAY`]
//! is a process with an address of its own on the loopback interface, and a Pod with that address. Other annotations set
//! how many clients use them and how their metrics answer.

mod fleet;
mod load;
mod pod;
mod server;
mod spec;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};

use self::fleet::Fleet;
use self::pod::Stage;
use self::spec::Spec;

/// Label of the simulated pods.
const SIMULATED: &str = "app.kubernetes.io/managed-by=simulated-pods";
/// An API server that was not there for so long is gone for good.
const GONE: Duration = Duration::from_secs(60);
/// Time for one request to the API server.
const REQUEST: Duration = Duration::from_secs(10);
/// Deployments that are simulated at the same time.
const MOST_FLEETS: usize = 32;

#[derive(Debug, Parser)]
#[command(
    version,
    about = "Simulates the pods of Deployments as processes on this machine",
    after_help = "Example: eval \"$(neonctl local up)\"; simulated-pods & kubectl apply -f examples/replicas",
    args_conflicts_with_subcommands = true
)]
struct Args {
    /// File for access to the cluster
    #[arg(long, env = "KUBECONFIG", required = true)]
    kubeconfig: Option<PathBuf>,
    #[command(subcommand)]
    process: Option<Process>,
}

#[derive(Debug, Subcommand)]
enum Process {
    /// One of these pods
    #[command(hide = true)]
    Pod(server::Args),
}

fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    let args = Args::parse();
    match (args.process, args.kubeconfig) {
        (Some(Process::Pod(pod)), _) => server::run(&pod),
        (None, kubeconfig) => simulate(&kubeconfig.context("no kubeconfig: set KUBECONFIG")?),
    }
}

/// Runs until SIGTERM or SIGINT, then removes its pods.
fn simulate(kubeconfig: &Path) -> anyhow::Result<()> {
    // The kernel ends a child when the thread that started it ends: there is one only.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = neonvm_kit::termination::requested()?;
        let _alone = alone(kubeconfig)?;
        let client = neonvm_kit::client::connect(Some(kubeconfig)).await?;
        sweep(&client).await?;
        let mut fleets = Fleets { stage: Stage::new(client.clone())?, all: BTreeMap::new() };
        let ended = tokio::select! {
            ended = follow(client, &mut fleets) => ended,
            () = stop => Ok(()),
        };
        for (_, fleet) in fleets.all {
            fleet.end().await;
        }
        ended
    })
}

/// Two would fight for the same pods.
fn alone(kubeconfig: &Path) -> anyhow::Result<File> {
    let path = kubeconfig.with_extension("simulated-pods.lock");
    // It is in the directory of a local cluster, whose files no other user opens.
    let file = neonvm_kit::private::options().write(true).create(true).truncate(false).open(&path);
    let file = file.with_context(|| format!("cannot make {}", path.display()))?;
    file.try_lock().context("another process simulates the workloads of this cluster")?;
    Ok(file)
}

/// Removes pods without processes, which a killed predecessor left.
async fn sweep(client: &Client) -> anyhow::Result<()> {
    let every: Api<Pod> = Api::all(client.clone());
    let left = ListParams::default().labels(SIMULATED);
    for pod in tokio::time::timeout(REQUEST, every.list(&left)).await.context("no answer")?? {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        let now = DeleteParams::default().grace_period(0);
        let _ = tokio::time::timeout(REQUEST, pods.delete(&pod.name_any(), &now)).await;
    }
    Ok(())
}

/// Fleets by namespace and name of their Deployment.
struct Fleets {
    stage: Arc<Stage>,
    all: BTreeMap<(String, String), Fleet>,
}

/// Follows the Deployments of the cluster.
async fn follow(client: Client, fleets: &mut Fleets) -> anyhow::Result<()> {
    let all: Api<Deployment> = Api::all(client);
    let mut events = watcher(all, watcher::Config::default()).default_backoff().boxed();
    let mut listed = Vec::new();
    let mut failing: Option<Instant> = None;
    loop {
        let event = match events.try_next().await {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(()),
            Err(error) => {
                if failing.get_or_insert_with(Instant::now).elapsed() >= GONE {
                    return Err(error).context("the API server is gone");
                }
                tracing::debug!(%error, "Deployments cannot be watched");
                continue;
            }
        };
        failing = None;
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(deployment) => {
                listed.push(key(&deployment));
                fleets.put(&deployment).await;
            }
            watcher::Event::InitDone => {
                // Those that were deleted while the watch was down.
                let gone: Vec<_> = fleets.all.keys().filter(|key| !listed.contains(key)).cloned().collect();
                for key in gone {
                    fleets.remove(&key).await;
                }
            }
            watcher::Event::Apply(deployment) => fleets.put(&deployment).await,
            watcher::Event::Delete(deployment) => fleets.remove(&key(&deployment)).await,
        }
    }
}

fn key(deployment: &Deployment) -> (String, String) {
    (deployment.namespace().unwrap_or_default(), deployment.name_any())
}

impl Fleets {
    async fn put(&mut self, deployment: &Deployment) {
        let key = key(deployment);
        let spec = match Spec::from_deployment(deployment) {
            Ok(Some(spec)) => spec,
            Ok(None) => return self.remove(&key).await,
            Err(error) => {
                tracing::warn!(namespace = key.0, deployment = key.1, error, "goes on as before");
                return;
            }
        };
        // Another Deployment of the same name has different pods.
        if self.all.get(&key).is_some_and(|fleet| fleet.uid != spec.uid) {
            self.remove(&key).await;
        }
        if let Some(fleet) = self.all.get(&key) {
            fleet.put(spec);
        } else if self.all.len() < MOST_FLEETS {
            tracing::info!(namespace = key.0, deployment = key.1, replicas = spec.replicas, "simulated here");
            self.all.insert(key, Fleet::start(Arc::clone(&self.stage), spec));
        } else {
            tracing::warn!(namespace = key.0, deployment = key.1, "not simulated: {MOST_FLEETS} others are");
        }
    }

    async fn remove(&mut self, key: &(String, String)) {
        if let Some(fleet) = self.all.remove(key) {
            fleet.end().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_runs_and_no_other_user_opens_what_it_leaves_beside_the_kubeconfig() {
        let directory = tempfile::tempdir().unwrap();
        let cluster = directory.path().join("cluster");
        neonvm_kit::private::directory(&cluster).unwrap();
        let kubeconfig = cluster.join("kubeconfig");
        let lock = alone(&kubeconfig).unwrap();
        assert!(alone(&kubeconfig).is_err());
        drop(lock);
        assert!(alone(&kubeconfig).is_ok());
        assert_eq!(neonvm_kit::private::audit(&cluster, &[]).unwrap(), []);
    }
}
