//! Calling admission webhooks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::Request;
use hyper_util::rt::TokioIo;
use neonvm_apiserver_engine::admission::{Call, ReviewOutcome};
use neonvm_kit::certificate::Shown;
use neonvm_kit::trust::Trust;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const MAX_ANSWER: usize = 4 << 20;

/// Makes a call and returns its result. `service` is the Service object that the call names, if there is one; `caller` the
/// certificate that this server shows.
pub(crate) async fn call(call: &Call, service: Option<&Value>, caller: Option<&Arc<Shown>>) -> ReviewOutcome {
    let Some(place) = place(call, service) else {
        return ReviewOutcome::Failed("failed to call webhook: the service it names does not exist".into());
    };
    let url = format!("{}?timeout={}s", place.url, call.timeout);
    let limit = Duration::from_secs(u64::from(call.timeout));
    match tokio::time::timeout(limit, post(call, &place, caller)).await {
        Ok(Ok(review)) => ReviewOutcome::Review(review),
        Ok(Err(why)) => ReviewOutcome::Failed(format!("failed to call webhook: {why}")),
        Err(_) => {
            ReviewOutcome::Failed(format!("failed to call webhook: Post {url:?}: context deadline exceeded"))
        }
    }
}

struct WebhookAddress {
    url: String,
    server_name: String,
    address: String,
    path: String,
}

/// Where to connect: a URL's host, or the address of a service.
fn place(call: &Call, service: Option<&Value>) -> Option<WebhookAddress> {
    if let Some((namespace, name, path, port)) = &call.client.service {
        let address =
            service?.pointer("/spec/clusterIP").and_then(Value::as_str).filter(|ip| *ip != "None")?;
        let server_name = format!("{name}.{namespace}.svc");
        let path = if path.starts_with('/') { path.clone() } else { format!("/{path}") };
        return Some(WebhookAddress {
            url: format!("https://{server_name}:{port}{path}"),
            server_name,
            address: format!("{address}:{port}"),
            path,
        });
    }
    let rest = call.client.url.strip_prefix("https://")?;
    let (authority, path) =
        rest.split_once('/').map_or((rest, String::from("/")), |(a, p)| (a, format!("/{p}")));
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let address = if authority.contains(':') { authority.to_owned() } else { format!("{authority}:443") };
    let server_name = host.trim_matches(['[', ']']).to_owned();
    Some(WebhookAddress { url: call.client.url.clone(), server_name, address, path })
}

async fn post(call: &Call, place: &WebhookAddress, caller: Option<&Arc<Shown>>) -> Result<Value, String> {
    let bundle = &call.client.ca_bundle;
    let config = match caller {
        Some(shown) => Trust::new(&String::from_utf8_lossy(bundle))
            .and_then(|trust| neonvm_kit::tls::client_with(Arc::clone(shown), Arc::new(trust))),
        None => neonvm_kit::tls::client(None, bundle),
    };
    let config = config.map_err(|error| error.to_string())?;
    let stream = TcpStream::connect(&place.address).await.map_err(|error| error.to_string())?;
    let name = ServerName::try_from(place.server_name.clone()).map_err(|error| error.to_string())?;
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|error| error.to_string())?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let driver = tokio::spawn(connection);
    let request = Request::post(format!("{}?timeout={}s", place.path, call.timeout))
        .header("host", &place.server_name)
        .header("content-type", "application/json")
        .header("accept", "application/json")
        .body(Full::new(Bytes::from(call.review.to_string())))
        .map_err(|error| error.to_string())?;
    let answered = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER)
            .collect()
            .await
            .map_err(|error| error.to_string())?;
        let body = body.to_bytes();
        if !status.is_success() {
            return Err(format!("the server answered {status}"));
        }
        serde_json::from_slice(&body).map_err(|error| format!("cannot read the answer: {error}"))
    };
    let answer = answered.await;
    driver.abort();
    answer
}
