//! How a client reaches its server.

use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, Write};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::client::proxy::matcher::Intercept;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt as _;
use kube::client::retry::RetryPolicy;
use kube::{Client, Config};
use tower::retry::RetryLayer;
use tower::{BoxError, Service, ServiceBuilder};

/// When a server counts as gone. A watch waits for bytes, and a host that lost its power or a firewall that forgot the
/// connection sends none: without questions from the kernel (TCP keepalive) it would wait forever.
#[derive(Clone, Copy)]
pub(super) struct Silence {
    /// After this long without a byte the kernel sends its first probe.
    ask_after: Duration,
    /// Then again after this long each time; the second question that is not answered is the last.
    ask_every: Duration,
    /// What was sent is not taken in for this long: the connection has failed. None: the server may be slow.
    taken_within: Option<Duration>,
}

/// For requests, whose servers take them in at once.
pub(super) const REQUESTS: Silence = Silence {
    ask_after: Duration::from_secs(30),
    ask_every: Duration::from_secs(5),
    taken_within: Some(Duration::from_secs(30)),
};
/// For streams. The kernel's limit for what is not taken in (`TCP_USER_TIMEOUT`) counts a receiver that answers but has no room
/// (a zero window) as one that is gone, and a program that does not read its input for a while is neither.
pub(super) const STREAMS: Silence = Silence { taken_within: None, ..REQUESTS };

/// A client that goes through the proxy, if there is one.
pub(super) fn client(
    config: Config,
    proxy: Option<Intercept>,
    silence: Silence,
) -> Result<Client, kube::Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_keepalive(Some(silence.ask_after));
    tcp.set_keepalive_interval(Some(silence.ask_every));
    tcp.set_keepalive_retries(Some(2));
    tcp.set_tcp_user_timeout(silence.taken_within);
    let Some(proxy) = proxy else { return over(config, tcp) };
    match proxy.uri().scheme_str() {
        Some("http") => {
            let tunnel = Tunnel::new(proxy.uri().clone(), tcp);
            match proxy.basic_auth() {
                Some(credentials) => over(config, tunnel.with_auth(credentials.clone())),
                None => over(config, tunnel),
            }
        }
        Some("socks5" | "socks5h") => {
            let socks = SocksV5::new(proxy.uri().clone(), tcp);
            match proxy.raw_auth() {
                Some((user, password)) => over(config, socks.with_auth(user.to_owned(), password.to_owned())),
                None => over(config, socks),
            }
        }
        _ => Err(kube::Error::ProxyProtocolUnsupported { proxy_url: Box::new(proxy.uri().clone()) }),
    }
}

/// What `kube` does with a request, over a transport of ours.
fn over<C>(config: Config, connector: C) -> Result<Client, kube::Error>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: std::error::Error + Send + Sync + 'static,
{
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(connector)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector));
    Ok(Client::new(service, config.default_namespace))
}

#[cfg(test)]
mod tests;
