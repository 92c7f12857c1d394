//! Requests to the API server on standard error, for `--verbose`: a line for each, and with `-vv` the bodies, with values
//! of known fields only. Standard output is not touched.

mod body;
mod redact;
#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use futures_util::future::BoxFuture;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tower::Service;

use crate::render::{Shown, errors};
use crate::settings::Verbosity;
use body::TracedBody;

/// Characters of a body that are shown.
const LONGEST: usize = 20_000;

/// Takes one line.
type Sink = Arc<dyn Fn(&str) + Send + Sync>;

/// A client that shows its requests on standard error; the same client if nothing is shown.
pub(crate) fn traced(client: Client, verbosity: Verbosity) -> Client {
    traced_to(client, verbosity, Arc::new(print))
}

fn traced_to(client: Client, verbosity: Verbosity, sink: Sink) -> Client {
    if verbosity == Verbosity::Off {
        return client;
    }
    let namespace = client.default_namespace().to_owned();
    Client::new(Traced { client, bodies: verbosity == Verbosity::Bodies, sink }, namespace)
}

fn print(line: &str) {
    let mut shown = Shown::line(line);
    shown.push(&Shown::text("\n"));
    errors(&shown);
}

/// Sends requests through a client, and shows them.
struct Traced {
    client: Client,
    bodies: bool,
    sink: Sink,
}

impl Service<Request<Body>> for Traced {
    type Response = Response<TracedBody>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // `Client::send` waits until the client is ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(send(self.client.clone(), self.bodies, Arc::clone(&self.sink), request))
    }
}

async fn send(
    client: Client,
    bodies: bool,
    sink: Sink,
    mut request: Request<Body>,
) -> Result<Response<TracedBody>, kube::Error> {
    let target = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
    let head = format!("{} {target}", request.method());
    let sent = if bodies {
        let (parts, body) = request.into_parts();
        let bytes = body.collect_bytes().await?;
        let shown = shown_body(&target, &bytes, bytes.len());
        request = Request::from_parts(parts, Body::from(bytes));
        shown
    } else {
        None
    };
    let begun = Instant::now();
    let outcome = client.send(request).await;
    let took = begun.elapsed().as_millis();
    match &outcome {
        Ok(response) => sink(&format!("{head} {} {took} ms", response.status().as_u16())),
        Err(error) => sink(&format!("{head} failed {took} ms: {}", innermost(error))),
    }
    if let Some(sent) = sent {
        sink(&format!("  sent: {sent}"));
    }
    Ok(outcome?.map(|body| TracedBody::new(body, bodies.then_some((target, sink)))))
}

/// The innermost reason of an error.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// A body without what is secret; none if it is empty. `total`: its length in bytes, of which `bytes` may be the first part.
/// Only JSON is shown: in another text nothing could be found that is secret.
fn shown_body(target: &str, bytes: &[u8], total: usize) -> Option<String> {
    if total == 0 {
        return None;
    }
    let Ok(mut value) = serde_json::from_slice(bytes) else {
        return Some(format!("{total} bytes that are not JSON"));
    };
    redact::redact(target, &mut value);
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        None => Some(text),
        Some((end, _)) => {
            Some(format!("{}… ({} bytes in all)", text.get(..end).unwrap_or_default(), text.len()))
        }
    }
}

impl hyper::body::Body for TracedBody {
    type Data = bytes::Bytes;
    type Error = kube::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Self::Data>, Self::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => self.take(frame.data_ref()),
            Poll::Ready(Some(Err(_)) | None) => self.finish(),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.inner.size_hint()
    }
}
