//! Metrics. Names of the upstream controller are kept.

mod conditions;
mod migrations;
mod progress;

use std::collections::BTreeMap;
use std::sync::Arc;

use neonvm_core_overlay::RangeUsage;
use neonvm_kit::expiry::Expiry;
use neonvm_kit::metrics::{Counter, Family, Histogram, Kind, Page, Registry, double};

pub(crate) use conditions::Conditions;
pub(crate) use progress::Progress;

use crate::addresses::{AddressUsage, Ipam};
use crate::lag::Lag;

/// Upper bounds in seconds: short work.
const SHORT: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];
/// Upper bounds in seconds: starts.
const LONG: &[f64] = &[
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 240.0, 300.0,
];

/// What there is to do.
#[derive(Debug)]
pub(crate) struct Work {
    /// Machines in each phase.
    pub(crate) vms: BTreeMap<&'static str, usize>,
    /// Migrations in each phase.
    pub(crate) migrations: BTreeMap<String, usize>,
    /// Machines that wait for a worker.
    pub(crate) depth: usize,
    /// Reconciles that panicked; each was requeued.
    pub(crate) panics: u64,
    /// Conditions that are not good.
    pub(crate) conditions: Conditions,
    /// Running migrations.
    pub(crate) progress: Vec<Progress>,
    /// Addresses on the overlay that more than one VM has.
    pub(crate) shared_addresses: usize,
}

impl Work {
    fn write(&self, page: &mut Page) {
        page.family("neonvm_vm_controller_vms", Kind::Gauge, "VMs in each phase.");
        for (phase, count) in &self.vms {
            page.sample(&[("phase", phase)], double(*count as u64));
        }
        page.family("neonvm_vm_controller_migrations", Kind::Gauge, "Migrations in each phase.");
        for (phase, count) in &self.migrations {
            page.sample(&[("phase", phase)], double(*count as u64));
        }
        let depth = double(self.depth as u64);
        page.single("neonvm_vm_controller_queue_depth", Kind::Gauge, "VMs that wait for work.", depth);
        let panics = double(self.panics);
        page.single(
            "neonvm_vm_controller_reconcile_panics_total",
            Kind::Counter,
            "Reconciles that panicked.",
            panics,
        );
        self.conditions.write(page);
        progress::write(&self.progress, page);
        page.single(
            "neonvm_overlay_shared_addresses",
            Kind::Gauge,
            "Addresses on the overlay network that more than one VM has in its status.",
            double(self.shared_addresses as u64),
        );
    }
}

fn write_addresses(addresses: &AddressUsage, page: &mut Page) {
    let help = "Addresses on the overlay network that VMs have or that rest after use.";
    page.family("neonvm_overlay_addresses", Kind::Gauge, help);
    page.sample(&[("state", "held")], double(addresses.held as u64));
    page.sample(&[("state", "resting")], double(addresses.resting as u64));
    let help = "Addresses of each range of the overlay network: total, used, and quarantined after use.";
    page.family("neonvm_overlay_range_addresses", Kind::Gauge, help);
    for RangeUsage { range, total, used, quarantined } in &addresses.ranges {
        for (state, count) in [("total", total), ("used", used), ("quarantined", quarantined)] {
            page.sample(&[("range", range), ("state", state)], *count as f64);
        }
    }
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) success: Histogram,
    pub(crate) failure: Histogram,
    pub(crate) conflict: Histogram,
    pub(crate) creation_to_runner: Histogram,
    pub(crate) runner_to_running: Histogram,
    pub(crate) creation_to_running: Histogram,
    pub(crate) scaling: Histogram,
    pub(crate) restarts: Counter,
    /// How VMs ended.
    pub(crate) exits: Family<Counter, 1>,
    pub(crate) writes: Counter,
    pub(crate) migrations: migrations::Migrations,
    pub(crate) ipam: Arc<Ipam>,
    pub(crate) certificates: Expiry,
}

impl Default for Metrics {
    fn default() -> Self {
        let registry = Registry::new();
        let reconciles = registry.histograms(
            "reconcile_duration_seconds",
            "Time of one reconcile of an object.",
            ["outcome"],
            SHORT,
        );
        Self {
            success: reconciles.with(["success"]),
            failure: reconciles.with(["failure"]),
            conflict: reconciles.with(["conflict"]),
            creation_to_runner: registry.histogram(
                "vm_creation_to_runner_creation_duration_seconds",
                "From the creation of a VM to that of its first runner pod.",
                SHORT,
            ),
            runner_to_running: registry.histogram(
                "vm_runner_creation_to_vm_running_duration_seconds",
                "From the creation of a runner pod to phase Running.",
                LONG,
            ),
            creation_to_running: registry.histogram(
                "vm_creation_to_vm_running_duration_seconds",
                "From the creation of a VM to its first phase Running.",
                LONG,
            ),
            scaling: registry.histogram(
                "neonvm_vm_controller_scaling_seconds",
                "From a change of size being seen to the size being reached.",
                SHORT,
            ),
            restarts: registry.counter("vm_restarts_count", "Restarts of VMs."),
            exits: registry.counters(
                "neonvm_vm_controller_exits_total",
                "VMs that ended, by the reason in their status.",
                ["reason"],
            ),
            writes: registry.counter("neonvm_vm_controller_writes_total", "Writes to the API server."),
            migrations: migrations::Migrations::new(&registry),
            ipam: Arc::new(Ipam::new(&registry)),
            certificates: Expiry::new(&registry),
            registry,
        }
    }
}

impl Metrics {
    /// A page with all of it; `work` and `addresses` exist in the leader only.
    pub(crate) fn page(&self, lag: &Lag, work: Option<&Work>, addresses: Option<&AddressUsage>) -> Page {
        let mut page = self.registry.page();
        let help = "Objects that only failed for the failure-pending period.";
        page.family("reconcile_failing_objects", Kind::Gauge, help);
        for (outcome, counts) in ["failure", "conflict"].into_iter().zip(lag.counts()) {
            for (retried, count) in [("true", counts.retried), ("false", counts.not_retried)] {
                let labels =
                    [("controller", "virtualmachine"), ("outcome", outcome), ("actively_retried", retried)];
                page.sample(&labels, double(count as u64));
            }
        }
        if let Some(addresses) = addresses {
            write_addresses(addresses, &mut page);
        }
        if let Some(work) = work {
            work.write(&mut page);
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use neonvm_api::migration::MigrationPhase;
    use neonvm_core_vm_lifecycle::condition::{DEGRADED, Finding};
    use neonvm_kit::expiry::Use;

    use super::conditions::tests::vm;
    use super::progress::tests::migration;
    use super::*;
    use crate::addresses::Action;
    use crate::clock::now;

    #[test]
    fn names_stay() {
        let metrics = Metrics::default();
        metrics.migrations.succeeded(Duration::from_millis(7), Duration::from_secs(3));
        metrics.migrations.failed("Quoted \"reason\"");
        metrics.ipam.start(Action::Acquire).end(true);
        metrics.exits.with(["Preempted"]).inc();
        let work = Work {
            vms: BTreeMap::from([("Running", 1)]),
            migrations: BTreeMap::from([("Running".to_owned(), 1)]),
            depth: 2,
            panics: 3,
            conditions: Conditions::new(&[vm("a", &[(DEGRADED, Finding::yes("PodFailed", ""))])]),
            progress: Progress::new(&migration(MigrationPhase::Running, Some(1)), now())
                .into_iter()
                .collect(),
            shared_addresses: 1,
        };
        let range = RangeUsage { range: "a to b".into(), total: 9, used: 1, quarantined: 2 };
        let addresses = AddressUsage { held: 1, resting: 2, ranges: vec![range] };
        let validity = neonvm_kit::certificate::Validity { from: 0, until: 1, spread: 0 };
        metrics.certificates.set("neonvm-vm-controller", Use::Client, validity);
        let lag = Lag::new(Duration::from_secs(60));
        let text = metrics.page(&lag, Some(&work), Some(&addresses)).finish();
        let families = [
            "reconcile_duration_seconds histogram outcome",
            "vm_creation_to_runner_creation_duration_seconds histogram",
            "vm_runner_creation_to_vm_running_duration_seconds histogram",
            "vm_creation_to_vm_running_duration_seconds histogram",
            "neonvm_vm_controller_scaling_seconds histogram",
            "vm_restarts_count counter",
            "neonvm_vm_controller_exits_total counter reason",
            "neonvm_vm_controller_writes_total counter",
            "neonvm_vm_controller_migration_downtime_seconds histogram",
            "neonvm_vm_controller_migration_seconds histogram",
            "neonvm_vm_controller_migrations_ended_total counter reason",
            "ipam_ongoing_requests gauge action",
            "ipam_request_duration_seconds histogram action outcome",
            "neonvm_certificate_expiry_timestamp_seconds gauge certificate purpose",
            "neonvm_certificate_lifetime_seconds gauge certificate purpose",
            "reconcile_failing_objects gauge controller outcome actively_retried",
            "neonvm_overlay_addresses gauge state",
            "neonvm_overlay_range_addresses gauge range state",
            "neonvm_vm_controller_vms gauge phase",
            "neonvm_vm_controller_migrations gauge phase",
            "neonvm_vm_controller_queue_depth gauge",
            "neonvm_vm_controller_reconcile_panics_total counter",
            "neonvm_vm_controller_vm_conditions gauge condition",
            "neonvm_vm_controller_vm_condition gauge vm_namespace vm_name condition reason",
            "neonvm_vm_controller_migration_step gauge vm_namespace vm_name migration step",
            "neonvm_vm_controller_migration_age_seconds gauge vm_namespace vm_name migration",
            "neonvm_vm_controller_migration_bytes gauge vm_namespace vm_name migration of state",
            "neonvm_vm_controller_migration_iteration gauge vm_namespace vm_name migration",
            "neonvm_vm_controller_migration_bytes_per_second gauge vm_namespace vm_name migration rate",
            "neonvm_overlay_shared_addresses gauge",
        ];
        assert_eq!(neonvm_test_cluster::metrics::families(&text), families);
        for line in [
            "neonvm_vm_controller_migrations_ended_total{reason=\"Completed\"} 1\n",
            "ipam_ongoing_requests{action=\"acquire\"} 0\n",
            "ipam_request_duration_seconds_count{action=\"acquire\",outcome=\"success\"} 1\n",
            "neonvm_overlay_addresses{state=\"resting\"} 2\n",
            "neonvm_overlay_range_addresses{range=\"a to b\",state=\"quarantined\"} 2\n",
            "neonvm_vm_controller_queue_depth 2\n",
            "neonvm_vm_controller_reconcile_panics_total 3\n",
            "vm_restarts_count 0\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
