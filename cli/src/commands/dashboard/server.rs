//! Answers of the dashboard's server: three files, a stream of states, and explanations.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use neonvm_kit::http::{Gate, OPEN, serve_streams};
use serde_json::Value;
use tokio::sync::watch::Receiver;

use super::Shared;
use super::guard::{Guard, Wanted};
use crate::live::{input::Key, json};

const PAGE: &str = include_str!("page/index.html");
const STYLE: &str = include_str!("page/style.css");

fn script(name: &str) -> &'static str {
    match name {
        "text.js" => include_str!("page/text.js"),
        "nodes.js" => include_str!("page/nodes.js"),
        "timelines.js" => include_str!("page/timelines.js"),
        _ => include_str!("page/program.js"),
    }
}

/// What the page may do: run our program, use our style, and request from us. Texts never become markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";
/// After how many milliseconds a browser opens another stream when one has ended.
const RETRY: &str = "retry: 500\n\n";
/// How long a stream lives: the browser opens another one, which begins with the whole history.
const LIFE: Duration = Duration::from_secs(55);

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Answers requests until dropped.
pub(super) async fn serve(listener: tokio::net::TcpListener, guard: Arc<Guard>, shared: Arc<Shared>) {
    let gate = Gate::open(OPEN, &Arc::default());
    let handler = move |request: http::Request<hyper::body::Incoming>| {
        let (guard, shared) = (Arc::clone(&guard), Arc::clone(&shared));
        async move {
            let (parts, _) = request.into_parts();
            match guard.admit(&parts) {
                Ok(wanted) => answer(wanted, &shared),
                Err((status, why)) => whole(status, "text/plain; charset=utf-8", format!("{why}\n")),
            }
        }
    };
    serve_streams(listener, None, gate, handler).await;
}

fn answer(wanted: Wanted, shared: &Arc<Shared>) -> Response<Body> {
    match wanted {
        Wanted::Page => whole(StatusCode::OK, "text/html; charset=utf-8", PAGE),
        Wanted::File("style.css") => whole(StatusCode::OK, "text/css; charset=utf-8", STYLE),
        Wanted::File(name) => whole(StatusCode::OK, "text/javascript; charset=utf-8", script(name)),
        Wanted::Events => events(shared),
        Wanted::Why(key) => why(&key, shared),
    }
}

fn why(key: &Key, shared: &Shared) -> Response<Body> {
    match shared.with(|fleet| json::why(fleet, key)) {
        Some(value) => whole(StatusCode::OK, "application/json", value.to_string()),
        None => {
            whole(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "this VM does not exist any more\n")
        }
    }
}

fn whole(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    response(status, kind, Full::new(body.into()).boxed_unsync())
}

fn response(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The history, the state, and each state after it. A page that is slow misses states and lags behind none.
fn events(shared: &Arc<Shared>) -> Response<Body> {
    let mut receiver = shared.changed.subscribe();
    receiver.mark_unchanged();
    let first = shared.with(|fleet| {
        RETRY.to_owned() + &event("history", &json::history(fleet)) + &event("state", &json::state(fleet))
    });
    let first = stream::once(std::future::ready(first));
    let next = stream::unfold((receiver, Arc::clone(shared)), |(receiver, shared)| async move {
        next(receiver, shared).await
    });
    let life = tokio::time::sleep(LIFE);
    let all = first.chain(next).take_until(life);
    let frames = all.map(|text| Ok::<_, Infallible>(Frame::data(Bytes::from(text))));
    response(StatusCode::OK, "text/event-stream", StreamBody::new(frames).boxed_unsync())
}

async fn next(
    mut receiver: Receiver<u64>,
    shared: Arc<Shared>,
) -> Option<(String, (Receiver<u64>, Arc<Shared>))> {
    receiver.changed().await.ok()?;
    let text = shared.with(|fleet| event("state", &json::state(fleet)));
    Some((text, (receiver, shared)))
}

/// A server-sent event. JSON on one line holds no line end.
fn event(name: &str, value: &Value) -> String {
    format!("event: {name}\ndata: {value}\n\n")
}
