//! The networks of Services, as the cluster has them.

use std::time::Duration;

use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::api::{Api, ListParams};
use kube::{Client, Error};

use crate::reach::Network;
use crate::request::REQUEST;

/// Pause after a request that failed.
const AGAIN: Duration = Duration::from_secs(1);
/// Where the kubelet writes the API server's address inside the network of Services.
const OWN: &str = "KUBERNETES_SERVICE_HOST";

/// Those of the cluster's `ServiceCIDR` objects, and the API server's address. Repeats the query until the cluster
/// answers: the refused networks are loaded before any endpoint is read.
pub(crate) async fn networks(client: &Client) -> Vec<Network> {
    let api: Api<ServiceCIDR> = Api::all(client.clone());
    let own = std::env::var(OWN).ok().and_then(|address| address.parse().ok());
    loop {
        match tokio::time::timeout(REQUEST, api.list(&ListParams::default())).await {
            Ok(Ok(list)) => return list.items.iter().flat_map(cidrs).chain(own).collect(),
            // Before Kubernetes 1.33 there is no such kind.
            Ok(Err(Error::Api(status))) if matches!(status.code, 403 | 404) => {
                tracing::warn!(
                    reason = status.message,
                    "the network of Services is not known, so their addresses are scraped; name it with --service-network"
                );
                return own.into_iter().collect();
            }
            Ok(Err(error)) => tracing::info!(%error, "ServiceCIDRs cannot be listed"),
            Err(_) => tracing::info!("ServiceCIDRs cannot be listed: no answer"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn cidrs(object: &ServiceCIDR) -> Vec<Network> {
    let all = object.spec.iter().flat_map(|spec| spec.cidrs.iter().flatten());
    all.filter_map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_are_read() {
        let object = serde_json::from_value(serde_json::json!({"metadata": {"name": "kubernetes"},
            "spec": {"cidrs": ["10.96.0.0/16", "fd00:10:96::/112"]}}));
        let found = cidrs(&object.unwrap());
        assert!(
            found[0].contains("10.96.0.1".parse().unwrap())
                && found[1].contains("fd00:10:96::1".parse().unwrap())
        );
    }
}
