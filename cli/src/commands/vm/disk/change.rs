//! `vm disk add` and `vm disk remove`: a disk comes and goes between two pods of the VM.

use neonvm_api::VirtualMachine;
use serde_json::{Value, json};

use super::claim_of;
use crate::args::vm::{DiskAdd, DiskRemove};
use crate::commands::resource::{NamespaceClient, nearest};
use crate::commands::vm::change::{Change, base};
use crate::commands::vm::create::manifest;
use crate::commands::vm::set::{list_of, name_of, set_list};
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::report::Report;
use crate::settings::Settings;

pub(super) fn add(settings: &Settings, args: &DiskAdd, quiet: bool) -> Result<Report> {
    let (disk, template) = made(args)?;
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let machine: VirtualMachine = client.find(&args.name).await?;
        let mut spec = base(&machine)?;
        put(&mut spec, disk, template)?;
        Change::to(machine, &spec).apply(&client, &args.applying, args.applying.restart_now, quiet).await
    })
}

/// The disk that the flags describe, and the template of its claim if it has one of its own.
fn made(args: &DiskAdd) -> Result<(Value, Option<Value>)> {
    if let Some(text) = &args.empty {
        return Ok((manifest::disk("empty", text)?, None));
    }
    if let Some(text) = &args.claim {
        return Ok((manifest::claim(text)?, None));
    }
    let text = args.volume.as_deref().unwrap_or_default();
    let template = manifest::claim_template(text, args.storage_class.as_deref())?;
    Ok((manifest::volume(text)?, Some(template)))
}

fn put(spec: &mut Value, disk: Value, template: Option<Value>) -> Result<()> {
    let mut disks = list_of(spec, "/disks");
    let name = name_of(&disk).unwrap_or_default().to_owned();
    if disks.iter().any(|one| name_of(one) == Some(&name)) {
        return Err(Error::new(Code::Conflict, format!("the VM has a disk {name:?} already"))
            .hint("choose another name, or remove that one first: neonctl vm disk remove"));
    }
    disks.push(disk);
    set_list(spec, "", "disks", disks);
    if let Some(template) = template {
        let mut templates = list_of(spec, "/volumeClaimTemplates");
        templates.push(template);
        set_list(spec, "", "volumeClaimTemplates", templates);
    }
    Ok(())
}

pub(super) fn remove(settings: &Settings, args: &DiskRemove, quiet: bool) -> Result<Report> {
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let machine: VirtualMachine = client.find(&args.name).await?;
        let mut spec = base(&machine)?;
        take(&mut spec, &args.name, &args.disk)?;
        let claim = machine.spec.disks.iter().find(|disk| disk.name == args.disk);
        let claim = claim.and_then(|disk| claim_of(&machine, disk));
        let change = Change::to(machine, &spec);
        let report = change.apply(&client, &args.applying, args.applying.restart_now, quiet).await?;
        let stays = |claim| {
            format!("its data stays; to delete it as well, once the disk is gone: kubectl delete pvc {claim}")
        };
        Ok(claim.map(stays).into_iter().fold(report, Report::note))
    })
}

fn take(spec: &mut Value, vm: &str, name: &str) -> Result<()> {
    let mut disks = list_of(spec, "/disks");
    let known: Vec<String> = disks.iter().filter_map(name_of).map(str::to_owned).collect();
    if !known.iter().any(|one| one == name) {
        let error = Error::new(Code::NotFound, format!("{vm} has no disk {name:?}"));
        return Err(error.hint(match nearest(name, &known) {
            Some(meant) => format!("did you mean {meant:?}?"),
            None => format!("list its disks: neonctl vm disk list {vm}"),
        }));
    }
    disks.retain(|disk| name_of(disk) != Some(name));
    set_list(spec, "", "disks", disks);
    let mut templates = list_of(spec, "/volumeClaimTemplates");
    let before = templates.len();
    templates.retain(|one| one.pointer("/metadata/name") != Some(&json!(name)));
    if templates.len() != before {
        set_list(spec, "", "volumeClaimTemplates", templates);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_comes_with_its_claim_and_goes_with_it() {
        let mut spec = json!({ "guest": {} });
        let template = manifest::claim_template("data=1Gi:/data", Some("fast")).unwrap();
        put(&mut spec, manifest::volume("data=1Gi:/data").unwrap(), Some(template.clone())).unwrap();
        assert_eq!(spec["disks"], json!([{ "name": "data", "mountPath": "/data" }]));
        assert_eq!(spec["volumeClaimTemplates"], json!([template]));
        let again = put(&mut spec, manifest::disk("empty", "data=1Gi:/x").unwrap(), None).unwrap_err();
        assert_eq!(again.code, Code::Conflict);
        assert!(take(&mut spec, "pg", "dat").unwrap_err().hint.unwrap().contains("\"data\""));
        take(&mut spec, "pg", "data").unwrap();
        assert_eq!(spec, json!({ "guest": {} }));
    }
}
