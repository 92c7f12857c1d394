//! Requests to the informant in a guest. Each has a connection of its own: there are few, and an informant that was restarted
//! is found at once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use neonvm_core_vertical_scaling::agent::informant::Failure;
use rustls::ClientConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::guest::{BUFFER, Route};

/// Longest answer, in bytes.
const LONGEST: usize = 64 << 10;
/// Most characters of an answer with an error that are kept.
const SHOWN: usize = 200;

#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) route: Route,
    pub(super) port: u16,
    pub(super) tls: Arc<ClientConfig>,
}

impl Client {
    /// Sends a document, and reads the one that answers it within the time.
    pub(super) async fn call<R: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
        within: Duration,
    ) -> Result<R, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::Transport(error.to_string()))?;
        let exchange = tokio::time::timeout(within, self.exchange(method, path, body.into())).await;
        let (status, body) = match exchange {
            Ok(exchanged) => exchanged.map_err(Failure::Transport)?,
            Err(_) => return Err(Failure::Transport(format!("no answer within {} s", within.as_secs()))),
        };
        if status != StatusCode::OK {
            let text = String::from_utf8_lossy(&body);
            let shown = text.chars().filter(|character| !character.is_control()).take(SHOWN).collect();
            return Err(Failure::Status(status.as_u16(), shown));
        }
        serde_json::from_slice(&body).map_err(|error| Failure::Invalid(error.to_string()))
    }

    async fn exchange(&self, method: Method, path: &str, body: Bytes) -> Result<(StatusCode, Bytes), String> {
        let stream = self.route.connect(self.port, &self.tls).await?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(BUFFER * 2);
        let (mut sender, connection) =
            builder.handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        // It ends with the exchange: the sender is dropped then.
        let connection = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "guest")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONNECTION, "close")
            .body(Full::new(body))
            .map_err(|error| error.to_string())?;
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), LONGEST).collect().await;
        connection.abort();
        Ok((status, body.map_err(|error| format!("the answer is broken or too long: {error}"))?.to_bytes()))
    }
}
