//! The HTTP interface and its access control.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use http::request::Parts;
use http::{Method, StatusCode};
use neonvm_kit::authority::{AGENTS, OPERATORS, SCHEDULERS, UPSTREAM_AGENTS, node_of_agent};
use neonvm_kit::http::{
    Admitted, BUSY, Budget, FullRequest, FullResponse, Gate, MAX_BODY, OPEN, PRIVATE, Peer, SMALL_BODY, text,
};
use neonvm_types::scheduler_inspect::{Inspect, WhatIf};
use neonvm_types::scheduler_protocol::{SchedulerRequest, decode_request};
use neonvm_types::version::{PluginProtoVersion, VersionRange};

use crate::shared::Shared;
use crate::{dump, extender, metrics_page};

const ACCEPTED: VersionRange<PluginProtoVersion> =
    VersionRange { min: PluginProtoVersion::V1_0, max: PluginProtoVersion::V5_0 };

/// Where a request came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// Mutual TLS: the certificate identifies the peer.
    Tls,
    /// Plain HTTP: agents; on a loopback address also the kube-scheduler beside us.
    Plain {
        /// Whether only this machine reaches it.
        loopback: bool,
    },
    Metrics,
    Dump,
}

impl Door {
    /// Name of the task that serves it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tls => "TLS server",
            Self::Plain { .. } => "plain server",
            Self::Metrics => "metrics server",
            Self::Dump => "dump server",
        }
    }

    /// Which peers may be connected there.
    pub(crate) fn gate(self, budget: &Arc<Budget>) -> Gate {
        match self {
            Self::Tls => Gate::new(PRIVATE, budget, |peer| {
                peer.is_one_of(&[AGENTS, UPSTREAM_AGENTS, OPERATORS, SCHEDULERS])
            }),
            Self::Plain { .. } => Gate::open(BUSY, budget),
            Self::Metrics | Self::Dump => Gate::open(OPEN, budget),
        }
    }
}

fn plain(status: StatusCode, body: impl Into<String>) -> FullResponse {
    let mut body = body.into();
    body.push('\n');
    text(status, "text/plain", body)
}

/// Which peers may send which requests, and how long a body may be; otherwise the response that refuses the request.
pub(crate) fn admit(door: Door, head: &Parts) -> Admitted {
    if door == Door::Dump {
        return dump::admit(head);
    }
    let peer = Peer::from_extensions(&head.extensions);
    let may = |organisations: &[&str]| door == Door::Tls && peer.is_one_of(organisations);
    let path = head.uri.path();
    match path {
        "/healthz" | "/readyz" | "/leadz" => return Ok(0),
        "/metrics" if door == Door::Metrics || may(&[OPERATORS, AGENTS]) => return Ok(0),
        _ if door == Door::Metrics => {
            return Err(Box::new(plain(
                StatusCode::NOT_FOUND,
                "there is /metrics, /healthz, /readyz and /leadz",
            )));
        }
        _ => {}
    }
    let (allowed, organisation, most) = if path.starts_with("/v1/") || path == "/metrics" {
        (may(&[OPERATORS]), OPERATORS, MAX_BODY)
    } else if path.starts_with("/extender/") {
        // FullRequest nodes may be in it.
        (may(&[SCHEDULERS, OPERATORS]) || door == (Door::Plain { loopback: true }), SCHEDULERS, MAX_BODY)
    } else {
        (door != Door::Tls || may(&[AGENTS, UPSTREAM_AGENTS]), AGENTS, SMALL_BODY)
    };
    if allowed { Ok(most) } else { Err(Box::new(forbidden(organisation))) }
}

/// Answers an admitted request in every case: a panic is answered with an error.
pub(crate) async fn handle(shared: Arc<Shared>, request: FullRequest) -> FullResponse {
    match AssertUnwindSafe(route(&shared, request)).catch_unwind().await {
        Ok(answer) => answer,
        Err(_) => {
            shared.metrics.panicked();
            plain(StatusCode::INTERNAL_SERVER_ERROR, "internal error; see the log of the scheduler")
        }
    }
}

async fn route(shared: &Shared, request: FullRequest) -> FullResponse {
    let path = request.uri().path().to_owned();
    match path.as_str() {
        "/healthz" | "/readyz" | "/leadz" => probe(shared, &path),
        "/metrics" => neonvm_kit::metrics::answer(metrics_page::page(shared)),
        path if path.starts_with("/v1/") => inspect(shared, &request),
        path => match path.strip_prefix("/extender/") {
            Some(verb) => extender::answer(shared, verb, request.body()).await,
            None if dumps(shared, &request) => dump::answer(shared, request.body()),
            None => agent(shared, &request),
        },
    }
}

/// Whether a request is for the dump of the state, which shares a port with the extender by default. Agents send POST.
fn dumps(shared: &Shared, request: &FullRequest) -> bool {
    let plain = !Peer::from_extensions(request.extensions()).tls;
    plain && request.method() == Method::GET && shared.config.shares_dump()
}

/// Whether it runs (`/healthz`), has listed all nodes and pods (`/readyz`: a standby that has can take over at once),
/// and answers agents and the kube-scheduler (`/leadz`).
pub(crate) fn probe(shared: &Shared, path: &str) -> FullResponse {
    match path {
        "/leadz" if !shared.is_leading() => plain(StatusCode::SERVICE_UNAVAILABLE, "another replica leads"),
        "/readyz" | "/leadz" if !shared.state().is_listed() => {
            plain(StatusCode::SERVICE_UNAVAILABLE, "not all nodes and pods are known yet")
        }
        "/readyz" | "/leadz" if shared.health.check().is_ok() => plain(StatusCode::OK, "ok"),
        _ => shared.health.answer(),
    }
}

fn forbidden(organisation: &str) -> FullResponse {
    plain(StatusCode::FORBIDDEN, format!("a client certificate of {organisation} is needed"))
}

/// A request of an agent: whatever its path, as upstream takes it.
fn agent(shared: &Shared, request: &FullRequest) -> FullResponse {
    let (status, node, answer) = match permit(shared, request) {
        Ok((node, body)) => (StatusCode::OK, node, text(StatusCode::OK, "application/json", body)),
        Err((status, reason)) => (status, None, plain(status, reason)),
    };
    shared.metrics.requested(status.as_u16(), node.as_deref());
    answer
}

type Refused = (StatusCode, String);

fn permit(shared: &Shared, request: &FullRequest) -> Result<(Option<String>, Vec<u8>), Refused> {
    if request.method() != Method::POST {
        return Err((StatusCode::BAD_REQUEST, "must be POST".to_owned()));
    }
    let message = decode_request(request.body(), ACCEPTED)
        .map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
    let pod = match &message {
        SchedulerRequest::Bytes(message) => &message.pod,
        SchedulerRequest::Slots(message) => &message.pod,
    };
    let peer = Peer::from_extensions(request.extensions());
    let now = shared.now();
    let (answer, node, write) = {
        let mut state = shared.state();
        // Checked while the state is locked: losing the lead waits for the lock.
        if !shared.is_leading() {
            return Err((StatusCode::SERVICE_UNAVAILABLE, "another replica leads".to_owned()));
        }
        let node = state.node_of(pod).map(str::to_owned);
        may_ask(&peer, node.as_deref())?;
        let answer = state.answer(now, &message);
        (answer, node, state.wake_at().is_some())
    };
    if write {
        shared.write.notify_one();
    }
    let answer = answer.map_err(|refusal| {
        let status = StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, refusal.to_string())
    })?;
    Ok((node, serde_json::to_vec(&answer).unwrap_or_default()))
}

/// An agent that shows a certificate gets permits for pods of its own node. Agents at the plain door show none.
fn may_ask(peer: &Peer, node: Option<&str>) -> Result<(), Refused> {
    let own = node_of_agent(&peer.common_name);
    match node {
        Some(node) if peer.is_one_of(&[AGENTS]) && own != Some(node) => {
            let why = format!("the pod is on node {node}; the certificate is not of the agent of that node");
            Err((StatusCode::FORBIDDEN, why))
        }
        _ => Ok(()),
    }
}

fn inspect(shared: &Shared, request: &FullRequest) -> FullResponse {
    let json = |value: serde_json::Result<Vec<u8>>| {
        text(StatusCode::OK, "application/json", value.unwrap_or_default())
    };
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/v1/inspect") => {
            let dump = Inspect {
                identity: shared.config.identity.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                leading: shared.is_leading(),
                last_event_ms: shared.last_event_ms(),
                ..shared.state().inspect()
            };
            json(serde_json::to_vec(&dump))
        }
        (&Method::POST, "/v1/what-if") => match neonvm_types::objects::from_slice::<WhatIf>(request.body()) {
            Ok(question) => match shared.state().what_if(&question) {
                Ok(answer) => json(serde_json::to_vec(&answer)),
                Err(why) => plain(StatusCode::UNPROCESSABLE_ENTITY, why),
            },
            Err(error) => plain(StatusCode::BAD_REQUEST, error.to_string()),
        },
        _ => plain(StatusCode::NOT_FOUND, "there is GET /v1/inspect and POST /v1/what-if"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(path: &str, organisations: &[&str]) -> Parts {
        let organisations = organisations.iter().map(|&name| name.to_owned()).collect();
        let peer = Peer { tls: true, organisations, ..Peer::default() };
        http::Request::post(path).extension(peer).body(()).unwrap().into_parts().0
    }

    /// H5: no body is read from a caller that may not send one.
    #[test]
    fn who_may_send_what_is_decided_from_the_head() {
        let most = |door, path, organisations: &[&str]| {
            admit(door, &head(path, organisations)).map_err(|refused| refused.status().as_u16())
        };
        for path in ["/", "/v1/what-if", "/v1/inspect", "/metrics", "/extender/bind", "/anything"] {
            assert_eq!(most(Door::Tls, path, &[]), Err(403), "{path}");
            assert_eq!(most(Door::Tls, path, &["other"]), Err(403), "{path}");
        }
        for path in ["/healthz", "/readyz", "/leadz"] {
            assert_eq!(most(Door::Tls, path, &[]), Ok(0));
        }
        assert_eq!(most(Door::Tls, "/", &[AGENTS]), Ok(SMALL_BODY));
        assert_eq!(most(Door::Tls, "/", &[UPSTREAM_AGENTS]), Ok(SMALL_BODY));
        for path in ["/v1/inspect", "/v1/what-if", "/metrics", "/extender/bind"] {
            assert_eq!(most(Door::Tls, path, &[UPSTREAM_AGENTS]), Err(403), "{path}");
        }
        assert_eq!(most(Door::Tls, "/v1/what-if", &[AGENTS]), Err(403));
        assert_eq!(most(Door::Tls, "/v1/what-if", &[OPERATORS]), Ok(MAX_BODY));
        assert_eq!(most(Door::Tls, "/extender/bind", &[SCHEDULERS]), Ok(MAX_BODY));
        // A certificate shows nothing where TLS does not verify it.
        let (near, far) = (Door::Plain { loopback: true }, Door::Plain { loopback: false });
        assert_eq!(most(near, "/extender/bind", &[]), Ok(MAX_BODY));
        assert_eq!(most(far, "/extender/bind", &[SCHEDULERS]), Err(403));
        assert_eq!(most(far, "/v1/inspect", &[OPERATORS]), Err(403));
        assert_eq!(most(far, "/", &[]), Ok(SMALL_BODY));
        assert_eq!(most(Door::Metrics, "/metrics", &[]), Ok(0));
        assert_eq!(most(Door::Metrics, "/", &[]), Err(404));
    }
}
