//! `vm delete`

use std::io::{BufRead as _, IsTerminal as _};

use kube::api::{DeleteParams, Patch, PatchParams};
use neonvm_api::VirtualMachine;
use serde_json::json;

use super::waiting::until;
use crate::args::vm::Delete;
use crate::commands::flags::{duration, seconds};
use crate::commands::resource::{NamespaceClient, wait};
use crate::commands::watching::WaitProgress;
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::render::Reporter;
use crate::report::{API_VERSION, Document, Report, left};
use crate::settings::Settings;

pub(crate) fn run(settings: &Settings, args: &Delete, quiet: bool) -> Result<Report> {
    confirm(args)?;
    let reporter = Reporter::lines(quiet);
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let mut found = Vec::new();
        for name in &args.names {
            found.push(client.find(name).await?);
        }
        for machine in &found {
            begin(&client, machine, args, &reporter).await?;
        }
        let mut rows = Vec::new();
        for name in &args.names {
            let mut words = "deleting".to_owned();
            if !args.waiting.no_wait {
                let limit = duration("timeout", &args.waiting.timeout)?;
                let waited = until(&client, name, limit, "deleted", |machine| match machine {
                    None => WaitProgress::Done,
                    Some(_) => WaitProgress::NotYet,
                });
                words = format!("deleted ({})", wait::seconds(waited.await?.took));
            }
            rows.push(vec![name.clone(), words]);
        }
        let lines: Vec<String> = rows
            .iter()
            .filter_map(|row| Some(format!("virtualmachine/{} {}", row.first()?, row.get(1)?)))
            .collect();
        Ok(Report::document(Document {
            value: json!({ "apiVersion": API_VERSION, "kind": "Deleted", "namespace": client.namespace, "names": args.names,
                "waited": !args.waiting.no_wait }),
            names: args.names.iter().map(|name| format!("virtualmachine/{name}")).collect(),
            text: Some(lines.join("\n")),
            columns: vec![left("NAME"), left("STATE")],
            rows,
        }))
    })
}

/// A person is asked before data can be lost; a script must pass a flag.
fn confirm(args: &Delete) -> Result<()> {
    if args.yes || !(args.force || args.names.len() > 1) {
        return Ok(());
    }
    let what = args.names.join(", ");
    let how = if args.force { " by force: data that is not on disk is lost" } else { "" };
    if !std::io::stdin().is_terminal() {
        return Err(
            Error::new(Code::Usage, format!("deleting {what} requires confirmation{how}")).hint("add -y")
        );
    }
    crate::render::question(&format!("delete {what}{how}? [y/N] "));
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    match (read, answer.trim().to_lowercase().as_str()) {
        (Ok(_), "y" | "yes") => Ok(()),
        _ => Err(Error::new(Code::Interrupted, "nothing was deleted")),
    }
}

async fn begin(
    client: &NamespaceClient,
    machine: &VirtualMachine,
    args: &Delete,
    reporter: &Reporter,
) -> Result<()> {
    let name = crate::commands::resource::name_of(machine);
    let attempt = format!("cannot delete {name}");
    let asked = match (&args.grace, args.force) {
        (_, true) => Some(0),
        (Some(text), false) => Some(seconds("grace", text)?),
        (None, false) => None,
    };
    if let Some(seconds) = asked {
        // The controller gives the pod the time that stands in the VM.
        let patch = json!({ "spec": { "terminationGracePeriodSeconds": seconds } });
        let (api, parameters, patch) =
            (client.api::<VirtualMachine>(), PatchParams::default(), Patch::Merge(&patch));
        client.connection.within(&attempt, api.patch(name, &parameters, &patch)).await?;
    }
    let api = client.api::<VirtualMachine>();
    client.connection.within(&attempt, api.delete(name, &DeleteParams::default())).await?;
    let grace = asked.or(machine.spec.termination_grace_period_seconds.map(i64::unsigned_abs)).unwrap_or(5);
    reporter.show(&format!("virtualmachine/{name} stopping (grace {grace}s)"));
    let status = machine.status.clone().unwrap_or_default();
    let claims = machine.spec.claims(name);
    let claims: Vec<String> =
        claims.map(|(disk, claim)| status.claim_for(&disk.name, &claim).to_owned()).collect();
    if !claims.is_empty() && !machine.spec.deletes_claims() {
        let claims = claims.join(" ");
        reporter.show(&format!("its data stays; to delete it as well: kubectl delete pvc {claims}"));
    }
    Ok(())
}
