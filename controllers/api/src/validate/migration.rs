//! `VirtualMachineMigration`: a sound spec that never changes.

use neonvm_types::Bytes;

use crate::{FieldError, VirtualMachineMigration, field_error::Faults};

/// All faults of a new migration.
#[must_use]
pub fn migration_create(migration: &VirtualMachineMigration) -> Vec<FieldError> {
    let mut faults = Faults::default();
    let spec = &migration.spec;
    faults.require(!spec.vm_name.is_empty(), "spec.vmName", "must name a machine in the same namespace");
    faults.require(
        spec.completion_timeout >= 1,
        "spec.completionTimeout",
        format!("{} must be at least 1 second; leave it out for an hour", spec.completion_timeout),
    );
    faults.require(
        Bytes::try_from(spec.max_bandwidth).is_ok_and(|bandwidth| bandwidth > Bytes::ZERO),
        "spec.maxBandwidth",
        format!("{} must be above 0 bytes in a second; leave it out for 1Gi", spec.max_bandwidth),
    );
    faults.finish()
}

/// All faults of a change: the spec cannot change.
#[must_use]
pub fn migration_update(old: &VirtualMachineMigration, new: &VirtualMachineMigration) -> Vec<FieldError> {
    let mut faults = Faults::default();
    faults.require(
        old.spec == new.spec,
        "spec",
        "cannot change; delete the migration to cancel it, or create another one",
    );
    faults.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VirtualMachineMigrationSpec;

    fn migration(change: impl FnOnce(&mut VirtualMachineMigrationSpec)) -> VirtualMachineMigration {
        let mut spec = VirtualMachineMigrationSpec::new("vm-a");
        change(&mut spec);
        VirtualMachineMigration::new("move", spec)
    }

    #[test]
    fn creation() {
        type Case = (fn(&mut VirtualMachineMigrationSpec), Option<&'static str>);
        let cases: [Case; 4] = [
            (|_| {}, None),
            (|spec| spec.vm_name.clear(), Some("spec.vmName: must name a machine in the same namespace")),
            (
                |spec| spec.completion_timeout = 0,
                Some("spec.completionTimeout: 0 must be at least 1 second; leave it out for an hour"),
            ),
            (
                |spec| spec.max_bandwidth = "-1Gi".parse().unwrap(),
                Some("spec.maxBandwidth: -1Gi must be above 0 bytes in a second; leave it out for 1Gi"),
            ),
        ];
        for (change, expected) in cases {
            let errors: Vec<String> =
                migration_create(&migration(change)).iter().map(ToString::to_string).collect();
            assert_eq!(errors, Vec::from_iter(expected));
        }
    }

    #[test]
    fn the_spec_never_changes() {
        let old = migration(|_| {});
        assert_eq!(migration_update(&old, &old), []);
        let errors = migration_update(&old, &migration(|spec| spec.auto_converge = false));
        assert_eq!(
            errors[0].to_string(),
            "spec: cannot change; delete the migration to cancel it, or create another one"
        );
    }
}
