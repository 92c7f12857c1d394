//! What every service does around its work: a runtime, signals, waiting for the API server's kubeconfig.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How long a service waits for the API server of its cluster to appear.
const API_SERVER: Duration = Duration::from_secs(60);

/// Threads of a service at most. Each has a separate heap, and the memory of a service must not grow with the
/// processors of its node: hostile clients made the API server 293 MiB large with 4 threads and 518 MiB with 64.
const THREADS: usize = 4;

/// Flags that every service has which uses the API and is replicated or restarted.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ServiceArgs {
    /// Kubeconfig file [default: the pod's service account]
    #[arg(long)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Namespace of the services: leases, internal authority, configuration
    #[arg(long, default_value = "neonvm-system")]
    pub(crate) namespace: String,
    /// Name of this replica in its lease, unique among replicas; a restarted replica with the same name leads at once [default:
    /// the host's name and the process]
    #[arg(long)]
    pub(crate) identity: Option<String>,
    /// Address of the server for metrics and health [default: nowhere]
    #[arg(long)]
    pub(crate) metrics_bind_address: Option<SocketAddr>,
    /// Address of the server for liveness and readiness probes only, for example 0.0.0.0:8081 [default: nowhere]
    #[arg(long)]
    pub(crate) health_probe_bind_address: Option<SocketAddr>,
}

impl ServiceArgs {
    /// The name of this replica; without the flag one that no other process has.
    pub(crate) fn identity(&self) -> String {
        let own = || {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            format!("{host}-{}", std::process::id())
        };
        self.identity.clone().unwrap_or_else(own)
    }

    /// Waits until the kubeconfig is there: services are started together with the API server that writes it.
    pub(crate) async fn wait(&self) -> anyhow::Result<()> {
        wait_for(self.kubeconfig.as_deref()).await
    }
}

pub(crate) fn run(service: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(threads).enable_all().build().context("cannot start")?;
    let ended = runtime.block_on(service);
    // Whatever still reads or writes must not keep the process.
    runtime.shutdown_background();
    ended
}

/// Keeps other users of this computer from opening what this process and those that it starts make.
pub(crate) fn close_files() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

/// Takes all open files that the administrator allows. Container runtimes set a soft limit of 1,024 for programs that use `select`,
/// and a service has a connection to each VM, node or watcher. Not for services that start other programs, which inherit it.
pub(crate) fn take_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, files = ?limit.current, "the limit of open files cannot be raised");
    }
}

/// Waits until a file is there.
pub(crate) async fn wait_for(path: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let until = Instant::now() + API_SERVER;
    while !path.exists() {
        anyhow::ensure!(Instant::now() < until, "there is no {}", path.display());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_that_are_allowed_are_taken() {
        let maximum = getrlimit(Resource::Nofile).maximum;
        // Hardly lower: other tests may run in this process.
        let current = maximum.map(|files| files - 1);
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
        take_open_files();
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    }
}
