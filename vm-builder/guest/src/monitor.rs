//! The monitor: reports to an autoscaler-agent over a websocket when the guest needs more, and which resources it can
//! release.
//!
//! Decisions are made by [`neonvm_core_vertical_scaling::monitor`]; here are the files it reads, the connections and
//! PostgreSQL's file cache. One thread; nothing an agent or PostgreSQL does or fails to do keeps the next sample from
//! being taken.

mod engine;
mod group;
mod informant;
mod options;
pub mod postgres;
mod sampler;
mod server;
mod session;
mod traffic;

use std::io::Write as _;
use std::net::SocketAddr;

use tokio::sync::mpsc;
use tokio::task::LocalSet;

pub use options::Options;
pub use sampler::Sampler;

/// Inputs that wait for the engine.
const WAITING: usize = 64;

/// Why the monitor could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Usage(String),
    #[error("listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("start the event loop: {0}")]
    Runtime(std::io::Error),
}

/// Watches and serves until the process is killed.
pub fn run(options: &Options) -> Result<(), Error> {
    crate::daemon::memory::give_back();
    // If the kernel killed the monitor first, no component would request memory. Failure is no reason not to run.
    crate::limits::spare();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(Error::Runtime)?;
    LocalSet::new().block_on(&runtime, serve(options))
}

async fn serve(options: &Options) -> Result<(), Error> {
    let address = options.address;
    let listener = crate::http::listen(address).map_err(|source| Error::Listen { address, source })?;
    // A port chosen by the kernel is only available now.
    if address.port() == 0
        && let Ok(address) = listener.local_addr()
    {
        log(&format!("monitor listens on {address}"));
    }
    let (sender, inputs) = mpsc::channel(WAITING);
    tokio::task::spawn_local(server::serve(
        listener,
        sender.clone(),
        options.informant,
        options.peers.clone(),
    ));
    engine::Engine::new(options, sender).run(inputs).await;
    Ok(())
}

/// A line on standard error, which init forwards.
fn log(line: &str) {
    let _ = writeln!(std::io::stderr(), "neonvm-guest monitor: {line}");
}
