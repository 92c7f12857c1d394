//! Connections without a client library in between.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use neonvm_kit::ca::Identity;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// An administrator's way in.
#[derive(Clone)]
pub(crate) struct Access {
    /// `127.0.0.1:PORT`
    pub(crate) address: std::net::SocketAddr,
    http1: TlsConnector,
    http2: TlsConnector,
}

/// A raw answer.
#[derive(Debug)]
pub(crate) struct RawResponse {
    pub(crate) code: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Access {
    /// Of the server over `directory`.
    pub(crate) fn read(directory: &Path) -> anyhow::Result<Self> {
        let config: Value = serde_json::from_str(&std::fs::read_to_string(directory.join("kubeconfig"))?)?;
        let text = |pointer: &str| {
            config.pointer(pointer).and_then(Value::as_str).context("kubeconfig").map(str::to_owned)
        };
        let decoded = |pointer: &str| -> anyhow::Result<String> {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text(pointer)?)?;
            Ok(String::from_utf8(bytes)?)
        };
        let identity = Identity {
            certificate: decoded("/users/0/user/client-certificate-data")?,
            key: decoded("/users/0/user/client-key-data")?,
        };
        let authority = decoded("/clusters/0/cluster/certificate-authority-data")?;
        let connector = |protocol: &[u8]| -> anyhow::Result<TlsConnector> {
            let mut config = neonvm_kit::tls::client(Some(&identity), authority.as_bytes())?;
            config.alpn_protocols = vec![protocol.to_vec()];
            Ok(TlsConnector::from(Arc::new(config)))
        };
        let address = text("/clusters/0/cluster/server")?;
        let address = address.trim_start_matches("https://").parse()?;
        Ok(Self { address, http1: connector(b"http/1.1")?, http2: connector(b"h2")? })
    }

    /// HTTP/1.1 over TLS; a small receive buffer if asked, so that little of what is not read is held by the kernel.
    pub(crate) async fn http1(&self, small: bool) -> anyhow::Result<TlsStream<TcpStream>> {
        let socket = TcpSocket::new_v4()?;
        if small {
            socket.set_recv_buffer_size(8 << 10)?;
        }
        let stream = socket.connect(self.address).await?;
        Ok(self.http1.connect(ServerName::try_from("localhost")?, stream).await?)
    }

    /// HTTP/2 over TLS, nothing sent yet.
    pub(crate) async fn http2(&self) -> anyhow::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        Ok(self.http2.connect(ServerName::try_from("localhost")?, stream).await?)
    }

    /// Sends a body as it is and reads the whole answer.
    pub(crate) async fn post(
        &self,
        path: &str,
        content_type: &str,
        body: &[u8],
    ) -> anyhow::Result<RawResponse> {
        let mut stream = self.http1(false).await?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await?;
        answer(&mut stream).await
    }
}

/// Reads an answer up to the end of the connection.
pub(crate) async fn answer(stream: &mut TlsStream<TcpStream>) -> anyhow::Result<RawResponse> {
    let mut bytes = Vec::new();
    let ended = stream.read_to_end(&mut bytes).await;
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        bail!("no answer: {ended:?}, {} bytes", bytes.len());
    };
    let (head, body) = bytes.split_at(end);
    let head = String::from_utf8(head.to_vec())?;
    let code = head.split_whitespace().nth(1).and_then(|text| text.parse().ok()).context("no status code")?;
    Ok(RawResponse { code, head, body: body.get(4..).unwrap_or_default().to_vec() })
}
