//! The informant: serves agents up to v0.17 of upstream on the monitor's port, and calls them.
//!
//! Which agent is the current one, and what is requested of it, decides [`neonvm_core_vertical_scaling::monitor::informant`].

mod client;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::{Method, StatusCode};
use neonvm_core_vertical_scaling::monitor::informant::{Action, Agents, Request};
use neonvm_types::informant_protocol::{DownscaleResult, informant_path};
use neonvm_types::monitor_protocol::MonitorMessage;
use tokio::sync::{mpsc, oneshot};

use super::log;
use super::traffic::Input;
use crate::http::{self, Response};

/// Largest body of an agent, in bytes; theirs have about two hundred.
const LARGEST_BODY: usize = 4 * 1024;
/// Requests that wait for an answer at a time.
const MOST_WAITING: usize = 64;

/// Where the answer to a request goes: status and body.
type Answer = oneshot::Sender<(u16, String)>;

/// The informant's agents with their requests.
#[derive(Debug)]
pub(super) struct Informant {
    pub(super) agents: Agents,
    waiting: BTreeMap<u64, Answer>,
    tokens: u64,
    inputs: mpsc::Sender<Input>,
}

impl Informant {
    pub(super) fn new(inputs: mpsc::Sender<Input>, metrics_port: u16) -> Self {
        Self { agents: Agents::new(metrics_port), waiting: BTreeMap::new(), tokens: 0, inputs }
    }

    /// Takes a request of an agent; `occupied`: an agent with the monitor's protocol is connected.
    pub(super) fn take(
        &mut self,
        now: Duration,
        request: &Request,
        answer: Answer,
        occupied: bool,
    ) -> Vec<Action> {
        self.waiting.retain(|_, waiting| !waiting.is_closed());
        let refused = if occupied && matches!(request, Request::Register(_)) {
            Some("an agent with the monitor's protocol is connected")
        } else {
            (self.waiting.len() >= MOST_WAITING).then_some("too many requests at a time")
        };
        if let Some(reason) = refused {
            let _ = answer.send((503, reason.to_owned()));
            return Vec::new();
        }
        self.tokens += 1;
        self.waiting.insert(self.tokens, answer);
        self.agents.request(now, self.tokens, request)
    }

    pub(super) fn answer(&mut self, token: u64, status: u16, body: String) {
        if let Some(answer) = self.waiting.remove(&token) {
            let _ = answer.send((status, body));
        }
    }

    /// What the policy has for the current agent: the answer to a change of size. Requests for memory are the caller's.
    pub(super) fn send(&mut self, token: u64, message: MonitorMessage) {
        let (status, body) = match message {
            MonitorMessage::DownscaleResult { ok, status } => {
                (200, serde_json::to_string(&DownscaleResult { ok, status }).unwrap_or_default())
            }
            MonitorMessage::UpscaleConfirmation => (200, "{}".to_owned()),
            MonitorMessage::InvalidMessage { error } => (400, error),
            MonitorMessage::InternalError { error } => (500, error),
            MonitorMessage::HealthCheck | MonitorMessage::UpscaleRequest { .. } => return,
        };
        self.answer(token, status, body);
    }

    /// Starts a request to an agent.
    pub(super) fn call(&self, action: Action) {
        let Action::Call { call, agent, address, what } = action else { return };
        let inputs = self.inputs.clone();
        tokio::task::spawn_local(async move {
            let result = client::call(agent, &address, what).await;
            if let Err(reason) = &result {
                log(&format!("informant: agent {agent}: {what:?}: {reason}"));
            }
            let _ = inputs.send(Input::Called { call, result }).await;
        });
    }
}

/// Whether agents request something at this path.
pub(super) fn has(path: &str) -> bool {
    method(path).is_some()
}

fn method(path: &str) -> Option<Method> {
    match path {
        informant_path::REGISTER => Some(Method::POST),
        informant_path::HEALTH_CHECK | informant_path::DOWNSCALE | informant_path::UPSCALE => {
            Some(Method::PUT)
        }
        informant_path::UNREGISTER => Some(Method::DELETE),
        _ => None,
    }
}

pub(super) async fn answer(request: hyper::Request<Incoming>, inputs: &mpsc::Sender<Input>) -> Response {
    let path = request.uri().path().to_owned();
    if let Some(method) = method(&path).filter(|method| method != request.method()) {
        return http::text(StatusCode::METHOD_NOT_ALLOWED, format!("request method must be {method}\n"));
    }
    let body = match Limited::new(request.into_body(), LARGEST_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            let reason = format!("a body may have {LARGEST_BODY} bytes\n");
            return http::text(StatusCode::PAYLOAD_TOO_LARGE, reason);
        }
        Err(error) => return http::text(StatusCode::BAD_REQUEST, format!("read the body: {error}\n")),
    };
    let request = match decode(&path, &body) {
        Ok(request) => request,
        Err(error) => return http::text(StatusCode::BAD_REQUEST, format!("body of {path}: {error}\n")),
    };
    let (answer, answered) = oneshot::channel();
    let _ = inputs.send(Input::Request { request, answer }).await;
    let Ok((status, body)) = answered.await else {
        return http::text(StatusCode::INTERNAL_SERVER_ERROR, "the request was dropped\n");
    };
    match StatusCode::from_u16(status) {
        Ok(StatusCode::OK) => http::typed(StatusCode::OK, "application/json", body),
        status => http::text(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), format!("{body}\n")),
    }
}

fn decode(path: &str, body: &Bytes) -> serde_json::Result<Request> {
    Ok(match path {
        informant_path::REGISTER => Request::Register(neonvm_types::objects::from_slice(body)?),
        informant_path::UNREGISTER => Request::Unregister(neonvm_types::objects::from_slice(body)?),
        informant_path::HEALTH_CHECK => Request::HealthCheck(neonvm_types::objects::from_slice(body)?),
        // Its shape depends on the current agent.
        _ => Request::Change { down: path == informant_path::DOWNSCALE, body: body.to_vec() },
    })
}
