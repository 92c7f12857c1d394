//! `vm snapshot`

mod cutting;
pub(super) mod object;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::DeleteParams;
use neonvm_api::VirtualMachine;
use neonvm_api::names::label;
use neonvm_api::virtual_machine::Phase;
use serde::Serialize;
use serde_json::json;

use self::object::{DiskOf, Part};
use super::disk::claim_of;
use super::freeze;
use crate::args::vm::{SnapshotCommand, SnapshotCreate, SnapshotDelete, SnapshotList};
use crate::commands::resource::{NamespaceClient, name_of};
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::report::{API_VERSION, Document, Report, left, right};
use crate::settings::Settings;

pub(super) fn run(settings: &Settings, command: &SnapshotCommand) -> Result<Report> {
    match command {
        SnapshotCommand::Create(args) => create(settings, args),
        SnapshotCommand::List(args) => list(settings, args),
        SnapshotCommand::Delete(args) => delete(settings, args),
    }
}

/// What is to be made.
struct Plan {
    vm: String,
    name: String,
    class: Option<String>,
    /// Seconds that writes wait at most; none: the VM is off.
    bound: Option<u32>,
    /// Each disk with its claim.
    disks: Vec<(DiskOf, String)>,
}

fn create(settings: &Settings, args: &SnapshotCreate) -> Result<Report> {
    let bound = freeze::bound("for", &args.bound)?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => format!(
            "{}-{}",
            args.vm,
            jiff::Zoned::now().with_time_zone(jiff::tz::TimeZone::UTC).strftime("%Y%m%d-%H%M%S")
        ),
    };
    let name = valid(&name)?;
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let machine: VirtualMachine = client.find(&args.vm).await?;
        let plan = plan(&client, &machine, args, name, bound).await?;
        object::check(&client, plan.class.as_deref()).await?;
        if !object::all(&client, Some(selector(&plan.name))).await?.is_empty() {
            let error = Error::new(Code::Conflict, format!("there is a snapshot {} already", plan.name));
            return Err(error.hint(format!(
                "choose another --name, or delete it: neonctl vm snapshot delete {}",
                plan.name
            )));
        }
        let waited = cutting::cut_all(&client, &machine, &plan).await?;
        Ok(report(&plan, waited))
    })
}

fn report(plan: &Plan, waited_ms: Option<u64>) -> Report {
    let Plan { vm, name, disks, .. } = plan;
    let made: Vec<String> = disks.iter().map(|(disk, _)| object::name_for(name, &disk.name)).collect();
    let waited = match waited_ms {
        Some(waited) => {
            format!("writes waited {:.1}s", std::time::Duration::from_millis(waited).as_secs_f64())
        }
        None => "the VM is off".to_owned(),
    };
    let text = format!("snapshot/{name} of virtualmachine/{vm} created: {}; {waited}", made.join(", "));
    let value = json!({ "apiVersion": API_VERSION, "kind": "Snapshot", "vm": vm, "name": name, "volumeSnapshots": made,
        "frozenMs": waited_ms });
    Report::document(Document {
        value,
        names: vec![format!("snapshot/{name}")],
        text: Some(text),
        ..Document::default()
    })
    .note(format!("a VM from it: neonctl vm create NAME --image IMAGE --from-snapshot {name}"))
}

/// A name that objects and labels can have.
fn valid(name: &str) -> Result<String> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let ends = !name.starts_with('-') && !name.ends_with('-');
    if !name.is_empty() && name.len() <= 63 && name.chars().all(good) && ends {
        return Ok(name.to_owned());
    }
    Err(Error::new(Code::Usage, format!("--name: {name:?} is not valid"))
        .hint("use at most 63 lower-case letters, digits and inner hyphens"))
}

async fn plan(
    client: &NamespaceClient,
    machine: &VirtualMachine,
    args: &SnapshotCreate,
    name: String,
    bound: u32,
) -> Result<Plan> {
    let vm = name_of(machine);
    let refused = |why: &str| Error::new(Code::Conflict, format!("cannot snapshot {vm}")).cause(why);
    let status = machine.status.clone().unwrap_or_default();
    if let Some(migration) = &status.migration {
        let error = refused("the VM is being migrated: its volumes may be copied to other claims");
        return Err(error.hint(format!("see how far it is: neonctl migration describe {}", migration.name)));
    }
    if machine.spec.is_paused() {
        let error = refused("the VM is paused: what its guest has not written back would be missing");
        return Err(error.hint(format!("resume it first: neonctl vm resume {vm}")));
    }
    let runs = status.phase.is_some_and(Phase::is_alive);
    if !runs && !status.pod_name.is_empty() {
        return Err(
            refused("the VM neither runs nor is off").hint(format!("see why: neonctl vm describe {vm}"))
        );
    }
    let mut disks: Vec<(DiskOf, String)> = Vec::new();
    for disk in &machine.spec.disks {
        let Some(claim) = claim_of(machine, disk) else { continue };
        let attempt = format!("cannot get claim {claim}");
        let api = client.api::<PersistentVolumeClaim>();
        let found = client.connection.within(&attempt, api.get(&claim)).await?;
        disks.push((DiskOf::new(&disk.name, &disk.mount_path, &found), claim));
    }
    if disks.is_empty() {
        return Err(refused("it has no disk on a persistent volume claim")
            .hint(format!("list its disks: neonctl vm disk list {vm}")));
    }
    let class = args.class.clone();
    Ok(Plan { vm: vm.to_owned(), name, class, bound: runs.then_some(bound), disks })
}

/// A snapshot in a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    vm: String,
    disks: Vec<String>,
    /// Whether claims can be made from all parts.
    ready: bool,
}

fn list(settings: &Settings, args: &SnapshotList) -> Result<Report> {
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let all = object::all(&client, None).await?;
        let rows: Vec<Row> = rows(all, args.vm.as_deref());
        let cells = |row: &Row| {
            let ready = if row.ready { "yes" } else { "no" };
            (row.name.clone(), vec![row.name.clone(), row.vm.clone(), row.disks.join(","), ready.to_owned()])
        };
        let columns = vec![left("NAME"), left("VM"), left("DISKS"), right("READY")];
        let table = Document::table_of("snapshot", &rows, columns, cells);
        let value = json!({ "apiVersion": API_VERSION, "kind": "SnapshotList", "items": rows });
        let report = Report::document(Document { value, ..table });
        Ok(if rows.is_empty() {
            report.note("no snapshots; make one: neonctl vm snapshot create VM")
        } else {
            report
        })
    })
}

fn rows(all: BTreeMap<String, Vec<Part>>, vm: Option<&str>) -> Vec<Row> {
    let row = |(name, parts): (String, Vec<Part>)| Row {
        name,
        vm: parts.first().map(|part| part.vm.clone()).unwrap_or_default(),
        disks: parts.iter().map(|part| part.disk.name.clone()).collect(),
        ready: parts.iter().all(|part| part.ready),
    };
    all.into_iter().map(row).filter(|row| vm.is_none_or(|vm| row.vm == vm)).collect()
}

fn delete(settings: &Settings, args: &SnapshotDelete) -> Result<Report> {
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let mut found = Vec::new();
        for name in &args.names {
            found.push((name, object::of_name(&client, name).await?));
        }
        let mut lines = Vec::new();
        for (name, parts) in found {
            for part in parts {
                let attempt = format!("cannot delete VolumeSnapshot {}", part.object);
                let api = object::api(&client);
                client
                    .connection
                    .within(&attempt, api.delete(&part.object, &DeleteParams::default()))
                    .await?;
            }
            lines.push(format!("snapshot/{name} deleted"));
        }
        Ok(Report::document(Document {
            value: json!({ "apiVersion": API_VERSION, "kind": "Deleted", "namespace": client.namespace, "names": args.names }),
            names: args.names.iter().map(|name| format!("snapshot/{name}")).collect(),
            text: Some(lines.join("\n")),
            ..Document::default()
        }))
    })
}

/// The label of all parts of a snapshot.
fn selector(name: &str) -> String {
    format!("{}={name}", label::SNAPSHOT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_labels() {
        assert_eq!(valid("before-upgrade").unwrap(), "before-upgrade");
        for bad in ["", "-a", "a-", "A", "a.b", &"a".repeat(64)] {
            assert!(valid(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_snapshot_is_ready_with_its_last_part() {
        let part = |disk: &str, ready| Part {
            object: format!("s-{disk}"),
            vm: "pg".into(),
            disk: DiskOf { name: disk.into(), ..DiskOf::default() },
            ready,
        };
        let all = BTreeMap::from([("s".to_owned(), vec![part("data", true), part("log", false)])]);
        let [row] = &rows(all.clone(), Some("pg"))[..] else { panic!("one") };
        assert_eq!((row.disks.join(" ").as_str(), row.ready), ("data log", false));
        assert!(rows(all, Some("other")).is_empty());
    }
}
