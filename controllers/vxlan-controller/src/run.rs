//! The whole controller: watches, the kernel's own news, and one loop.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::StatusCode;
use neonvm_kit::http::{FullRequest, Gate, OPEN, no_body, probes, serve, text};
use neonvm_kit::supervise::{Health, TaskEnded, Tasks};
use tokio::io::Interest;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::metrics::Metrics;
use crate::namespace::Namespace;
use crate::netlink::{self, Netlink};
use crate::sync::Sync;
use crate::watch::{self, Cache};
use crate::{Config, Encryption, guard, keys, wireguard};
use crate::{kernel, nat};

/// What happens within this time is carried out together.
const TOGETHER: Duration = Duration::from_millis(20);
/// First and longest pause after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));

/// Why the controller cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Settings.
    #[error("{0}")]
    Config(String),
    /// No client.
    #[error(transparent)]
    Client(#[from] neonvm_kit::client::Error),
    /// The namespace, or the kernel.
    #[error("{what}")]
    System {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The network namespace of the node was replaced; the controller starts again.
    #[error("the network namespace of the node was replaced")]
    Replaced,
    /// A background task ended.
    #[error(transparent)]
    Task(#[from] TaskEnded),
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |source| Error::System { what: format!("{what}: {source}"), source }
}

/// Runs until `stop` ends. What was made stays, so that nothing is interrupted.
///
/// # Errors
/// If settings contradict each other, namespace, address or kernel cannot be used at start, or a background task ends.
pub async fn run(config: Config, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let client = neonvm_kit::client::connect(config.kubeconfig.as_deref()).await?;
    config.check().map_err(Error::Config)?;
    tokio::pin!(stop);
    let namespace = tokio::select! {
        namespace = Namespace::appears(config.namespace.clone(), config.namespace_wait) => namespace,
        () = &mut stop => return Ok(()),
    };
    let namespace = Arc::new(namespace.map_err(failed("network namespace of the node"))?);
    let metrics = Arc::new(Metrics::default());
    let sync = Sync::open(config.clone(), Arc::clone(&namespace), Arc::clone(&metrics));
    let sync = sync.map_err(failed("netlink"))?;
    if config.encryption == Encryption::Wireguard {
        // A kernel without it is not a temporary failure.
        namespace.run(wireguard::probe).map_err(failed("encryption"))?;
    }
    let changes = namespace.run(netlink::changes).map_err(failed("netlink"))?;
    let health = Health::default();
    let mut tasks = Tasks::new(&health);
    let in_place = Arc::new(AtomicBool::new(false));
    if let Some(address) = config.metrics {
        let listener = listen(address).await?;
        let (metrics, health) = (Arc::clone(&metrics), health.clone());
        let answer = move |request: FullRequest| {
            std::future::ready(match request.uri().path() {
                "/healthz" | "/readyz" => health.answer(),
                "/metrics" => neonvm_kit::metrics::answer(metrics.page()),
                _ => text(StatusCode::NOT_FOUND, "text/plain", "not found\n"),
            })
        };
        let gate = Gate::open(OPEN, &Arc::default());
        tasks.spawn("metrics server", serve(listener, None, gate, no_body, answer));
    }
    if let Some(address) = config.probes {
        let (health, in_place) = (health.clone(), Arc::clone(&in_place));
        let answer = move |path: &str| {
            if path == "/readyz" && !in_place.load(Ordering::Relaxed) {
                let why = "the overlay of this node is not what it should be yet; the log names the reason\n";
                return text(StatusCode::SERVICE_UNAVAILABLE, "text/plain", why);
            }
            health.answer()
        };
        tasks.spawn("probes", probes(listen(address).await?, answer));
    }
    let cache = Arc::new(Cache::default());
    tasks.spawn("watch of nodes", watch::nodes(client.clone(), Arc::clone(&cache)));
    if config.encryption == Encryption::Wireguard {
        let (client, namespace, node) =
            (client.clone(), config.system_namespace.clone(), config.node.clone());
        let (key, seen) = (sync.key(), Arc::clone(&cache));
        tasks.spawn("watch of keys", keys::follow(client.clone(), namespace.clone(), Arc::clone(&cache)));
        tasks.spawn("publisher of the key", keys::publish(client, namespace, node, key, seen));
    }
    tasks.spawn("watch of VMs", watch::machines(client, Arc::clone(&cache)));
    let kernel = Arc::new(Notify::new());
    tasks.spawn("watch of the kernel", follow_kernel(changes, Arc::clone(&kernel)));
    tokio::select! {
        ended = work(&config, sync, &namespace, &cache, &kernel, &in_place) => ended,
        ended = tasks.ended() => Err(ended.into()),
        () = &mut stop => Ok(()),
    }
}

async fn listen(address: std::net::SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(failed(format!("cannot listen on {address}")))
}

/// Compares whenever something changes; returns only if there is nothing left to compare. `in_place` holds whether the last
/// comparison ended with the overlay as it should be.
async fn work(
    config: &Config,
    mut sync: Sync,
    namespace: &Namespace,
    cache: &Cache,
    kernel: &Notify,
    in_place: &AtomicBool,
) -> Result<(), Error> {
    let mut retry: Option<Instant> = None;
    let mut pause = PAUSES.0;
    let mut reported = String::new();
    // With a configured address the first pass need not wait for the watches.
    let mut begin = config.address.is_some();
    let encrypts = config.encryption == Encryption::Wireguard;
    loop {
        if !std::mem::take(&mut begin) {
            tokio::select! {
                () = cache.changed.notified() => {}
                () = kernel.notified() => {}
                () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => {}
                () = sleep(guard::LOOK) => {}
            }
            sleep(TOGETHER).await;
        }
        if !namespace.is_current() {
            return Err(Error::Replaced);
        }
        let Some(local) = config.address.or_else(|| cache.address(&config.node)) else { continue };
        let observed = cache.observed(encrypts);
        let started = Instant::now();
        let work = tokio::task::spawn_blocking(move || {
            let done = sync.run(local, observed);
            (sync, done)
        });
        let (back, done) = work.await.map_err(|error| failed("a comparison")(io::Error::other(error)))?;
        sync = back;
        let took = started.elapsed();
        in_place.store(done.is_ok(), Ordering::Relaxed);
        match done {
            Ok(()) => {
                if !reported.is_empty() {
                    tracing::info!("the overlay is what it should be again");
                }
                (retry, pause) = (None, PAUSES.0);
                reported.clear();
            }
            Err(error) => {
                let text = error.to_string();
                if text != reported {
                    tracing::warn!(error = text, "the overlay is not what it should be; it is tried again");
                }
                reported = text;
                retry = Some(Instant::now() + pause);
                pause = (pause * 2).min(PAUSES.1);
            }
        }
        // A large table takes its time; the node has other things to do as well.
        sleep(took * 4).await;
    }
}

/// Reports when links or tables of the node change. Returns if that cannot be read any more.
async fn follow_kernel(socket: OwnedFd, changed: Arc<Notify>) {
    // Not UDP, but waited for like it.
    let socket = match UdpSocket::from_std(socket.into()) {
        Ok(socket) => socket,
        Err(error) => return tracing::warn!(%error, "changes that others make to the overlay are not seen"),
    };
    loop {
        let ready = socket.readable().await;
        let mut matters = false;
        let read =
            ready.and_then(|()| socket.try_io(Interest::READABLE, || netlink::drain(&socket, &mut matters)));
        if matters {
            changed.notify_one();
        }
        match read {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                return tracing::warn!(%error, "changes that others make to the overlay are not seen");
            }
            _ => {}
        }
    }
}

/// Removes everything that a controller with these settings creates on its node. The lease with the public key stays: it is
/// useless without the private key, and is deleted with the node's object. Blocks.
///
/// # Errors
/// If something cannot be removed.
pub fn delete(config: &Config) -> Result<(), Error> {
    config.check().map_err(Error::Config)?;
    let namespace =
        Namespace::open(config.namespace.clone()).map_err(failed("network namespace of the node"))?;
    let links = namespace.run(|| {
        let mut netlink = Netlink::open()?;
        kernel::delete(&mut netlink, config)?;
        wireguard::delete(&mut netlink, config)
    });
    let rules = namespace.run(|| nat::delete().and_then(|()| guard::delete()));
    links.map_err(failed("links"))?;
    match rules {
        // Without the program no rules can have been made.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.map_err(failed("rules")),
    }
}
