//! `migration cancel` and `migration wait`

use kube::api::{Patch, PatchParams};
use neonvm_api::VirtualMachineMigration;
use neonvm_api::migration::MigrationPhase;
use serde_json::json;

use super::{is_over, phase, show, until_over, verdict};
use crate::args::migration::{Cancel, Wait};
use crate::commands::flags::duration;
use crate::commands::resource::client::NamespaceClient;
use crate::commands::resource::{document, name_of};
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::report::{Document, Report};
use crate::settings::Settings;

pub(in crate::commands) fn cancel(settings: &Settings, args: &Cancel) -> Result<Report> {
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
pub(in crate::commands) fn wait(settings: &Settings, args: &Wait) -> Result<Report> {
    let limit = duration("timeout", &args.timeout)?;
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let (mut ended, mut lines) = (Vec::new(), Vec::new());
        for name in &args.names {
            client.find::<VirtualMachineMigration>(name).await?;
            let waited = until_over(&client, name, limit, |_| {}).await?;
            let Some(migration) = waited.object else { continue };
            verdict(&migration)?;
            lines.push(format!("migration/{name} {}", super::show::ending(&migration)));
            ended.push(migration);
        }
        let document = document(&ended);
        Ok(Report::document(Document { text: Some(lines.join("\n")), ..document }))
    })
}
