//! Connections between two runners: TLS, a line of greeting, a line of answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use neonvm_hypervisor::patience::scaled;
use neonvm_kit::ca::Identity;
use neonvm_types::runner_protocol::{MigrationAnswer, MigrationChannel, MigrationHello, server_name};
use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::LINE;
use crate::certificate;

/// Time for each of connection, handshake and greeting.
const PATIENCE: Duration = Duration::from_secs(5);
/// A connection on which nothing arrives any more is closed after this: a guest that writes to its disk waits for it.
const DEAD: u32 = 10_000;
/// An idle connection is looked after with probes so far apart; so many without an answer end it.
const PROBE: (Duration, u32) = (Duration::from_secs(3), 3);
/// Bytes that TLS may take before they are sent: a whole buffer of the relay.
pub(super) const TLS_BUFFER: usize = 64 << 10;
/// Bytes of memory that the kernel may keep at either end of a connection. Data that QEMU has handed over counts as
/// sent, and if the target is slower, the downtime lasts until all of it is received; by default, Linux keeps up to 36
/// MiB for each connection. With this, four connections carry 1 GiB/s, the usual limit, where an answer takes 1 ms.
const NETWORK_BUFFER: usize = 256 << 10;
/// The same between the target's runner and its QEMU.
const QEMU_BUFFER: usize = 64 << 10;

/// A connection to the target.
pub(super) type Client = tokio_rustls::client::TlsStream<TcpStream>;

/// How to connect to the target, and as which peer.
#[derive(Clone)]
pub(crate) struct Connector {
    tls: TlsConnector,
    name: ServerName<'static>,
    target: SocketAddr,
    id: String,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Connector {
    /// For a migration of this VM.
    pub(crate) fn new(
        identity: &Identity,
        authority: &str,
        uid: &str,
        target: SocketAddr,
        id: &str,
    ) -> Result<Self, String> {
        let tls = neonvm_kit::tls::client(Some(identity), authority.as_bytes());
        let mut tls = tls.map_err(|error| format!("certificate: {error}"))?;
        tls.alpn_protocols.clear();
        let name = ServerName::try_from(server_name(uid)).map_err(|error| error.to_string())?;
        Ok(Self { tls: TlsConnector::from(Arc::new(tls)), name, target, id: id.to_owned() })
    }

    /// A connection for `channel` that the target has taken. Errors are for people.
    pub(super) async fn open(&self, channel: MigrationChannel) -> Result<Client, String> {
        let within = |what: &'static str| move |_| format!("{what} {}: no answer within 5 s", self.target);
        let stream = tokio::time::timeout(scaled(PATIENCE), TcpStream::connect(self.target)).await;
        let stream = stream.map_err(within("connect to"))?;
        let stream = stream.map_err(|error| format!("connect to {}: {error}", self.target))?;
        tune(&stream);
        if channel == MigrationChannel::Memory {
            hold_little(&stream);
        }
        let stream =
            tokio::time::timeout(scaled(PATIENCE), self.tls.connect(self.name.clone(), stream)).await;
        let stream = stream.map_err(within("TLS with"))?;
        let refused =
            |error: std::io::Error| format!("TLS with {}: {}", self.target, certificate::words(&error));
        let mut stream = stream.map_err(refused)?;
        stream.get_mut().1.set_buffer_limit(Some(TLS_BUFFER));
        let hello = MigrationHello { id: self.id.clone(), channel };
        let greeting = async {
            // A target that rejects our certificate sends the reason, and may have closed before it gets the greeting.
            let _ = write(&mut stream, &hello).await;
            read::<MigrationAnswer, _>(&mut stream).await
        };
        let answer = tokio::time::timeout(scaled(PATIENCE), greeting).await.map_err(within("greet"))?;
        let refused =
            |error: std::io::Error| format!("greet {}: {}", self.target, certificate::words(&error));
        let answer = answer.map_err(refused)?;
        if answer.error.is_empty() { Ok(stream) } else { Err(format!("the target: {}", answer.error)) }
    }
}

/// Small packets at once; dead connections are noticed.
pub(super) fn tune(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let (pause, count) = PROBE;
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, pause);
    let _ = sockopt::set_tcp_keepintvl(stream, pause);
    let _ = sockopt::set_tcp_keepcnt(stream, count);
    let _ = sockopt::set_tcp_user_timeout(stream, DEAD);
}

/// Little of the guest's memory is to be under way: see [`NETWORK_BUFFER`]. A connection that cannot be set so works as well.
pub(super) fn hold_little(stream: &TcpStream) {
    let _ = sockopt::set_socket_recv_buffer_size(stream, NETWORK_BUFFER);
    let _ = sockopt::set_socket_send_buffer_size(stream, NETWORK_BUFFER);
}

/// The same for the last piece of the way.
pub(super) fn hold_little_for_qemu(stream: &UnixStream) {
    let _ = sockopt::set_socket_send_buffer_size(stream, QEMU_BUFFER);
}

pub(super) async fn write<S: AsyncWrite + Unpin>(
    stream: &mut S,
    document: &impl Serialize,
) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(document).map_err(std::io::Error::other)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    stream.flush().await
}

/// Reads a line, and not a byte more: what follows belongs to others.
pub(super) async fn read<T: DeserializeOwned, S: AsyncRead + Unpin>(stream: &mut S) -> std::io::Result<T> {
    let mut line = Vec::new();
    loop {
        match stream.read_u8().await? {
            b'\n' => break,
            byte => line.push(byte),
        }
        if line.len() > LINE {
            return Err(std::io::Error::other("a line without an end"));
        }
    }
    serde_json::from_slice(&line).map_err(std::io::Error::other)
}
