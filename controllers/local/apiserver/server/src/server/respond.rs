//! HTTP responses.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use neonvm_apiserver_engine::answer::EngineResponse;
use serde_json::Value;

use crate::watching::Stream;

pub(crate) type Response = hyper::Response<UnsyncBoxBody<Bytes, Infallible>>;

const WARNING: HeaderName = HeaderName::from_static("warning");

fn full(code: u16, content_type: &'static str, body: Bytes) -> Response {
    let mut response = hyper::Response::new(Full::new(body).boxed_unsync());
    *response.status_mut() =
        http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    if !content_type.is_empty() {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    response
}

/// Characters of all warnings together before they are cut, and of each one then; as on a real server.
const WARNING_CHARACTERS: (usize, usize) = (4096, 256);
/// Lines of warnings. Many clients refuse an answer of more than 100 header lines.
const WARNING_LINES: usize = 64;

/// Warnings without repetitions, as far as they fit into the head of an answer.
fn bounded(warnings: Vec<String>) -> Vec<String> {
    let (all, each) = WARNING_CHARACTERS;
    let mut kept: Vec<String> = Vec::new();
    for text in warnings {
        if kept.len() < WARNING_LINES && !kept.contains(&text) {
            kept.push(text);
        }
    }
    if kept.iter().map(|text| text.chars().count()).sum::<usize>() <= all {
        return kept;
    }
    let mut left = all;
    kept.into_iter()
        .map(|text| text.chars().take(each).collect::<String>())
        .take_while(|text| {
            let fits = left > 0;
            left = left.saturating_sub(text.chars().count());
            fits
        })
        .collect()
}

pub(crate) fn answer(answer: EngineResponse) -> Response {
    let mut response = full(answer.code, answer.content_type, answer.body);
    let headers = response.headers_mut();
    headers.insert("cache-control", HeaderValue::from_static("no-cache, private"));
    if let Some(seconds) = answer.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    warn(headers, answer.warnings);
    response
}

fn warn(headers: &mut http::HeaderMap, warnings: Vec<String>) {
    for text in bounded(warnings) {
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
        // Control characters cannot stand in a header; such a warning is shown without them.
        let clean: String = escaped.chars().filter(|c| !c.is_control()).collect();
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{clean}\"")) {
            headers.append(WARNING, value);
        }
    }
}

pub(crate) fn made(code: u16, value: &Value) -> EngineResponse {
    EngineResponse {
        code,
        content_type: "application/json",
        body: Bytes::from(value.to_string()),
        warnings: Vec::new(),
        retry_after: None,
        revision: 0,
    }
}

pub(crate) fn json(code: u16, value: &Value) -> Response {
    answer(made(code, value))
}

pub(crate) fn text(code: u16, text: String) -> Response {
    full(code, "text/plain; version=0.0.4; charset=utf-8", Bytes::from(text))
}

/// What a node answered: its status, content type and body as it comes.
pub(crate) fn passed_on(response: hyper::Response<hyper::body::Incoming>) -> Response {
    let (parts, body) = response.into_parts();
    let mut answer = hyper::Response::new(Cut(body).boxed_unsync());
    *answer.status_mut() = parts.status;
    if let Some(content_type) = parts.headers.get(CONTENT_TYPE) {
        answer.headers_mut().insert(CONTENT_TYPE, content_type.clone());
    }
    answer
}

/// A foreign body that is ended by its failure: the client sees a log that stops.
struct Cut(hyper::body::Incoming);

impl hyper::body::Body for Cut {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        std::pin::Pin::new(&mut self.0).poll_frame(context).map(|frame| frame.and_then(Result::ok).map(Ok))
    }
}

/// A body that comes in chunks.
pub(crate) fn streamed(
    content_type: &'static str,
    body: impl hyper::body::Body<Data = Bytes, Error = Infallible> + Send + 'static,
) -> Response {
    let mut response = hyper::Response::new(body.boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(crate) fn stream(stream: Stream, warnings: Vec<String>) -> Response {
    let mut response = streamed("application/json", stream);
    warn(response.headers_mut(), warnings);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_fit_into_a_head() {
        let same = vec!["a".to_owned(), "a".into(), "b".into()];
        assert_eq!(bounded(same), ["a", "b"]);
        let many: Vec<String> = (0..500).map(|n| format!("unknown field {n}")).collect();
        assert_eq!(bounded(many).len(), WARNING_LINES);
        let long: Vec<String> = (0..60).map(|n| format!("{n}{}", "ä".repeat(1000))).collect();
        let kept = bounded(long);
        assert_eq!((kept.len(), kept[0].chars().count()), (16, 256));
    }
}
