//! An HTTPS client: one connection a request, raw JSON, no knowledge of Kubernetes beyond a kubeconfig's layout.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use neonvm_kit::ca::Identity;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Its first part is the default field manager.
const USER_AGENT: &str = "kube-conformance/1";
/// Time for a request, from connecting to the head of its answer.
const REQUEST: Duration = Duration::from_secs(40);

/// A server and its administrator's identity.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub server: String,
    host: String,
    authority: String,
    token: Option<String>,
    /// With and without the client certificate.
    known: Arc<rustls::ClientConfig>,
    unknown: Arc<rustls::ClientConfig>,
}

/// A request before it is sent.
#[derive(Debug, Default)]
pub(crate) struct Outgoing<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    /// A null takes a default header away.
    pub(crate) headers: Option<&'a serde_json::Map<String, Value>>,
    pub(crate) body: Option<String>,
    /// `None`: the administrator. Empty: anonymous.
    pub(crate) token: Option<&'a str>,
}

impl Cluster {
    /// Reads the first cluster and user of a kubeconfig, with data or files in it.
    ///
    /// # Errors
    /// If something is missing or cannot be read.
    pub fn read(kubeconfig: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(kubeconfig)
            .with_context(|| format!("cannot read {}", kubeconfig.display()))?;
        let config: Value = serde_saphyr::from_str(&text).context("not a kubeconfig")?;
        let beside = kubeconfig.parent().unwrap_or(Path::new("."));
        let cluster = config.pointer("/clusters/0/cluster").context("the kubeconfig has no cluster")?;
        let user = config.pointer("/users/0/user").context("the kubeconfig has no user")?;
        let pem = |value: &Value, key: &str| -> anyhow::Result<Option<String>> {
            if let Some(data) = value.get(format!("{key}-data")).and_then(Value::as_str) {
                return Ok(Some(String::from_utf8(base64::engine::general_purpose::STANDARD.decode(data)?)?));
            }
            let file = value.get(key).and_then(Value::as_str);
            Ok(file.map(|file| std::fs::read_to_string(beside.join(file))).transpose()?)
        };
        let server = cluster.get("server").and_then(Value::as_str).context("the cluster has no server")?;
        let server = server.trim_end_matches('/').to_owned();
        let Some(host) = server.strip_prefix("https://").map(str::to_owned) else {
            bail!("{server} is not https")
        };
        let authority = pem(cluster, "certificate-authority")?.context("the cluster has no authority")?;
        let identity = match (pem(user, "client-certificate")?, pem(user, "client-key")?) {
            (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
            _ => None,
        };
        Ok(Self {
            host,
            token: user.get("token").and_then(Value::as_str).map(str::to_owned),
            known: config_for(identity.as_ref(), &authority)?,
            unknown: config_for(None, &authority)?,
            server,
            authority,
        })
    }

    /// Sends one request on a connection of its own and returns the head of the answer.
    pub(crate) async fn send(&self, outgoing: &Outgoing<'_>) -> anyhow::Result<Response<Incoming>> {
        let sent = tokio::time::timeout(REQUEST, self.exchange(outgoing)).await;
        sent.with_context(|| format!("no answer within {} s", REQUEST.as_secs()))?
    }

    async fn exchange(&self, outgoing: &Outgoing<'_>) -> anyhow::Result<Response<Incoming>> {
        let request = self.request(outgoing)?;
        let stream = TcpStream::connect(&self.host).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        let config = if outgoing.token.is_none() { &self.known } else { &self.unknown };
        let name = self.host.rsplit_once(':').map_or(self.host.as_str(), |(name, _)| name);
        let name = ServerName::try_from(name.trim_matches(['[', ']']).to_owned())?;
        let tls = TlsConnector::from(Arc::clone(config)).connect(name, stream).await.context("no TLS")?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls)).await?;
        // Ends with the answer's body; how it ends shows there.
        tokio::spawn(connection);
        Ok(sender.send_request(request).await?)
    }

    fn request(&self, outgoing: &Outgoing<'_>) -> anyhow::Result<Request<Full<Bytes>>> {
        let mut request = Request::builder()
            .method(outgoing.method)
            .uri(quote(outgoing.path))
            .body(Full::from(outgoing.body.clone().unwrap_or_default()))?;
        let headers = request.headers_mut();
        headers.insert(header::HOST, self.host.parse()?);
        headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let token = outgoing.token.or(self.token.as_deref()).filter(|token| !token.is_empty());
        if let Some(token) = token {
            headers.insert(header::AUTHORIZATION, format!("Bearer {token}").parse()?);
        }
        if outgoing.body.is_some() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        for (name, value) in outgoing.headers.into_iter().flatten() {
            let name: header::HeaderName = name.parse()?;
            match value.as_str() {
                Some(text) => drop(headers.insert(name, text.parse()?)),
                None => drop(headers.remove(name)),
            }
        }
        Ok(request)
    }

    /// The authority's certificate, PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }
}

fn config_for(identity: Option<&Identity>, authority: &str) -> anyhow::Result<Arc<rustls::ClientConfig>> {
    let mut config = neonvm_kit::tls::client(identity, authority.as_bytes())?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A path with its query, with what may not stand in one escaped.
fn quote(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/?&=%:,;+~$-_.!*'()".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_escaped() {
        assert_eq!(quote("/a?b=c%20d&e=ü \"x\""), "/a?b=c%20d&e=%C3%BC%20%22x%22");
    }
}
