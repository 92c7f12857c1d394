//! The way to a service: which pod answers for a lease, and a port-forward to it through the API server, with the caller's own
//! rights. The API server and the kubelet carry bytes: TLS is spoken within, with the service itself.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use neonvm_kit::call::Caller;
use neonvm_kit::service::Endpoint;
use rustls::ClientConfig;

use super::{ANSWER, denied, failed};
use crate::connect::Connection;
use crate::error::{Code, Error, Result};

/// Time for the reason of a port that could not be reached to arrive.
const REASON: Duration = Duration::from_millis(500);

/// Where a service is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By a port-forward to this pod.
    Pod(String),
    /// It is a process of this host, as on a local cluster.
    Here,
}

/// The way to the holder of a lease; none if its pod is gone. The holder is the pod's name, or the addresses are equal.
pub(super) fn way(lease: &Lease, endpoint: Endpoint, pods: &[Pod]) -> Option<Way> {
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
    let ip = endpoint.address.ip();
    let has_address = |pod: &&Pod| {
        let own = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
        own.and_then(|own| own.parse().ok()) == Some(ip)
    };
    let named = pods.iter().find(|pod| pod.metadata.name.as_deref() == holder);
    match named.or_else(|| pods.iter().find(has_address)) {
        Some(pod) => Some(Way::Pod(pod.name_any())),
        // No API server would get there.
        None => ip.is_loopback().then_some(Way::Here),
    }
}

/// Pods of a service that have not ended. On a local cluster there are none.
pub(super) async fn of_service(connection: &Connection, namespace: &str, service: &str) -> Result<Vec<Pod>> {
    let api: Api<Pod> = Api::namespaced(connection.client(), namespace);
    let which = ListParams::default().labels(&format!("app.kubernetes.io/name={service}"));
    let list = connection.within("cannot list the pods of services", api.list(&which)).await;
    let mut pods = list.map_err(|error| denied(error, "list", "pods", namespace))?.items;
    let has_ended = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    pods.retain(|pod| !has_ended(pod));
    Ok(pods)
}

pub(super) struct Target<'a> {
    pub(super) namespace: &'a str,
    pub(super) pod: &'a str,
    pub(super) who: &'a str,
    pub(super) endpoint: Endpoint,
    pub(super) tls: Arc<ClientConfig>,
    /// What the certificate of the service has to name.
    pub(super) name: &'a str,
}

pub(super) async fn forward(connection: &Connection, target: Target<'_>) -> Result<Caller> {
    let Target { namespace, pod, who, endpoint, tls, name } = target;
    let attempt = format!("cannot reach {who} in pod {namespace}/{pod}");
    let port = endpoint.address.port();
    let api: Api<Pod> = Api::namespaced(connection.streams()?, namespace);
    let opened = connection.within(&attempt, api.portforward(pod, &[port])).await;
    let mut forwarder = opened.map_err(|error| match error.code {
        // Which of both verbs is needed depends on the version of Kubernetes.
        Code::Denied => denied(error, "get and create", "pods/portforward", namespace),
        Code::NotFound => error.hint("see which services run: neonctl status"),
        _ => error,
    })?;
    let broken =
        || Error::new(Code::Failed, attempt.clone()).cause("the connection could not be established");
    let stream = forwarder.take_stream(port).ok_or_else(broken)?;
    let reason = forwarder.take_error(port).ok_or_else(broken)?;
    match Caller::over(stream, endpoint, (tls, name), ANSWER).await {
        Ok(caller) => Ok(caller),
        Err(error) => {
            let reason = tokio::time::timeout(REASON, reason).await.ok().flatten();
            let shown = match reason {
                Some(reason) => Error::new(Code::Unreachable, attempt).cause(reason),
                None => Error { code: Code::Unreachable, ..failed(&error, &attempt) },
            };
            Err(shown.hint("see which services run: neonctl status"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(holder: &str, address: &str) -> (Lease, Endpoint) {
        let lease = json!({"metadata": {"annotations": {"vm.neon.tech/service-address": address}},
            "spec": {"holderIdentity": holder}});
        let lease: Lease = serde_json::from_value(lease).unwrap();
        let endpoint = Endpoint::from_lease(&lease).unwrap();
        (lease, endpoint)
    }

    fn pod(name: &str, ip: &str) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": name}, "status": {"podIP": ip}})).unwrap()
    }

    #[test]
    fn the_pod_is_named_by_the_holder_or_found_by_its_address() {
        let pods = [pod("agent-a", "10.0.0.1"), pod("agent-b", "10.0.0.2"), pod("new", "")];
        let to = |holder: &str, address: &str| {
            let (lease, endpoint) = lease(holder, address);
            way(&lease, endpoint, &pods)
        };
        let expected = |name: &str| Some(Way::Pod(name.to_owned()));
        // Pods in the network of their node share its address.
        assert_eq!(to("agent-b", "10.0.0.1:10301"), expected("agent-b"));
        assert_eq!(to("scheduler", "10.0.0.2:10299"), expected("agent-b"));
        assert_eq!(to("scheduler", "10.0.0.3:10299"), None);
        assert_eq!(to("host-1", "127.0.0.1:4711"), Some(Way::Here));
        assert_eq!(to("host-1", "[::1]:4711"), Some(Way::Here));
    }
}
