//! Reading what a [`View`] is made of.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::client::Body;

use super::component::Component;
use super::installed::installed;
use super::parts::parts;
use super::view::View;
use crate::commands::object::items;
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
