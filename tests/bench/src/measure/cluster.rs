//! A fleet on hundreds of nodes under the real API server, controller and scheduler, each a process of its own. Kubelets, runners
//! and agents are simulated: kubelets and agents in this process, runners in another one. Agents hold their leases and send their
//! requests to the scheduler over mutual TLS.

mod agents;
mod create;
mod faults;
mod kubelets;
mod leases;
mod rest;
mod runners;
mod services;
mod view;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use kube::Client;
use tokio::task::JoinSet;

use self::agents::Agents;
use self::kubelets::{Kubelets, node_name};
use self::leases::Leases;
use self::runners::{FILES, RunnerProcess};
use self::services::{Kind, Services};
use self::view::View;
use super::Setup;
use crate::fleet::{acceptor, define};
use crate::process::open_files;
use crate::report::Row;

pub use self::runners::serve as serve_runners;

/// Name for `--only`.
const NAME: &str = "cluster";
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(900);
const LOOK: Duration = Duration::from_millis(10);
/// Files that the controller and the process of the runners open beside a stream to each VM.
const OTHER_FILES: usize = 300;

/// All that a measurement is about.
struct Cluster {
    nodes: usize,
    vms: usize,
    /// Open files that one process may have.
    files: u64,
    client: Client,
    services: Services,
    runners: RunnerProcess,
    agents: Arc<Agents>,
    kubelets: Arc<Kubelets>,
    view: Arc<View>,
    leases: Arc<Leases>,
    /// Aborted when dropped.
    _following: JoinSet<()>,
    /// Dropped last: the directory of the services.
    _directory: tempfile::TempDir,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.agents.stop_all();
    }
}

impl Cluster {
    async fn start(setup: &Setup) -> anyhow::Result<Self> {
        let files = open_files(FILES);
        let (nodes, vms) = (setup.nodes, most(setup.vms, setup.nodes, files));
        ensure!(nodes > 1 && vms > 0, "a cluster needs two nodes or more and a VM on each");
        let directory = setup.directory()?;
        let mut services = Services::new(setup.program.path(), directory.path())?;
        services.start(Kind::ApiServer).await?;
        let client = services.client().await?;
        define(&client).await?;
        services.start(Kind::Controller).await?;
        // It makes the authority.
        acceptor(&client).await?;
        let runners = RunnerProcess::start(&services.kubeconfig())?;
        kubelets::create(&client, nodes).await?;
        services.start(Kind::Scheduler).await?;
        let agents = Agents::start_all(&client, (0..nodes).map(node_name).collect()).await?;
        agents.hold_leases(async || services.client().await).await?;
        let kubelets = Kubelets::new(services.client().await?, Arc::clone(&agents));
        let (view, leases) = (Arc::new(View::default()), Arc::new(Leases::default()));
        let mut following = JoinSet::new();
        following.spawn(Arc::clone(&kubelets).serve());
        let (own, shown) = (services.client().await?, Arc::clone(&view));
        following.spawn(async move { shown.follow(own).await });
        let (own, counted) = (services.client().await?, Arc::clone(&leases));
        following.spawn(async move { counted.follow(own).await });
        until("there is a scheduler", || agents.know_scheduler()).await?;
        Ok(Self {
            nodes,
            vms,
            files,
            client,
            services,
            runners,
            agents,
            kubelets,
            view,
            leases,
            _following: following,
            _directory: directory,
        })
    }

    /// VMs that run.
    fn running(&self) -> usize {
        self.view.running()
    }

    /// For a note.
    fn scale(&self) -> String {
        format!(
            "{} VMs on {} nodes, {} files for each process; the API server is the embedded one; kubelets, runners and agents are simulated",
            self.vms, self.nodes, self.files
        )
    }
}

/// VMs that fit: the controller has a stream to each, and so have the runners. The same number on each node.
fn most(wanted: usize, nodes: usize, files: u64) -> usize {
    let files = usize::try_from(files).unwrap_or(usize::MAX);
    let streams = files.saturating_sub(OTHER_FILES + create::SINGLE);
    if wanted <= streams { wanted } else { streams / nodes.max(1) * nodes }
}

/// All of it.
pub(super) async fn run(setup: &Setup) -> anyhow::Result<Vec<Row>> {
    let mut cluster = Cluster::start(setup).await?;
    let mut rows = create::fleet(&cluster).await?;
    rows.push(create::single(&cluster).await?);
    rows.extend(rest::run(&cluster).await?);
    for kind in [Kind::Scheduler, Kind::Controller, Kind::ApiServer] {
        rows.extend(faults::restart(&mut cluster, kind).await?);
    }
    rows.extend(faults::node(&mut cluster).await?);
    Ok(rows)
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

async fn until(what: &str, mut is: impl FnMut() -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is() {
        ensure!(Instant::now() < deadline, "it did not come about that {what}");
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::most;

    #[test]
    fn a_fleet_is_as_large_as_the_limit_of_files_allows() {
        assert_eq!(most(20_000, 500, u64::MAX), 20_000);
        assert_eq!(most(20_000, 500, 65_536), 20_000);
        assert_eq!(most(20_000, 500, 20_000), 19_500);
        assert_eq!(most(2_000, 50, 20_000), 2_000);
        assert_eq!(most(20_000, 500, 100), 0);
    }
}
