//! `migration`, and `vm migrate`

pub(super) mod begin;
pub(super) mod describe;
pub(super) mod show;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use neonvm_api::VirtualMachineMigration;
use neonvm_api::migration::MigrationPhase;
use serde_json::json;
use show::{asked_by, percent, phase_word, size, status, took};

use super::watching::{self, WaitProgress, Waited};
use crate::args::migration::{Cancel, Get, List, Wait};
use crate::commands::flags::duration;
use crate::commands::resource::{
    NONE, NamespaceClient, Resource, age_cell, document, list, name_of, or_none,
};
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::report::{Column, Document, Report, left, right, wide};
use crate::settings::Settings;

fn phase(migration: &VirtualMachineMigration) -> Option<MigrationPhase> {
    migration.status.as_ref().and_then(|status| status.phase)
}

pub(super) fn is_over(migration: &VirtualMachineMigration) -> bool {
    matches!(phase(migration), Some(MigrationPhase::Succeeded | MigrationPhase::Failed))
}

/// Waits until a migration has ended; `look` is called on every change.
pub(super) async fn until_over(
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
pub(super) fn verdict(migration: &VirtualMachineMigration) -> Result<()> {
    if phase(migration) == Some(MigrationPhase::Succeeded) {
        return Ok(());
    }
    let (name, vm) = (name_of(migration), &migration.spec.vm_name);
    Err(Error::new(Code::Failed, format!("{vm} was not migrated: {}", show::reason(migration)))
        .hint(format!("see the details: neonctl migration describe {name}, neonctl vm history {vm}")))
}

pub(crate) fn cancel(settings: &Settings, args: &Cancel) -> Result<Report> {
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let mut found = Vec::new();
        for name in &args.names {
            let migration = client.find(name).await?;
            refuse(&migration)?;
            found.push(migration);
        }
        let (mut shown, mut lines) = (Vec::new(), Vec::new());
        for before in &found {
            let name = name_of(before);
            let patch = json!({ "metadata": { "uid": before.metadata.uid }, "spec": { "cancel": true } });
            let (api, parameters, patch) = (client.api(), PatchParams::default(), Patch::Merge(&patch));
            let attempt = format!("cannot cancel migration {name}");
            let asked = client.connection.within(&attempt, api.patch(name, &parameters, &patch)).await?;
            if args.waiting.no_wait {
                lines.push(format!("migration/{name} is being cancelled ({})", show::state(before)));
                shown.push(asked);
                continue;
            }
            let limit = duration("timeout", &args.waiting.timeout)?;
            let waited = until_over(&client, name, limit, |_| {}).await?;
            let ended = waited.object.unwrap_or(asked);
            refuse_if_moved(&ended)?;
            lines.push(format!("migration/{name} {}", show::ending(&ended)));
            shown.push(ended);
        }
        let document = document(&shown);
        Ok(Report::document(Document { text: Some(lines.join("\n")), ..document }))
    })
}

/// A finished migration cannot be cancelled.
fn refuse(migration: &VirtualMachineMigration) -> Result<()> {
    refuse_if_moved(migration)?;
    if is_over(migration) {
        let name = name_of(migration);
        return Err(Error::new(Code::Conflict, format!("{name} has ended: {}", show::reason(migration)))
            .hint(format!("see the details: neonctl migration describe {name}")));
    }
    Ok(())
}

fn refuse_if_moved(migration: &VirtualMachineMigration) -> Result<()> {
    if phase(migration) != Some(MigrationPhase::Succeeded) {
        return Ok(());
    }
    let source = migration.status.as_ref().map(|status| status.source_node.as_str()).unwrap_or_default();
    Err(Error::new(Code::Conflict, format!("{} has already succeeded", name_of(migration)))
        .hint(format!("to migrate the VM back: neonctl vm migrate {} --to {source}", migration.spec.vm_name)))
}

/// Waits until migrations are over.
pub(crate) fn wait(settings: &Settings, args: &Wait) -> Result<Report> {
    let limit = duration("timeout", &args.timeout)?;
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let (mut ended, mut lines) = (Vec::new(), Vec::new());
        for name in &args.names {
            client.find::<VirtualMachineMigration>(name).await?;
            let waited = until_over(&client, name, limit, |_| {}).await?;
            let Some(migration) = waited.object else { continue };
            verdict(&migration)?;
            lines.push(format!("migration/{name} {}", show::ending(&migration)));
            ended.push(migration);
        }
        let document = document(&ended);
        Ok(Report::document(Document { text: Some(lines.join("\n")), ..document }))
    })
}

impl Resource for VirtualMachineMigration {
    const NOUN: &'static str = "migration";
    const ONE: &'static str = "migration";
    const MANY: &'static str = "migrations";
    const PREFIX: &'static str = "virtualmachinemigration";
    const CREATE: &'static str = "start one: neonctl vm migrate NAME";
    const WIDTHS: &'static [usize] = &[16, 12, 6, 6, 9, 8, 8, 6, 12, 6];

    fn columns() -> Vec<Column> {
        vec![
            left("NAME"),
            left("VM"),
            left("FROM"),
            left("TO"),
            left("PHASE"),
            right("PROGRESS"),
            right("DOWNTIME"),
            right("TOTAL"),
            left("REASON"),
            left("AGE"),
            wide("BY"),
            wide("PASSES"),
            wide("SENT"),
            wide("DISKS"),
            wide("POLICY"),
            wide("MODE"),
        ]
    }

    fn cells(&self) -> Vec<String> {
        let status = status(self);
        let info = &status.info;
        let counted = |number: i64, text: String| if number > 0 { text } else { NONE.to_owned() };
        let moved = status.phase == Some(MigrationPhase::Succeeded);
        let downtime = if moved { info.downtime_ms } else { 0 };
        vec![
            name_of(self).to_owned(),
            self.spec.vm_name.clone(),
            or_none(&status.source_node),
            or_none(&status.target_node),
            phase_word(self),
            percent(self).map_or_else(|| NONE.to_owned(), |percent| format!("{percent}%")),
            counted(downtime, format!("{downtime}ms")),
            took(self, Timestamp::now()).unwrap_or_else(|| NONE.to_owned()),
            or_none(&status.reason),
            age_cell(self),
            asked_by(self).to_owned(),
            counted(info.passes, info.passes.to_string()),
            counted(info.ram.transferred, size(info.ram.transferred)),
            counted(info.disk.transferred, size(info.disk.transferred)),
            or_none(&status.policy),
            or_none(&status.mode),
        ]
    }
}

/// Lists the migrations of one namespace, or of all.
pub(crate) fn list(settings: &Settings, args: &List) -> Result<Report> {
    let (active, vm, last) = (args.active, args.vm.clone(), args.last);
    let filter = move |migration: &VirtualMachineMigration| {
        (!active || !is_over(migration)) && vm.as_ref().is_none_or(|vm| *vm == migration.spec.vm_name)
    };
    list::list(settings, &args.list, filter, |found| if last { newest(found) } else { found })
}

fn newest(found: Vec<VirtualMachineMigration>) -> Vec<VirtualMachineMigration> {
    let newest = found.into_iter().max_by_key(|migration| {
        let made = migration.metadata.creation_timestamp.as_ref();
        (made.map(|time| time.0.as_second()), name_of(migration).to_owned())
    });
    newest.into_iter().collect()
}

pub(crate) fn get(settings: &Settings, args: &Get) -> Result<Report> {
    list::get::<VirtualMachineMigration>(settings, &args.names, args.watch)
}
