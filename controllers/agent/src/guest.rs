//! The way to a port of a guest: through the runner with mutual TLS where the runner is ours, else straight to the address of
//! the pod, as with upstream's runners.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use neonvm_api::VirtualMachine;
use neonvm_types::runner_protocol::{GUEST_PORT_PATH, STREAM_PROTOCOL, server_name};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Bytes of a connection's buffer: there are hundreds of them.
pub(crate) const BUFFER: usize = 8 << 10;

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// How guests of a VM's pod are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Runner {
        address: SocketAddr,
        /// UID of the VM: the name in the runner's certificate is made of it.
        uid: String,
    },
    /// Straight.
    Direct(IpAddr),
}

impl Route {
    /// To the guest of a VM; none as long as its pod has no address.
    pub(crate) fn from_vm(vm: &VirtualMachine) -> Option<Self> {
        let status = vm.status.as_ref()?;
        let ip: IpAddr = status.pod_ip.parse().ok()?;
        // Only our runners report a VM in the VM's status.
        match (&status.machine, &vm.metadata.uid) {
            (Some(_), Some(uid)) => {
                Some(Self::Runner { address: SocketAddr::new(ip, vm.spec.runner_port), uid: uid.clone() })
            }
            _ => Some(Self::Direct(ip)),
        }
    }

    /// Address of the VM's pod.
    pub(crate) const fn address(&self) -> IpAddr {
        match self {
            Self::Runner { address, .. } => address.ip(),
            Self::Direct(ip) => *ip,
        }
    }

    /// Connects to a TCP port of the guest. The caller sets the deadline.
    pub(crate) async fn connect(
        &self,
        port: u16,
        tls: &Arc<ClientConfig>,
    ) -> Result<Box<dyn Stream>, String> {
        match self {
            Self::Direct(ip) => {
                let stream =
                    TcpStream::connect((*ip, port)).await.map_err(|error| format!("{ip}:{port}: {error}"))?;
                let _ = stream.set_nodelay(true);
                Ok(Box::new(stream))
            }
            Self::Runner { address, uid } => through(*address, uid, port, tls)
                .await
                .map_err(|error| format!("runner at {address}: {error}")),
        }
    }
}

async fn through(
    address: SocketAddr,
    uid: &str,
    port: u16,
    tls: &Arc<ClientConfig>,
) -> Result<Box<dyn Stream>, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let stream = TcpStream::connect(address).await.map_err(|error| text(&error))?;
    let _ = stream.set_nodelay(true);
    let name = ServerName::try_from(server_name(uid)).map_err(|error| text(&error))?;
    let stream =
        TlsConnector::from(Arc::clone(tls)).connect(name, stream).await.map_err(|error| text(&error))?;
    let mut builder = http1::Builder::new();
    builder.max_buf_size(BUFFER);
    let (mut sender, connection) =
        builder.handshake(TokioIo::new(stream)).await.map_err(|error| text(&error))?;
    tokio::spawn(connection.with_upgrades());
    let request = Request::get(format!("{GUEST_PORT_PATH}{port}"))
        .header(header::HOST, "runner")
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, STREAM_PROTOCOL)
        .body(Empty::<Bytes>::new())
        .map_err(|error| text(&error))?;
    let mut answer = sender.send_request(request).await.map_err(|error| text(&error))?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let status = answer.status();
        let body = Limited::new(answer.into_body(), BUFFER).collect().await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        return Err(format!("{status}: {}", String::from_utf8_lossy(&body).trim()));
    }
    let upgraded = hyper::upgrade::on(&mut answer).await.map_err(|error| text(&error))?;
    Ok(Box::new(TokioIo::new(upgraded)))
}
