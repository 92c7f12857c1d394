//! `vm disk list`

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::ListParams;
use neonvm_api::VirtualMachine;
use neonvm_api::runner_pod::ROOT_DISK_VOLUME;
use neonvm_types::Bytes;
use neonvm_types::guest::{DiskReport, DiskUse, ROOT};
use neonvm_types::runner_protocol::DiskLimits;
use serde::Serialize;
use serde_json::json;

use super::{capacity, claim_of, limit, requested, usage, used};
use crate::args::vm::DiskList;
use crate::commands::resource::{NONE, NamespaceClient, name_of, or_none};
use crate::connect::block_on;
use crate::error::Result;
use crate::render::bytes;
use crate::report::{API_VERSION, Document, Report, left, right};
use crate::settings::Settings;

/// A disk of a VM.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    mount_path: String,
    /// The claim that has its content; empty: none.
    #[serde(skip_serializing_if = "String::is_empty")]
    claim: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<Bytes>,
    /// What a migration does with a volume; empty: it is not on one.
    #[serde(skip_serializing_if = "str::is_empty")]
    mode: &'static str,
    /// How fast it may be read and written; absent: not limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<DiskLimits>,
    /// Its limits, or that they are not in force.
    #[serde(skip)]
    shown_limits: String,
    /// How full it is, if it can be full and the guest has reported it.
    #[serde(rename = "use", skip_serializing_if = "Option::is_none")]
    usage: Option<DiskUse>,
}

pub(super) fn run(settings: &Settings, args: &DiskList) -> Result<Report> {
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let machine: VirtualMachine = client.find(&args.name).await?;
        let (sizes, report) = tokio::join!(sizes(&client, &machine), usage::of_vm(&client, &machine));
        let (known, unknown) = match report {
            Some(Ok(report)) => (report, None),
            Some(Err(why)) => (DiskReport::default(), Some(format!("how full they are is unknown: {why}"))),
            None => (DiskReport::default(), None),
        };
        let frozen = known.frozen_left_ms.map(|left| {
            format!(
                "their file systems are frozen, for another {}s at most; to end that: neonctl vm thaw {}",
                left / 1000,
                args.name
            )
        });
        let rows = rows(&machine, &sizes, &known.disks);
        let report = Report::document(document(&machine, &rows));
        Ok(unknown.into_iter().chain(frozen).fold(report, Report::note))
    })
}

/// Sizes of the volumes of claims; none if this user may not list them.
async fn sizes(client: &NamespaceClient, machine: &VirtualMachine) -> BTreeMap<String, Bytes> {
    if machine.spec.claims(name_of(machine)).next().is_none() {
        return BTreeMap::new();
    }
    let api = client.api::<PersistentVolumeClaim>();
    let list = client.connection.within("cannot list claims", api.list(&ListParams::default())).await;
    let sizes = list.into_iter().flat_map(|list| list.items).filter_map(|claim| {
        let size = capacity(&claim).or_else(|| requested(&claim))?;
        Some((claim.metadata.name?, size))
    });
    sizes.collect()
}

/// The disks of the spec, after the root file system if its use is known.
fn rows(machine: &VirtualMachine, sizes: &BTreeMap<String, Bytes>, known: &[DiskUse]) -> Vec<Row> {
    let usage = |name: &str| known.iter().find(|usage| usage.name == name).cloned();
    let volumes = machine.status.iter().flat_map(|status| &status.volumes);
    let row = |disk: &neonvm_api::virtual_machine::Disk| {
        let claim = claim_of(machine, disk).unwrap_or_default();
        let volume = volumes.clone().find(|volume| volume.name == disk.name);
        let mode = match volume {
            _ if claim.is_empty() => "",
            _ if disk.read_only => "read-only",
            Some(volume) if volume.shared => "shared",
            Some(_) => "copied",
            None => "",
        };
        let empty = disk.empty_disk.as_ref().and_then(|disk| Bytes::try_from(disk.size).ok());
        let size = used(machine, &disk.name).or_else(|| sizes.get(&claim).copied()).or(empty);
        let (name, mount_path) = (disk.name.clone(), disk.mount_path.clone());
        let (limits, shown_limits) = limited(machine, &name);
        Row { usage: usage(&name), name, mount_path, claim, size, mode, limits, shown_limits }
    };
    let (limits, shown_limits) = limited(machine, ROOT_DISK_VOLUME);
    let root = usage(ROOT).map(|usage| Row {
        limits,
        shown_limits,
        name: ROOT.to_owned(),
        mount_path: ROOT.to_owned(),
        claim: String::new(),
        size: Some(Bytes::new(usage.total)),
        mode: "",
        usage: Some(usage),
    });
    root.into_iter().chain(machine.spec.disks.iter().map(row)).collect()
}

fn limited(machine: &VirtualMachine, disk: &str) -> (Option<DiskLimits>, String) {
    match limit::of_disk(machine, disk) {
        None => (None, String::new()),
        Some((limits, true)) => (Some(limits), limits.to_string()),
        Some((limits, false)) => (Some(limits), format!("{limits}, not in force yet")),
    }
}

/// As it was requested; that of a file system is rarely a round one.
fn shown(size: Bytes) -> String {
    if size.get().is_multiple_of(1 << 20) { size.to_string() } else { bytes(size.get()) }
}

fn document(machine: &VirtualMachine, rows: &[Row]) -> Document {
    let are_limited = rows.iter().any(|row| row.limits.is_some());
    let cells = |row: &Row| {
        let size = row.size.map_or_else(|| NONE.to_owned(), shown);
        let used = row.usage.as_ref().map_or_else(|| NONE.to_owned(), |usage| bytes(usage.used));
        let [share, inodes] =
            row.usage.as_ref().map_or_else(|| [NONE, NONE].map(str::to_owned), usage::shares);
        let (name, place, claim) = (row.name.clone(), row.mount_path.clone(), or_none(&row.claim));
        let mut cells = vec![name, place, claim, size, used, share, inodes, or_none(row.mode)];
        cells.extend(are_limited.then(|| or_none(&row.shown_limits)));
        (row.name.clone(), cells)
    };
    let mut columns = vec![
        left("DISK"),
        left("MOUNT"),
        left("CLAIM"),
        right("SIZE"),
        right("USED"),
        right("USE"),
        right("INODES"),
        left("MODE"),
    ];
    columns.extend(are_limited.then(|| left("LIMITS")));
    let table = Document::table_of("disk", rows, columns, cells);
    let value =
        json!({ "apiVersion": API_VERSION, "kind": "DiskList", "vm": name_of(machine), "items": rows });
    Document { value, ..table }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_disk_has_its_claim_and_the_size_that_the_guest_has() {
        let machine: VirtualMachine = serde_json::from_value(json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
            "metadata": { "name": "pg" }, "status": { "volumes": [
                { "name": "data", "claimName": "pg-x-data", "copyOf": "data-pg", "size": "2Gi" },
                { "name": "all", "claimName": "all", "shared": true },
                { "name": "old", "claimName": "archive", "readOnly": true }] },
            "spec": { "disks": [
                { "name": "data", "mountPath": "/data" },
                { "name": "all", "mountPath": "/all", "persistentVolumeClaim": { "claimName": "all" } },
                { "name": "old", "mountPath": "/old", "readOnly": true, "persistentVolumeClaim": { "claimName": "archive" } },
                { "name": "scratch", "mountPath": "/scratch", "emptyDisk": { "size": "1Gi" } },
                { "name": "files", "mountPath": "/etc/files", "configMap": { "name": "files" } }],
                "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": {} }],
                "guest": { "cpus": { "min": 1, "max": 1, "use": 1 }, "rootDisk": { "image": "i" },
                "memorySlots": { "min": 1, "max": 1, "use": 1 } } } }))
            .unwrap();
        let sizes = [("pg-x-data".to_owned(), Bytes::gib(9)), ("all".to_owned(), Bytes::gib(3))].into();
        let known = |name: &str, used| DiskUse {
            name: name.into(),
            total: 1 << 30,
            used,
            available: (1 << 30) - used,
            inodes: 100,
            inodes_used: 7,
        };
        let known = [known("/", 1 << 20), known("data", 1 << 29)];
        let rows = document(&machine, &rows(&machine, &sizes, &known)).rows;
        let lines: Vec<String> = rows.iter().map(|cells| cells.join(" ")).collect();
        assert_eq!(
            lines,
            [
                "/ / - 1Gi 1Mi 1% 7% -",
                "data /data pg-x-data 2Gi 512Mi 50% 7% copied",
                "all /all all 3Gi - - - shared",
                "old /old archive - - - - read-only",
                "scratch /scratch - 1Gi - - - -",
                "files /etc/files - - - - - -",
            ]
        );
    }
}
