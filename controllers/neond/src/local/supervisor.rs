//! Starts the services of a cluster as separate processes, starts them again when they end, and ends them with itself.
//!
//! What runs is written to `services.json` in the directory of the cluster. Children are ended by the kernel if the
//! supervisor is killed; it does not handle processes that children put into separate sessions (runners).

mod child;
mod logs;
mod process;
mod record;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use neonvm_kit::supervise::panic_of;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use record::Record;

/// First and longest pause before a child is started again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// A child that ran this long is taken for healthy: the next pause is the first one again.
const HEALTHY: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    /// Name, once in the cluster: `apiserver`, `node-n1`.
    pub(crate) name: String,
    /// Program and arguments.
    pub(crate) argv: Vec<String>,
    /// Where its output goes; appended. Beyond 10 MiB the file is renamed to `<file>.1`.
    pub(crate) log: PathBuf,
    /// It ends after all services that do not: the API server, in which the others release their leases.
    pub(crate) ends_last: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Directory in which `services.json` is written.
    pub(crate) data: PathBuf,
    /// What to run. All are started at once.
    pub(crate) services: Vec<Service>,
    /// How long children may take to end before they are killed; those that end last get it once more.
    pub(crate) grace: Duration,
}

impl Config {
    /// Settings with 10 s of grace.
    #[must_use]
    pub(crate) fn new(data: PathBuf, services: Vec<Service>) -> Self {
        Self { data, services, grace: Duration::from_secs(10) }
    }
}

/// Why nothing can be supervised.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A file operation failed.
    #[error("cannot write {path}")]
    File {
        path: String,
        /// Error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// A service without a program, or two of the same name.
    #[error("service {0:?} has no program, or its name is used twice")]
    Service(String),
    /// What keeps a service running ended by itself.
    #[error("a task of the supervisor ended unexpectedly: {0}")]
    Task(String),
}

/// Runs the services until `stop` ends; then ends them all, within the grace time.
///
/// # Errors
/// If the settings contradict each other, `services.json` cannot be written at start, or the supervisor itself fails: the services
/// are ended then as well.
pub(crate) async fn run(config: Config, stop: impl Future<Output = ()>) -> Result<(), Error> {
    for (index, service) in config.services.iter().enumerate() {
        let twice = config.services.iter().skip(index + 1).any(|other| other.name == service.name);
        if service.argv.is_empty() || twice {
            return Err(Error::Service(service.name.clone()));
        }
    }
    let record = Arc::new(Record::create(&config.data)?);
    let (mut first, mut last) = (Group::new(), Group::new());
    for service in config.services {
        let group = if service.ends_last { &mut last } else { &mut first };
        let (record, ending) = (Arc::clone(&record), group.ending.subscribe());
        group.children.spawn(async move { keep(service, &record, ending, config.grace).await });
    }
    let ended = |ended: Result<(), JoinError>| ended.err().map_or_else(|| "it returned".to_owned(), panic_of);
    let failed = tokio::select! {
        () = stop => None,
        Some(result) = first.children.join_next() => Some(ended(result)),
        Some(result) = last.children.join_next() => Some(ended(result)),
    };
    first.end().await;
    last.end().await;
    record.remove();
    failed.map_or(Ok(()), |why| Err(Error::Task(why)))
}

/// Services that end together.
struct Group {
    ending: watch::Sender<bool>,
    children: JoinSet<()>,
}

impl Group {
    fn new() -> Self {
        Self { ending: watch::channel(false).0, children: JoinSet::new() }
    }

    async fn end(mut self) {
        self.ending.send_replace(true);
        while let Some(ended) = self.children.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a task of the supervisor failed");
            }
        }
    }
}

async fn keep(service: Service, record: &Record, mut ending: watch::Receiver<bool>, grace: Duration) {
    let (mut pause, mut restarts) = (PAUSES.0, 0_u64);
    loop {
        let started = tokio::time::Instant::now();
        match child::Child::start(&service) {
            Ok(mut child) => {
                record.started(&service.name, child.id(), restarts);
                tracing::info!(service = service.name, pid = child.id(), restarts, "started");
                tokio::select! {
                    status = child.wait() => tracing::warn!(service = service.name, status, "ended"),
                    () = asked(&mut ending) => {
                        child.end(grace).await;
                        return;
                    }
                }
            }
            Err(error) => tracing::error!(service = service.name, %error, "cannot be started"),
        }
        record.ended(&service.name, restarts);
        if started.elapsed() >= HEALTHY {
            pause = PAUSES.0;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = asked(&mut ending) => return,
        }
        pause = (pause * 2).min(PAUSES.1);
        restarts += 1;
    }
}

async fn asked(ending: &mut watch::Receiver<bool>) {
    // A closed channel means that the supervisor itself is gone.
    let _ = ending.wait_for(|ending| *ending).await;
}

#[cfg(test)]
mod tests;
