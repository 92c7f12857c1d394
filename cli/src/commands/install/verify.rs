//! Verifies that services work: as `status` sees them, their leases are held and the webhooks are registered; and the webhooks admit
//! a VM and a PodAutoscaler that are never made.

use std::time::Duration;

use http::Method;
use neonvm_deploy::{Component, Values};
use serde_json::{Value, json};

use crate::commands::checks::{self, Finding, Group, Verdict, read};
use crate::commands::object::text;
use crate::commands::poll;
use crate::connect::Connection;
use crate::error::{Code, Error, Result};

/// What does not work yet.
struct Unverified {
    what: String,
    hint: String,
}

/// Waits until all checks pass; returns a summary.
pub(super) async fn all(connection: &Connection, values: &Values, limit: Duration) -> Result<String> {
    let mut last = None;
    let verified = poll::until(limit, async || {
        last = finding(connection, values).await?;
        Ok(last.is_none().then_some(()))
    });
    if verified.await?.is_none()
        && let Some(Unverified { what, hint }) = last
    {
        return Err(Error::new(Code::Timeout, format!("not verified after {limit:?}: {what}")).hint(hint));
    }
    let leases = "leases are held";
    Ok(match (values.has(Component::VmController), values.has(Component::PodAutoscaler)) {
        (true, true) => {
            format!("{leases}, webhooks respond, a trial VM and a trial PodAutoscaler are admitted")
        }
        (true, false) => format!("{leases}, webhooks respond, a trial VM is admitted"),
        (false, _) => leases.to_owned(),
    })
}

async fn finding(connection: &Connection, values: &Values) -> Result<Option<Unverified>> {
    let namespace = &values.namespace;
    let log = |name: &str| {
        format!("see its log: kubectl logs -n {namespace} -l app.kubernetes.io/name=neonvm-{name}")
    };
    let mut facts = read::begin(connection, namespace).await?;
    read::more(connection, &mut facts, &checks::needs(&[Group::Services])).await?;
    for service in facts.services() {
        let own = if service.name == "webhooks" { Component::VmController.name() } else { service.name };
        let is_chosen = values.components.iter().any(|component| component.name() == own);
        if is_chosen && service.is_well != Some(true) {
            let what = format!("{} does not work: {}", service.name, service.note);
            return Ok(Some(Unverified { what, hint: log(own) }));
        }
    }
    let found = checks::findings(&facts, Group::Services);
    let is_service = |name: &str| facts.services().iter().any(|service| service.name == name);
    // A vm-controller that has just begun to lead may be about to make its authority.
    let is_later = |name: &str| is_service(name) || name == "authority";
    let broken = found.iter().find(|found| found.verdict == Verdict::Fail && !is_later(found.name));
    if let Some(Finding { detail, remedy, place, .. }) = broken {
        return Ok(Some(Unverified { what: format!("{place}: {detail}"), hint: remedy.clone() }));
    }
    let place = |group: &str, plural: &str| {
        format!("/apis/{group}/namespaces/{namespace}/{plural}?dryRun=All&fieldValidation=Strict")
    };
    let trials = [
        (Component::VmController, place("vm.neon.tech/v1", "virtualmachines"), probe()),
        (Component::PodAutoscaler, place("autoscaling.aibrix.ai/v1alpha1", "podautoscalers"), scaler()),
    ];
    // The vm-controller registers the webhooks.
    for (component, path, object) in trials.into_iter().filter(|_| values.has(Component::VmController)) {
        if !values.has(component) {
            continue;
        }
        let kind = text(&object, "/kind");
        let what = match connection.request(Method::POST, &path, Some(&object)).await {
            Ok(made) if kind == "VirtualMachine" && text(&made, "/spec/restartPolicy").is_empty() => {
                "a trial VirtualMachine was admitted without defaults".to_owned()
            }
            Ok(_) => continue,
            Err(error) if error.code == Code::Unreachable => return Err(error),
            Err(error) => {
                let cause = error.causes.first().cloned().unwrap_or(error.message);
                format!("a trial {kind} is not admitted: {cause}")
            }
        };
        return Ok(Some(Unverified { what, hint: log(component.name()) }));
    }
    Ok(None)
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
    fn what_is_tried_is_a_vm() {
        let verdict = neonvm_api::admit("VirtualMachine", &mut probe(), None);
        assert!(verdict.errors.is_empty(), "{:?}", verdict.errors);
        let mut scaler = scaler();
        assert_eq!(neonvm_api::admit("PodAutoscaler", &mut scaler, None).errors, []);
        assert_eq!(scaler["spec"]["metricsSources"][0]["targetValue"], "12.5");
    }
}
