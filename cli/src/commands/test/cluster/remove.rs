//! Deletes the VM, and takes back all that was made: the cordon of a node, the VM, the namespace.

use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use neonvm_api::VirtualMachine;
use neonvm_api::names::{label, ssh_secret_name, tls_secret_name};
use neonvm_deploy::Named;
use serde_json::Value;

use super::step::Outcome;
use super::trial::{Polled, Trial, VM};
use crate::commands::install::apply::{self, get};
use crate::commands::object::{items, text};
use crate::error::{Code, Error, Result};

pub(super) async fn delete(trial: &mut Trial<'_>) -> Result<Outcome> {
    let namespace = trial.namespace().to_owned();
    let uid = trial.client.find::<VirtualMachine>(VM).await?.metadata.uid.unwrap_or_default();
    remove(trial).await?;
    let pods = pods(&namespace);
    let gone = |what: &str| format!("all {what}s of the VM are removed");
    trial
        .poll(&gone("pod"), async || {
            let list = items(trial.connection(), &pods).await?;
            let names: Vec<&str> = list.iter().map(|pod| text(pod, "/metadata/name")).collect();
            Ok(if names.is_empty() {
                Polled::Done(())
            } else {
                Polled::NotYet(format!("pods {}", names.join(", ")))
            })
        })
        .await?;
    let secrets = [ssh_secret_name(VM, &uid), tls_secret_name(VM)];
    let mut is_readable = true;
    for name in secrets {
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        is_readable &= trial
            .poll(&gone("secret"), async || {
                Ok(match get(trial.connection(), &path).await {
                    Ok(None) => Polled::Done(true),
                    Err(error) if error.code == Code::Denied => Polled::Done(false),
                    Ok(Some(_)) => Polled::NotYet(format!("secret {name}")),
                    Err(error) => return Err(error),
                })
            })
            .await?;
    }
    let and_secrets = if is_readable { " and its secrets" } else { "; you lack permission to read secrets" };
    Ok(Outcome::Passed(format!("the VM was removed, with its pods{and_secrets}")))
}

fn pods(namespace: &str) -> String {
    let selector = label::VM_NAME.replace('/', "%2F");
    format!("/api/v1/namespaces/{namespace}/pods?labelSelector={selector}%3D{VM}")
}

/// Deletes the VM and waits until the object is gone.
pub(super) async fn remove(trial: &mut Trial<'_>) -> Result<()> {
    let named = Named {
        api_version: "vm.neon.tech/v1".to_owned(),
        kind: "VirtualMachine".to_owned(),
        namespace: trial.namespace().to_owned(),
        name: VM.to_owned(),
    };
    trial.has_vm = false;
    apply::delete(trial.connection(), &named).await?;
    gone(trial, "the VM is deleted", &named, phase).await?;
    trial.made_vm = false;
    Ok(())
}

/// Waits until an object does not exist any more; `state` describes one that still does.
async fn gone(
    trial: &mut Trial<'_>,
    what: &str,
    named: &Named,
    state: impl Fn(&Value) -> String,
) -> Result<()> {
    let path = apply::path(named);
    let look = async || {
        Ok(match get(trial.connection(), &path).await? {
            None => Polled::Done(()),
            Some(found) => Polled::NotYet(state(&found)),
        })
    };
    trial.poll(what, look).await
}

fn phase(vm: &Value) -> String {
    format!("it is {}, being deleted", text(vm, "/status/phase"))
}

/// Everything that is left; nothing to remove is fine, too.
pub(super) async fn clean_up(trial: &mut Trial<'_>) -> Result<Outcome> {
    uncordon(trial).await?;
    let mut removed: Vec<String> = Vec::new();
    if trial.made_vm {
        remove(trial).await.map_err(|error| left(error, trial))?;
        removed.push("the VM".to_owned());
    }
    if trial.owns_namespace {
        namespace(trial).await.map_err(|error| left(error, trial))?;
        removed.push(format!("namespace {}", trial.namespace()));
    }
    if removed.is_empty() {
        return Ok(Outcome::Passed(format!(
            "all created objects were removed; namespace {} is kept",
            trial.namespace()
        )));
    }
    Ok(Outcome::Passed(format!("{} removed", removed.join(" and "))))
}

pub(super) async fn uncordon(trial: &mut Trial<'_>) -> Result<()> {
    let Some(node) = trial.cordoned.clone() else { return Ok(()) };
    let nodes: Api<Node> = Api::all(trial.connection().client());
    let attempt = format!("{node} is still cordoned");
    let uncordon =
        async || trial.connection().within(&attempt, nodes.uncordon(&node)).await.map(Polled::Done);
    let uncordoned = trial.poll("the node is uncordoned", uncordon).await;
    uncordoned.map_err(|error| error.hint(format!("uncordon it: kubectl uncordon {node}")))?;
    trial.cordoned = None;
    Ok(())
}

async fn namespace(trial: &mut Trial<'_>) -> Result<()> {
    let named = Named {
        api_version: "v1".to_owned(),
        kind: "Namespace".to_owned(),
        namespace: String::new(),
        name: trial.namespace().to_owned(),
    };
    match apply::delete(trial.connection(), &named).await {
        Ok(_) => {}
        // It is being removed already.
        Err(error) if error.code == Code::Conflict => {}
        Err(error) => return Err(error),
    }
    gone(trial, "the namespace is removed", &named, remains).await?;
    trial.owns_namespace = false;
    Ok(())
}

fn remains(namespace: &Value) -> String {
    let conditions = namespace.pointer("/status/conditions").and_then(serde_json::Value::as_array);
    let messages = conditions.into_iter().flatten().filter(|one| text(one, "/status") == "True");
    let messages: Vec<&str> = messages.map(|one| text(one, "/message")).collect();
    if messages.is_empty() { "it is being removed".to_owned() } else { messages.join("; ") }
}

fn left(error: Error, trial: &Trial<'_>) -> Error {
    let namespace = trial.namespace();
    match trial.owns_namespace {
        true => error.hint(format!("remove the remaining objects: kubectl delete namespace {namespace}")),
        false => error.hint(format!("remove the VM: neonctl vm delete trial -n {namespace}")),
    }
}
