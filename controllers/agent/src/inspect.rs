//! What the agent shows: the document for `neonctl agent inspect`, upstream's dump, metrics.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::request::Parts;
use http::{Method, StatusCode};
use neonvm_kit::authority::OPERATORS;
use neonvm_kit::http::{Admitted, FullRequest, FullResponse, Peer, SMALL_BODY, refuse, text};
use neonvm_kit::metrics::{self, Kind, double};
use neonvm_kit::supervise::Health;
use neonvm_types::NamespacedName;
use neonvm_types::agent_history::AgentHistory;
use neonvm_types::agent_inspect::AgentInspect;

use crate::dump;
use crate::fleet::{Cared, Fleet};
use crate::history::History;
use crate::metrics::{Metrics, per_vm};
use crate::shared::wall_clock;

const JSON: &str = "application/json";
const PLAIN: &str = "text/plain";
const HISTORY: &str = "/v1/history";

#[derive(Debug)]
pub(crate) struct Inspector {
    identity: String,
    node: String,
    fleet: Arc<Fleet>,
    metrics: Arc<Metrics>,
    history: History,
    health: Health,
    /// How much a compute unit counts in events and in the metric of desired compute units.
    multiplier: f64,
    stopping: AtomicBool,
}

type Answering = Pin<Box<dyn Future<Output = FullResponse> + Send>>;

impl Inspector {
    pub(crate) fn new(
        identity: String,
        node: String,
        fleet: Arc<Fleet>,
        (metrics, history): (Arc<Metrics>, History),
        health: Health,
        multiplier: f64,
    ) -> Self {
        let stopping = AtomicBool::new(false);
        Self { identity, node, fleet, metrics, history, health, multiplier, stopping }
    }

    /// The agent begins to stop.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// A handler that answers with one of the methods below.
    pub(crate) fn handler<F>(
        self: &Arc<Self>,
        answer: fn(Arc<Self>, FullRequest) -> F,
    ) -> impl Fn(FullRequest) -> Answering + Clone + Send + Sync + use<F>
    where
        F: Future<Output = FullResponse> + Send + 'static,
    {
        let inspector = Arc::clone(self);
        move |request| -> Answering { Box::pin(answer(Arc::clone(&inspector), request)) }
    }

    /// Whether it runs, and whether it scales the VMs of its node: it has the lease, and has listed them.
    pub(crate) fn probe(&self, path: &str) -> FullResponse {
        if path == "/readyz" && !self.fleet.is_listed() {
            let why = "the VMs of this node are not known yet, or another agent has the lease of the node\n";
            return text(StatusCode::SERVICE_UNAVAILABLE, PLAIN, why);
        }
        self.health.answer()
    }

    /// `GET /v1/inspect[?vm=NAMESPACE/NAME]` and `GET /v1/history?vm=NAMESPACE/NAME[&since=MILLISECONDS]`, as
    /// [`only_operators`] admits them.
    pub(crate) async fn inspect(self: Arc<Self>, request: FullRequest) -> FullResponse {
        let query = request.uri().query().unwrap_or("");
        let value = |key: &str| query.split('&').find_map(|part| part.strip_prefix(key)?.strip_prefix('='));
        let only = value("vm").map(|vm| {
            let (namespace, name) = vm.split_once('/').unwrap_or(("default", vm));
            NamespacedName::new(namespace, name)
        });
        if request.uri().path() == HISTORY {
            return self.past(only, value("since")).await;
        }
        let document = AgentInspect {
            agent: self.identity.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: self.node.clone(),
            vms: self.fleet.views(only.as_ref()).await,
        };
        encoded(&document)
    }

    /// What happened to a VM from a time on.
    async fn past(&self, vm: Option<NamespacedName>, since: Option<&str>) -> FullResponse {
        let Some(vm) = vm else {
            return text(StatusCode::BAD_REQUEST, PLAIN, "name the VM: ?vm=NAMESPACE/NAME\n");
        };
        let Ok(since) = since.unwrap_or("0").parse::<i64>() else {
            return text(StatusCode::BAD_REQUEST, PLAIN, "since must be milliseconds since 1970\n");
        };
        match self.history.read(vm, since).await {
            Ok(records) => {
                encoded(&AgentHistory { node: self.node.clone(), kept: self.history.is_kept(), records })
            }
            Err(error) => {
                tracing::warn!(%error, "the history cannot be read");
                text(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, format!("cannot read the history: {error}\n"))
            }
        }
    }

    /// Upstream's dump of the state: `GET /` with any JSON document as body.
    pub(crate) async fn dump(self: Arc<Self>, request: FullRequest) -> FullResponse {
        if serde_json::from_slice::<serde_json::Value>(request.body()).is_err() {
            return text(StatusCode::BAD_REQUEST, PLAIN, "the body must be a JSON document, such as {}\n");
        }
        let stopped = self.stopping.load(Ordering::Acquire);
        encoded(&dump::document(stopped, &self.fleet.cared().await, wall_clock()))
    }

    /// Metrics and health of the agent.
    pub(crate) async fn metrics(self: Arc<Self>, request: FullRequest) -> FullResponse {
        match request.uri().path() {
            "/healthz" => return self.health.answer(),
            "/metrics" => {}
            _ => return text(StatusCode::NOT_FOUND, PLAIN, "there is /metrics and /healthz\n"),
        }
        let cared = self.fleet.cared().await;
        let mut page = self.metrics.page();
        page.family("autoscaling_agent_runners_current", Kind::Gauge, "VMs that are to be scaled, by state.");
        for endpoint in [true, false] {
            for state in ["ok", "stuck", "errored", "panicked"] {
                let is = |vm: &&Cared| vm.state == state && vm.endpoint.is_some() == endpoint;
                let count = cared.iter().filter(is).count();
                let endpoint = if endpoint { "true" } else { "false" };
                page.sample(&[("is_endpoint", endpoint), ("state", state)], double(count as u64));
            }
        }
        page.family(
            "autoscaling_agent_runners_migration_announced",
            Kind::Gauge,
            "VMs that keep their size because the scheduler has announced their migration.",
        );
        let announced = cared.iter().filter(|vm| vm.view.migration_announced_seconds.is_some()).count();
        page.sample(&[], double(announced as u64));
        metrics::answer(page)
    }

    /// Metrics of each VM.
    pub(crate) async fn vm_metrics(self: Arc<Self>, request: FullRequest) -> FullResponse {
        if request.uri().path() != "/metrics" {
            return text(StatusCode::NOT_FOUND, PLAIN, "there is /metrics\n");
        }
        let views = self.fleet.views(None).await;
        metrics::answer(per_vm(self.fleet.objects().iter(), &views, self.multiplier, self.fleet.disks()))
    }
}

/// Only operators may inspect the agent.
pub(crate) fn only_operators(head: &Parts) -> Admitted {
    if !Peer::from_extensions(&head.extensions).is_one_of(&[OPERATORS]) {
        return refuse(StatusCode::FORBIDDEN, PLAIN, "show a certificate of an operator\n");
    }
    if head.method != Method::GET || !["/v1/inspect", HISTORY].contains(&head.uri.path()) {
        let there = "there is GET /v1/inspect[?vm=NAMESPACE/NAME] and GET /v1/history?vm=NAMESPACE/NAME[&since=MILLISECONDS]\n";
        return refuse(StatusCode::NOT_FOUND, PLAIN, there);
    }
    Ok(0)
}

/// The dump is requested with a small document.
pub(crate) fn dump_head(head: &Parts) -> Admitted {
    if head.method == Method::GET {
        return Ok(SMALL_BODY);
    }
    refuse(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "request method must be GET\n")
}

fn encoded(document: &impl serde::Serialize) -> FullResponse {
    match serde_json::to_vec(document) {
        Ok(body) => text(StatusCode::OK, JSON, body),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H5: a client without the certificate of an operator sends no body, whatever the request.
    #[test]
    fn strangers_are_refused_from_the_head() {
        let head = |method: &str, path: &str, organisation: &str| {
            let organisations = vec![organisation.to_owned()];
            let peer = Peer { tls: true, organisations, ..Peer::default() };
            http::Request::builder().method(method).uri(path).extension(peer).body(()).unwrap().into_parts().0
        };
        let admitted = |head: &Parts| only_operators(head).map_err(|refused| refused.status().as_u16());
        for (method, path) in [("GET", "/v1/inspect"), ("POST", "/v1/inspect"), ("POST", "/")] {
            assert_eq!(admitted(&head(method, path, "neonvm:agents")), Err(403), "{method} {path}");
        }
        assert_eq!(admitted(&http::Request::get("/v1/inspect").body(()).unwrap().into_parts().0), Err(403));
        assert_eq!(admitted(&head("GET", "/v1/inspect?vm=a", OPERATORS)), Ok(0));
        assert_eq!(admitted(&head("GET", "/v1/history?vm=a/b", OPERATORS)), Ok(0));
        assert_eq!(admitted(&head("GET", "/v1/history?vm=a/b", "neonvm:agents")), Err(403));
        assert_eq!(admitted(&head("POST", "/v1/inspect", OPERATORS)), Err(404));
        assert_eq!(dump_head(&head("PUT", "/", "")).map_err(|refused| refused.status().as_u16()), Err(405));
    }
}
