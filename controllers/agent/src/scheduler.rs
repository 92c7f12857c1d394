//! The scheduler: its address, and how requests are sent. Few connections are shared by all VMs of the node.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use neonvm_api::names::{SCHEDULER_LEASE, UPSTREAM_NAMESPACE};
use neonvm_kit::authority::SCHEDULER_NAME;
use neonvm_kit::call::{Callers, Error as CallError};
use neonvm_kit::service::Endpoint;
use neonvm_types::scheduler_protocol::{AgentRequest, PluginResponse};
use rustls::ClientConfig;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;

/// Requests at the same time, each on a separate connection.
const AT_ONCE: usize = 8;

/// How long a scheduler may take for an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// The scheduler of the lease, which answers from memory.
    pub(crate) ours: Duration,
    /// Upstream's, found by its pod; not less than `ours`.
    pub(crate) upstream: Duration,
}

impl Patience {
    const fn with(self, endpoint: Endpoint) -> Duration {
        // A lease never leads to a plain one.
        if endpoint.plain { self.upstream } else { self.ours }
    }
}

/// Where the scheduler is: that of the lease, or else a pod of upstream's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    lease: Option<Endpoint>,
    pod: Option<Endpoint>,
}

/// The scheduler, as agents see it.
#[derive(Debug)]
pub(crate) struct Scheduler {
    known: watch::Sender<Known>,
    callers: Callers,
    within: Patience,
    places: Semaphore,
    /// The scheduler of the lease gave no answer, or another replica leads.
    doubt: Notify,
    /// There is none, by the configuration.
    none: bool,
}

/// Why there is no permit.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("there is no scheduler: the lease {SCHEDULER_LEASE} has no holder")]
    Nowhere,
    #[error("the scheduler is slow: {AT_ONCE} other requests were not answered within {} ms", .0.as_millis())]
    Busy(Duration),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the scheduler refuses with {status}: {text}")]
    Refused { status: StatusCode, text: String },
    #[error("the scheduler's answer is invalid: {0}")]
    Nonsense(String),
}

impl Error {
    /// Value of the label `code` of the metric of requests.
    pub(crate) fn code(&self) -> String {
        match self {
            Self::Refused { status, .. } => status.as_u16().to_string(),
            Self::Nowhere => "[no scheduler]".into(),
            Self::Busy(_) => "[scheduler busy]".into(),
            Self::Nonsense(_) => "[error parsing response]".into(),
            // Few values: texts of errors have times and addresses in them.
            Self::Call(error) => {
                let kind = match error {
                    CallError::Connect(..) | CallError::Ended(_) => "no connection",
                    CallError::Late { .. } => "no answer in time",
                    CallError::Http(..) | CallError::Body(_) => "broken answer",
                    CallError::Name(_) | CallError::NoTls(_) => "no TLS",
                };
                format!("[error doing request: {kind}]")
            }
        }
    }
}

impl Scheduler {
    pub(crate) fn new(tls: Arc<ClientConfig>, within: Patience, none: bool) -> Self {
        let (known, _) = watch::channel(Known::default());
        let callers = Callers::new(tls, SCHEDULER_NAME, AT_ONCE);
        Self { known, callers, within, places: Semaphore::new(AT_ONCE), doubt: Notify::new(), none }
    }

    fn endpoint(&self) -> Option<Endpoint> {
        let known = *self.known.borrow();
        known.lease.or(known.pod)
    }

    /// Requests a permit. The time limit includes the wait for a place: a later reply would belong to a VM whose state
    /// has changed, and many VMs would send a slow scheduler ever more requests.
    pub(crate) async fn ask(&self, request: &AgentRequest) -> Result<PluginResponse, Error> {
        if self.none {
            return Ok(PluginResponse { permit: request.resources, migrate: None, resource_unit: None });
        }
        let endpoint = self.endpoint().ok_or(Error::Nowhere)?;
        let body = serde_json::to_vec(request).map_err(|error| Error::Nonsense(error.to_string()))?;
        let within = self.within.with(endpoint);
        let until = Instant::now() + within;
        let place = tokio::time::timeout_at(until, self.places.acquire()).await;
        let Ok(Ok(_place)) = place else { return Err(Error::Busy(within)) };
        let left = until.saturating_duration_since(Instant::now());
        let answer = self.callers.post(endpoint, Bytes::from(body), left).await;
        let is_elsewhere = matches!(&answer, Err(_) | Ok((StatusCode::SERVICE_UNAVAILABLE, _)));
        if is_elsewhere && !endpoint.plain {
            self.doubt.notify_one();
        }
        let (status, answer) = answer?;
        if status != StatusCode::OK {
            let text: String = String::from_utf8_lossy(&answer).trim().chars().take(300).collect();
            return Err(Error::Refused { status, text });
        }
        PluginResponse::decode(&answer).map_err(|error| Error::Nonsense(error.to_string()))
    }

    /// Follows the lease of the scheduler; never returns.
    pub(crate) async fn follow_lease(&self, client: Client, namespace: &str) {
        let learn = |found| self.learn(|known| known.lease = found);
        neonvm_kit::service::follow(&client, (namespace, SCHEDULER_LEASE), &self.doubt, learn).await;
    }

    /// Follows pods of upstream's scheduler, of which the newest that is ready counts; never returns.
    pub(crate) async fn follow_pods(&self, client: Client, name: &str, port: u16) {
        let api: Api<Pod> = Api::namespaced(client, UPSTREAM_NAMESPACE);
        let config = watcher::Config::default().labels(&format!("name={name}"));
        let mut events = watcher(api, config).backoff(neonvm_kit::watch::retry()).boxed();
        let mut pods = std::collections::BTreeMap::new();
        loop {
            match events.try_next().await {
                Ok(Some(watcher::Event::Init)) => pods.clear(),
                Ok(Some(watcher::Event::InitApply(pod) | watcher::Event::Apply(pod))) => {
                    pods.insert(pod.name_any(), candidate(&pod, port));
                }
                Ok(Some(watcher::Event::Delete(pod))) => drop(pods.remove(&pod.name_any())),
                Ok(Some(watcher::Event::InitDone)) => {}
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "scheduler pods cannot be watched");
                    continue;
                }
            }
            let newest = pods.values().flatten().max_by_key(|(created, _)| *created);
            let newest = newest.map(|(_, endpoint)| *endpoint);
            self.learn(|known| known.pod = newest);
        }
    }

    fn learn(&self, change: impl FnOnce(&mut Known)) {
        self.known.send_if_modified(|known| {
            let before = *known;
            change(known);
            if *known != before {
                tracing::info!(scheduler = ?known.lease.or(known.pod).map(|e| e.to_string()), "the scheduler is here");
            }
            *known != before
        });
    }
}

fn candidate(pod: &Pod, port: u16) -> Option<(k8s_openapi::jiff::Timestamp, Endpoint)> {
    let status = pod.status.as_ref()?;
    let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    let ip: std::net::IpAddr = status.pod_ip.as_deref()?.parse().ok()?;
    let created = pod.metadata.creation_timestamp.as_ref()?.0;
    ready.then_some((created, Endpoint { address: (ip, port).into(), plain: true }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use neonvm_types::{NamespacedName, Resources};

    fn patience(ours: u64, upstream: u64) -> Patience {
        Patience { ours: Duration::from_millis(ours), upstream: Duration::from_millis(upstream) }
    }

    /// Upstream's scheduler takes up to a second and a patch.
    #[test]
    fn upstreams_scheduler_gets_more_time() {
        let at = |plain| Endpoint { address: "127.0.0.1:1".parse().unwrap(), plain };
        let patience = patience(200, 700);
        assert_eq!(patience.with(at(false)), patience.ours);
        assert_eq!(patience.with(at(true)), patience.upstream);
    }

    /// Many VMs and a scheduler that does not answer: no request waits longer for a place than for a reply.
    #[tokio::test]
    async fn a_request_without_a_turn_in_time_fails_as_busy() {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let scheduler = Arc::new(Scheduler::new(Arc::new(tls), patience(200, 200), false));
        scheduler.learn(|known| known.lease = Some(Endpoint { address, plain: true }));
        let mut asking = tokio::task::JoinSet::new();
        for number in 0..AT_ONCE * 3 {
            let scheduler = Arc::clone(&scheduler);
            asking.spawn(async move {
                let request = AgentRequest {
                    proto_version: neonvm_types::version::PluginProtoVersion::V5_0,
                    pod: NamespacedName::new("default", format!("v{number}")),
                    compute_unit: Resources::default(),
                    resources: Resources::default(),
                    last_permit: None,
                    metrics: None,
                };
                scheduler.ask(&request).await.unwrap_err()
            });
        }
        let errors = asking.join_all().await;
        let busy = errors.iter().filter(|error| matches!(error, Error::Busy(_))).count();
        let late = errors.iter().filter(|error| matches!(error, Error::Call(CallError::Late { .. }))).count();
        // A request that gets the place of one that timed out has next to no time left.
        assert!(busy + late == AT_ONCE * 3 && late >= AT_ONCE, "{errors:?}");
        // Times in texts do not make a separate label.
        let codes: std::collections::BTreeSet<String> = errors.iter().map(Error::code).collect();
        assert!(codes.len() <= 2, "{codes:?}");
    }

    /// Without a scheduler nothing is waited for: the change itself is the request to the node's kubelet.
    #[tokio::test]
    async fn without_a_scheduler_everything_is_permitted() {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
        let scheduler = Scheduler::new(Arc::new(tls), patience(200, 200), true);
        let resources = Resources::new(neonvm_types::MilliCpu::new(750), neonvm_types::Bytes::gib(3));
        let request = AgentRequest {
            proto_version: neonvm_types::version::PluginProtoVersion::V5_0,
            pod: NamespacedName::new("default", "v"),
            compute_unit: Resources::default(),
            resources,
            last_permit: None,
            metrics: None,
        };
        let answer = scheduler.ask(&request).await.unwrap();
        assert_eq!((answer.permit, answer.migrate), (resources, None));
    }
}
