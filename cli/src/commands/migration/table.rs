//! The table of migrations: `migration list` and `migration get`.

use k8s_openapi::jiff::Timestamp;
use neonvm_api::VirtualMachineMigration;
use neonvm_api::migration::MigrationPhase;

use super::is_over;
use super::show::{asked_by, percent, phase_word, size, status, took};
use crate::args::migration::{Get, List};
use crate::commands::resource::{NONE, Resource, age_cell, list, name_of, or_none};
use crate::error::Result;
use crate::report::{Column, Report, left, right, wide};
use crate::settings::Settings;

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

pub(in crate::commands) fn get(settings: &Settings, args: &Get) -> Result<Report> {
    list::get::<VirtualMachineMigration>(settings, &args.names, args.watch)
}
