//! Where a service is reached: the holder of its lease has written the address to it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Error};
use neonvm_api::names::annotation;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Where a service is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub address: SocketAddr,
    /// Plain HTTP instead of TLS.
    pub plain: bool,
}

impl Endpoint {
    /// What its holder writes to the lease.
    #[must_use]
    pub fn annotations(self) -> BTreeMap<String, String> {
        BTreeMap::from([(annotation::SERVICE_ADDRESS.to_owned(), self.address.to_string())])
    }

    /// The address in the lease, if it has a holder. It is always one with TLS: a client that may write leases could pass for the
    /// service otherwise.
    #[must_use]
    pub fn from_lease(lease: &Lease) -> Option<Self> {
        let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
        let annotations = lease.metadata.annotations.as_ref()?;
        let address = annotations.get(annotation::SERVICE_ADDRESS)?.parse().ok()?;
        (!holder.is_empty()).then_some(Self { address, plain: false })
    }
}

/// Looks a service up by its lease. `None` if it has no holder.
///
/// # Errors
/// If the API server refuses.
pub async fn find(client: &Client, namespace: &str, lease: &str) -> Result<Option<Endpoint>, Error> {
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    Ok(api.get_opt(lease).await?.as_ref().and_then(Endpoint::from_lease))
}

/// Least time between two readings of a lease after errors of its service.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// Watches where a service is reached, and calls `learn` each time it may have changed: `None` if its lease has no holder.
/// A caller that cannot use the service there notifies `doubt`: then the lease is read, because the watch may be behind after an
/// outage. Never returns.
pub async fn follow(
    client: &Client,
    (namespace, lease): (&str, &str),
    doubt: &Notify,
    mut learn: impl FnMut(Option<Endpoint>),
) {
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={lease}"));
    let mut events = watcher(api, config).backoff(crate::watch::retry()).boxed();
    let mut listed = None;
    let mut read = Instant::now();
    loop {
        let event = tokio::select! {
            event = events.try_next() => event,
            () = async {
                doubt.notified().await;
                tokio::time::sleep_until(read + READ_AGAIN).await;
            } => {
                read = Instant::now();
                if let Ok(found) = find(client, namespace, lease).await {
                    learn(found);
                }
                continue;
            }
        };
        match event {
            Ok(Some(watcher::Event::Init)) => listed = None,
            Ok(Some(watcher::Event::InitApply(lease))) => listed = Endpoint::from_lease(&lease),
            Ok(Some(watcher::Event::InitDone)) => learn(listed),
            Ok(Some(watcher::Event::Apply(lease))) => learn(Endpoint::from_lease(&lease)),
            Ok(Some(watcher::Event::Delete(_))) => learn(None),
            Ok(None) => return,
            Err(error) => tracing::warn!(%error, lease, "a lease cannot be watched"),
        }
    }
}

/// The address under which others reach a listener: its own, or that of the pod if it listens everywhere.
#[must_use]
pub fn advertised(listening: SocketAddr, pod: Option<IpAddr>) -> SocketAddr {
    match pod {
        Some(ip) if listening.ip().is_unspecified() => SocketAddr::new(ip, listening.port()),
        _ => listening,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let endpoint = Endpoint { address: "127.0.0.1:10299".parse().unwrap(), plain: false };
        let mut lease = Lease::default();
        lease.metadata.annotations = Some(endpoint.annotations());
        assert_eq!(Endpoint::from_lease(&lease), None, "it has no holder");
        lease.spec.get_or_insert_default().holder_identity = Some(String::new());
        assert_eq!(Endpoint::from_lease(&lease), None, "it was given back");
        lease.spec.get_or_insert_default().holder_identity = Some("a".into());
        assert_eq!(Endpoint::from_lease(&lease), Some(endpoint));
        // As earlier versions switched TLS off.
        let more = [("vm.neon.tech/service-plain-http".to_owned(), "true".to_owned())];
        lease.metadata.annotations.get_or_insert_default().extend(more);
        assert_eq!(Endpoint::from_lease(&lease), Some(endpoint), "TLS stays");
    }

    #[test]
    fn who_listens_everywhere_is_reached_at_its_pod() {
        let everywhere = "0.0.0.0:1".parse().unwrap();
        assert_eq!(advertised(everywhere, Some("10.0.0.1".parse().unwrap())).to_string(), "10.0.0.1:1");
        assert_eq!(advertised(everywhere, None), everywhere);
        let one = "127.0.0.1:1".parse().unwrap();
        assert_eq!(advertised(one, Some("10.0.0.1".parse().unwrap())), one);
    }
}
