//! Migrates the VM to another node that runs VMs, if there is one.

use http::Method;
use neonvm_api::VirtualMachineMigration;
use serde_json::json;

use super::step::Outcome;
use super::trial::{Polled, Trial, VM, node_of, restarts_of};
use crate::commands::migration::show;
use crate::error::{Code, Error, Result};

const NAME: &str = "trial-1";

pub(super) async fn run(trial: &mut Trial<'_>) -> Result<Outcome> {
    let before = trial.client.find(VM).await?;
    if let Err(not_run) = trial.others(&node_of(&before)) {
        return Ok(not_run);
    }
    let place = format!("/apis/vm.neon.tech/v1/namespaces/{}/virtualmachinemigrations", trial.namespace());
    let object = json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachineMigration",
        "metadata": {"name": NAME}, "spec": {"vmName": VM}});
    let path = format!("{place}?fieldManager=neonctl");
    let made = trial.connection().request(Method::POST, &path, Some(&object)).await;
    made.map_err(|error| Error { message: "cannot create a migration".to_owned(), ..error })?;
    let path = format!("{place}/{NAME}");
    let ended = trial
        .poll("the VM is migrated", async || {
            let found = trial.connection().json(&path).await?;
            let migration: VirtualMachineMigration = serde_json::from_value(found).map_err(|error| {
                Error::new(Code::Failed, "the server sent an invalid response").cause(error.to_string())
            })?;
            Ok(match show::phase_word(&migration).as_str() {
                "Succeeded" => Polled::Done(migration),
                "Failed" | "Cancelled" => {
                    let reason = show::reason(&migration);
                    return Err(Error::new(Code::Failed, "the VM was not migrated").cause(reason));
                }
                _ => Polled::NotYet(show::state(&migration)),
            })
        })
        .await?;
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
