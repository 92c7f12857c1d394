//! Listening: TLS on the pod's addresses, a socket inside the container.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use neonvm_types::runner_protocol::CLIENT_ORGANISATION;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use super::{Peer, Shared, handle};

/// Connections at a time.
const CONNECTIONS: usize = 64;
/// Time for the handshake, and for the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a connection's buffer: the longest head of a request.
const BUFFER: usize = 16 << 10;

/// Serves with TLS on a port of these addresses; of all if there is none.
pub(crate) async fn listen_with_tls(
    shared: &Arc<Shared>,
    addresses: &[IpAddr],
    port: u16,
    tls: rustls::ServerConfig,
) -> std::io::Result<Vec<SocketAddr>> {
    let any = [IpAddr::from([0; 4])];
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut bound = Vec::new();
    for address in if addresses.is_empty() { &any } else { addresses } {
        let listener = TcpListener::bind((*address, port)).await?;
        bound.push(listener.local_addr()?);
        let (shared, acceptor, places) = (Arc::clone(shared), acceptor.clone(), Arc::clone(&places));
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    // Out of descriptors, most likely.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
                let _ = stream.set_nodelay(true);
                let (shared, acceptor) = (Arc::clone(&shared), acceptor.clone());
                tokio::spawn(async move {
                    if let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
                        let peer = of_certificates(stream.get_ref().1.peer_certificates(), &shared.name);
                        connection(shared, peer, stream).await;
                    }
                    drop(place);
                });
            }
        });
    }
    Ok(bound)
}

/// TLS has verified the certificate; what it says decides.
fn of_certificates(certificates: Option<&[rustls::pki_types::CertificateDer<'_>]>, own: &str) -> Peer {
    let Some(certificate) = certificates.and_then(|chain| chain.first()) else { return Peer::Stranger };
    if neonvm_kit::tls::organisations(certificate).iter().any(|name| name == CLIENT_ORGANISATION) {
        Peer::Trusted
    } else if neonvm_kit::tls::dns_names(certificate).iter().any(|name| name == own) {
        Peer::Twin
    } else {
        Peer::Stranger
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
            tokio::spawn(connection(Arc::clone(&shared), Peer::Trusted, stream));
        }
    });
    Ok(())
}

async fn connection<S>(shared: Arc<Shared>, peer: Peer, stream: S)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
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
