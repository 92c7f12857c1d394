//! Changes the size: by hand, up and down again; by a busy loop in the guest, so that the VM grows by itself; and while a database works
//! in the VM, if its image has one: no transaction may fail.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use neonvm_api::VirtualMachine;
use neonvm_api::names::label::SCALING_ENABLED;
use neonvm_api::names::{TRUE, agent_lease};
use neonvm_types::{Bytes, MilliCpu};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::guest::{self, Guest};
use super::step::Outcome;
use super::trial::{Polled, Trial, VM, node_of};
use crate::commands::checks::read::installed;
use crate::commands::object::{items, text};
use crate::commands::vm::scale::Goal;
use crate::commands::vm::size::cores;
use crate::commands::vm::table::observed;
use crate::commands::vm::waiting::state;
use crate::error::{Code, Error, Result};

/// A size: CPU and slots of memory, 1Gi each.
#[derive(Clone, Copy)]
pub(super) struct Size {
    cpu: MilliCpu,
    slots: u16,
}

/// As it was made.
pub(super) const SMALL: Size = Size { cpu: MilliCpu::new(250), slots: 1 };
/// Twice as much.
pub(super) const LARGE: Size = Size { cpu: MilliCpu::new(500), slots: 2 };

pub(super) async fn scale(trial: &mut Trial<'_>) -> Result<Outcome> {
    let begun = Instant::now();
    resize(trial, LARGE).await?;
    let up = begun.elapsed();
    let begun = Instant::now();
    resize(trial, SMALL).await?;
    Ok(Outcome::Passed(format!(
        "0.25 CPU, 1Gi to 0.5 CPU, 2Gi in {:.1} s, back in {:.1} s",
        up.as_secs_f64(),
        begun.elapsed().as_secs_f64()
    )))
}

/// Requests a size and waits until it is observed.
pub(super) async fn resize(trial: &Trial<'_>, size: Size) -> Result<VirtualMachine> {
    let patch = json!({"spec": {"guest": {"cpus": {"use": size.cpu}, "memorySlots": {"use": size.slots}}}});
    let (api, parameters, patch) =
        (trial.client.api::<VirtualMachine>(), PatchParams::default(), Patch::Merge(&patch));
    let patched = api.patch(VM, &parameters, &patch);
    let patched = trial.connection().within("cannot change the size", patched).await?;
    let generation = patched.metadata.generation;
    let goal = Goal { cpu: size.cpu, memory: Bytes::gib(u32::from(size.slots)), generation };
    let what = format!("the VM has {} milli-CPU and {}", size.cpu.milli(), goal.memory);
    trial.until(&what, |vm| goal.progress(VM, Some(vm))).await
}

/// How long a loop that ended is started again. Its connection goes through the node's kubelet, which may be starting again.
const REPAIR: Duration = Duration::from_secs(60);
/// Runs until its input ends, and then stops what it started.
const LOOP: &str = "(while :; do :; done) & busy=$!; read -r end; kill $busy";

pub(super) async fn load(trial: &mut Trial<'_>) -> Result<Outcome> {
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

/// Prints the directory of pgbench, or nothing.
const FIND: &str = "for d in /usr/lib/postgresql/*/bin /usr/local/bin /usr/bin; do \
                    if [ -x $d/pgbench ]; then echo $d; exit 0; fi; done; exit 0";
/// Until the database takes connections, for a minute.
const WAIT: &str = "for i in $(seq 60); do pg_isready -q && break; sleep 1; done";
/// Seconds of load.
const SECONDS: u32 = 20;
/// Times that the size is changed under load, up and down.
const ROUNDS: u32 = 2;

pub(super) async fn database(trial: &mut Trial<'_>) -> Result<Outcome> {
    let Some(guest) = trial.guest()? else {
        return Ok(Outcome::NotRun("ssh is not installed here: apt-get install openssh-client".to_owned()));
    };
    let found = guest.run(FIND, trial.limit).await?;
    let Some(directory) = found.lines().map(str::trim).find(|line| line.starts_with('/')) else {
        return Ok(Outcome::NotRun("the image has no pgbench; use one with PostgreSQL: --image".to_owned()));
    };
    resize(trial, SMALL).await?;
    let begin = format!("{WAIT}; pgbench -i -q -s 1 postgres");
    guest
        .run(&as_postgres(directory, &begin), trial.limit)
        .await
        .map_err(|error| Error { message: "pgbench cannot create its tables".to_owned(), ..error })?;
    let begun = Instant::now();
    let output = under_load(trial, &guest, directory).await?;
    verdict(&output).map(|rate| {
        Outcome::Passed(format!(
            "{} sizes in {:.1} s, no failed transaction, {rate}",
            ROUNDS * 2,
            begun.elapsed().as_secs_f64()
        ))
    })
}

fn as_postgres(directory: &str, command: &str) -> String {
    format!("su postgres -c 'cd /; PATH={directory}:$PATH; {command}' 2>&1")
}

async fn under_load(trial: &Trial<'_>, guest: &Guest, directory: &str) -> Result<String> {
    let script = as_postgres(directory, &format!("pgbench -n -c 2 -T {SECONDS} postgres"));
    let bench = guest.run(&script, trial.limit);
    let resizing = async {
        for _ in 0..ROUNDS {
            resize(trial, LARGE).await?;
            resize(trial, SMALL).await?;
        }
        Ok(())
    };
    let (output, resized) = tokio::join!(bench, resizing);
    let output = output.map_err(|error| Error { message: "pgbench failed".to_owned(), ..error })?;
    resized.map(|()| output)
}

/// The rate, if no transaction failed.
fn verdict(output: &str) -> Result<String> {
    let value = |key: &str| {
        let line = output.lines().find_map(|line| line.trim().strip_prefix(key))?;
        Some(line.trim_start_matches([':', '=', ' ']).split([' ', '(']).next().unwrap_or_default().to_owned())
    };
    let failed = value("number of failed transactions");
    match (failed.as_deref(), value("tps")) {
        // Older ones print no number: they end with an error at the first failure.
        (None | Some("0"), Some(rate)) => {
            let whole = rate.split('.').next().unwrap_or_default();
            Ok(format!("{whole} transactions per second"))
        }
        (Some(count), _) if count != "0" => {
            Err(Error::new(Code::Failed, format!("{count} transactions failed while the size changed")))
        }
        _ => Err(Error::new(Code::Failed, "pgbench reported no result")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_transaction_fails_the_step() {
        let output = |failed: &str| {
            format!(
                "number of transactions actually processed: 9\nnumber of failed transactions: {failed}\n\
                     latency average = 2.1 ms\ntps = 951.213 (without initial connection time)\n"
            )
        };
        assert_eq!(verdict(&output("0 (0.000%)")).unwrap(), "951 transactions per second");
        let error = verdict(&output("3 (0.1%)")).unwrap_err();
        assert_eq!(error.message, "3 transactions failed while the size changed");
        assert!(verdict("").is_err());
        assert_eq!(verdict("tps = 7.5 (including connections)").unwrap(), "7 transactions per second");
    }
}
