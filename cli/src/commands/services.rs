//! Asks a service of the cluster: the scheduler that leads, the agent of a node. Their leases say where they are; a
//! certificate that the cluster signs for an operator lets us in.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use neonvm_api::names::{SCHEDULER_LEASE, agent_lease};
use neonvm_kit::authority::{self, SCHEDULER_NAME, agent_name};
use neonvm_kit::call::Caller;
use neonvm_kit::certificate::{self, Certificate, Wanted};
use neonvm_kit::service::Endpoint;
use neonvm_types::agent_inspect::AgentInspect;
use neonvm_types::scheduler_inspect::{Inspect, WhatIf, WhatIfAnswer};
use rustls::ClientConfig;
use serde::de::DeserializeOwned;

use crate::connect::Connection;
use crate::error::{Code, Error, Result};

/// Namespace of the services where nobody says otherwise.
pub(super) const NAMESPACE: &str = "neonvm-system";
/// Time for one answer.
const ANSWER: Duration = Duration::from_secs(10);

/// The services of a cluster.
pub(super) struct Services<'a> {
    connection: &'a Connection,
    namespace: String,
    tls: Arc<ClientConfig>,
}

fn failed(error: &dyn std::error::Error, what: &str) -> Error {
    let mut shown = Error::new(Code::Failed, what.to_owned()).cause(error.to_string());
    let mut cause = error.source();
    while let Some(inner) = cause {
        shown = shown.cause(inner.to_string());
        cause = inner.source();
    }
    shown
}

impl<'a> Services<'a> {
    pub(super) async fn open(connection: &'a Connection, namespace: &str) -> Result<Self> {
        let what = "cannot get a certificate for the services";
        let obtained = Certificate::obtain(&connection.client(), namespace, Wanted::operator()).await;
        let certificate = obtained.map_err(|error| {
            let shown = failed(&error, what);
            match error {
                certificate::Error::Authority(authority::Error::Unpublished(..)) => {
                    shown.hint("name their namespace with --system-namespace")
                }
                certificate::Error::Denied { .. } => {
                    shown.hint("ask an administrator for the cluster role neonvm-operator")
                }
                certificate::Error::Late => shown.hint("see what runs: neonctl status"),
                _ => shown,
            }
        })?;
        let tls = certificate.client_config().map_err(|error| failed(&error, what))?;
        Ok(Self { connection, namespace: namespace.to_owned(), tls: Arc::new(tls) })
    }

    async fn leases(&self) -> Result<Vec<Lease>> {
        let api: Api<Lease> = Api::namespaced(self.connection.client(), &self.namespace);
        let list = self.connection.within("cannot list leases", api.list(&ListParams::default())).await?;
        Ok(list.items)
    }

    async fn call<T: DeserializeOwned>(
        &self,
        (who, endpoint, name): (&str, Endpoint, &str),
        (method, path, body): (Method, &str, Bytes),
    ) -> Result<T> {
        let mut caller = Caller::new(endpoint, Some(Arc::clone(&self.tls)), name);
        let unreachable = |error: neonvm_kit::call::Error| {
            let mut shown = failed(&error, &format!("cannot ask {who}"));
            shown.code = Code::Unreachable;
            shown.hint("it must be reached from here: on a cluster, run neonctl where pods can be reached")
        };
        let (status, answer) = caller.call(method, path, body, ANSWER).await.map_err(unreachable)?;
        if status != StatusCode::OK {
            let text = String::from_utf8_lossy(&answer).trim().to_owned();
            let code = if status == StatusCode::NOT_FOUND { Code::NotFound } else { Code::Failed };
            return Err(Error::new(code, format!("{who} refuses: {text}")));
        }
        serde_json::from_slice(&answer)
            .map_err(|error| Error::new(Code::Failed, format!("the answer of {who} makes no sense: {error}")))
    }

    async fn scheduler(&self) -> Result<Endpoint> {
        let leases = self.leases().await?;
        let lease = leases.iter().find(|lease| lease.name_any() == SCHEDULER_LEASE);
        lease.and_then(Endpoint::of).ok_or_else(|| {
            Error::new(Code::NotFound, format!("no scheduler leads in the namespace {}", self.namespace))
                .hint("see what runs: neonctl status")
        })
    }

    /// What the scheduler that leads knows.
    pub(super) async fn scheduler_inspect(&self) -> Result<Inspect> {
        let endpoint = self.scheduler().await?;
        let request = (Method::GET, "/v1/inspect", Bytes::new());
        self.call(("the scheduler", endpoint, SCHEDULER_NAME), request).await
    }

    /// What it would do.
    pub(super) async fn what_if(&self, question: &WhatIf) -> Result<WhatIfAnswer> {
        let endpoint = self.scheduler().await?;
        let body =
            serde_json::to_vec(question).map_err(|error| failed(&error, "cannot ask the scheduler"))?;
        let request = (Method::POST, "/v1/what-if", Bytes::from(body));
        self.call(("the scheduler", endpoint, SCHEDULER_NAME), request).await
    }

    /// What the agents know: of one node, or of all; of one VM (`namespace/name`), or of all.
    pub(super) async fn agents(&self, node: Option<&str>, vm: Option<&str>) -> Result<Vec<AgentInspect>> {
        let prefix = agent_lease("");
        let leases = self.leases().await?;
        let mut agents = Vec::new();
        for lease in &leases {
            let name = lease.name_any();
            let Some(own) = name.strip_prefix(&prefix) else { continue };
            if node.is_some_and(|node| node != own) {
                continue;
            }
            // Nobody holds it: the agent ended. There may be others.
            let Some(endpoint) = Endpoint::of(lease) else { continue };
            let path = vm.map_or_else(|| "/v1/inspect".to_owned(), |vm| format!("/v1/inspect?vm={vm}"));
            let who = format!("the agent of {own}");
            let request = (Method::GET, path.as_str(), Bytes::new());
            agents.push(self.call((&who, endpoint, &agent_name(own)), request).await?);
        }
        if agents.is_empty() {
            let missing = match node {
                Some(node) => format!("there is no agent of a node {node}"),
                None => format!("there is no agent in the namespace {}", self.namespace),
            };
            return Err(Error::new(Code::NotFound, missing).hint("see what runs: neonctl status"));
        }
        Ok(agents)
    }
}
