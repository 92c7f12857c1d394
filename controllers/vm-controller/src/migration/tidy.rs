//! Removes what earlier evictions of a VM left: a VM that lives long would own one migration for each drain otherwise. The last
//! one stays, to show how the drain went. Those for denied growths are removed when they no longer count.

use std::sync::Arc;

use kube::ResourceExt as _;
use neonvm_api::VirtualMachineMigration;
use neonvm_api::names::label;
use neonvm_core_migration::phases::is_over;
use neonvm_core_vm_lifecycle::growth;

use crate::clock::now;
use crate::reconciler::Reconciler;
use crate::request::{is_missing, only, within};

/// Deletes what is superseded. A failure is no reason to hold up migrations: the next reconcile tries again.
pub(super) async fn tidy(reconciler: &Reconciler, all: &[Arc<VirtualMachineMigration>]) {
    for migration in superseded(all).into_iter().chain(growth::forgotten(all, now())) {
        let namespace = migration.namespace().unwrap_or_default();
        let migrations = reconciler.requests.migrations(&namespace);
        let name = migration.name_any();
        match within(migrations.delete(&name, &only(&migration.metadata))).await {
            Err(error) if !is_missing(&error) => {
                tracing::info!(%error, migration = name, "an earlier migration could not be deleted");
            }
            _ => {}
        }
    }
}

/// Of the migrations of one VM, those of earlier evictions, once a later eviction has one that is not over.
fn superseded(all: &[Arc<VirtualMachineMigration>]) -> Vec<&VirtualMachineMigration> {
    let by_eviction = |one: &&VirtualMachineMigration| {
        one.labels().get(label::CREATED_BY_EVICTION).is_some_and(|v| v == "true")
    };
    let ours = || all.iter().map(|one| &**one).filter(by_eviction);
    if ours().all(is_over) {
        return Vec::new();
    }
    ours().filter(|one| is_over(one) && one.metadata.deletion_timestamp.is_none()).collect()
}

#[cfg(test)]
mod tests {
    use neonvm_api::migration::{MigrationPhase, VirtualMachineMigrationSpec};

    use super::*;

    fn migration(
        name: &str,
        phase: Option<MigrationPhase>,
        by_eviction: bool,
    ) -> Arc<VirtualMachineMigration> {
        let mut made = VirtualMachineMigration::new(name, VirtualMachineMigrationSpec::new("db".to_owned()));
        if by_eviction {
            let labels = [(label::CREATED_BY_EVICTION.to_owned(), "true".to_owned())];
            made.metadata.labels = Some(labels.into());
        }
        made.status.get_or_insert_default().phase = phase;
        Arc::new(made)
    }

    #[test]
    fn only_what_earlier_evictions_left_goes_and_only_for_a_later_one() {
        let names = |all: &[Arc<VirtualMachineMigration>]| -> Vec<String> {
            superseded(all).iter().map(|one| one.name_any()).collect()
        };
        let over = [
            migration("a", Some(MigrationPhase::Succeeded), true),
            migration("b", Some(MigrationPhase::Failed), true),
            migration("mine", Some(MigrationPhase::Succeeded), false),
        ];
        assert!(names(&over).is_empty());
        let mut open = over.to_vec();
        open.push(migration("by-hand", None, false));
        assert!(names(&open).is_empty(), "no pod was evicted");
        open.push(migration("c", Some(MigrationPhase::Running), true));
        assert_eq!(names(&open), ["a", "b"]);
    }
}
