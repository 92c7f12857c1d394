//! The table of moves.

use k8s_openapi::jiff::Timestamp;
use neonvm_api::VirtualMachineMigration;
use neonvm_api::migration::MigrationPhase;

use super::name_of;
use super::show::{asked_by, percent, phase_word, size, status, took};
use crate::report::{Column, Document, left, right, wide};

/// Shown for what there is not.
const NONE: &str = "-";

/// The columns.
pub(super) fn columns(namespaces: bool) -> Vec<Column> {
    let mut columns = vec![
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
    ];
    if namespaces {
        columns.insert(0, left("NAMESPACE"));
    }
    columns
}

/// The cells of a move.
pub(super) fn row(migration: &VirtualMachineMigration, namespaces: bool) -> Vec<String> {
    let status = status(migration);
    let info = &status.info;
    let or_none = |text: &str| if text.is_empty() { NONE.to_owned() } else { text.to_owned() };
    let counted = |number: i64, text: String| if number > 0 { text } else { NONE.to_owned() };
    let moved = status.phase == Some(MigrationPhase::Succeeded);
    let downtime = if moved { info.downtime_ms } else { 0 };
    let mut cells = vec![
        name_of(migration).to_owned(),
        migration.spec.vm_name.clone(),
        or_none(&status.source_node),
        or_none(&status.target_node),
        phase_word(migration),
        percent(migration).map_or_else(|| NONE.to_owned(), |percent| format!("{percent}%")),
        counted(downtime, format!("{downtime}ms")),
        took(migration, Timestamp::now()).unwrap_or_else(|| NONE.to_owned()),
        or_none(&status.reason),
        crate::render::age_of(&migration.metadata).unwrap_or_else(|| NONE.to_owned()),
        asked_by(migration).to_owned(),
        counted(info.passes, info.passes.to_string()),
        counted(info.ram.transferred, size(info.ram.transferred)),
        counted(info.disk.transferred, size(info.disk.transferred)),
        or_none(&status.policy),
        or_none(&status.mode),
    ];
    if namespaces {
        cells.insert(0, migration.metadata.namespace.clone().unwrap_or_default());
    }
    cells
}

/// The objects as the API has them.
pub(super) fn document(migrations: &[VirtualMachineMigration], namespaces: bool, list: bool) -> Document {
    let of =
        |migration: &VirtualMachineMigration| (name_of(migration).to_owned(), row(migration, namespaces));
    Document::of_objects("virtualmachinemigration", migrations, list, columns(namespaces), of)
}
