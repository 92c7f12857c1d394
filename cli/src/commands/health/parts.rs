//! What is read of the services of an installation. Whatever may not be read is known as such, with the right that is missing.

use neonvm_api::names::POD_AUTOSCALER_ACCOUNT;
use serde_json::{Value, json};

use crate::commands::object::items;
use crate::connect::Connection;
use crate::error::{Code, Result};

/// Objects of a kind, or why there are none to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Part {
    Read(Vec<Value>),
    /// `you may not list leases in namespace a`
    Unread(String),
}

impl Default for Part {
    fn default() -> Self {
        Self::Read(Vec::new())
    }
}

impl Part {
    /// What there is; nothing where it may not be read.
    pub(in crate::commands) fn objects(&self) -> &[Value] {
        match self {
            Self::Read(objects) => objects,
            Self::Unread(_) => &[],
        }
    }

    /// Why it was not read.
    pub(in crate::commands) fn missing(&self) -> Option<&str> {
        match self {
            Self::Read(_) => None,
            Self::Unread(right) => Some(right),
        }
    }
}

/// The objects by which services are judged.
#[derive(Clone, Debug, Default)]
pub(in crate::commands) struct ServiceObjects {
    pub(in crate::commands) namespace: String,
    /// Deployments and daemon sets, each with its kind.
    pub(in crate::commands) workloads: Part,
    pub(in crate::commands) pods: Part,
    pub(in crate::commands) leases: Part,
    /// Registrations of webhooks: mutating and validating.
    pub(in crate::commands) hooks: Part,
    /// Endpoint slices of the webhooks' services.
    pub(in crate::commands) endpoints: Part,
}

/// Reads all of it.
pub(in crate::commands) async fn parts(connection: &Connection, namespace: &str) -> Result<ServiceObjects> {
    const OURS: &str = "labelSelector=app.kubernetes.io%2Fpart-of%3Dneonvm";
    let apps = format!("/apis/apps/v1/namespaces/{namespace}");
    let deployments = format!("{apps}/deployments?{OURS}");
    let daemons = format!("{apps}/daemonsets?{OURS}");
    let pods = format!("/api/v1/namespaces/{namespace}/pods?{OURS}");
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let slices = format!(
        "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%20in%20%28{SERVICE}%2C{POD_AUTOSCALER_ACCOUNT}%29"
    );
    let (deployments, daemons, pods, leases, endpoints, hooks) = tokio::try_join!(
        list(connection, &deployments, "deployments", namespace),
        list(connection, &daemons, "daemonsets", namespace),
        list(connection, &pods, "pods", namespace),
        list(connection, &leases, "leases", namespace),
        list(connection, &slices, "endpointslices", namespace),
        hooks(connection),
    )?;
    let workloads = joined(of_kind(deployments, "Deployment"), of_kind(daemons, "DaemonSet"));
    Ok(ServiceObjects { namespace: namespace.to_owned(), workloads, pods, leases, hooks, endpoints })
}

pub(super) const SERVICE: &str = "neonvm-webhook";

async fn list(connection: &Connection, path: &str, plural: &str, namespace: &str) -> Result<Part> {
    match items(connection, path).await {
        Err(error) if error.code == Code::Denied => {
            Ok(Part::Unread(format!("you lack permission to list {plural} in namespace {namespace}")))
        }
        // The namespace, or the kind, does not exist.
        Err(error) if error.code == Code::NotFound => Ok(Part::default()),
        found => found.map(Part::Read),
    }
}

/// Registrations of our webhooks.
pub(in crate::commands) async fn hooks(connection: &Connection) -> Result<Part> {
    let mut all = Vec::new();
    for side in ["mutating", "validating"] {
        let plural = format!("{side}webhookconfigurations");
        let path =
            format!("/apis/admissionregistration.k8s.io/v1/{plural}/neonvm-{side}-webhook-configuration");
        match connection.json(&path).await {
            Err(error) if error.code == Code::Denied => {
                return Ok(Part::Unread(format!("you lack permission to get {plural}")));
            }
            Err(error) if error.code == Code::NotFound => {}
            found => all.push(found?),
        }
    }
    Ok(Part::Read(all))
}

/// Items of a list do not name their kind.
fn of_kind(part: Part, kind: &str) -> Part {
    let named = |mut object: Value| {
        if let Some(map) = object.as_object_mut() {
            map.insert("kind".to_owned(), json!(kind));
        }
        object
    };
    match part {
        Part::Read(objects) => Part::Read(objects.into_iter().map(named).collect()),
        unread @ Part::Unread(_) => unread,
    }
}

fn joined(one: Part, other: Part) -> Part {
    match (one, other) {
        (Part::Read(mut all), Part::Read(more)) => {
            all.extend(more);
            Part::Read(all)
        }
        (unread @ Part::Unread(_), _) | (_, unread) => unread,
    }
}
