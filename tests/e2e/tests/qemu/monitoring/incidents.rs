//! What a healthy cluster shows nothing of, each with the incident that makes it visible.

/// Something that happens to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incident {
    /// A VM with a condition that is not good; the test causes it.
    VmInTrouble,
    /// A migration that has taken its VM; the test causes it.
    MigrationRuns,
    /// A migration that has ended; the test causes it.
    MigrationEnded,
    /// A growth that the scheduler denies; the test causes it. One that it permits in part is not caused.
    GrowthDenied,
    /// Requests of an agent that fail.
    RequestsFail,
    /// An exporter of events is configured.
    EventsExported,
}

use Incident::{EventsExported, GrowthDenied, MigrationEnded, MigrationRuns, RequestsFail, VmInTrouble};

/// Panels without data on a healthy cluster.
pub(crate) const EMPTY: [(&str, Incident); 12] = [
    ("fleet: Growth denied and cut", GrowthDenied),
    ("fleet: VMs with conditions that are not good", VmInTrouble),
    ("fleet: Migrations by phase", MigrationRuns),
    ("fleet: Migrations that ended", MigrationEnded),
    ("fleet: Running migrations", MigrationRuns),
    ("fleet: Age of running migrations", MigrationRuns),
    ("node: Denied growth", GrowthDenied),
    ("vm: Bytes", MigrationRuns),
    ("vm: Sent and dirtied", MigrationRuns),
    ("vm: Iteration", MigrationRuns),
    ("vm: Age", MigrationRuns),
    ("vm: Conditions that are not good", VmInTrouble),
];

/// Metrics and recorded series that alerts read and that a healthy cluster does not have.
pub(crate) const METRICS: [(&str, Incident); 8] = [
    ("autoscaling_agent_billing_dropped_events_total", EventsExported),
    ("autoscaling_agent_scalingevents_dropped_events_total", EventsExported),
    ("autoscaling_agent_scaling_full_denials_total", GrowthDenied),
    ("neonvm:monitor_failures:ratio5m", RequestsFail),
    ("neonvm:permit_failures:ratio5m", RequestsFail),
    ("neonvm_vm_controller_migrations", MigrationRuns),
    ("neonvm_vm_controller_migrations_ended_total", MigrationEnded),
    ("neonvm_vm_controller_vm_condition", VmInTrouble),
];

/// Alerts that are active here although all is well: the VM is to be at its maximum.
pub(crate) const ALWAYS: [&str; 1] = ["NeonvmVmAtMaximum"];

/// Every alert, with the incident that makes it.
pub(crate) const ALERTS: [(&str, &str); 35] = [
    ("NeonvmGrowthDenied", "a node without room for a growth; caused here"),
    ("NeonvmGrowthNotApplied", "a permitted size that the runner cannot give the guest"),
    ("NeonvmVmAtMaximum", "a VM that is at its upper bound for an hour"),
    ("NeonvmVmUnstable", "a VM whose size turns again and again"),
    ("NeonvmVmsNotScaled", "a monitor, scheduler or API server that does not answer"),
    ("NeonvmMonitorsFail", "guests whose monitor does not answer"),
    ("NeonvmVmFailed", "a VM whose command fails; caused here"),
    ("NeonvmVmRestarts", "a VM that ends again and again"),
    ("NeonvmVmsDoNotStart", "a VM whose image does not exist"),
    ("NeonvmVmDegraded", "an action for a VM that is refused, as by a quota"),
    ("NeonvmVmDiskFills", "a disk on a claim that is nearly full"),
    ("NeonvmVmDiskInodes", "a disk on a claim with many small files"),
    ("NeonvmNodeAboveWatermark", "a node whose VMs cannot leave it"),
    ("NeonvmScalingSlow", "a scheduler or guest that takes seconds"),
    ("NeonvmTargetDown", "an agent that does not answer; caused here"),
    ("NeonvmSchedulerWithoutLeader", "schedulers that do not run"),
    ("NeonvmSchedulerTwoLeaders", "clocks that differ"),
    ("NeonvmControllerWithoutLeader", "vm-controllers that do not run"),
    ("NeonvmPermitsFail", "a scheduler that refuses an agent"),
    ("NeonvmAuthorityExpires", "an authority that was not handed over for years"),
    ("NeonvmCertificateNotRenewed", "no signature for 20 hours"),
    ("NeonvmReconcilesFail", "an action for a VM that fails for a minute and longer"),
    ("NeonvmControllerBehind", "an API server that is slow, beside many VMs"),
    ("NeonvmPanics", "a fault of the program"),
    ("NeonvmWatchFails", "rights that are taken away"),
    ("NeonvmEventsDropped", "an endpoint of events that is not reached"),
    ("NeonvmMigrationFailed", "a migration whose target ends"),
    ("NeonvmMigrationsStall", "a migration without another node; caused here"),
    ("NeonvmMigrationDowntimeLong", "a migration over a slow link"),
    ("NeonvmMigrationsNotCreated", "a webhook that refuses migrations"),
    ("NeonvmOverlayFails", "a node whose kernel refuses the tunnel"),
    ("NeonvmOverlayKeyless", "a node without encryption among nodes with it"),
    ("NeonvmAddressesFail", "pools that cannot be written"),
    ("NeonvmAddressesRunOut", "more VMs than addresses"),
    ("NeonvmPodAutoscalerBlind", "endpoints of pods that do not answer"),
];
