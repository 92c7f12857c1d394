//! What is left when a service is removed: its pods, for a while, and its leases.

use std::time::Duration;

use neonvm_deploy::Named;
use neonvm_kernel::Progress as _;

use crate::commands::object::{items_if_any, text};
use crate::commands::poll;
use crate::connect::Connection;
use crate::error::{Code, Error, Result};
use crate::render::Reporter;

pub(crate) fn named(api_version: &str, kind: &str, namespace: &str, name: &str) -> Named {
    Named {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

/// Waits until no pod with a label is left.
pub(crate) async fn gone(
    connection: &Connection,
    reporter: &Reporter,
    (namespace, label): (&str, &str),
    limit: Duration,
) -> Result<()> {
    let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={label}");
    let mut left = String::new();
    let ended = poll::until(limit, async || {
        let pods = items_if_any(connection, &path).await?;
        let names: Vec<&str> = pods.iter().map(|pod| text(pod, "/metadata/name")).collect();
        if names.is_empty() {
            return Ok(Some(()));
        }
        reporter.line(&format!("waiting for {} pods to end", names.len()));
        left = names.join(", ");
        Ok(None)
    });
    ended.await?.ok_or_else(|| {
        Error::new(Code::Timeout, format!("pods have not ended after {limit:?}: {left}"))
            .hint("see why: kubectl describe pod; then run the command again")
    })
}

/// Leases of services, by their names.
pub(crate) async fn leases(
    connection: &Connection,
    namespace: &str,
    ours: impl Fn(&str) -> bool,
) -> Result<Vec<Named>> {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let items = items_if_any(connection, &path).await?;
    let names = items.iter().map(|lease| text(lease, "/metadata/name")).filter(|name| ours(name));
    Ok(names.map(|name| named("coordination.k8s.io/v1", "Lease", namespace, name)).collect())
}
