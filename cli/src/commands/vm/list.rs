//! `vm list`, `vm get`

use neonvm_api::VirtualMachine;

use crate::args::vm::{Get, List};
use crate::commands::resource::list;
use crate::error::Result;
use crate::report::Report;
use crate::settings::Settings;

/// Lists the VMs of one namespace, or of all.
pub(in crate::commands) fn list(settings: &Settings, args: &List) -> Result<Report> {
    let (pending, migrating, node) = (args.pending, args.migrating, args.node.clone());
    let filter = move |vm: &VirtualMachine| {
        let on = vm.status.as_ref().map(|status| status.node.as_str()).unwrap_or_default();
        let moves = vm.status.as_ref().is_some_and(|status| status.migration.is_some());
        (!pending || on.is_empty()) && (!migrating || moves) && node.as_ref().is_none_or(|node| node == on)
    };
    list::list(settings, &args.list, filter, |found| found)
}

/// Shows VMs by name.
pub(in crate::commands) fn get(settings: &Settings, args: &Get) -> Result<Report> {
    list::get::<VirtualMachine>(settings, &args.names, args.watch)
}
