//! `vm disk`

mod change;
mod grow;
pub(crate) mod limit;
mod list;
pub(crate) mod usage;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::Disk;
use neonvm_types::{Bytes, Quantity};

use crate::args::vm::DiskCommand;
use crate::commands::resource::name_of;
use crate::error::Result;
use crate::report::Report;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings, command: &DiskCommand, quiet: bool) -> Result<Report> {
    match command {
        DiskCommand::List(args) => list::run(settings, args),
        DiskCommand::Grow(args) => grow::run(settings, args),
        DiskCommand::Limit(args) => limit::run(settings, args),
        DiskCommand::Add(args) => change::add(settings, args, quiet),
        DiskCommand::Remove(args) => change::remove(settings, args, quiet),
    }
}

/// The claim that has the content of a disk now.
pub(super) fn claim_of(machine: &VirtualMachine, disk: &Disk) -> Option<String> {
    let named = disk.claim(name_of(machine))?;
    let status = machine.status.as_ref();
    Some(status.map_or(named.as_str(), |status| status.claim_for(&disk.name, &named)).to_owned())
}

/// Size of the volume that the disk in the guest uses, or did when the VM last ran.
fn used(machine: &VirtualMachine, disk: &str) -> Option<Bytes> {
    let volume = machine.status.as_ref()?.volumes.iter().find(|volume| volume.name == disk)?;
    volume.size.and_then(|size| Bytes::try_from(size).ok())
}

fn storage(amounts: Option<&BTreeMap<String, Amount>>) -> Option<Bytes> {
    let size = amounts?.get("storage")?.0.parse::<Quantity>().ok()?;
    Bytes::try_from(size).ok()
}

/// What a claim requests.
fn requested(claim: &PersistentVolumeClaim) -> Option<Bytes> {
    storage(claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref())
}

/// Size of a claim's volume.
pub(crate) fn capacity(claim: &PersistentVolumeClaim) -> Option<Bytes> {
    storage(claim.status.as_ref()?.capacity.as_ref())
}
