//! Migrates the VM to another node that runs VMs, if there is one: by a migration, and by emptying its node as `kubectl drain` does, of the
//! VM alone: cordon, evict its pod until the VM runs elsewhere. The node is uncordoned by the caller, also after a failure.

use std::cell::RefCell;
use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use neonvm_api::VirtualMachine;
use neonvm_api::migration::VirtualMachineMigrationSpec;
use neonvm_api::virtual_machine::Phase;
use serde_json::json;
use tokio::time::Instant;

use super::step::Outcome;
use super::trial::{Polled, Trial, VM, node_of, pod_of, restarts_of};
use crate::commands::migration::{begin, show, until_over, verdict};
use crate::commands::resource::name_of;
use crate::commands::rights::{self, Right};
use crate::commands::vm::waiting::state;
use crate::error::{Code, Error, Result};

pub(super) async fn migrate(trial: &mut Trial<'_>) -> Result<Outcome> {
    let before = trial.client.find(VM).await?;
    if let Err(not_run) = trial.others(&node_of(&before)) {
        return Ok(not_run);
    }
    let made = begin::create(&trial.client, VM, VirtualMachineMigrationSpec::new(VM)).await?;
    let shown = |migration: &_| trial.reporter.waits(&show::state(migration));
    let waited = until_over(&trial.client, name_of(&made), trial.limit, shown).await?;
    let ended = waited.object.unwrap_or(made);
    verdict(&ended)?;
    let after = trial.client.find(VM).await?;
    if restarts_of(&after) != restarts_of(&before) {
        return Err(Error::new(Code::Failed, "the VM restarted during the migration"));
    }
    let status = show::status(&ended);
    Ok(Outcome::Passed(format!(
        "{} to {}, downtime {}",
        node_of(&before),
        status.target_node,
        show::downtime(&status.info)
    )))
}

/// Pause between two evictions of a pod.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn drain(trial: &mut Trial<'_>) -> Result<Outcome> {
    let before = trial.client.find(VM).await?;
    let node = node_of(&before);
    if let Err(not_run) = trial.others(&node) {
        return Ok(not_run);
    }
    let needed = [
        Right::from_verb("patch", "", "nodes", ""),
        Right::from_verb("create", "", "pods/eviction", trial.namespace()),
    ];
    let missing = rights::missing(trial.connection(), &needed).await?;
    if let Some(right) = missing.first() {
        return Ok(Outcome::NotRun(format!("you lack permission to {right}")));
    }
    // Before it is done: a request that was sent may be carried out after an interruption.
    trial.cordoned = Some(node.clone());
    let nodes: Api<Node> = Api::all(trial.connection().client());
    trial.connection().within(&format!("cannot cordon {node}"), nodes.cordon(&node)).await?;
    let begun = Instant::now();
    let evicting = Evicting { last: RefCell::new(None), refusal: RefCell::default() };
    let moved = trial
        .poll(&format!("an eviction migrates the VM off {node}"), async || {
            let vm = trial.client.find(VM).await?;
            if node_of(&vm) != node && is_running(&vm) {
                return Ok(Polled::Done(vm));
            }
            if node_of(&vm) == node {
                evicting.evict(trial, &pod_of(&vm)).await?;
            }
            let refusal = evicting.refusal.borrow().clone();
            Ok(Polled::NotYet(if refusal.is_empty() { state(&vm) } else { refusal }))
        })
        .await?;
    if restarts_of(&moved) != restarts_of(&before) {
        return Err(Error::new(Code::Failed, "the eviction restarted the VM instead of migrating it"));
    }
    Ok(Outcome::Passed(format!("{node} to {} in {:.1} s", node_of(&moved), begun.elapsed().as_secs_f64())))
}

fn is_running(vm: &VirtualMachine) -> bool {
    vm.status.as_ref().is_some_and(|status| matches!(status.phase, Some(Phase::Running | Phase::Scaling)))
}

/// Evictions of one pod, not too close to each other.
struct Evicting {
    last: RefCell<Option<Instant>>,
    /// Why the last one was refused.
    refusal: RefCell<String>,
}

impl Evicting {
    async fn evict(&self, trial: &Trial<'_>, pod: &str) -> Result<()> {
        let is_early = self.last.borrow().is_some_and(|at| at.elapsed() < PAUSE);
        if is_early || pod.is_empty() {
            return Ok(());
        }
        self.last.replace(Some(Instant::now()));
        let namespace = trial.namespace();
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/eviction");
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace}});
        match trial.connection().request(Method::POST, &path, Some(&eviction)).await {
            Ok(_) => Ok(()),
            Err(error) if error.code == Code::NotFound => Ok(()),
            // 429: not yet, as `kubectl drain` takes it; 500 and others are not final either.
            Err(error) if error.code == Code::Failed => {
                self.refusal.replace(error.causes.first().cloned().unwrap_or(error.message));
                Ok(())
            }
            Err(error) => Err(Error { message: format!("cannot evict pod {pod}"), ..error }),
        }
    }
}
