//! Reading what a [`View`] is made of, and where the services are installed.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::client::Body;
use neonvm_api::names::SYSTEM_NAMESPACE;
use neonvm_deploy::INVENTORY;
use serde_json::Value;

use super::component::Component;
use super::parts::parts;
use super::view::View;
use crate::commands::object::{items, text};
use crate::connect::Connection;
use crate::error::{Code, Error, Result};

const MACHINES: &str = "/apis/vm.neon.tech/v1/virtualmachines";
const AUTOSCALERS: &str = "/apis/autoscaling.aibrix.ai/v1alpha1/podautoscalers";
const UNBOUND: &str = "/api/v1/pods?fieldSelector=spec.nodeName%3D";
const HEARTBEATS: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// The server's clock, and how long its answer took.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Clock {
    /// None: it does not report its time.
    pub(in crate::commands) server: Option<Timestamp>,
    /// Ours, half-way between question and answer.
    pub(in crate::commands) own: Timestamp,
    pub(in crate::commands) latency: Duration,
}

/// Asks for the server's version, for its clock's sake.
pub(in crate::commands) async fn clock(connection: &Connection) -> Result<Clock> {
    let request = http::Request::get("/version").body(Body::empty());
    let request =
        request.map_err(|error| Error::new(Code::Failed, "bad request").cause(error.to_string()))?;
    let (begun, before) = (Instant::now(), Timestamp::now());
    let client = connection.client();
    let answer = connection.within("cannot query the cluster", client.send(request)).await?;
    let latency = begun.elapsed();
    let date = answer.headers().get(http::header::DATE).and_then(|value| value.to_str().ok());
    let server = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()).map(|time| time.timestamp());
    Ok(Clock { server, own: before.checked_add(latency / 2).unwrap_or(before), latency })
}

/// Everything that is looked at. The services are those of the namespace that is named, else of the installation that there is.
pub(in crate::commands) async fn view(connection: &Connection, namespace: Option<&str>) -> Result<View> {
    let clock = clock(connection).await?;
    let namespace = installed(connection, namespace).await?;
    let (nodes, machines, autoscalers, unbound, heartbeats, parts) = tokio::try_join!(
        if_there(items(connection, "/api/v1/nodes")),
        // Without the definition there are none.
        if_there(items(connection, MACHINES)),
        if_there(items(connection, AUTOSCALERS)),
        if_there(items(connection, UNBOUND)),
        if_there(items(connection, HEARTBEATS)),
        parts(connection, &namespace),
    )?;
    let now = clock.server.unwrap_or(clock.own);
    Ok(View { now, nodes, machines, autoscalers, unbound, heartbeats, parts })
}

/// The services of an installation, by their own objects alone.
pub(in crate::commands) async fn services(
    connection: &Connection,
    namespace: &str,
) -> Result<Vec<Component>> {
    let clock = clock(connection).await?;
    let (nodes, parts) =
        tokio::try_join!(if_there(items(connection, "/api/v1/nodes")), parts(connection, namespace))?;
    let view = View { now: clock.server.unwrap_or(clock.own), nodes, parts, ..View::default() };
    Ok(view.services())
}

/// Nothing if it does not exist or may not be read.
async fn if_there<T: Default>(request: impl Future<Output = Result<T>>) -> Result<T> {
    match request.await {
        Err(error) if matches!(error.code, Code::NotFound | Code::Denied) => Ok(T::default()),
        answer => answer,
    }
}

/// The namespace of the services: the one that is named, else that of an installation, else the default one.
pub(in crate::commands) async fn installed(connection: &Connection, named: Option<&str>) -> Result<String> {
    if let Some(named) = named {
        return checked(named);
    }
    let records = format!("/api/v1/configmaps?fieldSelector=metadata.name%3D{INVENTORY}");
    let workloads = "/apis/apps/v1/deployments?labelSelector=app.kubernetes.io%2Fpart-of%3Dneonvm";
    for path in [records.as_str(), workloads] {
        match items(connection, path).await {
            Ok(found) => {
                if let Some(namespace) = namespace_of(&found) {
                    return Ok(namespace);
                }
            }
            // Who may not list them everywhere gets the default.
            Err(error) if matches!(error.code, Code::Denied | Code::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(SYSTEM_NAMESPACE.to_owned())
}

/// A namespace that a person named.
///
/// # Errors
/// If no namespace can have this name.
pub(in crate::commands) fn checked(named: &str) -> Result<String> {
    if is_name(named) {
        return Ok(named.to_owned());
    }
    Err(Error::new(Code::Usage, format!("--namespace: {named:?} is not the name of a namespace"))
        .hint("use lower-case letters, digits and dashes, at most 63"))
}

fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let ends = text.starts_with('-') || text.ends_with('-');
    (1..=63).contains(&text.len()) && text.chars().all(plain) && !ends
}

/// Of several the default one, else the first by name.
fn namespace_of(objects: &[Value]) -> Option<String> {
    let namespaces = objects.iter().map(|object| text(object, "/metadata/namespace"));
    // A server may send anything.
    let found = namespaces.filter(|namespace| is_name(namespace));
    found.min_by_key(|namespace| (*namespace != SYSTEM_NAMESPACE, *namespace)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_installation_is_where_its_objects_are() {
        let at = |namespace: &str| json!({"metadata": {"namespace": namespace}});
        assert_eq!(namespace_of(&[at("vms"), at("other")]).as_deref(), Some("other"));
        assert_eq!(namespace_of(&[at("a"), at(SYSTEM_NAMESPACE)]).as_deref(), Some(SYSTEM_NAMESPACE));
        assert_eq!(namespace_of(&[]), None);
        assert_eq!(namespace_of(&[at("a/b"), at("A"), at("-"), at("")]), None);
        assert_eq!(checked("a/b").unwrap_err().code, Code::Usage);
        assert_eq!(checked("vms-1").unwrap(), "vms-1");
    }
}
