//! A busy loop in the guest makes the VM grow by itself.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use neonvm_api::VirtualMachine;
use neonvm_api::names::label::SCALING_ENABLED;
use neonvm_api::names::{TRUE, agent_lease};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::guest::{self, Guest};
use super::scale::{SMALL, resize};
use super::step::Outcome;
use super::trial::{Polled, Trial, VM, node_of};
use crate::commands::checks::read::installed;
use crate::commands::object::{items, text};
use crate::commands::vm::size::cores;
use crate::commands::vm::table::observed;
use crate::commands::vm::waiting::state;
use crate::error::{Code, Error, Result};

/// How long a loop that ended is started again. Its connection goes through the node's kubelet, which may be starting again.
const REPAIR: Duration = Duration::from_secs(60);
/// Runs until its input ends, and then stops what it started.
const LOOP: &str = "(while :; do :; done) & busy=$!; read -r end; kill $busy";

pub(super) async fn run(trial: &mut Trial<'_>) -> Result<Outcome> {
    let Some(guest) = trial.guest()? else {
        return Ok(Outcome::NotRun("ssh is not installed here: apt-get install openssh-client".to_owned()));
    };
    let before = trial.client.find(VM).await?;
    if let Some(reason) = no_agent(trial, &node_of(&before)).await? {
        return Ok(Outcome::NotRun(reason));
    }
    label(trial, &json!(TRUE)).await?;
    let grown = grow(trial, &guest, &before).await;
    let unlabelled = label(trial, &Value::Null).await;
    let passed = grown?;
    unlabelled?;
    // A migration needs room for a second pod of the VM's size.
    resize(trial, SMALL).await?;
    Ok(passed)
}

/// Why nothing scales the VM; none where an agent does, or where that cannot be read.
async fn no_agent(trial: &Trial<'_>, node: &str) -> Result<Option<String>> {
    let system = installed(trial.connection(), None).await?;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{system}/leases");
    let Ok(leases) = items(trial.connection(), &path).await else { return Ok(None) };
    let has_one = leases.iter().any(|lease| text(lease, "/metadata/name") == agent_lease(node));
    Ok((!has_one).then(|| format!("no agent runs on node {node}, so VMs are not scaled by load")))
}

async fn label(trial: &Trial<'_>, value: &Value) -> Result<()> {
    let patch = json!({"metadata": {"labels": {SCALING_ENABLED: value}}});
    let (api, parameters, patch) =
        (trial.client.api::<VirtualMachine>(), PatchParams::default(), Patch::Merge(&patch));
    trial.connection().within("cannot label the VM", api.patch(VM, &parameters, &patch)).await.map(drop)
}

async fn grow(trial: &Trial<'_>, guest: &Guest, before: &VirtualMachine) -> Result<Outcome> {
    let (small, _) = observed(before);
    // Held until the end of this function: then the guest stops the loop.
    let mut child = guest.start(LOOP)?;
    let begun = Instant::now();
    let mut broken: Option<Instant> = None;
    let grown = trial
        .poll("a busy loop makes the VM grow", async || {
            let vm = trial.client.find(VM).await?;
            if observed(&vm).0 > small {
                return Ok(Polled::Done(vm));
            }
            if let Some(reason) = guest::ended(&mut child).await {
                if broken.get_or_insert_with(Instant::now).elapsed() > REPAIR {
                    return Err(Error::new(Code::Failed, "the busy loop in the guest ended").cause(reason));
                }
                child = guest.start(LOOP)?;
                return Ok(Polled::NotYet(format!("restarting the busy loop: {reason}")));
            }
            Ok(Polled::NotYet(state(&vm)))
        })
        .await;
    let grown = grown
        .map_err(|error| error.hint(format!("see why: neonctl agent inspect --node {}", node_of(before))))?;
    Ok(Outcome::Passed(format!(
        "grew from {} to {} CPU in {:.1} s",
        cores(small),
        cores(observed(&grown).0),
        begun.elapsed().as_secs_f64()
    )))
}
