//! What is looked at before anything is applied. What would fail later, or harm somebody, is refused here with a remedy.

use std::collections::BTreeSet;

use futures_util::future::try_join_all;
use http::Method;
use neonvm_deploy::{Facts, Named, Network, Values, release};
use serde_json::{Value, json};

use super::apply::{get, place};
use crate::commands::health::{is_true, text};
use crate::connect::Connection;
use crate::error::{Code, Result};

/// Oldest Kubernetes: it names the node in tokens and decides by CEL.
const OLDEST: (u64, u64) = (1, 31);
/// From here pods are resized in place and image volumes are on by default.
const WHOLE: (u64, u64) = (1, 35);
/// Oldest containerd with image volumes.
const CONTAINERD: (u64, u64) = (2, 1);
/// Where webhooks are registered.
const WEBHOOKS: [&str; 2] = ["mutating", "validating"];

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) message: String,
    pub(super) remedy: String,
    is_fatal: bool,
}

fn fatal(message: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { message: message.into(), remedy: remedy.into(), is_fatal: true }
}

fn warning(message: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { is_fatal: false, ..fatal(message, remedy) }
}

/// What ends the installation, and what is only said.
pub(super) fn divided(findings: Vec<Finding>) -> (Vec<Finding>, Vec<Finding>) {
    findings.into_iter().partition(|finding| finding.is_fatal)
}

/// Everything that was found.
pub(super) async fn findings(
    connection: &Connection,
    values: &Values,
    facts: &Facts,
    objects: &[Value],
) -> Result<Vec<Finding>> {
    let mut all = version(facts.kubernetes.as_deref().unwrap_or_default());
    all.extend(rights(connection, objects).await?);
    if let Some(list) = readable(get(connection, "/api/v1/nodes").await)? {
        all.extend(nodes(&items(&list)));
    }
    all.extend(image_volumes(connection).await?);
    all.extend(others(connection, &values.namespace).await?);
    all.extend(leftovers(connection, &values.namespace).await?);
    if values.overlay.network == Network::Multus
        && get(connection, "/apis/k8s.cni.cncf.io/v1").await?.is_none()
    {
        all.push(fatal(
            "--overlay multus: the cluster has no Multus",
            "install Multus, or choose --overlay none: VMs then have the network of their pods",
        ));
    }
    Ok(all)
}

/// Nothing where something may not be read.
fn readable<T>(found: Result<Option<T>>) -> Result<Option<T>> {
    match found {
        Err(error) if error.code == Code::Denied => Ok(None),
        found => found,
    }
}

fn items(list: &Value) -> Vec<Value> {
    list.get("items").and_then(Value::as_array).cloned().unwrap_or_default()
}

fn version(text: &str) -> Vec<Finding> {
    match release(text) {
        Some((major, minor, _)) if (major, minor) < OLDEST => vec![fatal(
            format!("Kubernetes {text} is too old: 1.31 is the oldest that works"),
            "upgrade the cluster",
        )],
        Some((major, minor, _)) if (major, minor) < WHOLE => vec![warning(
            format!("Kubernetes {text}: pods are not resized in place by default before 1.35"),
            "what a VM uses is not seen by other schedulers; upgrade when you can",
        )],
        Some(_) => Vec::new(),
        None => vec![warning(
            format!("the server calls its version {text:?}"),
            "set scheduler.kubeSchedulerImage, which follows the version",
        )],
    }
}

/// The caller may write what is to be written.
async fn rights(connection: &Connection, objects: &[Value]) -> Result<Vec<Finding>> {
    let mut wanted: BTreeSet<(String, String, String, &str)> = BTreeSet::new();
    for object in objects {
        let named = Named::of(object);
        let plural = place(&named).rsplit('/').next().unwrap_or_default().to_owned();
        for verb in ["get", "create", "patch"] {
            wanted.insert((named.group().to_owned(), plural.clone(), named.namespace.clone(), verb));
        }
    }
    let reviews = wanted.iter().map(|(group, resource, namespace, verb)| async move {
        let body = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec":
            {"resourceAttributes": {"group": group, "resource": resource, "namespace": namespace, "verb": verb}}});
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer = connection.request(Method::POST, path, Some(&body)).await?;
        let is_allowed = answer.pointer("/status/allowed").and_then(Value::as_bool).unwrap_or_default();
        Ok::<_, crate::error::Error>((!is_allowed).then(|| format!("{verb} {resource}")))
    });
    let mut missing: Vec<String> = try_join_all(reviews).await?.into_iter().flatten().collect();
    missing.dedup();
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    let shown: Vec<String> = missing.iter().take(5).cloned().collect();
    let more = missing.len().saturating_sub(shown.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Ok(vec![fatal(
        format!("you may not {}{more}", shown.join(", ")),
        "use a context of an administrator (cluster role cluster-admin): --context",
    )])
}

fn nodes(nodes: &[Value]) -> Vec<Finding> {
    let name = |node: &Value| text(node, "/metadata/name").to_owned();
    let mut all = Vec::new();
    let ready: Vec<&Value> = nodes.iter().filter(|node| is_true(node, "Ready")).collect();
    if ready.is_empty() {
        all.push(warning("no node is Ready", "services start when one is; see: kubectl get nodes"));
    } else if ready.len() < nodes.len() {
        let down: Vec<String> = nodes.iter().filter(|node| !is_true(node, "Ready")).map(name).collect();
        all.push(warning(format!("not Ready: {}", down.join(", ")), "see: kubectl describe node"));
    }
    let strange = |node: &&&Value| text(node, "/status/nodeInfo/architecture") == "arm64";
    let foreign: Vec<String> = ready.iter().filter(strange).map(|node| name(node)).collect();
    if !foreign.is_empty() {
        all.push(warning(
            format!("of architecture arm64: {}", foreign.join(", ")),
            "they need images of that architecture in the registry, or nodeSelector values that leave them out",
        ));
    }
    let old = |node: &&&Value| {
        let runtime = text(node, "/status/nodeInfo/containerRuntimeVersion");
        let version = runtime.strip_prefix("containerd://").and_then(release);
        version.is_some_and(|(major, minor, _)| (major, minor) < CONTAINERD)
    };
    let old: Vec<String> = ready.iter().filter(old).map(|node| name(node)).collect();
    if !old.is_empty() {
        all.push(warning(
            format!("containerd before 2.1, which has no image volumes: {}", old.join(", ")),
            "VMs whose root disk comes in an image do not start there; upgrade containerd",
        ));
    }
    all
}

/// Whether the server keeps a volume of an image: without the feature it drops the field.
async fn image_volumes(connection: &Connection) -> Result<Option<Finding>> {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "neonvm-preflight"}, "spec": {
        "containers": [{"name": "c", "image": "i"}], "volumes": [{"name": "v", "image": {"reference": "i"}}]}});
    let path = "/api/v1/namespaces/default/pods?dryRun=All";
    let answer = connection.request(Method::POST, path, Some(&pod)).await;
    let has = match &answer {
        Ok(pod) => pod.pointer("/spec/volumes/0/image").is_some(),
        // Something else is in the way (a policy, a quota, rights): it says nothing of images.
        Err(error) if error.code == Code::Usage => {
            !error.causes.iter().any(|cause| cause.contains("spec.volumes[0]"))
        }
        Err(_) => true,
    };
    Ok((!has).then(|| {
        warning(
            "the API server has image volumes switched off (feature gate ImageVolume)",
            "VMs whose root disk comes in an image do not start; switch it on for API server and kubelets",
        )
    }))
}

/// Another installation would fight with this one over every VM.
async fn others(connection: &Connection, namespace: &str) -> Result<Option<Finding>> {
    let path = "/apis/apps/v1/deployments?labelSelector=app.kubernetes.io%2Fname%3Dneonvm-vm-controller";
    let Some(list) = readable(get(connection, path).await)? else { return Ok(None) };
    let all = items(&list);
    let other = all.iter().map(|one| text(one, "/metadata/namespace")).find(|found| *found != namespace);
    Ok(other.map(|other| {
        fatal(
            format!("neonvm is installed in namespace {other} already"),
            format!("change that one with --namespace {other}, or remove it: neonctl uninstall --namespace {other}"),
        )
    }))
}

/// Registrations of webhooks that nobody serves: they are taken over, and until then hold writes of VMs.
async fn leftovers(connection: &Connection, namespace: &str) -> Result<Option<Finding>> {
    for side in WEBHOOKS {
        let path = format!(
            "/apis/admissionregistration.k8s.io/v1/{side}webhookconfigurations/neonvm-{side}-webhook-configuration"
        );
        let Some(found) = readable(get(connection, &path).await)? else { continue };
        let service = "/webhooks/0/clientConfig/service";
        let (place, name) =
            (text(&found, &format!("{service}/namespace")), text(&found, &format!("{service}/name")));
        if name.is_empty() {
            continue;
        }
        let path = format!("/api/v1/namespaces/{place}/services/{name}");
        if readable(get(connection, &path).await)?.is_none() {
            return Ok(Some(warning(
                format!(
                    "webhooks of an earlier installation are registered at {place}/{name}, which is gone"
                ),
                format!("they are registered anew in {namespace}; until then no VM can be written"),
            )));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_clusters_are_refused_and_older_ones_are_told_what_they_miss() {
        let fatal = |text: &str| version(text).iter().map(|finding| finding.is_fatal).collect::<Vec<_>>();
        assert_eq!(fatal("v1.30.9"), [true]);
        assert_eq!(fatal("v1.31.0"), [false]);
        assert_eq!(fatal("v1.34.2+k3s1"), [false]);
        assert!(fatal("v1.35.0").is_empty() && fatal("v2.0.0").is_empty());
        assert_eq!(fatal("latest"), [false]);
    }

    #[test]
    fn nodes_that_cannot_are_named() {
        let node = |name: &str, ready: &str, architecture: &str, runtime: &str| {
            json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}],
                "nodeInfo": {"architecture": architecture, "containerRuntimeVersion": runtime}}})
        };
        let told = |all: &[Value]| nodes(all).into_iter().map(|finding| finding.message).collect::<Vec<_>>();
        assert_eq!(told(&[]), ["no node is Ready"]);
        assert!(told(&[node("a", "True", "amd64", "containerd://2.3.4")]).is_empty());
        let all = [node("a", "False", "amd64", ""), node("b", "True", "arm64", "containerd://1.7.2")];
        assert_eq!(
            told(&all),
            [
                "not Ready: a",
                "of architecture arm64: b",
                "containerd before 2.1, which has no image volumes: b"
            ]
        );
    }
}
