//! The table of moves.

use crate::commands::resource::{NONE, Resource, age_cell, name_of, or_none};
use k8s_openapi::jiff::Timestamp;
use neonvm_api::VirtualMachineMigration;
use neonvm_api::migration::MigrationPhase;

use super::show::{asked_by, percent, phase_word, size, status, took};
use crate::report::{Column, left, right, wide};

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
