//! Probes by HTTP, over a connection that is kept.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::HTTPGetAction;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Most bytes of an answer that are read.
const BODY: usize = 64 << 10;

fn connector() -> Result<TlsConnector, String> {
    let config = neonvm_kit::tls::unchecked().map_err(|error| error.to_string())?;
    Ok(TlsConnector::from(Arc::new(config)))
}

#[derive(Debug, Default)]
pub(super) struct Connection(Option<SendRequest<Empty<Bytes>>>);

impl Connection {
    /// Sends the request; 200 to 399 is success.
    pub(super) async fn get(&mut self, ip: &str, port: u16, action: &HTTPGetAction) -> Result<(), String> {
        let host = action.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(ip);
        if let Some(mut sender) = self.0.take().filter(|sender| !sender.is_closed()) {
            match ask(&mut sender, host, port, action).await {
                // It was closed in between: that proves nothing about the server.
                Err(None) => {}
                Err(Some(why)) => {
                    self.0 = Some(sender);
                    return Err(why);
                }
                Ok(()) => {
                    self.0 = Some(sender);
                    return Ok(());
                }
            }
        }
        let mut sender = connect(host, port, action.scheme.as_deref() == Some("HTTPS")).await?;
        match ask(&mut sender, host, port, action).await {
            Ok(()) => {
                self.0 = Some(sender);
                Ok(())
            }
            Err(why) => {
                self.0 = why.is_some().then_some(sender);
                Err(why.unwrap_or_else(|| "the connection was closed".to_owned()))
            }
        }
    }
}

async fn connect(host: &str, port: u16, is_tls: bool) -> Result<SendRequest<Empty<Bytes>>, String> {
    let stream = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    if !is_tls {
        return handshake(stream).await;
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    handshake(connector()?.connect(name, stream).await.map_err(|error| error.to_string())?).await
}

async fn handshake<S>(stream: S) -> Result<SendRequest<Empty<Bytes>>, String>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // Ends with its sender.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

/// `Err(None)`: the connection is of no use.
async fn ask(
    sender: &mut SendRequest<Empty<Bytes>>,
    host: &str,
    port: u16,
    action: &HTTPGetAction,
) -> Result<(), Option<String>> {
    let path = action.path.as_deref().filter(|path| path.starts_with('/')).unwrap_or("/");
    let mut request =
        hyper::Request::get(path).header("user-agent", "kube-probe/1.36").header("accept", "*/*");
    let headers = action.http_headers.as_deref().unwrap_or_default();
    if !headers.iter().any(|header| header.name.eq_ignore_ascii_case("host")) {
        request = request.header("host", format!("{host}:{port}"));
    }
    for header in headers {
        request = request.header(&header.name, &header.value);
    }
    let request = request.body(Empty::new()).map_err(|error| Some(error.to_string()))?;
    sender.ready().await.map_err(|_| None)?;
    let response = sender.send_request(request).await.map_err(|_| None)?;
    let status = response.status();
    // Read, so that the connection can be used again.
    Limited::new(response.into_body(), BODY).collect().await.map_err(|_| None)?;
    if status.is_success() || status.is_redirection() {
        return Ok(());
    }
    Err(Some(format!("HTTP probe failed with statuscode: {}", status.as_u16())))
}
