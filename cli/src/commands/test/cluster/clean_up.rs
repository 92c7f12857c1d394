//! Takes back what was made: the cordon of a node, the VM, the namespace.

use k8s_openapi::api::core::v1::Node;
use kube::api::Api;

use super::delete;
use super::step::Outcome;
use super::trial::{Polled, Trial};
use crate::commands::install::apply::{self, get};
use crate::commands::object::text;
use crate::error::{Code, Error, Result};

/// Everything that is left; nothing to remove is fine, too.
pub(super) async fn run(trial: &mut Trial<'_>) -> Result<Outcome> {
    uncordon(trial).await?;
    let mut removed: Vec<String> = Vec::new();
    if trial.made_vm {
        delete::remove(trial).await.map_err(|error| left(error, trial))?;
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

/// Opens the node that was cordoned.
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
    let named = neonvm_deploy::Named {
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
    let path = apply::path(&named);
    trial
        .poll("the namespace is removed", async || {
            Ok(match get(trial.connection(), &path).await? {
                None => Polled::Done(()),
                Some(found) => Polled::NotYet(remains(&found)),
            })
        })
        .await?;
    trial.owns_namespace = false;
    Ok(())
}

/// What a namespace that is being removed still has.
fn remains(namespace: &serde_json::Value) -> String {
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
