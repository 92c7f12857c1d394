//! Answers: text, JSON, lines.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::Frame;
use neonvm_types::exposition::{self, Page};

/// Body of every answer.
pub(crate) type Body = BoxBody<Bytes, Infallible>;

fn answer(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

pub(crate) fn text(status: StatusCode, line: &str) -> Response<Body> {
    let body = if line.is_empty() { Bytes::new() } else { Bytes::from(format!("{line}\n")) };
    answer(status, "text/plain; charset=utf-8", Full::new(body).boxed())
}

pub(crate) fn page(page: Page) -> Response<Body> {
    answer(StatusCode::OK, exposition::CONTENT_TYPE, Full::new(Bytes::from(page.finish())).boxed())
}

pub(crate) fn json(status: StatusCode, document: &impl serde::Serialize) -> Response<Body> {
    let body = serde_json::to_vec(document).unwrap_or_default();
    answer(status, "application/json", Full::new(Bytes::from(body)).boxed())
}

/// Bytes.
pub(crate) fn stream(bytes: impl Stream<Item = Bytes> + Send + Sync + 'static) -> Response<Body> {
    let body = StreamBody::new(bytes.map(|bytes| Ok(Frame::data(bytes))));
    answer(StatusCode::OK, "application/octet-stream", BodyExt::boxed(body))
}

/// Documents, a line each.
pub(crate) fn lines(lines: impl Stream<Item = Bytes> + Send + Sync + 'static) -> Response<Body> {
    let body = StreamBody::new(lines.map(|line| Ok(Frame::data(line))));
    answer(StatusCode::OK, "application/x-ndjson", BodyExt::boxed(body))
}
