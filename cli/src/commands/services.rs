//! Requests to the services of a cluster: the scheduler that leads, the agent of a node. Their leases name them, a port-forward
//! through the API server leads to their pods, and a certificate that the cluster signs for an operator lets us in.

mod kept;
mod pods;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{Method, StatusCode};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use neonvm_api::names::{AGENT_ACCOUNT, SCHEDULER_ACCOUNT, SCHEDULER_LEASE, agent_lease};
use neonvm_kit::authority::{self, SCHEDULER_NAME, agent_name};
use neonvm_kit::call::Caller;
use neonvm_kit::certificate::{self, Certificate, CertificateFor};
use neonvm_kit::service::Endpoint;
use neonvm_types::agent_history::AgentHistory;
use neonvm_types::agent_inspect::AgentInspect;
use neonvm_types::scheduler_inspect::{Inspect, WhatIf, WhatIfAnswer};
use rustls::ClientConfig;
use serde::de::DeserializeOwned;

pub(super) use self::kept::Kept;
use self::pods::Way;
use super::checks::read::installed;
use crate::connect::{Connection, chain, code_of};
use crate::error::{Code, Error, Result};

/// Default namespace of the services.
pub(super) const NAMESPACE: &str = "neonvm-system";
const ANSWER: Duration = Duration::from_secs(10);

/// Agents that are asked at the same time.
const AT_ONCE: usize = 16;

pub(super) struct Services<'a> {
    connection: &'a Connection,
    namespace: String,
    tls: Arc<ClientConfig>,
}

fn failed(error: &(dyn std::error::Error + 'static), what: &str) -> Error {
    let mut all = std::iter::successors(Some(error), |error| error.source());
    // What the library prints of a status is its debug form.
    let status = all.find_map(|cause| {
        let boxed = cause.downcast_ref::<Box<kube::Error>>().map(AsRef::as_ref);
        match boxed.or_else(|| cause.downcast_ref()) {
            Some(kube::Error::Api(status)) => Some(status),
            _ => None,
        }
    });
    match status {
        Some(status) => Error::new(code_of(status.code), what).cause(status.message.clone()),
        None => chain(Error::new(Code::Failed, what), error),
    }
}

/// The good ones of several responses, and the others in words; an error if there is no good one.
fn some<T>(responses: Vec<Result<T>>) -> Result<(Vec<T>, Vec<String>)> {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for response in responses {
        match response {
            Ok(response) => good.push(response),
            Err(error) => bad.push(error),
        }
    }
    if good.is_empty() && !bad.is_empty() {
        return Err(bad.swap_remove(0));
    }
    let words = bad.into_iter().map(|error| [vec![error.message], error.causes].concat().join(": "));
    Ok((good, words.collect()))
}

/// Who lacks a right is shown which one, and what gives it.
fn denied(error: Error, verbs: &str, resource: &str, namespace: &str) -> Error {
    if error.code != Code::Denied {
        return error;
    }
    let place = if namespace.is_empty() { String::new() } else { format!(" in namespace {namespace}") };
    error.hint(format!(
        "you need {verbs} of {resource}{place}: request the cluster role and the role neonvm-operator from an administrator"
    ))
}

/// There is no scheduler of ours to ask, as after an installation with `--scheduler none`.
fn not_installed(namespace: &str) -> Error {
    let message = format!("no scheduler of neonvm is installed in namespace {namespace}");
    Error::new(Code::NotFound, message).hint(
        "the cluster's own scheduler chooses nodes, and reports why one waits: neonctl migration describe NAME; what nodes \
         have left: kubectl describe nodes",
    )
}

impl<'a> Services<'a> {
    /// The default namespace stands for the one in which they are installed.
    pub(super) async fn open(connection: &'a Connection, namespace: &str) -> Result<Self> {
        let what = "cannot get a certificate for the services";
        let namespace = match namespace {
            NAMESPACE => installed(connection, None).await?,
            named => named.to_owned(),
        };
        let obtained =
            Certificate::obtain(&connection.client(), &namespace, CertificateFor::operator()).await;
        let certificate = obtained.map_err(|error| {
            let shown = failed(&error, what);
            match error {
                certificate::Error::Authority(authority::Error::Unpublished(..)) => {
                    shown.hint("set their namespace with --system-namespace")
                }
                certificate::Error::Authority(_) => {
                    denied(shown, "get", "configmaps/neonvm-internal-ca", &namespace)
                }
                certificate::Error::Denied { .. } => denied(
                    Error { code: Code::Denied, ..shown },
                    "inspect",
                    "signers.certificates.k8s.io/vm.neon.tech/operators",
                    "",
                ),
                certificate::Error::Api(_) => {
                    denied(shown, "get and create", "certificatesigningrequests.certificates.k8s.io", "")
                }
                certificate::Error::Late => shown.hint("see which services run: neonctl status"),
                _ => shown,
            }
        })?;
        let tls = certificate.client_config().map_err(|error| failed(&error, what))?;
        Ok(Self { connection, namespace, tls: Arc::new(tls) })
    }

    async fn leases(&self) -> Result<Vec<Lease>> {
        let api: Api<Lease> = Api::namespaced(self.connection.client(), &self.namespace);
        let list = self.connection.within("cannot list leases", api.list(&ListParams::default())).await;
        Ok(list.map_err(|error| denied(error, "list", "leases.coordination.k8s.io", &self.namespace))?.items)
    }

    /// A connection to the holder of a lease; `name` is that in its certificate.
    async fn connect(&self, who: &str, lease: &Lease, (pods, name): (&[Pod], &str)) -> Result<Caller> {
        let (namespace, tls) = (&self.namespace, Arc::clone(&self.tls));
        let missing = |message: String| {
            Err(Error::new(Code::NotFound, message).hint("see which services run: neonctl status"))
        };
        let Some(endpoint) = Endpoint::from_lease(lease) else {
            return missing(format!("the lease of {who} in namespace {namespace} has no holder"));
        };
        match pods::way(lease, endpoint, pods) {
            Some(Way::Pod(pod)) => {
                let target = pods::Target { namespace, pod: &pod, who, endpoint, tls, name };
                pods::forward(self.connection, target).await
            }
            Some(Way::Here) => Ok(Caller::new(endpoint, Some(tls), name)),
            None => missing(format!(
                "the pod of {who}, at {}, is not in namespace {namespace}",
                endpoint.address.ip()
            )),
        }
    }

    async fn call<T: DeserializeOwned>(
        who: &str,
        caller: &mut Caller,
        (method, path, body): (Method, &str, Bytes),
    ) -> Result<T> {
        let unreachable = |error: neonvm_kit::call::Error| {
            let shown = failed(&error, &format!("cannot query {who}"));
            Error { code: Code::Unreachable, ..shown }.hint("see which services run: neonctl status")
        };
        let (status, answer) = caller.call(method, path, body, ANSWER).await.map_err(unreachable)?;
        if status != StatusCode::OK {
            let text = String::from_utf8_lossy(&answer).trim().to_owned();
            let code = if status == StatusCode::NOT_FOUND { Code::NotFound } else { Code::Failed };
            return Err(Error::new(code, format!("{who} rejected the request: {text}")));
        }
        serde_json::from_slice(&answer)
            .map_err(|error| Error::new(Code::Failed, format!("invalid response from {who}: {error}")))
    }

    async fn scheduler<T: DeserializeOwned>(&self, request: (Method, &str, Bytes)) -> Result<T> {
        let (leases, pods) = tokio::try_join!(
            self.leases(),
            pods::of_service(self.connection, &self.namespace, SCHEDULER_ACCOUNT)
        )?;
        let lease = leases.iter().find(|lease| lease.name_any() == SCHEDULER_LEASE);
        if lease.is_none() && pods.is_empty() {
            return Err(not_installed(&self.namespace));
        }
        let lease = lease.filter(|lease| Endpoint::from_lease(lease).is_some()).ok_or_else(|| {
            Error::new(Code::NotFound, format!("no scheduler is leader in namespace {}", self.namespace))
                .hint("see which services run: neonctl status")
        })?;
        let who = "the scheduler";
        let mut caller = self.connect(who, lease, (&pods, SCHEDULER_NAME)).await?;
        Self::call(who, &mut caller, request).await
    }

    pub(super) async fn scheduler_inspect(&self) -> Result<Inspect> {
        self.scheduler((Method::GET, "/v1/inspect", Bytes::new())).await
    }

    pub(super) async fn what_if(&self, question: &WhatIf) -> Result<WhatIfAnswer> {
        let body =
            serde_json::to_vec(question).map_err(|error| failed(&error, "cannot query the scheduler"))?;
        self.scheduler((Method::POST, "/v1/what-if", Bytes::from(body))).await
    }

    /// What the agents know: of one node, or of all; of one VM (`namespace/name`), or of all. Also why some of them did not respond.
    ///
    /// # Errors
    /// If none of them responds.
    pub(super) async fn agents(
        &self,
        node: Option<&str>,
        vm: Option<&str>,
    ) -> Result<(Vec<AgentInspect>, Vec<String>)> {
        let path = vm.map_or_else(|| "/v1/inspect".to_owned(), |vm| format!("/v1/inspect?vm={vm}"));
        some(self.each_agent(node, &path).await?)
    }

    /// What each agent keeps of the past of a VM (`namespace/name`), from a time on in milliseconds since 1970.
    pub(super) async fn histories(&self, vm: &str, since: i64) -> Result<Vec<Result<AgentHistory>>> {
        self.each_agent(None, &format!("/v1/history?vm={vm}&since={since}")).await
    }

    async fn ask_agent<T: DeserializeOwned>(
        &self,
        lease: &Lease,
        node: String,
        pods: &[Pod],
        path: &str,
    ) -> Result<T> {
        let who = format!("the agent of {node}");
        let mut caller = self.connect(&who, lease, (pods, &agent_name(&node))).await?;
        Self::call(&who, &mut caller, (Method::GET, path, Bytes::new())).await
    }

    /// The answers of the agents: of one node, or of all.
    async fn each_agent<T: DeserializeOwned>(
        &self,
        node: Option<&str>,
        path: &str,
    ) -> Result<Vec<Result<T>>> {
        let prefix = agent_lease("");
        let (leases, pods) = tokio::try_join!(
            self.leases(),
            pods::of_service(self.connection, &self.namespace, AGENT_ACCOUNT)
        )?;
        let named = leases
            .iter()
            .filter_map(|lease| Some((lease, lease.name_any().strip_prefix(&prefix)?.to_owned())));
        // Without a holder the agent ended. There may be others.
        let agents = named.filter(|(lease, own)| {
            node.is_none_or(|node| node == own) && Endpoint::from_lease(lease).is_some()
        });
        let answers: Vec<Result<T>> =
            stream::iter(agents.map(|(lease, own)| self.ask_agent(lease, own, &pods, path)))
                .buffered(AT_ONCE)
                .collect()
                .await;
        if answers.is_empty() {
            let missing = match node {
                Some(node) => format!("there is no agent for node {node}"),
                None => format!("there is no agent in namespace {}", self.namespace),
            };
            return Err(Error::new(Code::NotFound, missing).hint("see which services run: neonctl status"));
        }
        Ok(answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_is_silent_does_not_hide_the_others() {
        let silent =
            || Err(Error::new(Code::Unreachable, "cannot query the agent of n2").cause("no response"));
        let (good, words) = some(vec![Ok(1), silent(), Ok(3)]).unwrap();
        assert_eq!((good, words), (vec![1, 3], vec!["cannot query the agent of n2: no response".to_owned()]));
        assert_eq!(some::<u8>(vec![silent()]).unwrap_err().code, Code::Unreachable);
    }
}
