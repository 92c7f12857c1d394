//! How far running migrations are, as their objects have it. Only those that have taken their VM: their number is limited for each node
//! and for the cluster, so their series are, too.

use neonvm_api::VirtualMachineMigration;
use neonvm_api::migration::MigrationInfo;
use neonvm_core_migration::phases::is_over;
use neonvm_kit::metrics::{Kind, Page, double};
use neonvm_types::Timestamp;

/// A running migration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Progress {
    namespace: String,
    vm: String,
    name: String,
    /// Reason of the status, such as `Copying`.
    step: String,
    /// Seconds since it took its VM.
    age: i64,
    info: MigrationInfo,
}

impl Progress {
    /// Of a migration; none if it waits or is over.
    pub(crate) fn new(migration: &VirtualMachineMigration, now: Timestamp) -> Option<Self> {
        let status = migration.status.as_ref().filter(|_| !is_over(migration))?;
        Some(Self {
            namespace: migration.metadata.namespace.clone().unwrap_or_default(),
            vm: migration.spec.vm_name.clone(),
            name: migration.metadata.name.clone().unwrap_or_default(),
            step: status.reason.clone(),
            age: now.unix().saturating_sub(status.start_time?.unix()),
            info: status.info.clone(),
        })
    }

    fn sample(&self, page: &mut Page, more: &[(&str, &str)], value: i64) {
        let mut labels = vec![
            ("vm_namespace", self.namespace.as_str()),
            ("vm_name", self.vm.as_str()),
            ("migration", self.name.as_str()),
        ];
        labels.extend(more);
        page.sample(&labels, number(value));
    }
}

/// What is reported is never below 0.
fn number(value: i64) -> f64 {
    double(u64::try_from(value).unwrap_or(0))
}

/// Adds the running migrations to a page.
pub(super) fn write(all: &[Progress], page: &mut Page) {
    let help = "1 for a running migration, by its step.";
    page.family("neonvm_vm_controller_migration_step", Kind::Gauge, help);
    for one in all {
        one.sample(page, &[("step", &one.step)], 1);
    }
    let help = "Seconds since a running migration has taken its VM.";
    page.family("neonvm_vm_controller_migration_age_seconds", Kind::Gauge, help);
    for one in all {
        one.sample(page, &[], one.age);
    }
    let help = "Bytes of a running migration: transferred, remaining and total; of memory and of disks.";
    page.family("neonvm_vm_controller_migration_bytes", Kind::Gauge, help);
    for one in all {
        for (of, bytes) in [("memory", &one.info.ram), ("disks", &one.info.disk)] {
            for (state, value) in
                [("transferred", bytes.transferred), ("remaining", bytes.remaining), ("total", bytes.total)]
            {
                one.sample(page, &[("of", of), ("state", state)], value);
            }
        }
    }
    let help = "Iteration of precopy that a running migration is in.";
    page.family("neonvm_vm_controller_migration_iteration", Kind::Gauge, help);
    for one in all {
        one.sample(page, &[], one.info.passes);
    }
    let help = "Bytes of memory in a second that a running migration sends, and that its guest dirties.";
    page.family("neonvm_vm_controller_migration_bytes_per_second", Kind::Gauge, help);
    for one in all {
        one.sample(page, &[("rate", "sent")], one.info.throughput);
        one.sample(page, &[("rate", "dirtied")], one.info.dirty_rate);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use neonvm_api::migration::{MigrationPhase, RamProgress};
    use neonvm_api::{VirtualMachineMigrationSpec, VirtualMachineMigrationStatus};

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix(seconds).unwrap()
    }

    pub(in crate::metrics) fn migration(
        phase: MigrationPhase,
        started: Option<i64>,
    ) -> VirtualMachineMigration {
        let mut migration = VirtualMachineMigration::new("m", VirtualMachineMigrationSpec::new("db"));
        migration.metadata.namespace = Some("prod".into());
        migration.status = Some(VirtualMachineMigrationStatus {
            phase: Some(phase),
            reason: "Copying".into(),
            start_time: started.map(at),
            info: MigrationInfo {
                passes: 3,
                dirty_rate: 5,
                throughput: -1,
                ram: RamProgress { transferred: 30, remaining: 12, total: 42 },
                ..MigrationInfo::default()
            },
            ..VirtualMachineMigrationStatus::default()
        });
        migration
    }

    #[test]
    fn a_running_migration_shows_its_progress() {
        let all = [Progress::new(&migration(MigrationPhase::Running, Some(100)), at(160)).unwrap()];
        let mut page = Page::new();
        write(&all, &mut page);
        let text = page.finish();
        let samples: Vec<String> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.replace("vm_namespace=\"prod\",vm_name=\"db\",migration=\"m\"", "…"))
            .collect();
        let expected = [
            "neonvm_vm_controller_migration_step{…,step=\"Copying\"} 1",
            "neonvm_vm_controller_migration_age_seconds{…} 60",
            "neonvm_vm_controller_migration_bytes{…,of=\"memory\",state=\"transferred\"} 30",
            "neonvm_vm_controller_migration_bytes{…,of=\"memory\",state=\"remaining\"} 12",
            "neonvm_vm_controller_migration_bytes{…,of=\"memory\",state=\"total\"} 42",
            "neonvm_vm_controller_migration_bytes{…,of=\"disks\",state=\"transferred\"} 0",
            "neonvm_vm_controller_migration_bytes{…,of=\"disks\",state=\"remaining\"} 0",
            "neonvm_vm_controller_migration_bytes{…,of=\"disks\",state=\"total\"} 0",
            "neonvm_vm_controller_migration_iteration{…} 3",
            "neonvm_vm_controller_migration_bytes_per_second{…,rate=\"sent\"} 0",
            "neonvm_vm_controller_migration_bytes_per_second{…,rate=\"dirtied\"} 5",
        ];
        assert_eq!(samples, expected);
    }

    #[test]
    fn what_waits_or_is_over_has_no_series() {
        let now = at(160);
        for (phase, started) in [
            (MigrationPhase::Pending, None),
            (MigrationPhase::Succeeded, Some(1)),
            (MigrationPhase::Failed, Some(1)),
        ] {
            assert_eq!(Progress::new(&migration(phase, started), now), None, "{phase:?}");
        }
        let preparing = Progress::new(&migration(MigrationPhase::Pending, Some(170)), now).unwrap();
        assert_eq!(number(preparing.age), 0.0, "a clock that is set back");
    }
}
