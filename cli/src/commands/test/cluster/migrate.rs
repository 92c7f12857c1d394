//! Migrates the VM to another node that runs VMs, if there is one.

use neonvm_api::migration::VirtualMachineMigrationSpec;
use neonvm_kernel::Progress as _;

use super::step::Outcome;
use super::trial::{Trial, VM, node_of, restarts_of};
use crate::commands::migration::{begin, show, until_over, verdict};
use crate::commands::resource::name_of;
use crate::error::{Code, Error, Result};

pub(super) async fn run(trial: &mut Trial<'_>) -> Result<Outcome> {
    let before = trial.client.find(VM).await?;
    if let Err(not_run) = trial.others(&node_of(&before)) {
        return Ok(not_run);
    }
    let made = begin::create(&trial.client, VM, VirtualMachineMigrationSpec::new(VM)).await?;
    let shown = |migration: &_| trial.reporter.line(&show::state(migration));
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
