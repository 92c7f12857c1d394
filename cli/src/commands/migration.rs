//! `migration`, and `vm migrate`

pub(super) mod begin;
pub(super) mod describe;
pub(super) mod end;
pub(super) mod show;
pub(super) mod table;

use std::time::Duration;

use neonvm_api::VirtualMachineMigration;
use neonvm_api::migration::MigrationPhase;

use super::resource::client::NamespaceClient;
use super::resource::name_of;
use super::watching::{self, WaitProgress, Waited};
use crate::error::{Code, Error, Result};

fn phase(migration: &VirtualMachineMigration) -> Option<MigrationPhase> {
    migration.status.as_ref().and_then(|status| status.phase)
}

pub(super) fn is_over(migration: &VirtualMachineMigration) -> bool {
    matches!(phase(migration), Some(MigrationPhase::Succeeded | MigrationPhase::Failed))
}

/// Waits until a migration has ended; `look` is called on every change.
async fn until_over(
    client: &NamespaceClient,
    name: &str,
    limit: Duration,
    mut look: impl FnMut(&VirtualMachineMigration),
) -> Result<Waited<VirtualMachineMigration>> {
    let again = format!("neonctl migration wait {name} -n {}", client.namespace);
    let detached = || {
        Error::new(Code::Interrupted, format!("stopped waiting for migration {name}"))
            .hint(format!("the migration continues; to wait again: {again}"))
    };
    let late = |last: Option<&VirtualMachineMigration>| {
        let state = last.map_or_else(|| "it was deleted".to_owned(), show::state);
        Error::new(Code::Timeout, format!("timed out after {limit:?} waiting for migration {name}: {state}"))
            .hint(format!("the migration continues; to wait again: {again}"))
    };
    watching::until(client.api(), (name, None), limit, detached, late, |migration| match migration {
        Some(migration) => {
            look(migration);
            if is_over(migration) { WaitProgress::Done } else { WaitProgress::NotYet }
        }
        None => WaitProgress::Never(
            Error::new(Code::NotFound, format!("migration {name} was deleted, which cancels it"))
                .hint("see where its VM runs: neonctl vm list"),
        ),
    })
    .await
}

/// The outcome of a migration as a result: the error of a failed one contains the reason.
fn verdict(migration: &VirtualMachineMigration) -> Result<()> {
    if phase(migration) == Some(MigrationPhase::Succeeded) {
        return Ok(());
    }
    let (name, vm) = (name_of(migration), &migration.spec.vm_name);
    Err(Error::new(Code::Failed, format!("{vm} was not migrated: {}", show::reason(migration)))
        .hint(format!("see the details: neonctl migration describe {name}, neonctl vm history {vm}")))
}
