//! What every service does around its work: a runtime, signals, waiting for the API server's kubeconfig.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

/// How long a service waits for the API server of its cluster to appear.
const API_SERVER: Duration = Duration::from_secs(60);

/// Runs a service on a runtime of its own.
pub(crate) fn run(service: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
    let ended = runtime.block_on(service);
    // Whatever still reads or writes must not keep the process.
    runtime.shutdown_background();
    ended
}

/// Ends with SIGTERM or SIGINT.
pub(crate) fn stop() -> anyhow::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Waits until a file is there: services are started together with the API server that writes the kubeconfig.
pub(crate) async fn wait_for(path: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let until = Instant::now() + API_SERVER;
    while !path.exists() {
        anyhow::ensure!(Instant::now() < until, "there is no {}", path.display());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// A name that no other process has.
pub(crate) fn identity() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}-{}", std::process::id())
}
