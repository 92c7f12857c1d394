//! Listening: TLS on the pod's addresses, a socket inside the container.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use neonvm_kit::authority::AGENTS;
use neonvm_kit::http::{self as server, Gate};
use neonvm_kit::places::Places;
use neonvm_types::runner_protocol::CLIENT_ORGANISATION;
use tokio::net::{TcpListener, UnixListener, UnixStream};

use super::{Own, Peer, Shared, handle};

/// Connections at a time. The port is reached by other guests: those get the few that readiness probes need, and never one of the
/// controller, the agent, people and the other runner of this machine.
const PLACES: Places = Places { arriving: 128, strangers: 16, per_address: 8, known: 64 };
/// Time for the head of a request on the socket.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a connection's buffer there: the longest head of a request.
const BUFFER: usize = 16 << 10;

/// Serves with TLS on a port of these addresses; of all if there is none.
pub(crate) async fn listen_with_tls(
    shared: &Arc<Shared>,
    addresses: &[IpAddr],
    port: u16,
    tls: rustls::ServerConfig,
) -> std::io::Result<Vec<SocketAddr>> {
    let any = [IpAddr::from([0; 4])];
    let tls = Arc::new(RwLock::new(Arc::new(tls)));
    let own = shared.own.clone();
    let gate = Gate::new(PLACES, &shared.bodies, move |peer| Peer::from_peer(peer, &own) != Peer::Stranger);
    let mut bound = Vec::new();
    for address in if addresses.is_empty() { &any } else { addresses } {
        let listener = TcpListener::bind((*address, port)).await?;
        bound.push(listener.local_addr()?);
        let shared = Arc::clone(shared);
        let answer = move |request: hyper::Request<_>| {
            let peer = Peer::from_peer(&server::Peer::from_extensions(request.extensions()), &shared.own);
            handle(Arc::clone(&shared), peer, request)
        };
        tokio::spawn(server::serve_streams(listener, Some(Arc::clone(&tls)), gate.clone(), answer));
    }
    Ok(bound)
}

impl Peer {
    /// By the names in the certificate, which TLS has verified.
    pub(super) fn from_peer(shown: &server::Peer, own: &Own) -> Self {
        if shown.is_one_of(&[CLIENT_ORGANISATION]) {
            Self::Trusted
        } else if shown.is_one_of(&[AGENTS]) && own.agent.as_ref() == Some(&shown.common_name) {
            Self::Agent
        } else if shown.dns_names.contains(&own.machine) {
            Self::Twin
        } else {
            Self::Stranger
        }
    }
}

/// Serves on a socket that only this container's commands reach.
pub(crate) fn listen_locally(shared: &Arc<Shared>, socket: &Path) -> std::io::Result<()> {
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket)?;
    std::fs::set_permissions(socket, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            if is_of_a_child(&stream) {
                tracing::warn!("a process that the runner has started is refused at its socket");
                continue;
            }
            tokio::spawn(connection(Arc::clone(&shared), Peer::Trusted, stream));
        }
    });
    Ok(())
}

/// Whether the process at the other end is one that this process has started: QEMU, which may be the same user and must not change the size
/// that its VM was permitted. It can start none itself (its filter of system calls). Commands in the container are children of others.
fn is_of_a_child(stream: &UnixStream) -> bool {
    let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
    let Some(pid) = pid else { return false };
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    parent(&status) == u32::try_from(rustix::process::getpid().as_raw_nonzero().get()).ok()
}

/// The parent in the text of `/proc/PID/status`.
fn parent(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

async fn connection(shared: Arc<Shared>, peer: Peer, stream: UnixStream) {
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, std::convert::Infallible>(handle(shared, peer, request).await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(BUFFER);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).with_upgrades().await {
        tracing::debug!(%error, "a connection ended");
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use neonvm_test_support::{need, needs};

    use super::*;

    #[test]
    fn the_parent_is_read() {
        assert_eq!(parent("Name:\tx\nPid:\t7\nPPid:\t42\n"), Some(42));
        assert_eq!((parent(""), parent("PPid:\tx\n")), (None, None));
    }

    #[tokio::test]
    async fn a_process_that_the_runner_has_started_is_not_a_client() {
        let python = need!(needs::program("python3"));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let script =
            "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(1)";
        let child = Command::new(python).args(["-c", script]).arg(&path).stdin(Stdio::null()).spawn();
        let mut child = child.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        assert!(is_of_a_child(&stream));
        drop(stream);
        child.wait().unwrap();
        let (_own, stream) = tokio::join!(UnixStream::connect(&path), listener.accept());
        assert!(!is_of_a_child(&stream.unwrap().0));
    }
}
