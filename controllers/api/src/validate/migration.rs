//! `VirtualMachineMigration`: a sound spec that never changes. `MigrationPolicy`: likewise sound.

use neonvm_types::Bytes;
use neonvm_types::runner_protocol::{Compression, OnTimeout, PostCopy};

use crate::{FieldError, MigrationPolicy, MigrationTuning, VirtualMachineMigration, field_error::Faults};

/// Least bandwidth that a migration can be limited to. QEMU counts bytes in tenths of a second and sends whole buffers of pages, so a
/// limit of a few KiB is none.
const LEAST_BANDWIDTH: Bytes = Bytes::mib(1);
/// Longest pause that QEMU takes, in milliseconds (`MAX_MIGRATE_DOWNTIME`).
const LONGEST_PAUSE_MS: u32 = 2_000_000;

/// All faults of a new migration.
#[must_use]
pub fn migration_create(migration: &VirtualMachineMigration) -> Vec<FieldError> {
    let mut faults = Faults::default();
    let spec = &migration.spec;
    faults.require(!spec.vm_name.is_empty(), "spec.vmName", "must name a VM in the same namespace");
    faults.require(
        spec.completion_timeout >= 1,
        "spec.completionTimeout",
        format!("{} must be at least 1 second; leave it out for an hour", spec.completion_timeout),
    );
    faults.require(
        Bytes::try_from(spec.max_bandwidth).is_ok_and(|bandwidth| bandwidth >= LEAST_BANDWIDTH),
        "spec.maxBandwidth",
        format!(
            "{} must be at least {LEAST_BANDWIDTH} in a second, since QEMU keeps no lower limit; leave it out for 1Gi",
            spec.max_bandwidth
        ),
    );
    tuning(&spec.tuning, spec.allow_post_copy, &mut faults);
    faults.finish()
}

/// All faults of a policy.
#[must_use]
pub fn migration_policy(policy: &MigrationPolicy) -> Vec<FieldError> {
    let mut faults = Faults::default();
    let spec = &policy.spec;
    if let Some(seconds) = spec.completion_timeout {
        let message = format!("{seconds} must be at least 1 second; leave it out for no limit");
        faults.require(seconds >= 1, "spec.completionTimeout", message);
    }
    if let Some(bandwidth) = spec.max_bandwidth {
        faults.require(
            Bytes::try_from(bandwidth).is_ok_and(|bandwidth| bandwidth >= LEAST_BANDWIDTH),
            "spec.maxBandwidth",
            format!(
                "{bandwidth} must be at least {LEAST_BANDWIDTH} in a second, since QEMU keeps no lower limit; leave it out for no limit"
            ),
        );
    }
    for (index, namespace) in spec.namespaces.iter().enumerate() {
        let path = format!("spec.namespaces[{index}]");
        faults.require(!namespace.is_empty(), path, "must name a namespace; leave the list out for all");
    }
    tuning(&spec.tuning, false, &mut faults);
    faults.finish()
}

fn tuning(tuning: &MigrationTuning, allow_post_copy: bool, faults: &mut Faults) {
    if let Some(most) = tuning.max_volume_copy {
        let message = format!("{most} must be a number of bytes, 0 or more; leave it out for no limit");
        faults.require(Bytes::try_from(most).is_ok(), "spec.maxVolumeCopy", message);
    }
    if let Some(limit) = tuning.downtime_limit_ms {
        faults.require(
            (1..=LONGEST_PAUSE_MS).contains(&limit),
            "spec.downtimeLimitMs",
            format!("{limit} must be 1 to {LONGEST_PAUSE_MS} milliseconds"),
        );
    }
    faults.require(tuning.channels != Some(0), "spec.channels", "0 must be 1 to 255");
    let switch = if allow_post_copy { Some(PostCopy::AfterFirstPass) } else { None };
    let post_copy = tuning.post_copy.or(switch).unwrap_or_default();
    if post_copy != PostCopy::Never {
        let more = tuning.channels.is_some_and(|channels| channels > 1);
        let why = "cannot be had together with post-copy: leave it out, or set postCopy to never";
        faults.require(!more, "spec.channels", format!("more than one {why}"));
        let compressed = tuning.compression == Some(Compression::Zstd);
        faults.require(!compressed, "spec.compression", format!("zstd {why}"));
    }
    if tuning.on_timeout == Some(OnTimeout::PostCopy) {
        faults.require(
            tuning.post_copy != Some(PostCopy::Never),
            "spec.onTimeout",
            "post-copy needs postCopy: on-timeout",
        );
    }
}

/// All faults of a change: of the spec only `cancel` can change, and only from false to true.
#[must_use]
pub fn migration_update(old: &VirtualMachineMigration, new: &VirtualMachineMigration) -> Vec<FieldError> {
    let mut faults = Faults::default();
    let mut allowed = old.spec.clone();
    allowed.cancel = new.spec.cancel;
    faults.require(
        allowed == new.spec,
        "spec",
        "cannot change; set cancel or delete the migration to call it off, or create another one",
    );
    faults.require(
        new.spec.cancel || !old.spec.cancel,
        "spec.cancel",
        "what was called off stays so; create another migration",
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
        let cases: [Case; 11] = [
            (|_| {}, None),
            (|spec| spec.vm_name.clear(), Some("spec.vmName: must name a VM in the same namespace")),
            (
                |spec| spec.completion_timeout = 0,
                Some("spec.completionTimeout: 0 must be at least 1 second; leave it out for an hour"),
            ),
            (
                |spec| spec.max_bandwidth = "-1Gi".parse().unwrap(),
                Some(
                    "spec.maxBandwidth: -1Gi must be at least 1Mi in a second, since QEMU keeps no lower limit; leave it out for 1Gi",
                ),
            ),
            (
                |spec| spec.tuning.max_volume_copy = Some("-1Gi".parse().unwrap()),
                Some(
                    "spec.maxVolumeCopy: -1Gi must be a number of bytes, 0 or more; leave it out for no limit",
                ),
            ),
            (
                |spec| spec.tuning.downtime_limit_ms = Some(0),
                Some("spec.downtimeLimitMs: 0 must be 1 to 2000000 milliseconds"),
            ),
            // Clients in Go write it even if it was not given.
            (|spec| spec.incremental = false, None),
            (|spec| spec.tuning.channels = Some(0), Some("spec.channels: 0 must be 1 to 255")),
            (
                |spec| (spec.allow_post_copy, spec.tuning.channels) = (true, Some(2)),
                Some(
                    "spec.channels: more than one cannot be had together with post-copy: leave it out, or set postCopy to never",
                ),
            ),
            (
                |spec| {
                    spec.tuning.compression = Some(Compression::Zstd);
                    spec.tuning.post_copy = Some(PostCopy::OnTimeout);
                },
                Some(
                    "spec.compression: zstd cannot be had together with post-copy: leave it out, or set postCopy to never",
                ),
            ),
            (
                |spec| {
                    spec.tuning.on_timeout = Some(OnTimeout::PostCopy);
                    spec.tuning.post_copy = Some(PostCopy::Never);
                },
                Some("spec.onTimeout: post-copy needs postCopy: on-timeout"),
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
            "spec: cannot change; set cancel or delete the migration to call it off, or create another one"
        );
        let cancelled = migration(|spec| spec.cancel = true);
        assert_eq!(migration_update(&old, &cancelled), []);
        let errors = migration_update(&cancelled, &old);
        assert_eq!(
            errors[0].to_string(),
            "spec.cancel: what was called off stays so; create another migration"
        );
    }
}
