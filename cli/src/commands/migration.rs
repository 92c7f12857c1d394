//! `migration`, and `vm migrate`

pub(super) mod begin;
pub(super) mod cancel;
pub(super) mod describe;
mod dry_run;
pub(super) mod list;
pub(super) mod show;
mod table;
pub(super) mod wait;

use std::time::Duration;

use kube::api::{Api, ListParams};
use neonvm_api::VirtualMachineMigration;
use neonvm_api::migration::MigrationPhase;

use super::vm::machines::{Machines, nearest};
use super::watching::{self, Seen, Waited};
use crate::error::{Code, Error, Result};

/// Moves of the namespace of some machines.
fn api(machines: &Machines) -> Api<VirtualMachineMigration> {
    Api::namespaced(machines.connection.client(), &machines.namespace)
}

fn name_of(migration: &VirtualMachineMigration) -> &str {
    migration.metadata.name.as_deref().unwrap_or_default()
}

fn phase(migration: &VirtualMachineMigration) -> Option<MigrationPhase> {
    migration.status.as_ref().and_then(|status| status.phase)
}

fn is_over(migration: &VirtualMachineMigration) -> bool {
    matches!(phase(migration), Some(MigrationPhase::Succeeded | MigrationPhase::Failed))
}

/// The move of this name; else exit code 3, with the name that may have been meant.
async fn find(machines: &Machines, name: &str) -> Result<VirtualMachineMigration> {
    let attempt = format!("cannot get migration {name:?}");
    let api = api(machines);
    if let Some(found) = machines.connection.within(&attempt, api.get_opt(name)).await? {
        return Ok(found);
    }
    let namespace = &machines.namespace;
    let error =
        Error::new(Code::NotFound, format!("migration {name:?} not found in namespace {namespace:?}"));
    let list = machines.connection.within("", api.list_metadata(&ListParams::default())).await;
    let names = list.map(|list| list.items).unwrap_or_default();
    let names: Vec<String> = names.into_iter().filter_map(|item| item.metadata.name).collect();
    Err(match nearest(name, &names) {
        Some(meant) => error.hint(format!("did you mean {meant:?}?")),
        None => error.hint(format!("list the migrations: neonctl migration list -n {namespace}")),
    })
}

/// Waits until a migration has ended; `look` is called on every change.
async fn until_over(
    machines: &Machines,
    name: &str,
    limit: Duration,
    mut look: impl FnMut(&VirtualMachineMigration),
) -> Result<Waited<VirtualMachineMigration>> {
    let again = format!("neonctl migration wait {name} -n {}", machines.namespace);
    let detached = || {
        Error::new(Code::Interrupted, format!("stopped waiting for migration {name}"))
            .hint(format!("the migration continues; to wait again: {again}"))
    };
    let late = |last: Option<&VirtualMachineMigration>| {
        let state = last.map_or_else(|| "it was deleted".to_owned(), show::state);
        Error::new(Code::Timeout, format!("timed out after {limit:?} waiting for migration {name}: {state}"))
            .hint(format!("the migration continues; to wait again: {again}"))
    };
    watching::until(api(machines), (name, None), limit, detached, late, |migration| match migration {
        Some(migration) => {
            look(migration);
            if is_over(migration) { Seen::Done } else { Seen::NotYet }
        }
        None => Seen::Never(
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
        .hint(format!("see the details: neonctl migration describe {name}, neonctl vm events {vm}")))
}
