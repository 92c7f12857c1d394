//! Verifies that services work: their leases are held and renewed, the webhooks are registered, and a trial VM is admitted.

use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use neonvm_api::names::{SCHEDULER_LEASE, agent_lease};
use neonvm_deploy::{Component, Values};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::apply::get;
use crate::commands::health::{self, AUTOSCALER_LEASE, CONTROLLER_LEASE};
use crate::commands::object::text;
use crate::connect::Connection;
use crate::error::{Code, Error, Result};

/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(500);

/// Waits until all checks pass; returns a summary.
pub(super) async fn all(connection: &Connection, values: &Values, limit: Duration) -> Result<String> {
    let deadline = Instant::now() + limit;
    loop {
        let missing = missing(connection, values).await?;
        let Some((what, hint)) = missing else { break };
        if Instant::now() >= deadline {
            return Err(Error::new(Code::Timeout, format!("not verified after {limit:?}: {what}")).hint(hint));
        }
        tokio::time::sleep(PAUSE).await;
    }
    let leases = "leases are held";
    Ok(if values.has(Component::VmController) && values.has(Component::PodAutoscaler) {
        format!("{leases}, webhooks respond, a trial VM and a trial PodAutoscaler are admitted")
    } else if values.has(Component::VmController) {
        format!("{leases}, webhooks respond, a trial VM is admitted")
    } else {
        leases.to_owned()
    })
}

/// The first check that fails, and a hint.
async fn missing(connection: &Connection, values: &Values) -> Result<Option<(String, String)>> {
    let namespace = &values.namespace;
    let clock = health::clock(connection).await?;
    let now = clock.server.unwrap_or(clock.own);
    let mut leases = Vec::new();
    for (component, lease) in [
        (Component::VmController, CONTROLLER_LEASE),
        (Component::Scheduler, SCHEDULER_LEASE),
        (Component::PodAutoscaler, AUTOSCALER_LEASE),
    ] {
        if values.has(component) {
            leases.push((component.name(), lease.to_owned()));
        }
    }
    if values.has(Component::Agent) {
        leases.extend(agents(connection, namespace).await?);
    }
    for (service, lease) in leases {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{lease}");
        let found = get(connection, &path).await?;
        if !found.is_some_and(|found| is_held(&found, now)) {
            let hint = format!(
                "see its log: kubectl logs -n {namespace} -l app.kubernetes.io/name=neonvm-{service}"
            );
            return Ok(Some((format!("the lease {lease} of {service} has no holder"), hint)));
        }
    }
    if !values.has(Component::VmController) {
        return Ok(None);
    }
    let missing = webhooks(connection, namespace).await?;
    if missing.is_none() && values.has(Component::PodAutoscaler) {
        return autoscalers(connection, namespace).await;
    }
    Ok(missing)
}

/// The pod-autoscaler's webhooks: a number becomes text, which the definition would refuse otherwise.
async fn autoscalers(connection: &Connection, namespace: &str) -> Result<Option<(String, String)>> {
    let hint = format!("see its log: kubectl logs -n {namespace} deployment/neonvm-pod-autoscaler");
    let path = format!(
        "/apis/autoscaling.aibrix.ai/v1alpha1/namespaces/{namespace}/podautoscalers?dryRun=All&fieldValidation=Strict"
    );
    match connection.request(Method::POST, &path, Some(&scaler())).await {
        Ok(_) => Ok(None),
        Err(error) if error.code == Code::Unreachable => Err(error),
        Err(error) => {
            let cause = error.causes.first().cloned().unwrap_or(error.message);
            Ok(Some((format!("a trial PodAutoscaler is not admitted: {cause}"), hint)))
        }
    }
}

/// The leases of agents, by the nodes of their pods.
async fn agents(connection: &Connection, namespace: &str) -> Result<Vec<(&'static str, String)>> {
    let path =
        format!("/api/v1/namespaces/{namespace}/pods?labelSelector=app.kubernetes.io%2Fname%3Dneonvm-agent");
    let list = get(connection, &path).await?.unwrap_or_default();
    let pods = list.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
    let nodes = pods.iter().map(|pod| text(pod, "/spec/nodeName")).filter(|node| !node.is_empty());
    Ok(nodes.map(|node| (Component::Agent.name(), agent_lease(node))).collect())
}

/// It has a holder that has renewed it in time.
fn is_held(lease: &Value, now: Timestamp) -> bool {
    let renewed: Option<Timestamp> = text(lease, "/spec/renewTime").parse().ok();
    let seconds = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64).unwrap_or_default();
    let is_fresh = renewed.is_some_and(|at| now.as_second().saturating_sub(at.as_second()) <= seconds);
    is_fresh && !text(lease, "/spec/holderIdentity").is_empty()
}

/// Both sides are registered, and the API server gets an answer from them: it tries to make a VM.
async fn webhooks(connection: &Connection, namespace: &str) -> Result<Option<(String, String)>> {
    let hint = format!("see its log: kubectl logs -n {namespace} deployment/neonvm-vm-controller");
    for side in ["mutating", "validating"] {
        let name = format!("neonvm-{side}-webhook-configuration");
        let path = format!("/apis/admissionregistration.k8s.io/v1/{side}webhookconfigurations/{name}");
        if get(connection, &path).await?.is_none() {
            return Ok(Some((format!("the vm-controller has not registered {name}"), hint)));
        }
    }
    let path = format!(
        "/apis/vm.neon.tech/v1/namespaces/{namespace}/virtualmachines?dryRun=All&fieldValidation=Strict"
    );
    match connection.request(Method::POST, &path, Some(&probe())).await {
        Ok(made) if text(&made, "/spec/restartPolicy").is_empty() => {
            Ok(Some(("a trial VM was admitted without defaults".to_owned(), hint)))
        }
        Ok(_) => Ok(None),
        Err(error) if error.code == Code::Unreachable => Err(error),
        Err(error) => {
            let cause = error.causes.first().cloned().unwrap_or(error.message);
            Ok(Some((format!("a trial VM is not admitted: {cause}"), hint)))
        }
    }
}

/// A VM that is never made.
fn probe() -> Value {
    json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": {"name": "neonvm-probe"}, "spec": {
        "guest": {"cpus": {"min": 1, "max": 1, "use": 1}, "memorySlots": {"min": 1, "max": 1, "use": 1},
            "rootDisk": {"image": "neonvm-probe:none"}}}})
}

/// A PodAutoscaler that is never made.
fn scaler() -> Value {
    json!({"apiVersion": "autoscaling.aibrix.ai/v1alpha1", "kind": "PodAutoscaler", "metadata": {"name": "neonvm-probe"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "neonvm-probe"}, "maxReplicas": 1,
            "scalingStrategy": "APA", "metricsSources": [{"metricSourceType": "pod", "protocolType": "http", "port": "80",
                "path": "/", "targetMetric": "m", "targetValue": 12.5}]}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_held_while_it_is_renewed() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let lease = |holder: &str, renewed: &str| {
            is_held(
                &json!({"spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}}),
                now,
            )
        };
        assert!(lease("a", "2026-01-01T00:00:50.000000Z"));
        assert!(!lease("a", "2026-01-01T00:00:40.000000Z") && !lease("", "2026-01-01T00:00:59.000000Z"));
        assert!(!is_held(&json!({}), now));
    }

    #[test]
    fn what_is_tried_is_a_vm() {
        let verdict = neonvm_api::admit("VirtualMachine", &mut probe(), None);
        assert!(verdict.errors.is_empty(), "{:?}", verdict.errors);
        let mut scaler = scaler();
        assert_eq!(neonvm_api::admit("PodAutoscaler", &mut scaler, None).errors, []);
        assert_eq!(scaler["spec"]["metricsSources"][0]["targetValue"], "12.5");
    }
}
