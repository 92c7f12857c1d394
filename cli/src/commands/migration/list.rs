//! `migration list`, `migration get`

use neonvm_api::VirtualMachineMigration;

use super::is_over;
use crate::args::migration::{Get, List};
use crate::commands::resource::{list, name_of};
use crate::error::Result;
use crate::report::Report;
use crate::settings::Settings;

/// Lists the migrations of one namespace, or of all.
pub(in crate::commands) fn list(settings: &Settings, args: &List) -> Result<Report> {
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

/// Shows migrations by name.
pub(in crate::commands) fn get(settings: &Settings, args: &Get) -> Result<Report> {
    list::get::<VirtualMachineMigration>(settings, &args.names, args.watch)
}
