//! The daemon: HTTP for CPUs, files, status and the workload's streams, metrics, the clock and the door of the SSH server.
//!
//! One thread waits for all of it. What may block runs on threads that come when needed and leave soon after;
//! nothing is computed before a request needs it.

mod api;
pub(crate) mod attach;
mod door;
pub(crate) mod memory;
mod options;
mod status;
mod suspend;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinHandle, LocalSet};

use crate::http::{self, Response};
use crate::log;
use crate::metrics;
pub use options::Options;
pub use status::STATUS_FILE;

/// Most connections at a time.
const CONNECTIONS: usize = 64;
/// Most connections for metrics.
const METRICS_CONNECTIONS: usize = 16;
/// How long the client of a workload may take for its last output when the VM is stopped.
const LAST_OUTPUT: Duration = Duration::from_secs(5);
/// Media type of the Prometheus text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Why the daemon could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Usage(String),
    #[error("listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("start the event loop: {0}")]
    Runtime(std::io::Error),
}

/// Serves until the process is killed.
pub fn run(options: &Options) -> Result<(), Error> {
    memory::give_back();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(4)
        .thread_keep_alive(Duration::from_secs(2))
        .thread_stack_size(256 * 1024)
        .build()
        .map_err(Error::Runtime)?;
    LocalSet::new().block_on(&runtime, serve(options))
}

async fn serve(options: &Options) -> Result<(), Error> {
    let listener = listen("api", options.address)?;
    if let Some(listener) = optional("metrics", options.metrics_address) {
        let root = options.root.clone();
        let handler = move |request| scrape(request, root.clone());
        tokio::task::spawn_local(http::serve(listener, METRICS_CONNECTIONS, Vec::new(), handler));
    }
    if let Some(listener) = optional("ssh", options.ssh_address) {
        tokio::task::spawn_local(door::serve(listener, options.ssh_options.clone()));
    }
    if options.clock {
        tokio::task::spawn_local(crate::clock::keep());
    }
    let (door, streams) = attached(options).unwrap_or_default();
    let api = api::Api::new(&options.root, door);
    let serve =
        http::serve(listener, CONNECTIONS, options.peers.clone(), move |request| api.clone().handle(request));
    tokio::select! {
        () = serve => {}
        () = stopped(streams) => {}
    }
    Ok(())
}

/// Copies the workload's streams, if init gave them; the task ends with them.
fn attached(options: &Options) -> Option<(attach::Door, Option<JoinHandle<()>>)> {
    let numbers = options.streams.as_ref()?;
    match attach::Streams::adopt(numbers) {
        Ok((streams, door)) => {
            let copied = async {
                streams.copy().await;
                let _ = writeln!(std::io::stdout(), "{}", attach::ENDED);
            };
            Some((door, Some(tokio::task::spawn_local(copied))))
        }
        Err(error) => {
            log::of_daemon(&format!("streams of the workload: {error}"));
            None
        }
    }
}

/// Waits for SIGTERM, and then for the last of the workload's output. Without streams a signal ends the process, as usual.
async fn stopped(streams: Option<JoinHandle<()>>) {
    let Some(streams) = streams else { return std::future::pending().await };
    let Ok(mut terminated) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    terminated.recv().await;
    let _ = tokio::time::timeout(LAST_OUTPUT, streams).await;
}

fn listen(name: &str, address: SocketAddr) -> Result<TcpListener, Error> {
    let listener = http::listen(address).map_err(|source| Error::Listen { address, source })?;
    // A port chosen by the kernel is only available now.
    if address.port() == 0
        && let Ok(address) = listener.local_addr()
    {
        log::of_daemon(&format!("{name} listens on {address}"));
    }
    Ok(listener)
}

/// A socket without which the rest still serves: the image may run another server on the port.
fn optional(name: &str, address: Option<SocketAddr>) -> Option<TcpListener> {
    match listen(name, address?) {
        Ok(listener) => Some(listener),
        Err(error) => {
            log::of_daemon(&format!("{name}: {error}"));
            None
        }
    }
}

async fn scrape(request: Request<Incoming>, root: PathBuf) -> Response {
    if request.method() != Method::GET || request.uri().path() != "/metrics" {
        return http::text(StatusCode::NOT_FOUND, "not found\n");
    }
    match tokio::task::spawn_blocking(move || metrics::collect(&root)).await {
        Ok(text) => http::typed(StatusCode::OK, METRICS_TYPE, text),
        Err(_) => http::text(StatusCode::INTERNAL_SERVER_ERROR, "the daemon is stopping\n"),
    }
}
