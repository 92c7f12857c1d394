//! The services, each a process of its own: API server, controller, scheduler.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use kube::Client;
use neonvm_kit::port::Reserved;

use crate::fleet::client;
use crate::service::Service;

/// Longest wait for an API server.
const READY: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(10);

/// A service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `neond apiserver`
    ApiServer,
    /// `neond vm-controller`
    Controller,
    /// `neond scheduler`
    Scheduler,
}

/// All of them.
pub(super) const KINDS: [Kind; 3] = [Kind::ApiServer, Kind::Controller, Kind::Scheduler];

impl Kind {
    /// The subcommand of `neond`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ApiServer => "apiserver",
            Self::Controller => "vm-controller",
            Self::Scheduler => "scheduler",
        }
    }
}

/// What a service has taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// Resident memory, in bytes.
    pub(super) memory: u64,
    /// The highest so far, in bytes.
    pub(super) peak: u64,
    /// Processor time since its start.
    pub(super) cpu: Duration,
}

/// The services that run.
#[derive(Debug)]
pub(super) struct Services {
    program: PathBuf,
    directory: PathBuf,
    address: Reserved,
    running: Vec<(Kind, Service)>,
}

impl Services {
    /// None runs yet.
    pub(super) fn new(program: &Path, directory: &Path) -> anyhow::Result<Self> {
        let address = Reserved::loopback()?;
        Ok(Self {
            program: program.to_owned(),
            directory: directory.to_owned(),
            address,
            running: Vec::new(),
        })
    }

    /// Where the kubeconfig is.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    /// A client with connections of its own.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        client(&self.kubeconfig()).await
    }

    /// Starts a service; an API server is waited for.
    pub(super) async fn start(&mut self, kind: Kind) -> anyhow::Result<()> {
        let (kubeconfig, address) = (self.kubeconfig(), self.address.address().to_string());
        let arguments: Vec<&OsStr> = match kind {
            Kind::ApiServer => {
                let [directory, listen] = ["--data-dir", "--listen"].map(OsStr::new);
                vec![directory, self.directory.as_os_str(), listen, OsStr::new(&address)]
            }
            // As they are deployed, with a lease. The name stays, so that a restarted one need not wait for its old lease.
            Kind::Controller => {
                let lease = ["--leader-elect", "--identity", "controller", "--kubeconfig"].map(OsStr::new);
                [&lease[..], &[kubeconfig.as_os_str()]].concat()
            }
            Kind::Scheduler => {
                let lease = ["--identity", "scheduler", "--kubeconfig"].map(OsStr::new);
                [&lease[..], &[kubeconfig.as_os_str()]].concat()
            }
        };
        let service = Service::start(&self.program, kind.name(), &arguments, &self.directory)?;
        self.running.push((kind, service));
        if kind == Kind::ApiServer { self.ready().await } else { Ok(()) }
    }

    async fn ready(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            if self.kubeconfig().exists() {
                let client = self.client().await?;
                if client.request_text(http::Request::get("/readyz").body(Vec::new())?).await.is_ok() {
                    return Ok(());
                }
            }
            ensure!(begun.elapsed() < READY, "the API server is not ready; see {}", self.directory.display());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends a service as a rolling update does, with SIGTERM, and waits for its end.
    pub(super) async fn end(&mut self, kind: Kind) -> anyhow::Result<Duration> {
        let at = self.running.iter().position(|(running, _)| *running == kind);
        let at = at.with_context(|| format!("{} does not run", kind.name()))?;
        self.running.swap_remove(at).1.end().await
    }

    /// What a service has taken.
    pub(super) fn usage(&self, kind: Kind) -> anyhow::Result<Usage> {
        let service = self.running.iter().find(|(running, _)| *running == kind).map(|(_, service)| service);
        let service = service.with_context(|| format!("{} does not run", kind.name()))?;
        Ok(Usage { memory: service.memory()?, peak: service.peak_memory()?, cpu: service.cpu()? })
    }

    /// That of all, in the order of [`KINDS`].
    pub(super) fn usages(&self) -> anyhow::Result<[Usage; 3]> {
        let [api, controller, scheduler] = KINDS.map(|kind| self.usage(kind));
        Ok([api?, controller?, scheduler?])
    }
}
