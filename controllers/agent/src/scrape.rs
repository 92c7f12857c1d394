//! Reads the metrics of a guest. The connection is kept between two readings.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;

use crate::guest::{BUFFER, Route};

/// Longest text that is read, in bytes.
const LONGEST: usize = 1 << 20;

/// A metrics port of one guest.
pub(crate) struct Scraper {
    route: Route,
    port: u16,
    tls: Arc<ClientConfig>,
    kept: Option<SendRequest<Empty<Bytes>>>,
}

impl std::fmt::Debug for Scraper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scraper")
            .field("route", &self.route)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

impl Scraper {
    pub(crate) fn new(route: Route, port: u16, tls: Arc<ClientConfig>) -> Self {
        Self { route, port, tls, kept: None }
    }

    /// The text, within the time. After a failure the connection is made again.
    pub(crate) async fn read(&mut self, within: Duration) -> Result<Bytes, String> {
        let read = tokio::time::timeout(within, self.attempt()).await;
        let read = read.unwrap_or_else(|_| Err(format!("no answer within {} s", within.as_secs())));
        if read.is_err() {
            self.kept = None;
        }
        read
    }

    async fn attempt(&mut self) -> Result<Bytes, String> {
        if let Some(mut kept) = self.kept.take()
            && kept.ready().await.is_ok()
            && let Ok(text) = get(&mut kept).await
        {
            self.kept = Some(kept);
            return Ok(text);
        }
        let stream = self.route.connect(self.port, &self.tls).await?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(BUFFER * 2);
        let (mut sender, connection) =
            builder.handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        let text = get(&mut sender).await?;
        self.kept = Some(sender);
        Ok(text)
    }
}

async fn get(sender: &mut SendRequest<Empty<Bytes>>) -> Result<Bytes, String> {
    let request = Request::get("/metrics").header(header::HOST, "guest").body(Empty::new());
    let request = request.map_err(|error| error.to_string())?;
    let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let status = answer.status();
    if status != StatusCode::OK {
        return Err(format!("the metrics port answers {status}"));
    }
    let body = Limited::new(answer.into_body(), LONGEST).collect().await;
    Ok(body.map_err(|error| format!("the text is broken or too long: {error}"))?.to_bytes())
}
