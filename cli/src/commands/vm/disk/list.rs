//! `vm disk list`

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::ListParams;
use neonvm_api::VirtualMachine;
use neonvm_types::Bytes;
use serde::Serialize;
use serde_json::json;

use super::{capacity, claim_of, requested, used};
use crate::args::vm::DiskList;
use crate::commands::resource::{NONE, NamespaceClient, name_of, or_none};
use crate::connect::block_on;
use crate::error::Result;
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
}

pub(super) fn run(settings: &Settings, args: &DiskList) -> Result<Report> {
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let machine: VirtualMachine = client.find(&args.name).await?;
        let rows = rows(&machine, &sizes(&client, &machine).await);
        Ok(Report::document(document(&machine, &rows)))
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

fn rows(machine: &VirtualMachine, sizes: &BTreeMap<String, Bytes>) -> Vec<Row> {
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
        Row { name: disk.name.clone(), mount_path: disk.mount_path.clone(), claim, size, mode }
    };
    machine.spec.disks.iter().map(row).collect()
}

fn document(machine: &VirtualMachine, rows: &[Row]) -> Document {
    let cells = |row: &Row| {
        let size = row.size.map_or_else(|| NONE.to_owned(), |size| size.to_string());
        let cells =
            vec![row.name.clone(), row.mount_path.clone(), or_none(&row.claim), size, or_none(row.mode)];
        (row.name.clone(), cells)
    };
    let columns = vec![left("DISK"), left("MOUNT"), left("CLAIM"), right("SIZE"), left("MODE")];
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
        let rows = document(&machine, &rows(&machine, &sizes)).rows;
        let lines: Vec<String> = rows.iter().map(|cells| cells.join(" ")).collect();
        assert_eq!(
            lines,
            [
                "data /data pg-x-data 2Gi copied",
                "all /all all 3Gi shared",
                "old /old archive - read-only",
                "scratch /scratch - 1Gi -",
                "files /etc/files - - -",
            ]
        );
    }
}
