//! Deletes the VM, and sees that nothing of it is left: its object, its pods, its secrets.

use neonvm_api::VirtualMachine;
use neonvm_api::names::{label, ssh_secret_name, tls_secret_name};
use neonvm_deploy::Named;
use serde_json::Value;

use super::step::Outcome;
use super::trial::{Polled, Trial, VM};
use crate::commands::install::apply::{self, get};
use crate::commands::object::{items, text};
use crate::error::{Code, Result};

pub(super) async fn run(trial: &mut Trial<'_>) -> Result<Outcome> {
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
    let path = apply::path(&named);
    trial
        .poll("the VM is deleted", async || {
            Ok(match get(trial.connection(), &path).await? {
                None => Polled::Done(()),
                Some(vm) => Polled::NotYet(phase(&vm)),
            })
        })
        .await?;
    trial.made_vm = false;
    Ok(())
}

fn phase(vm: &Value) -> String {
    format!("it is {}, being deleted", text(vm, "/status/phase"))
}
